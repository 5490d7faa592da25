//! The command line.

use std::fmt::Write as _;

use super::list::{WORKLOADS, Workload};

const MOST_WORKERS: usize = 1024;
const DEFAULT_WORKERS: usize = 2;

/// What the command line asks for.
pub(crate) enum Asked {
    Help,
    Run(Options),
}

pub(crate) struct Options {
    pub(crate) workloads: Vec<&'static Workload>,
    pub(crate) n: Option<u64>,
    pub(crate) workers: usize,
    pub(crate) json: bool,
    pub(crate) smoke: bool,
    pub(crate) bare: bool,
}

impl Options {
    /// How much this workload is to do.
    pub(crate) fn count(&self, workload: &Workload) -> u64 {
        self.n.unwrap_or(if self.smoke { workload.smoke } else { workload.n })
    }
}

/// Reads the arguments; the problem with them, in words, if there is one.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut options = Options {
        workloads: Vec::new(),
        n: None,
        workers: DEFAULT_WORKERS,
        json: false,
        // A build without optimisation, as under `cargo test --benches`, is only good for seeing that it works.
        smoke: cfg!(debug_assertions),
        bare: false,
    };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--json" => options.json = true,
            "--smoke" => options.smoke = true,
            "--bare" => options.bare = true,
            // Cargo says what it is doing.
            "--bench" => {}
            "--n" => options.n = Some(number("--n", arguments.next(), u64::MAX)?),
            "--workers" => options.workers = number("--workers", arguments.next(), MOST_WORKERS as u64)? as usize,
            other if other.starts_with('-') => {
                return Err(format!(
                    "unknown option {other:?}; allowed are --n N, --workers W, --json, --smoke, --bare, --help"
                ));
            }
            name => {
                let known = WORKLOADS.iter().find(|workload| workload.name == name);
                options.workloads.push(known.ok_or_else(|| {
                    let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
                    format!("unknown workload {name:?}; allowed are {}", names.join(", "))
                })?);
            }
        }
    }
    if options.workloads.is_empty() {
        options.workloads.extend(&WORKLOADS);
    }
    for workload in &options.workloads {
        let n = options.count(workload);
        if workload.name == "skynet" && !(n >= 10 && 10_u64.pow(n.ilog10()) == n) {
            return Err(format!("--n is {n}; for skynet allowed are powers of 10, from 10 upwards"));
        }
    }
    Ok(Asked::Run(options))
}

fn number(option: &str, given: Option<String>, most: u64) -> Result<u64, String> {
    let allowed = if most == u64::MAX { String::from("1 or more") } else { format!("1 to {most}") };
    let given = given.ok_or_else(|| format!("{option} needs a number: {allowed}"))?;
    match given.parse() {
        Ok(number) if (1..=most).contains(&number) => Ok(number),
        _ => Err(format!("{option} was given {given:?}; allowed is a number: {allowed}")),
    }
}

pub(crate) fn help() -> String {
    let mut help = String::from(
        "Usage: cargo bench --bench workloads -- [WORKLOAD...] [OPTION...]\n\n\
         Runs workloads, all of them where none is named, and prints what each took: in all, and for one operation.\n\n\
         Options:\n  \
         --n N        how much each workload does (what is counted: see below)\n  \
         --workers W  threads of the runtime, or of the pool, 1 to 1024; without it 2\n  \
         --json       one line of JSON for each run\n  \
         --smoke      small counts, to see that everything works\n  \
         --bare       no head above the table\n  \
         --help       this\n\n\
         Workloads, with what is counted, how much of it without --n (with --smoke), and what an operation is:\n",
    );
    for Workload { name, counts, op, n, smoke, .. } in &WORKLOADS {
        let _ = writeln!(help, "  {name:<12} {counts}: {n} ({smoke}); {op}");
    }
    help.push_str(
        "\nMemory is the peak of the whole process, read from /proc/self/status, so on Linux only. Several workloads run in\n\
         one process each, one after the other. The exit code is 1 if a result was wrong, 2 if the arguments were.\n",
    );
    help
}
