//! The command line of a set of workloads. One workload runs in this process. Several run in a process each.

#[path = "../../examples/arguments/mod.rs"]
mod arguments;

use std::fmt::Write as _;
use std::process::{Command, ExitCode};

use lexopt::Arg::{Long, Short, Value};
use lexopt::{Parser, ValueExt as _};

use super::measure::{Beside, Outcome, Setting, Workload};
use super::table;

/// The exit code if the result of a workload was wrong.
const WRONG: u8 = 1;

const MOST_WORKERS: usize = 1024;
const DEFAULT_WORKERS: usize = 2;

/// The workloads of one command.
pub(crate) struct Suite {
    /// The name of the benchmark in `Cargo.toml`.
    pub(crate) name: &'static str,
    /// The description of the suite, for its usage.
    pub(crate) about: &'static str,
    pub(crate) workloads: Vec<Workload>,
    /// The reason why a workload cannot be run with this count. `None` if it can.
    pub(crate) refuses: fn(&Workload, u64) -> Option<String>,
}

struct Options<'a> {
    workloads: Vec<&'a Workload>,
    n: Option<u64>,
    workers: usize,
    runs: u64,
    json: bool,
    smoke: bool,
    bare: bool,
    beside: Beside,
}

/// Runs the workloads that the command line requests.
pub(crate) fn run(suite: &Suite) -> ExitCode {
    let options = match arguments::read(suite.name, &suite.usage(), |arguments| suite.parse(arguments)) {
        Ok(options) => options,
        Err(code) => return code,
    };
    if !options.bare {
        if cfg!(debug_assertions) {
            eprintln!("{}: not optimised, so the counts are small and the figures mean nothing", suite.name);
        }
        if !options.json {
            println!("{}", table::head());
        }
    }
    let mut are_right = true;
    // The runs of different workloads take turns, so that a busy moment of the machine affects not just one of them.
    for _ in 0..options.runs {
        for workload in &options.workloads {
            let result = match (&options.workloads[..], options.runs) {
                ([_], 1) => options.here(workload),
                _ => options.elsewhere(workload),
            };
            if let Err(problem) = result {
                eprintln!("{}: {}: {problem}", suite.name, workload.name);
                are_right = false;
            }
        }
    }
    ExitCode::from(if are_right { 0 } else { WRONG })
}

impl Options<'_> {
    /// The count for this workload.
    fn count(&self, workload: &Workload) -> u64 {
        self.n.unwrap_or(if self.smoke { workload.smoke } else { workload.n })
    }

    /// Runs a workload in this process, and prints its line.
    fn here(&self, workload: &Workload) -> Outcome<()> {
        let setting = Setting { n: self.count(workload), workers: self.workers, beside: self.beside };
        let measured = (workload.run)(&setting)?;
        let line = if self.json {
            measured.json("procession", workload.name, &setting)
        } else {
            table::row(workload.name, workload.op, &setting, &measured)
        };
        println!("{line}");
        Ok(())
    }

    /// Runs a workload in its own process, so that its peak of memory is its own.
    fn elsewhere(&self, workload: &Workload) -> Outcome<()> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([workload.name, "--bare", "--n", &self.count(workload).to_string()]);
        command.args(["--workers", &self.workers.to_string()]);
        if self.json {
            command.arg("--json");
        }
        command.args(self.beside.option());
        let status = command.status()?;
        if status.success() { Ok(()) } else { Err(format!("its process ended with {status}").into()) }
    }
}

impl Suite {
    fn parse(&self, arguments: &mut Parser) -> Result<Option<Options<'_>>, lexopt::Error> {
        let mut options = Options {
            workloads: Vec::new(),
            n: None,
            workers: DEFAULT_WORKERS,
            runs: 1,
            json: false,
            // A build without optimisation, as under `cargo test --benches`, can only show that the workload works.
            smoke: cfg!(debug_assertions),
            bare: false,
            beside: Beside::Nothing,
        };
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("json") => options.json = true,
                Long("smoke") => options.smoke = true,
                Long("bare") => options.bare = true,
                Long("metrics") => options.beside = Beside::Metrics,
                Long("traces") => options.beside = Beside::Traces,
                Long("store") if cfg!(feature = "durable") => options.beside = Beside::Store,
                Long("store") => return Err("--store needs a build with `--features durable`".into()),
                Long("node") if cfg!(feature = "cluster") => options.beside = Beside::Node,
                Long("node") => return Err("--node needs a build with `--features cluster`".into()),
                // Cargo passes this option to every benchmark.
                Long("bench") => {}
                Long("n") => options.n = Some(arguments::number(arguments, "--n", 1..=u64::MAX)?),
                Long("workers") => options.workers = arguments::number(arguments, "--workers", 1..=MOST_WORKERS)?,
                Long("runs") => options.runs = arguments::number(arguments, "--runs", 1..=u64::MAX)?,
                Value(name) => options.workloads.push(self.workload(&name.string()?)?),
                other => return Err(other.unexpected()),
            }
        }
        if options.workloads.is_empty() {
            options.workloads.extend(&self.workloads);
        }
        match options.workloads.iter().find_map(|workload| (self.refuses)(workload, options.count(workload))) {
            Some(problem) => Err(problem.into()),
            None => Ok(Some(options)),
        }
    }

    fn workload(&self, name: &str) -> Result<&Workload, String> {
        self.workloads.iter().find(|workload| workload.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<_> = self.workloads.iter().map(|workload| workload.name).collect();
            format!("unknown workload {name:?}; allowed are {}", names.join(", "))
        })
    }

    fn usage(&self) -> String {
        let Suite { name, about, .. } = self;
        let mut help = format!(
            "usage: cargo bench --bench {name} -- [WORKLOAD...] [OPTION...]\n\n\
             {about}\n\n\
             Options:\n  \
             --n N        how much each workload does (what is counted: see below)\n  \
             --workers W  threads of the runtime, or of the pool, 1 to {MOST_WORKERS}; without it {DEFAULT_WORKERS}\n  \
             --runs R     so many runs of each, taking turns; without it 1\n  \
             --json       one line of JSON for each run\n  \
             --smoke      small counts, to see that everything works\n  \
             --bare       no head above the table\n  \
             --metrics    with figures by type of process\n  \
             --traces     with each message in a trace that nobody looks at
  \
             --store      with a store open that nobody uses (a build with `--features durable`)\n  \
             --node       as a node that is connected with another one (a build with `--features cluster`)\n  \
             --help       this\n\n\
             Workloads, with what is counted, how much of it without --n (with --smoke), and what an operation is:\n"
        );
        let width = self.workloads.iter().map(|workload| workload.name.len()).max().unwrap_or_default();
        for Workload { name, counts, op, n, smoke, .. } in &self.workloads {
            let _ = writeln!(help, "  {name:<width$}  {counts}: {n} ({smoke}); {op}");
        }
        help.push_str(
            "\nMemory is the peak of the whole process, read from /proc/self/status, so on Linux only. \
             Several runs have one\n\
             process each, one after the other. The exit code is 1 if a result was wrong, 2 if the arguments were.\n",
        );
        help
    }
}
