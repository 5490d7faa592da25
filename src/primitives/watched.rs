//! The standard locks, for the thread sanitizer.
//!
//! The sanitizer sees only code that was compiled with it. The standard library was not. The slow paths of its locks
//! (a contended `lock`, and all of `Condvar::wait`) are not compiled again with our code. So the sanitizer does not
//! see the order that they make, and reports a race. Each lock here has a shadow that is acquired after it and
//! released before it, in code that is compiled with the sanitizer. The shadow makes the same order visible. It adds
//! no order that the lock does not make.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LockResult, PoisonError, WaitTimeoutResult};
#[cfg(feature = "durable")]
use std::sync::{TryLockError, TryLockResult};
use std::time::Duration;

#[derive(Default, Debug)]
pub(crate) struct Mutex<T: ?Sized> {
    shadow: AtomicUsize,
    real: std::sync::Mutex<T>,
}

pub(crate) struct MutexGuard<'a, T: ?Sized> {
    // Released before the lock is: fields are dropped in this order.
    shadow: Shadow<'a>,
    real: std::sync::MutexGuard<'a, T>,
}

struct Shadow<'a>(&'a AtomicUsize);

impl<'a> Shadow<'a> {
    fn acquire(word: &'a AtomicUsize) -> Shadow<'a> {
        word.fetch_add(1, Ordering::Acquire);
        Shadow(word)
    }
}

impl Drop for Shadow<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Mutex<T> {
        Mutex { shadow: AtomicUsize::new(0), real: std::sync::Mutex::new(value) }
    }

    pub(crate) fn into_inner(self) -> LockResult<T> {
        self.real.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let real = self.real.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { shadow: Shadow::acquire(&self.shadow), real })
    }

    #[cfg(feature = "durable")]
    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let real = match self.real.try_lock() {
            Ok(real) => real,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        };
        Ok(MutexGuard { shadow: Shadow::acquire(&self.shadow), real })
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.real.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.real
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.real
    }
}

#[derive(Default, Debug)]
pub(crate) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub(crate) fn new() -> Condvar {
        Condvar::default()
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { shadow, real } = guard;
        let word = shadow.0;
        drop(shadow);
        let real = self.0.wait(real).unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { shadow: Shadow::acquire(word), real })
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let MutexGuard { shadow, real } = guard;
        let word = shadow.0;
        drop(shadow);
        let (real, result) = self.0.wait_timeout(real, limit).unwrap_or_else(PoisonError::into_inner);
        Ok((MutexGuard { shadow: Shadow::acquire(word), real }, result))
    }
}

/// A cell that is set once. It appears set only when the sanitizer can see that, too, which is a little later.
pub(crate) struct OnceLock<T> {
    real: std::sync::OnceLock<T>,
    shadow: AtomicBool,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> OnceLock<T> {
        OnceLock { real: std::sync::OnceLock::new(), shadow: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.real.get().filter(|_| self.shadow.load(Ordering::Acquire))
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        *self.shadow.get_mut() = false;
        self.real.take()
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        self.real.set(value)?;
        self.shadow.store(true, Ordering::Release);
        Ok(())
    }

    pub(crate) fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        let mut first = false;
        let value = self.real.get_or_init(|| {
            first = true;
            init()
        });
        if first {
            self.shadow.store(true, Ordering::Release);
        }
        while !self.shadow.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        value
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        OnceLock { real: std::sync::OnceLock::from(value), shadow: AtomicBool::new(true) }
    }
}
