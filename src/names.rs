//! Names of processes, within one runtime.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::process::Pid;
use crate::sync::Arc;

/// Who has which name. A name belongs to at most one process at a time.
#[derive(Default)]
pub(crate) struct Names {
    holders: DashMap<Arc<str>, Pid>,
    // The other way round, to look a process up.
    names: DashMap<Pid, Arc<str>>,
}

impl Names {
    /// Gives the name to the process, unless another has it: then that one's PID is the error.
    pub(crate) fn register(&self, name: &Arc<str>, pid: Pid) -> Result<(), Pid> {
        match self.holders.entry(name.clone()) {
            Entry::Occupied(taken) if *taken.get() != pid => Err(*taken.get()),
            Entry::Occupied(_) => Ok(()),
            Entry::Vacant(free) => {
                free.insert(pid);
                self.names.insert(pid, name.clone());
                Ok(())
            }
        }
    }

    /// Takes the name from the process, if it has it.
    pub(crate) fn unregister(&self, name: &str, pid: Pid) {
        self.holders.remove_if(name, |_, holder| *holder == pid);
        self.names.remove(&pid);
    }

    pub(crate) fn holder(&self, name: &str) -> Option<Pid> {
        self.holders.get(name).map(|holder| *holder)
    }

    pub(crate) fn of(&self, pid: Pid) -> Option<Arc<str>> {
        self.names.get(&pid).map(|name| name.clone())
    }

    /// All names with their holders, of no single moment.
    pub(crate) fn all(&self) -> Vec<(Pid, Arc<str>)> {
        self.holders.iter().map(|entry| (*entry.value(), entry.key().clone())).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_holder_and_only_the_holder_gives_it_back() {
        let (one, two): (Pid, Pid) = ("<1.1.1>".parse().unwrap(), "<1.2.1>".parse().unwrap());
        let (names, name) = (Names::default(), Arc::from("clerk"));
        names.register(&name, one).unwrap();
        names.register(&name, one).unwrap();
        assert_eq!(names.register(&name, two), Err(one));
        names.unregister("clerk", two);
        assert_eq!((names.holder("clerk"), names.of(one), names.of(two)), (Some(one), Some(name), None));
        names.unregister("clerk", one);
        assert_eq!((names.holder("clerk"), names.of(one)), (None, None));
        assert!(names.all().is_empty());
    }
}
