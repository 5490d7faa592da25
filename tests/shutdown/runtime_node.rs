//! The library's own parts as states: a runtime in a tree with others.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::UncleanShutdown;
use procession::shutdown::Phase;
use procession::sync::Latch;
use procession::{
    Event, Events, Process, Runtime, ShutdownNode, SpawnOptions, Step, StepOutput, StepResult, WaitError,
};

use crate::blocker::{Blocked, Blocker};
use crate::support::{LIMIT, ZERO, job, told};
use crate::wait::{advance_until, wait};

/// Lives until it is told to stop.
struct Lives;

impl Process for Lives {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let stop = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if stop { Step::Done(()) } else { Step::Idle })
    }
}

/// Is stuck in its first step.
struct Stuck(Blocked);

impl Process for Stuck {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.0.wait();
        Ok(Step::Done(()))
    }
}

fn runtime() -> Runtime {
    Runtime::builder().workers(1).shutdown_limit(LIMIT).start().unwrap()
}

#[test]
fn a_runtime_closes_after_its_children_and_before_its_parent() {
    let runtime = runtime();
    let process = runtime.spawn(Lives).unwrap();
    let ((server, server_tail), (store, store_tail)) = (job(), job());
    let all = store.depends_on([runtime.shutdown_node().depends_on([server])]);
    all.request_shutdown();
    assert_eq!(told([&server_tail, &store_tail]), [true, false]);
    assert!(runtime.is_alive(process.pid()), "the server may still send to it");
    server_tail.done();
    wait(store_tail.end());
    assert!(runtime.shutdown_node().is_closed() && process.exit().is_some_and(|exit| exit.is_done()));
    store_tail.done();
    all.shutdown_timeout(LIMIT).unwrap();
    assert!(all.err().is_none(), "{:?}", all.err());
    assert!(runtime.shutdown(Duration::ZERO).unwrap().is_clean(), "the report is that of the one shutdown");
}

#[test]
fn the_parts_of_a_runtime_end_in_their_order() {
    let runtime = runtime();
    let state = runtime.shutdown_node();
    let names: Vec<_> =
        state.report().nodes().iter().filter_map(|node| node.name.as_deref().map(String::from)).collect();
    assert_eq!(names, ["runtime", "workers", "pool", "timers", "processes"], "each after what is listed below it");
    state.shutdown_timeout(LIMIT).unwrap();
    let report = state.report();
    assert_eq!(report.count(Phase::Done), report.nodes().len(), "{report}");
}

#[test]
fn a_runtime_that_is_shut_down_otherwise_or_dropped_closes_its_state() {
    let one = runtime();
    let state = one.shutdown_node();
    assert!(!state.is_closed());
    one.shutdown(Duration::from_secs(60)).unwrap();
    assert!(state.is_closed() && !state.is_shutting_down() && state.err().is_none());
    state.shutdown_timeout(ZERO).unwrap();

    let two = runtime();
    two.spawn(Lives).unwrap();
    let state = two.shutdown_node();
    drop(two);
    assert!(state.is_closed());
    state.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn the_last_handle_may_be_gone_when_the_state_is_asked() {
    for _ in 0..20 {
        let runtime = runtime();
        let state = runtime.shutdown_node();
        let drops = std::thread::spawn(move || drop(runtime));
        state.shutdown_timeout(LIMIT).unwrap();
        wait(drops).unwrap();
    }
}

#[test]
fn a_step_may_ask_for_the_end_of_its_own_runtime() {
    struct Asks(ShutdownNode);
    impl Process for Asks {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            self.0.request_shutdown();
            let stop = events.any(|event| matches!(event, Event::Cancel(_)));
            Ok(if stop { Step::Done(()) } else { Step::Idle })
        }
    }
    let runtime = runtime();
    let state = runtime.shutdown_node();
    runtime.spawn(Asks(state.clone())).unwrap();
    assert!(state.wait_closed_timeout(LIMIT).is_ok());
    assert!(state.err().is_none());
}

#[test]
fn a_runtime_has_one_state() {
    let runtime = runtime();
    let one = runtime.shutdown_node();
    assert_eq!(
        ShutdownNode::merge([one.clone(), runtime.clone().shutdown_node()]).report().nodes().len(),
        1 + one.report().nodes().len()
    );
    one.shutdown_timeout(LIMIT).unwrap();
    assert!(runtime.shutdown_node().is_closed());
}

