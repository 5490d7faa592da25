//! The counts of the commits of one run.

use std::time::Duration;

use super::journal::Batch;
use crate::outcome::tell_log;
use crate::primitives::{AtomicU64, Ordering};

/// The commits of the log, and how often the journal was opened anew.
#[derive(Debug, Default)]
pub(super) struct CommitCounts {
    commits: AtomicU64,
    bytes: AtomicU64,
    micros: AtomicU64,
    rewinds: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commits {
    pub(super) commits: u64,
    /// The bytes of their batches.
    pub(super) bytes: u64,
    /// The time that they took together, in microseconds.
    pub(super) micros: u64,
    pub(super) rewinds: u64,
}

impl CommitCounts {
    /// A batch is on disk, after this time.
    pub(super) fn committed(&self, batch: &Batch, took: Duration) {
        let (bytes, micros) = (batch.size() as u64, took.as_micros() as u64);
        // Ordering: Relaxed: they are only shown. The writer alone adds to them.
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        tell_log(|| tracing::debug!(last = batch.last().0, bytes, micros, "records of a store are on disk"));
    }

    /// The journal was opened anew. This is its last record.
    pub(super) fn rewound(&self, last: u64) {
        self.rewinds.fetch_add(1, Ordering::Relaxed);
        tell_log(|| {
            tracing::warn!(
                last,
                "a store has opened its files again after an error: steps that were not on disk are lost"
            );
        });
    }

    pub(super) fn get(&self) -> Commits {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Commits {
            commits: get(&self.commits),
            bytes: get(&self.bytes),
            micros: get(&self.micros),
            rewinds: get(&self.rewinds),
        }
    }
}
