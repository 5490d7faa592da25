//! Background jobs that end in the order of their dependencies, so that no item is lost.
//!
//! A consumer produces items and hands them to two processors. The processors hand their results to a store, which
//! writes them to files. Ctrl-C may be pressed at any moment. The consumer ends first, when it has handed over all
//! its items. The processors end next, when their queue is empty. The store ends last, when all results are in its
//! files. Only the three lines that build the tree know this order:
//!
//! ```text
//! let processors = ShutdownNode::merge(processors).annotate("processors").depends_on([consumer.clone()]);
//! let all = store.depends_on([processors]);
//! all.shutdown_timeout(limit)
//! ```
//!
//! When a job is told to end, it closes its own queue. An item that arrives there later is lost, and counted. In a
//! wrong order there are such items. In the end the files are read again, and every item must be in them once. A job
//! that fails also closes its queue, so that no other job waits for room there forever. Its error ends the others.
//!
//! How to try it:
//!
//! ```text
//! cargo run --release --example ordered_shutdown
//! cargo run --release --example ordered_shutdown -- --forever        (and Ctrl-C)
//! cargo run --release --example ordered_shutdown -- --freeze --limit-ms 500
//! ```
//!
//! The last command has a processor that does not end. The shutdown names it and shows the tree. The exit code is 0
//! on success. It is 1 if an item is lost or the shutdown exceeds its limit, 2 for invalid options, and 130 after
//! Ctrl-C.

#[path = "arguments/mod.rs"]
mod arguments;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use lexopt::Arg::{Long, Short};
use lexopt::Parser;
use procession::shutdown::Job;
use procession::sync::Latch;
use procession::{BoxError, ShutdownNode};

const USAGE: &str = "\
usage: ordered_shutdown [--items N | --forever] [--limit-ms MS] [--freeze]

  --items N      end after so many items, 1 to 100000000 (200000)
  --forever      end at Ctrl-C
  --limit-ms MS  how long the shutdown may take (10000)
  --freeze       one of the processors does not end";

const PROCESSORS: usize = 2;
const FILES: usize = 2;

/// The most items that may wait between two stages.
const ROOM: usize = 1_000;

#[derive(Clone, Copy)]
struct Options {
    items: u64,
    limit: Duration,
    freeze: bool,
}

fn main() -> ExitCode {
    let options = match arguments::read("ordered_shutdown", USAGE, Options::parse) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let directory = std::env::temp_dir().join(format!("procession-ordered-shutdown-{}", std::process::id()));
    let result = fs::create_dir_all(&directory).map_err(BoxError::from).and_then(|()| run(options, &directory));
    let _ = fs::remove_dir_all(&directory);
    result.unwrap_or_else(|error| {
        eprintln!("ordered_shutdown: {error}");
        ExitCode::FAILURE
    })
}

impl Options {
    fn parse(arguments: &mut Parser) -> Result<Option<Options>, lexopt::Error> {
        let mut options = Options { items: 200_000, limit: Duration::from_secs(10), freeze: false };
        while let Some(argument) = arguments.next()? {
            match argument {
                Short('h') | Long("help") => return Ok(None),
                Long("items") => options.items = arguments::number(arguments, "--items", 1..=100_000_000)?,
                Long("limit-ms") => {
                    options.limit = Duration::from_millis(arguments::number(arguments, "--limit-ms", 1..=3_600_000)?);
                }
                Long("forever") => options.items = u64::MAX,
                Long("freeze") => options.freeze = true,
                other => return Err(other.unexpected()),
            }
        }
        Ok(Some(options))
    }
}

