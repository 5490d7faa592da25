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

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use lexopt::Parser;
use procession::prelude::*;
use procession::{BoxError, ProcessRef};

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
    let (mut jobs, mut fail, mut seed, mut deadline) = (5_000, 5, 1, 60);
    let numbers = &mut [
        ("--jobs", &mut jobs, 1..=1_000_000),
        ("--fail", &mut fail, 0..=100),
        ("--seed", &mut seed, 0..=u64::MAX),
        ("--deadline", &mut deadline, 1..=86_400),
    ];
    let Some(paths) = arguments::numbers(arguments, numbers)? else { return Ok(None) };
    let [file, list] = <[PathBuf; 2]>::try_from(paths).map_err(|_| "a FILE and a LIST are needed")?;
    Ok(Some(Options { file, list, jobs, fail, seed, deadline }))
}

/// Runs all jobs. `begun` is given the queue, to cancel it.
fn run(options: &Options, begun: impl FnOnce(ProcessRef<()>) -> Result<(), BoxError>) -> Result<Report, BoxError> {
    let runtime = Storage::open(options)?.serve().start()?;
    let own = options.clone();
    let queue = runtime.spawn(async_process(|context| queue(context, own)))?;
    begun(queue.process_ref())?;
    let report = queue.join()?.into_result()?;
    runtime.shutdown(Duration::from_secs(5))?;
    Ok((*report).clone())
}

fn main() -> ExitCode {
    arguments::main("job_queue", USAGE, parse, |options| {
        let report = run(&options, |queue| {
            ctrlc::set_handler(move || drop(queue.cancel("interrupted")))?;
            println!("{} jobs", options.jobs);
            Ok(())
        })?;
        println!("{report}");
        Ok::<_, BoxError>(match report.stopped {
            Some(reason) if reason != Reason::TimedOut => ExitCode::from(130),
            _ => ExitCode::from(u8::from(report.done < report.jobs)),
        })
    })
}
