//! Hashes a file in many jobs of three stages. The storage is slow and fails, and no job is lost.
//!
//! Try it: `cargo run --release --example job_queue -- README.md hashes.txt`
//!
//! Each job reads a block of the file, hashes it, and writes the hash into the list. A stage is a command, and its
//! handler answers with a future. `at_most` limits how many futures of a handler run at once. Calls of the storage fail
//! or hang at random, from a seed. A call that hangs is given up after 250 ms. A call that fails or is given up is
//! repeated, after growing pauses.
//!
//! Ctrl-C ends the jobs, and what is done is reported. The exit code is 0 if all jobs are done, 1 if not, 2 for invalid
//! options, and 130 after Ctrl-C.

#[path = "../arguments/mod.rs"]
mod arguments;
mod queue;
mod storage;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;
use procession::pool::Pool;
use procession::prelude::*;
use procession::{BoxError, WeakRuntime};

use self::queue::{Report, queue};
use self::storage::Storage;

const USAGE: &str = "\
usage: job_queue [--jobs N] [--fail PERCENT] [--seed S] [--deadline SECONDS] FILE LIST

  FILE                what to hash
  LIST                where to write the hashes, a line for each job
  --jobs N            1 to 1000000 (5000)
  --fail PERCENT      of the calls to the storage, 0 to 100 (5)
  --seed S            of the failures (1)
  --deadline SECONDS  for all jobs together, 1 to 86400 (60)";

#[derive(Clone, Debug)]
struct Options {
    file: PathBuf,
    list: PathBuf,
    jobs: u64,
    fail: u64,
    seed: u64,
    deadline: u64,
}

fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let (mut jobs, mut fail, mut seed, mut deadline, mut paths) = (5_000, 5, 1, 60, Vec::new());
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("jobs") => jobs = arguments::number(arguments, "--jobs", 1..=1_000_000)?,
            Long("fail") => fail = arguments::number(arguments, "--fail", 0..=100)?,
            Long("seed") => seed = arguments::number(arguments, "--seed", 0..=u64::MAX)?,
            Long("deadline") => deadline = arguments::number(arguments, "--deadline", 1..=86_400)?,
            Value(path) => paths.push(PathBuf::from(path)),
            other => return Err(other.unexpected()),
        }
    }
    let [file, list] = <[PathBuf; 2]>::try_from(paths).map_err(|_| "a FILE and a LIST are needed")?;
    Ok(Some(Options { file, list, jobs, fail, seed, deadline }))
}

/// Runs all jobs. `begun` is given the PID of the queue, to cancel it.
fn run(options: &Options, begun: impl FnOnce(WeakRuntime, Pid) -> Result<(), BoxError>) -> Result<Report, BoxError> {
    let name = |path: &PathBuf, error| format!("{}: {error}", path.display());
    let size = std::fs::metadata(&options.file).map_err(|error| name(&options.file, error))?.len();
    if options.list.exists() && options.list.canonicalize()? == options.file.canonicalize()? {
        return Err("the LIST is the FILE".into());
    }
    let list = File::create(&options.list).map_err(|error| name(&options.list, error))?;
    list.set_len(options.jobs * storage::LINE)?;
    let (file, list) = (options.file.clone(), options.list.clone());
    let (random, pool) = (options.seed.into(), Pool::new(4)?);
    let storage = Arc::new(Storage { file, list, size, jobs: options.jobs, fail: options.fail, random, pool });
    let runtime = Runtime::builder()
        .handler_async(storage.handler(Storage::read))
        .at_most(16)
        .handler_async(storage.handler(Storage::hash))
        .at_most(4)
        .handler_async(storage.handler(Storage::write))
        .at_most(16)
        .start()?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(options.jobs) } else { ProgressBar::hidden() };
    let queue = runtime.spawn(queue(options.jobs, Duration::from_secs(options.deadline), bar))?;
    begun(runtime.downgrade(), queue.pid())?;
    let report = queue.join()?.into_result()?;
    runtime.shutdown(Duration::from_secs(5))?;
    Ok((*report).clone())
}

fn main() -> ExitCode {
    let options = match arguments::read("job_queue", USAGE, parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let begun = |runtime: WeakRuntime, queue| {
        ctrlc::set_handler(move || drop(runtime.upgrade().map(|runtime| runtime.cancel(queue, "interrupted"))))?;
        Ok(writeln!(std::io::stdout(), "{} jobs", options.jobs)?)
    };
    match run(&options, begun) {
        Ok(report) => {
            println!("{report}");
            match report.stopped {
                Some(reason) if reason != Reason::TimedOut => ExitCode::from(130),
                _ => ExitCode::from(u8::from(report.done < report.jobs)),
            }
        }
        Err(error) => {
            eprintln!("job_queue: {error}");
            ExitCode::FAILURE
        }
    }
}
