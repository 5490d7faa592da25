//! Random programs of one feed, in simulations, against a count of its items: which puts find room, and in which order
//! the items come. Puts come from outside, and from futures that a step makes when it has taken items.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use procession::feed::Feed;
use procession::simulation::{Simulation, World};
use procession::{BoxError, Event, Events, Process, Step, StepOutput, StepResult};
use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::helpers::*;
use crate::seeded::random_programs;
use crate::simulated::cases;

#[derive(Clone, Debug)]
struct Program {
    limit: usize,
    /// How many items each step takes, and how many futures it makes that put one.
    steps: Vec<(usize, usize)>,
    /// So many are put from outside, each time after some turns.
    puts: Vec<usize>,
    seed: u64,
}

#[derive(Default)]
struct Records {
    feed: Option<Feed<u32>>,
    /// The items that were accepted, and that no step has taken.
    untaken: VecDeque<u32>,
    numbers: u32,
    wrong: Option<String>,
}

type Shared = Arc<Mutex<Records>>;

/// Puts an item, if there is a feed. There has to be room unless all places are taken.
fn put(records: &Shared, limit: usize) {
    let records = &mut *records.lock().unwrap();
    let Some(feed) = &records.feed else { return };
    let (number, has_room) = (records.numbers, records.untaken.len() < limit);
    let is_put = feed.try_put(number).is_ok();
    if is_put != has_room {
        records.wrong = Some(format!("{number} is put: {is_put}, and {:?} of {limit} are there", records.untaken));
    }
    records.numbers += 1;
    records.untaken.extend(is_put.then_some(number));
}

struct Eater {
    limit: usize,
    steps: VecDeque<(usize, usize)>,
    records: Shared,
}

impl Process for Eater {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        let is_new = self.records.lock().unwrap().feed.is_none();
        if is_new {
            self.records.lock().unwrap().feed = Some(out.feed(self.limit));
            return Ok(Step::Idle);
        }
        let is_last = self.steps.is_empty();
        let (mut takes, puts) = self.steps.pop_front().unwrap_or((usize::MAX, 0));
        while takes > 0
            && let Some(event) = events.next()
        {
            match event {
                Event::Message(number) => {
                    takes -= 1;
                    let records = &mut *self.records.lock().unwrap();
                    let expected = records.untaken.pop_front();
                    if expected != Some(number) {
                        records.wrong = Some(format!("{number} is taken in the place of {expected:?}"));
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        for _ in 0..puts {
            let (records, limit) = (self.records.clone(), self.limit);
            out.future(async move { put(&records, limit) });
        }
        Ok(if is_last { Step::Idle } else { Step::Continue })
    }
}

fn run(program: &Program) -> Result<(), String> {
    let of_scenario = program.clone();
    let report = Simulation::new(move |world| run_in(world, &of_scenario).map_err(BoxError::from))
        .name("random feeds")
        .seeds(program.seed..program.seed + 1)
        .threads(1)
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))
}

fn run_in(world: &World, program: &Program) -> Result<(), String> {
    let runtime = world.start(builder()).map_err(|error| error.to_string())?;
    let records = Shared::default();
    let steps = program.steps.iter().copied().collect();
    let eater = Eater { limit: program.limit, steps, records: records.clone() };
    runtime.spawn(eater).map_err(|error| error.to_string())?;
    for puts in &program.puts {
        (0..*puts).for_each(|_| put(&records, program.limit));
        world.run_for(Duration::from_micros(world.random(0..6))).map_err(|error| error.to_string())?;
    }
    world.run().map_err(|error| error.to_string())?;
    let feed = {
        let records = &mut *records.lock().unwrap();
        if let Some(wrong) = records.wrong.take() {
            return Err(format!("feeds: {wrong}"));
        }
        if !records.untaken.is_empty() {
            return Err(format!("feeds: {:?} are left", records.untaken));
        }
        records.feed.clone()
    };
    runtime.shutdown(Duration::from_secs(10)).map_err(|error| error.to_string())?;
    match feed.map(|feed| feed.try_put(0)) {
        Some(Ok(())) => Err("feeds: an item is accepted, and the process has ended".into()),
        _ => Ok(()),
    }
}

fn program() -> impl Strategy<Value = Program> {
    let steps = prop::collection::vec((0..4_usize, 0..3_usize), 0..8);
    (1..4_usize, steps, prop::collection::vec(0..4_usize, 1..8), any::<u32>())
        .prop_map(|(limit, steps, puts, seed)| Program { limit, steps, puts, seed: seed.into() })
}

#[test]
fn simulated_programs_of_feeds_keep_the_laws() {
    random_programs(cases(25_000), Config::default(), program(), run);
}
