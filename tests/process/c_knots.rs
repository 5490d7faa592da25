//! C. Random graphs of asks against a model that knows who waits for whom.
//!
//! Each member goes through a row of rounds: it asks some others, perhaps has some work done as well, and waits until all of
//! that is answered; in between it answers what it was asked. No question has a limit, so all come to an end only if each
//! knot is untied. The model is a table in which everybody notes whom he waits for: a question stands there until its answer
//! is yielded, or it is handed on. Who is told of a cycle looks there: all whom it leads to must be waiting, for nobody of
//! them can have gone on. The seed is printed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::{Address, CommandError, Cycle, Event, Events, Pid, Process, Reply, Step, StepOutput, StepResult, Tag};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;

/// What a member does before it waits.
#[derive(Clone, Debug)]
struct Round {
    /// Whom it asks: itself, too.
    asks: Vec<usize>,
    /// It waits for a job as well.
    works: bool,
    /// It leaves what it was asked meanwhile to a clerk who answers.
    hands_on: bool,
}

#[derive(Clone, Debug)]
struct Program {
    workers: usize,
    rounds: Vec<Vec<Round>>,
    /// Those who are terminated while all goes on.
    ends: Vec<usize>,
}

/// One who is noted.
#[derive(Default)]
struct Noted {
    waits: bool,
    works: bool,
    /// Its questions, by number, and who is to answer them.
    open: Vec<(u64, Pid)>,
}

/// The model.
#[derive(Default)]
struct World {
    noted: Mutex<HashMap<Pid, Noted>>,
    all: Mutex<Vec<Address<Asked>>>,
    /// Members are being terminated. That ends the waits of others, who may go on before one of their knot, who was told of it,
    /// looks here.
    ends: AtomicBool,
    wrong: Log<String>,
    cycles: Log<usize>,
}

impl World {
    fn note(&self, pid: Pid, change: impl FnOnce(&mut Noted)) {
        change(self.noted.lock().unwrap().entry(pid).or_default());
    }

    /// A question will not be answered any more, or not by who was asked. It may have been given up before.
    fn closed(&self, asker: Pid, question: u64) {
        self.note(asker, |noted| noted.open.retain(|(number, _)| *number != question));
    }

    /// What is wrong with telling this process of this cycle.
    fn is_wrong(&self, me: Pid, cycle: &Cycle) -> Option<String> {
        let noted = self.noted.lock().unwrap();
        let pids = cycle.pids();
        if pids.first() != Some(&me) || pids.iter().collect::<HashSet<_>>().len() != pids.len() {
            return Some(format!("{me} was told of {cycle}"));
        }
        // Asked for last: what has changed because of an end has changed after this was set.
        World::is_loose(&noted, me, cycle).filter(|_| !self.ends.load(Ordering::SeqCst))
    }

    /// Who of those who are said to be in a knot can go on.
    fn is_loose(noted: &HashMap<Pid, Noted>, me: Pid, cycle: &Cycle) -> Option<String> {
        let pids = cycle.pids();
        for (one, next) in pids.iter().zip(pids.iter().cycle().skip(1)) {
            if !noted.get(one).is_some_and(|one| one.open.iter().any(|(_, asked)| asked == next)) {
                return Some(format!("{me} was told of {cycle}, and {one} does not wait for {next}"));
            }
        }
        let (mut seen, mut to_see) = (HashSet::from([me]), vec![me]);
        while let Some(pid) = to_see.pop() {
            let Some(one) = noted.get(&pid).filter(|one| (one.waits || pid == me) && !one.works) else {
                return Some(format!("{me} was told of {cycle}, and {pid} can go on"));
            };
            to_see.extend(one.open.iter().map(|(_, asked)| *asked).filter(|pid| seen.insert(*pid)));
        }
        None
    }
}

/// A question, and its number among those of who asks.
struct Asked(u64, Reply<()>);

