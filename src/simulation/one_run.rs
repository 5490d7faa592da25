//! One run of a scenario.

use std::time::Duration;

use super::decider::Decider;
use super::driving::pause;
use super::failure::Failure;
use super::faults::Faults;
use super::recorder::{Recorder, TurnRecord};
use super::shared::{Limits, Shared};
use super::tape::{Replayed, Tape};
use super::world::World;
use crate::clock::Clock;
use crate::outcome::{BoxError, contain};

/// The code of a run.
pub(super) type Scenario = dyn Fn(&World) -> Result<(), BoxError> + Send + Sync;

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
    /// The name of the partial order.
    pub(super) order: u64,
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
    let recorder = if is_recorded { Recorder::with_turns() } else { Recorder::default() };
    let start = Clock::system().now() + ahead;
    let rules = (options.faults.clone(), options.limits, options.without.clone());
    let shared = Shared::new(start, decider, rules, (recorder, pause));
    let world = World::new(shared.clone(), seed);
    match contain(|| scenario(&world)) {
        Ok(Ok(())) => world.finish(),
        Ok(Err(error)) => shared.fail("the scenario succeeds", error.to_string()),
        Err(panic) => shared.fail("the scenario does not panic", panic.to_string()),
    }
    world.end();
    drop(world);
    shared.clear();
    let (mut outcome, decider) = {
        let state = &mut *shared.state();
        let decider = std::mem::replace(&mut state.chooser, Decider::Replayed(Replayed::new(&Tape::default(), 0)));
        let outcome = Outcome {
            failure: state.failure.take(),
            hash: state.fold.value(),
            order: state.order.name(),
            turns: state.turns,
            injected: state.injected,
            records: state.recorder.take_turns(),
            tape: Tape::default(),
        };
        (outcome, decider)
    };
    outcome.tape = decider.into_tape();
    outcome
}
