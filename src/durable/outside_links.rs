//! Links between processes of a store and ordinary ones.
//!
//! Such a link is an entry of the durable process, with the PID of the other one. Its number is like no other. In the
//! table of relations the link stands under the PID that others know. So it stays there when the process leaves memory,
//! and its end is told by its last record, as all ends are told.
//!
//! *The durable process links.* The record of the step has the entry. When it is on disk, the link is performed. A load
//! performs it again, which changes nothing, or tells that there is no such process any more.
//!
//! *The ordinary process links, unlinks or ends.* That comes to the residence of the durable one, in order and under
//! the locks of relations, and loads it if it sleeps. The durable process sees it in a turn of its own. So no other
//! thread changes its entries. While changes of its own steps are held, the last step decides what the entry is.
//!
//! *An exit* needs the entry: it is the right to be told. If the process traps exits, the exit is an event, and the
//! record of the step that takes it removes the entry. Otherwise the process ends, unless the other one was done.
//!
//! *A kill.* An entry of an earlier run tells of a process that has ended with its runtime. It is due at once, so the
//! start loads the process. A link that an ordinary process has made may be lost if the kill comes before it is stored.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use super::coding::Run;
use super::contract::Durable;
use super::core::{Found, StepError, StoreCore};
use super::machine::DurableMachine;
use super::outside::Outside;
use super::residency::{Call, Place, Resident, Taken};
use super::rows::{DownExit, FirstEnd};
use super::ties::Ties;
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::{ExitSignal, LinkedBy, Relate};
use crate::runtime::Core;
use crate::sched::body::Ready;
use crate::sched::mailbox::{AnyMailbox, Control, Signal, Unwanted};
use crate::sched::non_local::LinkChange;
use crate::sched::turn::Engine;

impl<P: Durable> DurableMachine<P> {
    /// Notes the links to ordinary processes that a step begins and ends, and those whose exits it has taken.
    pub(super) fn change_outside(
        &self,
        ties: &mut Ties,
        taken: &Taken,
        links: &[(Pid, bool)],
    ) -> Result<(), StepError> {
        self.taken_outside(taken).iter().for_each(|noted| _ = ties.outside.remove(noted));
        for (pid, begins) in links {
            let noted = self.store.run.note(*pid);
            if !*begins {
                ties.outside.remove(&noted);
            } else if let Entry::Vacant(new) = ties.outside.entry(noted) {
                new.insert(self.store.number().map_err(|_| StepError::Rewound)?);
            }
        }
        Ok(())
    }

    /// The links whose exits a step has taken. Processes of earlier runs have one PID, so the first ones count.
    fn taken_outside(&self, taken: &Taken) -> Vec<(u64, u64)> {
        let mut offered = self.outside.offered.clone();
        let place =
            |offered: &[(u64, u64)], pid| offered.iter().position(|noted| self.store.run.read(*noted) == Some(pid));
        let taken = taken.exits.iter();
        taken.filter_map(|exit| place(&offered, exit.pid).map(|place| offered.remove(place))).collect()
    }

    /// The record of a step is appended that has taken these exits and changed these links.
    pub(super) fn settle_outside(&mut self, taken: &Taken, links: &[(Pid, bool)], is_over: bool) {
        if is_over {
            // Its links are performed when it has ended, and that is too late for the table of relations.
            let links: BTreeMap<Pid, bool> = links.iter().copied().collect();
            let begun = links.into_iter().filter(|(_, begins)| *begins);
            *lock(&self.resident.last_outside) = begun.map(|(pid, _)| pid).collect();
            return;
        }
        if links.is_empty() && self.outside.offered.is_empty() {
            return;
        }
        let gone = self.taken_outside(taken);
        self.outside.offered.retain(|noted| !gone.contains(noted));
        for (pid, _) in links {
            *self.outside.held.entry(*pid).or_default() += 1;
            self.forget_outside(*pid);
        }
    }

    /// Takes the exit of an ordinary process out of the mailbox.
    fn forget_outside(&mut self, pid: Pid) {
        let noted = self.store.run.note(pid);
        if self.outside.offered.contains(&noted) {
            self.outside.offered.retain(|other| *other != noted);
            self.forget(&HashSet::from([Unwanted::Exit(pid)]));
        }
    }

    /// Sees the changes of links to ordinary processes.
    pub(super) fn see_outside(&mut self) {
        let (serial, run) = (self.resident.serial, self.store.run);
        let changes = self.store.residency.enter(serial, |residence| {
            residence.seen_outside = 0;
            std::mem::take(&mut residence.outside)
        });
        let mut ties = self.ties.clone();
        let over = |(noted, _): (&(u64, u64), &u64)| (noted.0 != run.number).then_some(*noted);
        let over: Vec<(u64, u64)> = ties.outside.iter().filter_map(over).collect();
        for noted in over {
            let Some(pid) = run.read(noted) else { continue };
            let exit = ExitSignal { pid, exit: Exit::Terminated(Reason::Shutdown) };
            self.see_exit_outside(&mut ties, noted, (exit, LinkedBy::OTHER));
        }
        for change in changes {
            match change {
                Outside::Link(change) => self.see_change_outside(&mut ties, change),
                Outside::Exit(exit, by) => self.see_exit_outside(&mut ties, run.note(exit.pid), (exit, by)),
            }
        }
        // If this is refused, the process is loaded again, and finds what there is.
        if let Ok(changes) = ties.changes(&self.ties, serial) {
            self.store.remove_in(self.resident.life, changes);
        }
        self.ties = ties;
    }

