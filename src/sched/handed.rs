//! Things that other threads hand to the owners of bodies.
//!
//! Another thread may have the body when a thing comes. So the thing waits here, and the process is asked to look, as
//! for a future that was woken (`resident_waker.rs`). The owner of the body takes it at the beginning of the next turn.

use std::collections::BTreeMap;

use crate::pid::Pid;
use crate::primitives::{AtomicUsize, Mutex, Ordering, lock};

/// Things that wait for the owners of bodies.
pub(crate) struct Handed<T> {
    waiting: Mutex<BTreeMap<Pid, Vec<T>>>,
    /// The number of their processes, so that few turns look.
    count: AtomicUsize,
}

impl<T> Default for Handed<T> {
    fn default() -> Handed<T> {
        Handed { waiting: Mutex::default(), count: AtomicUsize::new(0) }
    }
}

impl<T> Handed<T> {
    /// Adds a thing for a process, which is asked to look afterwards. Things that nobody wants any more are dropped.
    pub(super) fn add(&self, pid: Pid, thing: T, is_wanted: impl Fn(Pid, &T) -> bool) {
        let waiting = &mut *lock(&self.waiting);
        waiting.entry(pid).or_default().push(thing);
        // Behind it, because the process may have ended meanwhile.
        waiting.retain(|pid, things| {
            things.retain(|thing| is_wanted(*pid, thing));
            !things.is_empty()
        });
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Whether nothing waits for any process.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Ordering: Relaxed: the request to look, under the lock of the cell, comes after the count.
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Takes those of a process.
    #[inline]
    pub(crate) fn take(&self, pid: Pid) -> Vec<T> {
        if self.is_empty() { Vec::new() } else { self.take_now(pid) }
    }

    #[cold]
    fn take_now(&self, pid: Pid) -> Vec<T> {
        let waiting = &mut *lock(&self.waiting);
        let taken = waiting.remove(&pid).unwrap_or_default();
        self.count.store(waiting.len(), Ordering::Relaxed);
        taken
    }
}
