//! A health check: five real checks at once. Each is a task with a timeout, and one of them is critical.
//!
//! It shows:
//!
//! - Closures that block (a file, a TCP connection) are tasks on a scheduler that needs no configuration:
//!   `checks.rs`.
//! - `TaskSet` returns results in the order in which the checks end.
//! - All checks are under one token (`TaskOptions::under`). When a critical check fails, the token is cancelled, and
//!   so are the pending checks. One of them sleeps and is woken. Another one is in a blocking read, and its socket is
//!   shut down.
//! - Ctrl-C stops the scheduler, and the pending checks are counted as stopped.
//! - The tests run the same checks with a manual clock: `tests.rs`.
//!
//! How to try it:
//!
//! ```text
//! cargo run --release --example health_check
//! cargo run --release --example health_check -- --healthy
//! cargo run --release --example health_check -- --healthy --limit 60     (and Ctrl-C)
//! cargo test --example health_check
//! ```
//!
//! The example checks a service of its own on the loopback interface, and a folder. The database of the service is
//! down for maintenance unless `--healthy` is given. The exit code is 0 if all checks have passed, 1 if one has not,
//! 2 for invalid options, and 130 after Ctrl-C.

#[path = "../arguments/mod.rs"]
mod arguments;
mod checks;
mod service;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::BoxError;
use procession::task::TaskScheduler;

use self::checks::{Check, Summary};
use self::service::Service;

const USAGE: &str = "\
usage: health_check [--healthy] [--limit SECONDS]

  --healthy         the database answers as it should
  --limit SECONDS   how long each check may take, 1 to 3600 (2)";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    healthy: bool,
    limit: Duration,
}

fn main() -> ExitCode {
    arguments::main("health_check", USAGE, Options::parse, |options| run(&options))
}

impl Options {
    fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options { healthy: false, limit: Duration::from_secs(2) };
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("healthy") => options.healthy = true,
                Long("limit") => {
                    options.limit = Duration::from_secs(arguments::number(arguments, "--limit", 1..=3600)?);
                }
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }
}

fn run(options: &Options) -> Result<ExitCode, BoxError> {
    let service = Service::start(options.healthy)?;
    let folder = std::env::temp_dir().join(format!("procession-health-check-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;

    let tasks = TaskScheduler::new();
    let interrupted = Arc::new(AtomicBool::new(false));
    let (stops, flag) = (tasks.clone(), interrupted.clone());
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::Relaxed);
        stops.stop();
    })?;

    let checks = Check::all(service.address(), &folder);
    let summary = checks::run(&tasks, checks, options.limit, |result| println!("{result}"))?;
    println!("{summary}");

    // All checks stop at once on request. The limit is for a check that does not.
    let joined = tasks.stop_and_join(Duration::from_secs(30));
    std::fs::remove_dir_all(&folder)?;
    joined?;
    Ok(exit_code(&summary, interrupted.load(Ordering::Relaxed)))
}

fn exit_code(summary: &Summary, interrupted: bool) -> ExitCode {
    match interrupted {
        true => ExitCode::from(130),
        false if summary.is_well() => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
