//! Tests of a store that need to see its tail and its residences.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{PAUSE, RunningWriter, Settings, Store, StoreError};
use crate::clock::ManualClock;
use crate::durable::core::RELOAD;
use crate::durable::journal::{
    Batch, Damage, Fault, Journal, JournalError, Log, MemoryDisk, MemoryJournal, Opened, Position, Reader, Tables,
};
use crate::durable::residency::Place;
use crate::durable::rows;
use crate::durable::{BeginOptions, Durable};
use crate::latch::Latch;
use crate::outcome::Panic;
use crate::primitives::{Arc, AtomicUsize, Mutex, Ordering, lock};
use crate::process::{Address, Event, Events, Process, Reply, Step, StepOutput, StepResult};
use crate::runtime::{Runtime, RuntimeBuilder, Timed};
use crate::sched::turn::body_lost;
use crate::wait::{block_on, until, wait};

#[derive(Serialize, Deserialize)]
struct Keeper {
    text: String,
}

#[derive(Serialize, Deserialize)]
enum KeeperMessage {
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

fn new() -> Keeper {
    Keeper { text: String::new() }
}

fn open(journal: impl Journal + 'static, clock: &ManualClock) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2).clock(clock.clock());
    Store::with_journal(journal).kind::<Keeper>().start(builder).unwrap()
}

fn end((store, runtime): (Store, Runtime)) {
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

/// A journal whose tables fail some times. Its openings are counted.
struct BadTables {
    journal: MemoryJournal,
    openings: Arc<AtomicUsize>,
    failures: Failures,
}

#[derive(Clone)]
struct Failures {
    /// How many calls of `apply` are to fail.
    left: Arc<AtomicUsize>,
    /// How many calls there have been.
    calls: Arc<AtomicUsize>,
    error: fn() -> JournalError,
}

impl std::fmt::Debug for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.left.fmt(f)
    }
}

#[derive(Debug)]
struct BadTable(Box<dyn Tables>, Failures);

impl Journal for BadTables {
    fn open(&mut self) -> Result<Opened, JournalError> {
        self.openings.fetch_add(1, Ordering::SeqCst);
        let opened = self.journal.open()?;
        Ok(Opened { tables: Box::new(BadTable(opened.tables, self.failures.clone())), ..opened })
    }
}

impl Tables for BadTable {
    fn apply(&mut self, through: Position) -> Result<Position, JournalError> {
        self.1.calls.fetch_add(1, Ordering::SeqCst);
        let fails = |left: usize| left.checked_sub(1);
        match self.1.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails) {
            Ok(_) => Err((self.1.error)()),
            Err(_) => self.0.apply(through),
        }
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        self.0.reader()
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        self.0.check()
    }
}

/// A store with one process, whose tables fail when a test says so.
fn with_bad_tables(clock: &ManualClock, error: fn() -> JournalError) -> (BadStore, Address<KeeperMessage>) {
    with_bad_tables_and(clock, error, Settings::default())
}

/// As `with_bad_tables`, with other settings.
fn with_bad_tables_and(
    clock: &ManualClock,
    error: fn() -> JournalError,
    settings: Settings,
) -> (BadStore, Address<KeeperMessage>) {
    let openings = Arc::new(AtomicUsize::new(0));
    let failures = Failures { left: Arc::default(), calls: Arc::default(), error };
    let journal = MemoryJournal::new(&MemoryDisk::new());
    let journal = BadTables { journal, openings: openings.clone(), failures: failures.clone() };
    let mut store = Store::with_journal(journal).kind::<Keeper>();
    store.settings = settings;
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let keeper = store.begin("a", new()).unwrap();
    keeper.wait(Duration::MAX).unwrap();
    (BadStore { store, runtime, openings, failures: failures.left, applies: failures.calls }, keeper.address())
}

struct BadStore {
    store: Store,
    runtime: Runtime,
    openings: Arc<AtomicUsize>,
    failures: Arc<AtomicUsize>,
    applies: Arc<AtomicUsize>,
}

