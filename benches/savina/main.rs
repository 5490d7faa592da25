//! The Savina actor benchmark suite (Imam and Sarkar, 2014), as processes.
//!
//! Each program is written from the published description, as a user would write it here, with the parameters of the
//! paper, and checks its answer: a wrong one is a failure, not a fast run. Each run has a process of its own where several
//! are asked for, so that its peak of memory is its own. The clock starts when the runtime is up, so that creating the
//! actors counts, and stops when the answer is known.
//!
//! `problems` is everything but the actors; the same programs for other libraries are in `benches/peers`, and use it too.

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
mod options;
// What this does not use of it, the workloads do.
#[allow(dead_code)]
#[path = "../workloads/measure.rs"]
mod measure;
#[path = "../workloads/runtime.rs"]
mod runtime;
#[path = "../workloads/table.rs"]
mod table;

use std::process::{Command, ExitCode};

use self::list::RUNS;
use self::measure::{Outcome, Setting};
use self::options::{Asked, Options};
use self::problems::{PROGRAMS, Program};

/// Something was wrong with the answer of a program.
const WRONG: u8 = 1;
/// Something was wrong with the arguments.
const MISUSED: u8 = 2;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Asked::Help) => {
            print!("{}", options::help());
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Run(options)) => options,
        Err(problem) => {
            eprintln!("savina: {problem}");
            return ExitCode::from(MISUSED);
        }
    };
    if !options.bare {
        if cfg!(debug_assertions) {
            eprintln!("savina: not optimised, so the counts are small and the figures mean nothing");
        }
        if !options.json {
            println!("{}", table::head());
        }
    }
    let mut are_right = true;
    // The runs of different programs take turns, so that a busy moment of the machine does not hit all runs of one.
    for _ in 0..options.runs {
        for program in &options.programs {
            let result = match (&options.programs[..], options.runs) {
                ([_], 1) => here(*program, &options),
                _ => elsewhere(*program, &options),
            };
            if let Err(problem) = result {
                eprintln!("savina: {}: {problem}", PROGRAMS[*program].name);
                are_right = false;
            }
        }
    }
    ExitCode::from(if are_right { 0 } else { WRONG })
}

/// Runs a program, and prints its line.
fn here(program: usize, options: &Options) -> Outcome<()> {
    let Program { name, op, .. } = PROGRAMS[program];
    let setting = Setting { n: options.count(&PROGRAMS[program]), workers: options.workers };
    let measured = RUNS[program](&setting)?;
    let line = if options.json {
        measured.json("procession", name, &setting)
    } else {
        table::row(name, op, &setting, &measured)
    };
    println!("{line}");
    Ok(())
}

/// The same in a process of its own.
fn elsewhere(program: usize, options: &Options) -> Outcome<()> {
    let program = &PROGRAMS[program];
    let mut command = Command::new(std::env::current_exe()?);
    command.args([program.name, "--bare", "--n", &options.count(program).to_string()]);
    command.args(["--workers", &options.workers.to_string()]);
    if options.json {
        command.arg("--json");
    }
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("its process ended with {status}").into()) }
}
