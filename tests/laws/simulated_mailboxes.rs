//! Small worlds about mailboxes: ends behind messages beside recoveries, converted messages, the events of a step, and
//! answers that come at once.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::{Observer, ProcessIdentity};
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, CommandError, Event, Events, Exit, Pid, Process, Recipient, Reply, SpawnOptions, Step,
    StepOutput, StepResult, Upgrade, WeakRuntime,
};

use crate::helpers::*;

fn worlds(
    name: &str,
    seeds: u64,
    scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..seeds)
}

/// One step of a plan.
enum Act {
    Sends,
    /// It fails, and recovers.
    Fails,
}

/// Carries out a plan, and ends.
struct Restless {
    plan: &'static [Act],
    next: usize,
    to: Address<u64>,
}

impl Process for Restless {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        match self.plan.get(self.next) {
            None => return Ok(Step::Done(())),
            Some(Act::Fails) => return Err("on purpose".into()),
            Some(Act::Sends) => out.send(self.to, 0),
        }
        self.next += 1;
        Ok(Step::Continue)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Restless { next: self.next + 1, ..*self }))
    }
}

/// Takes one event in each step, and sends some messages, so that others may be stepped meanwhile. Writes down the
/// messages and the ends.
struct Slow {
    spawns: &'static [&'static [Act]],
    to: Address<u64>,
    taken: Log<(Pid, &'static str)>,
}