fn run(options: Options, directory: &Path) -> Result<ExitCode, BoxError> {
    let (to_process, to_store) = (Arc::new(Queue::new()), Arc::new(Queue::new()));
    let taken = Arc::new(AtomicU64::new(0));
    let files: Vec<PathBuf> = (0..FILES).map(|number| directory.join(format!("store-{number}.txt"))).collect();

    let store = start("store", {
        let (input, files) = (to_store.clone(), files.clone());
        move |job| store(job, &input, &files)
    })?;
    let frozen = Latch::<()>::new();
    let mut processors = Vec::new();
    for number in 0..PROCESSORS {
        let (input, output) = (to_process.clone(), to_store.clone());
        let frozen = (options.freeze && number == 0).then(|| frozen.clone());
        processors.push(start(&format!("processor-{number}"), move |job| process(job, &input, &output, frozen))?);
    }
    let consumer = start("consumer", {
        let (output, taken) = (to_process.clone(), taken.clone());
        move |job| consume(job, &output, &taken, options.items)
    })?;

    let processors = ShutdownNode::merge(processors).annotate("processors").depends_on([consumer.clone()]);
    let all = store.depends_on([processors]).shutdown_on_error();

    let interrupted = Arc::new(AtomicBool::new(false));
    let (flag, asks) = (interrupted.clone(), all.clone());
    ctrlc::set_handler(move || {
        flag.store(true, Ordering::SeqCst);
        asks.request_shutdown();
    })?;
    eprintln!("running");

    // Returns when the consumer has produced all items or was told to end, or when a job has failed.
    consumer.wait_closed()?;
    if let Err(error) = all.shutdown_timeout(options.limit) {
        eprintln!("the shutdown is stuck: {error:#}");
        return Ok(ExitCode::FAILURE);
    }
    if let Some(error) = all.err() {
        return Err(error.into());
    }
    eprintln!("{}", all.report());

    let taken = taken.load(Ordering::SeqCst);
    let lost = to_process.lost() + to_store.lost();
    let found = read_again(&files, taken)?;
    println!("taken {taken}\nstored {}\nlost {lost}", found.stored);
    if !found.each_once || found.stored != taken || lost > 0 {
        println!("items are missing, or there more than once");
        return Ok(ExitCode::FAILURE);
    }
    println!("every item is there, once");
    Ok(if interrupted.load(Ordering::SeqCst) { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

fn start<F>(name: &str, work: F) -> Result<ShutdownNode, BoxError>
where
    F: FnOnce(Job) -> Result<(), BoxError> + Send + 'static,
{
    ShutdownNode::thread(name, work).map_err(|refused| refused.into_parts().1.into())
}

/// Produces items: one number after the other.
fn consume(job: Job, output: &Queue<u64>, taken: &AtomicU64, items: u64) -> Result<(), BoxError> {
    for item in 0..items {
        if job.end().is_cancelled() {
            break;
        }
        // From here on the item must not be lost.
        taken.fetch_add(1, Ordering::SeqCst);
        output.push(item);
    }
    Ok(())
}

/// Processes items until the consumer has ended and no item is left.
fn process(
    job: Job,
    input: &Arc<Queue<u64>>,
    output: &Queue<(u64, u64)>,
    frozen: Option<Latch<()>>,
) -> Result<(), BoxError> {
    let _closes = CloseAtTheEnd(input);
    let closes = input.clone();
    let _when_told = job.end().on_cancel(move |_| closes.close());
    while let Some(item) = input.pop() {
        output.push((item, square(item)));
    }
    if let Some(frozen) = frozen {
        frozen.wait();
    }
    Ok(())
}

fn square(item: u64) -> u64 {
    item.wrapping_mul(item)
}

/// Writes results until the processors have ended and no result is left.
fn store(job: Job, input: &Arc<Queue<(u64, u64)>>, files: &[PathBuf]) -> Result<(), BoxError> {
    let _closes = CloseAtTheEnd(input);
    let closes = input.clone();
    let _when_told = job.end().on_cancel(move |_| closes.close());
    let mut files = files.iter().map(|path| File::create(path).map(BufWriter::new)).collect::<Result<Vec<_>, _>>()?;
    while let Some((item, result)) = input.pop() {
        let place = (item % FILES as u64) as usize;
        writeln!(files[place], "{item} {result}")?;
    }
    for file in &mut files {
        file.flush()?;
    }
    Ok(())
}

/// Closes a queue when its reader ends for any reason.
struct CloseAtTheEnd<'a, T>(&'a Queue<T>);

impl<T> Drop for CloseAtTheEnd<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Found {
    stored: u64,
    each_once: bool,
}

/// Reads the files again, and returns the items in them.
fn read_again(files: &[PathBuf], items: u64) -> Result<Found, BoxError> {
    let mut seen = vec![false; usize::try_from(items)?];
    let mut found = Found { stored: 0, each_once: true };
    for path in files {
        for line in BufReader::new(File::open(path)?).lines() {
            let line = line?;
            let (item, result) = line.split_once(' ').ok_or("a line is cut off")?;
            let (item, result): (u64, u64) = (item.parse()?, result.parse()?);
            found.stored += 1;
            let place = seen.get_mut(usize::try_from(item)?).ok_or("an item that was never taken")?;
            found.each_once &= !std::mem::replace(place, true) && result == square(item);
        }
    }
    found.each_once &= seen.iter().all(|seen| *seen);
    Ok(found)
}

/// The items between two stages. After the queue is closed, further items are lost, and counted.
struct Queue<T> {
    state: Mutex<Waiting<T>>,
    changed: Condvar,
}

struct Waiting<T> {
    items: VecDeque<T>,
    closed: bool,
    lost: u64,
}

impl<T> Queue<T> {
    fn new() -> Queue<T> {
        let waiting = Waiting { items: VecDeque::new(), closed: false, lost: 0 };
        Queue { state: Mutex::new(waiting), changed: Condvar::new() }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item, and waits for room if the queue is full.
    fn push(&self, item: T) {
        let mut state = self.lock();
        while state.items.len() == ROOM && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            state.lost += 1;
            return;
        }
        state.items.push_back(item);
        self.changed.notify_all();
    }

    /// Takes an item, and waits for one if the queue is empty. Returns `None` if the queue is closed and empty.
    fn pop(&self) -> Option<T> {
        let mut state = self.lock();
        while state.items.is_empty() && !state.closed {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let item = state.items.pop_front();
        self.changed.notify_all();
        item
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lost(&self) -> u64 {
        self.lock().lost
    }
}
