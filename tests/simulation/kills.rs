//! Programs that are killed, and started again in the same world.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use procession::simulation::{Faults, Simulation, ensure};
use procession::{BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};

use crate::wait::Mutex;

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

/// Notes its number, and ends.
struct Brief {
    number: u32,
    notes: Arc<Mutex<Vec<u32>>>,
}

impl Process for Brief {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.notes.lock().map_err(|_| "poisoned")?.push(self.number);
        Ok(Step::Done(()))
    }
}

/// The turns in which a killed program is ended have numbers, and are chosen by nobody.
#[test]
fn a_turn_after_a_kill_is_marked_where_it_is_out_of_order() {
    let report = Simulation::new(|world| {
        world.program(|kills| {
            let runtime = world.start(Runtime::builder())?;
            if kills == 0 {
                (0..3).try_for_each(|_| runtime.spawn(Counter { count: 0 }).map(drop))?;
                world.run_for(Duration::from_micros(1))?;
                world.kill();
            }
            let notes = Arc::new(Mutex::new(Vec::new()));
            for number in 0..2 {
                runtime.spawn(Brief { number, notes: notes.clone() })?;
            }
            world.invariant("the first one is first", move |_| {
                ensure(notes.lock().is_ok_and(|notes| notes.first() != Some(&1)), || String::from("it is not"))
            });
            world.run()
        })
    })
    .run();
    let failed = report.failed().expect("the second one may be first");
    let trace = failed.trace();
    let mut marked = trace.lines().filter(|line| line.starts_with("  !"));
    assert!(marked.next().is_some_and(|line| line.contains("Brief")) && marked.next().is_none(), "{trace}");
}

#[test]
fn a_kill_without_a_program_fails_the_run() {
    let report = Simulation::new(|world| world.kill()).seeds(0..1).run();
    let failed = report.failed().expect("there is no program");
    assert!(failed.what().contains("a kill needs a program"), "{}", failed.what());
}
