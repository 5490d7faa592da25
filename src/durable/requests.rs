//! Requests to a process to stop, or to end. They are stored, so they reach a process that is not in memory.
//!
//! A request is an entry with the time from which it is due. A deadline is a request to stop that is due later. The
//! entry is removed by the record of the step that takes the request, and by the record of the end.

use std::collections::HashSet;
use std::time::Duration;

use super::coding::Run;
use super::contract::Durable;
use super::core::{Found, StepError, StoreCore};
use super::held::Asked;
use super::journal::{EncodedRecord, Position, Record};
use super::machine::DurableMachine;
use super::notice::{Notice, Notified};
use super::residency::{Call, OpenRequest, Place, Residence, Resident};
use super::rows::{self, EventAnswer, Order, StoredEvent, StoredExit, StoredReason, StoredRequest, WhyDead};
use super::tail::{Fate, Life, Refused, Waiter};
use crate::pid::Pid;
use crate::primitives::{Arc, lock};
use crate::process::CancelRequest;
use crate::runtime::{Core, Timed};
use crate::sched::body::Ready;
use crate::sched::cell::Missing;
use crate::sched::engine::Engine;
use crate::sched::mailbox::{Control, Signal};

/// The request that a deadline becomes when it is due.
pub(super) const TIMED_OUT: StoredRequest = StoredRequest::Stop { reason: StoredReason::TimedOut, deadline: None };

impl<P: Durable> DurableMachine<P> {
    /// The notices of the requests that a step has yielded, and those of the answers to these commands. The answers of
    /// a process that has ended are none.
    pub(super) fn request_notices(
        &self,
        requests: Vec<(u64, Pid, Asked)>,
        is_over: bool,
    ) -> Result<Vec<Notice>, StepError> {
        let (own, mut notices) = (self.resident.serial, Vec::new());
        for (tag, to, asked) in requests {
            let Some(to) = self.store.number_of(to) else { continue };
            // Its entries go with its end.
            if !(is_over && to == own) {
                let number = self.store.number().map_err(|_| StepError::Rewound)?;
                notices.push(Notice::request(to, number, self.store.request_of(asked)));
            }
            if !is_over {
                notices.push(Notice::own(own, tag, EventAnswer::Requested, Ok(Box::new(true))));
            }
        }
        Ok(notices)
    }
}

impl StoreCore {
    /// Stores a request to stop, and gives it to the process.
    pub(super) fn request_stop(&self, serial: u64, request: CancelRequest) -> Result<(), (Missing, CancelRequest)> {
        let stored = StoredRequest::Stop { reason: StoredReason::of(&request.reason), deadline: self.noted(&request) };
        match self.request(serial, &stored, None) {
            Ok(()) => Ok(()),
            Err(missing) => Err((missing, request)),
        }
    }

    /// Stores a request, and gives it to the process. Loads the process if it is asleep.
    pub(super) fn request(&self, serial: u64, request: &StoredRequest, waiter: Option<Waiter>) -> Result<(), Missing> {
        let (Some(core), life) = (self.core(), self.tail.life()) else { return Err(Missing::Never) };
        let number = self.number().map_err(|_| Missing::NotNow)?;
        let change = rows::request(serial, number, 0, request).map_err(|_| Missing::Never)?;
        let record = EncodedRecord::new(&Record { changes: vec![change] }).map_err(|_| Missing::Never)?;
        let notified = self.residency.enter(serial, |residence| {
            if matches!(residence.place, Place::Ending | Place::Nobody) {
                return Err(Missing::Ended);
            }
            let position = self.tail.append(life, &record, waiter).map_err(|_| Missing::NotNow)?;
            Ok(self.give_new(&core, residence, (number, request), (life, position)))
        })?;
        self.notified(&core, life, (serial, serial), (rows::REQUESTS, number), notified);
        Ok(())
    }

    /// Gives a request to a process, which the record at this position has. The residence is locked.
    pub(super) fn give_new(
        &self,
        core: &Arc<Core>,
        residence: &mut Residence,
        (number, request): (u64, &StoredRequest),
        (life, position): (Life, Position),
    ) -> Notified {
        match &residence.place {
            Place::Resident(resident) => {
                let open = OpenRequest { number, request: self.read_request(request), is_given: false };
                lock(&resident.requests).push(open);
                self.note_told(resident, position);
                self.give_request(core, &resident.clone(), number).map_or(Notified::Kept, Notified::Woke)
            }
            Place::Unreadable if *request != StoredRequest::End => Notified::Kept,
            Place::Asleep | Place::Unreadable => {
                residence.place = Place::Loading;
                // The load reads it. If there is no such process, it is removed.
                residence.left_behind = Some((life, position));
                residence.requests.push((number, life, request.clone()));
                Notified::Loads
            }
            Place::Loading | Place::Leaving | Place::LeavingToSleep => {
                residence.requests.push((number, life, request.clone()));
                Notified::Kept
            }
            Place::Ending | Place::Nobody | Place::Removed => Notified::Nobody,
        }
    }

