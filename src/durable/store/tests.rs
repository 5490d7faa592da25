//! Tests of a store that need to see its tail and its residences.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{PAUSE, Store, StoreError};
use crate::clock::ManualClock;
#[cfg(not(procession_sanitize_thread))]
use crate::crowd::Crowd;
use crate::durable::core::RELOAD;
use crate::durable::journal::{Batch, Fault, Journal, JournalError, Log, MemoryDisk, MemoryJournal, Opened, Position};
use crate::durable::residency::Place;
use crate::durable::rows;
use crate::durable::{BeginOptions, Durable};
use crate::latch::Latch;
use crate::outcome::Panic;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{Event, Events, Process, Reply, Step, StepOutput, StepResult};
use crate::runtime::{Runtime, RuntimeBuilder, Timed};
use crate::sched::turn::body_lost;
use crate::wait::{until, wait};

#[derive(Serialize, Deserialize)]
pub(super) struct Keeper {
    text: String,
}

#[derive(Serialize, Deserialize)]
pub(super) enum KeeperMessage {
    Grow(usize),
    Look(Reply<usize>),
    Over,
}

impl Process for Keeper {
    type Message = KeeperMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, KeeperMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(KeeperMessage::Grow(size)) => self.text = "x".repeat(size),
                Event::Message(KeeperMessage::Look(reply)) => out.reply(reply, self.text.len()),
                Event::Message(KeeperMessage::Over) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Keeper {
    const NAME: &str = "keeper";
}

pub(super) fn new() -> Keeper {
    Keeper { text: String::new() }
}

pub(super) fn open(journal: impl Journal + 'static, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    Store::with_journal(journal).kind::<Keeper>().start(builder).unwrap()
}

pub(super) fn end((store, runtime): (Store, Runtime)) {
    drop(runtime.shutdown(Duration::MAX).unwrap());
    store.close().unwrap();
}

#[test]
fn a_process_that_is_loaded_during_a_rewind_is_loaded_after_it() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(MemoryJournal::new(&disk), &clock);
    let keeper = store.begin("a", new()).unwrap().address();
    runtime.wait_idle().unwrap();
    end((store, runtime));

    let (store, runtime) = open(MemoryJournal::new(&disk), &clock);
    // The writer waits for work, so this test takes its arrows.
    let tail = &store.inner.core.tail;
    tail.rewind();
    let answer = runtime.ask(keeper, KeeperMessage::Look, Duration::MAX);
    runtime.wait_idle().unwrap();
    assert_eq!(runtime.processes().len(), 0, "nobody would call it to leave");
    tail.reopened(tail.released());
    clock.advance(RELOAD);
    assert_eq!(answer.wait().unwrap(), 0);
    end((store, runtime));
}

#[test]
fn the_residences_of_ended_processes_are_forgotten() {
    let clock = ManualClock::new();
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &clock);
    for n in 0..20 {
        let id = n.to_string();
        let keeper = store.begin(&id, new()).unwrap();
        store.send(keeper.address(), KeeperMessage::Over).unwrap();
        store.result::<Keeper>(&id).unwrap().wait(Duration::MAX).unwrap();
    }
    runtime.wait_idle().unwrap();
    let core = &store.inner.core;
    core.apply().unwrap();
    let left = core.residency.all();
    assert!(left.iter().all(|(_, one)| matches!(lock(one).place, Place::Nobody)), "they have ended");
    assert_eq!(left.len(), 0);
    end((store, runtime));
}

#[test]
fn a_read_of_files_that_were_lost_has_them_opened_anew() {
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let (store, runtime) = open(MemoryJournal::new(&disk), &clock);
    let keeper = store.begin("a", new()).unwrap();
    keeper.wait(Duration::MAX).unwrap();
    // Nothing is written that would show the loss.
    disk.crash();
    until("the next one begins", || {
        clock.advance(PAUSE);
        store.begin("b", new()).is_ok()
    });
    let core = &store.inner.core;
    until("all is written", || {
        clock.advance(PAUSE);
        runtime.wait_idle().unwrap();
        core.tail.released() == core.tail.end().1
    });
    disk.crash();
    until("an end can be looked for", || {
        clock.advance(PAUSE);
        core.end_of(core.number_of(keeper.pid()).unwrap()).is_ok()
    });
    end((store, runtime));
}

