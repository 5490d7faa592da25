//! The report of a failure. Statements 26 to 30.

use procession::simulation::{Simulation, ensure};
use procession::{Address, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::programs::*;

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
    let test = "shown::a_failure_is_shrunk_shown_and_can_be_run_again";
    assert!(text.contains(&format!("PROCESSION_SEED={seed} cargo test {test}")), "{text}");
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

fn senders(senders: u64) -> Simulation {
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let counter = runtime.spawn(Counter::default())?;
        world.run()?;
        for _ in 0..senders {
            runtime.spawn(Sender(counter.address()))?;
        }
        world.run()
    })
}

#[test]
fn distinct_interleavings_are_counted_exactly() {
    let most = if is_full() { 6 } else { 5 };
    for (count, interleavings) in [(1, 1), (2, 2), (3, 6), (4, 24), (5, 120), (6, 720)].into_iter().take(most) {
        let seeds = if count == 6 { 12_000 } else { 1_500 };
        let report = senders(count).seeds(0..seeds).run();
        assert_eq!(report.distinct(), interleavings, "of {count} senders");
        assert!((interleavings..=seeds).contains(&report.last_new_run()), "{}", report.last_new_run());
    }
}

/// Runs blocking closures.
struct Worker(u32);

impl Process for Worker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        (0..std::mem::take(&mut self.0)).for_each(|_| _ = out.blocking(|| ()));
        Ok(Step::Idle)
    }
}

#[test]
fn the_orders_of_answers_to_one_process_are_counted() {
    for (closures, interleavings) in [(1, 1), (2, 2), (3, 6), (4, 24)] {
        let simulation = Simulation::new(move |world| {
            let runtime = world.start(Runtime::builder())?;
            runtime.spawn(Worker(closures))?;
            world.run()
        });
        assert_eq!(simulation.seeds(0..500).run().distinct(), interleavings, "of {closures} closures");
    }
}

/// Subscribes to a group.
struct Subscriber;

impl Process for Subscriber {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.next().is_none() {
            out.subscribe("group");
        }
        Ok(Step::Idle)
    }
}

/// Yields once.
struct Once(Option<fn(&mut StepOutput, Address<()>)>, Address<()>);

impl Process for Once {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        self.0.take().into_iter().for_each(|yields| yields(out, self.1));
        Ok(Step::Idle)
    }
}

#[test]
fn the_orders_of_signals_of_different_kinds_are_counted() {
    let simulation = Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let subscriber = runtime.spawn(Subscriber)?.address();
        world.run()?;
        runtime.spawn(Once(Some(|out, _| _ = out.join_group("group", out.pid())), subscriber))?;
        runtime.spawn(Once(Some(|out, subscriber| _ = out.cancel(subscriber, "enough")), subscriber))?;
        world.run()
    });
    assert_eq!(simulation.seeds(0..300).run().distinct(), 2);
}

#[test]
fn it_is_said_which_run_brought_the_last_new_interleaving() {
    let last = |seeds: u64| senders(2).seeds(0..seeds).run().last_new_run();
    let all = last(200);
    assert!(all > 1, "the first run is one of two interleavings");
    assert_eq!((last(all - 1), last(all)), (1, all));
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
