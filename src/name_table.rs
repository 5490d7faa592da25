//! Names of processes, within one runtime.
//!
//! A process may have several names, and a name has at most one holder. Both directions are stored. A registration
//! and the end of the holder may happen at once. A registration does this in the critical section of the name:
//!
//! 1. It notes the name with the process.
//! 2. It marks the process's cell, if the process lives. If not, it takes the note back, and the name stays free.
//! 3. It writes the holder.
//!
//! The end first vacates the cell, which says whether it was marked. Then it takes the names that are noted with the
//! process, one by one. If the mark came first, the note is there, and the end waits at the name until the holder is
//! written. If the vacating came first, the mark is refused. So an ended process keeps no name.

use std::collections::BTreeMap;
use std::hash::Hash;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::primitives::{Arc, AtomicUsize, Ordering};
use crate::process::{NameError, NoSuchProcessError, Pid};

/// The number of removals after which a map is checked. It may have room for far more entries than it has.
const TAKEN_OUT: usize = 4096;

/// Counts removals from a map, and releases memory of the map.
#[derive(Default)]
pub(crate) struct Removals(AtomicUsize);

impl Removals {
    /// Counts one removal. From time to time a map that has lost most of its entries releases memory. This happens at
    /// most as often as it can have lost so many, so the cost for each removal is constant.
    pub(crate) fn count<K: Eq + Hash, V>(&self, map: &DashMap<K, V>) {
        // Ordering: Relaxed: only the number of counts matters.
        if self.0.fetch_add(1, Ordering::Relaxed) % TAKEN_OUT == TAKEN_OUT - 1 {
            let held = map.len();
            if map.capacity() > 8 * held.max(TAKEN_OUT) {
                map.shrink_to_fit();
            }
        }
    }
}

/// All names and their holders.
#[derive(Default)]
pub(crate) struct Names {
    // Each with the place of the name among the names of its holder.
    holders: DashMap<Arc<str>, (Pid, u64)>,
    // The names of each process, in the order in which they were taken.
    of: DashMap<Pid, BTreeMap<u64, Arc<str>>>,
    names_gone: Removals,
    holders_gone: Removals,
}

