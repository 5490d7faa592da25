//! Stores in files whose calls of the operating system fail: what their callers and their processes see of it.
//!
//! The test program starts itself, with the library of `failing_calls` in front of the system.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use procession::Runtime;
use procession::durable::{Query, Store, StoreError};

use crate::disk_full::Ordinary;
use crate::failing_calls::library;
use crate::places::{Directory, is_ahead};
use crate::script::counts;
use crate::torture::{lines, number_behind};
use crate::wait::{LIMIT, until, wait};
use crate::worker::{Worker, WorkerMessage, look};

/// The variable that tells a test program to be the one whose calls fail. It has the directory of the store.
const STORE: &str = "PROCESSION_FAILING_STORE";

/// How many messages and beginnings the program has acknowledged.
const ROUNDS: u64 = 24;

/// How long the disk is full: for more pauses of the writer than errors of other kinds may come in a row.
const FULL: Duration = Duration::from_millis(500);

/// How often the program tries to open a store.
const OPENINGS: u64 = 6;

fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "\n{text}").and_then(|()| out.flush());
}

fn open(directory: &Path) -> Result<(Store, Runtime), StoreError> {
    Store::open(directory).ahead(is_ahead()).kind::<Worker>().start(Runtime::builder().workers(2))
}

/// A beginning or a message, until it is acknowledged. If that takes long, there is room on a full disk again.
struct Attempt<'a> {
    directory: &'a Path,
    begun: Instant,
}

impl Attempt<'_> {
    /// The library that lets calls fail as on a full disk waits for the file.
    fn make_room(&self) {
        if std::env::var("PROCESSION_FAILING_HOW").is_ok_and(|how| how == "full") {
            let _ = std::fs::write(self.directory.join("heal"), "there is room");
        }
    }

    fn pass(&self) {
        if self.begun.elapsed() > FULL {
            self.make_room();
        }
    }

    /// Whether it is on disk. The error is that the store has closed before it knew.
    fn told(&self, receipt: impl Fn(Duration) -> Result<(), StoreError>) -> Result<bool, IsClosed> {
        let mut told = Ok(());
        until("the store says whether it is on disk", || {
            self.pass();
            told = receipt(Duration::ZERO);
            !matches!(told, Err(StoreError::Wait(_)))
        });
        match told {
            Ok(()) => Ok(true),
            Err(StoreError::Lost) => Ok(false),
            Err(StoreError::Unknown) => Err(IsClosed(true)),
            Err(why) => panic!("{why}"),
        }
    }
}

/// A store has refused something. It was closed, or opens its files anew.
struct IsClosed(bool);

impl IsClosed {
    fn new(error: &dyn std::error::Error) -> IsClosed {
        let text = error.to_string();
        assert!(text.contains("closed") || text.contains("opens its files again"), "{text}");
        IsClosed(text.contains("closed"))
    }
}

