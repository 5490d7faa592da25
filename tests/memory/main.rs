//! The memory that is kept, and the memory that is left behind. Each test measures a whole program, so each runs in a
//! program of its own: this one, started again.

#![cfg(target_os = "linux")]
#![allow(unreachable_pub, dead_code)]

#[path = "../common/wait.rs"]
mod wait;
#[path = "../common/blocker.rs"]
mod blocker;
#[path = "../common/panics.rs"]
mod panics;
#[path = "../common/script.rs"]
mod script;
#[path = "../process/helpers.rs"]
mod helpers;
#[path = "../simulation/programs.rs"]
mod programs;
#[path = "../recording/walker.rs"]
mod walker;
#[path = "../recording/mutated.rs"]
mod mutated;
#[cfg(feature = "zenoh")]
#[path = "../common/hostile_peer.rs"]
mod hostile_peer;
mod resident;

mod actors;
mod async_processes;
mod figures;
mod futures;
#[cfg(feature = "zenoh")]
mod hostile_peers;
#[cfg(feature = "cluster")]
mod peers;
mod processes;
mod recordings;
mod simulations;
mod steady;
mod tasks;
