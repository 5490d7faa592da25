//! Tests of tables that fail, and of tables that are late.

use std::time::Duration;

use super::tests::{Keeper, KeeperMessage, end, new};
use super::{PAUSE, RunningWriter, Settings, Store};
use crate::clock::ManualClock;
use crate::durable::journal::{
    Damage, Journal, JournalError, MemoryDisk, MemoryJournal, Opened, Position, Reader, Tables,
};
use crate::latch::Latch;
use crate::primitives::{Arc, AtomicUsize, Ordering, lock};
use crate::process::Address;
use crate::runtime::Runtime;
use crate::wait::{block_on, until, wait};

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
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        self.1.calls.fetch_add(1, Ordering::SeqCst);
        let fails = |left: usize| left.checked_sub(1);
        match self.1.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails) {
            Ok(_) => Err((self.1.error)()),
            Err(_) => self.0.apply_some(through),
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

/// Has a process make a small step. Returns a latch that is set when its record is on disk.
fn stored(bad: &BadStore, keeper: Address<KeeperMessage>) -> Latch<()> {
    let tail = &bad.store.inner.core.tail;
    let (_, before) = tail.end();
    bad.runtime.send(keeper, KeeperMessage::Grow(1)).unwrap();
    until("it is stepped", || tail.end().1 > before);
    let ((life, last), stored) = (tail.end(), Latch::new());
    let waiter = stored.clone();
    tail.when_released(life, last, move |_| _ = waiter.set(()));
    stored
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

/// Tables that apply one record in a call, and fail when they have applied some.
#[derive(Debug)]
struct OneByOne<'a> {
    tables: &'a mut dyn Tables,
    next: u64,
    left: usize,
}

impl Tables for OneByOne<'_> {
    fn apply_some(&mut self, _: Position) -> Result<Position, JournalError> {
        self.left = self.left.checked_sub(1).ok_or(JournalError::Full)?;
        self.next += 1;
        self.tables.apply_some(Position(self.next))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        self.tables.reader()
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        self.tables.check()
    }
}

#[test]
fn each_piece_that_is_applied_is_noted_at_once() {
    let clock = ManualClock::new();
    let (bad, keeper) = with_bad_tables(&clock, || JournalError::Full);
    grow(&bad.runtime, keeper, (10, 10), || ());
    let core = &bad.store.inner.core;
    let before = core.applied.load(Ordering::SeqCst);
    let mut tables = lock(&core.tables);
    let (tables, _) = tables.as_mut().unwrap();
    let mut some = OneByOne { tables: &mut **tables, next: before, left: 3 };
    assert!(matches!(core.catch_up(&mut some), Err(JournalError::Full)));
    assert_eq!(core.applied.load(Ordering::SeqCst), before + 3);
    // The rest needs several calls, too.
    let mut rest = OneByOne { tables: &mut **tables, next: before + 3, left: 1_000 };
    core.catch_up(&mut rest).unwrap();
    assert!(core.applied.load(Ordering::SeqCst) >= before + 10);
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
fn a_writer_waits_for_late_tables() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 75_000, late_wait: Duration::MAX, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    let core = &bad.store.inner.core;
    let late = lock(&core.tables);
    // The log has less than two thirds of its limit, and then more.
    let mut size = 5_000;
    while core.unapplied.load(Ordering::SeqCst) < 40_000 {
        grow(&bad.runtime, keeper, (1, size), || ());
        size += 1;
    }
    grow(&bad.runtime, keeper, (1, 10_000), || ());
    let stored = stored(&bad, keeper);
    assert_eq!(stored.wait_timeout(Duration::from_millis(200)), None, "the writer has not waited");
    drop(late);
    wait(&stored);
    end((bad.store, bad.runtime));
}

#[test]
fn a_writer_helps_itself_if_the_pool_is_busy() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 20_000, late_wait: Duration::ZERO, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    // As if a job waited behind others, for ever.
    bad.store.inner.core.is_apply_due.store(true, Ordering::SeqCst);
    grow(&bad.runtime, keeper, (10, 5_000), || ());
    assert!(bad.store.inner.core.is_apply_due.load(Ordering::SeqCst));
    end((bad.store, bad.runtime));
}

#[test]
fn a_log_that_is_at_its_limit_does_not_grow() {
    let clock = ManualClock::new();
    let settings = Settings { log_limit: 20_000, late_wait: Duration::ZERO, ..Settings::default() };
    let (bad, keeper) = with_bad_tables_and(&clock, || JournalError::Full, settings);
    let core = &bad.store.inner.core;
    let late = lock(&core.tables);
    // Each of these is a batch of its own.
    grow(&bad.runtime, keeper, (4, 5_000), || ());
    let stored = stored(&bad, keeper);
    assert_eq!(stored.wait_timeout(Duration::from_millis(200)), None, "the log has more than 20,000 bytes");
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