impl Process for Slow {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        let spawns = std::mem::take(&mut self.spawns);
        for plan in spawns {
            let restless = out.spawn(Restless { plan, next: 0, to: out.own_address::<Slow>() })?;
            out.link(restless.pid());
            out.monitor(restless.pid());
        }
        if !spawns.is_empty() {
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

/// The ends of processes with these plans come behind their messages, and none of these is lost.
fn ends_come_last(name: &str, plans: &'static [&'static [Act]]) {
    worlds(name, 500, move |world| {
        let (runtime, taken) = (world.start(builder())?, Log::new());
        let to = runtime.spawn(sink::<u64>())?.address();
        let slow = Slow { spawns: plans, to, taken: taken.clone() };
        let mut options = SpawnOptions::new().trap_exits();
        if world.random(0..2) == 0 {
            // Its messages come over when a step is given them.
            options = options.mailbox(100, Overflow::Refuse);
        }
        runtime.spawn_with(slow, options)?;
        world.run()?;
        let taken = taken.to_vec();
        let pids: Vec<Pid> = taken.iter().filter(|(_, what)| *what == "down").map(|(pid, _)| *pid).collect();
        let mut sent = Vec::new();
        for pid in pids {
            let of: Vec<&str> = taken.iter().filter(|(other, _)| *other == pid).map(|(_, what)| *what).collect();
            let messages = of.iter().take_while(|what| **what == "message").count();
            ensure(of.len() == messages + 2, || format!("{pid}: {of:?}"))?;
            sent.push(messages);
        }
        let sends = |plan: &&[Act]| plan.iter().filter(|act| matches!(act, Act::Sends)).count();
        let mut planned: Vec<usize> = plans.iter().map(sends).collect();
        sent.sort_unstable();
        planned.sort_unstable();
        ensure(sent == planned, || format!("{taken:?}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn ends_stay_behind_messages_beside_recoveries() {
    use Act::{Fails, Sends};
    const RECOVERS: &[Act] = &[Sends, Sends, Fails, Sends, Sends, Fails, Sends, Sends];
    ends_come_last("ends beside recoveries", &[RECOVERS, RECOVERS, &[Sends, Sends], &[Sends, Sends]]);
}

#[test]
fn ends_stay_behind_messages_beside_recoveries_that_come_first() {
    use Act::{Fails, Sends};
    const RECOVERS: &[Act] = &[Fails, Sends];
    ends_come_last("ends beside early recoveries", &[RECOVERS, RECOVERS, RECOVERS, &[Sends], &[Sends], &[Sends]]);
}

enum Asked {
    /// Tells the asker whom to ask.
    Begin(Address<Asked>),
    Question(Reply<()>),
    /// The asker fails.
    Fail,
}

/// Asks, and fails. It may link itself to the other process. Its successor writes down the ends of linked processes.
struct Asker {
    links: bool,
    recovers: bool,
    ends: Log<Pid>,
}

impl Process for Asker {
    type Message = Asked;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Asked>, out: &mut StepOutput) -> StepResult<()> {
        match events.next() {
            Some(Event::Message(Asked::Begin(to))) => {
                if self.links {
                    out.link(to);
                }
                out.send(out.own_address::<Asker>(), Asked::Fail);
                out.ask(to, Asked::Question, Duration::from_secs(1));
                Ok(Step::Idle)
            }
            Some(Event::Message(Asked::Fail)) => Err("on purpose".into()),
            Some(Event::Exit(exit)) => {
                self.ends.push(exit.pid);
                Ok(Step::Idle)
            }
            _ => Ok(Step::Idle),
        }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let ends = self.ends.clone();
        std::mem::take(&mut self.recovers).then(|| Upgrade::to(Asker { links: false, recovers: false, ends }))
    }
}

/// Links itself to the asker, answers its question, and ends.
struct Partner(Option<Pid>);

impl Process for Partner {
    type Message = Asked;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Asked>, out: &mut StepOutput) -> StepResult<()> {
        self.0.take().into_iter().for_each(|asker| out.link(asker));
        match events.next() {
            Some(Event::Message(Asked::Question(reply))) => {
                out.reply(reply, ());
                Ok(Step::Done(()))
            }
            _ => Ok(Step::Idle),
        }
    }
}

#[test]
fn an_end_behind_an_answer_that_a_recovery_drops_is_not_lost() {
    worlds("ends behind dropped answers", 300, |world| {
        let (runtime, ends) = (world.start(builder())?, Log::new());
        let asker = Asker { links: world.random(0..2) == 0, recovers: true, ends: ends.clone() };
        let asker = runtime.spawn_with(asker, SpawnOptions::new().trap_exits())?;
        let partner = runtime.spawn(Partner(Some(asker.pid())))?;
        world.run()?;
        runtime.send(&asker, Asked::Begin(partner.address()))?;
        world.run()?;
        let ends = ends.to_vec();
        ensure(ends == [partner.pid()], || format!("{ends:?}"))?;
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

#[test]
fn a_step_is_given_no_more_events_than_the_options_of_its_process_say() {
    worlds("events of a step", 50, |world| {
        let (runtime, taken) = (world.start(builder())?, Log::new());
        let counts = taken.clone();
        let receiver = script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
            counts.push(events.count());
            Ok(Step::<()>::Idle)
        });
        let receiver = runtime.spawn_with(receiver, SpawnOptions::new().step_events(2))?;
        (0..9).try_for_each(|number| runtime.send(&receiver, number))?;
        world.run()?;
        let taken = taken.to_vec();
        ensure(taken.iter().sum::<usize>() == 9 && taken.iter().all(|count| *count <= 2), || format!("{taken:?}"))?;
        Ok(())
    })
    .check();
}

/// A process that passes over each message.
fn passes_over<M: Send + 'static>() -> impl Process<Message = M, Output = ()> {
    script(|events: &mut Events<'_, M>, _: &mut StepOutput| {
        events.select(|_| false);
        Ok(Step::Idle)
    })
}

#[test]
fn messages_that_a_step_has_left_keep_their_places() {
    worlds("left messages", 50, |world| {
        let runtime = world.start(builder())?;
        let bound = SpawnOptions::new().mailbox(2, Overflow::Refuse);
        let receiver = runtime.spawn_with(passes_over::<u64>(), bound)?;
        for expected in [true, true, false] {
            let is_taken = runtime.send(&receiver, 1).is_ok();
            ensure(is_taken == expected, || format!("it was accepted: {is_taken}"))?;
            world.run()?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_question_that_a_full_mailbox_drops_says_so() {
    worlds("full mailboxes", 20, |world| {
        let runtime = world.start(builder())?;
        let bound = SpawnOptions::new().mailbox(1, Overflow::DropNewest);
        let receiver = runtime.spawn_with(passes_over::<Reply<()>>(), bound)?;
        let second = Duration::from_secs(1);
        let first = runtime.ask(receiver.address(), |reply| reply, second);
        let answer = runtime.ask(receiver.address(), |reply| reply, second).wait();
        ensure(matches!(answer, Err(CommandError::Full(_))), || format!("{answer:?}"))?;
        let answer = first.wait();
        ensure(matches!(answer, Err(CommandError::TimedOut)), || format!("{answer:?}"))?;
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

/// Is spawned to mark a moment.
struct Marker;

impl Process for Marker {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Done(()))
    }
}

/// Writes down when a marker is spawned.
struct Markers(Log<&'static str>);

impl Observer for Markers {
    fn spawned(&self, process: &ProcessIdentity) {
        if process.type_name.ends_with("::Marker") {
            self.0.push("asks");
        }
    }
}

#[test]
fn an_answer_that_comes_at_once_stays_behind_earlier_messages() {
    worlds("answers behind messages", 500, |world| {
        let log = Log::new();
        let (written, taken) = (log.clone(), log.clone());
        let runtime = builder().observer(Markers(log.clone())).handler(move |command: Writes, done: Responder<()>| {
            written.push(command.0);
            done.ok(());
            Ok(())
        });
        let runtime = world.start(runtime)?;
        let (to, mut unknown) = (runtime.spawn(sink::<u64>())?.address(), None);
        // The answer to the command that marks the moment is in the mailbox, too. A spawn leaves nothing there.
        let is_answered = world.random(0..2) == 0;
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
                match is_answered {
                    true => drop(out.command(Writes("asks"))),
                    false => drop(out.spawn(Marker)?),
                }
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