#[test]
fn a_step_or_job_that_waits_for_its_own_runtime_gets_an_error() {
    struct Waits(ShutdownNode, Latch<bool>, bool);
    impl Process for Waits {
        type Message = ();
        type Output = ();
        fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
            for event in events {
                if let Event::Completed(_) | Event::Cancel(_) = event {
                    return Ok(Step::Done(()));
                }
            }
            let (state, told) = (self.0.clone(), self.1.clone());
            let why = if self.2 { WaitError::Inside } else { WaitError::InsideStep };
            let asks = move || told.set(state.shutdown().is_err_and(|error| error.why() == why));
            if self.2 {
                out.blocking(asks);
                return Ok(Step::Wait);
            }
            asks().unwrap();
            Ok(Step::Idle)
        }
    }
    for on_pool in [false, true] {
        let (runtime, told) = (runtime(), Latch::new());
        let state = runtime.shutdown_node();
        runtime.spawn(Waits(state.clone(), told.clone(), on_pool)).unwrap();
        assert!(wait(&told));
        assert!(state.wait_closed_timeout(LIMIT).is_ok() && state.err().is_none());
    }
}

#[test]
fn a_step_waiting_for_a_runtime_being_dropped_gets_an_error() {
    struct Waits(ShutdownNode, [Latch<()>; 2], Latch<bool>);
    impl Process for Waits {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            let [begun, go] = &self.1;
            let _ = begun.set(());
            wait(go);
            let _ = self.2.set(self.0.shutdown().is_err_and(|error| error.why() == WaitError::InsideStep));
            Ok(Step::Done(()))
        }
    }
    /// Is closed by the end of the runtime.
    struct Closed(Latch<()>);
    impl Process for Closed {
        type Message = ();
        type Output = ();
        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
        fn close(&mut self) {
            let _ = self.0.set(());
        }
    }
    let is_told = || {
        let runtime = Runtime::builder().workers(2).start().unwrap();
        let (state, begun, dropping, told) = (runtime.shutdown_node(), Latch::new(), Latch::new(), Latch::new());
        runtime.spawn(Waits(state.clone(), [begun.clone(), dropping.clone()], told.clone())).unwrap();
        wait(&begun);
        runtime.spawn(Closed(dropping)).unwrap();
        drop(runtime);
        let is_told = wait(&told);
        assert!(state.wait_closed_timeout(LIMIT).is_ok());
        is_told
    };
    // A runtime that is dropped waits for steps for a moment only. On a busy machine it may have ended when the step
    // asks.
    assert!((0..10).any(|_| is_told()), "it would wait for itself");
}

#[test]
fn a_frozen_shutdown_names_the_process_with_its_type_and_state() {
    let clock = ManualClock::new();
    let runtime =
        Runtime::builder().workers(1).clock(clock.clock()).shutdown_limit(Duration::from_secs(7)).start().unwrap();
    let blocker = Blocker::new();
    let named = SpawnOptions::new().name("clerk");
    let stuck = runtime.spawn_with(Stuck(blocker.blocked()), named).unwrap();
    blocker.wait_begun();
    clock.advance(Duration::from_secs(2));
    let ((server, server_tail), (store, store_tail)) = (job(), job());
    server_tail.done();
    let all = store.depends_on([runtime.shutdown_node().depends_on([server])]).annotate("all");
    let error = all.shutdown_timeout(ZERO).unwrap_err();
    let who = format!("{} {} \"clerk\" (running for 2s)", stuck.pid(), std::any::type_name::<Stuck>());
    let expected = format!("all: runtime: processes: timeout expired (1 process is left: {who})");
    assert_eq!(error.to_string(), expected);
    assert!(format!("{error:#}").contains(&who), "{error:#}");
    assert!(!store_tail.end().is_cancelled());

    // When the limit of its own is over, the runtime ends without it, and says so.
    advance_until("the processes are done", &clock, Duration::from_secs(7), || {
        all.report().find("processes").is_some_and(|node| node.phase == Phase::Done)
    });
    wait(store_tail.end());
    store_tail.done();
    all.shutdown_timeout(LIMIT).unwrap();
    let error = all.err().unwrap();
    assert_eq!(error.names().collect::<Vec<_>>(), ["all", "runtime", "processes"]);
    let left = &error.downcast_ref::<UncleanShutdown>().unwrap().report().stuck;
    assert_eq!(left.iter().map(|process| process.pid).collect::<Vec<_>>(), [stuck.pid()]);
    blocker.release();
}
