//! Random programs of processes whose bodies are lost, in simulations: a subscriber of the log panics when a step has
//! returned. Such a process ends as far as it can. The laws are about messages, ends, names and what is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::observe::MetricsOptions;
use procession::simulation::{Simulation, World};
use procession::spawn::Overflow;
use procession::{
    Address, BoxError, CommandError, Event, Events, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput,
    StepResult, Tag, WeakRuntime,
};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tracing::subscriber::with_default;

use crate::helpers::*;
use crate::hostile_log::{Dropped, Hostile, second_subscriber};
use crate::seeded::random_programs;
use crate::simulated::cases;

#[derive(Clone, Copy, Debug)]
enum Ending {
    Idle,
    Done,
    Fails,
    Replaced,
}

#[derive(Clone, Debug)]
struct Plan {
    /// Messages that it takes before its body is lost.
    takes: usize,
    /// The messages of the step of which the body is lost.
    yields: usize,
    ending: Ending,
    bound: Option<(usize, Overflow)>,
    is_named: bool,
    is_monitored: bool,
    /// Whether its body is lost. Otherwise it listens.
    is_doomed: bool,
    /// Whether it is terminated in the step of which its body is lost.
    is_terminated: bool,
    /// Whether the destructors of what it yields panic.
    is_hostile: bool,
}

#[derive(Clone, Debug)]
struct Program {
    plans: Vec<Plan>,
    /// To which process each letter goes, and whether it asks.
    letters: Vec<(usize, bool)>,
    has_figures: bool,
    seed: u64,
}

#[derive(Default)]
struct Letter(Option<Reply<()>>);

/// Takes letters, and loses its body if its plan says so.
struct Doomed {
    plan: Plan,
    taken: usize,
    is_asked: Arc<AtomicBool>,
    dropped: Log<&'static str>,
    to: Address<Dropped>,
    runtime: WeakRuntime,
}

