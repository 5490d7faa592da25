//! Background jobs that end in the order in which they depend on each other, so that nothing on its way is lost.
//!
//! A consumer takes items in and hands them to two processors; these hand their results to a store, which writes them to
//! files. Ctrl-C may come at any moment. Then the consumer ends first, when it has handed over what it has; then the
//! processors, when their queue is empty; then the store, when all is in its files. Nobody in here knows the order but
//! the three lines that build the tree:
//!
//! ```text
//! let processors = ShutdownNode::merge(processors).annotate("processors").depends_on([consumer.clone()]);
//! let all = store.depends_on([processors]);
//! all.shutdown_timeout(limit)
//! ```
//!
//! Each job, when it is told to end, closes its own queue: an item that somebody tries to put there afterwards is lost,
//! and counted. In a wrong order there are such items. In the end the files are read again, and every item must be there
//! once. A job that fails closes its queue as well, so that nobody waits for room there for ever; its error ends the others.
//!
//! How to try it:
//!
//! ```text
//! cargo run --release --example ordered_shutdown
//! cargo run --release --example ordered_shutdown -- --forever        (and Ctrl-C)
//! cargo run --release --example ordered_shutdown -- --freeze --limit-ms 500
//! ```
//!
//! The last one has a processor that does not end: the shutdown says which, and shows the tree. The exit code is 0 if all
//! is well, 1 if an item is lost or the shutdown does not end in time, 2 for options that make no sense, and 130 after
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

/// So many items may wait between two stages.
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

    // Until it has taken all items, or was told to end, or somebody has failed.
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

/// Takes items in: here they are made up, one number after the other.
fn consume(job: Job, output: &Queue<u64>, taken: &AtomicU64, items: u64) -> Result<(), BoxError> {
    for item in 0..items {
        if job.end().is_cancelled() {
            break;
        }
        // Taken means that it may not be lost any more.
        taken.fetch_add(1, Ordering::SeqCst);
        output.push(item);
    }
    Ok(())
}

/// Works on items as long as there are any, and until the consumer has ended.
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

/// Writes results as long as there are any, and until the processors have ended.
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

/// Nobody takes anything out any more, however that has come.
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

/// What is in the files, read again from there.
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

/// What waits between two stages. Once it is closed, what comes late is lost, and counted.
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

    /// Waits for room.
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

    /// Waits for an item. None: it is closed and empty.
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
