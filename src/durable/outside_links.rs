//! Links between processes of a store and ordinary ones. `docs/durable.md` has the protocol.
//!
//! Such a link is an entry of the durable process, with the PID of the other one. Its number is like no other. In the
//! table of relations the link stands under the PID that others know. So it stays there when the process leaves memory,
//! and its end is told by its last record, as all ends are told.
//!
//! *The durable process links or unlinks.* The record of the step has the entry, or removes it. When it is on disk, the
//! change is performed. Until then the residence has the change as *held*, and the last step decides. A process that
//! was lost with held changes is loaded. The load performs those of which the record is on disk.
//!
//! *The ordinary process links or unlinks.* The table of relations has the result. The durable process is called, and
//! brings its entries in line with the table, in a turn of its own. A process that cannot be loaded has its load do so.
//!
//! *An exit* is sent when the half of the durable process is removed from the table, so it comes once. The residence
//! keeps it until the record that takes it is on disk. If the process traps exits, the exit is an event, and the record
//! of the step that takes it removes the entry. Otherwise the process ends, unless the exit is `Exit::Done`.
//!
//! *A kill.* An entry of an earlier run tells of a process that has ended with its runtime. It is due at once, so the
//! start loads the process. A link that an ordinary process has made may be lost if the kill comes before it is stored.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use super::coding::Run;
use super::contract::Durable;
use super::core::{Found, StepError, StoreCore};
use super::journal::{Change, EncodedRecord, Position, Record};
use super::machine::DurableMachine;
use super::outside::OutsideView;
use super::residency::{Call, Place, Residence, Resident, Taken};
use super::rows::{DownExit, FirstEnd};
use super::tail::{Fate, Life};
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
            } else {
                // A new number, so that a load knows which step has made the entry.
                ties.outside.insert(noted, self.store.number().map_err(|_| StepError::Rewound)?);
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
        links.iter().for_each(|(pid, _)| self.forget_outside(*pid));
        // An exit before a change of the link concerns a link that is no more.
        let changed = links.iter().map(|(pid, _)| *pid);
        let over: Vec<Pid> = gone.iter().filter_map(|noted| self.store.run.read(*noted)).chain(changed).collect();
        let (serial, record) = (self.resident.serial, (self.resident.life, self.rests_on));
        let is_taken = self.store.residency.enter(serial, |residence| {
            for (pid, _) in links {
                residence.outside.hold(*pid, self.ties.outside.get(&self.store.run.note(*pid)).copied());
            }
            residence.outside.take(&over, record, |record| self.store.is_lost(record))
        });
        if is_taken {
            self.store.tail.when_settled(record.0, record.1, self.store.when_taken(serial, record));
        }
        if let Some(core) = self.store.core().filter(|_| !gone.is_empty()) {
            // One that has recovered may be linked again.
            self.resident.call(&core.road, Call::Outside);
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
        let Some(core) = self.store.core() else { return };
        let (serial, life, run) = (self.resident.serial, self.resident.life, self.store.run);
        let mut ties = self.ties.clone();
        let is_over = |noted: &&(u64, u64)| noted.0 != run.number;
        let over: Vec<(u64, u64)> = ties.outside.keys().filter(is_over).copied().collect();
        for noted in over {
            let Some(pid) = run.read(noted) else { continue };
            let exit = ExitSignal { pid, exit: Exit::Terminated(Reason::Shutdown) };
            self.see_exit_outside(ties.traps, noted, (exit, LinkedBy::OTHER));
        }
        let (exits, done) = self.store.follow_links(&core, self.resident.pid, serial, &mut ties);
        for (exit, by) in exits {
            self.see_exit_outside(ties.traps, run.note(exit.pid), (exit, by));
        }
        // If this is refused, the process is loaded again, and finds what there is.
        if let Ok(changes) = ties.changes(&self.ties, serial) {
            self.store.take_exits(serial, life, changes, &done);
        }
        self.ties = ties;
    }

    fn see_exit_outside(&mut self, traps: bool, noted: (u64, u64), (exit, by): (ExitSignal, LinkedBy)) {
        if self.outside.offered.contains(&noted) {
            return drop_contained(exit);
        }
        if traps {
            self.outside.offered.push(noted);
            return self.typed.waiting().signal(Signal::Control(Control::Exit(exit, by)));
        }
        let end = FirstEnd::of_ordinary(noted, &exit.exit, self.store.run);
        self.outside.end = self.outside.end.take().or(end);
        self.resident.note(Call::Terminate);
        drop_contained(exit);
    }
}

