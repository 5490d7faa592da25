//! Things that other threads hand to the owners of bodies.
//!
//! Another thread may have the body when a thing comes. So the thing waits here, and the process is asked to look, as
//! for a future that was woken (`resident_waker.rs`). The owner of the body takes it at the beginning of the next turn.

use std::collections::BTreeMap;

use crate::pid::Pid;
use crate::primitives::{AtomicUsize, Mutex, Ordering, lock};

/// Things that wait for the owners of bodies.
///
/// They are in parts, by the slots of their processes. So things that wait for a process that is stuck make few other
/// processes take a lock.
pub(crate) struct Handed<T> {
    parts: [Part<T>; PARTS],
}

struct Part<T> {
    waiting: Mutex<Waiting<T>>,
    /// The number of their processes, so that few turns look.
    count: AtomicUsize,
}

struct Waiting<T> {
    things: BTreeMap<Pid, Vec<T>>,
    /// The number of processes at which all are looked at next.
    look_at: usize,
}

/// The number of parts: 64, so that one process in 64 shares the lock of a process that is stuck.
const PARTS: usize = if cfg!(loom) { 2 } else { 64 };

/// The number of processes of a part that are looked at each time.
const FEW: usize = 2;

impl<T> Default for Handed<T> {
    fn default() -> Handed<T> {
        Handed { parts: std::array::from_fn(|_| Part::default()) }
    }
}

impl<T> Default for Part<T> {
    fn default() -> Part<T> {
        let waiting = Waiting { things: BTreeMap::new(), look_at: 0 };
        Part { waiting: Mutex::new(waiting), count: AtomicUsize::new(0) }
    }
}

impl<T> Handed<T> {
    fn part(&self, pid: Pid) -> &Part<T> {
        &self.parts[pid.slot() as usize % PARTS]
    }

    /// Adds a thing for a process, which is asked to look afterwards. Those that it replaces are dropped, and those
    /// that nobody wants any more: among those of this process, and, now and then, among all of its part.
    pub(super) fn add(&self, pid: Pid, thing: T, replaces: impl Fn(&T) -> bool, is_wanted: impl Fn(Pid, &T) -> bool) {
        let Part { waiting, count } = self.part(pid);
        let Waiting { things: all, look_at } = &mut *lock(waiting);
        let things = all.entry(pid).or_default();
        things.retain(|old| !replaces(old));
        things.push(thing);
        // Behind it, because the process may have ended meanwhile.
        things.retain(|thing| is_wanted(pid, thing));
        if things.is_empty() {
            all.remove(&pid);
        }
        if all.len() >= *look_at {
            all.retain(|pid, things| {
                things.retain(|thing| is_wanted(*pid, thing));
                !things.is_empty()
            });
            // When they are few, always. When they are many, so seldom that it costs each a constant time.
            *look_at = if all.len() < FEW { 0 } else { 2 * all.len() };
        }
        count.store(all.len(), Ordering::Relaxed);
    }

    /// Takes those of a process.
    #[inline]
    pub(crate) fn take(&self, pid: Pid) -> Vec<T> {
        let part = self.part(pid);
        // Ordering: Relaxed: the request to look, under the lock of the cell, comes after the count.
        if part.count.load(Ordering::Relaxed) == 0 { Vec::new() } else { part.take(pid) }
    }
}

impl<T> Part<T> {
    #[cold]
    fn take(&self, pid: Pid) -> Vec<T> {
        #[cfg(all(test, not(loom)))]
        tests::LOOKS.set(tests::LOOKS.get() + 1);
        let Waiting { things, .. } = &mut *lock(&self.waiting);
        let taken = things.remove(&pid).unwrap_or_default();
        self.count.store(things.len(), Ordering::Relaxed);
        taken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    thread_local! {
        /// How often this thread has taken the lock of a part to take things.
        pub(super) static LOOKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    fn pid(slot: u32) -> Pid {
        Pid::new(1, slot, 1).unwrap()
    }

    impl<T> Handed<T> {
        fn waiting(&self) -> usize {
            self.parts.iter().map(|part| lock(&part.waiting).things.len()).sum()
        }
    }

    #[test]
    fn a_thing_replaces_those_of_its_process_and_no_other() {
        let handed = Handed::default();
        for _ in 0..10_000 {
            handed.add(pid(1), 'a', |old| *old == 'a', |_, _| true);
        }
        handed.add(pid(1), 'b', |_| false, |_, _| true);
        handed.add(pid(2), 'a', |old| *old == 'a', |_, _| true);
        assert_eq!((handed.take(pid(1)), handed.take(pid(2))), (vec!['a', 'b'], vec!['a']));
        assert_eq!(handed.waiting(), 0);
    }

    #[test]
    fn things_of_one_process_make_few_others_take_a_lock() {
        let handed = Handed::default();
        handed.add(pid(0), (), |_| false, |_, _| true);
        LOOKS.set(0);
        assert!((1..=640).all(|slot| handed.take(pid(slot)).is_empty()));
        assert_eq!((LOOKS.get(), handed.take(pid(0)).len()), (10, 1));
    }

    #[test]
    fn things_that_nobody_wants_do_not_pile_up_and_few_looks_see_to_it() {
        let (handed, looks) = (Handed::default(), std::cell::Cell::new(0));
        for slot in 0..10_000 {
            // Only the newest is wanted.
            handed.add(
                pid(slot),
                slot,
                |_| false,
                |_, thing| {
                    looks.set(looks.get() + 1);
                    *thing == slot
                },
            );
        }
        assert!(handed.waiting() <= 2 * FEW * PARTS, "{}", handed.waiting());
        // All are wanted.
        let handed = Handed::default();
        looks.set(0);
        for slot in 0..10_000 {
            handed.add(
                pid(slot),
                slot,
                |_| false,
                |_, _| {
                    looks.set(looks.get() + 1);
                    true
                },
            );
        }
        assert!(looks.get() < 100_000, "{}", looks.get());
        assert_eq!(handed.waiting(), 10_000);
    }
}
