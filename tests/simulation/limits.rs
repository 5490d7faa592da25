//! The largest values of a simulation, and what its failures say at limits. Statements 3, 4, 22 and 25.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::simulation::{Faults, Simulation, StepFault, ensure};
use procession::sync::Latch;
use procession::{BoxError, Event, Events, Runtime, Step, StepOutput};

use crate::programs::*;
use crate::script::script;
use crate::wait::Mutex;

#[test]
fn the_highest_seeds_are_run_once_and_no_others() {
    let run = Arc::new(Mutex::new(Vec::new()));
    let notes = run.clone();
    let simulation = Simulation::new(move |world| {
        notes.lock().map_err(|_| "poisoned")?.push(world.seed());
        world.run()
    });
    let report = simulation.seeds(u64::MAX - 3..u64::MAX).threads(4).run();
    assert_eq!((report.runs(), report.failed().is_none()), (3, true));
    let mut run = run.lock().unwrap().clone();
    run.dedup();
    // The first is the run without deviations.
    assert_eq!(run.remove(0), 0);
    run.sort_unstable();
    run.dedup();
    assert_eq!(run, [u64::MAX - 3, u64::MAX - 2, u64::MAX - 1]);
}

#[test]
fn a_run_may_have_as_many_turns_as_its_limit_says() {
    let turns = |most: u32| {
        let simulation = Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            (0..5).try_for_each(|_| runtime.spawn(Counter::default()).map(drop))?;
            world.run()
        });
        simulation.max_turns(most).seeds(0..1).run().failed().map(|failed| failed.what().to_owned())
    };
    assert_eq!(turns(5), None);
    let what = turns(4).unwrap_or_default();
    assert!(what.starts_with("it has not come to rest after 4 turns"), "{what}");
}

#[test]
fn faults_and_runs_may_last_for_ever() {
    let report = |faults: Faults| {
        let simulation = Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            runtime.spawn(Counter::default())?;
            world.run_for(SECOND)
        });
        simulation.faults(faults.until(Duration::MAX)).seeds(0..5).run()
    };
    for faults in [
        Faults::none().at::<Counter>(1, StepFault::Stall(Duration::MAX)),
        Faults::none().stall::<Counter>(1.0, Duration::MAX).at_most(1),
    ] {
        let report = report(faults);
        let failed = report.failed().map(|failed| failed.report().to_owned());
        assert_eq!((failed, report.faults()), (None, 5));
    }
    Simulation::new(|world| {
        world.start(Runtime::builder())?.spawn(Counter::default())?;
        world.run_for(Duration::MAX)
    })
    .seeds(0..5)
    .check();
}

#[test]
fn only_a_check_of_a_known_name_can_be_switched_off() {
    for check in ["no step panic", "the run ends", "a seed is one run", ""] {
        let simulation = Simulation::new(|world| world.run());
        let panic = catch_unwind(AssertUnwindSafe(|| simulation.without(check))).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.starts_with(&format!("{check:?} cannot be switched off: expected one of")), "{text}");
        assert!(text.contains("\"no step panics\""), "{text}");
    }
}

/// A command that is never answered.
struct Forget;

impl Command for Forget {
    type Output = ();
}

#[test]
fn a_failure_names_ten_open_commands_and_counts_the_others() {
    let report = Simulation::new(|world| {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = kept.clone();
        let handler = move |_: Forget, responder: Responder<()>| -> Result<(), BoxError> {
            keeps.lock().map_err(|_| "poisoned")?.push(responder);
            Ok(())
        };
        let runtime = world.start(Runtime::builder().handler(handler))?;
        for _ in 0..300 {
            runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
                out.command(Forget);
                Ok(Step::<()>::Wait)
            }))?;
        }
        let result = runtime.wait_idle();
        // An open command keeps its world.
        kept.lock().map_err(|_| "poisoned")?.clear();
        Ok(result?)
    })
    .seeds(0..1)
    .run();
    let what = report.failed().unwrap().what();
    assert!(what.ends_with("of <1.9.1>, and 290 more") && what.matches("Forget").count() == 10, "{what}");
}