    /// Gives a request to a process in memory that was not given it. Returns the body that this woke.
    fn give_request(&self, core: &Arc<Core>, resident: &Arc<Resident>, number: u64) -> Option<Ready> {
        let request = {
            let mut open = lock(&resident.requests);
            let one = open.iter_mut().find(|one| one.number == number && !one.is_given)?;
            one.is_given = true;
            one.request.clone()
        };
        let Some(request) = request else {
            resident.call(&core.road, Call::Terminate);
            return None;
        };
        let local = *resident.local.get()?;
        // If it is about to leave, it is loaded again with the request.
        core.road.table.cell(local)?.signal(local, Signal::Control(Control::Cancel(request))).ok().flatten()
    }

    /// Gives the requests to a process that was loaded. It is not in its first turn yet.
    pub(super) fn give_requests(&self, core: &Arc<Core>, resident: &Arc<Resident>, body: &mut Ready, found: &Found) {
        let now = self.wall_millis();
        for (number, due, request) in &found.requests {
            let request = self.read_request(request);
            let is_given = *due <= now;
            lock(&resident.requests).push(OpenRequest { number: *number, request: request.clone(), is_given });
            match request {
                _ if !is_given => self.give_later(core, resident.serial, *number, *due - now),
                Some(request) => body.machine.mailbox().signal(Signal::Control(Control::Cancel(request))),
                None => resident.note(Call::Terminate),
            }
        }
    }

    /// The request of a step to another process, or to its own.
    pub(super) fn request_of(&self, asked: Asked) -> StoredRequest {
        match asked {
            Asked::Stop(reason, limit) => {
                let until = |limit: Duration| self.wall_millis().saturating_add(limit.as_millis() as u64);
                StoredRequest::Stop { reason: StoredReason::of(&reason), deadline: limit.map(until) }
            }
            Asked::End => StoredRequest::End,
        }
    }

    /// The number and the time of a new deadline.
    pub(super) fn deadline(&self, limit: Duration) -> Result<(u64, u64), Refused> {
        let due = self.wall_millis().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        // The journal has times of 63 bits. A time of zero is due whether or not the clock says so.
        Ok((self.number()?, due.clamp(1, i64::MAX as u64)))
    }

    /// Notes the deadline of a process that is begun.
    pub(super) fn note_deadline(&self, resident: &Resident, deadline: Option<(u64, u64)>) {
        let request = self.read_request(&TIMED_OUT);
        let open = deadline.map(|(number, _)| OpenRequest { number, request, is_given: false });
        lock(&resident.requests).extend(open);
    }

