//! Counts the lines, words and bytes of files and of whole trees, and finds the most frequent words. It shows the
//! main purpose of the crate on real input.
//!
//! ```text
//! cargo run --release --example word_count -- src README.md
//! ```
//!
//! Three kinds of processes do this, and each sends requests to the next:
//!
//! ```text
//! tally ── walk! ──▶ walker ── count! ──▶ file, file, file … ── add! ──▶ tally
//! ```
//!
//! - The *tally* has the counts, and asks the *walker* to begin. The walker finds files, spawns a process for each
//!   *file*, and asks it to count. The file asks the tally to add its counts. When all requests are answered, the
//!   work is done. If a process panics, its requests are answered with an error. So no process waits without end, and
//!   no missing count goes unnoticed.
//! - All blocking work (walking, opening, reading, printing errors) is a *blocking command*: a closure on the pool,
//!   which has a few threads. These also count the blocks of a large file, in parallel, while the next block is read.
//! - No queue grows without bound. The walker has a limited number of files open, and each file has only a few blocks
//!   in progress. Each block is a request that stays open until the tally has added the counts. So the memory does
//!   not grow with the number or the size of the files. Only the table of the different words grows with their
//!   contents, and it is bounded as well.
//! - Ctrl-C shuts the runtime down. Each process is asked to stop, the blocks in progress are counted, and the total
//!   is printed. To try it, run `cargo run --release --example word_count -- /usr /dev/stdin`, and press Ctrl-C while
//!   it runs.
//!
//! Lines are newline bytes. Words are runs of bytes other than ASCII white space, whatever the encoding. Hidden files
//! count. In a tree, symbolic links are not followed, and only regular files are read. A PATH itself is taken as it
//! is. If it is a link, it is followed. If it is a pipe, it is read (`/dev/stdin` is the standard input). If it is
//! given twice, it is counted twice.
//!
//! The program prints the ten most frequent words. Equally frequent words are in the order of their bytes, and words
//! longer than 1,024 bytes are left out. The last line is `total files=F lines=L words=W bytes=B failed=N`. F is the
//! number of files that were counted to their end. N is the number of paths that were not. Each of them has an error
//! message on standard error. If a file was read in part, that part is in L, W and B.
//!
//! The exit code is 0 on success, 1 if something failed, 2 for a wrong command line, and 130 after Ctrl-C.

#![forbid(unsafe_code)]

#[path = "../arguments/mod.rs"]
mod arguments;
mod blocks;
mod console;
mod counts;
mod file;
mod tally;
mod walker;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lexopt::Arg::{Long, Short, Value};
use lexopt::Parser;
use procession::{Exit, Handle, Runtime, WaitError};

use self::console::{Console, write_summary};
use self::tally::{Summary, Tally, TallyMessage};
use self::walker::Walker;

/// How long the processes may take to end after Ctrl-C.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(6);

/// The time between two updates of the progress bar.
const TICK: Duration = Duration::from_millis(100);

const FAILED: u8 = 1;
const INTERRUPTED: u8 = 130;

const USAGE: &str = "\
Counts the lines, words and bytes of files, and of all files below directories.

usage: word_count [--] PATH...

Prints the ten most frequent words, and `total files=F lines=L words=W bytes=B failed=N`.
";

fn main() -> ExitCode {
    let paths = match arguments::read("word_count", USAGE, parse) {
        Ok(paths) => paths,
        Err(code) => return code,
    };
    let console = Arc::new(Console::new());
    ExitCode::from(count(paths, &console).unwrap_or_else(|error| {
        console.say(&error.to_string());
        FAILED
    }))
}

