//! The only source of atomics, locks, condition variables and threads.
//!
//! Every other file imports them from here. With `--cfg loom` they are those of the model checker, so the protocols
//! of the crate are checked as they are. `Arc` and `OnceLock` are always the standard ones. No protocol of the crate
//! rests on them alone: that of a question's timer has its other half in an atomic, which is modelled. The model's
//! `Arc` cannot hold trait objects.
//!
//! With `--cfg procession_sanitize_thread` the locks are the standard ones with a shadow that the thread sanitizer
//! sees; `primitives/watched.rs` says why.
//!
//! In the crate's own tests, the condition variable records the threads that wait on it: `primitives/parked.rs`. Each
//! thread counts the locks that it takes: `primitives/locks.rs`.
//!
//! No lock of this crate is held while user code runs. So a panic of user code cannot poison a lock. The helpers
//! below ignore poison.

pub(crate) use std::sync::{Arc, Weak};

#[cfg(all(test, not(loom)))]
pub(crate) mod locks;
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
    pub(crate) use std::thread::{LocalKey, ThreadId};
    pub(crate) use std::thread_local;

    /// A lock for values that are held only for a moment, but very often. So the cost of unlocking counts.
    ///
    /// A thread that finds it locked spins for a moment. Then it yields its processor, because the holder may be
    /// waiting for one.
    pub(crate) type Brief<T> = spin::mutex::SpinMutex<T, spin::Yield>;

    #[cfg(test)]
    pub(crate) use super::locks::{BriefGuard, counted};
    #[cfg(not(test))]
    pub(crate) type BriefGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;
    /// The guard of a lock that was taken. Only the crate's own tests count them.
    #[cfg(not(test))]
    #[inline]
    pub(crate) fn counted<T>(guard: BriefGuard<'_, T>) -> BriefGuard<'_, T> {
        guard
    }

    #[cfg(all(test, not(procession_sanitize_thread)))]
    pub(crate) use super::parked::{Condvar, Crowd, Seen, in_crowd};
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
    pub(crate) use loom::thread::{LocalKey, ThreadId};
    pub(crate) use loom::thread_local;
    pub(crate) use std::sync::OnceLock;

    pub(crate) type Brief<T> = Mutex<T>;
    pub(crate) type BriefGuard<'a, T> = MutexGuard<'a, T>;
}

/// A counter that may be a static, also under the model checker. It is always the standard atomic, because an atomic
/// of the model belongs to one execution.
pub(crate) type StaticCounter = std::sync::atomic::AtomicU64;

use std::sync::PoisonError;
#[cfg(feature = "durable")]
use std::sync::TryLockError;
use std::time::Duration;

/// Locks, ignoring poison.
#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    #[cfg(all(test, not(loom)))]
    locks::count_lock();
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, ignoring poison, unless it is locked.
#[cfg(feature = "durable")]
pub(crate) fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks a value that is only ever locked for a moment.
#[cfg(not(loom))]
#[inline]
pub(crate) fn enter<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    match brief.try_lock() {
        Some(guard) => counted(guard),
        None => enter_taken(brief),
    }
}

/// How often a thread looks whether such a lock is free before it yields its processor.
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
            return counted(guard);
        }
    }
    if LOOKING.get() {
        return enter_looking(brief);
    }
    counted(brief.lock())
}

#[cfg(not(loom))]
std::thread_local! {
    /// Whether the thread looks at processes that it has locked itself.
    static LOOKING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// How often a thread that looks yields its processor before it takes itself for the holder of the lock.
#[cfg(not(loom))]
const YIELDS: u32 = 1_000;

/// Runs code that looks at processes, while this thread holds the locks of their cells. If the code locks one of them
/// again, that panics.
#[cfg(not(loom))]
pub(crate) fn while_looking<R>(look: impl FnOnce() -> R) -> R {
    struct Looking;

    impl Drop for Looking {
        fn drop(&mut self) {
            LOOKING.set(false);
        }
    }

    LOOKING.set(true);
    let _looking = Looking;
    look()
}

/// Whether the calling thread is in such code.
#[cfg(not(loom))]
pub(crate) fn is_looking() -> bool {
    LOOKING.get()
}

#[cfg(loom)]
pub(crate) fn is_looking() -> bool {
    false
}

#[cfg(loom)]
pub(crate) fn while_looking<R>(look: impl FnOnce() -> R) -> R {
    look()
}

/// Locks a value for a thread that looks. Otherwise such a thread would wait for itself for ever.
#[cfg(not(loom))]
fn enter_looking<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    for _ in 0..YIELDS {
        match brief.try_lock() {
            Some(guard) => return counted(guard),
            None => std::thread::yield_now(),
        }
    }
    panic!("a look at a simulated world must not reach its processes through the runtime: use the `WorldState`");
}

#[cfg(loom)]
pub(crate) fn enter<T>(brief: &Brief<T>) -> BriefGuard<'_, T> {
    lock(brief)
}

/// Waits until notified. There may be spurious wakeups, so the caller looks again.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits until notified or until `limit` is over. There may be spurious wakeups, so the caller looks again.
pub(crate) fn wait_for<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, limit: Duration) -> MutexGuard<'a, T> {
    match condvar.wait_timeout(guard, limit) {
        Ok((guard, _)) => guard,
        Err(poisoned) => poisoned.into_inner().0,
    }
}

/// Waits as [`wait`] does, for a manual clock, which notifies when it is moved. The wait counts as one with a limit.
pub(crate) fn wait_for_clock<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    #[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
    return condvar.wait_for_clock(guard).unwrap_or_else(PoisonError::into_inner);
    #[cfg(not(all(test, not(any(loom, procession_sanitize_thread)))))]
    wait(condvar, guard)
}

/// Records which thread has started which, in tests of the crate. Elsewhere this returns `main`.
#[cfg(not(all(test, not(any(loom, procession_sanitize_thread)))))]
pub(crate) fn in_crowd<T>(
    _name: &str,
    main: impl FnOnce() -> T + Send + 'static,
) -> impl FnOnce() -> T + Send + 'static {
    main
}
