//! Links among the processes of a store.
//!
//! A link has two *halves*: an entry of each end, with the serial number of the other one. The record of the step that
//! links has both, and the record of a step that unlinks removes both. A half is the right to be told of the end of the
//! other process.
//!
//! *The end.* The last record of a process takes the halves of its partners, and has the event of the end for each of
//! them. The locks of all their residences are held while it is appended. So the disk has both halves, or the event.
//! If two linked processes end at once, the first to have both locks takes the half of the other one.
//!
//! *The event* is an entry of the receiver. The process sees it in a turn of its own, in which nothing else changes
//! whether it traps exits. If it does, the event goes into its mailbox, and is removed by the record of the step that
//! takes it. Otherwise the process ends, unless the other one was done. Whether it traps exits is an entry as well. So
//! one that cannot be read ends, too.
//!
//! *A link to a process that had ended* is told with `NoSuchProcess`, as the monitors are: if its residence does not
//! know, it is loaded, which shows that. The half of the living one stays until the event is taken. So a load makes the
//! event again if it was lost with the memory. The ended process may be loaded after that, and would tell the living
//! one again. So a process that is in memory takes such an event only if it has its half of the link, and no event of
//! it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::coding::Run;
use super::contract::Durable;
use super::core::{Found, StoreCore};
use super::journal::{JournalError, Reader, Status};
use super::machine::DurableMachine;
use super::notice::{Notice, ORDER};
use super::residency::{Call, Place, Resident};
use super::rows::{self, DownExit, EXITS, FirstEnd, LINKS, Order, StoredEvent, StoredExit};
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::{ExitSignal, LinkedBy};
use crate::runtime::Core;
use crate::sched::mailbox::{AnyMailbox, Control, Signal, Unwanted};
use crate::sched::road::Road;

impl<P: Durable> DurableMachine<P> {
    /// The notices of the links that a step begins and ends.
    pub(super) fn link_notices(&self, links: &[(Pid, bool)], is_over: bool) -> Vec<Notice> {
        let own = self.resident.serial;
        // The last one counts.
        let links = links.iter().filter_map(|(pid, begins)| Some((self.store.number_of(*pid)?, *begins)));
        let links: BTreeMap<u64, bool> = links.collect();
        if is_over {
            let ended = links.iter().filter(|(_, begins)| !*begins).map(|(other, _)| Notice::unlinked(*other, own));
            let ended = ended.collect();
            *lock(&self.resident.last_links) = links;
            return ended;
        }
        let notices = links.into_iter().flat_map(|(other, begins)| {
            let half = if begins { Notice::linked } else { Notice::unlinked };
            // A link that is made anew reports anew.
            [Notice::forget_exit(own, other), half(own, other), half(other, own)]
        });
        notices.collect()
    }

    /// Takes the events of links out of the mailbox that a step has ended, or made anew.
    pub(super) fn forget_exits(&mut self, links: &[(Pid, bool)]) {
        if links.is_empty() {
            return;
        }
        let unwanted: HashSet<Unwanted> = links.iter().map(|(pid, _)| Unwanted::Exit(*pid)).collect();
        self.forget(&unwanted);
        for (pid, _) in links {
            self.store.number_of(*pid).into_iter().for_each(|other| _ = self.offered.remove(&other));
        }
    }

    /// The end of this process, which is ended now.
    pub(super) fn end_of_one_terminated(&self) -> StoredExit {
        let is_ordered = self.resident.is_ordered_to_end();
        let ends = |(other, exit): &(u64, DownExit)| ends((*other, exit));
        let link = self.resident.exits().iter().find_map(ends).or_else(|| self.outside.end.clone());
        let link = link.filter(|_| !(self.ties.traps || is_ordered));
        link.map_or(StoredExit::Terminated, StoredExit::Linked)
    }

    /// Sees that linked processes have ended.
    pub(super) fn see_exits(&mut self) {
        let serial = self.resident.serial;
        let mut over = Vec::new();
        for (other, exit) in self.resident.exits() {
            let Some(pid) = self.store.ticket(other) else { continue };
            if self.ties.traps {
                if self.offered.insert(other) {
                    let exit = ExitSignal { pid, exit: exit.exit(self.store.run) };
                    self.typed.waiting().signal(Signal::Control(Control::Exit(exit, LinkedBy::OTHER)));
                }
            } else if exit == DownExit::Done {
                over.extend([(EXITS, other), (LINKS, other)]);
            } else {
                self.resident.note(Call::Terminate);
            }
        }
        let mut events = lock(&self.resident.events);
        over.retain(|key| events.remove(key).is_some());
        drop(events);
        let removed = over.iter().map(|(class, other)| rows::answered(serial, *class, *other)).collect();
        self.store.remove_in(self.resident.life, removed);
    }
}

