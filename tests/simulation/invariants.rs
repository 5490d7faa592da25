//! Invariants and what must hold in the end. Statements 23 to 25.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use procession::simulation::{Faults, Simulation, StepFault, ensure};
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::programs::*;

#[test]
fn an_invariant_sees_processes_messages_and_time_after_each_turn() {
    let asked = Arc::new(AtomicU64::new(0));
    let counts = asked.clone();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn_with(Counter::default(), procession::SpawnOptions::new().name("counter"))?;
        let counts = counts.clone();
        world.invariant("all that was sent is somewhere", move |state| {
            counts.fetch_add(1, SeqCst);
            let messages = state.messages::<CounterMessage>();
            let waiting: u64 = messages.map(|one| if let CounterMessage::Add(n) = one.message { *n } else { 0 }).sum();
            let pid = state.holder("counter").ok_or("nobody has the name")?;
            let counter = state.process::<Counter>(pid).ok_or("it has another type")?;
            ensure(waiting + counter.total == 55, || format!("{waiting} + {}", counter.total))?;
            ensure(state.dead_letters() == 0, || "dead letters".into())
        });
        for number in 1..=10 {
            runtime.send(&counter, CounterMessage::Add(number))?;
        }
        world.run()
    })
    .seeds(0..100)
    .check();
    assert!(asked.load(SeqCst) >= 100);
}

#[test]
fn an_invariant_that_does_not_hold_is_reported_by_its_name() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        world.invariant("at most three", |state| {
            let total: u64 = state.processes::<Counter>().map(|(_, one)| one.total).sum();
            ensure(total <= 3, || format!("it is {total}"))
        });
        for _ in 0..5 {
            runtime.send(&counter, CounterMessage::Add(1))?;
        }
        world.run()
    });
    let report = simulation.seeds(0..10).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "at most three");
    assert!(failed.report().contains("\"at most three\" does not hold: it is"), "{}", failed.report());
}

#[test]
fn a_run_with_invariants_is_the_run_without() {
    let run = |is_checked: bool| {
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let counter = runtime.spawn(Counter::default())?;
            for _ in 0..3 {
                runtime.spawn(Adder { to: counter.address(), left: 3, tag: None })?;
            }
            if is_checked {
                world.invariant("nothing", |state| {
                    let _ = (state.processes::<Counter>().count(), state.messages::<CounterMessage>().count());
                    Ok(())
                });
            }
            world.run()?;
            Err(format!("ended at {:?}", world.now()).into())
        });
        let report = simulation.seeds(5..6).run();
        let failed = report.failed().unwrap();
        (failed.what().to_owned(), failed.turn())
    };
    assert_eq!(run(true), run(false));
}

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

#[test]
fn what_must_hold_eventually_is_asked_after_the_last_fault() {
    let service = |is_told: bool| {
        Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let service = runtime.spawn(Service { is_up: false })?;
            world.eventually("the service is up", SECOND, |state| {
                state.processes::<Service>().any(|(_, service)| service.is_up)
            });
            if is_told {
                runtime.send(&service, ())?;
            }
            world.run_for(10 * SECOND)
        })
        // Longer than the limit: the limit begins with the fault.
        .faults(Faults::none().at::<Service>(1, StepFault::Stall(SECOND / 2)))
        .seeds(0..50)
    };
    service(true).check();
    let report = service(false).run();
    let failed = report.failed().unwrap();
    assert_eq!(failed.check(), "the service is up");
    assert!(failed.report().contains("it never held"), "{}", failed.report());
}

/// Panics at its first message.
struct Bomb;

impl Process for Bomb {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        assert!(!events.any(|event| matches!(event, Event::Message(()))), "on purpose");
        Ok(Step::Idle)
    }
}

#[test]
fn a_panic_that_was_not_injected_fails_the_run_unless_switched_off() {
    let bomb = || {
        Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            let bomb = runtime.spawn(Bomb)?;
            runtime.send(&bomb, ())?;
            world.run()
        })
        .seeds(0..1)
    };
    assert_eq!(bomb().run().failed().unwrap().check(), "no step panics");
    assert!(bomb().without("no step panics").run().failed().is_none());
}
