//! The watchdog and user code: observers that shut down, destructors that are stuck, types that ask the runtime.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::Watchdog;
use procession::observe::{Observer, ShutdownStage, StepActivity, StuckStep};
use procession::sync::Latch;
use procession::{Events, Process, Runtime, ShutdownError, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::support::stuck::*;
use crate::wait::Mutex;

/// Shuts the runtime down when it is told of the end of a stuck step.
struct ShutsDown {
    runtime: Arc<Mutex<Option<Runtime>>>,
    refused: Latch<bool>,
}

impl Observer for ShutsDown {
    fn unstuck(&self, _: &StuckStep) {
        // Taken out, so that the observer does not keep its runtime.
        let runtime = self.runtime.lock().unwrap().take().unwrap();
        let shutdown = runtime.shutdown(LIMIT);
        let _ = self.refused.set(matches!(shutdown, Err(ShutdownError::Inside)));
    }
}

/// A runtime whose only worker is in a step that is reported as stuck.
struct Stuck {
    runtime: Runtime,
    held: Blocker,
    /// Whether the shutdown of the observer was refused.
    refused: Latch<bool>,
}

/// Starts a runtime with an observer that this closure makes, and waits until a step is reported.
fn stuck<O: Observer>(observer: impl FnOnce(ShutsDown) -> O) -> Stuck {
    let (clock, place, refused) = (ManualClock::new(), Arc::new(Mutex::new(None)), Latch::new());
    let observer = observer(ShutsDown { runtime: place.clone(), refused: refused.clone() });
    let builder = builder().workers(1).clock(clock.clock()).watchdog(Watchdog::after(LONG)).observer(observer);
    let runtime = builder.start().unwrap();
    *place.lock().unwrap() = Some(runtime.clone());
    let (_, held) = hold_up(&runtime);
    clock.advance(LONG * 2);
    until("the step is reported", || runtime.stuck_steps().len() == 1);
    Stuck { runtime, held, refused }
}

#[test]
fn an_observer_that_is_told_of_a_stuck_step_cannot_wait_for_the_end() {
    let Stuck { runtime, held, refused } = stuck(|ends| ends);
    held.release();
    assert!(wait(&refused));
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

/// Shuts the runtime down when it may, after it was told of the end of a stuck step.
struct ShutsDownLate {
    ends: ShutsDown,
    blocked: Blocked,
}

impl Observer for ShutsDownLate {
    fn unstuck(&self, step: &StuckStep) {
        self.blocked.wait();
        self.ends.unstuck(step);
    }
}

#[test]
fn an_observer_that_the_end_waits_for_cannot_wait_for_the_end() {
    let blocker = Blocker::new();
    let Stuck { runtime, held, refused } = stuck(|ends| ShutsDownLate { ends, blocked: blocker.blocked() });
    held.release();
    blocker.wait_begun();
    // The end gives up when it has waited for the observer for the grace.
    let report = runtime.shutdown(Duration::ZERO).unwrap();
    assert!(matches!(report.hangs, Some(ShutdownStage::Threads)), "{report}");
    blocker.release();
    assert!(wait(&refused));
}

/// An error whose destructor is stuck.
#[derive(Debug)]
struct StuckError(#[expect(dead_code)] BlocksInDrop);

impl std::fmt::Display for StuckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stuck")
    }
}

impl std::error::Error for StuckError {}

#[test]
fn an_event_that_is_dropped_after_a_step_does_not_count_as_the_step() {
    let watched = watched(1, 0);
    let blocker = Blocker::new();
    let (mut error, mut monitor) = (Some(StuckError(BlocksInDrop(blocker.blocked()))), None);
    let failed = Latch::new();
    let watcher = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(error) = error.take() {
            let (mut error, fails) = (Some(error), failed.clone());
            let fails = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| -> StepResult<()> {
                let _ = fails.set(());
                Err(error.take().ok_or("stepped once")?.into())
            });
            let child = out.spawn(fails)?;
            monitor = Some(out.monitor(child.pid()));
        } else if failed.is_set() {
            // With one worker, the process has ended. The event is here, and goes with the monitor after the step.
            match monitor.take() {
                Some(monitor) => out.demonitor(monitor),
                None => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Continue)
    });
    let watcher = watched.runtime.spawn(watcher).unwrap();
    blocker.wait_begun();
    watched.pass();
    let step = watched.runtime.stuck_steps().pop().unwrap();
    assert_eq!((step.process.pid, step.doing), (watcher.pid(), StepActivity::AfterStep));
    blocker.release();
    output(&watcher);
}

/// The runtime that [`Curious`] asks.
static CURIOUS: Mutex<Option<Runtime>> = Mutex::new(None);

/// A process whose type asks the runtime what is stuck when it is asked for its name.
struct Curious(Blocked);

impl Process for Curious {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        let runtime = CURIOUS.lock().unwrap().clone();
        if let Some(runtime) = runtime {
            assert_eq!(runtime.stats().stuck_steps, 1);
        }
        "curious"
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.0.wait();
        Ok(Step::Done(()))
    }
}

#[test]
fn the_name_of_a_type_may_ask_what_is_stuck() {
    let watched = watched(1, 0);
    let blocker = Blocker::new();
    let curious = watched.runtime.spawn(Curious(blocker.blocked())).unwrap();
    blocker.wait_begun();
    *CURIOUS.lock().unwrap() = Some(watched.runtime.clone());
    let (clock, over) = (watched.clock.clone(), Latch::new());
    let passed = over.clone();
    // The thread that moves the clock looks at the workers.
    std::thread::spawn(move || {
        clock.advance(LONG * 2);
        let _ = passed.set(());
    });
    wait(&over);
    assert_eq!(watched.runtime.stuck_steps()[0].process.type_name, "curious");
    assert_eq!(watched.tells(1)[0].1.process.pid, curious.pid());
    blocker.release();
    output(&curious);
    watched.tells(2);
    // The static must not keep the runtime.
    *CURIOUS.lock().unwrap() = None;
}
