//! Names of processes, within one runtime.
//!
//! A process may have several names, and a name at most one holder. Both directions are kept. Taking a name and the end of
//! its holder may come at once; who takes it, in the critical section of the name:
//!
//! 1. notes the name with the process;
//! 2. marks the process's cell, if it lives; if not, takes the note back, and the name stays free;
//! 3. writes the holder.
//!
//! The end first vacates the cell, which says whether it was marked, and then takes what is noted with the process, name by
//! name. If the mark came first, the note is there, and the end waits at the name until the holder is written. If the
//! vacating came first, the mark is refused. So no name is left with a process that has ended.

use std::collections::BTreeMap;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::process::{NameError, Pid};
use crate::sync::Arc;

/// Who has which name.
#[derive(Default)]
pub(crate) struct Names {
    // With the place of the name among those of its holder.
    holders: DashMap<Arc<str>, (Pid, u64)>,
    // The other way round, in the order in which they were taken.
    of: DashMap<Pid, BTreeMap<u64, Arc<str>>>,
}

impl Names {
    /// Gives the name to a process, if that lives, which `mark` is asked.
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
                    return Err(NameError::NoSuchProcess { pid });
                }
                free.insert((pid, place));
                Ok(())
            }
        }
    }

    /// Notes a name with a process, behind its others.
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

    /// Takes the name from its holder: any, or only this one. Whose it was.
    pub(crate) fn unregister(&self, name: &str, from: Option<Pid>) -> Option<Pid> {
        let Entry::Occupied(taken) = self.holders.entry(Arc::from(name)) else { return None };
        let (holder, place) = *taken.get();
        if from.is_some_and(|from| from != holder) {
            return None;
        }
        self.forget(place, holder);
        taken.remove();
        Some(holder)
    }

    /// A process has ended: its names are free.
    pub(crate) fn ended(&self, pid: Pid) {
        let Some((_, names)) = self.of.remove(&pid) else { return };
        for name in names.into_values() {
            self.holders.remove_if(&name, |_, (holder, _)| *holder == pid);
        }
    }

    pub(crate) fn holder(&self, name: &str) -> Option<Pid> {
        self.holders.get(name).map(|holder| holder.0)
    }

    /// The names of a process, in the order in which it took them.
    pub(crate) fn of(&self, pid: Pid) -> Vec<Arc<str>> {
        self.of.get(&pid).map(|names| names.values().cloned().collect()).unwrap_or_default()
    }

    /// All processes that have names, with these, of no single moment.
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
        assert_eq!(names.unregister("clerk", Some(two)), None);
        assert_eq!((names.holder("clerk"), names.of(one), names.of(two)), (Some(one), vec![name, other], vec![]));
        assert_eq!(names.unregister("clerk", None), Some(one));
        assert_eq!((names.holder("clerk"), names.holder("cashier")), (None, Some(one)));
        names.ended(one);
        assert!(names.all().is_empty() && names.holder("cashier").is_none());
    }

    #[test]
    fn a_name_is_not_given_to_the_ended_and_nothing_is_left_of_the_attempt() {
        let pid: Pid = "<1.1.1>".parse().unwrap();
        let (names, name) = (Names::default(), Arc::from("clerk"));
        assert_eq!(names.register(&name, pid, || false), Err(NameError::NoSuchProcess { pid }));
        assert_eq!(names.register(&Arc::from(""), pid, || true), Err(NameError::Empty));
        assert!(names.all().is_empty() && names.holder("clerk").is_none());
    }
}
