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
#[cfg(all(test, not(loom)))]
mod small_world;
