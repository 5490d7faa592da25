//! A pool of threads at work: jobs, more and fewer workers, a pause, pacing, and an orderly end.
//!
//! It shows:
//!
//! - Workers start on demand, up to the maximum, and further jobs wait: act one.
//! - `resize` changes the maximum while jobs run: act two.
//! - A pause lets earlier jobs run, and holds back later ones: act three.
//! - A pacer spaces jobs at least one interval apart, and occupies no worker meanwhile: act four.
//! - A job that panics affects nothing else, and its handle has the panic: act five.
//! - A drain runs the waiting jobs, accepts no new ones, and reports how many were left: the end.
//!
//! How to try it:
//!
//! ```text
//! cargo run --release --example pool
//! cargo run --release --example pool -- --jobs 200 --millis 5
//! cargo test --example pool
//! ```
//!
//! On a terminal, one line shows the pool while it works. Elsewhere there is a line for each act. Ctrl-C drains the
//! pool and exits with 130. The exit code is 0 if every job is accounted for, 1 if not, and 2 for invalid options.

mod acts;
#[path = "../arguments/mod.rs"]
mod arguments;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::pool::Pool;
use procession::{BoxError, CancelToken, Reason};

use self::acts::{Plan, play, seen};

const USAGE: &str = "\
usage: pool [--jobs N] [--millis M]

  --jobs N     jobs of each act, 1 to 10000 (40)
  --millis M   how long a job takes, 0 to 1000 (20)";

/// How long the last jobs may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    arguments::main("pool", USAGE, parse, |plan| run(&plan))
}

fn parse(arguments: &mut Parser) -> Result<Option<Plan>, lexopt::Error> {
    let mut plan = Plan::default();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Long("jobs") => plan.jobs = arguments::number(arguments, "--jobs", 1..=10_000)?,
            Long("millis") => {
                plan.takes = Duration::from_millis(arguments::number(arguments, "--millis", 0..=1_000)?);
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(plan))
}

fn run(plan: &Plan) -> Result<ExitCode, BoxError> {
    // The standard library's hook would print over the display. The handle of the job has the panic.
    std::panic::set_hook(Box::new(|_| {}));
    let (stop, watching) = (CancelToken::new(), Arc::new(AtomicBool::new(true)));
    let ask = stop.clone();
    ctrlc::set_handler(move || {
        ask.cancel("Ctrl-C");
    })?;
    let pool = Pool::builder().max(2).name("example").build()?;

    let played = std::thread::scope(|scope| {
        scope.spawn(|| show(&pool, &stop, &watching));
        let played = play(&pool, plan, &stop, |line| println!("{line}"));
        watching.store(false, Ordering::Relaxed);
        played
    });
    let interrupted = stop.reason() == Some(Reason::from("Ctrl-C"));
    // This also ends the display's sleep, if it has not yet seen the flag.
    stop.cancel("over");

    let ended = pool.drain_timeout(PATIENCE)?;
    let stats = pool.stats();
    println!(
        "drained: {} submitted, {} finished ({} of them panicked), {} cancelled, {} left",
        stats.submitted, stats.finished, stats.panicked, stats.withdrawn, ended.abandoned
    );
    io::stdout().flush()?;
    if stats.submitted != stats.finished + stats.withdrawn + ended.abandoned {
        return Err("a job is not accounted for".into());
    }
    match played {
        _ if interrupted => Ok(ExitCode::from(130)),
        played => played.map(|()| ExitCode::SUCCESS),
    }
}

/// Shows one line on a terminal while the pool works.
fn show(pool: &Pool, stop: &CancelToken, watching: &AtomicBool) {
    if !io::stderr().is_terminal() {
        return;
    }
    let line = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
        line.set_style(style);
    }
    while watching.load(Ordering::Relaxed) {
        line.set_message(seen(pool));
        line.tick();
        if stop.sleep(Duration::from_millis(50)).is_err() {
            break;
        }
    }
    line.finish_and_clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_understood_or_explained() {
        let parse = |arguments: &[&str]| parse(&mut Parser::from_args(arguments));
        assert_eq!(parse(&[]).unwrap(), Some(Plan::default()));
        assert_eq!(parse(&["--help"]).unwrap(), None);
        let plan = parse(&["--millis", "0", "--jobs", "7"]).unwrap().unwrap();
        assert_eq!((plan.jobs, plan.takes), (7, Duration::ZERO));
        for bad in [&["--jobs"][..], &["--jobs", "0"], &["--millis", "1001"], &["--speed", "1"]] {
            assert!(parse(bad).unwrap_err().to_string().contains(bad[0]), "{bad:?}");
        }
    }
}
