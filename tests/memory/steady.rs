//! The allocations of a process that asks, with and without a limit, and of one that sets timers and cancels them.

use std::time::Duration;

use procession::command::TimerFired;
use procession::{Address, Event, Events, Process, Reply, Step, StepOutput, StepResult, Tag};

use crate::futures::allocations;
use crate::helpers::*;
use crate::resident::alone;
use crate::script::script;

/// Rounds that come first, so that all buffers have their size.
const FIRST_ROUNDS: u64 = 10_000;
const ROUNDS: u64 = 100_000;

/// The most allocations of other threads meanwhile.
const OF_OTHERS: u64 = 100;

/// Counts the allocations of all rounds after the first ones.
#[derive(Default)]
struct Rounds {
    ended: u64,
    before: u64,
}

impl Rounds {
    /// Begins the next round. Returns the number of allocations after the last one.
    fn next(&mut self) -> Option<u64> {
        self.ended += 1;
        if self.ended == FIRST_ROUNDS {
            self.before = allocations();
        }
        (self.ended == FIRST_ROUNDS + ROUNDS).then(|| allocations() - self.before)
    }
}

/// Asks a server one question after the other.
struct Asker {
    server: Address<Reply<u64>>,
    limit: Duration,
    question: Option<Tag<u64>>,
    rounds: Rounds,
}

impl Process for Asker {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<u64> {
        let answers = events.filter_map(|event| match event {
            Event::Completed(done) => done.take(self.question),
            _ => None,
        });
        for answer in answers {
            assert_eq!(answer?, 7);
        }
        if let Some(allocations) = self.rounds.next() {
            return Ok(Step::Done(allocations));
        }
        self.question = Some(out.ask(self.server, |reply| reply, self.limit));
        Ok(Step::Wait)
    }
}

#[test]
fn a_question_and_its_answer_allocate_nothing() {
    alone(|| {
        for limit in [Duration::MAX, LIMIT] {
            let runtime = builder().workers(1).start().unwrap();
            let server = script(|events: &mut Events<'_, Reply<u64>>, out: &mut StepOutput| {
                for event in events {
                    if let Event::Message(reply) = event {
                        out.reply(reply, 7);
                    }
                }
                Ok(Step::<()>::Idle)
            });
            let server = runtime.spawn(server).unwrap().address();
            let asker = Asker { server, limit, question: None, rounds: Rounds::default() };
            let asker = runtime.spawn(asker).unwrap();
            let allocations = **crate::wait::wait(&asker).output().unwrap();
            assert!(allocations <= OF_OTHERS, "{allocations} allocations for {ROUNDS} questions, limit {limit:?}");
        }
    });
}

/// In each step cancels the timer of the last step, and sets another one.
#[derive(Default)]
struct SetsTimers {
    timer: Option<Tag<TimerFired>>,
    rounds: Rounds,
}

impl Process for SetsTimers {
    type Message = ();
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<u64> {
        events.for_each(drop);
        if let Some(allocations) = self.rounds.next() {
            return Ok(Step::Done(allocations));
        }
        if let Some(timer) = self.timer.replace(out.after(LIMIT)) {
            out.cancel_timer(timer);
        }
        Ok(Step::Continue)
    }
}

#[test]
fn a_timer_that_is_set_and_cancelled_allocates_only_its_answer() {
    alone(|| {
        let runtime = builder().workers(1).start().unwrap();
        let process = runtime.spawn(SetsTimers::default()).unwrap();
        let allocations = **crate::wait::wait(&process).output().unwrap();
        assert!(allocations <= ROUNDS + OF_OTHERS, "{allocations} allocations for {ROUNDS} timers");
    });
}