/// The order of a `HashMap` is in the text of the failure alone.
#[test]
fn two_runs_that_find_different_things_are_shown_with_both_findings() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        runtime.spawn(Counter::default())?;
        let numbers: HashMap<u32, u32> = (0..20).map(|number| (number, number)).collect();
        world.invariant("no counter", move |state| {
            ensure(state.processes::<Counter>().count() == 0, || format!("{numbers:?}"))
        });
        world.run()
    });
    let report = simulation.seeds(0..1).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "a seed is one run");
    let what = failed.what();
    assert!(what.starts_with("the runs differ in what they find: first \"no counter\" does not hold: {"), "{what}");
    assert!(what.contains("}; then \"no counter\" does not hold: {"), "{what}");
}

/// A simulation has one thread, so waits are inside each other, and the stack of a test is 2 MB.
#[test]
fn hundreds_of_closures_may_wait_at_once() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?.address();
        for _ in 0..500 {
            let (asks, mut answer) = (runtime.clone(), None);
            runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                if answer.is_some() {
                    return Ok(Step::Done(()));
                }
                let asks = asks.clone();
                answer = Some(out.blocking(move || asks.ask(counter, CounterMessage::Read, 100 * SECOND).wait()));
                Ok(Step::Wait)
            }))?;
        }
        world.run()
    })
    .seeds(0..2)
    .check();
}

/// No such closure begins between two yields of a step: the process of the step could not answer before it has ended.
#[test]
fn a_closure_that_waits_for_a_process_gets_its_answer() {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?.address();
        for _ in 0..2 {
            let (asks, mut answer) = (runtime.clone(), None);
            runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                let Some(tag) = answer else {
                    let asks = asks.clone();
                    answer = Some(out.blocking(move || asks.ask(counter, CounterMessage::Read, SECOND).wait()));
                    return Ok(Step::Wait);
                };
                for event in events {
                    if let Event::Completed(done) = event
                        && let Some(answer) = done.take(tag)
                    {
                        assert_eq!(answer.ok().and_then(Result::ok), Some(0));
                    }
                }
                Ok(Step::Done(()))
            }))?;
        }
        world.run()
    })
    .check();
}

#[test]
fn too_many_steps_that_wait_at_once_fail_the_run() {
    let report = Simulation::new(|world| {
        let (runtime, latch) = (world.start(Runtime::builder())?, Latch::<()>::new());
        for _ in 0..500 {
            let latch = latch.clone();
            runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                latch.wait();
                Ok(Step::Done(()))
            }))?;
        }
        world.run()
    })
    .seeds(0..1)
    .run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "every wait ends");
    assert_eq!(failed.what(), "more than 100 calls wait in steps at once, the most in a simulation");
}

/// In a runtime with threads, the two closures meet. In a world, the second wait is inside of the first one.
#[test]
fn a_wait_that_needs_the_end_of_an_earlier_wait_says_so() {
    let report = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let (one, other) = (Latch::<()>::new(), Latch::<()>::new());
        for (waits, sets, is_first) in [(one.clone(), other.clone(), true), (other, one, false)] {
            runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                if events.count() > 0 {
                    return Ok(Step::Done(()));
                }
                let (waits, sets) = (waits.clone(), sets.clone());
                out.blocking(move || {
                    let calls: [&dyn Fn(); 2] = [&|| waits.wait(), &|| _ = sets.set(())];
                    calls[usize::from(!is_first)]();
                    calls[usize::from(is_first)]();
                });
                Ok(Step::Wait)
            }))?;
        }
        world.run()
    })
    .seeds(0..1)
    .run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "every wait ends");
    let ends = "; 1 of the calls that wait began earlier, and can only return after it";
    assert!(failed.what().ends_with(ends), "{}", failed.what());
}