/// The program whose calls fail. Without the variable this is no test.
#[test]
fn child_program() {
    let Some(directory) = std::env::var_os(STORE) else { return };
    let directory = Path::new(&directory);
    let attempt = || Attempt { directory, begun: Instant::now() };
    let mut openings = 1;
    let (store, runtime) = loop {
        match open(directory) {
            Ok(started) => break started,
            Err(error) => say(&format!("not opened: {error:?}")),
        }
        openings += 1;
        match openings {
            OPENINGS => attempt().make_room(),
            _ if openings > OPENINGS => return,
            _ => {}
        }
    };
    let ordinary = runtime.spawn(Ordinary::default()).unwrap();
    let (mut acknowledged, mut refused, mut lost, mut is_closed) = (0, 0, 0, false);
    while acknowledged < ROUNDS && !is_closed {
        let (number, attempt) = (acknowledged + 1, attempt());
        loop {
            attempt.pass();
            match if number % 2 == 0 { begin(&store, &attempt, number) } else { send(&store, &attempt) } {
                Ok(true) => break acknowledged = number,
                Ok(false) => lost += 1,
                Err(IsClosed(true)) => break is_closed = true,
                Err(IsClosed(false)) => refused += 1,
            }
        }
        say(&format!("acknowledged {acknowledged}"));
    }
    if !is_closed {
        // The steps make records of their own, and a call for the tables may be the one that fails.
        let attempt = attempt();
        until("all is on disk and in the tables, or the store is closed", || {
            attempt.pass();
            let counted = store.count(&Query::all());
            is_closed = counted.as_ref().is_err_and(|error| error.to_string().contains("closed"));
            is_closed || counted.is_ok() && all_answer(&store, &runtime) && store.count(&Query::all()).is_ok()
        });
    }
    say(&format!("rewinds {}", store.stats().rewinds));
    say(&format!("refused {refused}, lost {lost}"));
    let answer = runtime.ask(&ordinary, |reply| reply, LIMIT).wait().unwrap();
    say(&format!("ordinary {answer}"));
    if !is_closed {
        check(&store, &runtime, acknowledged, acknowledged);
        say("all is as it was acknowledged");
    }
    drop(runtime.shutdown(LIMIT).unwrap());
    say(&format!("closed: {:?}", store.close()));
}

/// Begins a process, and returns whether it is on disk.
fn begin(store: &Store, attempt: &Attempt<'_>, number: u64) -> Result<bool, IsClosed> {
    let mut worker = Worker::default();
    worker.value = number;
    match store.begin(&number.to_string(), worker) {
        Ok(begun) => attempt.told(|limit| begun.wait(limit)),
        Err(refused) => {
            let is_closed = IsClosed::new(refused.reason());
            assert_eq!(refused.into_inner().value, number, "the process comes back");
            Err(is_closed)
        }
    }
}

/// Sends a message to the worker, and returns whether it is on disk.
fn send(store: &Store, attempt: &Attempt<'_>) -> Result<bool, IsClosed> {
    let worker = store.begin("worker", Worker::default()).map_err(|refused| IsClosed::new(refused.reason()))?;
    match store.send(worker.address(), WorkerMessage::Who) {
        Ok(receipt) => attempt.told(|limit| receipt.wait(limit)),
        Err(refused) => {
            let is_closed = IsClosed::new(refused.reason());
            assert!(matches!(refused.into_inner(), WorkerMessage::Who), "the message comes back");
            Err(is_closed)
        }
    }
}

/// Whether each process answers. All that it has done is on disk then.
fn all_answer(store: &Store, runtime: &Runtime) -> bool {
    let answers = |worker| runtime.ask(worker, WorkerMessage::Look, FULL).wait().is_ok();
    let ids = (2..=ROUNDS).step_by(2).map(|number| number.to_string()).chain(["worker".into()]);
    ids.into_iter().all(|id| store.find::<Worker>(&id).is_ok_and(answers))
}

/// Checks that a store has as much as was acknowledged, and nothing else.
fn check(store: &Store, runtime: &Runtime, least: u64, most: u64) {
    let processes = store.count(&Query::all()).unwrap();
    let (notes, shown) = store.find::<Worker>("worker").map_or((0, None), |worker| {
        let notes = look(runtime, worker).1.len() as u64;
        (notes, Some(store.show(worker.pid()).unwrap()))
    });
    let begun = processes - u64::from(shown.is_some());
    assert!((least..=most).contains(&(notes + begun)), "{notes} + {begun} of {least}..={most}: {shown:?}");
    for number in (2..=least).step_by(2) {
        assert_eq!(look(runtime, store.find::<Worker>(&number.to_string()).unwrap()).0, number);
    }
    assert_eq!(store.check().unwrap(), []);
}

/// The lines of the program, and the call that has failed.
struct Run {
    /// The call that has failed first, and its file. `None` if the program did not come to it.
    failed: Option<(String, String)>,
    acknowledged: u64,
    /// How often the files were opened anew while the store was open.
    rewinds: u64,
    lines: Vec<String>,
}

