//! Conditions that must hold eventually. Statement 24.

use std::time::Duration;

use procession::simulation::{Faults, Simulation, StepFault, World, WorldState};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::programs::SECOND;

/// Is up after its first message.
struct Service {
    is_up: bool,
}

impl Process for Service {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.is_up |= events.any(|event| matches!(event, Event::Message(())));
        Ok(Step::Idle)
    }
}

/// Is stepped each second, for ever.
struct Ticker;

impl Process for Ticker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        out.after(SECOND);
        Ok(Step::Idle)
    }
}

const UP: &str = "the service is up";

fn is_up(state: &WorldState<'_>) -> bool {
    state.processes::<Service>().any(|(_, service)| service.is_up)
}

/// The check that a few runs of this scenario fail.
fn failure_of(scenario: impl Fn(&World, &Runtime, Address<()>) + Send + Sync + 'static) -> Option<String> {
    let report = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let service = runtime.spawn(Service { is_up: false })?.address();
        scenario(world, &runtime, service);
        Ok(())
    })
    .seeds(0..20)
    .run();
    report.failed().map(|failed| failed.check().to_owned())
}

#[test]
fn what_must_hold_eventually_is_asked_after_the_last_fault() {
    let service = |is_told: bool| {
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let service = runtime.spawn(Service { is_up: false })?;
            world.eventually(UP, SECOND, is_up);
            // The first step comes after the first stall, and finds no message.
            world.run_for(STALL + STALL / 100)?;
            if is_told {
                runtime.send(&service, ())?;
            }
            world.run_for(10 * SECOND)
        })
        // Each stall is shorter than the limit, and both together are longer: the limit begins with the last fault.
        .faults(Faults::none().at::<Service>(1, StepFault::Stall(STALL)).at::<Service>(2, StepFault::Stall(STALL)))
        .seeds(0..50)
    };
    const STALL: Duration = Duration::from_millis(800);
    service(true).check();
    let report = service(false).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), UP);
    assert!(failed.report().contains("it never held"), "{}", failed.report());
}

#[test]
fn what_holds_after_its_time_has_failed() {
    let within = |limit: Duration| {
        failure_of(move |world, runtime, service| {
            world.eventually(UP, limit, is_up);
            _ = world.run_for(2 * SECOND);
            _ = runtime.send(service, ());
            _ = world.run_for(2 * SECOND);
        })
    };
    assert_eq!(within(SECOND).as_deref(), Some(UP));
    assert_eq!(within(3 * SECOND), None);
    assert_eq!(within(Duration::MAX), None);
}

#[test]
fn a_condition_that_panics_fails_the_run_and_says_so() {
    let report = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        runtime.spawn(Service { is_up: false })?;
        world.eventually(UP, SECOND, |state| state.holder("service").is_some() || panic!("no holder"));
        world.run_for(SECOND / 2)
    })
    .seeds(0..1)
    .run();
    let failed = report.failed().unwrap();
    assert_eq!((failed.check(), failed.what()), (UP, "its condition panicked: no holder"));
}

#[test]
fn a_run_that_does_not_rest_is_judged_if_the_time_is_over() {
    let runs_for = |millis: u64| {
        failure_of(move |world, runtime, _| {
            _ = runtime.spawn(Ticker);
            world.eventually(UP, Duration::from_millis(1_500), is_up);
            _ = world.run_for(Duration::from_millis(millis));
        })
    };
    // The time begins with the run, and no turn comes between its first and its second second.
    assert_eq!(runs_for(1_900).as_deref(), Some(UP));
    assert_eq!(runs_for(1_500).as_deref(), Some(UP));
    assert_eq!(runs_for(1_400), None);
}

#[test]
fn a_condition_is_asked_at_the_end_of_its_time_and_changes_nothing() {
    let run = |is_asked: bool| {
        let report = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            runtime.spawn(Ticker)?;
            if is_asked {
                // It holds by the time alone, and no turn ends between this moment and the end.
                world.eventually("late enough", SECOND / 2, |state| state.now() >= SECOND / 2);
            }
            world.run_for(3 * SECOND)
        })
        .seeds(0..20)
        .run();
        assert!(report.failed().is_none());
        report.hash()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn the_time_begins_with_the_end_of_the_last_fault() {
    let stalled = |is_told: bool| {
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let service = runtime.spawn(Service { is_up: false })?;
            // During the stall, the condition is checked after the turns of the ticker.
            runtime.spawn(Ticker)?;
            world.eventually(UP, SECOND, is_up);
            if is_told {
                runtime.send(&service, ())?;
            }
            world.run_for(20 * SECOND)
        })
        .seeds(0..20)
    };
    let for_a_time = || Faults::none().at::<Service>(1, StepFault::Stall(10 * SECOND));
    stalled(true).faults(for_a_time()).check();
    assert_eq!(stalled(false).faults(for_a_time()).run().failed().unwrap().check(), UP);
    stalled(true).faults(Faults::none().stall::<Service>(1.0, 10 * SECOND).at_most(1)).check();
}

/// Keeps questions, and never answers them.
#[derive(Default)]
struct Silent(Vec<Reply<()>>);

impl Process for Silent {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(question) = event {
                self.0.push(question);
            }
        }
        Ok(Step::Idle)
    }
}

/// Waits two seconds in its second step, for an answer that never comes.
struct Waiter {
    runtime: Runtime,
    of: Address<Reply<()>>,
    steps: u32,
}

impl Process for Waiter {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        self.steps += 1;
        if self.steps == 1 {
            return Ok(Step::Blocking);
        }
        _ = self.runtime.ask(self.of, |reply| reply, 2 * SECOND).wait();
        Ok(Step::Idle)
    }
}

#[test]
fn what_holds_by_a_step_that_began_in_time_is_no_failure() {
    let failure = failure_of(|world, runtime, _| {
        let of = runtime.spawn(Silent::default()).unwrap().address();
        runtime.spawn(Waiter { runtime: runtime.clone(), of, steps: 0 }).unwrap();
        // A process is not seen while it is in a step.
        world.eventually("it has asked", SECOND, |state| {
            state.processes::<Waiter>().any(|(_, waiter)| waiter.steps == 2)
        });
        _ = world.run_for(5 * SECOND);
    });
    assert_eq!(failure, None);
}