impl Process for Doomed {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        while self.taken < self.plan.takes
            && let Some(event) = events.next()
        {
            match event {
                Event::Message(Letter(reply)) => {
                    self.taken += 1;
                    reply.into_iter().for_each(|reply| out.reply(reply, ()));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if !self.plan.is_doomed {
            self.taken = 0;
            return Ok(Step::Idle);
        }
        if self.taken < self.plan.takes {
            return Ok(Step::Idle);
        }
        if self.plan.is_terminated {
            self.runtime.upgrade().into_iter().for_each(|runtime| _ = runtime.terminate(out.pid()));
        }
        self.is_asked.store(true, Ordering::SeqCst);
        let (log, is_hostile) = (&self.dropped, self.plan.is_hostile);
        let dropped = |name| Dropped { name, log: log.clone(), is_hostile };
        (0..self.plan.yields).for_each(|_| out.send(self.to, dropped("yield")));
        match self.plan.ending {
            Ending::Idle => Ok(Step::Idle),
            Ending::Done => Ok(Step::Done(())),
            Ending::Fails => Err(dropped("error").into()),
            Ending::Replaced => Ok(Step::Upgrade(procession::Upgrade::to(Next(dropped("next"))))),
        }
    }
}

/// A state machine that never comes to life.
struct Next(Dropped);

impl Process for Next {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Letter>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// Sends all letters, and monitors some of the processes.
struct Client {
    letters: Vec<(Address<Letter>, bool)>,
    monitors: Vec<Pid>,
    is_new: bool,
    asked: Vec<Tag<()>>,
    told: Log<(Pid, String)>,
    answers: Log<Result<(), CommandError>>,
}

impl Process for Client {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_new) {
            self.monitors.iter().for_each(|pid| _ = out.monitor(*pid));
            for (to, asks) in std::mem::take(&mut self.letters) {
                if asks {
                    self.asked.push(out.ask(to, |reply| Letter(Some(reply)), Duration::from_secs(5)));
                } else {
                    out.send(to, Letter(None));
                }
            }
        }
        for event in events {
            match event {
                Event::Down(down) => self.told.push((down.pid, down.exit.to_string())),
                Event::Completed(done) => {
                    let answer = self.asked.iter().find_map(|tag| done.take(*tag));
                    answer.into_iter().for_each(|answer| self.answers.push(answer));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

fn run(program: &Program) -> Result<(), String> {
    quiet_panics();
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| {
        let is_asked = Arc::<AtomicBool>::default();
        let run = || run_in(world, &of_scenario, &is_asked).map_err(BoxError::from);
        with_default(Hostile(is_asked.clone()), run)
    })
    .name("random lost bodies")
    .seeds(program.seed..program.seed + 1)
    .threads(1)
    .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run_in(world: &World, program: &Program, is_asked: &Arc<AtomicBool>) -> Result<(), String> {
    let text = |error: BoxError| error.to_string();
    let watcher = Watcher::new();
    let builder = builder().observer(watcher.clone());
    let builder = if program.has_figures { builder.metrics(MetricsOptions::new()) } else { builder };
    let runtime = world.start(builder).map_err(|error| error.to_string())?;
    let to = runtime.spawn(sink::<Dropped>()).map_err(|error| error.to_string())?.address();
    let (mut all, mut logs) = (Vec::new(), Vec::new());
    for (number, plan) in program.plans.iter().enumerate() {
        let options = SpawnOptions::new();
        let options = if plan.is_named { options.name(format!("process-{number}")) } else { options };
        let options = plan.bound.iter().fold(options, |options, (limit, full)| options.mailbox(*limit, *full));
        let dropped = Log::new();
        let process = Doomed {
            plan: plan.clone(),
            taken: 0,
            is_asked: is_asked.clone(),
            dropped: dropped.clone(),
            to,
            runtime: runtime.downgrade(),
        };
        all.push(runtime.spawn_with(process, options).map_err(|error| error.to_string())?.address());
        logs.push(dropped);
    }
    let (told, answers) = (Log::new(), Log::new());
    let letters = program.letters.iter().map(|(which, asks)| (all[which % all.len()], *asks)).collect();
    let monitored = all.iter().zip(&program.plans).filter(|(_, plan)| plan.is_monitored);
    let monitors: Vec<Pid> = monitored.map(|(process, _)| process.pid()).collect();
    let (monitored, told_of) = (monitors.clone(), told.clone());
    let client = Client { letters, monitors, is_new: true, asked: Vec::new(), told, answers: answers.clone() };
    runtime.spawn(client).map_err(|error| error.to_string())?;
    world.run().map_err(text)?;
    let exits = watcher.exits.to_vec();
    let messages = runtime.stats().messages;
    if messages.accepted != messages.stepped + messages.dead() + messages.queued {
        let dead = messages.dead();
        return Err(format!(
            "messages: {} accepted, {} stepped, {dead} dead, {} queued",
            messages.accepted, messages.stepped, messages.queued
        ));
    }
    let asked = program.letters.iter().filter(|(_, asks)| *asks).count();
    if answers.len() != asked {
        return Err(format!("answers: {} of {asked}", answers.len()));
    }
    for (number, (process, plan)) in all.iter().zip(&program.plans).enumerate() {
        let ends: Vec<&String> = exits.iter().filter(|(pid, _)| *pid == process.pid()).map(|(_, exit)| exit).collect();
        let is_lost = ends.len() == 1 && ends[0].contains("in a subscriber");
        if !(is_lost || ends.is_empty()) || is_lost && !plan.is_doomed {
            return Err(format!("ends: {process:?} has ended {ends:?}"));
        }
        let downs: Vec<String> =
            told_of.to_vec().into_iter().filter(|(pid, _)| *pid == process.pid()).map(|(_, exit)| exit).collect();
        let is_told = downs.len() == 1 && (downs[0].contains("in a subscriber") || downs[0].contains("no such"));
        if monitored.contains(&process.pid()) && is_lost != is_told || !is_lost && !downs.is_empty() {
            return Err(format!("monitors: {process:?} has ended {ends:?}, and the client was told {downs:?}"));
        }
        let holder = runtime.whereis(&format!("process-{number}"));
        if holder.is_some() != (plan.is_named && !is_lost) {
            return Err(format!("names: process-{number} is {holder:?}"));
        }
        // The yields go first, and then the error or the successor.
        let last = match plan.ending {
            Ending::Idle | Ending::Done => None,
            Ending::Fails => Some("error"),
            Ending::Replaced => Some("next"),
        };
        let expected: Vec<&str> = std::iter::repeat_n("yield", plan.yields).chain(last).collect();
        let dropped = logs[number].to_vec();
        if dropped != if is_lost { expected } else { Vec::new() } {
            return Err(format!("drops: {process:?} with {plan:?} has dropped {dropped:?}"));
        }
    }
    let (spawned, stats) = (watcher.spawned.len(), runtime.stats());
    if stats.processes as usize + exits.len() != spawned || stats.ended.total() as usize != exits.len() {
        return Err(format!("figures: {spawned} were spawned, {} live, {exits:?}", stats.processes));
    }
    let living: u64 = runtime.snapshot().types.iter().map(|one| one.living).sum();
    if program.has_figures && living != stats.processes {
        return Err(format!("figures: {living} live by type, of {}", stats.processes));
    }
    check_terminated(world, &runtime, &all)?;
    let report = runtime.shutdown(Duration::from_secs(10)).map_err(|error| error.to_string())?;
    if report.stuck.is_empty() { Ok(()) } else { Err(format!("shutdown: {report}")) }
}

/// A process that is ready when it is terminated has no step any longer, whatever bodies were lost before.
fn check_terminated(world: &World, runtime: &Runtime, all: &[Address<Letter>]) -> Result<(), String> {
    for process in all.iter().filter(|process| runtime.is_alive(**process)) {
        let stepped = runtime.stats().messages.stepped;
        // A full mailbox may refuse it.
        let _ = runtime.send(*process, Letter::default());
        let is_told = runtime.terminate(*process).map_err(|error| error.to_string())?;
        world.run().map_err(|error| error.to_string())?;
        if !is_told || runtime.is_alive(*process) || runtime.stats().messages.stepped != stepped {
            return Err(format!("ends: {process:?} was terminated ({is_told}), and has a step or lives"));
        }
    }
    Ok(())
}

fn program() -> impl Strategy<Value = Program> {
    let ending = prop_oneof![Just(Ending::Idle), Just(Ending::Done), Just(Ending::Fails), Just(Ending::Replaced)];
    let overflow = prop_oneof![Just(Overflow::Refuse), Just(Overflow::DropOldest), Just(Overflow::DropNewest)];
    let bound = prop::option::weighted(0.3, (1..4_usize, overflow));
    let flags = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.7));
    let more = (prop::bool::weighted(0.3), prop::bool::weighted(0.3));
    let plan = (0..4_usize, 0..4_usize, ending, bound, flags, more).prop_map(
        |(takes, yields, ending, bound, (is_named, is_monitored, is_doomed), (is_terminated, is_hostile))| Plan {
            takes: if is_doomed { takes } else { usize::MAX },
            yields,
            ending,
            bound,
            is_named,
            is_monitored,
            is_doomed,
            is_terminated,
            is_hostile,
        },
    );
    let letters = prop::collection::vec((any::<usize>(), prop::bool::weighted(0.3)), 0..20);
    (prop::collection::vec(plan, 1..5), letters, any::<bool>(), any::<u32>())
        .prop_map(|(plans, letters, has_figures, seed)| Program { plans, letters, has_figures, seed: seed.into() })
}

#[test]
fn simulated_programs_that_lose_bodies_keep_the_laws() {
    let _second = second_subscriber();
    random_programs(cases(25_000), Config::default(), program(), run);
}