    fn see_change_outside(&mut self, ties: &mut Ties, LinkChange { other, begins, by_me }: LinkChange) {
        if by_me && let Some(held) = self.outside.held.get_mut(&other) {
            *held -= 1;
            if *held == 0 {
                self.outside.held.remove(&other);
            }
        }
        if self.outside.held.contains_key(&other) {
            return;
        }
        let noted = self.store.run.note(other);
        if !begins {
            ties.outside.remove(&noted);
            self.forget_outside(other);
        } else if !by_me
            && !ties.outside.contains_key(&noted)
            && let Ok(number) = self.store.number()
        {
            ties.outside.insert(noted, number);
        }
    }

    fn see_exit_outside(&mut self, ties: &mut Ties, noted: (u64, u64), (exit, by): (ExitSignal, LinkedBy)) {
        if !ties.outside.contains_key(&noted) || self.outside.offered.contains(&noted) {
            return drop_contained(exit);
        }
        if ties.traps {
            self.outside.offered.push(noted);
            return self.typed.waiting().signal(Signal::Control(Control::Exit(exit, by)));
        }
        match FirstEnd::of_ordinary(noted, &exit.exit, self.store.run) {
            None => _ = ties.outside.remove(&noted),
            end => {
                // The first one counts: a load tells again that there is no such process.
                self.outside.end = self.outside.end.take().or(end);
                self.resident.note(Call::Terminate);
            }
        }
        drop_contained(exit);
    }
}

impl Found {
    /// The cause, if the end of an ordinary process ends this one, which traps no exits.
    pub(super) fn ending_outside(&self, run: Run) -> Option<FirstEnd> {
        let links = &self.ties.outside;
        let given = self.outside.iter().find(|(noted, _)| links.contains_key(noted));
        let over = || links.keys().find(|noted| noted.0 != run.number);
        let over = || over().map(|noted| FirstEnd::of(*noted, &DownExit::Runtime));
        given.map(|(_, end)| end.clone()).or_else(over)
    }
}

impl StoreCore {
    /// Gives a process the change of a link. Loads the process if it sleeps. An exit comes back if there is no
    /// such process. The locks of relations are held.
    pub(super) fn give_outside(&self, serial: u64, change: Outside) -> Result<(), Signal> {
        let refused = |change| match change {
            Outside::Exit(exit, by) => Err(Signal::Control(Control::Exit(exit, by))),
            Outside::Link(_) => Ok(()),
        };
        // The end of the runtime ends no durable process. The next run tells of those that have ended with it.
        let Some(core) = self.core().filter(|core| !core.road.door.is_closed()) else { return refused(change) };
        let loads = self.residency.enter(serial, |residence| {
            let ends = matches!(change, Outside::Exit(..));
            match &residence.place {
                Place::Nobody | Place::Removed => return Err(change),
                Place::Resident(resident) => resident.call(&core.road, Call::Outside),
                Place::LeavingToSleep => residence.place = Place::Leaving,
                Place::Asleep | Place::Unreadable | Place::Loading | Place::Leaving => {}
            }
            residence.outside.push(change);
            let loads =
                matches!(residence.place, Place::Asleep) || ends && matches!(residence.place, Place::Unreadable);
            if loads {
                residence.place = Place::Loading;
            }
            Ok(loads)
        });
        match loads {
            Ok(true) => self.start_load(&core, serial),
            Ok(false) => {}
            Err(change) => return refused(change),
        }
        Ok(())
    }

    /// Performs the links of a process again that was loaded.
    pub(super) fn link_again(&self, core: &Arc<Core>, resident: &Resident, found: &Found, body: &mut Ready) {
        let (run, links) = (self.run, &found.ties.outside);
        for pid in links.keys().filter(|noted| noted.0 == run.number).filter_map(|noted| run.read(*noted)) {
            let _ = core.relate(Relate::Link(pid), body, &mut core.executor());
        }
        if links.keys().any(|noted| noted.0 != run.number) {
            resident.note(Call::Outside);
        }
        // No record has these, after an error of the disk.
        for (other, by) in core.relations.links(body.head.sender()) {
            if links.contains_key(&run.note(other)) {
                continue;
            }
            if by.other {
                let change = LinkChange { other, begins: true, by_me: false };
                let _ = self.give_outside(found.serial, Outside::Link(change));
            } else {
                let _ = core.relate(Relate::Unlink(other), body, &mut core.executor());
            }
        }
    }
}
