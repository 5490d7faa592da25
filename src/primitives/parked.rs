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

    fn threads_of(&self, crowd: &Crowd) -> impl Iterator<Item = &Thread> {
        let number = crowd.number;
        self.threads.values().filter(move |thread| thread.crowd == number)
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
pub(crate) fn in_crowd<T>(
    name: &str,
    main: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T + Send + 'static {
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
        let result = main();
        drop(member);
        result
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

/// The threads started by the thread that made this, and by those threads, until it is dropped.
pub(crate) struct Crowd {
    number: u64,
    before: Option<u64>,
}

impl Crowd {
    pub(crate) fn new() -> Crowd {
        let mut book = book();
        let number = book.next();
        book.wakes_of_ended.insert(number, 0);
        Crowd { number, before: CROWD.replace(Some(number)) }
    }

    /// Returns the threads, all at one moment.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let seen = |thread: &Thread| {
            let waits_with_limit = match &thread.at {
                At::Waits { has_limit, is_notified: false, .. } => Some(*has_limit),
                _ => None,
            };
            Seen { name: thread.name.clone(), waits_with_limit }
        };
        book().threads_of(self).map(seen).collect()
    }

    /// Returns how often a wait of these threads has ended. Threads that have ended count, so this never shrinks.
    pub(crate) fn wakes(&self) -> usize {
        let book = book();
        book.threads_of(self).map(|thread| thread.wakes).sum::<usize>() + book.wakes_of_ended[&self.number]
    }

    /// Wakes the threads that are marked as notified and may not have been. Each of them looks again.
    pub(crate) fn nudge(&self) {
        for thread in book().threads_of(self) {
            if let At::Waits { condvar, is_notified: true, .. } = &thread.at {
                condvar.real.notify_all();
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        CROWD.set(self.before);
        book().wakes_of_ended.remove(&self.number);
    }
}
