//! Random programs of processes that ask each other, in simulations. A process may wait for its answer. If such
//! processes wait in a cycle, one of their questions is given up, and no question waits for its limit.

use std::collections::BTreeSet;
use std::time::Duration;

use procession::simulation::{Simulation, World};
use procession::{BoxError, CommandError, Event, Events, Pid, Process, Reply, Step, StepOutput, StepResult, Tag};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;

#[derive(Clone, Debug)]
struct Program {
    /// The process that each one asks, if it asks, and whether it waits for the answer.
    asks: Vec<(Option<usize>, bool)>,
    seed: u64,
}

enum Message {
    /// The process asks another one.
    Ask(Pid),
    Question(Reply<()>),
}

struct Asker {
    waits: bool,
    asked: Option<Tag<()>>,
    answers: Log<(Pid, Result<(), CommandError>)>,
}

impl Process for Asker {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Message::Ask(of)) => {
                    self.asked = Some(out.ask(of.typed(), Message::Question, Duration::from_secs(100)));
                    if self.waits {
                        return Ok(Step::Wait);
                    }
                }
                Event::Message(Message::Question(reply)) => out.reply(reply, ()),
                Event::Completed(done) => {
                    let answer = done.take(self.asked);
                    answer.into_iter().for_each(|answer| self.answers.push((out.pid(), answer)));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The processes on the cycle to which this one belongs, if each of them waits for the next one.
fn cycle_of(program: &Program, first: usize) -> Option<BTreeSet<usize>> {
    let (mut cycle, mut at) = (BTreeSet::new(), first);
    loop {
        let (Some(next), true) = program.asks[at] else { return None };
        if !cycle.insert(at) {
            return None;
        }
        at = next % program.asks.len();
        if at == first {
            return Some(cycle);
        }
    }
}

fn run(program: &Program) -> Result<(), String> {
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| run_in(world, &of_scenario).map_err(BoxError::from))
        .name("random questions")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run_in(world: &World, program: &Program) -> Result<(), String> {
    let (runtime, answers) = (world.start(builder()).map_err(|error| error.to_string())?, Log::new());
    let spawn = |(_, waits): &(Option<usize>, bool)| {
        let asker = Asker { waits: *waits, asked: None, answers: answers.clone() };
        runtime.spawn(asker).map(|handle| handle.pid()).map_err(|error| error.to_string())
    };
    let pids: Vec<Pid> = program.asks.iter().map(spawn).collect::<Result<_, _>>()?;
    world.run().map_err(|error| error.to_string())?;
    for (number, (asked, _)) in program.asks.iter().enumerate() {
        if let Some(asked) = asked {
            let message = Message::Ask(pids[asked % pids.len()]);
            runtime.send(pids[number].typed(), message).map_err(|_| "a message is refused")?;
        }
        if world.random(0..2) == 0 {
            world.run_for(Duration::from_micros(world.random(1..20))).map_err(|error| error.to_string())?;
        }
    }
    world.run().map_err(|error| error.to_string())?;
    if world.now() > Duration::from_secs(1) {
        return Err(format!("questions: they have waited until {:?}", world.now()));
    }
    let answers = answers.to_vec();
    for (number, (asked, _)) in program.asks.iter().enumerate() {
        let of: Vec<_> = answers.iter().filter(|(pid, _)| *pid == pids[number]).map(|(_, answer)| answer).collect();
        if of.len() != usize::from(asked.is_some()) {
            return Err(format!("questions: {number} has the answers {of:?}"));
        }
        let cycle = cycle_of(program, number);
        let is_right = |answer: &&Result<(), CommandError>| match (answer, &cycle) {
            (Ok(()), _) => true,
            (Err(CommandError::Cycle(told)), Some(cycle)) => {
                let told: BTreeSet<Pid> = told.pids().iter().copied().collect();
                told == cycle.iter().map(|number| pids[*number]).collect()
            }
            _ => false,
        };
        if !of.iter().all(is_right) {
            return Err(format!("questions: {number} in {cycle:?} has the answers {of:?}"));
        }
        let given_up = |number: &usize| answers.iter().any(|(pid, answer)| *pid == pids[*number] && answer.is_err());
        let count = cycle.iter().flatten().filter(|number| given_up(number)).count();
        // The question of one may have been answered before another one has asked.
        if count > 1 {
            return Err(format!("questions: {count} of {cycle:?} were given up"));
        }
    }
    Ok(())
}

fn program() -> impl Strategy<Value = Program> {
    let ask = (prop::option::weighted(0.9, any::<usize>()), prop::bool::weighted(0.9));
    (prop::collection::vec(ask, 1..6), any::<u32>()).prop_map(|(asks, seed)| Program { asks, seed: seed.into() })
}

#[test]
fn simulated_programs_of_questions_keep_the_laws() {
    random_programs(cases(25_000), Config::default(), program(), run);
}
