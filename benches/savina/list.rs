//! What runs each program of the suite, and what the programs have in common beside the problems.

use procession::{Address, Process, SpawnError, StepOutput};

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

/// Spawns a child. If it is refused, the child that comes back is of no use to anybody; why, is.
pub(crate) fn spawn<P: Process>(out: &mut StepOutput, child: P) -> Result<Address<P::Message>, SpawnError> {
    out.spawn(child).map_err(|refused| refused.into_parts().1)
}