fn count(paths: Vec<PathBuf>, console: &Arc<Console>) -> Result<u8, Box<dyn Error>> {
    // There are twice as many threads as processors: while some count, others wait for the disk.
    let threads = thread::available_parallelism().map_or(1, usize::from).saturating_mul(2).clamp(4, 16);
    let runtime = Runtime::builder().thread_name("word_count").blocking_threads(threads).start()?;
    let tally = runtime.spawn(Tally::default())?;
    let walker = runtime.spawn(Walker::new(paths, 4 * threads, tally.address(), console.clone()))?;
    let interrupted = shut_down_on_ctrl_c(&runtime)?;
    // The message is refused only after an interruption. Then the tally has ended without counts.
    let _ = runtime.send(tally.address(), TallyMessage::Begin(walker.address()));

    let exit = watch(&runtime, &tally, console);
    let report = runtime.shutdown(SHUTDOWN_LIMIT)?;
    console.clear();
    if !report.is_clean() {
        console.say(&format!("not everything came to an end: {report}"));
    }
    let code = match exit?.into_result() {
        Ok(summary) => report_on(&summary, console),
        Err(error) => {
            console.say(&format!("the counts are lost: {error}"));
            FAILED
        }
    };
    Ok(if interrupted.load(Ordering::Relaxed) { INTERRUPTED } else { code })
}

/// Waits for the end of the tally, and shows the progress meanwhile.
fn watch(runtime: &Runtime, tally: &Handle<Tally>, console: &Console) -> Result<Exit<Arc<Summary>>, WaitError> {
    while console.shows_progress() {
        match tally.join_timeout(TICK) {
            Err(WaitError::TimedOut) => {}
            over => return over,
        }
        if let Ok(progress) = runtime.ask(tally.address(), TallyMessage::Look, TICK).wait() {
            console.show(progress);
        }
    }
    tally.join()
}

/// Makes the first Ctrl-C shut the runtime down, and the second one end the program at once. The returned flag tells
/// whether there was one.
fn shut_down_on_ctrl_c(runtime: &Runtime) -> Result<Arc<AtomicBool>, ctrlc::Error> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let (runtime, pressed) = (runtime.clone(), interrupted.clone());
    ctrlc::set_handler(move || {
        if pressed.swap(true, Ordering::Relaxed) {
            std::process::exit(i32::from(INTERRUPTED));
        }
        // The shutdown runs on a thread, so that a second Ctrl-C is handled. `main` gets the result, because it shuts
        // down, too.
        let runtime = runtime.clone();
        if thread::Builder::new().spawn(move || runtime.shutdown(SHUTDOWN_LIMIT)).is_err() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    })?;
    Ok(interrupted)
}

/// Prints the result, and returns its exit code.
fn report_on(summary: &Summary, console: &Console) -> u8 {
    if let Some(why) = &summary.broken {
        console.say(&format!("the walk broke off: {why}"));
    }
    let written = write_summary(summary, &mut io::BufWriter::new(io::stdout().lock()));
    let has_failed = summary.failed > 0 || summary.broken.is_some();
    code_of(written, console).max(if has_failed { FAILED } else { 0 })
}

/// The paths to be counted. `None` if help was requested.
fn parse(arguments: &mut Parser) -> Result<Option<Vec<PathBuf>>, lexopt::Error> {
    let mut paths = Vec::new();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(None),
            Value(path) if path != "-" => paths.push(PathBuf::from(path)),
            Value(_) => return Err("the standard input is /dev/stdin, and a file of the name \"-\" is ./-".into()),
            option => {
                let problem = option.unexpected();
                return Err(format!("{problem}; a PATH that begins with a dash is written ./-PATH").into());
            }
        }
    }
    if paths.is_empty() { Err("no PATH is given".into()) } else { Ok(Some(paths)) }
}

/// The exit code after printing. A reader may close the pipe early (`| head -1`), which is no failure.
fn code_of(printed: io::Result<()>, console: &Console) -> u8 {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            console.say(&format!("standard output: {error}"));
            FAILED
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Option<Vec<PathBuf>>, lexopt::Error> {
        super::parse(&mut Parser::from_args(arguments))
    }

    #[test]
    fn arguments_are_paths_unless_they_begin_with_a_dash() {
        let paths = |paths: &[&str]| Some(paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(parse(&["a", "b c"]).unwrap(), paths(&["a", "b c"]));
        assert_eq!(parse(&["a", "--", "-b", "--help"]).unwrap(), paths(&["a", "-b", "--help"]));
        assert_eq!(parse(&["a", "--help"]).unwrap(), None);
        for wrong in [&[][..], &["--"], &["-x", "a"], &["-"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
