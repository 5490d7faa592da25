//! Copies the pages of a WAL to its main file from time to time, and tells of readers that keep it from that.

use std::time::{Duration, Instant};

use super::connection::{Guarded, Progress, checkpoint};
use crate::clock::Clock;
use crate::durable::journal::error::JournalError;
use crate::outcome::tell_log;

/// How many bytes may be written to a WAL before its pages are copied to the main file.
const CHECKPOINT: u64 = 16 << 20;

/// How long a reader may keep pages from being copied before the log has a warning.
const PATIENCE: Duration = Duration::from_secs(10);

/// The checkpoints of one file.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    /// The bytes that were written since the last checkpoint, about.
    written: u64,
    stuck: Option<Stuck>,
}

/// A reader has a snapshot, so a checkpoint has stopped at its end.
#[derive(Clone, Copy, Debug)]
struct Stuck {
    /// How many pages of the WAL were copied. A later checkpoint that has copied more has met another reader.
    copied: i64,
    since: Instant,
    is_told: bool,
}

impl Checkpoints {
    /// Notes that about so many bytes were written to the WAL.
    pub(super) fn add(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Makes a checkpoint if much was written.
    pub(super) fn make(&mut self, file: &mut Guarded, name: &str) -> Result<(), JournalError> {
        self.make_at(file, name, Clock::system().now())
    }

    /// As [`make`](Self::make), at a given time.
    pub(super) fn make_at(&mut self, file: &mut Guarded, name: &str, now: Instant) -> Result<(), JournalError> {
        if self.written <= CHECKPOINT {
            return Ok(());
        }
        let progress = file.call(|connection| checkpoint(connection, "PASSIVE"))?;
        self.written = 0;
        if let Some(since) = self.note(progress, now) {
            let (seconds, pages) = (since.as_secs(), progress.pages);
            tell_log(|| {
                tracing::warn!(
                    file = name,
                    seconds,
                    pages,
                    "a reader holds an old snapshot of a file of the store, so its WAL grows: end the reader"
                );
            });
        }
        Ok(())
    }

    /// Notes a checkpoint. Returns for how long a reader has kept pages from being copied, once, if that is long.
    fn note(&mut self, progress: Progress, now: Instant) -> Option<Duration> {
        if progress.copied >= progress.pages {
            self.stuck = None;
            return None;
        }
        let new = Stuck { copied: progress.copied, since: now, is_told: false };
        let stuck = self.stuck.filter(|stuck| stuck.copied == progress.copied).unwrap_or(new);
        let since = now.saturating_duration_since(stuck.since);
        let is_due = since >= PATIENCE && !stuck.is_told;
        self.stuck = Some(Stuck { is_told: stuck.is_told || is_due, ..stuck });
        is_due.then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_that_holds_a_snapshot_for_long_is_told_of_once() {
        let (mut checkpoints, start) = (Checkpoints::default(), Clock::system().now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let progress = |copied, pages| Progress { pages, copied };
        assert_eq!(checkpoints.note(progress(5, 5), at(0)), None, "all was copied");
        assert_eq!(checkpoints.note(progress(5, 9), at(1)), None);
        assert_eq!(checkpoints.note(progress(5, 12), at(10)), None, "that is 9 s");
        assert_eq!(checkpoints.note(progress(5, 20), at(12)), Some(Duration::from_secs(11)));
        assert_eq!(checkpoints.note(progress(5, 30), at(60)), None, "once is enough");
        // Other readers, each for a short time.
        assert_eq!(checkpoints.note(progress(25, 30), at(61)), None);
        assert_eq!(checkpoints.note(progress(29, 40), at(80)), None);
        assert_eq!(checkpoints.note(progress(40, 40), at(81)), None);
        assert_eq!(checkpoints.note(progress(40, 50), at(200)), None, "it begins anew");
        assert_eq!(checkpoints.note(progress(40, 50), at(210)), Some(PATIENCE));
    }
}