    /// Gives a request to a process when it is due, if the process is in memory then.
    pub(super) fn give_later(&self, core: &Arc<Core>, serial: u64, number: u64, millis: u64) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let give = move || {
            let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) else { return };
            let resident = me.residency.resident(serial);
            if let Some(ready) = resident.and_then(|resident| me.give_request(&core, &resident, number)) {
                core.road.inject(ready);
            }
        };
        let delay = Duration::from_millis(millis);
        drop(core.timers.after(0, delay, Timed::Run(Box::new(give))).map(|key| key.map(drop)));
    }

    /// The requests that have come while a process was loaded, and that the load has not read.
    pub(super) fn add_requests(&self, life: Life, found: &mut Found, came: Vec<(u64, Life, StoredRequest)>) {
        for (number, of, request) in came {
            // A request of an earlier life that was not read is lost.
            if of == life && found.requests.iter().all(|(known, ..)| *known != number) {
                found.requests.push((number, 0, request));
            }
        }
    }

    /// Ends a process that is on disk and cannot be loaded, because it was asked to end. `through` is the last record
    /// that was read.
    ///
    /// The record is appended under the lock of the residence, as that of any end. So a process that begins to watch
    /// this one has either left a later record here, and the rows are read again. Or it finds that this process
    /// has ended, and its record is lost if the record of the end is.
    pub(super) fn end_unread(&self, core: &Arc<Core>, found: Found, through: Position) {
        let (serial, life) = (found.serial, found.life);
        let changed = found.end(self.times(), found.end_of_one_terminated(self.run)).ok();
        let record = changed.and_then(|changed| {
            let record = EncodedRecord::new(&Record { changes: changed.changes }).ok()?;
            Some((record, changed.dead))
        });
        let Some((record, dead)) = record else { return self.unreadable(serial, None) };
        let ended = Arc::new((found, dead));
        let (me, weak, pool) = (self.me.clone(), Arc::downgrade(core), (self.me.clone(), Arc::downgrade(core)));
        let told = move |fate| {
            let tell = move || {
                if let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) {
                    me.ended_unread(&core, &ended, fate);
                }
            };
            // Watchers are told by a thread of the pool, and not by the writer.
            if let (Some(me), Some(core)) = (pool.0.upgrade(), pool.1.upgrade()) {
                me.in_pool(&core, tell);
            }
        };
        let is_ended = self.residency.enter(serial, |residence| {
            if residence.is_behind((life, through)) {
                return false;
            }
            let Ok(position) = self.tail.append(life, &record, Some(Box::new(told))) else { return false };
            residence.place = Place::Ending;
            residence.left_behind = Some((life, position));
            true
        });
        if !is_ended {
            // It is read again, or stays on disk if the store is closed.
            self.start_load(core, serial);
        }
    }

    fn ended_unread(&self, core: &Arc<Core>, ended: &(Found, Vec<(u64, WhyDead)>), fate: Fate) {
        let (found, dead) = ended;
        let serial = found.serial;
        if fate != Fate::Released {
            // It was not ended, and the request may be on disk.
            let loads = self.residency.enter(serial, |residence| {
                let was_ended = matches!(residence.place, Place::Ending | Place::Leaving);
                if was_ended {
                    residence.place = Place::Loading;
                }
                was_ended
            });
            if loads {
                self.start_load(core, serial);
            }
            return;
        }
        // Only now: an end that is lost leaves no dead letters.
        let stored: HashSet<(u8, u64)> = found.entries.iter().copied().collect();
        let is_settled = |number, of| of < found.life || stored.contains(&(rows::MAIL, number));
        self.becomes_nobody(core, (serial, found.life), Vec::new(), is_settled);
        self.tell_dead(core, found, dead);
        let exit = found.end_of_one_terminated(self.run);
        let told = exit.exit(self.run);
        self.tell_end(serial, (exit, found.head.format));
        if let Some(pid) = self.ticket(serial) {
            found.relatives().into_iter().for_each(|relative| self.read_again(core, relative));
            core.tell_related(pid, &told, &mut core.executor());
        }
    }

    /// The time by which a process should have stopped, in milliseconds since 1970.
    fn noted(&self, request: &CancelRequest) -> Option<u64> {
        let now = self.core()?.road.clock.now();
        let left = request.deadline?.saturating_duration_since(now);
        Some(self.wall_millis().saturating_add(left.as_millis() as u64))
    }

    /// A request to stop as the process gets it. `None` if it is to end.
    fn read_request(&self, stored: &StoredRequest) -> Option<CancelRequest> {
        let StoredRequest::Stop { reason, deadline } = stored else { return None };
        let now = self.core().map(|core| core.road.clock.now());
        let left = deadline.map(|at| Duration::from_millis(at.saturating_sub(self.wall_millis())));
        let deadline = now.zip(left).and_then(|(now, left)| now.checked_add(left));
        Some(CancelRequest { reason: reason.read(), deadline })
    }
}

impl Found {
    /// Whether it was asked to end, or is to end because its parent or a linked process has.
    pub(super) fn is_to_end(&self, run: Run) -> bool {
        self.is_ordered_to_end() || self.ending_link(run).is_some()
    }

    fn is_ordered_to_end(&self) -> bool {
        let order = StoredEvent::Order(Order::Terminate);
        self.requests.iter().any(|(_, _, request)| *request == StoredRequest::End)
            || self.events.iter().any(|(_, event)| *event == order)
    }

    /// Its end, if it is ended now.
    pub(super) fn end_of_one_terminated(&self, run: Run) -> StoredExit {
        let link = self.ending_link(run).filter(|_| !self.is_ordered_to_end());
        link.map_or(StoredExit::Terminated, StoredExit::Linked)
    }
}

impl Resident {
    /// The numbers of the requests that a step has taken.
    pub(super) fn taken_requests(&self, cancels: &[CancelRequest]) -> Vec<u64> {
        if cancels.is_empty() {
            return Vec::new();
        }
        let open = lock(&self.requests);
        let mut taken = Vec::new();
        for cancel in cancels {
            let is_it = |one: &&OpenRequest| {
                one.is_given && one.request.as_ref() == Some(cancel) && !taken.contains(&one.number)
            };
            taken.extend(open.iter().find(is_it).map(|one| one.number));
        }
        taken
    }
}
