//! Tests of burials, and of ends that are lost or reported late.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Buried;
use crate::clock::ManualClock;
use crate::durable::core::StoreCore;
use crate::durable::journal::{EncodedRecord, MemoryDisk, MemoryJournal, Record};
use crate::durable::residency::Place;
use crate::durable::rows::{self, WhyNoReply};
use crate::durable::tail::Fate;
use crate::durable::{Durable, Store};
use crate::latch::Latch;
use crate::observe::{DeadLetter, Observer};
use crate::outcome::BoxError;
use crate::pid::Address;
use crate::primitives::{Arc, Mutex, OnceLock, Weak, lock};
use crate::process::{Event, Events, Process, Step, StepOutput, StepResult};
use crate::runtime::Runtime;
use crate::wait::{until, wait};

/// Ends with its first message.
#[derive(Serialize, Deserialize)]
struct Guest;

impl Process for Guest {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Message(_))) { Step::Done(()) } else { Step::Idle })
    }
}

impl Durable for Guest {
    const NAME: &str = "guest";
}

/// The serial number of a process that does not exist.
const NOBODY: u64 = 99;

/// Notes for each dead letter whether a burial of this process is open.
#[derive(Clone, Default)]
struct Hook {
    store: Arc<OnceLock<(Weak<StoreCore>, u64)>>,
    told: Arc<Mutex<Vec<bool>>>,
}

impl Observer for Hook {
    fn dead_letter(&self, _: &DeadLetter<'_>) {
        let Some((store, serial)) = self.store.get() else { return };
        let is_open = store.upgrade().map(|core| core.residency.enter(*serial, |one| one.burial.is_open()));
        lock(&self.told).extend(is_open);
    }
}

fn open(disk: &MemoryDisk, hook: Hook) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(ManualClock::new().clock()).observer(hook);
    Store::with_journal(MemoryJournal::new(disk)).kind::<Guest>().start(builder).unwrap()
}

