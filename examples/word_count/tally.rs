//! The tally: the one process that has all counts.

use std::time::Duration;

use procession::command::{CancelRequest, TimerFired};
use procession::{Address, CommandError, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use super::counts::Counts;
use super::walker::WalkerMessage;

/// The most different words that are remembered at a time, and their most bytes. In all they take a few hundred
/// megabytes. Ordinary text has fewer words. [`Table::keep_timeout`](super::counts::Table::keep_timeout) says what
/// happens to more.
const MOST_WORDS: usize = 1 << 22;
const MOST_TEXT: usize = 1 << 27;

/// How long the tally waits for the others if a stop request has no deadline.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) enum TallyMessage {
    /// Start this walker. When it has answered, the tally is complete.
    Begin(Address<WalkerMessage>),
    /// Add these counts. The reply is sent afterwards.
    Add(Box<Counts>, Reply<()>),
    /// Files of this total size were found.
    Found { files: u64, bytes: u64 },
    /// A file was counted to its end.
    Counted,
    /// A path could not be read, or not to its end.
    Failed,
    /// Ask for the progress.
    Look(Reply<Progress>),
}

/// The number of files that have been counted, and of those that have been found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) files: u64,
    pub(super) files_found: u64,
    pub(super) bytes: u64,
    pub(super) bytes_found: u64,
}

/// The result of a tally.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) files: u64,
    pub(super) failed: u64,
    pub(super) counts: Counts,
    /// The error that ended the walk early, if there was one.
    pub(super) broken: Option<CommandError>,
}

#[derive(Default)]
pub(super) struct Tally {
    summary: Summary,
    found: (u64, u64),
    walk: Option<Tag<()>>,
    last_call: Option<Tag<TimerFired>>,
}

impl Tally {
    /// Waits for the remaining counts after a stop request, for at most half of the remaining time. At the end of
    /// that time the tally would be terminated, and the counts would be lost.
    fn call_last(&mut self, request: &CancelRequest, out: &mut StepOutput) {
        let time = request.deadline.map_or(PATIENCE, |end| end.saturating_duration_since(out.now()) / 2);
        self.last_call.get_or_insert_with(|| out.after(time));
    }

    fn done(&mut self) -> StepResult<Summary> {
        Ok(Step::Done(std::mem::take(&mut self.summary)))
    }
}

impl Process for Tally {
    type Message = TallyMessage;
    type Output = Summary;

