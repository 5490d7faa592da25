//! Measures the recovery of a killed store with many sleeping processes. Messages wait for some of them.
//!
//! Both programs are children of the benchmark: the one that is killed, and the one that opens the store, whose memory
//! is measured.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use procession::durable::{Durable, Format, Query, Store};
use procession::sync::Latch;
use procession::{Event, Events, Pid, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

const LIMIT: Duration = Duration::from_secs(600);
/// The pause between two checks. The figures are rounded to it.
const PAUSE: Duration = Duration::from_millis(1);

/// The processes that have received a message in this program.
static STEPPED: Mutex<Option<HashSet<Pid>>> = Mutex::new(None);

/// How many processes sleep, and for how many of them a message waits.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) sleepers: u64,
    pub(crate) ready: u64,
}

/// Whether steps succeed. In the first program they fail, so the messages stay until that program is killed.
static CAN: AtomicBool = AtomicBool::new(false);

/// A process with a state of about 200 bytes, which counts messages.
#[derive(Serialize, Deserialize)]
struct Sleeper {
    filling: String,
    taken: u64,
}

impl Process for Sleeper {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let count = events.filter(|event| matches!(event, Event::Message(()))).count() as u64;
        if count > 0
            && let Some(stepped) = STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()).as_mut()
        {
            stepped.insert(out.pid());
        }
        if count > 0 && !CAN.load(Ordering::Relaxed) {
            return Err("not in this program".into());
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

fn open(directory: &Path) -> (Store, Runtime) {
    let store = Store::open(directory).kind::<Sleeper>();
    store.start(Runtime::builder()).expect("a store can be started")
}

fn have_stepped() -> u64 {
    STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()).as_ref().map_or(0, HashSet::len) as u64
}

/// Waits until this many processes have received a message.
fn wait_for_steps(count: u64) {
    let begin = Instant::now();
    while have_stepped() < count {
        assert!(begin.elapsed() < LIMIT, "{} of {count} have stepped", have_stepped());
        let _ = Latch::<()>::new().wait_timeout(PAUSE);
    }
}

/// Makes the store, and is killed while messages wait.
pub(crate) fn fill(directory: &Path, size: Size) -> ! {
    let (store, runtime) = open(directory);
    let begin = |n: u64| {
        let sleeper = Sleeper { filling: "x".repeat(190), taken: 0 };
        store.begin(&n.to_string(), sleeper).expect("it begins")
    };
    // Not all at once, so that the earlier processes fall asleep meanwhile.
    for n in 0..size.sleepers {
        let begun = begin(n);
        if n % 10_000 == 9_999 || n + 1 == size.sleepers {
            begun.wait(LIMIT).expect("it is on disk");
        }
    }
    let begun = Instant::now();
    while !runtime.processes().is_empty() {
        assert!(begun.elapsed() < LIMIT, "they do not fall asleep");
        let _ = Latch::<()>::new().wait_timeout(PAUSE * 100);
    }
    *STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()) = Some(HashSet::new());
    for n in 0..size.ready {
        // The chosen sleepers are spread over the whole store.
        let id = (n * (size.sleepers / size.ready)).to_string();
        let sleeper = store.find::<Sleeper>(&id).expect("it is there");
        store.send(sleeper, ()).expect("it is taken");
    }
    wait_for_steps(size.ready);
    let last = store.begin("last", Sleeper { filling: String::new(), taken: 0 }).expect("it begins");
    last.wait(LIMIT).expect("all before is on disk");
    std::process::abort();
}

/// Opens the store, and prints its figures: the time to open it, the time until all messages are taken,
/// and the memory.
pub(crate) fn recover(directory: &Path, size: Size) -> std::process::ExitCode {
    *STEPPED.lock().unwrap_or_else(|panic| panic.into_inner()) = Some(HashSet::new());
    CAN.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    let (store, runtime) = open(directory);
    let opened = begin.elapsed();
    wait_for_steps(size.ready);
    let stepped = begin.elapsed();
    let memory = resident_memory();
    assert_eq!(store.count(&Query::all()).expect("it can be read"), size.sleepers + 1);
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
        command.args([part, &size.sleepers.to_string(), &size.ready.to_string(), "--directory"]).arg(directory);
        command
    };
    let killed = child("--fill").stderr(Stdio::inherit()).status().expect("it can be started");
    assert_eq!(killed.code(), None, "it is killed");
    let files: u64 = ["tables.db"].map(|name| size_of_file(directory.join(name))).iter().sum();
    let output = child("--recover").stderr(Stdio::inherit()).output().expect("it can be started");
    assert!(output.status.success(), "the store is opened: {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures: Vec<u64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [opened_ms, stepped_ms, memory_mb] = figures[..] else { panic!("unknown figures: {text:?}") };
    Recovery { opened_ms, stepped_ms, memory_mb, bytes_a_sleeper: files / size.sleepers }
}

fn size_of_file(path: PathBuf) -> u64 {
    std::fs::metadata(path).expect("it is there").len()
}
