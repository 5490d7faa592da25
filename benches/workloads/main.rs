//! What the usual things cost: a message, a hop, a process from birth to end, a question.
//!
//! Each workload is a small program such as a user would write, and checks what came of it: a wrong count is a failure,
//! not a fast run. It runs once, in a process of its own where several are asked for, so that its peak of memory is its
//! own.
//!
//! What this is not: a ranking, and a measurement of one function. The figures are of this machine at this moment; compare
//! those that were taken side by side, several of each.

mod list;
mod messages;
mod births;
mod relations;
mod shape;
mod runtime;
mod measure;
mod table;
mod options;

use std::process::{Command, ExitCode};

use self::list::Workload;
use self::measure::{Outcome, Setting};
use self::options::{Asked, Options};

/// Something was wrong with the result of a workload.
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
            eprintln!("workloads: {problem}");
            return ExitCode::from(MISUSED);
        }
    };
    if !options.bare {
        if cfg!(debug_assertions) {
            eprintln!("workloads: not optimised, so the counts are small and the figures mean nothing");
        }
        if !options.json {
            println!("{}", table::head());
        }
    }
    let results: Vec<Outcome<()>> = match options.workloads[..] {
        [only] => vec![here(only, &options)],
        _ => options.workloads.iter().map(|one| elsewhere(one, &options)).collect(),
    };
    for (workload, result) in options.workloads.iter().zip(&results) {
        if let Err(problem) = result {
            eprintln!("workloads: {}: {problem}", workload.name);
        }
    }
    ExitCode::from(if results.iter().all(Result::is_ok) { 0 } else { WRONG })
}

/// Runs a workload, and prints its line.
fn here(workload: &Workload, options: &Options) -> Outcome<()> {
    let setting = Setting { n: options.count(workload), workers: options.workers };
    let measured = (workload.run)(&setting)?;
    let line = if options.json {
        measured.json("procession", workload.name, &setting)
    } else {
        table::row(workload.name, workload.op, &setting, &measured)
    };
    println!("{line}");
    Ok(())
}

/// The same in a process of its own.
fn elsewhere(workload: &Workload, options: &Options) -> Outcome<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([workload.name, "--bare", "--n", &options.count(workload).to_string()]);
    command.args(["--workers", &options.workers.to_string()]);
    if options.json {
        command.arg("--json");
    }
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(format!("its process ended with {status}").into()) }
}
