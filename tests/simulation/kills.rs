//! Programs that are killed, and started again in the same world.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use procession::simulation::{Faults, Simulation};
use procession::{BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

const LIMIT: Duration = Duration::from_secs(60);

/// Counts its messages.
struct Counter {
    count: u64,
}

enum CounterMessage {
    Add,
    Count(Reply<u64>),
}

impl Process for Counter {
    type Message = CounterMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, CounterMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(CounterMessage::Add) => self.count += 1,
                Event::Message(CounterMessage::Count(reply)) => out.reply(reply, self.count),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends ten messages, and asks after each of them. Returns the last answer.
fn count(runtime: &Runtime) -> Result<u64, BoxError> {
    let counter = runtime.spawn(Counter { count: 0 })?.address();
    let mut last = 0;
    for _ in 0..10 {
        runtime.send(counter, CounterMessage::Add)?;
        last = runtime.ask(counter, CounterMessage::Count, LIMIT).wait()?;
    }
    Ok(last)
}

#[test]
fn a_program_that_is_killed_begins_again_without_its_memory() {
    let report = Simulation::new(|world| {
        let runs = RefCell::new(Vec::new());
        let last = world.program(|kills| {
            runs.borrow_mut().push((kills, world.now()));
            count(&world.start(Runtime::builder())?)
        })?;
        assert_eq!(last, 10, "a process of the run before would count more");
        let runs = runs.borrow();
        assert!(runs.iter().map(|(kills, _)| *kills).eq(0..runs.len() as u32));
        assert!(runs.is_sorted_by_key(|(_, now)| *now), "the time of the world goes on");
        assert!(runs.len() < 3 || world.seed() >= 1_000, "three runs");
        Ok(())
    })
    .faults(Faults::none().kill(0.05).at_most(3))
    .seeds(0..100)
    .run();
    // Some seed has two kills, which proves that there are some.
    let failed = report.failed().expect("a program is killed twice");
    assert!(failed.report().contains("three runs"), "{}", failed.report());
    assert!(failed.trace().contains("injected: the program is killed"), "{}", failed.trace());
}

#[test]
fn a_program_can_be_killed_at_a_place_of_the_test() {
    Simulation::new(|world| {
        let outside = Cell::new(0);
        let last = world.program(|kills| {
            let last = count(&world.start(Runtime::builder())?)?;
            outside.set(outside.get() + last);
            if kills < 2 {
                world.kill();
            }
            Ok(last)
        })?;
        assert_eq!((last, outside.get()), (10, 30));
        world.run()
    })
    .seeds(0..50)
    .check();
}

#[test]
fn a_kill_without_a_program_fails_the_run() {
    let report = Simulation::new(|world| world.kill()).seeds(0..1).run();
    let failed = report.failed().expect("there is no program");
    assert!(failed.what().contains("a kill needs a program"), "{}", failed.what());
}