#[test]
fn a_key_is_known_until_it_is_old_and_leaves_nothing() {
    const KEEP: Duration = Duration::from_secs(60);
    let clock = ManualClock::new();
    let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Keeper>().keep(KEEP);
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let keeper = store.begin("a", new()).unwrap();
    keeper.wait(Duration::MAX).unwrap();
    let core = &store.inner.core;
    let send = |key: &str| {
        let receipt = store.send_once(keeper.address(), key, KeeperMessage::Grow(1)).unwrap();
        receipt.wait(Duration::MAX).unwrap();
        receipt.was_there()
    };
    assert!(!send("1"));
    core.apply().unwrap();
    assert!(!send("2"));
    // The tables have the first one only.
    core.forget_keys();
    assert_eq!(core.keys.enter().len(), 1);
    assert!(send("1") && send("2"));
    core.apply().unwrap();
    assert_eq!(core.keys.enter().len(), 0);
    assert!(send("1") && send("2"));
    let old = || {
        core.apply().unwrap();
        let mut tables = lock(&core.tables);
        let reader = &mut tables.as_mut().unwrap().1;
        let names = ["1", "2"].map(|key| {
            let name = rows::key_name(core.number_of(keeper.pid()).unwrap(), key);
            usize::from(reader.name(rows::KEYS, &name).unwrap().is_some())
        });
        (names.iter().sum::<usize>(), reader.of_class(rows::OLD_KEYS, (0, 0), 10).unwrap().len())
    };
    assert_eq!(old(), (2, 2));
    until("they are removed", || {
        clock.advance(Duration::from_secs(1));
        old() == (0, 0)
    });
    end((store, runtime));
}

#[test]
fn a_result_of_a_store_that_is_closing_says_so() {
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &ManualClock::new());
    store.begin("a", new()).unwrap().wait(Duration::MAX).unwrap();
    // Others are told when the store is closed.
    let early = store.result::<Keeper>("a").unwrap();
    store.inner.core.tail.close();
    let late = store.result::<Keeper>("a").unwrap();
    assert!(matches!(late.wait(Duration::MAX), Err(StoreError::Unknown)));
    end((store, runtime));
    assert!(matches!(early.wait(Duration::MAX), Err(StoreError::Unknown)));
}

#[test]
fn a_result_that_is_dropped_leaves_nobody_waiting() {
    let clock = ManualClock::new();
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &clock);
    let keeper = store.begin("a", new()).unwrap();
    keeper.wait(Duration::MAX).unwrap();
    let result = store.result::<Keeper>("a").unwrap();
    (0..10).for_each(|_| drop(store.result::<Keeper>("a").unwrap()));
    assert_eq!(store.inner.core.waiting(), 1);
    store.send(keeper.address(), KeeperMessage::Over).unwrap();
    result.wait(Duration::MAX).unwrap();
    drop(result);
    assert_eq!(store.inner.core.waiting(), 0);
    end((store, runtime));
}

#[test]
fn a_process_that_is_lost_to_a_panic_of_the_runtime_comes_back() {
    let clock = ManualClock::new();
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &clock);
    let keeper = store.begin("a", new()).unwrap();
    store.send(keeper.address(), KeeperMessage::Grow(7)).unwrap().wait(Duration::MAX).unwrap();
    runtime.wait_idle().unwrap();
    let core = runtime.core();
    let local = runtime.processes()[0].pid;
    // As a worker does it when a turn has panicked, and the body was dropped.
    let body = core.road.table.cell(local).unwrap().take_resting();
    body.unwrap().machine.clear();
    let panic = Panic::new(Box::new("on purpose"));
    body_lost(&**core, &mut core.executor(), &mut StepOutput::new(core.clone()), local, panic);
    assert_eq!(runtime.ask(keeper.address(), KeeperMessage::Look, Duration::MAX).wait().unwrap(), 7);
    end((store, runtime));
}

/// Both threads wait for the residence, and it is not said which is first.
#[test]
fn a_deadline_that_is_over_before_its_process_is_in_memory_is_given() {
    let clock = ManualClock::new();
    let (store, runtime) = open(MemoryJournal::new(&MemoryDisk::new()), &clock);
    let core = &store.inner.core;
    for round in 0..20 {
        let serial = core.number().unwrap() + 1;
        let residence = core.residency.of(serial);
        let held = lock(&residence);
        let end = core.tail.end();
        std::thread::scope(|scope| {
            let begin = scope.spawn(|| {
                let at_once = BeginOptions::new().deadline(Duration::ZERO);
                store.begin_with(&round.to_string(), new(), &at_once).unwrap().pid()
            });
            until("its record is appended", || core.tail.end() != end);
            (0..2_000).for_each(|_| {
                clock.advance(Duration::from_millis(1));
                std::thread::yield_now();
            });
            drop(held);
            assert_eq!(core.number_of(wait(begin).unwrap()), Some(serial));
        });
        until("it is asked to stop", || {
            clock.advance(Duration::from_millis(1));
            let resident = core.residency.resident(serial).unwrap();
            lock(&resident.requests).iter().all(|request| request.is_given)
        });
    }
    end((store, runtime));
}

#[test]
fn a_start_that_fails_lets_the_journal_go() {
    let (disk, mut others) = (MemoryDisk::new(), Vec::new());
    let mut failures = 0;
    // Some of these calls are made when there is a runtime already.
    for fault in 0..12 {
        disk.fail_at(disk.calls() + fault, Fault::Error);
        let mut start = |builder: RuntimeBuilder| {
            let runtime = builder.start()?;
            // As a thread of the runtime that has not ended yet.
            others.push(runtime.core().clone());
            Ok(runtime)
        };
        let store = Store::with_journal(MemoryJournal::new(&disk)).kind::<Keeper>();
        let started = store.start_by(Runtime::builder().workers(1), &mut start, None);
        disk.heal();
        if let Ok((store, runtime)) = started {
            drop(runtime.shutdown(Duration::MAX).unwrap());
            let _ = store.close();
            continue;
        }
        failures += 1;
        let (store, runtime) = open(MemoryJournal::new(&disk), &ManualClock::new());
        runtime.shutdown(Duration::MAX).unwrap();
        store.close().unwrap();
    }
    assert!(failures > 3 && others.len() > 12 - failures, "{failures}, {}", others.len());
}

