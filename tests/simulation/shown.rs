//! The report of a failure. Statements 26 to 30.

use procession::simulation::{Simulation, ensure};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag};

use crate::programs::*;

/// A register that is read and written by questions.
#[derive(Default)]
struct Register(u64);

enum RegisterMessage {
    Read(Reply<u64>),
    Write(u64),
}

impl Process for Register {
    type Message = RegisterMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, RegisterMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            match event {
                Event::Message(RegisterMessage::Read(reply)) => out.reply(reply, self.0),
                Event::Message(RegisterMessage::Write(value)) => self.0 = value,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Reads the register, and writes one more. Two of them may lose an update.
struct Incrementer {
    register: Address<RegisterMessage>,
    read: Option<Tag<u64>>,
}

impl Process for Incrementer {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let read = *self.read.get_or_insert_with(|| out.ask(self.register, RegisterMessage::Read, SECOND));
        for event in events {
            if let Event::Completed(done) = event
                && let Some(value) = done.take(read)
            {
                out.send(self.register, RegisterMessage::Write(value? + 1));
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Wait)
    }
}

fn lost_update(others: usize) -> Simulation {
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let register = runtime.spawn(Register::default())?.address();
        let counter = runtime.spawn(Counter::default())?;
        for _ in 0..others {
            runtime.spawn(Adder { to: counter.address(), left: 2, tag: None })?;
        }
        for _ in 0..2 {
            runtime.spawn(Incrementer { register, read: None })?;
        }
        world.run()?;
        let value = world.look(|state| state.processes::<Register>().map(|(_, one)| one.0).sum::<u64>());
        ensure(value == 2, || format!("{value} after two increments"))?;
        Ok(())
    })
}

#[test]
fn a_failure_is_shrunk_shown_and_can_be_run_again() {
    let report = lost_update(3).name("lost_update").run();
    let failed = report.failed().unwrap();
    assert!(failed.deviations().is_some_and(|deviations| deviations <= 6), "{:?}", failed.deviations());
    assert!(failed.shrinking_runs() <= 2_000);
    let text = failed.report();
    let seed = failed.shrunk().unwrap();
    assert!(text.contains("simulation `lost_update` failed at seed"), "{text}");
    assert!(text.contains("1 after two increments"), "{text}");
    assert!(text.contains("Incrementer") && text.contains("PROCESSION_SEED="), "{text}");
    assert!(
        text.contains(&format!("PROCESSION_SEED={seed} cargo test lost_update")) || text.contains("0 runs"),
        "{text}"
    );
}

/// Sends a message to a receiver.
struct Sender(Address<CounterMessage>);

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        out.send(self.0, CounterMessage::Add(1));
        Ok(Step::Done(()))
    }
}

#[test]
fn distinct_interleavings_are_counted_exactly() {
    for (senders, interleavings) in [(1, 1), (2, 2), (3, 6), (4, 24)] {
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            let counter = runtime.spawn(Counter::default())?;
            world.run()?;
            for _ in 0..senders {
                runtime.spawn(Sender(counter.address()))?;
            }
            world.run()
        });
        assert_eq!(simulation.seeds(0..600).run().distinct(), interleavings, "of {senders} senders");
    }
}

#[test]
fn independent_pairs_have_one_interleaving() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        for _ in 0..4 {
            let counter = runtime.spawn(Counter::default())?;
            runtime.spawn(Sender(counter.address()))?;
        }
        world.run()
    });
    assert_eq!(simulation.seeds(0..300).run().distinct(), 1);
}