    fn step(&mut self, events: &mut Events<TallyMessage>, out: &mut StepOutput) -> StepResult<Summary> {
        for event in events {
            match event {
                Event::Message(TallyMessage::Begin(walker)) => {
                    self.walk = Some(out.ask(walker, WalkerMessage::Walk, Duration::MAX));
                }
                Event::Message(TallyMessage::Add(counts, reply)) => {
                    self.summary.counts.merge(&counts);
                    self.summary.counts.table.keep_timeout(MOST_WORDS, MOST_TEXT);
                    out.reply(reply, ());
                }
                Event::Message(TallyMessage::Found { files, bytes }) => {
                    self.found = (self.found.0 + files, self.found.1 + bytes);
                }
                Event::Message(TallyMessage::Counted) => self.summary.files += 1,
                Event::Message(TallyMessage::Failed) => self.summary.failed += 1,
                Event::Message(TallyMessage::Look(reply)) => {
                    let (files_found, bytes_found) = self.found;
                    let (files, bytes) = (self.summary.files, self.summary.counts.bytes);
                    out.reply(reply, Progress { files, files_found, bytes, bytes_found });
                }
                // Before the tally has begun, there is nothing to wait for.
                Event::Cancel(_) if self.walk.is_none() => return self.done(),
                Event::Cancel(request) => self.call_last(&request, out),
                Event::Completed(done) => {
                    if let Some(walked) = self.walk.and_then(|tag| done.take(tag)) {
                        self.summary.broken = walked.err();
                    }
                    // Otherwise the limit of the last call has passed.
                    return self.done();
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use procession::Pid;
    use procession::testing::{Driver, Status, question};

    use super::super::blocks::Block;
    use super::*;

    /// A tally that has begun, and the request that the walker received.
    fn begun() -> (Driver<Tally>, Reply<()>) {
        let mut tally = Driver::new(Tally::default());
        let walker: Pid = "<0.7.1>".parse().unwrap();
        tally.message(TallyMessage::Begin(walker.typed()));
        assert_eq!(tally.run(), Status::Idle);
        let Ok((to, WalkerMessage::Walk(reply))) = tally.sent() else { panic!("the walker is not asked") };
        assert_eq!(to, walker);
        (tally, reply)
    }

    fn add(tally: &mut Driver<Tally>, text: &str) {
        let (reply, asked) = question();
        let counts = Box::new(Counts::of(&Block { bytes: text.into(), in_word: false }));
        tally.message(TallyMessage::Add(counts, reply));
        assert_eq!(tally.run(), Status::Idle);
        asked.answer().unwrap().unwrap();
    }

    fn summary(tally: &Driver<Tally>) -> Arc<Summary> {
        tally.exit().unwrap().output().unwrap().clone()
    }

    #[test]
    fn it_adds_up_what_it_is_told_and_leaves_it_when_it_is_over() {
        let (mut tally, walk) = begun();
        add(&mut tally, "a b\n");
        add(&mut tally, "b c\nd");
        tally.message(TallyMessage::Counted).message(TallyMessage::Failed).message(TallyMessage::Counted);
        assert_eq!(tally.run(), Status::Idle);
        walk.send(());
        assert_eq!(tally.run(), Status::Ended);
        let Summary { files, failed, counts, broken } = &*summary(&tally);
        assert_eq!((files, failed, counts.lines, counts.words, counts.bytes), (&2, &1, 2, 5, 9));
        assert_eq!(counts.table.top(1), [(&b"b"[..], 2)]);
        assert!(broken.is_none());
    }

    #[test]
    fn it_says_how_far_it_is() {
        let (mut tally, _walk) = begun();
        tally.message(TallyMessage::Found { files: 3, bytes: 10 }).message(TallyMessage::Found { files: 1, bytes: 5 });
        add(&mut tally, "words");
        let (reply, asked) = question();
        tally.message(TallyMessage::Counted).message(TallyMessage::Look(reply));
        tally.run();
        let expected = Progress { files: 1, files_found: 4, bytes: 5, bytes_found: 15 };
        assert_eq!(asked.answer().unwrap().unwrap(), expected);
    }

    #[test]
    fn asked_to_stop_it_takes_what_still_comes_and_then_leaves_what_it_has() {
        let (mut tally, _walk) = begun();
        tally.cancel("enough");
        assert_eq!(tally.run(), Status::Idle);
        tally.advance(PATIENCE - Duration::from_nanos(1));
        add(&mut tally, "late");
        tally.advance(Duration::from_nanos(1));
        assert_eq!(tally.run(), Status::Ended);
        assert_eq!(summary(&tally).counts.words, 1);
    }

    #[test]
    fn asked_to_stop_it_is_done_as_soon_as_the_walker_is() {
        let (mut tally, walk) = begun();
        tally.cancel("enough");
        tally.run();
        walk.send(());
        assert_eq!(tally.run(), Status::Ended);

        let mut not_begun = Driver::new(Tally::default());
        not_begun.cancel("enough");
        assert_eq!(not_begun.run(), Status::Ended);
    }

    #[test]
    fn a_walker_that_ends_without_an_answer_is_reported() {
        let (mut tally, walk) = begun();
        add(&mut tally, "words");
        drop(walk);
        assert_eq!(tally.run(), Status::Ended);
        assert_eq!(summary(&tally).counts.words, 1);
        assert!(summary(&tally).broken.is_some());
    }
}
