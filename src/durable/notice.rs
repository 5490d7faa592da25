//! Events that one process of a store makes for another: the answer of a child, an order to a child, and the end of a
//! monitored process.
//!
//! An event is an entry of its receiver, in the record of the step that has made it. It is removed by the record of the
//! step that takes it, or by the last record of the receiver. So it comes once, across kills of either.
//!
//! The maker has the locks of both residences while it appends the record:
//!
//! - *The receiver is in memory.* It gets the event under the lock. If it has just left, it is loaded again, and that
//!   load waits for all records of this moment.
//! - *The receiver is not in memory.* The residence notes the position of the record. A load reads nothing before this
//!   record is released. A load that has read before reads again. So no event is in memory twice.
//! - *A child and its parent end at once.* One of them has both locks first. If it is the child, the parent has the
//!   answer, and makes no order. If it is the parent, the child has the order, and makes no answer.

use super::journal::{Change, Position};
use super::residency::{Place, Residence, Resident};
use super::rows::{
    self, ANSWERS, DOWNS, DownExit, EXITS, LINKS, ORDERS, Order, REQUESTS, StoredEvent, StoredRequest, WATCHERS,
};
use super::tail::Life;
use crate::outcome::{BoxError, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{MutexGuard, lock};
use crate::process::reply::QuestionKey;
use crate::process::{Answer, CancelRequest, Completion, Down};
use crate::sched::body::Ready;
use crate::sched::mailbox::{Control, Signal};
use crate::sched::road::Road;

/// The key of the one order that a child may have.
pub(super) const ORDER: (u8, u64) = (ORDERS, 0);

/// An event for a process of the store.
pub(super) struct Notice {
    /// The serial number of the receiver.
    pub(super) to: u64,
    /// The class and the number of its entry.
    pub(super) key: (u8, u64),
    event: StoredEvent,
    /// The answer, if it is one, and the process that answers.
    answer: Option<(Option<Pid>, Answer)>,
    /// The end of a process, if it is one.
    down: Option<Down>,
    unless: Unless,
}

/// When a notice is not made.
#[derive(Clone, Copy, PartialEq)]
enum Unless {
    /// It always is.
    Never,
    /// As `Never`. It removes the entry.
    Removed,
    /// The maker has the answer to this command already.
    Answered(u64),
    /// The maker has an order.
    Ordered,
    /// The receiver does not wait for it.
    NotAwaited,
}

/// The fate of a notice.
pub(super) enum Notified {
    Kept,
    /// It woke the receiver.
    Woke(Ready),
    /// The receiver still sleeps. This is the record that it has left behind.
    Sleeps((Life, Position)),
    /// A load is to begin.
    Loads,
    /// The receiver is about to leave.
    Refused(Completion),
    /// There is no receiver any more.
    Nobody,
}

impl Notice {
    /// The answer of a child to its parent.
    pub(super) fn of_child(parent: (u64, u64), stored: rows::EventAnswer, (child, answer): (Pid, Answer)) -> Notice {
        let (to, tag) = parent;
        let event = StoredEvent::Answer(stored);
        Notice {
            to,
            key: (ANSWERS, tag),
            event,
            answer: Some((Some(child), answer)),
            down: None,
            unless: Unless::Ordered,
        }
    }

    /// The answer to a command of the maker itself, if it has no other yet.
    pub(super) fn own(serial: u64, tag: u64, stored: rows::EventAnswer, answer: Answer) -> Notice {
        let event = StoredEvent::Answer(stored);
        let unless = Unless::Answered(tag);
        Notice { to: serial, key: (ANSWERS, tag), event, answer: Some((None, answer)), down: None, unless }
    }

    /// The answer to a command of the maker itself, which gets it also when the yield is performed.
    pub(super) fn performed(serial: u64, tag: u64, stored: rows::EventAnswer) -> Notice {
        let event = StoredEvent::Answer(stored);
        Notice { to: serial, key: (ANSWERS, tag), event, answer: None, down: None, unless: Unless::Answered(tag) }
    }

    /// The answer to a stored question, and the process that answers.
    pub(super) fn reply(key: QuestionKey, stored: rows::EventAnswer, answer: (Option<Pid>, Answer)) -> Notice {
        let event = StoredEvent::Answer(stored);
        let unless = Unless::NotAwaited;
        Notice { to: key.asker, key: (ANSWERS, key.tag), event, answer: Some(answer), down: None, unless }
    }

    /// An order to the child that answers this command of the maker.
    pub(super) fn order(child: u64, tag: u64, order: Order) -> Notice {
        let unless = Unless::Answered(tag);
        Notice { to: child, key: ORDER, event: StoredEvent::Order(order), answer: None, down: None, unless }
    }

    /// The maker begins to watch a process.
    pub(super) fn watch(to: u64, id: u64, by: u64) -> Notice {
        let event = StoredEvent::Watched { by };
        Notice { to, key: (WATCHERS, id), event, answer: None, down: None, unless: Unless::Never }
    }

    /// The maker watches a process no longer.
    pub(super) fn unwatch(to: u64, id: u64) -> Notice {
        let event = StoredEvent::Watched { by: to };
        Notice { to, key: (WATCHERS, id), event, answer: None, down: None, unless: Unless::Removed }
    }

    /// A watched process has ended.
    pub(super) fn down(to: u64, down: Down, exit: DownExit) -> Notice {
        let (key, event) = ((DOWNS, down.monitor.id()), StoredEvent::Down { exit });
        Notice { to, key, event, answer: None, down: Some(down), unless: Unless::Never }
    }

    /// The end of a watched process, if it is one.
    pub(super) fn take_down(&mut self) -> Option<Down> {
        self.down.take()
    }

    /// One half of a link.
    pub(super) fn linked(to: u64, other: u64) -> Notice {
        Notice::between((to, (LINKS, other)), StoredEvent::Linked, Unless::Never)
    }

    /// Removes one half of a link.
    pub(super) fn unlinked(to: u64, other: u64) -> Notice {
        Notice::between((to, (LINKS, other)), StoredEvent::Linked, Unless::Removed)
    }

    /// A linked process has ended.
    pub(super) fn exit(to: u64, other: u64, exit: DownExit) -> Notice {
        Notice::between((to, (EXITS, other)), StoredEvent::Exit { exit }, Unless::Never)
    }

    /// An end, to the linked processes: their halves go, and they get the event.
    pub(super) fn exits(linked: &[u64], of: u64, exit: &DownExit) -> Vec<Notice> {
        linked.iter().flat_map(|to| [Notice::unlinked(*to, of), Notice::exit(*to, of, exit.clone())]).collect()
    }

    /// Removes the end of a linked process.
    pub(super) fn forget_exit(to: u64, other: u64) -> Notice {
        Notice::between((to, (EXITS, other)), StoredEvent::Linked, Unless::Removed)
    }

    fn between((to, key): (u64, (u8, u64)), event: StoredEvent, unless: Unless) -> Notice {
        Notice { to, key, event, answer: None, down: None, unless }
    }

    /// A request to a process, with this number.
    pub(super) fn request(to: u64, number: u64, request: StoredRequest) -> Notice {
        let event = StoredEvent::Request(request);
        Notice { to, key: (REQUESTS, number), event, answer: None, down: None, unless: Unless::Never }
    }

    /// The request, if it is one.
    pub(super) fn as_request(&self) -> Option<&StoredRequest> {
        match &self.event {
            StoredEvent::Request(request) => Some(request),
            _ => None,
        }
    }

    /// Whether the notice is to be made. The lock of the maker's residence is held.
    pub(super) fn is_due(&self, maker: &Resident) -> bool {
        let other = match self.unless {
            // The second one is decided by the residence of the receiver.
            Unless::Never | Unless::Removed | Unless::NotAwaited => return true,
            Unless::Answered(tag) => (ANSWERS, tag),
            Unless::Ordered => ORDER,
        };
        !lock(&maker.events).contains_key(&other)
    }

    /// Whether it is the answer to a stored question.
    pub(super) fn is_reply(&self) -> bool {
        self.unless == Unless::NotAwaited
    }

    /// Whether the receiver waits for it, as far as that is known in this life. Its residence is one of these, which
    /// are locked. A receiver of an earlier life may have taken an answer that is lost.
    pub(super) fn is_open(&self, life: Life, (serials, locked): (&[u64], &[MutexGuard<'_, Residence>])) -> bool {
        if self.unless != Unless::NotAwaited {
            return true;
        }
        let place = serials.binary_search(&self.to).ok().map(|place| &locked[place].place);
        match place {
            Some(Place::Resident(resident)) => resident.life != life || resident.awaits(self.key.1),
            Some(Place::Ending | Place::Nobody | Place::Removed) | None => false,
            Some(_) => true,
        }
    }

    pub(super) fn change(&self) -> Result<Change, BoxError> {
        if self.unless == Unless::Removed {
            return Ok(rows::answered(self.to, self.key.0, self.key.1));
        }
        if let StoredEvent::Request(request) = &self.event {
            return rows::request(self.to, self.key.1, 0, request);
        }
        rows::event(self.to, self.key, &self.event)
    }
}

/// An answer is a user's value.
impl Drop for Notice {
    fn drop(&mut self) {
        drop_contained(self.answer.take());
    }
}

/// The request to a child to stop.
pub(super) fn end_of_parent() -> CancelRequest {
    CancelRequest { reason: Reason::Ended, deadline: None }
}

impl Residence {
    /// Gives an event to the process, which the record at this position has.
    pub(super) fn notify(&mut self, road: &Road, notice: &mut Notice, record: (Life, Position)) -> Notified {
        match &self.place {
            Place::Resident(resident) if notice.unless == Unless::Removed => {
                lock(&resident.events).remove(&notice.key);
                Notified::Kept
            }
            Place::Ending | Place::Nobody | Place::Removed if notice.unless == Unless::Removed => Notified::Kept,
            Place::Resident(resident) => {
                // First, because the step may take it at once.
                lock(&resident.events).insert(notice.key, notice.event.clone());
                let signal = match (&notice.event, notice.answer.take()) {
                    (StoredEvent::Answer(_), Some((from, answer))) => {
                        Signal::Completed(Completion::from(from, notice.key.1, answer))
                    }
                    (StoredEvent::Order(Order::Cancel), _) => Signal::Control(Control::Cancel(end_of_parent())),
                    (StoredEvent::Order(Order::Terminate), _) => {
                        resident.call(road, super::residency::Call::Terminate);
                        return Notified::Kept;
                    }
                    // The process sees whether it traps exits.
                    (StoredEvent::Exit { .. }, _) => {
                        resident.call(road, super::residency::Call::Ends);
                        return Notified::Kept;
                    }
                    (StoredEvent::Down { .. }, _) => match notice.down.take().and_then(|down| resident.defer(down)) {
                        Some(down) => Signal::Control(Control::Down(down)),
                        None => return Notified::Kept,
                    },
                    (
                        StoredEvent::Order(Order::Leave)
                        | StoredEvent::Answer(_)
                        | StoredEvent::Watched { .. }
                        | StoredEvent::Linked
                        | StoredEvent::Request(_),
                        _,
                    ) => return Notified::Kept,
                };
                let local = resident.local.get();
                let told = match local.and_then(|local| Some((road.table.cell(*local)?, *local))) {
                    Some((cell, local)) => cell.signal(local, signal).map_err(|(_, signal)| signal),
                    None => Err(signal),
                };
                match told {
                    Ok(woken) => woken.map_or(Notified::Kept, Notified::Woke),
                    Err(signal) => {
                        self.place = Place::Leaving;
                        match signal {
                            Signal::Completed(completion) => Notified::Refused(completion),
                            Signal::Control(_) => Notified::Kept,
                        }
                    }
                }
            }
            Place::Asleep => {
                self.left_behind = Some(record);
                if notice.event == StoredEvent::Order(Order::Leave) || notice.unless == Unless::Removed {
                    return Notified::Sleeps(record);
                }
                self.place = Place::Loading;
                Notified::Loads
            }
            Place::LeavingToSleep => {
                self.left_behind = Some(record);
                if !(notice.event == StoredEvent::Order(Order::Leave) || notice.unless == Unless::Removed) {
                    self.place = Place::Leaving;
                }
                Notified::Kept
            }
            Place::Loading | Place::Leaving => {
                self.left_behind = Some(record);
                Notified::Kept
            }
            // It cannot run, and it can end.
            Place::Unreadable
                if matches!(&notice.event, StoredEvent::Order(Order::Terminate) | StoredEvent::Exit { .. }) =>
            {
                self.left_behind = Some(record);
                self.place = Place::Loading;
                Notified::Loads
            }
            Place::Unreadable => Notified::Kept,
            Place::Ending | Place::Nobody | Place::Removed => Notified::Nobody,
        }
    }
}