fn end((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

fn has_residence(core: &StoreCore, serial: u64) -> bool {
    core.residency.all().iter().any(|(other, _)| *other == serial)
}

#[test]
fn a_process_that_takes_its_end_for_lost_is_looked_at() {
    let (store, runtime) = open(&MemoryDisk::new(), Hook::default());
    let guest = store.begin("a", Guest).unwrap();
    runtime.wait_idle().unwrap();
    let core = &store.inner.core;
    let serial = core.number_of(guest.pid()).unwrap();
    let resident = core.residency.resident(serial).unwrap();
    store.send(guest.address(), 1).unwrap();
    store.result::<Guest>("a").unwrap().wait(Duration::MAX).unwrap();
    runtime.wait_idle().unwrap();
    core.apply().unwrap();
    assert!(!has_residence(core, serial));
    // The thread that stepped the process does not know that its end is on disk. So a load looks for the process.
    core.residency.enter(serial, |residence| residence.place = Place::Ending);
    core.gone(&resident, None);
    until("it is looked at", || !has_residence(core, serial));
    end((store, runtime));
}

#[test]
fn a_process_whose_end_may_be_lost_keeps_its_residence() {
    let (store, runtime) = open(&MemoryDisk::new(), Hook::default());
    let core = &store.inner.core;
    let (life, last) = core.tail.end();
    let leaves_behind = |place, position| {
        core.residency.enter(NOBODY, |residence| {
            residence.place = place;
            residence.left_behind = Some((life, position));
        });
        core.settle_burial(NOBODY);
        has_residence(core, NOBODY)
    };
    core.tail.rewind();
    assert!(leaves_behind(Place::Ending, last.next()), "nobody knows whether its end is on disk");
    core.tail.reopened(last);
    assert!(leaves_behind(Place::Ending, last.next()), "it is still in memory, and is loaded when it has left");
    assert!(!leaves_behind(Place::Nobody, last));
    end((store, runtime));
}

#[test]
fn a_process_that_falls_asleep_is_looked_at_again() {
    let (store, runtime) = open(&MemoryDisk::new(), Hook::default());
    let core = &store.inner.core;
    core.residency.enter(NOBODY, |residence| residence.place = Place::LeavingToSleep);
    core.look_again(&core.core().unwrap(), NOBODY);
    core.residency.enter(NOBODY, |residence| assert!(matches!(residence.place, Place::Leaving)));
    end((store, runtime));
}

#[test]
fn a_refused_burial_leaves_no_residence() {
    let (store, runtime) = open(&MemoryDisk::new(), Hook::default());
    let core = &store.inner.core;
    let life = core.tail.life();
    core.residency.enter(NOBODY, |residence| {
        residence.place = Place::Nobody;
        residence.burial.begin(1);
    });
    core.tail.rewind();
    core.tail.reopened(core.tail.released());
    let buried = Buried { life, changes: vec![rows::taken(NOBODY, 1)], begun: 1 };
    core.give_up(&core.core().unwrap(), NOBODY, buried, (&[], WhyNoReply::Ended(NOBODY)));
    assert!(!has_residence(core, NOBODY));
    end((store, runtime));
}

/// An observer may take long, and a load waits for open burials.
#[test]
fn no_burial_is_open_while_an_observer_is_told() {
    let (disk, hook) = (MemoryDisk::new(), Hook::default());
    let (store, runtime) = open(&disk, hook.clone());
    let guest = store.begin("a", Guest).unwrap().address();
    store.send(guest, 1).unwrap();
    store.result::<Guest>("a").unwrap().wait(Duration::MAX).unwrap();
    end((store, runtime));
    let (store, runtime) = open(&disk, hook.clone());
    let core = &store.inner.core;
    assert!(hook.store.set((Arc::downgrade(core), core.number_of(guest.pid()).unwrap())).is_ok());
    // The load waits, so the messages wait for it.
    let late = lock(&core.tables);
    let sent: Vec<_> = (0..3).map(|n| store.send(guest, n).unwrap()).collect();
    sent.iter().for_each(|receipt| assert!(receipt.wait(Duration::MAX).is_ok()));
    drop(late);
    until("they are dead letters", || lock(&hook.told).len() == 3);
    assert_eq!(*lock(&hook.told), [false; 3]);
    end((store, runtime));
}

/// Traps exits, and notes what it gets.
struct Traps(Arc<Mutex<Vec<String>>>);

impl Process for Traps {
    type Message = u32;
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.trap_exits(true);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(number) => lock(&self.0).push(number.to_string()),
                Event::Exit(exit) => lock(&self.0).push(exit.exit.to_string()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends a number to an ordinary process. With zero it links itself to that process, and ends.
#[derive(Serialize, Deserialize)]
struct Teller;

impl Process for Teller {
    type Message = (Address<u32>, u32);
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, (Address<u32>, u32)>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message((to, 0)) => {
                    out.link(to.pid());
                    return Ok(Step::Done(()));
                }
                Event::Message((to, number)) => out.send(to, number),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Teller {
    const NAME: &str = "teller";
}

/// A waiter that keeps the writer, a latch that is set then, and one that lets the writer go on.
fn keeps() -> (impl FnOnce(Fate) + Send + 'static, Latch<()>, Latch<()>) {
    let (kept, goes_on) = (Latch::new(), Latch::new());
    let waiter = {
        let (kept, goes_on) = (kept.clone(), goes_on.clone());
        move |_| {
            kept.set(()).unwrap();
            wait(&goes_on);
        }
    };
    (waiter, kept, goes_on)
}

/// The last two records are in one batch. The writer has told the process of the first one only.
#[test]
fn a_process_whose_end_is_released_before_it_is_told_has_ended() {
    let builder = Runtime::builder().workers(1).clock(ManualClock::new().clock());
    let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Teller>();
    let (store, runtime) = store.start(builder).unwrap();
    let (core, notes) = (&store.inner.core, Arc::<Mutex<Vec<String>>>::default());
    let other = runtime.spawn(Traps(notes.clone())).unwrap().address();
    let teller = store.begin("a", Teller).unwrap();
    teller.wait(Duration::MAX).unwrap();
    runtime.wait_idle().unwrap();
    let (waiter, kept, goes_on) = keeps();
    let record = EncodedRecord::new(&Record { changes: vec![rows::taken(NOBODY, 1)] }).unwrap();
    core.tail.append(core.tail.life(), &record, Some(Box::new(waiter))).unwrap();
    wait(&kept);
    store.send(teller.address(), (other, 1)).unwrap();
    runtime.wait_idle().unwrap();
    let (waiter, kept, goes_on_then) = keeps();
    let (life, first) = core.tail.end();
    core.tail.when_released(life, first, waiter);
    store.send(teller.address(), (other, 0)).unwrap();
    runtime.wait_idle().unwrap();
    goes_on.set(()).unwrap();
    wait(&kept);
    until("it has left memory", || core.residency.resident(core.number_of(teller.pid()).unwrap()).is_none());
    until("the number has come", || !lock(&notes).is_empty());
    runtime.wait_idle().unwrap();
    goes_on_then.set(()).unwrap();
    store.result::<Teller>("a").unwrap().wait(Duration::MAX).unwrap();
    runtime.wait_idle().unwrap();
    assert_eq!(*lock(&notes), ["1", "done"]);
    end((store, runtime));
}
