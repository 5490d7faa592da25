//! One run of a scenario.

use std::time::{Duration, Instant};

use super::decision::{Candidate, Choose, Odds, Place};
use super::failure::Failure;
use super::faults::Faults;
use super::recorder::{Recorder, TurnRecord};
use super::schedule::Chooser;
use super::shared::{Limits, Shared};
use super::tape::{self, Replayed, Tape};
use super::world::World;
use crate::outcome::{BoxError, contain};
use crate::primitives::{Arc, Mutex, lock};

/// The code of a run.
pub(super) type Scenario = dyn Fn(&World) -> Result<(), BoxError> + Send + Sync;

/// Makes the decisions of a run.
#[derive(Debug)]
pub(super) enum Decider {
    Seeded(Chooser),
    /// Notes what it decides on a tape.
    Noted(tape::Recorder<Chooser>),
    Replayed(Replayed),
    /// As `Replayed`, with the deviations that took effect on a tape.
    ReplayNoted(tape::Recorder<Replayed>),
}

impl Choose for Decider {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        match self {
            Decider::Seeded(chooser) => chooser.next(candidates),
            Decider::Noted(recorder) => recorder.next(candidates),
            Decider::Replayed(replayed) => replayed.next(candidates),
            Decider::ReplayNoted(recorder) => recorder.next(candidates),
        }
    }

    fn decide(&mut self, place: Place, odds: Odds) -> u64 {
        match self {
            Decider::Seeded(chooser) => chooser.decide(place, odds),
            Decider::Noted(recorder) => recorder.decide(place, odds),
            Decider::Replayed(replayed) => replayed.decide(place, odds),
            Decider::ReplayNoted(recorder) => recorder.decide(place, odds),
        }
    }
}

/// A decider that the run and its caller share.
struct Lent(Arc<Mutex<Decider>>);

impl Choose for Lent {
    fn next(&mut self, candidates: &[Candidate]) -> usize {
        lock(&self.0).next(candidates)
    }

    fn decide(&mut self, place: Place, odds: Odds) -> u64 {
        lock(&self.0).decide(place, odds)
    }
}

/// The options that all runs of a simulation share.
#[derive(Clone, Debug)]
pub(super) struct RunOptions {
    pub(super) faults: Faults,
    pub(super) limits: Limits,
    /// The names of the checks that are switched off.
    pub(super) without: Vec<String>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) failure: Option<Failure>,
    pub(super) hash: u64,
    pub(super) turns: u32,
    pub(super) injected: u32,
    /// The turns, if they were recorded.
    pub(super) records: Vec<TurnRecord>,
    /// The tape, if the decisions were noted.
    pub(super) tape: Tape,
}

/// Runs the scenario once. `ahead` is by how much the clock of the run is ahead of the system's: a run must not depend
/// on it.
pub(super) fn run_once(
    scenario: &Scenario,
    options: &RunOptions,
    seed: u64,
    decider: Decider,
    (is_recorded, ahead): (bool, Duration),
) -> Outcome {
    let decider = Arc::new(Mutex::new(decider));
    let recorder = if is_recorded { Recorder::with_turns() } else { Recorder::default() };
    let start = Instant::now() + ahead;
    let rules = (options.faults.clone(), options.limits, options.without.clone());
    let shared = Shared::new(start, Box::new(Lent(decider.clone())), rules, recorder);
    let world = World::new(shared.clone(), seed);
    match contain(|| scenario(&world)) {
        Ok(Ok(())) => world.finish(),
        Ok(Err(error)) => shared.fail("the scenario succeeds", error.to_string()),
        Err(panic) => shared.fail("the scenario does not panic", panic.to_string()),
    }
    world.end();
    drop(world);
    shared.clear();
    let mut outcome = {
        let state = &mut *shared.state();
        Outcome {
            failure: state.failure.take(),
            hash: state.fold.value(),
            turns: state.turns,
            injected: state.injected,
            records: state.recorder.take_turns(),
            tape: Tape::default(),
        }
    };
    drop(shared);
    // The world is gone, so the decider has no other owner.
    if let Some(decider) = Arc::into_inner(decider) {
        outcome.tape = match decider.into_inner() {
            Ok(Decider::Noted(recorder)) => recorder.into_tape(),
            Ok(Decider::ReplayNoted(recorder)) => recorder.into_tape(),
            _ => Tape::default(),
        };
    }
    outcome
}
