//! Streams as commands: statement 15 of `docs/guarantees/bridge.md`.

// Everything here is for this program alone; `pub` says what the modules share.
#![allow(unreachable_pub, dead_code)]

#[path = "common/blocker.rs"]
mod blocker;
#[path = "process/helpers.rs"]
mod helpers;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use procession::testing::{Driver, Status};
use procession::{CommandError, Event, Events, Process, Step, StepOutput, StepResult, Tag};

use crate::helpers::*;

/// Numbers from zero on. Its polls and drops are counted. It may panic at the end.
struct Numbers {
    next: u64,
    end: u64,
    panics: bool,
    polls: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}

impl Stream for Numbers {
    type Item = u64;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u64>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        if self.next == self.end {
            assert!(!self.panics, "on purpose");
            return Poll::Ready(None);
        }
        self.next += 1;
        Poll::Ready(Some(self.next - 1))
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// Takes one number a step, and ends with the answer.
struct Reader {
    stream: Option<Numbers>,
    tag: Option<Tag<()>>,
    read: u64,
}

impl Process for Reader {
    type Message = u64;
    type Output = (u64, Result<(), CommandError>);

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<Self::Output> {
        if let Some(stream) = self.stream.take() {
            self.tag = Some(out.stream(4, stream));
        }
        match events.next() {
            Some(Event::Message(n)) => {
                assert_eq!(n, self.read);
                self.read += 1;
            }
            Some(Event::Completed(done)) => return Ok(Step::Done((self.read, done.take(self.tag).unwrap()))),
            _ => {}
        }
        Ok(Step::Idle)
    }
}

fn reader(end: u64, panics: bool) -> (Driver<Reader>, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    quiet_panics_on_purpose();
    let (polls, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let stream = Numbers { next: 0, end, panics, polls: polls.clone(), drops: drops.clone() };
    (Driver::new(Reader { stream: Some(stream), tag: None, read: 0 }), polls, drops)
}

#[test]
fn the_items_of_a_stream_come_before_its_end() {
    for end in [0, 1, 3, 4, 5, 100] {
        let (mut driver, _, drops) = reader(end, false);
        assert_eq!(driver.run(), Status::Ended);
        let exit = driver.exit().unwrap();
        assert!(matches!(**exit.output().unwrap(), (read, Ok(())) if read == end), "{end}: {exit:?}");
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_stream_is_polled_no_further_ahead_than_its_limit() {
    let (mut driver, polls, _) = reader(100, false);
    for step in 1..50 {
        driver.step();
        let polls = polls.load(Ordering::SeqCst);
        assert!(polls <= step + 4, "{polls} polls in {step} steps");
    }
    assert_eq!(driver.run(), Status::Ended);
}

#[test]
fn a_panic_in_a_stream_is_the_answer() {
    let (mut driver, _, drops) = reader(3, true);
    assert_eq!(driver.run(), Status::Ended);
    let exit = driver.exit().unwrap();
    assert!(matches!(**exit.output().unwrap(), (_, Err(CommandError::Panicked(_)))), "{exit:?}");
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn a_stream_is_dropped_with_its_process() {
    let (mut driver, _, drops) = reader(100, false);
    driver.step();
    driver.terminate();
    assert_eq!((driver.status(), drops.load(Ordering::SeqCst)), (Status::Ended, 1));
}

#[test]
fn a_stream_of_another_type_is_answered_with_an_error() {
    let runtime = runtime(1);
    let mut tag = None;
    let process = script(move |events: &mut Events<'_, String>, out: &mut StepOutput| {
        let count = || Arc::new(AtomicUsize::new(0));
        let stream = || Numbers { next: 0, end: 9, panics: false, polls: count(), drops: count() };
        let tag = *tag.get_or_insert_with(|| out.stream(4, stream()));
        match events.next() {
            Some(Event::Completed(done)) => Ok(Step::Done(done.take(tag).unwrap())),
            _ => Ok(Step::Wait),
        }
    });
    assert!(matches!(*output(&runtime.spawn(process).unwrap()), Err(CommandError::WrongType { .. })));
}
