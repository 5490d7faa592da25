//! Waits for latches and tokens, which may not have the clock of the world. Statements 4 and 12.

use std::time::Duration;

use procession::simulation::{Simulation, World, ensure};
use procession::sync::Latch;
use procession::{BoxError, CancelToken, Events, Process, Reason, Runtime, Step, StepOutput};

use crate::programs::*;
use crate::script::script;

/// A latch and two tokens that one process sets. One token has the clock of the world, and one has that of the system.
#[derive(Clone)]
struct Signals {
    latch: Latch<()>,
    tokens: [CancelToken; 2],
}

impl Signals {
    fn new(world: &World) -> Signals {
        Signals { latch: Latch::new(), tokens: [CancelToken::new(), CancelToken::with_clock(world.clock())] }
    }
}

/// Waits for one of the signals.
type WaitFor = fn(&Signals);

const WAITS: [WaitFor; 3] =
    [|signals| signals.latch.wait(), |signals| _ = signals.tokens[0].wait(), |signals| _ = signals.tokens[1].wait()];

/// Gives the signals after ten seconds of virtual time.
fn gives(signals: Signals) -> impl Process<Message = (), Output = ()> {
    let mut timer = None;
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if timer.is_none() {
            timer = Some(out.after(10 * SECOND));
        } else if events.count() > 0 {
            let _ = signals.latch.set(());
            signals.tokens.iter().for_each(|token| _ = token.cancel("over"));
            return Ok(Step::Done(()));
        }
        Ok(Step::Wait)
    })
}

fn has_waited(world: &World) -> Result<(), BoxError> {
    Ok(ensure((10 * SECOND..11 * SECOND).contains(&world.now()), || format!("{:?}", world.now()))?)
}

#[test]
fn a_wait_for_a_latch_or_a_token_drives_the_world() {
    for wait_for in WAITS {
        Simulation::new(move |world| {
            let (runtime, signals) = (world.start(Runtime::builder())?, Signals::new(world));
            runtime.spawn(gives(signals.clone()))?;
            wait_for(&signals);
            has_waited(world)
        })
        .seeds(0..20)
        .check();
    }
}

#[test]
fn a_wait_with_a_limit_takes_virtual_time_whatever_the_clock_is() {
    Simulation::new(move |world| {
        let (runtime, signals) = (world.start(Runtime::builder())?, Signals::new(world));
        runtime.spawn(gives(signals.clone()))?;
        let begun = std::time::Instant::now();
        for token in &signals.tokens {
            ensure(token.sleep(4 * SECOND).is_ok(), || String::from("it was cancelled"))?;
        }
        ensure(signals.latch.wait_timeout(SECOND).is_none(), || String::from("it was set"))?;
        ensure(signals.latch.wait_timeout(Duration::from_secs(3_600)).is_some(), || String::from("it was not set"))?;
        has_waited(world)?;
        assert_eq!(signals.tokens[0].sleep(SECOND), Err(Reason::from("over")));
        // More than this time has passed in virtual time.
        ensure(begun.elapsed() < 9 * SECOND, || String::from("it has waited for real"))?;
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_wait_for_what_nothing_sets_fails_the_run() {
    for wait_for in WAITS {
        for is_step in [false, true] {
            let report = Simulation::new(move |world| {
                let (runtime, signals) = (world.start(Runtime::builder())?, Signals::new(world));
                if is_step {
                    runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                        wait_for(&signals);
                        Ok(Step::Done(()))
                    }))?;
                } else {
                    wait_for(&signals);
                }
                world.run()
            })
            .seeds(0..1)
            .run();
            let failed = report.failed().unwrap();
            let whose = if is_step { "in a step or in blocking work" } else { "of the scenario" };
            assert_eq!(failed.check(), "every wait ends");
            assert_eq!(failed.what(), format!("a call {whose} waits, and the world rests"));
        }
    }
}

/// Waits in a closure of the pool. Meanwhile another process always continues.
#[test]
fn a_closure_that_waits_for_what_nothing_sets_ends_with_the_run() {
    for wait_for in WAITS {
        let simulation = Simulation::new(move |world| {
            let (runtime, signals) = (world.start(Runtime::builder())?, Signals::new(world));
            let mut has_begun = false;
            runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                if !std::mem::replace(&mut has_begun, true) {
                    let signals = signals.clone();
                    out.blocking(move || wait_for(&signals));
                }
                Ok(Step::<()>::Continue)
            }))?;
            world.run()
        });
        let report = simulation.seeds(0..1).max_turns(500).run();
        assert_eq!(report.failed().unwrap().check(), "the run ends");
    }
}

/// No error could refuse these waits. So the step blocks its worker, and the others go on.
#[test]
fn a_step_that_waits_for_a_signal_lets_the_others_go_on() {
    for wait_for in WAITS {
        Simulation::new(move |world| {
            let (runtime, signals) = (world.start(Runtime::builder())?, Signals::new(world));
            runtime.spawn(gives(signals.clone()))?;
            let waits = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                wait_for(&signals);
                Ok(Step::Done(()))
            }))?;
            ensure(waits.join()?.is_done(), || String::from("the step has failed"))?;
            has_waited(world)
        })
        .seeds(0..20)
        .check();
    }
}
