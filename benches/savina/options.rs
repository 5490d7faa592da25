//! The command line.

use std::fmt::Write as _;

use crate::problems::{PROGRAMS, Program};

const MOST_WORKERS: u64 = 1024;
const DEFAULT_WORKERS: usize = 2;

/// What the command line asks for.
pub(crate) enum Asked {
    Help,
    Run(Options),
}

pub(crate) struct Options {
    /// Places in [`PROGRAMS`].
    pub(crate) programs: Vec<usize>,
    pub(crate) n: Option<u64>,
    pub(crate) workers: usize,
    pub(crate) runs: u64,
    pub(crate) json: bool,
    pub(crate) smoke: bool,
    pub(crate) bare: bool,
}

impl Options {
    /// How much this program is to do.
    pub(crate) fn count(&self, program: &Program) -> u64 {
        self.n.unwrap_or(if self.smoke { program.smoke } else { program.n })
    }
}

/// Reads the arguments; the problem with them, in words, if there is one.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut options = Options {
        programs: Vec::new(),
        n: None,
        workers: DEFAULT_WORKERS,
        runs: 1,
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
            "--workers" => options.workers = number("--workers", arguments.next(), MOST_WORKERS)? as usize,
            "--runs" => options.runs = number("--runs", arguments.next(), u64::MAX)?,
            other if other.starts_with('-') => {
                return Err(format!(
                    "unknown option {other:?}; allowed are --n N, --workers W, --runs R, --json, --smoke, --bare, --help"
                ));
            }
            name => {
                let known = PROGRAMS.iter().position(|program| program.name.eq_ignore_ascii_case(name));
                options.programs.push(known.ok_or_else(|| {
                    let names: Vec<_> = PROGRAMS.iter().map(|program| program.name).collect();
                    format!("unknown program {name:?}; allowed are {}", names.join(", "))
                })?);
            }
        }
    }
    if options.programs.is_empty() {
        options.programs.extend(0..PROGRAMS.len());
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
        "Usage: cargo bench --bench savina -- [PROGRAM...] [OPTION...]\n\n\
         Runs programs of the Savina actor benchmark suite, all of them where none is named, and prints what each took:\n\
         in all, and for one operation.\n\n\
         Options:\n  \
         --n N        how much each program does (what is counted: see below)\n  \
         --workers W  worker threads of the runtime, 1 to 1024; without it 2\n  \
         --runs R     so many runs of each, taking turns; without it 1\n  \
         --json       one line of JSON for each run\n  \
         --smoke      small counts, to see that everything works\n  \
         --bare       no head above the table\n  \
         --help       this\n\n\
         Programs, with what is counted, how much of it without --n (with --smoke), and what an operation is:\n",
    );
    for Program { name, counts, op, n, smoke } in &PROGRAMS {
        let _ = writeln!(help, "  {name:<24} {counts}: {n} ({smoke}); {op}");
    }
    help.push_str(
        "\nMemory is the peak of the whole process, read from /proc/self/status, so on Linux only. Several runs have one\n\
         process each, one after the other. The exit code is 1 if an answer was wrong, 2 if the arguments were.\n",
    );
    help
}
