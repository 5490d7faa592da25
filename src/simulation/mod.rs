//! Simulation: a whole program under a seed, with its order, its time and its faults chosen.

mod checks;
mod decider;
mod decision;
mod entries;
mod executor;
mod failure;
mod one_run;
mod schedule;
mod tape;
#[cfg(test)]
mod small_world;
#[allow(clippy::module_inception)]
mod simulation;
mod faults;
mod fold;
mod hosting;
mod recorder;
mod shared;
mod state;
mod world;

pub use self::faults::{Fault, Faults, StepFault};
pub use self::schedule::Schedule;
pub use self::simulation::{
    DEFAULT_MAX_TIME, DEFAULT_MAX_TURNS, DEFAULT_SEEDS, FailedRun, Simulation, SimulationReport,
};
pub use self::state::{WaitingMessage, WorldState};
pub use self::world::{World, ensure};
