//! Links between processes of a store and ordinary ones: the parts of them that are in memory.

use std::collections::{BTreeMap, VecDeque};

use super::coding::Run;
use super::journal::Position;
use super::rows::FirstEnd;
use super::tail::Life;
use crate::pid::Pid;
use crate::process::{ExitSignal, LinkedBy};
use crate::sched::non_local::LinkChange;

/// The part that a residence has of the links of its process, besides the table of relations.
#[derive(Default)]
pub(super) struct OutsideLinks {
    /// The changes that steps have made and that are not performed, in order. Each has the number of the entry that is
    /// left by the step, if there is one.
    held: BTreeMap<Pid, VecDeque<Option<u64>>>,
    /// The first end of each linked process, until the record that takes it is on disk.
    exits: BTreeMap<Pid, OutsideExit>,
    /// How many exits have come.
    came: u64,
    /// Exits of links that were removed. They are dropped when no lock is held.
    needless: Vec<ExitSignal>,
    /// Whether another process has changed something since the last load began.
    pub(super) is_changed: bool,
}

/// The end of an ordinary process.
struct OutsideExit {
    exit: ExitSignal,
    by: LinkedBy,
    came: u64,
    /// The last record that is to be on disk before the exit is forgotten. `None` if the process is to be told.
    taken: Option<(Life, Position)>,
}

/// The links of a process as the residence shows them.
#[derive(Default)]
pub(super) struct OutsideView {
    /// The processes whose links are as the last step has left them.
    pub(super) held: Vec<Pid>,
    /// The exits that are to be told, in the order in which they came.
    pub(super) exits: Vec<(ExitSignal, LinkedBy)>,
}

impl OutsideLinks {
    /// Notes that the record of a step has changed this link.
    pub(super) fn hold(&mut self, pid: Pid, entry: Option<u64>) {
        self.held.entry(pid).or_default().push_back(entry);
    }

    /// The changes that were not performed when the process left memory.
    pub(super) fn take_held(&mut self) -> BTreeMap<Pid, VecDeque<Option<u64>>> {
        std::mem::take(&mut self.held)
    }

    /// Notes a change in the table of relations.
    pub(super) fn changed(&mut self, LinkChange { other, begins, by_me }: LinkChange) {
        if !by_me {
            self.is_changed = true;
            return;
        }
        if let Some(held) = self.held.get_mut(&other) {
            held.pop_front();
            if held.is_empty() {
                self.held.remove(&other);
            }
        }
        if !begins && self.exits.get(&other).is_some_and(|exit| exit.taken.is_none()) {
            self.needless.extend(self.exits.remove(&other).map(|exit| exit.exit));
        }
    }

    /// Notes the end of a process. Returns an exit that is not needed.
    pub(super) fn ended(&mut self, exit: ExitSignal, by: LinkedBy) -> Option<(ExitSignal, LinkedBy)> {
        if self.exits.get(&exit.pid).is_some_and(|before| before.taken.is_none()) {
            return Some((exit, by));
        }
        (self.is_changed, self.came) = (true, self.came + 1);
        let new = OutsideExit { came: self.came, by, taken: None, exit };
        self.exits.insert(new.exit.pid, new).map(|before| (before.exit, before.by))
    }

    /// Notes that a record has taken the exits of these processes. Returns whether there are any.
    pub(super) fn take(
        &mut self,
        pids: &[Pid],
        record: (Life, Position),
        is_lost: impl Fn((Life, Position)) -> bool,
    ) -> bool {
        let mut is_taken = false;
        for pid in pids {
            if let Some(exit) = self.exits.get_mut(pid).filter(|exit| exit.taken.is_none_or(&is_lost)) {
                (exit.taken, is_taken) = (Some(record), true);
            }
        }
        is_taken
    }

    /// Forgets the exits that a record on disk has taken. They are to be dropped when no lock is held.
    pub(super) fn forget(&mut self, record: (Life, Position)) -> Vec<ExitSignal> {
        let taken = self.exits.extract_if(.., |_, exit| exit.taken == Some(record));
        taken.map(|(_, exit)| exit.exit).collect()
    }

    /// Forgets all of a process that has ended. To be dropped when no lock is held.
    pub(super) fn forget_all(&mut self) -> OutsideLinks {
        std::mem::take(self)
    }

    /// The exits that this record has taken are to be told again, because it is lost. Returns whether there are any.
    pub(super) fn give_back(&mut self, record: (Life, Position)) -> bool {
        let lost = self.exits.values_mut().filter(|exit| exit.taken == Some(record));
        lost.map(|exit| exit.taken = None).count() > 0
    }

    /// Exits that are to be dropped, with no lock held.
    pub(super) fn take_needless(&mut self) -> Vec<ExitSignal> {
        std::mem::take(&mut self.needless)
    }

    /// The links, and what is to be told.
    pub(super) fn view(&self, is_lost: impl Fn((Life, Position)) -> bool) -> OutsideView {
        // A load may come before those are told that wait for the records that it finds lost.
        let is_untold =
            |exit: &&OutsideExit| exit.taken.is_none_or(&is_lost) && !self.held.contains_key(&exit.exit.pid);
        let mut exits: Vec<&OutsideExit> = self.exits.values().filter(is_untold).collect();
        exits.sort_by_key(|exit| exit.came);
        let exits = exits.into_iter().map(|exit| (exit.exit.clone(), exit.by)).collect();
        OutsideView { held: self.held.keys().copied().collect(), exits }
    }

    /// Whether nothing is here for which the process would be loaded.
    pub(super) fn is_settled(&self) -> bool {
        self.held.is_empty() && self.exits.values().all(|exit| exit.taken.is_some())
    }

    /// Whether nothing is here.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.exits.is_empty() && self.needless.is_empty()
    }
}

impl OutsideView {
    /// The cause of the end of a process that traps no exits, if one of these ends it.
    pub(super) fn ending(&self, run: Run) -> Option<FirstEnd> {
        self.exits.iter().find_map(|(exit, _)| FirstEnd::of_ordinary(run.note(exit.pid), &exit.exit, run))
    }
}

/// The part that a process in memory has of its links, besides its ties.
#[derive(Default)]
pub(super) struct OutsideSeen {
    /// The links whose ends are events in its mailbox, in order.
    pub(super) offered: Vec<(u64, u64)>,
    /// The cause of its end, if one of these processes ends it.
    pub(super) end: Option<FirstEnd>,
}

#[cfg(all(test, not(loom)))]
mod tests;