impl Run {
    fn said(&self, text: &str) -> bool {
        self.lines.iter().any(|line| line.contains(text))
    }

    /// Whether the store must have met the error. The number in the lock file is for people. SQLite ignores a failed
    /// sync of the directory.
    fn must_show(&self) -> bool {
        self.failed.as_ref().is_some_and(|(_, file)| file != "/lock" && !file.is_empty())
    }
}

fn run(store: &Directory, library: &Path, how: &str, at: u64, count: u64) -> Run {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "failing_stores::child_program", "--nocapture", "--quiet"]);
    command.env(STORE, store.path()).env("LD_PRELOAD", library).env("PROCESSION_FAILING_IN", store.path());
    command.env("PROCESSION_FAILING_HOW", how).env("PROCESSION_FAILING_AT", at.to_string());
    command.env("PROCESSION_FAILING_FOR", count.to_string());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = lines(&mut child);
    let lines: Vec<_> = std::iter::from_fn(|| said.recv_timeout(LIMIT).ok()).collect();
    let (status, mut text) = (wait(&mut child), String::new());
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(status.success(), "{how} at {at}: {lines:?} {text}");
    let failed = text.lines().find_map(|line| line.strip_prefix("a call fails: ")?.split_once(' '));
    let last = |word| lines.iter().filter_map(|line| number_behind(word, line)).next_back().unwrap_or(0);
    let failed = failed.map(|(call, file)| (call.into(), file.into()));
    Run { failed, acknowledged: last("acknowledged"), rewinds: last("rewinds"), lines }
}

/// Lets calls fail, from each call on, and looks what the program has said and what the next run finds.
fn at_each_call(how: &str, count: u64, see: impl Fn(&Run)) {
    let tools = Directory::new();
    let library = library(&tools);
    let step = counts("calls for each one that fails", 11, 1);
    let mut at = 0;
    loop {
        let directory = Directory::new();
        let run = run(&directory, &library, how, at, count);
        if run.failed.is_none() {
            break;
        }
        see(&run);
        let (store, runtime) = open(directory.path()).unwrap();
        // The last one may be on disk though the store was closed before it said so.
        check(&store, &runtime, run.acknowledged, run.acknowledged + u64::from(run.acknowledged < ROUNDS));
        drop(runtime.shutdown(LIMIT).unwrap());
        store.close().unwrap();
        at += step;
    }
    println!("{how}: {at} calls");
    assert!(at > 60, "only {at} calls");
}

#[test]
fn a_store_goes_on_by_itself_after_an_error_of_any_call() {
    at_each_call("error", 1, |run| {
        assert!(run.acknowledged == ROUNDS && run.said("all is as it was acknowledged"), "{:?}", run.lines);
        assert!(run.rewinds <= 1, "{:?}", run.lines);
        let is_seen = run.rewinds == 1 || run.said("not opened") || run.said("closed: Err");
        assert!(is_seen || !run.must_show(), "{:?}: {:?}", run.failed, run.lines);
    });
}

#[test]
fn a_store_goes_on_by_itself_when_a_full_disk_has_room() {
    at_each_call("full", 0, |run| {
        assert!(run.acknowledged == ROUNDS && run.said("all is as it was acknowledged"), "{:?}", run.lines);
    });
}

#[test]
fn errors_that_last_close_a_store_in_files_and_the_next_run_goes_on() {
    at_each_call("error", 1 << 40, |run| {
        let opened = run.said("rewinds");
        assert!(!opened || run.said("ordinary 1"), "{:?}", run.lines);
        // The calls that fail may be those of its end.
        assert!(!opened || run.acknowledged == ROUNDS || run.said("closed: Err"), "{:?}", run.lines);
        assert!(run.rewinds < 3, "{:?}", run.lines);
    });
}
