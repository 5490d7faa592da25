//! The log of a store, in a program of its own: the subscriber of the workers' threads can only be the global one.

#![allow(unreachable_pub)]

#[path = "common/log.rs"]
mod log;
#[path = "common/wait.rs"]
mod wait;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};
use tracing::Level;

use crate::log::Recorder;
use crate::wait::{LIMIT, Mutex, until};

static RECORDS: LazyLock<Arc<Mutex<Vec<String>>>> = LazyLock::new(|| {
    let records = Arc::new(Mutex::new(Vec::new()));
    let recorder = Recorder { level: Level::DEBUG, records: records.clone(), check: |_| {} };
    tracing::subscriber::set_global_default(recorder).unwrap();
    records
});

/// The records with this text.
fn records_with(text: &str) -> Vec<String> {
    RECORDS.lock().unwrap().iter().filter(|record| record.contains(text)).cloned().collect()
}

/// Grows as it is told.
#[derive(Default, Serialize, Deserialize)]
struct Grower {
    filling: String,
}

#[derive(Serialize, Deserialize)]
enum GrowerMessage {
    Grow(usize),
    Fail,
}

impl Process for Grower {
    type Message = GrowerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, GrowerMessage>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(GrowerMessage::Grow(size)) => self.filling = "x".repeat(size),
                Event::Message(GrowerMessage::Fail) => return Err("on purpose".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Grower {
    const NAME: &str = "grower";
}

fn start(disk: &MemoryDisk) -> (Store, Runtime) {
    LazyLock::force(&RECORDS);
    Store::with_journal(MemoryJournal::new(disk)).kind::<Grower>().start(Runtime::builder().workers(2)).unwrap()
}

fn begin(store: &Store, id: &str) -> Address<GrowerMessage> {
    store.begin(id, Grower::default()).unwrap().address()
}

/// Waits until it is stepped and on disk.
fn grow(store: &Store, runtime: &Runtime, grower: Address<GrowerMessage>, size: usize) {
    store.send(grower, GrowerMessage::Grow(size)).unwrap().wait(LIMIT).unwrap();
    runtime.wait_idle_timeout(LIMIT).unwrap();
}

#[test]
fn a_large_state_is_reported_once_for_each_process() {
    let (store, runtime) = start(&MemoryDisk::new());
    let growers = [begin(&store, "a"), begin(&store, "b")];
    let records = |grower: Address<GrowerMessage>| records_with(&format!("pid={} ", grower.pid()));
    for grower in growers {
        grow(&store, &runtime, grower, 60 << 10);
        assert_eq!(records(grower), [""; 0]);
        for more in 0..3 {
            grow(&store, &runtime, grower, (64 << 10) + more);
        }
        let records = records(grower);
        assert_eq!(records.len(), 1, "{records:?}");
        assert!(records[0].starts_with("WARN") && records[0].contains("bytes=655"), "{records:?}");
    }
    drop(runtime.shutdown(LIMIT).unwrap());
    store.close().unwrap();
}

/// Whether a record has all of these texts.
fn is_logged(texts: &[&str]) -> bool {
    records_with(texts[0]).iter().any(|record| texts.iter().all(|text| record.contains(text)))
}

#[test]
fn a_store_reports_its_start_commits_rewinds_and_parked_processes() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    LazyLock::force(&RECORDS);
    let run = || {
        let builder = Runtime::builder().workers(2).clock(clock.clock());
        Store::with_journal(MemoryJournal::new(&disk)).kind::<Grower>().start(builder).unwrap()
    };
    let (store, runtime) = run();
    let grower = begin(&store, "sick");
    store.send(grower, GrowerMessage::Fail).unwrap().wait(LIMIT).unwrap();
    runtime.wait_idle().unwrap();
    until("a commit is reported", || is_logged(&["are on disk", "DEBUG", "last=", "bytes=", "micros="]));
    // The files are opened anew while its step pauses.
    disk.fail_at(disk.calls(), Fault::Error);
    until("the step is tried again", || {
        drop(store.begin("another", Grower::default()));
        store.stats().rewinds == 1
    });
    until("the rewind is reported", || is_logged(&["opened its files again", "WARN", "last="]));
    let pid = format!("pid={} ", grower.pid());
    until("it is parked", || {
        clock.advance(Duration::from_secs(60));
        is_logged(&[&pid, "ERROR", "parked", "on purpose"])
    });
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
    let (store, runtime) = run();
    assert!(is_logged(&["a store is open", "INFO", "processes="]));
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}
