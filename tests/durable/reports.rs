//! The report of a shutdown says what became of durable processes.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::Durable;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::sync::Latch;
use procession::{Event, Events, Process, Reply, Runtime, ShutdownReport, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::gate::{Gate, GatedJournal};
use crate::places::{goes_ahead, store_in};
use crate::wait::{LIMIT, wait};
use crate::worker::{Worker, WorkerMessage, open, start, stepped};

/// Ends when it is asked to stop.
struct Ordinary;

impl Process for Ordinary {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn the_report_tells_those_that_sleep_from_those_that_have_ended() {
    let (store, runtime) = open(&MemoryDisk::new());
    runtime.spawn(Ordinary).unwrap();
    let workers = ["a", "b", "c", "d"].map(|id| store.begin(id, Worker::default()).unwrap().address());
    store.send(workers[3], WorkerMessage::Over).unwrap().wait(LIMIT).unwrap();
    stepped(&runtime);
    assert_eq!(runtime.stats().processes, 4);
    let report = runtime.shutdown(LIMIT).unwrap();
    assert_eq!((report.ended, report.asleep, &report.unstored), (1, 3, &None), "{report}");
    assert!(report.is_clean());
    assert!(report.to_string().contains("3 durable processes sleep"), "{report}");
    store.close().unwrap();
}

/// Shuts down with a limit of five seconds of this clock, which goes on.
fn shut_down(runtime: &Runtime, clock: &ManualClock) -> Arc<ShutdownReport> {
    let report = std::thread::scope(|scope| {
        let ended = scope.spawn(|| runtime.shutdown(Duration::from_secs(5)).unwrap());
        crate::wait::until("the shutdown is over", || {
            clock.advance(Duration::from_secs(1));
            ended.is_finished()
        });
        crate::wait::wait(ended)
    });
    report.unwrap()
}

/// Adds up its messages. Its `close` waits for a latch.
#[derive(Default, Serialize, Deserialize)]
struct Clinging(u64);

static MAY_CLOSE: LazyLock<Latch<()>> = LazyLock::new(Latch::new);

#[derive(Serialize, Deserialize)]
enum ClingingMessage {
    Add(u64),
    Look(Reply<u64>),
}

impl Process for Clinging {
    type Message = ClingingMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ClingingMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(ClingingMessage::Add(number)) => self.0 += number,
                Event::Message(ClingingMessage::Look(reply)) => out.reply(reply, self.0),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        wait(&*MAY_CLOSE);
    }
}

impl Durable for Clinging {
    const NAME: &str = "clinging";
}

#[test]
fn a_close_that_hangs_costs_no_data() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let run = || {
        let builder = Runtime::builder().workers(2).clock(clock.clock());
        store_in(MemoryJournal::new(&disk)).kind::<Clinging>().start(builder).unwrap()
    };
    let (store, runtime) = run();
    let clinging = store.begin("a", Clinging::default()).unwrap().address();
    (1..=10).for_each(|number| drop(store.send(clinging, ClingingMessage::Add(number)).unwrap()));
    stepped(&runtime);
    let report = shut_down(&runtime, &clock);
    assert_eq!((report.stuck.len(), &report.unstored), (1, &None), "{report}");
    // The program is killed while its process hangs.
    disk.crash();
    MAY_CLOSE.set(()).unwrap();
    drop(store.close());
    drop((store, runtime));
    let (store, runtime) = run();
    assert_eq!(runtime.ask(clinging, ClingingMessage::Look, Duration::MAX).wait().unwrap(), 55);
    assert!(runtime.shutdown(Duration::MAX).unwrap().is_clean());
    store.close().unwrap();
}

/// All steps are over, but the disk has not taken what they have done.
#[test]
fn a_shutdown_waits_for_the_disk_and_says_if_that_took_too_long() {
    if !goes_ahead() {
        return;
    }
    let (gate, clock) = (Gate::default(), ManualClock::new());
    let journal = GatedJournal(MemoryJournal::new(&MemoryDisk::new()), gate.clone());
    let (store, runtime) = start(journal, Runtime::builder().clock(clock.clock()));
    let worker = store.begin("a", Worker::default()).unwrap();
    worker.wait(Duration::MAX).unwrap();
    gate.close();
    let receipt = store.send(worker.address(), WorkerMessage::Set(1)).unwrap();
    stepped(&runtime);
    gate.wait_for(1);
    let report = shut_down(&runtime, &clock);
    assert!(report.unstored.is_some() && !report.is_clean(), "{report}");
    gate.open();
    store.close().unwrap();
    receipt.wait(Duration::ZERO).unwrap();
}