impl Resident {
    /// The processes to which this one is linked. In its last step these are the ones that are told.
    pub(super) fn linked(&self) -> Vec<u64> {
        let events = lock(&self.events);
        let mut linked: BTreeSet<u64> =
            events.range((LINKS, 0)..=(LINKS, u64::MAX)).map(|((_, other), _)| *other).collect();
        for (other, begins) in &*lock(&self.last_links) {
            if *begins {
                linked.insert(*other)
            } else {
                linked.remove(other)
            };
        }
        linked.into_iter().collect()
    }

    /// Whether a request, or a parent that has ended, ends this process.
    fn is_ordered_to_end(&self) -> bool {
        let is_order = lock(&self.events).get(&ORDER) == Some(&StoredEvent::Order(Order::Terminate));
        is_order || lock(&self.requests).iter().any(|one| one.request.is_none())
    }

    /// Takes the event of a link to a process that had ended, if the link is still there and has no event.
    fn keep_found_exit(&self, road: &Road, other: u64, exit: &DownExit) {
        let mut events = lock(&self.events);
        if !events.contains_key(&(LINKS, other)) || events.contains_key(&(EXITS, other)) {
            return;
        }
        events.insert((EXITS, other), StoredEvent::Exit { exit: exit.clone() });
        drop(events);
        self.call(road, Call::Ends);
    }

    /// The linked processes that have ended, and how.
    fn exits(&self) -> Vec<(u64, DownExit)> {
        let events = lock(&self.events);
        let exits = events.range((EXITS, 0)..=(EXITS, u64::MAX));
        exits.filter_map(|((_, other), event)| Some((*other, exit_of(event)?.clone()))).collect()
    }
}

fn exit_of(event: &StoredEvent) -> Option<&DownExit> {
    match event {
        StoredEvent::Exit { exit } => Some(exit),
        _ => None,
    }
}

/// The cause of the end of a process that traps no exits, if the end of this one ends it.
fn ends((other, exit): (u64, &DownExit)) -> Option<FirstEnd> {
    (*exit != DownExit::Done).then(|| FirstEnd::of((0, other), exit))
}

impl Found {
    /// The processes to which this one is linked.
    pub(super) fn linked(&self) -> Vec<u64> {
        self.events.iter().filter(|((class, _), _)| *class == LINKS).map(|((_, other), _)| *other).collect()
    }

    /// The cause, if the end of a linked process ends this one.
    pub(super) fn ending_link(&self, run: Run) -> Option<FirstEnd> {
        let end = |(key, event): &((u8, u64), StoredEvent)| ends((key.1, exit_of(event)?));
        let inside = || self.events.iter().find_map(end);
        if self.ties.traps { None } else { inside().or_else(|| self.ending_outside(run)) }
    }
}

impl StoreCore {
    /// Tells processes that the one to which they are linked has ended. It is not stored: a load finds it again.
    pub(super) fn tell_linked(&self, core: &Arc<Core>, linked: Vec<u64>, (of, exit): (u64, DownExit)) {
        let life = self.tail.life();
        self.remove(linked.iter().map(|other| rows::answered(of, LINKS, *other)).collect());
        for to in linked {
            let mut notice = Notice::exit(to, of, exit.clone());
            let notified = self.residency.enter(to, |residence| match residence.place {
                Place::Ending | Place::Nobody | Place::Removed => None,
                Place::Resident(ref resident) => {
                    resident.keep_found_exit(&core.road, of, &exit);
                    None
                }
                // The end is read under the lock: a load must not begin before a record that came first.
                _ => Some(residence.notify(&core.road, &mut notice, self.tail.end())),
            });
            if let Some(notified) = notified {
                self.notified(core, life, (to, to), notice.key, notified);
            }
        }
    }

    /// Adds the events of linked processes that had ended when they were linked.
    pub(super) fn find_exits(&self, found: &mut Found, reader: &mut dyn Reader) -> Result<(), JournalError> {
        for other in found.linked() {
            let key = (EXITS, other);
            if found.events.iter().any(|(known, _)| *known == key) {
                continue;
            }
            let has_ended = match reader.process(other) {
                // It is not known to have ended.
                Err(JournalError::Damaged(_)) => false,
                row => row?.is_none_or(|row| row.status == Status::Ended),
            };
            // Its last record has taken the halves of that moment. So this one is of a later link.
            let event = StoredEvent::Exit { exit: DownExit::NoSuchProcess };
            found.events.extend(has_ended.then_some((key, event)));
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
