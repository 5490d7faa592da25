//! Tests of what comes while a process begins to sleep.

use serde::{Deserialize, Serialize};

use super::*;
use crate::clock::ManualClock;
use crate::durable::Store;
use crate::durable::journal::{EncodedRecord, MemoryDisk, MemoryJournal, Record};
use crate::durable::notice::Notice;
use crate::latch::Latch;
use crate::process::{Events, Process, Step, StepOutput, StepResult};
use crate::runtime::Runtime;
use crate::wait::{Mutex, until, wait};

const MINUTE: Duration = Duration::from_secs(60);

/// One that waits does so when it leaves memory: it has come here, and it goes on.
static LEAVES: Mutex<Option<(Latch<()>, Latch<()>)>> = Mutex::new(None);

#[derive(Serialize, Deserialize)]
struct Sleepy {
    waits: bool,
}

impl Process for Sleepy {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, _: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        Ok(Step::Idle)
    }

    fn close(&mut self) {
        let leaves = if self.waits { LEAVES.lock().unwrap().take() } else { None };
        if let Some((arrived, goes_on)) = leaves {
            arrived.set(()).unwrap();
            wait(&goes_on);
        }
    }
}

impl Durable for Sleepy {
    const NAME: &str = "sleepy";
}

/// A store with one process in memory, and its serial number.
fn open(clock: &ManualClock, waits: bool) -> (Store, Runtime, u64) {
    let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Sleepy>().sleep_after(MINUTE);
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let begun = store.begin("a", Sleepy { waits }).unwrap();
    begun.wait(Duration::MAX).unwrap();
    runtime.wait_idle().unwrap();
    let serial = store.inner.core.number_of(begun.pid()).unwrap();
    (store, runtime, serial)
}

fn end((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

/// Otherwise it sleeps with an event on disk, and nothing loads it.
#[test]
fn a_process_that_is_to_be_read_again_does_not_begin_to_sleep() {
    // As `read_again` does it, or a change of a link, between the look of a turn at its calls and the end of this turn.
    for call in [Call::Repair, Call::Outside] {
        let (store, runtime, serial) = open(&ManualClock::new(), false);
        let core = &store.inner.core;
        let resident = core.residency.resident(serial).unwrap();
        resident.note(call);
        assert!(!core.begins_to_sleep(&resident));
        end((store, runtime));
    }
}

/// Otherwise the change is seen when something else loads the process.
#[test]
fn a_process_that_falls_asleep_is_loaded_for_a_change_of_a_link() {
    let (store, runtime, _) = open(&ManualClock::new(), false);
    let mut residence = Residence { place: Place::LeavingToSleep, ..Residence::default() };
    assert!(!residence.call_outside(runtime.core()), "it is loaded when it is out of memory");
    assert!(matches!(residence.place, Place::Leaving));
    end((store, runtime));
}

/// Otherwise a load does not wait for the event, and the process never gets it.
#[test]
fn an_event_that_comes_while_a_process_falls_asleep_is_waited_for() {
    let clock = ManualClock::new();
    let (store, runtime, serial) = open(&clock, true);
    let core = &store.inner.core;
    let (arrived, goes_on) = (Latch::new(), Latch::new());
    *LEAVES.lock().unwrap() = Some((arrived.clone(), goes_on.clone()));
    until("it leaves", || {
        clock.advance(MINUTE);
        arrived.is_set()
    });
    let residence = core.residency.of(serial);
    let position = {
        // As a process has the lock that makes an event for this one.
        let mut residence = lock(&residence);
        assert!(matches!(residence.place, Place::LeavingToSleep));
        goes_on.set(()).unwrap();
        until("it is out of its cell", || runtime.processes().is_empty());
        (0..10_000).for_each(|_| std::thread::yield_now());
        let mut notice = Notice::order(serial, 1, Order::Cancel);
        let record = EncodedRecord::new(&Record { changes: vec![notice.change().unwrap()] }).unwrap();
        let life = core.tail.life();
        let position = core.tail.append(life, &record, None).unwrap();
        residence.notify(&runtime.core().road, &mut notice, (life, position));
        position
    };
    until("it is loaded", || core.residency.resident(serial).is_some());
    let left_behind = lock(&residence).left_behind;
    assert!(left_behind.is_some_and(|(_, at)| at >= position), "{left_behind:?} is before {position:?}");
    end((store, runtime));
}
