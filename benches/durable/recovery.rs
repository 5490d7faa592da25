//! Measures the recovery of a killed store with many sleeping processes. Messages wait for some of them, and the tables
//! are far behind the log.
//!
//! Both programs are children of the benchmark: the one that is killed, and the one that opens the store, whose memory
//! is measured.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use procession::durable::journal::SqliteJournal;
use procession::durable::{Durable, Format, Query, Store};
use procession::sync::Latch;
use procession::{Address, Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::watched::{Watch, Watched};

const LIMIT: Duration = Duration::from_secs(600);
/// The pause between two checks. The figures are rounded to it.
const PAUSE: Duration = Duration::from_millis(1);

/// The sleepers that have received a message.
static STEPPED: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

/// How many processes there are, for how many of them a message waits, and how many are in memory when the program is
/// killed. The steps of these fill the log with so many bytes that the tables do not have.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) sleepers: u64,
    pub(crate) ready: u64,
    pub(crate) awake: u64,
    pub(crate) log: u64,
}

impl Size {
    pub(crate) fn new([sleepers, ready, awake, log]: [u64; 4]) -> Size {
        Size { sleepers, ready, awake, log }
    }

    fn arguments(self) -> [String; 4] {
        [self.sleepers, self.ready, self.awake, self.log].map(|number| number.to_string())
    }
}

/// Whether steps of sleepers succeed. In the first program they fail, so the messages stay until it is killed. A
/// process is parked after five attempts, which take 15 s. By then the log has to be full.
static CAN: AtomicBool = AtomicBool::new(false);

/// How many messages were taken by those that stay awake.
static AWAKE_TAKEN: AtomicU64 = AtomicU64::new(0);

/// A process with a state of about 200 bytes, which counts messages.
#[derive(Serialize, Deserialize)]
struct Sleeper {
    filling: String,
    taken: u64,
}

impl Sleeper {
    fn new() -> Sleeper {
        Sleeper { filling: "x".repeat(190), taken: 0 }
    }
}

impl Process for Sleeper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let count = events.filter(|event| matches!(event, Event::Message(()))).count() as u64;
        if count > 0 {
            STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()).get_or_insert_default().insert(out.pid());
            if !CAN.load(Ordering::Relaxed) {
                return Err("not in this program".into());
            }
        }
        self.taken += count;
        Ok(Step::Idle)
    }
}

impl Durable for Sleeper {
    const NAME: &str = "sleeper";
    const FORMAT: Format = Format::Postcard;
    const SLEEP_AFTER: Option<Duration> = Some(Duration::from_millis(100));
}

/// The same, but it stays in memory.
#[derive(Serialize, Deserialize)]
struct Awake(Sleeper);

impl Process for Awake {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let count = events.filter(|event| matches!(event, Event::Message(()))).count() as u64;
        self.0.taken += count;
        AWAKE_TAKEN.fetch_add(count, Ordering::SeqCst);
        Ok(Step::Idle)
    }
}

impl Durable for Awake {
    const NAME: &str = "awake";
    const FORMAT: Format = Format::Postcard;
}

fn open(directory: &Path) -> (Store, Runtime, Watch) {
    let watch = Watch::default();
    let store = Store::with_journal(Watched(SqliteJournal::new(directory), watch.clone()));
    let (store, runtime) =
        store.kind::<Sleeper>().kind::<Awake>().start(Runtime::builder()).expect("a store can be started");
    (store, runtime, watch)
}

fn have_stepped() -> u64 {
    STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()).as_ref().map_or(0, HashSet::len) as u64
}

/// Waits until `reached` says so.
fn wait_until(what: &str, reached: impl Fn() -> bool) {
    let begin = Instant::now();
    while !reached() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        let _ = Latch::<()>::new().wait_timeout(PAUSE);
    }
}

