//! Monitors of durable processes.
//!
//! A monitor is an entry of the process that watches. If a process of the store is watched, it has an entry as well,
//! with the watcher. The last record of the watched process has the event of its end, as an entry of each watcher. So
//! the event comes once, across kills of either and while they sleep.
//!
//! *After what the ended process had sent.* The event is held back while the watcher has stored messages of that
//! process. A step that takes the last of them gives it to the mailbox.
//!
//! *A monitor of an ended process.* The watched process may have ended before. If its residence knows, the watcher gets
//! the event in its next turn. If not, the watched process is loaded, which shows that. A load of the watcher also
//! looks for processes that have ended since. So the event is made again if it was lost with the memory. The ended
//! process may be loaded after that, and would tell the watcher again. So a watcher that is in memory takes such an
//! event only if it has no event of the monitor. In its next turn it drops the event if it has no such monitor.
//!
//! *Ordinary processes* are monitored as by any process, in each run, by the PID of the watcher in this run. If a run
//! has ended, its ordinary processes have, too, and the next load of the watcher has the event.

use std::collections::HashSet;

use super::contract::Durable;
use super::core::{Found, StoreCore};
use super::held::Sorted;
use super::journal::{JournalError, Reader};
use super::machine::DurableMachine;
use super::notice::Notice;
use super::residency::{Call, Place, Resident, Taken};
use super::rows::{self, DOWNS, DownExit, StoredEvent, StoredHead, WATCHERS};
use super::ties::Ties;
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::{Down, Monitor, Relate};
use crate::runtime::Core;
use crate::sched::body::Ready;
use crate::sched::mailbox::{AnyMailbox, Control, Signal, Unwanted};
use crate::sched::road::Road;
use crate::sched::turn::Engine;

impl<P: Durable> DurableMachine<P> {
    /// Notes the monitors that a step begins and ends, and those whose events it has taken.
    pub(super) fn change_monitors(&self, ties: &mut Ties, taken: &Taken, sorted: &Sorted) {
        taken.downs.iter().for_each(|down| _ = ties.watches.remove(&down.monitor.id()));
        for (monitor, begins) in &sorted.monitors {
            if *begins {
                ties.watches.insert(monitor.id(), self.store.run.note(monitor.pid()));
            } else {
                ties.watches.remove(&monitor.id());
            }
        }
    }

    /// Tells processes of the store that this one begins or ends to watch them.
    pub(super) fn watch_notices(&self, ties: Option<&Ties>, is_over: bool) -> Vec<Notice> {
        let none = Ties::default();
        let ties = match ties {
            Some(ties) => ties,
            None if is_over => &none,
            None => return Vec::new(),
        };
        let own = self.resident.serial;
        let serial = |noted: &(u64, u64)| self.watched(*noted);
        let before = &self.ties.watches;
        let ended = before.iter().filter(|(id, _)| !ties.watches.contains_key(id));
        let begun = ties.watches.iter().filter(|(id, _)| !before.contains_key(id));
        let ended = ended.filter_map(|(id, noted)| Some(Notice::unwatch(serial(noted)?, *id)));
        let begun = begun.filter_map(|(id, noted)| Some(Notice::watch(serial(noted)?, *id, own)));
        ended.chain(begun).collect()
    }

    /// The serial number of a watched process, if it is another one of the store.
    fn watched(&self, noted: (u64, u64)) -> Option<u64> {
        self.store.watched(noted).filter(|serial| *serial != self.resident.serial)
    }

    /// Takes the events of monitors back that a step has ended.
    pub(super) fn forget_downs(&mut self, monitors: &[(Monitor, bool)]) {
        let store = self.store.run.store;
        let ended = monitors.iter().filter(|(monitor, begins)| !begins && monitor.pid().node() == store);
        let unwanted: HashSet<Unwanted> = ended.clone().map(|(monitor, _)| Unwanted::Down(*monitor)).collect();
        if unwanted.is_empty() {
            return;
        }
        self.forget(&unwanted);
        lock(&self.resident.deferred).retain(|down| !unwanted.contains(&Unwanted::Down(down.monitor)));
        let serial = self.resident.serial;
        let mut events = lock(&self.resident.events);
        let left = ended.filter(|(monitor, _)| events.remove(&(DOWNS, monitor.id())).is_some());
        let left = left.map(|(monitor, _)| rows::answered(serial, DOWNS, monitor.id())).collect();
        drop(events);
        self.store.remove(left);
    }

    /// Takes events out of the mailbox.
    pub(super) fn forget(&mut self, unwanted: &HashSet<Unwanted>) {
        let mut gone = AnyMailbox::forget(self.typed.waiting(), unwanted);
        if let (Some(core), Some(local)) = (self.store.core(), self.resident.local.get())
            && let Some(cell) = core.road.table.cell(*local)
        {
            gone.extend(cell.forget(*local, unwanted));
        }
        gone.into_iter().for_each(drop_contained);
    }

    /// Gives the events to the mailbox that wait for no message of their processes any more.
    pub(super) fn offer_downs(&mut self) {
        for down in self.resident.due_downs() {
            if self.ties.watches.contains_key(&down.monitor.id()) {
                self.typed.waiting().signal(Signal::Control(Control::Down(down)));
            } else {
                // It was found again after a step had taken it, or had ended its monitor.
                lock(&self.resident.events).remove(&(DOWNS, down.monitor.id()));
            }
        }
    }
}

impl Resident {
    /// Holds an event back if the ended process has stored messages here. Otherwise the event comes back.
    pub(super) fn defer(&self, down: Down) -> Option<Down> {
        let mail = lock(&self.mail);
        if mail.values().any(|kept| kept.from == Some(down.pid)) {
            lock(&self.deferred).push(down);
            return None;
        }
        Some(down)
    }

