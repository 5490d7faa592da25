//! The functions that run the programs of the suite, and the modules that they share beside the problems.

use super::measure::{Measured, Outcome, Setting};
use super::problems::PROGRAMS;
use super::{bank, barber, big, counting, fork_join, philosophers, queens, ring, sieve, trapezoid, tree};

/// In the order of [`PROGRAMS`].
pub(crate) const RUNS: [fn(&Setting) -> Outcome<Measured>; PROGRAMS.len()] = [
    ring::run,
    counting::run,
    fork_join::throughput,
    fork_join::create,
    big::run,
    bank::run,
    philosophers::run,
    barber::run,
    sieve::run,
    queens::run,
    trapezoid::run,
    tree::run,
];
