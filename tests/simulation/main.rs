//! Tests of the simulation. `docs/guarantees/simulation.md` names them.
#![cfg(not(loom))]
#![allow(unreachable_pub, dead_code)]

mod bugs;
mod faults;
mod invariants;
mod programs;
mod seeds;
mod shown;
mod worlds;
