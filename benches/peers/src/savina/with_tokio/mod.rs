//! The Savina suite on raw tokio: a task for each actor, an unbounded channel for each mailbox.
//!
//! Differences: a channel exists before its task, so tasks need no introduction by a message. A task that waits for
//! one answer uses a oneshot channel. A message is sent at once, and not at the end of the step. Actors that know
//! each other in a circle do not end by themselves, and must be told to end.

mod ring;
mod counting;
mod fork_join;
mod big;
mod bank;
mod philosophers;
mod barber;
mod sieve;
mod queens;
mod trapezoid;
mod tree;

use crate::registry::Program;

pub(crate) const PROGRAMS: &[Program] = &[
    Program::new("ThreadRing", ring::run),
    Program::new("CountingActor", counting::run),
    Program::new("ForkJoinThroughput", fork_join::throughput),
    Program::new("ForkJoinCreate", fork_join::create),
    Program::new("Big", big::run),
    Program::new("BankTransaction", bank::run),
    Program::new("Philosophers", philosophers::run),
    Program::new("SleepingBarber", barber::run),
    Program::new("Sieve", sieve::run),
    Program::new("NQueens", queens::run),
    Program::new("Trapezoidal", trapezoid::run),
    Program::new("UnbalancedCobwebbedTree", tree::run),
];