struct Member {
    world: Arc<World>,
    rounds: std::vec::IntoIter<Round>,
    round: Round,
    open: Vec<(Tag<()>, u64)>,
    asked: u64,
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
                Event::Message(Asked(question, reply)) => {
                    let Some(asker) = events.sender() else { continue };
                    self.world.closed(asker, question);
                    if self.round.hands_on {
                        out.send(self.clerk, reply.handed_on());
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
                    let (tag, question) = self.open.remove(place);
                    if let Err(CommandError::Cycle(cycle)) = done.take(tag).unwrap() {
                        self.world.is_wrong(me, &cycle).into_iter().for_each(|wrong| self.world.wrong.push(wrong));
                        self.world.cycles.push(cycle.pids().len());
                    }
                    // Mostly it is closed already; not if it was given up, or who was asked has ended.
                    self.world.closed(me, question);
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
            self.asked += 1;
            let number = self.asked;
            self.open.push((out.ask(asked, |reply| Asked(number, reply), Duration::MAX), number));
            noted_open.push((number, asked.pid()));
        }
        self.world.note(me, |noted| {
            noted.works = round.works;
            noted.open = noted_open;
        });
        self.work = round.works.then(|| out.blocking(|| ()));
        self.round = round;
        if self.open.is_empty() && self.work.is_none() { Ok(Step::Continue) } else { Ok(self.waits(me)) }
    }
}

impl Member {
    fn waits(&self, me: Pid) -> Step<()> {
        self.world.note(me, |noted| noted.waits = true);
        Step::Wait
    }
}

fn run(program: &Program) -> Result<(), String> {
    let runtime = runtime(program.workers);
    let world = Arc::new(World::default());
    // A clerk is never waiting for anybody.
    let clerk = runtime.spawn(script(|events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(reply) => out.reply(reply, ()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }));
    let clerk = clerk.map_err(|why| why.to_string())?.address();
    let members: Vec<_> = {
        // They begin when all are known.
        let mut all = world.all.lock().unwrap();
        let none = Round { asks: Vec::new(), works: false, hands_on: false };
        let spawn = |rounds: &Vec<Round>| {
            let (world, rounds, round) = (world.clone(), rounds.clone().into_iter(), none.clone());
            runtime.spawn(Member { world, rounds, round, open: Vec::new(), asked: 0, work: None, clerk }).unwrap()
        };
        let members: Vec<_> = program.rounds.iter().map(spawn).collect();
        all.extend(members.iter().map(|member| member.address()));
        members
    };
    world.ends.store(!program.ends.is_empty(), Ordering::SeqCst);
    for end in &program.ends {
        runtime.terminate(members[end % members.len()].pid()).map_err(|why| why.to_string())?;
    }
    let began = std::time::Instant::now();
    while members.iter().any(|member| {
        let info = runtime.process(member.pid());
        info.is_some_and(|info| info.state != procession::ProcessState::Idle || info.mailbox > 0)
    }) {
        if began.elapsed() > LIMIT {
            return Err(format!("somebody waits for ever: {:?}", runtime.processes()));
        }
        std::thread::yield_now();
    }
    if let Some(wrong) = world.wrong.take().first() {
        return Err(wrong.clone());
    }
    if world.cycles.take().is_empty() && must_have_a_cycle(program) {
        return Err("nobody was told of a cycle".into());
    }
    Ok(())
}

/// One that asks itself and waits for nothing else is told.
fn must_have_a_cycle(program: &Program) -> bool {
    let alone = |(me, rounds): (usize, &Vec<Round>)| {
        rounds.iter().any(|round| {
            !round.works && round.asks.iter().all(|asked| asked % program.rounds.len() == me) && !round.asks.is_empty()
        })
    };
    program.ends.is_empty() && program.rounds.iter().enumerate().any(alone)
}

fn program() -> impl Strategy<Value = Program> {
    let round = (prop::collection::vec(any::<usize>(), 0..3), prop::bool::weighted(0.15), prop::bool::weighted(0.2))
        .prop_map(|(asks, works, hands_on)| Round { asks, works, hands_on });
    let rounds = prop::collection::vec(prop::collection::vec(round, 0..8), 1..8);
    let ends = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(any::<usize>(), 1..4)];
    (1..4_usize, rounds, ends).prop_map(|(workers, rounds, ends)| Program { workers, rounds, ends })
}

#[test]
fn in_random_graphs_of_asks_each_knot_is_untied_and_nobody_is_told_of_one_that_is_not_there() {
    random_programs(300, Config { max_shrink_iters: 200, ..Config::default() }, program(), run);
}