impl Names {
    /// Gives the name to a process, if the process lives. `mark` marks its cell, and returns whether it lives.
    pub(crate) fn register(&self, name: &Arc<str>, pid: Pid, mark: impl FnOnce() -> bool) -> Result<(), NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        match self.holders.entry(name.clone()) {
            Entry::Occupied(taken) if taken.get().0 != pid => {
                Err(NameError::Taken { name: name.clone(), holder: taken.get().0 })
            }
            Entry::Occupied(_) => Ok(()),
            Entry::Vacant(free) => {
                let place = self.note(name, pid);
                if !mark() {
                    self.forget(place, pid);
                    return Err(NameError::NoSuchProcess(NoSuchProcessError::Pid(pid)));
                }
                free.insert((pid, place));
                Ok(())
            }
        }
    }

    /// Notes a name with a process, after its other names.
    fn note(&self, name: &Arc<str>, pid: Pid) -> u64 {
        let mut of = self.of.entry(pid).or_default();
        let place = of.last_key_value().map_or(0, |(last, _)| last + 1);
        of.insert(place, name.clone());
        place
    }

    fn forget(&self, place: u64, pid: Pid) {
        if let Entry::Occupied(mut of) = self.of.entry(pid) {
            of.get_mut().remove(&place);
            if of.get().is_empty() {
                of.remove();
            }
        }
    }

    /// Takes the name from its holder. Returns the process that had it.
    pub(crate) fn unregister(&self, name: &str) -> Option<Pid> {
        let Entry::Occupied(taken) = self.holders.entry(Arc::from(name)) else { return None };
        let (holder, place) = *taken.get();
        self.forget(place, holder);
        taken.remove();
        self.names_gone.count(&self.holders);
        self.holders_gone.count(&self.of);
        Some(holder)
    }

    /// Frees the names of a process that has ended.
    pub(crate) fn ended(&self, pid: Pid) {
        let Some((_, names)) = self.of.remove(&pid) else { return };
        for name in names.into_values() {
            self.holders.remove_if(&name, |_, (holder, _)| *holder == pid);
            self.names_gone.count(&self.holders);
        }
        self.holders_gone.count(&self.of);
    }

    pub(crate) fn holder(&self, name: &str) -> Option<Pid> {
        self.holders.get(name).map(|holder| holder.0)
    }

    /// The names of a process, in the order in which it took them.
    pub(crate) fn of(&self, pid: Pid) -> Vec<Arc<str>> {
        self.of.get(&pid).map(|names| names.values().cloned().collect()).unwrap_or_default()
    }

    /// All processes that have names, with their names. The entries are not of one single moment.
    pub(crate) fn all(&self) -> Vec<(Pid, Vec<Arc<str>>)> {
        self.of.iter().map(|entry| (*entry.key(), entry.value().values().cloned().collect())).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_holder_and_only_the_holder_gives_it_back() {
        let (one, two): (Pid, Pid) = ("<1.1.1>".parse().unwrap(), "<1.2.1>".parse().unwrap());
        let (names, name, other) = (Names::default(), Arc::from("clerk"), Arc::from("cashier"));
        let lives = || true;
        names.register(&name, one, lives).unwrap();
        names.register(&name, one, lives).unwrap();
        names.register(&other, one, lives).unwrap();
        assert_eq!(names.register(&name, two, lives), Err(NameError::Taken { name: name.clone(), holder: one }));
        assert_eq!((names.holder("clerk"), names.of(one), names.of(two)), (Some(one), vec![name, other], vec![]));
        assert_eq!(names.unregister("clerk"), Some(one));
        assert_eq!((names.holder("clerk"), names.holder("cashier")), (None, Some(one)));
        names.ended(one);
        assert!(names.all().is_empty() && names.holder("cashier").is_none());
    }

    #[test]
    fn a_name_is_not_given_to_the_ended_and_nothing_is_left_of_the_attempt() {
        let pid: Pid = "<1.1.1>".parse().unwrap();
        let (names, name) = (Names::default(), Arc::from("clerk"));
        assert_eq!(names.register(&name, pid, || false), Err(NameError::NoSuchProcess(NoSuchProcessError::Pid(pid))));
        assert_eq!(names.register(&Arc::from(""), pid, || true), Err(NameError::Empty));
        assert!(names.all().is_empty() && names.holder("clerk").is_none());
    }

    #[test]
    fn only_after_many_removals_is_the_memory_of_a_map_looked_at() {
        let (removals, map) = (Removals::default(), DashMap::<u64, ()>::with_capacity(16 * TAKEN_OUT));
        (1..TAKEN_OUT).for_each(|_| removals.count(&map));
        assert!(map.capacity() >= 16 * TAKEN_OUT);
        removals.count(&map);
        assert_eq!(map.capacity(), 0);
    }

    #[test]
    fn when_most_names_are_gone_so_is_the_memory_for_them() {
        let (names, pids) = (Names::default(), || (0..100_000).filter_map(|slot| Pid::new(1, slot, 1)));
        let name = |pid: Pid| Arc::from(pid.to_string());
        pids().for_each(|pid| names.register(&name(pid), pid, || true).unwrap());
        assert!(names.holders.capacity() >= 100_000 && names.of.capacity() >= 100_000);
        pids().filter(|pid| pid.slot() % 2 == 0).for_each(|pid| names.ended(pid));
        pids().filter(|pid| pid.slot() % 2 == 1).for_each(|pid| assert!(names.unregister(&name(pid)).is_some()));
        assert_eq!((names.holders.len(), names.of.len()), (0, 0));
        let most = 2 * 8 * TAKEN_OUT;
        assert!(names.holders.capacity() < most && names.of.capacity() < most);
    }
}
