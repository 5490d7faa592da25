//! Procession's programs of the suite.

use self::list::RUNS;
// The programs expect the shared modules beside them.
use super::problems::{self, PROGRAMS};
use crate::ours::{measure, runtime};
use crate::registry::Program;

#[path = "../../../savina/list.rs"]
mod list;
#[path = "../../../savina/ring.rs"]
mod ring;
#[path = "../../../savina/counting.rs"]
mod counting;
#[path = "../../../savina/fork_join.rs"]
mod fork_join;
#[path = "../../../savina/big.rs"]
mod big;
#[path = "../../../savina/bank.rs"]
mod bank;
#[path = "../../../savina/philosophers.rs"]
mod philosophers;
#[path = "../../../savina/barber.rs"]
mod barber;
#[path = "../../../savina/sieve.rs"]
mod sieve;
#[path = "../../../savina/queens.rs"]
mod queens;
#[path = "../../../savina/trapezoid.rs"]
mod trapezoid;
#[path = "../../../savina/tree.rs"]
mod tree;

pub(crate) fn programs() -> Vec<Program> {
    PROGRAMS.iter().zip(RUNS).map(|(one, run)| Program::new(one.name, run)).collect()
}
