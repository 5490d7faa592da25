//! What the usual things cost: a message, a hop, a process from birth to end, a question.
//!
//! Each workload is a small program such as a user would write, and checks what came of it: a wrong count is a failure,
//! not a fast run. It runs once, in a process of its own where several are asked for, so that its peak of memory is its
//! own.
//!
//! What this is not: a ranking, and a measurement of one function. The figures are of this machine at this moment; compare
//! those that were taken side by side, several of each.

mod births;
mod measure;
mod messages;
mod options;

use std::process::{Command, ExitCode};

use self::measure::{Measured, Outcome, Setting};
use self::options::{Asked, Options};

/// One of the workloads.
struct Workload {
    name: &'static str,
    /// What `n` counts.
    counts: &'static str,
    /// What the time is divided by.
    op: &'static str,
    n: u64,
    /// The count for a run that only shows that it works.
    smoke: u64,
    run: fn(&Setting) -> Outcome<Measured>,
}

const WORKLOADS: [Workload; 9] = [
    Workload {
        name: "pingpong",
        counts: "messages between 2 processes",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: messages::pingpong,
    },
    Workload {
        name: "ring",
        counts: "hops of a token around 1,000 processes",
        op: "hop",
        n: 2_000_000,
        smoke: 20_000,
        run: messages::ring,
    },
    Workload {
        name: "counting",
        counts: "messages from 1 process to another, 100 a step",
        op: "message",
        n: 5_000_000,
        smoke: 50_000,
        run: messages::counting,
    },
    Workload {
        name: "fanin",
        counts: "messages from 64 processes to one, 100 a step",
        op: "message",
        n: 6_400_000,
        smoke: 64_000,
        run: messages::fanin,
    },
    Workload {
        name: "spawn",
        counts: "processes that get one message and end, spawned 100 a step",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::spawn,
    },
    Workload {
        name: "skynet",
        counts: "leaves of a tree of processes with 10 children each",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::skynet,
    },
    Workload {
        name: "idle",
        counts: "processes that had one message and wait, spawned 100 a step",
        op: "process",
        n: 1_000_000,
        smoke: 10_000,
        run: births::idle,
    },
    Workload {
        name: "big",
        counts: "pings among 256 processes, each to a random other",
        op: "ping and pong",
        n: 1_024_000,
        smoke: 25_600,
        run: messages::big,
    },
    Workload {
        name: "ask",
        counts: "calls of `Runtime::ask`",
        op: "call",
        n: 200_000,
        smoke: 2_000,
        run: messages::ask,
    },
];

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
            println!("{}", measure::head());
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
    let line = if options.json { measured.json(workload, &setting) } else { measured.row(workload, &setting) };
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