impl Found {
    /// The cause, if the end of an ordinary process ends this one, which traps no exits.
    pub(super) fn ending_outside(&self, run: Run) -> Option<FirstEnd> {
        let over = || self.ties.outside.keys().find(|noted| noted.0 != run.number);
        let over = || over().map(|noted| FirstEnd::of(*noted, &DownExit::Runtime));
        self.outside.clone().or_else(over)
    }
}

impl Residence {
    /// Calls the process to look at its links. Returns whether a load is to begin.
    pub(super) fn call_outside(&mut self, core: &Core) -> bool {
        match &self.place {
            Place::Resident(resident) => resident.call(&core.road, Call::Outside),
            Place::LeavingToSleep => self.place = Place::Leaving,
            Place::Asleep | Place::Unreadable => {
                self.place = Place::Loading;
                return true;
            }
            Place::Loading | Place::Leaving | Place::Ending | Place::Nobody | Place::Removed => {}
        }
        false
    }
}

impl StoreCore {
    /// The runtime, unless it shuts down. Its end ends no durable process. The next run tells of those that have ended
    /// with it.
    fn open_core(&self) -> Option<Arc<Core>> {
        self.core().filter(|core| !core.road.door.is_closed())
    }

    /// A link of a process has changed. The locks of relations are held.
    pub(super) fn link_changed(&self, serial: u64, change: LinkChange) {
        let Some(core) = self.open_core() else { return };
        let loads = self.residency.enter(serial, |residence| {
            residence.outside.changed(change);
            residence.call_outside(&core)
        });
        if loads {
            self.load_soon(&core, serial);
        }
    }

    /// Gives a process the exit of one to which it is linked. Loads the process if it sleeps. An exit comes back that
    /// is not needed. The locks of relations are held.
    pub(super) fn give_exit(&self, serial: u64, exit: ExitSignal, by: LinkedBy) -> Result<(), Signal> {
        let refused = |(exit, by)| Signal::Control(Control::Exit(exit, by));
        let Some(core) = self.open_core() else { return Err(refused((exit, by))) };
        let (needless, loads) = self.residency.enter(serial, |residence| {
            if matches!(residence.place, Place::Nobody) {
                return (Some((exit, by)), false);
            }
            (residence.outside.ended(exit, by), residence.call_outside(&core))
        });
        if loads {
            self.load_soon(&core, serial);
        }
        needless.map_or(Ok(()), |needless| Err(refused(needless)))
    }

    /// The links of a process as its residence shows them.
    pub(super) fn view_outside(&self, residence: &Residence) -> OutsideView {
        residence.outside.view(|record| self.is_lost(record))
    }

    fn is_lost(&self, (life, position): (Life, Position)) -> bool {
        self.tail.is_lost(life, position)
    }

    /// Brings the entries of a process in line with the table of relations. Returns the exits that the process is to be
    /// told, and the processes that were done and are told to nobody.
    fn follow_links(
        &self,
        core: &Core,
        pid: Pid,
        serial: u64,
        ties: &mut Ties,
    ) -> (Vec<(ExitSignal, LinkedBy)>, Vec<Pid>) {
        // First: an end takes the half, and then it gives the exit.
        let links: BTreeMap<Pid, LinkedBy> = core.relations.links(pid).into_iter().collect();
        let (OutsideView { held, exits }, needless) =
            self.residency.enter(serial, |residence| (self.view_outside(residence), residence.outside.take_needless()));
        needless.into_iter().for_each(drop_contained);
        let held: HashSet<Pid> = held.into_iter().collect();
        let is_nothing = |exit: &ExitSignal| !ties.traps && matches!(exit.exit, Exit::Done(()));
        let (done, told): (Vec<_>, Vec<_>) = exits.into_iter().partition(|(exit, _)| is_nothing(exit));
        let ended: HashSet<Pid> = told.iter().map(|(exit, _)| exit.pid).collect();
        let stays = |pid: Pid| links.contains_key(&pid) || held.contains(&pid) || ended.contains(&pid);
        ties.outside.retain(|noted, _| noted.0 != self.run.number || self.run.read(*noted).is_none_or(stays));
        let by_others = links.iter().filter(|(other, by)| by.other && !held.contains(other)).map(|(other, _)| *other);
        for other in by_others.chain(ended.iter().copied()) {
            if let Entry::Vacant(new) = ties.outside.entry(self.run.note(other))
                && let Ok(number) = self.number()
            {
                new.insert(number);
            }
        }
        let done = done.into_iter().map(|(exit, _)| {
            let pid = exit.pid;
            drop_contained(exit);
            pid
        });
        (told, done.collect())
    }

