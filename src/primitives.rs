//! The only door to atomics, locks, condition variables and threads.
//!
//! Every other file takes them from here, so that building with `--cfg loom` swaps the standard ones for those of the
//! model checker, and the protocols that we invent are checked as they stand. `Arc` and `OnceLock` are always the
//! standard ones: no protocol of ours rests on them alone (that of a question's timer has its other half in an atomic, which
//! is modelled), and the model's `Arc` cannot hold trait objects.
//!
//! With `--cfg procession_sanitize_thread` the locks are the standard ones with a shadow that the thread sanitizer sees;
//! `sync/watched.rs` says why.
//!
//! In the crate's own tests, the condition variable keeps a book of the threads that wait on it: `sync/parked.rs`.
//!
//! No lock of this crate is held while user code runs, so a poisoned lock cannot come from a panic of the user's; the
//! helpers below look through the poison instead of spreading it.

pub(crate) use std::sync::{Arc, Weak};

#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod parked;
#[cfg(all(procession_sanitize_thread, not(loom)))]
mod watched;

#[cfg(loom)]
pub(crate) use self::model::*;
#[cfg(not(loom))]
pub(crate) use self::real::*;

#[cfg(not(loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use std::thread;
    pub(crate) use std::thread::ThreadId;
    pub(crate) use std::thread_local;

    /// A lock for what is only ever held for a moment, and so often that the cost of unlocking counts. A thread that finds
    /// it taken looks again for a moment, and then gives its processor away, because the holder may be waiting for one.
    pub(crate) type Brief<T> = spin::mutex::SpinMutex<T, spin::Yield>;
    pub(crate) type BriefGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

    #[cfg(all(test, not(procession_sanitize_thread)))]
    pub(crate) use super::parked::{Condvar, Seen, begin_crowd, end_crowd, in_crowd, nudge, seen, set_crowd, wakes};
    #[cfg(procession_sanitize_thread)]
    pub(crate) use super::watched::{Condvar, Mutex, MutexGuard, OnceLock};
    #[cfg(not(any(test, procession_sanitize_thread)))]
    pub(crate) use std::sync::Condvar;
    #[cfg(not(procession_sanitize_thread))]
    pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock};
}

#[cfg(loom)]
mod model {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread;
    pub(crate) use loom::thread::ThreadId;
    pub(crate) use loom::thread_local;
    pub(crate) use std::sync::OnceLock;

    pub(crate) type Brief<T> = Mutex<T>;
    pub(crate) type BriefGuard<'a, T> = MutexGuard<'a, T>;
}

/// A counter that may be a static, also under the model checker: it is always the standard one, because an atomic of the model
/// belongs to one execution.
pub(crate) type StaticCounter = std::sync::atomic::AtomicU64;

use std::sync::PoisonError;
use std::time::Duration;

/// Locks, looking through poison.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks what is only ever locked for a moment.
#[cfg(not(loom))]
#[inline]
pub(crate) fn enter<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    match brief.try_lock() {
        Some(guard) => guard,
        None => enter_taken(brief),
    }
}

/// So often it is looked whether a lock that is held for a moment is free, before the processor is given away.
#[cfg(not(loom))]
const LOOKS: u32 = 64;

#[cfg(not(loom))]
#[cold]
fn enter_taken<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    for _ in 0..LOOKS {
        std::hint::spin_loop();
        if !brief.is_locked()
            && let Some(guard) = brief.try_lock()
        {
            return guard;
        }
    }
    brief.lock()
}

#[cfg(loom)]
pub(crate) fn enter<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    lock(brief)
}

/// Waits until notified (or woken for no reason: the caller looks again).
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until notified or until `limit` is over (or woken for no reason: the caller looks again).
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    match condvar.wait_timeout(guard, limit) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

/// Waits as [`wait`] does, for a clock that is moved by hand and notifies then: the wait has a limit all the same.
pub(crate) fn wait_for_clock<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    #[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
    return condvar.wait_for_clock(guard).unwrap_or_else(PoisonError::into_inner);
    #[cfg(not(all(test, not(any(loom, procession_sanitize_thread)))))]
    wait(condvar, guard)
}

/// Tests of the crate note which thread has started which; elsewhere this is `main`.
#[cfg(not(all(test, not(any(loom, procession_sanitize_thread)))))]
pub(crate) fn in_crowd(_name: &str, main: impl FnOnce() + Send + 'static) -> impl FnOnce() + Send + 'static {
    main
}