/// Gives a process states of this size, each of which is on disk before the next one.
fn grow(runtime: &Runtime, keeper: Address<KeeperMessage>, (states, size): (usize, usize), mut seen: impl FnMut()) {
    for n in 0..states {
        runtime.send(keeper, KeeperMessage::Grow(size + n)).unwrap();
        assert_eq!(block_on(runtime.ask(keeper, KeeperMessage::Look, Duration::MAX)).unwrap(), size + n);
        seen();
    }
}

#[test]
fn the_counts_in_memory_are_known_though_the_tables_cannot_be_read() {
    let (bad, _) = with_bad_tables(&ManualClock::new(), || JournalError::Full);
    let before = bad.store.stats();
    assert_eq!((before.in_memory, before.parked), (1, Some(0)));
    bad.failures.store(1, Ordering::SeqCst);
    let stats = bad.store.stats();
    assert_eq!((stats.in_memory, stats.loaded, stats.stored), (1, before.loaded, before.stored));
    assert_eq!(stats.parked, None);
    assert_eq!(bad.store.stats().parked, Some(0));
    end((bad.store, bad.runtime));
}

#[test]
fn the_tables_are_brought_up_by_one_thread_though_they_are_late() {
    let clock = ManualClock::new();
    let (bad, keeper) = with_bad_tables(&clock, || JournalError::Full);
    let core = &bad.store.inner.core;
    let before = bad.applies.load(Ordering::SeqCst);
    let late = lock(&core.tables);
    // So much is stored that the tables would be brought up five times.
    grow(&bad.runtime, keeper, (22, 1_000_000), || ());
    let end_of_log = core.tail.released();
    drop(late);
    until("the tables have caught up", || core.applied.load(Ordering::SeqCst) >= end_of_log.0);
    let applies = bad.applies.load(Ordering::SeqCst) - before;
    assert!(applies <= 2, "one is at work, and one waits: {applies}");
    grow(&bad.runtime, keeper, (6, 1_000_000), || ());
    until("the tables are brought up again", || core.applied.load(Ordering::SeqCst) > end_of_log.0);
    end((bad.store, bad.runtime));
}

#[test]
fn reads_that_have_waited_share_an_application() {
    let clock = ManualClock::new();
    let (bad, keeper) = with_bad_tables(&clock, || JournalError::Full);
    grow(&bad.runtime, keeper, (1, 10), || ());
    let core = &bad.store.inner.core;
    let through = core.tail.released();
    let applies = || {
        core.with_tables(|tables, _| core.catch_up_to(tables, through)).unwrap();
        assert!(core.applied.load(Ordering::SeqCst) >= through.0);
        bad.applies.load(Ordering::SeqCst)
    };
    let first = applies();
    assert_eq!((applies(), applies()), (first, first));
    end((bad.store, bad.runtime));
}

#[test]
fn a_log_that_is_full_waits_for_the_tables() {
    const LIMIT: u64 = 20_000;
    let (disk, clock) = (MemoryDisk::new(), ManualClock::new());
    let mut store = Store::with_journal(MemoryJournal::new(&disk)).kind::<Keeper>();
    store.settings.log_limit = LIMIT;
    let (store, runtime) = store.start(Runtime::builder().workers(2).clock(clock.clock())).unwrap();
    let keeper = store.begin("a", new()).unwrap().address();
    // Nobody else would bring the tables up: that is done behind 4 MiB.
    let mut largest = 0;
    grow(&runtime, keeper, (100, 1_000), || largest = largest.max(disk.log_size()));
    assert!((LIMIT / 2..LIMIT + 5_000).contains(&(largest as u64)), "{largest}");
    end((store, runtime));
}

#[test]
fn a_log_goes_on_while_tables_are_late_and_has_them_brought_up() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 75_000, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    let core = &bad.store.inner.core;
    let before = core.applied.load(Ordering::SeqCst);
    let late = lock(&core.tables);
    // That is more than two thirds of the limit.
    grow(&bad.runtime, keeper, (12, 5_000), || ());
    assert_eq!(core.applied.load(Ordering::SeqCst), before);
    drop(late);
    // Otherwise that is done behind 4 MiB.
    until("the tables have more", || core.applied.load(Ordering::SeqCst) > before);
    end((bad.store, bad.runtime));
}