    /// Keeps the event of a monitor of a process that had ended for the next turn, if the monitor has no event.
    fn keep_found_down(&self, road: &Road, down: Down, exit: &DownExit) {
        let key = (DOWNS, down.monitor.id());
        let mut events = lock(&self.events);
        if events.contains_key(&key) {
            return;
        }
        events.insert(key, StoredEvent::Down { exit: exit.clone() });
        drop(events);
        lock(&self.deferred).push(down);
        self.call(road, Call::Ends);
    }

    fn due_downs(&self) -> Vec<Down> {
        // A step has removed its messages before. So one that is held back since waits for others.
        if lock(&self.deferred).is_empty() {
            return Vec::new();
        }
        let mail = lock(&self.mail);
        let mut deferred = lock(&self.deferred);
        deferred.extract_if(.., |down| !mail.values().any(|kept| kept.from == Some(down.pid))).collect()
    }

    /// The watchers of this process: the numbers of the monitors, and the serial numbers.
    pub(super) fn watchers(&self) -> Vec<(u64, u64)> {
        let events = lock(&self.events);
        let watchers = events.range((WATCHERS, 0)..=(WATCHERS, u64::MAX));
        watchers.filter_map(|((_, id), event)| Some((*id, watcher_of(event)?))).collect()
    }
}

impl Found {
    /// The watchers of this process: the numbers of the monitors, and the serial numbers.
    pub(super) fn watchers(&self) -> Vec<(u64, u64)> {
        let watchers = self.events.iter().filter(|((class, _), _)| *class == WATCHERS);
        watchers.filter_map(|((_, id), event)| Some((*id, watcher_of(event)?))).collect()
    }
}

/// The watcher, if this is the entry of one.
pub(super) fn watcher_of(event: &StoredEvent) -> Option<u64> {
    match event {
        StoredEvent::Watched { by } => Some(*by),
        _ => None,
    }
}

impl StoreCore {
    /// The serial number of a process, if it is one of the store.
    fn watched(&self, noted: (u64, u64)) -> Option<u64> {
        self.number_of(self.run.read(noted).filter(|_| noted.0 == 0)?)
    }

    /// The event of the end of a watched process.
    pub(super) fn down(&self, id: u64, noted: (u64, u64), exit: &DownExit) -> Option<Down> {
        let pid = self.run.read(noted)?;
        Some(Down { monitor: Monitor::new(id, pid), pid, exit: exit.exit(self.run) })
    }

    /// The events that the watchers of a process get when it ends.
    pub(super) fn downs(&self, watchers: &[(u64, u64)], of: Pid, exit: &DownExit) -> Vec<Notice> {
        let notice = |(id, by): &(u64, u64)| {
            let down = Down { monitor: Monitor::new(*id, of), pid: of, exit: exit.exit(self.run) };
            Notice::down(*by, down, exit.clone())
        };
        watchers.iter().map(notice).collect()
    }

    /// Tells watchers that their process has ended. It is not stored: a load of the watcher finds it again.
    pub(super) fn tell_watchers(&self, core: &Arc<Core>, watchers: Vec<(u64, u64)>, (of, exit): (u64, DownExit)) {
        let Some(pid) = self.ticket(of) else { return };
        let life = self.tail.life();
        self.remove(watchers.iter().map(|(id, _)| rows::answered(of, WATCHERS, *id)).collect());
        for mut notice in self.downs(&watchers, pid, &exit) {
            let notified = self.residency.enter(notice.to, |residence| match residence.place {
                Place::Ending | Place::Nobody | Place::Removed => None,
                Place::Resident(ref resident) => {
                    notice.take_down().into_iter().for_each(|down| resident.keep_found_down(&core.road, down, &exit));
                    None
                }
                // The end is read under the lock: a load must not begin before a record that came first.
                _ => Some(residence.notify(&core.road, &mut notice, self.tail.end())),
            });
            if let Some(notified) = notified {
                self.notified(core, life, (notice.to, notice.to), notice.key, notified);
            }
        }
    }

    /// Adds the events of watched processes that have ended meanwhile.
    pub(super) fn find_downs(&self, found: &mut Found, reader: &mut dyn Reader) -> Result<(), JournalError> {
        for (id, noted) in &found.ties.watches {
            let key = (DOWNS, *id);
            let is_old = noted.0 != 0 && noted.0 != self.run.number;
            let exit = match self.watched(*noted) {
                _ if is_old => Some(DownExit::Runtime),
                Some(serial) if serial != found.serial && !found.events.iter().any(|(other, _)| *other == key) => {
                    let row = match reader.process(serial) {
                        // It is not known to have ended, and its damage is none of this one.
                        Err(JournalError::Damaged(_)) => continue,
                        row => row?,
                    };
                    match row {
                        None => Some(DownExit::NoSuchProcess),
                        Some(row) => postcard::from_bytes::<StoredHead>(&row.head)
                            .ok()
                            .and_then(|head| head.exit.as_ref().map(DownExit::of)),
                    }
                }
                _ => None,
            };
            found.events.extend(exit.map(|exit| (key, StoredEvent::Down { exit })));
        }
        Ok(())
    }

    /// Begins the monitors of ordinary processes anew, of a process that was loaded.
    pub(super) fn watch_again(&self, core: &Arc<Core>, ties: &Ties, body: &mut Ready) {
        for (id, noted) in &ties.watches {
            if noted.0 == self.run.number
                && let Some(pid) = self.run.read(*noted)
            {
                let monitor = Relate::Monitor(Monitor::new(*id, pid));
                let _ = core.relate(monitor, body, &mut core.executor());
            }
        }
    }
}
