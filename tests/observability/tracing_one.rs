//! `Runtime::trace`: the events of one process.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::{RuntimeBuilder, Watchdog};
use procession::observe::{ProcessEvent, ProcessTrace};
use procession::{Address, Event, Events, Exit, Process, Runtime, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

/// The orders of a [`Worker`], as messages.
enum Order {
    Work,
    Ask(Address<Order>),
    Hold(Blocked),
    Fail,
    Upgrade,
    Finish,
}

struct Worker;

impl Process for Worker {
    type Message = Order;
    type Output = ();

    fn type_name() -> &'static str {
        "worker"
    }

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Order::Ask(to)) => out.send(to, Order::Work),
                Event::Message(Order::Hold(blocked)) => blocked.wait(),
                Event::Message(Order::Fail) => return Err("it fails".into()),
                Event::Message(Order::Upgrade) => return Ok(Step::Upgrade(Upgrade::to(Worker))),
                Event::Message(Order::Finish) | Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Worker))
    }
}

/// A runtime with a manual clock and two workers that are at rest.
fn started() -> (Runtime, ManualClock, [Address<Order>; 2]) {
    started_with(|builder| builder)
}

fn started_with(more: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> (Runtime, ManualClock, [Address<Order>; 2]) {
    let clock = ManualClock::new();
    let runtime = more(builder().workers(1).clock(clock.clock())).start().unwrap();
    let workers = [(); 2].map(|()| runtime.spawn(Worker).unwrap().address());
    rest(&runtime);
    (runtime, clock, workers)
}

fn rest(runtime: &Runtime) {
    until("all rest", || runtime.is_idle());
}

fn traced(runtime: &Runtime, worker: Address<Order>) -> ProcessTrace {
    let trace = runtime.trace(worker, 60 * SECOND).unwrap();
    rest(runtime);
    trace
}

fn texts(events: &[ProcessEvent]) -> Vec<String> {
    events.iter().map(|event| format!("{}: {}", event.what, event.text)).collect()
}

#[test]
fn a_trace_has_the_messages_and_steps_of_one_process_and_no_other() {
    let (runtime, clock, [traced_one, other]) = started();
    let trace = traced(&runtime, traced_one);
    clock.advance(SECOND);
    runtime.send(traced_one, Order::Work).unwrap();
    rest(&runtime);
    runtime.send(other, Order::Ask(traced_one)).unwrap();
    rest(&runtime);
    let (events, name) = (trace.take(), std::any::type_name::<Order>());
    let expected = [
        format!("message: {name} from outside"),
        "step: took 1 message, and rests".into(),
        format!("message: {name} of {}", other.pid()),
        "step: took 1 message, and rests".into(),
    ];
    assert_eq!(texts(&events), expected);
    assert!(events.iter().all(|event| event.at == SECOND));
    assert!(trace.take().is_empty() && !trace.is_over() && trace.left_out() == 0);
}

#[test]
fn a_trace_goes_on_over_replacements_and_ends_with_the_process() {
    let (runtime, _clock, [worker, _]) = started();
    let trace = traced(&runtime, worker);
    for order in [Order::Fail, Order::Upgrade, Order::Finish] {
        runtime.send(worker, order).unwrap();
        rest(&runtime);
    }
    let events: Vec<_> = texts(&trace.take()).into_iter().filter(|text| !text.starts_with("message")).collect();
    let expected = [
        "failed: failed: it fails",
        "replaced: worker",
        "step: took 0 messages, and rests",
        "step: took 1 message, and is replaced",
        "replaced: worker",
        "step: took 0 messages, and rests",
        "step: took 1 message, and is done",
        "ended: done",
    ];
    assert_eq!(events, expected);
    assert!(trace.is_over());
    assert!(runtime.trace(worker, SECOND).is_err(), "it has ended");
}

#[test]
fn a_trace_has_at_most_1000_events_in_a_second_and_counts_the_others() {
    let (runtime, clock, [worker, _]) = started();
    let trace = traced(&runtime, worker);
    // Each message is two events.
    let work = |count| {
        for _ in 0..count {
            runtime.send(worker, Order::Work).unwrap();
            rest(&runtime);
        }
    };
    work(400);
    assert_eq!((trace.take().len(), trace.left_out()), (800, 0));
    work(300);
    assert_eq!((trace.take().len(), trace.left_out()), (200, 400));
    clock.advance(SECOND);
    work(600);
    clock.advance(SECOND);
    work(1);
    assert_eq!((trace.take().len(), trace.left_out()), (1_000, 602), "at most 1,000 wait");
    clock.advance(58 * SECOND);
    assert!(trace.is_over(), "a minute is over");
    work(1);
    assert!(trace.take().is_empty());
}

/// Has a step stuck, and returns the place at which the watchdog sees it.
fn stuck_at(runtime: &Runtime, clock: &ManualClock, worker: Address<Order>) -> String {
    let blocker = Blocker::new();
    runtime.send(worker, Order::Hold(blocker.blocked())).unwrap();
    blocker.wait_begun();
    advance_until("it is stuck", clock, SECOND, || !runtime.stuck_steps().is_empty());
    let doing = runtime.snapshot().stuck[0].doing.clone();
    blocker.release();
    rest(runtime);
    doing
}

#[test]
fn a_process_is_as_before_when_its_trace_is_over() {
    let (runtime, clock, [worker, other]) = started_with(|builder| builder.watchdog(Watchdog::after(SECOND)));
    let at_message = "at a message from outside";
    assert_eq!(stuck_at(&runtime, &clock, worker), at_message);
    let before = runtime.stats();
    for _ in 0..3 {
        let first = traced(&runtime, worker);
        let second = runtime.trace(worker, SECOND).unwrap();
        rest(&runtime);
        assert!(first.is_over() && !second.is_over(), "a process has one trace at a time");
        drop(first);
        rest(&runtime);
        runtime.send(worker, Order::Work).unwrap();
        rest(&runtime);
        assert_eq!(second.take().len(), 2, "the end of the first has not ended the second");
        clock.advance(SECOND);
        assert!(second.is_over());
        drop(second);
        rest(&runtime);
    }
    // No step was made for it, and everything is there.
    let after = runtime.stats();
    assert_eq!(after.workers[0].steps, before.workers[0].steps + 3);
    assert_eq!((after.messages.stepped, after.messages.queued), (before.messages.stepped + 3, 0));
    runtime.send(worker, Order::Ask(other)).unwrap();
    rest(&runtime);
    assert_eq!(runtime.stats().messages.stepped, after.messages.stepped + 2);
    // Its own machine is stepped again: the machine of a trace hides the events of a step from the watchdog.
    assert_eq!(stuck_at(&runtime, &clock, worker), at_message);
    let _trace = traced(&runtime, worker);
    assert_ne!(stuck_at(&runtime, &clock, worker), at_message, "this test can see a trace");
}

#[test]
fn a_trace_of_a_process_in_a_step_begins_behind_it() {
    let (runtime, _clock, [worker, _]) = started();
    let blocker = Blocker::new();
    runtime.send(worker, Order::Hold(blocker.blocked())).unwrap();
    blocker.wait_begun();
    let (trace, dropped) = (runtime.trace(worker, SECOND).unwrap(), runtime.trace(worker, SECOND));
    drop(dropped);
    let last = runtime.trace(worker, SECOND).unwrap();
    runtime.send(worker, Order::Work).unwrap();
    blocker.release();
    rest(&runtime);
    assert!(trace.is_over() && trace.take().is_empty());
    assert_eq!(texts(&last.take()).last().unwrap(), "step: took 1 message, and rests");
}

#[test]
fn a_trace_that_a_process_never_gets_is_over_when_the_process_ends() {
    let (runtime, _clock, [worker, _]) = started();
    let blocker = Blocker::new();
    runtime.send(worker, Order::Hold(blocker.blocked())).unwrap();
    blocker.wait_begun();
    let trace = runtime.trace(worker, 60 * SECOND).unwrap();
    runtime.terminate(worker).unwrap();
    assert!(runtime.trace(worker, SECOND).is_err());
    assert!(!trace.is_over());
    blocker.release();
    until("it is over", || trace.is_over());
}
