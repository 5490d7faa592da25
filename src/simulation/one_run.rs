//! One run of a scenario.

use std::time::Duration;

use super::decider::Decider;
use super::decision::Item;
use super::delivery::Delivery;
use super::driving::pause;
use super::failure::Failure;
use super::faults::Faults;
use super::recorder::{Recorder, TurnRecord};
use super::shared::{Limits, Shared};
use super::tape::{Replayed, Tape};
use super::trace_formatter::TraceFormatter;
use super::world::World;
use crate::clock::Clock;
use crate::outcome::{BoxError, contain};
use crate::primitives::Arc;

/// The code of a run.
pub(super) type Scenario = dyn Fn(&World) -> Result<(), BoxError> + Send + Sync;

/// The options that all runs of a simulation share.
#[derive(Clone)]
pub(super) struct RunOptions {
    pub(super) faults: Faults,
    pub(super) limits: Limits,
    pub(super) delivery: Delivery,
    /// The names of the checks that are switched off.
    pub(super) without: Vec<String>,
    /// The types whose values are shown in a trace.
    pub(super) formatter: Arc<TraceFormatter>,
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
    let recorder = if is_recorded { Recorder::with_turns(options.formatter.clone()) } else { Recorder::default() };
    let start = Clock::system().now() + ahead;
    let rules = (options.faults.clone(), options.limits, options.delivery, options.without.clone());
    let shared = Shared::new(start, decider, rules, (recorder, pause));
    let _here = shared.clock.clock().enter_simulation();
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
    for (candidate, turn) in decider.never_came() {
        // Records have the numbers of their turns, from 1.
        if let Some(record) = outcome.records.get_mut(turn as usize - 1) {
            record.is_out_of_order = true;
            record.notes.push(format!("went before {}, which did not come any more", in_words(candidate.item)));
        }
    }
    outcome.tape = decider.into_tape();
    outcome
}

fn in_words(item: Item) -> String {
    match item {
        Item::Turn(pid) => format!("a turn of {pid}"),
        Item::Timer(_) => String::from("a timer"),
        Item::Job(_) => String::from("a job"),
        Item::Delivery(from, to) => format!("a message of {from} to {to}"),
    }
}
