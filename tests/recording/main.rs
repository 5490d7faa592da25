//! Recordings of processes and their replay: section J of `docs/guarantees/simulation.md`.

#![allow(unreachable_pub)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/log.rs"]
mod log;
#[path = "../common/panics.rs"]
mod panics;
mod walker;
mod mutated;
mod replaying;
mod readings;
mod differences;
mod files;
mod saving;
mod bounds;
mod folder;
mod processes;
mod random_programs;
