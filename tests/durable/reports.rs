//! The report of a shutdown says what became of durable processes.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::gate::{Gate, GatedJournal};
use crate::places::goes_ahead;
use crate::wait::LIMIT;
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
    let report = std::thread::scope(|scope| {
        let ended = scope.spawn(|| runtime.shutdown(Duration::from_secs(5)).unwrap());
        crate::wait::until("the shutdown is over", || {
            clock.advance(Duration::from_secs(1));
            ended.is_finished()
        });
        crate::wait::wait(ended)
    });
    let report = report.unwrap();
    assert!(report.unstored.is_some() && !report.is_clean(), "{report}");
    gate.open();
    store.close().unwrap();
    receipt.wait(Duration::ZERO).unwrap();
}
