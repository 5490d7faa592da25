//! Counts the locks that a thread takes and holds, in the crate's own tests.
//!
//! A `Brief` lock counts as taken, and as held until its guard is dropped. A `Mutex` counts only as taken.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use spin::mutex::SpinMutexGuard;

std::thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<u64> = const { Cell::new(0) };
    static CLOCK_READINGS: Cell<u64> = const { Cell::new(0) };
    static CLOCK_READINGS_UNDER_A_LOCK: Cell<u64> = const { Cell::new(0) };
}

fn add(count: &'static std::thread::LocalKey<Cell<u64>>, n: u64) {
    count.set(count.get().wrapping_add(n));
}

/// The number of locks that this thread has taken.
pub(crate) fn taken() -> u64 {
    TAKEN.get()
}

/// How often this thread has read the clock of a runtime, and how often it held a lock then.
pub(crate) fn clock_readings() -> (u64, u64) {
    (CLOCK_READINGS.get(), CLOCK_READINGS_UNDER_A_LOCK.get())
}

/// Counts a lock that is taken.
pub(crate) fn count_lock() {
    add(&TAKEN, 1);
}

/// Counts a reading of the clock.
pub(crate) fn count_clock_reading() {
    add(&CLOCK_READINGS, 1);
    if HELD.get() > 0 {
        add(&CLOCK_READINGS_UNDER_A_LOCK, 1);
    }
}

/// The guard of a lock, which counts as held for as long as this lives.
pub(crate) struct BriefGuard<'a, T>(SpinMutexGuard<'a, T>);

/// Counts a lock that was taken. It counts as held until the guard is dropped.
pub(crate) fn counted<T>(guard: SpinMutexGuard<'_, T>) -> BriefGuard<'_, T> {
    count_lock();
    add(&HELD, 1);
    BriefGuard(guard)
}

impl<T> Drop for BriefGuard<'_, T> {
    fn drop(&mut self) {
        add(&HELD, u64::MAX);
    }
}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
