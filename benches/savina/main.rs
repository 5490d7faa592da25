//! The Savina actor benchmark suite (Imam and Sarkar, 2014), as processes.
//!
//! Each program is written from the published description, as a user would write it here, with the parameters of the
//! paper. It checks its answer: a wrong answer is a failure, not a fast run. If several runs are requested, each has
//! its own process, so that its peak of memory is its own. The clock starts when the runtime has started, so the
//! creation of the actors counts. It stops when the answer is known.
//!
//! `problems` has everything but the actors. The same programs for other libraries are in `benches/peers`. They use
//! it, too.

mod problems;
mod list;
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
// The workloads use this whole module.
#[allow(dead_code)]
#[path = "../workloads/measure.rs"]
mod measure;
#[path = "../workloads/runtime.rs"]
mod runtime;
#[path = "../workloads/table.rs"]
mod table;
#[path = "../workloads/command.rs"]
mod command;

use std::process::ExitCode;

use self::command::Suite;
use self::list::RUNS;
use self::measure::Workload;
use self::problems::{PROGRAMS, Program};

fn main() -> ExitCode {
    let workloads = PROGRAMS.iter().zip(RUNS).map(|(program, run)| {
        let Program { name, counts, op, n, smoke } = *program;
        Workload { name, counts, op, n, smoke, run }
    });
    command::run(&Suite {
        name: "savina",
        about: "Runs programs of the Savina actor benchmark suite, all of them where none is named, and prints what \
                each took:\n\
                in all, and for one operation.",
        workloads: workloads.collect(),
        refuses: |_, _| None,
    })
}
