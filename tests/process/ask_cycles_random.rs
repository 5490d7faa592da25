//! C. Random graphs of asks against a model that knows which process waits for which.
//!
//! Each member goes through rounds. In each round it asks some others, perhaps has some work done as well, and waits
//! until all of that is answered. In between it answers what it was asked. The model is a table in which each member
//! notes its open asks: an ask stands there until its answer is yielded, or it is handed on. Two things are checked:
//!
//! - *No false cycle*: when a member is told of a cycle, by the table each process of the cycle waits for the next
//!   one only. None of them can have gone on, because none of their asks has ended.
//! - *No missed cycle*: whenever all is at rest, there is no cycle of members that each wait for one answer.
//!
//! Members that wait for several answers may still be stuck then. The limits of their asks end that. Each limit ends
//! at another moment, and the clock is moved from one to the next only when all is at rest. The seed is printed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use procession::clock::ManualClock;
use procession::command::Cycle;
use procession::observe::ProcessState;
use procession::{
    Address, CommandError, Event, Events, Handle, Pid, Process, Reply, Runtime, Step, StepOutput, StepResult, Tag,
};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;

/// The acts of a member before it waits.
#[derive(Clone, Debug)]
struct Round {
    /// Whom it asks: itself, too.
    asks: Vec<usize>,
    /// It waits for a job as well.
    works: bool,
    /// It leaves what it was asked meanwhile to a clerk, who answers.
    hands_on: bool,
}

#[derive(Clone, Debug)]
struct Program {
    workers: usize,
    rounds: Vec<Vec<Round>>,
    /// Those who are terminated while all goes on.
    ends: Vec<usize>,
}

/// The model's record of one member.
#[derive(Default)]
struct Noted {
    waits: bool,
    works: bool,
    /// Its asks, by number, and who is to answer them.
    open: Vec<(u64, Pid)>,
}

impl Noted {
    /// Whom it waits for, if it waits for one answer.
    fn arrow(&self) -> Option<Pid> {
        match self.open[..] {
            [(_, asked)] if self.waits && !self.works => Some(asked),
            _ => None,
        }
    }
}

/// The model.
struct World {
    start: Instant,
    noted: Mutex<HashMap<Pid, Noted>>,
    all: Mutex<Vec<Address<Asked>>>,
    /// Whether members are being terminated. That ends the waits of others. These may go on before a member that was
    /// told of a cycle looks here.
    ends: AtomicBool,
    asks: AtomicU64,
    wrong: Log<String>,
    cycles: Log<usize>,
}

impl World {
    fn note(&self, pid: Pid, change: impl FnOnce(&mut Noted)) {
        change(self.noted.lock().unwrap().entry(pid).or_default());
    }

    /// An ask will not be answered any more, or not by who was asked. It may have been given up before.
    fn closed(&self, asker: Pid, ask: u64) {
        self.note(asker, |noted| noted.open.retain(|(number, _)| *number != ask));
    }

    /// Returns why this process, which is noted as waiting, should not have been told of this cycle.
    fn is_wrong(&self, me: Pid, cycle: &Cycle) -> Option<String> {
        let noted = self.noted.lock().unwrap();
        let pids = cycle.pids();
        if pids.first() != Some(&me) || pids.iter().collect::<HashSet<_>>().len() != pids.len() {
            return Some(format!("{me} was told of {cycle}"));
        }
        let loose = pids.iter().zip(pids.iter().cycle().skip(1)).find_map(|(one, next)| {
            let arrow = noted.get(one).and_then(Noted::arrow);
            (arrow != Some(*next)).then(|| format!("{me} was told of {cycle}, and {one} waits for {arrow:?}"))
        });
        // Asked for last: what has changed because of an end has changed after this was set.
        loose.filter(|_| !self.ends.load(Ordering::SeqCst))
    }

    /// A cycle that nobody was told of, if there is one. All is at rest.
    fn missed(&self, is_waiting: impl Fn(Pid) -> bool) -> Option<String> {
        let noted = self.noted.lock().unwrap();
        let arrow = |pid: Pid| noted.get(&pid).filter(|_| is_waiting(pid)).and_then(Noted::arrow);
        noted.keys().find_map(|first| {
            let mut way = vec![*first];
            while let Some(next) = arrow(way[way.len() - 1]) {
                if next == *first {
                    return Some(format!("nobody was told of the cycle {way:?}"));
                }
                if way.contains(&next) {
                    break;
                }
                way.push(next);
            }
            None
        })
    }
}

/// A question, and the number of the ask.
struct Asked(u64, Reply<()>);

struct Member {
    world: Arc<World>,
    rounds: std::vec::IntoIter<Round>,
    hands_on: bool,
    open: Vec<(Tag<()>, u64)>,
    work: Option<Tag<()>>,
    clerk: Address<Reply<()>>,
}

