//! Small worlds about mailboxes: ends behind messages beside recoveries, converted messages, and answers of futures.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, Event, Events, Exit, Pid, Process, Recipient, SpawnOptions, Step, StepOutput, StepResult,
    Upgrade, WeakRuntime,
};

use crate::helpers::*;

fn worlds(
    name: &str,
    seeds: u64,
    scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..seeds)
}

/// Sends its number a few times, and fails in between. It recovers so often, and ends then.
struct Restless {
    number: u64,
    recovers: u32,
    steps: u32,
    to: Address<u64>,
}

impl Process for Restless {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        self.steps += 1;
        if self.steps.is_multiple_of(3) {
            return if self.recovers > 0 { Err("on purpose".into()) } else { Ok(Step::Done(())) };
        }
        out.send(self.to, self.number);
        Ok(Step::Continue)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let Restless { number, recovers, to, .. } = *self;
        (recovers > 0).then(|| Upgrade::to(Restless { number, recovers: recovers - 1, steps: 0, to }))
    }
}

/// Takes one event in each step, and sends some messages, so that others may be stepped meanwhile. Writes down the
/// messages and the ends.
struct Slow {
    spawns: bool,
    to: Address<u64>,
    taken: Log<(Pid, &'static str)>,
}

impl Process for Slow {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.spawns) {
            let to = out.own_address::<Slow>();
            for number in 0..4 {
                let recovers = if number < 2 { 2 } else { 0 };
                let restless = out.spawn(Restless { number, recovers, steps: 0, to })?;
                out.link(restless.pid());
                out.monitor(restless.pid());
            }
            return Ok(Step::Idle);
        }
        match events.next() {
            Some(Event::Message(_)) => self.taken.push((events.sender().unwrap_or(out.pid()), "message")),
            Some(Event::Down(down)) => self.taken.push((down.pid, "down")),
            Some(Event::Exit(exit)) => self.taken.push((exit.pid, "exit")),
            Some(_) => {}
            None => return Ok(Step::Idle),
        }
        (0..3).for_each(|number| out.send(self.to, number));
        Ok(Step::Idle)
    }
}

#[test]
fn ends_stay_behind_messages_beside_recoveries() {
    worlds("ends beside recoveries", 500, |world| {
        let (runtime, taken) = (world.start(builder())?, Log::new());
        let to = runtime.spawn(sink::<u64>())?.address();
        let slow = Slow { spawns: true, to, taken: taken.clone() };
        runtime.spawn_with(slow, SpawnOptions::new().trap_exits())?;
        world.run()?;
        let taken = taken.to_vec();
        let pids: Vec<Pid> = taken.iter().filter(|(_, what)| *what == "down").map(|(pid, _)| *pid).collect();
        ensure(pids.len() == 4, || format!("{taken:?}"))?;
        for pid in pids {
            let of: Vec<&str> = taken.iter().filter(|(other, _)| *other == pid).map(|(_, what)| *what).collect();
            let messages = of.iter().take_while(|what| **what == "message").count();
            let is_right = [2, 6].contains(&messages) && of.len() == messages + 2;
            ensure(is_right, || format!("{pid}: {of:?}"))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_place_is_kept_for_a_message_while_it_is_converted() {
    worlds("converted messages", 50, |world| {
        let (runtime, taken) = (world.start(builder())?, Log::new());
        let receiver = runtime.spawn_with(recorder(&taken), SpawnOptions::new().mailbox(2, Overflow::Refuse))?;
        world.run()?;
        let (to, weak): (_, WeakRuntime) = (receiver.address(), runtime.downgrade());
        let results = Log::new();
        let sent = results.clone();
        let recipient: Recipient<u64> = to.map(move |number: u64| {
            let others = weak.upgrade().map(|runtime| [2, 3].map(|number| runtime.send(to, number).is_ok()));
            sent.push(others);
            number
        });
        runtime.send(&recipient, 1)?;
        ensure(results.to_vec() == [Some([true, false])], || "the place was not kept".into())?;
        world.run()?;
        ensure(taken.to_vec() == [2, 1], || format!("{:?}", taken.to_vec()))?;
        Ok(())
    })
    .check();
}

#[test]
fn a_future_is_polled_again_when_another_process_wakes_it() {
    worlds("woken futures", 100, |world| {
        let runtime = world.start(builder())?;
        let shared = Arc::<Mutex<(bool, Option<Waker>)>>::default();
        let (waits, wakes) = (shared.clone(), shared.clone());
        let mut answer = None;
        let waiting = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                if let Event::Completed(done) = event
                    && done.is(answer)
                {
                    return Ok(Step::Done(()));
                }
            }
            let waits = waits.clone();
            answer = answer.or_else(|| {
                Some(out.future(poll_fn(move |context| {
                    let mut shared = waits.lock().unwrap();
                    shared.1 = Some(context.waker().clone());
                    if shared.0 { Poll::Ready(()) } else { Poll::Pending }
                })))
            });
            Ok(Step::Wait)
        }))?;
        world.run_for(Duration::from_micros(world.random(0..20)))?;
        runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            let waker = {
                let mut shared = wakes.lock().unwrap();
                shared.0 = true;
                shared.1.take()
            };
            waker.into_iter().for_each(Waker::wake);
            Ok(Step::Done(()))
        }))?;
        let exit = waiting.join()?;
        ensure(exit.is_done(), || format!("{exit}"))?;
        Ok(())
    })
    .check();
}

/// A command whose handler writes this word down.
struct Writes(&'static str);

impl Command for Writes {
    type Output = ();
}

/// A command without a handler. Its answer comes at once.
struct Unknown;

impl Command for Unknown {
    type Output = ();
}

#[test]
fn an_answer_that_comes_at_once_stays_behind_earlier_messages() {
    worlds("answers behind messages", 500, |world| {
        let log = Log::new();
        let (written, taken) = (log.clone(), log.clone());
        let runtime = world.start(builder().handler(move |command: Writes, done: Responder<()>| {
            written.push(command.0);
            done.ok(());
            Ok(())
        }))?;
        let (to, mut unknown) = (runtime.spawn(sink::<u64>())?.address(), None);
        let receiver = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(()) => taken.push("message"),
                    Event::Completed(done) if done.is(unknown) => taken.push("answer"),
                    _ => {}
                }
            }
            if unknown.is_none() {
                (0..4).for_each(|number| out.send(to, number));
                out.command(Writes("asks"));
                unknown = Some(out.command(Unknown));
            }
            Ok(Step::<()>::Idle)
        }))?;
        let to = receiver.address();
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.send(to, ());
            out.command(Writes("has sent"));
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        let log = log.to_vec();
        let is_wrong = log == ["has sent", "asks", "answer", "message"];
        ensure(!is_wrong && log.len() == 4, || format!("{log:?}"))?;
        Ok(())
    })
    .check();
}
