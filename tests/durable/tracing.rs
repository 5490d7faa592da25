//! Traces of durable processes: a store has them fail, rest and leave memory in its own way.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Query, Store};
use procession::observe::ProcessTrace;
use procession::{Address, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::wait::{LIMIT, until};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Till;

#[derive(Serialize, Deserialize)]
enum Coin {
    Good,
    Bad,
    Last,
}

impl Process for Till {
    type Message = Coin;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Coin>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Coin::Bad) => return Err("a bad coin".into()),
                Event::Message(Coin::Last) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Till {
    const NAME: &str = "till";
}

struct Shop {
    store: Store,
    runtime: Runtime,
    clock: ManualClock,
}

impl Shop {
    fn new() -> Shop {
        let clock = ManualClock::new();
        let store = store_in(MemoryJournal::new(&MemoryDisk::new())).sleep_after(MINUTE / 3).kind::<Till>();
        let (store, runtime) = store.start(Runtime::builder().workers(1).clock(clock.clock())).unwrap();
        Shop { store, runtime, clock }
    }

    /// Begins a process, which is traced.
    fn begin(&self, id: &str) -> (Address<Coin>, ProcessTrace) {
        let begun = self.store.begin(id, Till).unwrap();
        begun.wait(LIMIT).unwrap();
        (begun.address(), self.trace(begun.address()))
    }

    fn trace(&self, till: Address<Coin>) -> ProcessTrace {
        self.runtime.wait_idle().unwrap();
        let trace = self.runtime.trace(till, MINUTE).unwrap();
        self.runtime.wait_idle().unwrap();
        trace
    }

    fn send(&self, till: Address<Coin>, coin: Coin) {
        drop(self.store.send(till, coin).unwrap());
        self.runtime.wait_idle().unwrap();
    }

    fn end(self) {
        assert!(self.runtime.shutdown(Duration::MAX).unwrap().is_clean());
        self.store.close().unwrap();
    }
}

/// The events other than messages and steps.
fn taken(trace: &ProcessTrace) -> Vec<String> {
    let events = trace.take().into_iter().filter(|event| !matches!(event.what, "message" | "step"));
    events.map(|event| format!("{}: {}", event.what, event.text)).collect()
}

#[test]
fn a_trace_shows_failed_attempts_and_that_the_process_is_parked() {
    let shop = Shop::new();
    let (till, trace) = shop.begin("a");
    shop.send(till, Coin::Good);
    assert_eq!(taken(&trace), [""; 0]);
    shop.send(till, Coin::Bad);
    let failed =
        |attempt, pause| [format!("failed: a bad coin; it is attempt {attempt} of 5, and the next is in {pause}s")];
    assert_eq!(taken(&trace), failed(1, 1));
    for (attempt, pause) in [(2, 2), (3, 4)] {
        shop.clock.advance(Duration::from_secs(pause / 2));
        shop.runtime.wait_idle().unwrap();
        assert_eq!(taken(&trace), failed(attempt, pause));
    }
    // The fourth attempt is not traced, and the next trace does not show it.
    drop(trace);
    shop.runtime.wait_idle().unwrap();
    shop.clock.advance(Duration::from_secs(4));
    shop.runtime.wait_idle().unwrap();
    let trace = shop.trace(till);
    shop.send(till, Coin::Good);
    assert_eq!(taken(&trace), [""; 0]);
    shop.clock.advance(Duration::from_secs(8));
    shop.runtime.wait_idle().unwrap();
    assert_eq!(taken(&trace), ["parked: a bad coin"]);
    until("it is parked", || shop.store.count(&Query::all().parked()).unwrap() == 1);
    assert!(!trace.is_over());
    shop.end();
}

#[test]
fn a_trace_shows_how_a_process_leaves_memory() {
    let shop = Shop::new();
    let (till, trace) = shop.begin("a");
    until("it sleeps", || {
        shop.clock.advance(MINUTE / 6);
        shop.runtime.wait_idle().unwrap();
        shop.runtime.processes().is_empty()
    });
    assert!(trace.is_over());
    assert_eq!(taken(&trace), ["asleep: it leaves memory until something comes for it"]);
    assert!(shop.runtime.trace(till, MINUTE).is_err(), "it is not in memory");
    shop.send(till, Coin::Good);
    let trace = shop.trace(till);
    shop.send(till, Coin::Last);
    until("it has ended", || trace.is_over());
    assert_eq!(taken(&trace), ["ended: done"]);
    let (till, trace) = shop.begin("b");
    shop.runtime.terminate(till).unwrap();
    until("it has ended", || trace.is_over());
    let ended = taken(&trace);
    assert!(ended.len() == 1 && ended[0].starts_with("ended: terminated"), "{ended:?}");
    let (_, trace) = shop.begin("c");
    shop.end();
    assert_eq!(taken(&trace).last().unwrap(), "left: it leaves memory, and is loaded again");
}