/// Makes the store, and is killed while messages wait and the tables are behind the log.
pub(crate) fn fill(directory: &Path, size: Size) -> ! {
    let (store, runtime, watch) = open(directory);
    // Not all at once, so that the earlier processes fall asleep meanwhile.
    let sleepers = size.sleepers - size.awake;
    for n in 0..sleepers {
        let begun = store.begin(&n.to_string(), Sleeper::new()).expect("it begins");
        if n % 10_000 == 9_999 || n + 1 == sleepers {
            begun.wait(LIMIT).expect("it is on disk");
        }
    }
    let begin_awake = |n| store.begin(&format!("awake {n}"), Awake(Sleeper::new())).expect("it begins").address();
    let awake: Vec<_> = (0..size.awake).map(begin_awake).collect();
    wait_until("all others fall asleep", || runtime.processes().len() as u64 <= size.awake);
    // The chosen sleepers are spread over the whole store.
    let id = |n: u64| (n * (sleepers / size.ready)).to_string();
    let find = |n| store.find::<Sleeper>(&id(n)).expect("it is there");
    let ready: Vec<_> = (0..size.ready).map(find).collect();
    let receipts: Vec<_> = ready.iter().map(|sleeper| store.send(*sleeper, ()).expect("it is taken")).collect();
    receipts.iter().for_each(|receipt| receipt.wait(LIMIT).expect("it is on disk"));
    wait_until("the messages arrive", || have_stepped() >= size.ready);
    watch.hold_applications();
    fill_log(&store, &watch, &awake, size.log);
    std::process::abort();
}

/// Has processes step until the log has this many bytes that the tables do not have.
fn fill_log(store: &Store, watch: &Watch, awake: &[Address<()>], log: u64) {
    let (mut sent, pieces) = (0, awake.chunks(1_000));
    for piece in pieces.cycle() {
        if watch.unapplied() >= log {
            return;
        }
        let receipts: Vec<_> = piece.iter().map(|address| store.send(*address, ()).expect("it is taken")).collect();
        sent += piece.len() as u64;
        wait_until("those in memory step", || AWAKE_TAKEN.load(Ordering::SeqCst) >= sent);
        receipts.iter().for_each(|receipt| receipt.wait(LIMIT).expect("it is on disk"));
    }
}

/// Opens the store, and prints its figures: the time to open it, the time until all messages are taken,
/// and the memory.
pub(crate) fn recover(directory: &Path, size: Size) -> std::process::ExitCode {
    CAN.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    let (store, runtime, _) = open(directory);
    let opened = begin.elapsed();
    wait_until("the messages arrive", || have_stepped() >= size.ready);
    let stepped = begin.elapsed();
    let memory = resident_memory();
    assert_eq!(store.count(&Query::all()).expect("it can be read"), size.sleepers);
    println!("{} {} {memory}", opened.as_millis(), stepped.as_millis());
    runtime.shutdown(LIMIT).expect("it can be shut down");
    store.close().expect("everything is on disk");
    std::process::ExitCode::SUCCESS
}

/// The resident memory of this program in MB, where the system says it.
fn resident_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1_000
}

/// The figures of a recovery.
pub(crate) struct Recovery {
    pub(crate) opened_ms: u64,
    pub(crate) stepped_ms: u64,
    pub(crate) memory_mb: u64,
    pub(crate) bytes_a_sleeper: u64,
}

/// Runs both programs, and returns their figures.
pub(crate) fn recovery(directory: &Path, size: Size) -> Recovery {
    let program = std::env::current_exe().expect("this program has a path");
    let child = |part: &str| {
        let mut command = Command::new(&program);
        command.arg(part).args(size.arguments()).arg("--directory").arg(directory);
        command
    };
    let killed = child("--fill").stderr(Stdio::inherit()).status().expect("it can be started");
    assert_eq!(killed.code(), None, "it is killed");
    let output = child("--recover").stderr(Stdio::inherit()).output().expect("it can be started");
    assert!(output.status.success(), "the store is opened: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<u64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [opened_ms, stepped_ms, memory_mb] = figures[..] else { panic!("unknown figures: {text:?}") };
    // The tables have everything now.
    let tables = std::fs::metadata(directory.join("tables.db")).expect("it is there").len();
    Recovery { opened_ms, stepped_ms, memory_mb, bytes_a_sleeper: tables / size.sleepers }
}
