//! Hashes a file in many jobs of three stages. The storage is slow and fails, and no job is lost.
//!
//! Try it: `cargo run --release --example job_queue -- README.md hashes.txt`
//!
//! Each job reads a block of the file, hashes it, and writes the hash into the list. A stage is a command, and its
//! handler answers with a future. `at_most` limits how many futures of a handler run at once. Calls of the storage fail
//! or hang at random. A call that hangs is given up after 250 ms. A call that fails or is given up is repeated, after
//! growing pauses.
//!
//! Ctrl-C ends the jobs, and what is done is reported. The exit code is 0 if all jobs are done, 1 if not, 2 for invalid
//! options, and 130 after Ctrl-C.

#[path = "../arguments/mod.rs"]
mod arguments;
mod storage;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use indicatif::ProgressBar;
use lexopt::Parser;
use procession::CommandError;
use procession::command::{Command, Retry};
use procession::prelude::*;

use self::storage::{Hash, Read, Write};

const USAGE: &str = "\
usage: job_queue [--jobs N] [--fail PERCENT] [--deadline SECONDS] FILE LIST

  FILE                what to hash
  LIST                where to write the hashes, a line for each job
  --jobs N            1 to 1000000 (5000)
  --fail PERCENT      of the calls to the storage, 0 to 100 (5)
  --deadline SECONDS  for all jobs together, 1 to 86400 (60)";

/// The most jobs at a time. A call should not wait long for its turn, because that counts as a part of its limit.
const WINDOW: usize = 64;

/// A call that takes longer is given up, and repeated.
const LIMIT: Duration = Duration::from_millis(250);

#[derive(Clone, Debug)]
struct Options {
    file: PathBuf,
    list: PathBuf,
    jobs: u64,
    fail: u64,
    deadline: u64,
}

fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
    let numbers = [("--jobs", 5_000, 1..=1_000_000), ("--fail", 5, 0..=100), ("--deadline", 60, 1..=86_400)];
    let Some(([jobs, fail, deadline], paths)) = arguments::numbers(arguments, numbers)? else { return Ok(None) };
    let [file, list] = <[PathBuf; 2]>::try_from(paths).map_err(|_| "a FILE and a LIST are needed")?;
    Ok(Some(Options { file, list, jobs, fail, deadline }))
}

/// Performs a command, and repeats it if it fails.
async fn call<C: Command + Clone>(command: C, context: &Context<()>) -> Result<C::Output, CommandError> {
    let retry = Retry::new().attempts(20).first_pause(Duration::from_millis(1)).cap(Duration::from_millis(500));
    context.perform(|out| out.retry(retry, move |out, _attempt| out.command_timeout(command.clone(), LIMIT))).await
}

/// Three stages, one after the other. If one fails in spite of all attempts, the job fails.
async fn job(context: Context<()>, number: u64) -> Result<(), BoxError> {
    let block = call(Read(number), &context).await?;
    let hash = call(Hash(block), &context).await?;
    Ok(call(Write(number, hash), &context).await?)
}

/// The state of the jobs.
#[derive(Clone, Debug, Default)]
struct Report {
    jobs: u64,
    done: u64,
    failed: u64,
    last_error: Option<String>,
    /// The reason, if the queue ended before all jobs were done.
    stopped: Option<Reason>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} done, {} failed, {} not done", self.done, self.failed, self.jobs - self.done - self.failed)?;
        self.last_error.iter().try_for_each(|error| write!(f, "; the last error: {error}"))?;
        self.stopped.iter().try_for_each(|reason| write!(f, "; stopped: {reason}"))
    }
}

/// Runs the jobs, each in a process of its own. Those that run when the queue ends, end with it.
async fn queue(context: Context<()>, options: Options) -> Result<Report, BoxError> {
    let bar = ProgressBar::new(options.jobs);
    let mut report = Report { jobs: options.jobs, ..Report::default() };
    let run = |number| context.perform(move |out| out.run(async_process(move |context| job(context, number))));
    let deadline = context.sleep(Duration::from_secs(options.deadline));
    let mut jobs = stream::iter(0..options.jobs).map(run).buffer_unordered(WINDOW).take_until(deadline);
    while let Some(ended) = jobs.next().await {
        match ended {
            Ok(()) => report.done += 1,
            Err(error) => (report.failed, report.last_error) = (report.failed + 1, Some(error.to_string())),
        }
        bar.set_position(report.done + report.failed);
    }
    report.stopped = jobs.take_result().map(|slept| match slept {
        Err(CommandError::Cancelled(reason)) => reason,
        _ => Reason::TimedOut,
    });
    bar.finish_and_clear();
    Ok(report)
}

/// Begins the jobs.
fn start(options: Options) -> Result<(Runtime, Handle<impl Process<Message = (), Output = Report>>), BoxError> {
    let runtime = storage::serve(&options)?.start()?;
    let queue = runtime.spawn(async_process(|context| queue(context, options)))?;
    Ok((runtime, queue))
}

fn main() -> ExitCode {
    arguments::main("job_queue", USAGE, parse, |options| {
        let (runtime, queue) = start(options.clone())?;
        let own = queue.process_ref();
        ctrlc::set_handler(move || drop(own.cancel("interrupted")))?;
        println!("{} jobs", options.jobs);
        let report = queue.join()?.into_result()?;
        runtime.shutdown(Duration::from_secs(5))?;
        println!("{report}");
        Ok::<_, BoxError>(match &report.stopped {
            Some(reason) if *reason != Reason::TimedOut => ExitCode::from(130),
            _ => ExitCode::from(u8::from(report.done < report.jobs)),
        })
    })
}
