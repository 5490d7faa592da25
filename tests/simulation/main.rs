//! Tests of the simulation. `docs/guarantees/simulation.md` names them.
#![cfg(not(loom))]
#![allow(unreachable_pub, dead_code)]

mod again;
mod bugs;
mod delivery;
mod eventually;
mod faults;
mod golden;
mod hashes;
mod invariants;
mod limits;
mod kills;
mod panics;
mod programs;
mod real_outcomes;
mod schedules;
#[path = "../common/script.rs"]
mod script;
mod seeds;
mod shipped;
mod shown;
#[path = "../common/wait.rs"]
mod wait;
mod waits;
mod worlds;