/// A journal whose commits wait for a lock.
struct Slow(MemoryJournal, Arc<Mutex<()>>);

#[derive(Debug)]
struct SlowLog(Box<dyn Log>, Arc<Mutex<()>>);

impl Journal for Slow {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let opened = self.0.open()?;
        Ok(Opened { log: Box::new(SlowLog(opened.log, self.1.clone())), ..opened })
    }
}

impl Log for SlowLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        drop(lock(&self.1));
        self.0.commit(batch)
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.0.trim(applied)
    }
}

/// Sets its latch when it is dropped.
struct Loud(Latch<()>);

impl Drop for Loud {
    fn drop(&mut self) {
        let _ = self.0.set(());
    }
}

/// In a shutdown, the stage that drops the timers is the first one that runs destructors of users.
#[test]
fn a_shutdown_drops_no_timer_before_all_is_on_disk() {
    let (clock, disk, dropped) = (ManualClock::new(), Arc::new(Mutex::new(())), Latch::new());
    let (store, runtime) = open(Slow(MemoryJournal::new(&MemoryDisk::new()), disk.clone()), &clock);
    let keeper = store.begin("a", new()).unwrap();
    keeper.wait(Duration::MAX).unwrap();
    let loud = Loud(dropped.clone());
    let never = Timed::Run(Box::new(move || drop(loud)));
    assert!(runtime.core().timers.after(0, Duration::from_secs(3_600), never).is_ok());
    std::thread::scope(|scope| {
        let waits = lock(&disk);
        let receipt = store.send(keeper.address(), KeeperMessage::Grow(1)).unwrap();
        let ended = scope.spawn(|| runtime.shutdown(Duration::MAX).unwrap());
        until("all processes have left memory", || runtime.processes().is_empty());
        let mut looks = 0;
        until("the timer had time to be dropped", || {
            looks += 1;
            looks > 1_000 || dropped.is_set()
        });
        assert!(!dropped.is_set() && !ended.is_finished(), "the disk does not have everything");
        drop(waits);
        assert!(wait(ended).unwrap().is_clean());
        receipt.wait(Duration::ZERO).unwrap();
    });
    assert!(dropped.is_set());
    store.close().unwrap();
}

#[cfg(not(procession_sanitize_thread))]
#[test]
fn each_thread_of_an_idle_store_waits_without_a_limit() {
    let crowd = Crowd::new();
    let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Keeper>();
    let (store, runtime) = store.start(Runtime::builder().workers(2).blocking_idle(None)).unwrap();
    crowd.until_idle();
    let keeper = store.begin("a", new()).unwrap();
    for size in 0..3 {
        store.send(keeper.address(), KeeperMessage::Grow(size)).unwrap().wait(Duration::MAX).unwrap();
        let before = crowd.wakes();
        crowd.until_idle();
        store.send(keeper.address(), KeeperMessage::Grow(size)).unwrap().wait(Duration::MAX).unwrap();
        crowd.until_idle();
        assert!(crowd.wakes() > before, "they are woken by work, and by nothing else");
    }
    end((store, runtime));
    crowd.until_gone();
}

/// Gives itself a name, and links itself to an ordinary process.
#[derive(Serialize, Deserialize)]
struct Namer;

#[derive(Serialize, Deserialize)]
struct Name(Pid, Reply<()>);

impl Process for Namer {
    type Message = Name;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Name>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Name(other, reply)) = event {
                out.register("namer", out.pid());
                out.link(other);
                out.reply(reply, ());
            }
        }
        Ok(Step::Idle)
    }
}

/// An ordinary process.
struct Rests;

impl Process for Rests {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(()) } else { Step::Idle })
    }
}

impl Durable for Namer {
    const NAME: &str = "namer";
}

/// The names are compared with the disk before the journal takes records again, and the numbers are reserved anew.
#[test]
fn a_step_without_a_number_for_its_link_takes_no_name() {
    let builder = Runtime::builder().workers(2).clock(ManualClock::new().clock());
    let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).kind::<Namer>();
    let (store, runtime) = store.start(builder).unwrap();
    let namer = store.begin("a", Namer).unwrap();
    namer.wait(Duration::MAX).unwrap();
    let other = runtime.spawn(Rests).unwrap().pid();
    runtime.wait_idle().unwrap();
    let core = &store.inner.core;
    core.tail.rewind();
    lock(&core.numbers).renew();
    let answer = runtime.ask(namer.address(), |reply| Name(other, reply), Duration::MAX);
    assert!(answer.wait().is_err(), "the step is undone");
    runtime.wait_idle().unwrap();
    core.tail.reopened(core.tail.released());
    assert_eq!(runtime.whereis("namer"), None);
    end((store, runtime));
}