impl Process for Member {
    type Message = Asked;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Asked>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        let waited = !self.open.is_empty() || self.work.is_some();
        while let Some(event) = events.next() {
            match event {
                Event::Message(Asked(ask, reply)) => {
                    let Some(asker) = events.sender() else { continue };
                    self.world.closed(asker, ask);
                    if self.hands_on {
                        out.send(self.clerk, reply.delegate());
                    } else {
                        out.reply(reply, ());
                    }
                }
                Event::Completed(done) if done.is(self.work) => {
                    self.work = None;
                    self.world.note(me, |noted| noted.works = false);
                }
                Event::Completed(done) => {
                    let place = self.open.iter().position(|(tag, _)| done.is(*tag)).unwrap();
                    let (tag, ask) = self.open.remove(place);
                    if let Err(CommandError::Cycle(cycle)) = done.take(tag).unwrap() {
                        self.world.is_wrong(me, &cycle).into_iter().for_each(|wrong| self.world.wrong.push(wrong));
                        self.world.cycles.push(cycle.pids().len());
                    }
                    // Mostly it is closed already; not if it was given up, or the one that was asked has ended.
                    self.world.closed(me, ask);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        self.world.note(me, |noted| noted.waits = false);
        if waited && (!self.open.is_empty() || self.work.is_some()) {
            return Ok(self.waits(me));
        }
        if waited {
            // Between two rounds it answers what has come.
            return Ok(Step::Continue);
        }
        let Some(round) = self.rounds.next() else { return Ok(Step::Idle) };
        let all = self.world.all.lock().unwrap().clone();
        let mut noted_open = Vec::new();
        for asked in round.asks.iter().map(|asked| all[asked % all.len()]) {
            let number = self.world.asks.fetch_add(1, Ordering::SeqCst) + 1;
            // Each ends at a moment of its own, which is not over: the clock is never moved beyond the newest.
            let limit = self.world.start + Duration::from_secs(number) - out.now();
            self.open.push((out.ask(asked, |reply| Asked(number, reply), limit), number));
            noted_open.push((number, asked.pid()));
        }
        self.world.note(me, |noted| {
            noted.works = round.works;
            noted.open = noted_open;
        });
        self.work = round.works.then(|| out.blocking(|| ()));
        self.hands_on = round.hands_on;
        if self.open.is_empty() && self.work.is_none() { Ok(Step::Continue) } else { Ok(self.waits(me)) }
    }
}

impl Member {
    fn waits(&self, me: Pid) -> Step<()> {
        self.world.note(me, |noted| noted.waits = true);
        Step::Wait
    }
}

/// A process that answers, and never waits.
fn clerk(runtime: &Runtime) -> Address<Reply<()>> {
    let clerk = script(|events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(reply) => out.reply(reply, ()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    runtime.spawn(clerk).unwrap().address()
}

fn members(runtime: &Runtime, world: &Arc<World>, program: &Program) -> Vec<Handle<Member>> {
    let clerk = clerk(runtime);
    // They begin when all are known.
    let mut all = world.all.lock().unwrap();
    let spawn = |rounds: &Vec<Round>| {
        let (world, rounds) = (world.clone(), rounds.clone().into_iter());
        let member = Member { world, rounds, hands_on: false, open: Vec::new(), work: None, clerk };
        runtime.spawn(member).unwrap()
    };
    let members: Vec<_> = program.rounds.iter().map(spawn).collect();
    all.extend(members.iter().map(|member| member.address()));
    members
}

fn run(program: &Program) -> Result<(), String> {
    let manual = ManualClock::new();
    let runtime = builder().workers(program.workers).clock(manual.clock()).start().unwrap();
    let world = Arc::new(World {
        start: manual.now(),
        noted: Mutex::default(),
        all: Mutex::default(),
        ends: AtomicBool::new(!program.ends.is_empty()),
        asks: AtomicU64::new(0),
        wrong: Log::new(),
        cycles: Log::new(),
    });
    let members = members(&runtime, &world, program);
    for end in &program.ends {
        runtime.terminate(members[end % members.len()].pid()).map_err(|why| why.to_string())?;
    }
    let is_waiting = |pid: Pid| runtime.process_state(pid) == Some(ProcessState::Blocked);
    let mut seconds = 0;
    loop {
        until("all is at rest", || runtime.is_idle());
        if let Some(wrong) = world.wrong.take().into_iter().next().or_else(|| world.missed(is_waiting)) {
            return Err(wrong);
        }
        if !members.iter().any(|member| is_waiting(member.pid())) {
            break;
        }
        seconds += 1;
        if seconds > world.asks.load(Ordering::SeqCst) {
            return Err(format!("somebody waits for ever: {:?}", runtime.processes()));
        }
        manual.advance(Duration::from_secs(1));
    }
    if world.cycles.take().is_empty() && must_have_a_cycle(program) {
        return Err("nobody was told of a cycle".into());
    }
    Ok(())
}

/// One that asks itself and waits for nothing else is told.
fn must_have_a_cycle(program: &Program) -> bool {
    let alone = |(me, rounds): (usize, &Vec<Round>)| {
        let asks_itself = |round: &Round| matches!(round.asks[..], [asked] if asked % program.rounds.len() == me);
        rounds.iter().any(|round| !round.works && asks_itself(round))
    };
    program.ends.is_empty() && program.rounds.iter().enumerate().any(alone)
}

fn program() -> impl Strategy<Value = Program> {
    // Most ask one, for only they can be part of a cycle.
    let asks =
        prop_oneof![4 => prop::collection::vec(any::<usize>(), 1), 1 => prop::collection::vec(any::<usize>(), 0..3)];
    let round = (asks, prop::bool::weighted(0.15), prop::bool::weighted(0.2))
        .prop_map(|(asks, works, hands_on)| Round { asks, works, hands_on });
    let rounds = prop::collection::vec(prop::collection::vec(round, 0..8), 1..8);
    let ends = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(any::<usize>(), 1..4)];
    (1..4_usize, rounds, ends).prop_map(|(workers, rounds, ends)| Program { workers, rounds, ends })
}

#[test]
fn in_random_graphs_of_asks_no_cycle_is_missed_and_no_false_one_is_told() {
    random_programs(300, Config { max_shrink_iters: 200, ..Config::default() }, program(), run);
}
