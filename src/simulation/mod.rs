//! Simulation: a whole program under a seed, with its order, its time and its faults chosen.

mod decision;
mod schedule;
mod tape;
mod replay_seed;
mod shrink;
mod coverage;
mod regressions;
mod trace;
mod report;
mod progress;
#[cfg(test)]
mod small_world;
mod decider;
mod fold;
mod failure;
mod faults;
mod entries;
mod recorder;
mod state;
mod checks;
mod shared;
mod executor;
mod driving;
mod hosting;
mod world;
mod one_run;
mod told;
#[allow(clippy::module_inception)]
mod simulation;

pub use self::faults::{Fault, Faults, StepFault};
pub use self::schedule::Schedule;
pub use self::simulation::{
    DEFAULT_MAX_TIME, DEFAULT_MAX_TURNS, DEFAULT_SEEDS, FailedRun, Simulation, SimulationReport,
};
pub use self::state::{WaitingMessage, WorldState};
pub use self::world::{World, ensure};