#[test]
fn a_log_that_is_at_its_limit_does_not_grow() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 20_000, late_wait: Duration::ZERO, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    let core = &bad.store.inner.core;
    let late = lock(&core.tables);
    for n in 0..100 {
        let (_, before) = core.tail.end();
        bad.runtime.send(keeper, KeeperMessage::Grow(5_000 + n)).unwrap();
        until("it is stepped", || core.tail.end().1 > before);
    }
    let ((life, last), stored) = (core.tail.end(), Latch::new());
    let waiter = stored.clone();
    core.tail.when_released(life, last, move |_| _ = waiter.set(()));
    assert_eq!(stored.wait_timeout(Duration::from_millis(200)), None, "the log has 500,000 bytes");
    drop(late);
    wait(&stored);
    end((bad.store, bad.runtime));
}

#[test]
fn a_writer_that_waits_for_tables_goes_on_when_they_have_more() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 60_000, late_wait: Duration::MAX, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    // The tables are late again and again.
    grow(&bad.runtime, keeper, (40, 5_000), || ());
    end((bad.store, bad.runtime));
}

#[test]
fn tables_that_keep_the_log_full_have_the_journal_opened_anew() {
    let clock = ManualClock::new();
    // The tables are brought up before each batch.
    let settings = Settings { log_limit: 0, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    bad.failures.store(1, Ordering::SeqCst);
    until("a message is stored behind the error", || {
        let sent = bad.store.send(keeper, KeeperMessage::Grow(7));
        sent.is_ok_and(|receipt| receipt.wait(Duration::MAX).is_ok())
    });
    assert_eq!(bad.failures.load(Ordering::SeqCst), 0);
    until("it is opened anew", || bad.openings.load(Ordering::SeqCst) == 2);
    end((bad.store, bad.runtime));
}

#[test]
fn an_application_that_fails_has_the_journal_opened_anew() {
    let clock = ManualClock::new();
    let (bad, keeper) = with_bad_tables(&clock, || JournalError::Full);
    bad.failures.store(1, Ordering::SeqCst);
    // The tables are brought up to the log after 4 MiB.
    for n in 0..12 {
        // It is refused while the journal is opened.
        drop(bad.runtime.send(keeper, KeeperMessage::Grow(1_000_000 + n)));
        bad.runtime.wait_idle().unwrap();
    }
    until("it is opened anew", || bad.openings.load(Ordering::SeqCst) == 2);
    assert_eq!(bad.failures.load(Ordering::SeqCst), 0);
    end((bad.store, bad.runtime));
}

#[test]
fn tables_that_cannot_be_opened_close_the_store_if_their_errors_count() {
    let io = || JournalError::Io { call: "read", source: "on purpose".into() };
    let errors: [(fn() -> JournalError, bool); 2] = [(|| JournalError::Full, false), (io, true)];
    for (error, closes) in errors {
        let clock = ManualClock::new();
        let (bad, keeper) = with_bad_tables(&clock, error);
        let tail = &bad.store.inner.core.tail;
        let is_closed =
            || matches!(&*lock(&bad.store.inner.writer), Some(RunningWriter::Thread(thread)) if thread.is_finished());
        bad.failures.store(10, Ordering::SeqCst);
        tail.reopen(tail.life(), &error());
        until("it is opened or closed", || {
            clock.advance(PAUSE);
            // Its tables are not open, which follows from the other error.
            drop(bad.store.find::<Keeper>("b"));
            is_closed() || bad.failures.load(Ordering::SeqCst) == 0
        });
        until("it is stored, or known that it never will be", || {
            clock.advance(PAUSE);
            match bad.store.send(keeper, KeeperMessage::Grow(7)) {
                Ok(receipt) => receipt.wait(Duration::from_millis(1)).is_ok(),
                Err(_) => is_closed(),
            }
        });
        assert_eq!(is_closed(), closes);
        // Two openings whose tables have failed, after an error of those that were open.
        assert_eq!(bad.openings.load(Ordering::SeqCst), if closes { 3 } else { 12 });
        drop(bad.runtime.shutdown(Duration::MAX).unwrap());
        let why = bad.store.close().err().map(|error| error.to_string());
        assert_eq!(why.as_ref().is_some_and(|why| why.contains("on purpose")), closes, "{why:?}");
    }
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
