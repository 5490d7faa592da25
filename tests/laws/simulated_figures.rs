//! Small worlds about figures: those of types that change, the waits of messages, and the commands that are at work.

use std::sync::Arc;
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::{Histogram, MetricsOptions, TypeFigures};
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..100)
}

/// The figures of the types whose names end so.
fn figures(runtime: &Runtime, of: &str) -> Vec<TypeFigures> {
    runtime.snapshot().types.into_iter().filter(|one| one.type_name.ends_with(of)).collect()
}

struct Caterpillar;

impl Process for Caterpillar {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_told = events.any(|event| matches!(event, Event::Message(())));
        Ok(if is_told { Step::Upgrade(Upgrade::to(Butterfly)) } else { Step::Idle })
    }
}

struct Butterfly;

impl Process for Butterfly {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_process_that_changes_its_type_is_counted_with_the_new_one() {
    worlds("changes of the type", |world| {
        let runtime = world.start(builder().metrics(MetricsOptions::new()))?;
        let changes = [runtime.spawn(Caterpillar)?, runtime.spawn(Caterpillar)?];
        world.run()?;
        runtime.send(&changes[0], ())?;
        world.run()?;
        let counts =
            |of| figures(&runtime, of).iter().map(|one| (one.living, one.became, one.left)).collect::<Vec<_>>();
        let (before, after) = (counts("::Caterpillar"), counts("::Butterfly"));
        ensure(before == [(1, 0, 1)] && after == [(1, 1, 0)], || format!("{before:?} and {after:?}"))?;
        Ok(())
    })
    .check();
}

/// Takes its messages when a moment has come.
struct Late {
    until: Duration,
    is_new: bool,
}

impl Process for Late {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_new) {
            out.after(self.until);
            return Ok(Step::Wait);
        }
        events.for_each(drop);
        Ok(Step::Idle)
    }
}

/// Sends messages, one or two in each step.
struct Sender {
    to: Vec<Address<u64>>,
    left: u64,
}

impl Process for Sender {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let most = self.left.min(1 + self.left % 2);
        for number in 0..most {
            self.to.iter().for_each(|to| out.send(*to, number));
        }
        self.left -= most;
        Ok(if self.left > 0 { Step::Continue } else { Step::Done(()) })
    }
}

#[test]
fn the_wait_of_each_message_is_measured() {
    worlds("waits", |world| {
        let options = MetricsOptions::new().wait_one_in(1);
        let runtime = world.start(builder().metrics(options))?;
        let late = || Late { until: 10 * SECOND, is_new: true };
        let bounded = |limit, overflow| SpawnOptions::new().mailbox(limit, overflow);
        let receivers = [
            runtime.spawn_with(late(), bounded(3, Overflow::DropOldest))?,
            runtime.spawn_with(late(), bounded(3, Overflow::DropNewest))?,
            runtime.spawn_with(late(), bounded(20, Overflow::Refuse))?,
            runtime.spawn(late())?,
        ];
        world.run_for(SECOND)?;
        // From outside, and from a process: at one second, and at five.
        for at in [1, 5] {
            for to in &receivers {
                (0..3).try_for_each(|number| runtime.send(to, number))?;
            }
            let to = receivers.iter().map(|to| to.address()).collect();
            runtime.spawn(Sender { to, left: 4 })?;
            world.run_for((5 - at.min(4)) * SECOND)?;
        }
        world.run()?;
        let waits: Vec<Histogram> = figures(&runtime, "::Late").into_iter().map(|one| one.wait_times).collect();
        let (count, sum) = (waits.iter().map(|one| one.count).sum::<u64>(), waits.iter().map(|one| one.sum).sum());
        // Two receivers take seven messages of each moment. The others take only the newest three, or the oldest three.
        let expected: Duration = (14 * (9 + 5) + 3 * 5 + 3 * 9) * SECOND;
        let is_near = expected.abs_diff(sum) < SECOND / 10;
        ensure(count == 34 && is_near, || format!("{count} were measured, for {sum:?} of {expected:?}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn the_waits_of_messages_behind_dropped_ones_are_measured() {
    worlds("waits behind dropped messages", |world| {
        let runtime = world.start(builder().metrics(MetricsOptions::new().wait_one_in(1)))?;
        let bound = SpawnOptions::new().mailbox(3, Overflow::DropOldest);
        let receiver = runtime.spawn_with(Late { until: Duration::ZERO, is_new: false }, bound)?;
        world.run()?;
        for round in 1..=2 {
            (0..5).try_for_each(|number| runtime.send(&receiver, number))?;
            world.run()?;
            let count: u64 = figures(&runtime, "::Late").iter().map(|one| one.wait_times.count).sum();
            ensure(count == 3 * round, || format!("{count} were measured in round {round}"))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn the_waits_of_messages_of_many_types_are_measured() {
    worlds("waits of many types", |world| {
        let runtime = world.start(builder().metrics(MetricsOptions::new().wait_one_in(1)))?;
        let small = (runtime.spawn(sink::<u8>())?, runtime.spawn(sink::<u16>())?, runtime.spawn(sink::<u32>())?);
        let large = (runtime.spawn(sink::<u64>())?, runtime.spawn(sink::<u128>())?, runtime.spawn(sink::<usize>())?);
        let signed = (runtime.spawn(sink::<i8>())?, runtime.spawn(sink::<i16>())?, runtime.spawn(sink::<i32>())?);
        let small = (small.0.address(), small.1.address(), small.2.address());
        let large = (large.0.address(), large.1.address(), large.2.address());
        let signed = (signed.0.address(), signed.1.address(), signed.2.address());
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.send(small.0, 0);
            out.send(small.1, 0);
            out.send(small.2, 0);
            out.send(large.0, 0);
            out.send(large.1, 0);
            out.send(large.2, 0);
            out.send(signed.0, 0);
            out.send(signed.1, 0);
            out.send(signed.2, 0);
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        let count: u64 = runtime.snapshot().types.iter().map(|one| one.wait_times.count).sum();
        ensure(count == 9, || format!("{count} were measured"))?;
        Ok(())
    })
    .check();
}

/// A command whose responder the scenario has.
struct Open;

impl Command for Open {
    type Output = ();
}

#[test]
fn a_wait_for_an_idle_runtime_says_which_commands_are_at_work() {
    worlds("commands at work", |world| {
        let kept = Arc::<Mutex<Vec<Responder<()>>>>::default();
        let keeps = kept.clone();
        let runtime = world.start(builder().handler(move |_: Open, done: Responder<()>| {
            keeps.lock().unwrap().push(done);
            Ok(())
        }))?;
        let mut is_new = true;
        let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            events.for_each(drop);
            if std::mem::take(&mut is_new) {
                out.command(Open);
                out.command(Open);
            }
            Ok(Step::<()>::Idle)
        }))?;
        for left in [2, 1] {
            world.run()?;
            let error = runtime.wait_idle_timeout(Duration::ZERO).err().ok_or("it is idle")?;
            let waiting: Vec<_> = error.waiting.iter().map(|(info, commands)| (info.pid, *commands)).collect();
            ensure(waiting == [(process.pid(), left)], || format!("{error}"))?;
            let responder = kept.lock().unwrap().pop();
            responder.ok_or("there is no command")?.ok(());
        }
        runtime.wait_idle()?;
        Ok(())
    })
    .check();
}
