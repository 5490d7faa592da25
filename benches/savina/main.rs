//! The Savina actor benchmark suite (Imam and Sarkar, 2014), as processes.
//!
//! Each program is written from the published description, as a user would write it here, with the parameters of the
//! paper, and checks its answer: a wrong one is a failure, not a fast run. Each run has a process of its own where
//! several are asked for, so that its peak of memory is its own. The clock starts when the runtime is up, so that
//! creating the actors counts, and stops when the answer is known.
//!
//! `problems` is everything but the actors; the same programs for other libraries are in `benches/peers`, and use it
//! too.

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
// The workloads use all of it.
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
        about: "Runs programs of the Savina actor benchmark suite, all of them where none is named, and prints what each took:\n\
                in all, and for one operation.",
        workloads: workloads.collect(),
        refuses: |_, _| None,
    })
}
