//! Procession's workloads of processes and of jobs, and the Savina suite, side by side with those of other libraries
//! and languages.
//!
//! One command runs each peer and workload in its own process, in rounds, with the peers in turn. It checks every
//! result, and writes JSON lines, a table and a chart. The figures hold for this machine at this moment. Only ratios
//! within one run count.

#![forbid(unsafe_code)]

mod registry;
mod ours;
mod peers;
mod savina;
mod jobs;
mod arguments;
mod rounds;
mod child;
mod others;
mod results;
mod machine;
mod table;
mod chart;

use std::process::ExitCode;

use self::arguments::{Asked, Options, Single, command_line};
use self::ours::measure::{Outcome, Setting};
use self::registry::Programs;
use self::rounds::Ending;

/// The exit code if a result was wrong or a run failed.
const WRONG: u8 = 1;
/// The exit code after Ctrl-C, as in shells.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let asked = match command_line::read("peers", &arguments::usage(), arguments::parse) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    let ended = match asked {
        Asked::Single(single) => one(&single).map(|()| 0),
        Asked::Rounds(options) => all(&options),
    };
    ExitCode::from(ended.unwrap_or_else(|problem| {
        eprintln!("peers: {problem}");
        WRONG
    }))
}

/// Runs one program in this process, and prints its line.
fn one(single: &Single) -> Outcome<()> {
    let setting = Setting { n: single.n, workers: single.workers, store: false, metrics: false };
    for peer in registry::peers() {
        let Programs::Here(programs) = &peer.programs else { continue };
        let program = programs.iter().find(|program| program.workload == single.workload);
        if let (Some(program), true) = (program, peer.name == single.peer) {
            let measured = (program.run)(&setting).map_err(|problem| format!("{}: {problem}", peer.name))?;
            println!("{}", measured.json(peer.name, program.workload, &setting));
            return Ok(());
        }
    }
    Err(format!("{} has no program for {}", single.peer, single.workload).into())
}

/// Runs all requested programs, each in its own process, and writes the report. It also writes the report after
/// Ctrl-C.
fn all(options: &Options) -> Outcome<u8> {
    std::fs::create_dir_all(&options.out).map_err(|problem| format!("--out {}: {problem}", options.out.display()))?;
    let load_before = machine::load();
    let measured = rounds::run(options)?;
    let machine = machine::describe(options, &load_before, &machine::load(), &measured.versions);
    let text = table::report(&machine, &options.groups, &measured);
    std::fs::write(options.out.join("table.md"), &text)?;
    chart::draw(&options.out.join("chart.svg"), &options.groups, &measured)?;
    println!("{text}");
    eprintln!("peers: written to {}", options.out.display());
    for failure in &measured.failures {
        eprintln!("peers: {} {}: {}", failure.peer, failure.workload, failure.problem);
    }
    Ok(match measured.ending {
        Ending::Interrupted => INTERRUPTED,
        Ending::Complete if measured.failures.is_empty() => 0,
        Ending::Complete => WRONG,
    })
}
