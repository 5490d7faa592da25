//! Questions of durable processes that are asked within traces: their answers are in the traces after a sleep, a
//! restart and a kill, too.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::Store;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::{Address, Runtime};

use crate::clerk::{Clerk, ClerkMessage, How, Price, begin, look, question, tell};
use crate::guest::all_asleep;
use crate::places::store_in;
use crate::traces::{Span, Traces};
use crate::wait::until;
use crate::worker::{end, kill};

const MINUTE: Duration = Duration::from_secs(60);

/// Processes sleep after a minute.
fn open(journal: impl Journal + 'static, traces: &Traces, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock()).propagate(traces.clone());
    let store = store_in(journal).kind::<Clerk>().answers::<Price>("price").sleep_after(MINUTE);
    store.start(builder).unwrap()
}

/// The spans below this one. Waits until this many have succeeded, and fails if there are others.
#[track_caller]
fn below(traces: &Traces, parent: usize, count: usize) -> Vec<Span> {
    let find = || traces.children(parent).into_iter().filter(|span| span.end == "succeeded").collect::<Vec<_>>();
    until("their steps are over", || find().len() == count);
    assert_eq!(traces.children(parent).len(), count);
    find()
}

/// Asks within a trace, and waits until the other process has the question. Returns the span of the asking step.
fn asked(store: &Store, traces: &Traces, [one, other]: [Address<ClerkMessage>; 2]) -> usize {
    let root = traces.root(|| tell(store, one, question(other, How::Keep)));
    let asks = below(traces, root, 1)[0].number;
    let question = &below(traces, asks, 1)[0];
    assert_eq!((question.pid, question.number > asks), (Some(other.pid()), true), "{question:?}");
    asks
}

/// Answers the question from outside of any trace. Checks that the answer is in the trace of the question.
fn answered(store: &Store, runtime: &Runtime, traces: &Traces, [one, other]: [Address<ClerkMessage>; 2], asks: usize) {
    tell(store, other, ClerkMessage::Answer(7));
    let answer = &below(traces, asks, 2)[1];
    assert_eq!(answer.pid, Some(one.pid()), "{answer:?}");
    assert!(answer.event.starts_with("command "), "{answer:?}");
    assert_eq!(look(runtime, one).unwrap(), ["q: 7"]);
}

#[test]
fn the_answer_of_a_question_is_in_its_trace_over_a_sleep() {
    let (traces, clock) = (Traces::new(), ManualClock::new());
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &traces, &clock);
    let clerks = begin(&store);
    let asks = asked(&store, &traces, clerks);
    all_asleep(&runtime, || clock.advance(MINUTE));
    until("no context is in memory", || traces.contexts() == 0);
    answered(&store, &runtime, &traces, clerks, asks);
    until("nothing is left", || traces.contexts() == 0);
    end((store, runtime));
}

#[test]
fn the_answer_of_a_question_is_in_its_trace_over_a_kill_and_a_restart() {
    let (disk, traces, clock) = (MemoryDisk::new(), Traces::new(), ManualClock::new());
    let run = || open(MemoryJournal::new(&disk), &traces, &clock);
    let (store, runtime) = run();
    let clerks = begin(&store);
    let asks = asked(&store, &traces, clerks);
    // The answers to these questions come when all steps before them are on disk.
    clerks.iter().for_each(|clerk| assert_eq!(look(&runtime, *clerk).unwrap().len(), 0));
    kill(&disk, (store, runtime));
    until("no context is in memory", || traces.contexts() == 0);

    let (store, runtime) = run();
    answered(&store, &runtime, &traces, clerks, asks);
    end((store, runtime));
    let (store, runtime) = run();
    assert_eq!(look(&runtime, clerks[0]).unwrap(), ["q: 7"]);
    until("nothing is left", || traces.contexts() == 0);
    end((store, runtime));
}