    /// Appends the changes that follow from the table of relations. The record takes the exits of these processes.
    fn take_exits(&self, serial: u64, life: Life, changes: Vec<Change>, done: &[Pid]) {
        if changes.is_empty() && done.is_empty() {
            return;
        }
        let record = match changes.is_empty() {
            true => None,
            false => match EncodedRecord::new(&Record { changes }) {
                Ok(record) => Some(record),
                Err(_) => return,
            },
        };
        let appended = record.map_or(Some(self.tail.end()), |record| {
            self.tail.append(life, &record, None).ok().map(|position| (life, position))
        });
        self.keep_for_now();
        let Some(record) = appended else { return };
        if self.residency.enter(serial, |residence| residence.outside.take(done, record, |record| self.is_lost(record)))
        {
            self.tail.when_settled(record.0, record.1, self.when_taken(serial, record));
        }
    }

    /// Told the fate of a record that has taken exits.
    fn when_taken(&self, serial: u64, record: (Life, Position)) -> impl FnOnce(Fate) + Send + use<> {
        let me = self.me.clone();
        move |fate| {
            let Some(me) = me.upgrade() else { return };
            let Some(core) = me.open_core() else { return };
            let (taken, loads) = me.residency.enter(serial, |residence| match fate {
                Fate::Released => (residence.outside.forget(record), false),
                // A process in memory leaves, and is loaded again.
                Fate::Lost => {
                    let is_out = matches!(residence.place, Place::Asleep | Place::Unreadable);
                    (Vec::new(), residence.outside.give_back(record) && is_out && residence.call_outside(&core))
                }
                Fate::Unknown => (Vec::new(), false),
            });
            me.residency.forget_unknown(serial);
            if !taken.is_empty() {
                // Values of users are not dropped by the writer.
                me.in_pool(&core, move || taken.into_iter().for_each(drop_contained));
            }
            if loads {
                me.start_load(&core, serial);
            }
        }
    }

    /// As [`follow_links`](Self::follow_links), for a process that cannot be loaded.
    pub(super) fn follow_unread(&self, core: &Core, found: &Found) {
        let Some(pid) = self.ticket(found.serial) else { return };
        let mut ties = found.ties.clone();
        let (told, done) = self.follow_links(core, pid, found.serial, &mut ties);
        told.into_iter().for_each(drop_contained);
        if let Ok(changes) = ties.changes(&found.ties, found.serial) {
            self.take_exits(found.serial, found.life, changes, &done);
        }
    }

    /// Performs the changes of links that were held when the process left memory, and has it look at its links.
    pub(super) fn link_again(&self, core: &Arc<Core>, resident: &Resident, found: &Found, body: &mut Ready) {
        let held = self.residency.enter(found.serial, |residence| residence.outside.take_held());
        for (other, entries) in held {
            let stored = found.ties.outside.get(&self.run.note(other)).copied();
            // Otherwise the records of these steps are lost, or their changes were performed.
            if entries.contains(&stored) {
                let change = if stored.is_some() { Relate::Link(other) } else { Relate::Unlink(other) };
                let _ = core.relate(change, body, &mut core.executor());
            }
        }
        let has_exits = || self.residency.enter(found.serial, |residence| !residence.outside.is_settled());
        if !found.ties.outside.is_empty() || !core.relations.links(resident.pid).is_empty() || has_exits() {
            resident.note(Call::Outside);
        }
    }
}
