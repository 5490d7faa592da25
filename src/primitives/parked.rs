//! The condition variable of the crate's own tests, and a record of the threads that wait on it.
//!
//! `src/crowd.rs` has what tests do with it. A thread that belongs to no crowd is not recorded.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LockResult, Mutex, MutexGuard, PoisonError, WaitTimeoutResult};
use std::time::Duration;

#[derive(Default, Debug)]
pub(crate) struct Condvar {
    shared: Arc<Shared>,
}

#[derive(Default, Debug)]
struct Shared {
    real: std::sync::Condvar,
    /// The number of threads of crowds that wait here.
    waiting: AtomicUsize,
}

/// The threads of all crowds, by number.
struct Book {
    next: u64,
    threads: BTreeMap<u64, Thread>,
    /// How often waits of ended threads have ended, by crowd.
    wakes_of_ended: BTreeMap<u64, usize>,
}

struct Thread {
    crowd: u64,
    name: String,
    at: At,
    wakes: usize,
}

enum At {
    Runs,
    Waits { condvar: Arc<Shared>, has_limit: bool, is_notified: bool },
}

/// A thread of a crowd at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    /// Whether its wait has a limit. `None` if it does not wait, or has been notified.
    pub(crate) waits_with_limit: Option<bool>,
}

static BOOK: Mutex<Book> = Mutex::new(Book { next: 0, threads: BTreeMap::new(), wakes_of_ended: BTreeMap::new() });

thread_local! {
    /// The crowd of the threads that this thread starts.
    static CROWD: Cell<Option<u64>> = const { Cell::new(None) };
    /// The number of this thread in the record.
    static ME: Cell<Option<u64>> = const { Cell::new(None) };
}

fn book() -> MutexGuard<'static, Book> {
    BOOK.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Book {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn notify_one(&self) {
        self.note(1);
        self.shared.real.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.note(usize::MAX);
        self.shared.real.notify_all();
    }

    /// Marks this many of the waiting threads as notified. If another one is in fact woken, `nudge` corrects that.
    fn note(&self, most: usize) {
        // A thread holds the caller's lock from before it is counted until it waits. So no notification is skipped
        // here that such a thread needs.
        if self.shared.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut book = book();
        let marks = book.threads.values_mut().filter_map(|thread| match &mut thread.at {
            At::Waits { condvar, is_notified, .. } if !*is_notified && Arc::ptr_eq(condvar, &self.shared) => {
                Some(is_notified)
            }
            _ => None,
        });
        marks.take(most).for_each(|is_notified| *is_notified = true);
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let _waits = Waits::begin(&self.shared, false);
        self.shared.real.wait(guard)
    }

    /// Waits with a limit by a manual clock, which notifies when it is moved.
    pub(crate) fn wait_for_clock<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let _waits = Waits::begin(&self.shared, true);
        self.shared.real.wait(guard)
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let _waits = Waits::begin(&self.shared, true);
        self.shared.real.wait_timeout(guard, limit)
    }
}

/// Marks the calling thread as waiting until it is dropped.
struct Waits<'a>(Option<(u64, &'a Shared)>);

impl Waits<'_> {
    fn begin(condvar: &Arc<Shared>, has_limit: bool) -> Waits<'_> {
        let Some(me) = ME.try_with(Cell::get).ok().flatten() else { return Waits(None) };
        condvar.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(thread) = book().threads.get_mut(&me) {
            thread.at = At::Waits { condvar: condvar.clone(), has_limit, is_notified: false };
        }
        Waits(Some((me, condvar)))
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        let Some((me, condvar)) = self.0 else { return };
        condvar.waiting.fetch_sub(1, Ordering::SeqCst);
        if let Some(thread) = book().threads.get_mut(&me) {
            thread.at = At::Runs;
            thread.wakes += 1;
        }
    }
}

/// Enters a thread that is about to be started into the crowd of the calling thread. The thread runs the returned
/// closure.
pub(crate) fn in_crowd(name: &str, main: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    let crowd = CROWD.try_with(Cell::get).ok().flatten();
    let member = crowd.map(|crowd| {
        let mut book = book();
        let number = book.next();
        book.threads.insert(number, Thread { crowd, name: String::from(name), at: At::Runs, wakes: 0 });
        Member(number)
    });
    // The thread is in the record until it has ended, or could not be started.
    move || {
        CROWD.set(crowd);
        ME.set(member.as_ref().map(|Member(number)| *number));
        main();
        drop(member);
    }
}

struct Member(u64);

impl Drop for Member {
    fn drop(&mut self) {
        let mut book = book();
        if let Some(thread) = book.threads.remove(&self.0)
            && let Some(wakes) = book.wakes_of_ended.get_mut(&thread.crowd)
        {
            *wakes += thread.wakes;
        }
    }
}

/// Begins a new crowd for the threads that this thread starts. Returns its number, and that of the crowd before.
pub(crate) fn begin_crowd() -> (u64, Option<u64>) {
    let mut book = book();
    let number = book.next();
    book.wakes_of_ended.insert(number, 0);
    drop(book);
    (number, CROWD.replace(Some(number)))
}

/// Forgets a crowd that is no longer used.
pub(crate) fn end_crowd(crowd: u64) {
    book().wakes_of_ended.remove(&crowd);
}

/// How often a wait of a thread of this crowd has ended. Ended threads count, so this never shrinks.
pub(crate) fn wakes(crowd: u64) -> usize {
    let book = book();
    let living = book.threads.values().filter(|thread| thread.crowd == crowd).map(|thread| thread.wakes);
    living.sum::<usize>() + book.wakes_of_ended.get(&crowd).copied().unwrap_or_default()
}

/// Sets the crowd of the threads that this thread starts.
pub(crate) fn set_crowd(crowd: Option<u64>) {
    CROWD.set(crowd);
}

/// Returns the threads of a crowd, all at one moment.
pub(crate) fn seen(crowd: u64) -> Vec<Seen> {
    let book = book();
    let threads = book.threads.values().filter(|thread| thread.crowd == crowd);
    let seen = threads.map(|thread| {
        let waits_with_limit = match &thread.at {
            At::Waits { has_limit, is_notified: false, .. } => Some(*has_limit),
            _ => None,
        };
        Seen { name: thread.name.clone(), waits_with_limit }
    });
    seen.collect()
}

/// Wakes the threads of a crowd that are marked as notified and may not have been. Each of them looks again.
pub(crate) fn nudge(crowd: u64) {
    for thread in book().threads.values().filter(|thread| thread.crowd == crowd) {
        if let At::Waits { condvar, is_notified: true, .. } = &thread.at {
            condvar.real.notify_all();
        }
    }
}
