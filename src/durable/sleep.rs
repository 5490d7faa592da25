//! Durable processes leave memory when they have rested, and return when something comes.
//!
//! A process is *asked* to leave by a call, [`Call::Sleep`]: when it has rested for the time of its kind, or when there
//! are too many processes in memory and it is one of those that have rested longest. It leaves in a turn of its own, in
//! which it takes no event:
//!
//! | step | by | what happens |
//! |---|---|---|
//! | 1 | the process | has an event to take, or something that is only in memory: it stays |
//! | 2 | the process | has a record that is not on disk: it begins again when the record is released |
//! | 3 | the process, under the lock of the residence | has got nothing: **resident** becomes **leaving to sleep** |
//! | 4 | the worker | calls `close`, and vacates the cell |
//! | 5 | the worker, under the lock of the residence | **leaving to sleep** becomes **asleep** or **loading** |
//! | 6 | the writer, when all is on disk that was appended by then | removes the residence, if it is still **asleep** |
//!
//! A process stays if it has a command that is at work and not stored, a future, an open question that is not stored,
//! a stored command that a handler works on, a feed, a subscription to a group, or a monitor of an ordinary process.
//! Those are in memory only.
//!
//! *Nothing that comes is lost.* All senders of messages, stored events, requests and answers from outside have the
//! lock of the residence.
//!
//! - Before step 3, it is in the mailbox, or among the events and requests of the resident. The step looks there under
//!   the lock, and a process that has got something stays.
//! - Between the steps 3 and 5, it waits in the residence, and step 5 begins a load. A stored event waits on disk, and
//!   makes **leaving** of **leaving to sleep**, which says the same.
//! - After step 5, it finds a process that is asleep, and begins a load.
//!
//! *A timer* comes without that lock. It may be lost with the mailbox. But its entry is on disk, and after step 6 a
//! thread of the pool looks for the timers of the process. One that is due loads it. So does a deadline.
//!
//! *A process is in memory once.* A load begins in step 5 or later. The state was dropped in step 4.
//!
//! *A shutdown* between the steps finds a process that leaves. *A rewind* finds nothing of it that is not on disk.

use std::time::Duration;

use super::contract::Durable;
use super::core::{RELOAD, StoreCore};
use super::journal::Position;
use super::machine::DurableMachine;
use super::notice::ORDER;
use super::repair::NotRepaired;
use super::residency::{Call, Place, Residence, Residency, Resident};
use super::rest::Sleeper;
use super::rows::{self, COMMANDS, Order, Rest, StoredEvent};
use super::store::StoreBuilder;
use super::tail::{Fate, Life};
use crate::outcome::drop_contained;
use crate::primitives::{Arc, lock};
use crate::runtime::{Core, Timed};
use crate::sched::body::{Head, Machine, Stepped};

impl StoreBuilder {
    /// Sets how long a process rests before it leaves memory. It leaves after this time, and before twice this time. By
    /// default a process stays until there are too many: see [`max_resident`](Self::max_resident). A kind can have a
    /// time of its own: see [`Durable::SLEEP_AFTER`].
    ///
    /// A process that has left memory is on disk only. It is loaded again when something comes for it, for example a
    /// message or a timer.
    #[must_use]
    pub fn sleep_after(mut self, rest: Duration) -> StoreBuilder {
        self.memory.sleep_after = Some(rest);
        self
    }

    /// Sets how many processes may be in memory. The default is 100,000. If there are more, the processes that have
    /// rested longest leave, until about an eighth of the room is free. Processes that have something to do never wait
    /// for room, so there may be more for a while.
    #[must_use]
    pub fn max_resident(mut self, processes: usize) -> StoreBuilder {
        self.memory.max_resident = processes;
        self
    }
}

impl<P: Durable> DurableMachine<P> {
    /// Leaves memory if the process was asked to and has nothing to do. Returns the result of this turn if the process
    /// is not to be stepped.
    pub(super) fn sleep(&mut self, head: &Head) -> Option<Stepped> {
        if !self.resident.is_called(Call::Sleep) {
            return None;
        }
        if self.has_something_to_do() || self.is_held_in_memory(head) {
            self.resident.take_call(Call::Sleep);
            return None;
        }
        if !(self.held.is_empty() && self.is_released(self.rests_on)) {
            self.store.when_released(&self.resident, self.rests_on);
            return Some(Stepped::without_a_step());
        }
        if !self.store.begins_to_sleep(&self.resident) {
            self.resident.take_call(Call::Sleep);
            // An event that nobody wants any more may be dropped without a step. Then it would never be asked again.
            self.store.note_active(&self.resident);
            return None;
        }
        let has_times = self.open.values().any(|class| matches!(*class, rows::TIMERS | COMMANDS | rows::QUESTIONS))
            || !lock(&self.resident.requests).is_empty();
        self.sleeper = Some(Sleeper { has_times });
        Some(self.leave())
    }

    fn has_something_to_do(&mut self) -> bool {
        !self.is_entered
            || self.attempts > 0
            || !matches!(self.stored.rest, Rest::Idle | Rest::Wait)
            || self.typed.waiting().has_signals()
            || self.typed.held() > 0
    }

    /// Whether the process has something that is in memory only.
    fn is_held_in_memory(&self, head: &Head) -> bool {
        let (serial, commands) = (self.resident.serial, &self.store.open_commands);
        let at_work = |(tag, class): (&u64, &u8)| *class == COMMANDS && !commands.rests(serial, *tag);
        if !self.stored.open.is_empty() || self.open.iter().any(at_work) {
            return true;
        }
        if head.rare.as_ref().is_some_and(|rare| rare.has_feeds) {
            return true;
        }
        self.ties.needs_memory()
    }
}

impl Resident {
    /// Whether an event or a request waits that no step has taken. The lock of the residence is held.
    fn is_wanted(&self) -> bool {
        let events = lock(&self.events);
        let is_event = |(key, event): (&(u8, u64), &StoredEvent)| match event {
            StoredEvent::Watched { .. } | StoredEvent::Linked => false,
            StoredEvent::Order(Order::Leave) => *key != ORDER,
            _ => true,
        };
        events.iter().any(is_event) || self.has_given_requests()
    }

    fn has_given_requests(&self) -> bool {
        lock(&self.requests).iter().any(|request| request.is_given)
    }
}

impl Residence {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.requests.is_empty() && self.repairs.is_empty() && self.outside.is_settled()
    }
}

impl Residency {
    /// All processes in memory.
    fn residents(&self) -> Vec<Arc<Resident>> {
        let resident = |(_, residence): (u64, Arc<_>)| match &lock::<Residence>(&residence).place {
            Place::Resident(resident) => Some(resident.clone()),
            _ => None,
        };
        self.all().into_iter().filter_map(resident).collect()
    }

    /// Removes the residence of a process that is asleep, and has been since it has left this position behind.
    pub(super) fn forget_sleeper(&self, serial: u64, left_behind: (Life, Position)) {
        self.forget_if(serial, |residence| {
            matches!(residence.place, Place::Asleep)
                && residence.is_empty()
                && residence.left_behind == Some(left_behind)
                && residence.burial.is_over()
        });
    }
}

impl StoreCore {
    /// Removes the residence of a sleeping process when the record that it has left behind is on disk.
    pub(super) fn sleeps_on(&self, serial: u64, left_behind: (Life, Position)) {
        let me = self.me.clone();
        self.tail.when_released(left_behind.0, left_behind.1, move |fate| {
            if let Some(me) = me.upgrade().filter(|_| fate != Fate::Unknown) {
                me.residency.forget_sleeper(serial, left_behind);
            }
        });
    }

    /// A process in memory has done something.
    pub(super) fn note_active(&self, resident: &Resident) {
        let Some(core) = self.core() else { return };
        if let Some(delay) = self.keeper.active(&resident.rest, self.keeper.now(&core)) {
            self.look_for_idle_in(&core, delay);
        }
        if self.keeper.looks_for_room() {
            self.look_for_room_soon(&core);
        }
    }

    fn look_for_idle_in(&self, core: &Arc<Core>, delay: Duration) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let look = move || {
            let (Some(core), Some(me)) = (weak.upgrade(), me.upgrade()) else { return };
            let looks = me.clone();
            me.in_pool(&core, move || looks.look_for_idle());
        };
        drop(core.timers.after(0, delay, Timed::Run(Box::new(look))).map(|key| key.map(drop)));
    }

    /// Asks the processes to leave that have rested long enough.
    fn look_for_idle(&self) {
        let Some(core) = self.core() else { return };
        self.keeper.begin_idle_look();
        let (now, mut next) = (self.keeper.now(&core), None);
        for resident in self.residency.residents() {
            match resident.rest.due() {
                Some((since, due)) if due <= now => {
                    resident.rest.note_asked(since);
                    resident.call(&core.road, Call::Sleep);
                }
                due => next = next.into_iter().chain(due.map(|(_, due)| due)).min(),
            }
        }
        if let Some(next) = next.filter(|_| self.keeper.sets_idle_look()) {
            self.look_for_idle_in(&core, Duration::from_micros(next - now));
        }
    }

    fn look_for_room_soon(&self, core: &Arc<Core>) {
        let me = self.me.clone();
        self.in_pool(core, move || me.upgrade().into_iter().for_each(|me| me.look_for_room()));
    }

    /// Asks the processes to leave that have rested longest, if there are too many.
    fn look_for_room(&self) {
        let Some(core) = self.core() else { return };
        self.keeper.begin_room_look();
        let max = self.keeper.limits.max_resident;
        let all = self.residency.residents();
        if all.len() > max {
            let stays = |resident: &&Arc<Resident>| !resident.is_called(Call::Sleep);
            let surplus = (all.iter().filter(stays).count() + max / 8).saturating_sub(max);
            let unasked = |resident: &Arc<Resident>| Some((resident.rest.since()?, resident.clone()));
            let mut others: Vec<_> = all.iter().filter(stays).filter_map(unasked).collect();
            others.sort_by_key(|(since, _)| *since);
            for (since, resident) in others.into_iter().take(surplus) {
                resident.rest.note_asked(since);
                resident.call(&core.road, Call::Sleep);
            }
        }
        if self.keeper.end_room_look() {
            // Not at once: those that were asked are about to leave.
            let (me, weak) = (self.me.clone(), Arc::downgrade(&core));
            let look = move || {
                if let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) {
                    me.look_for_room_soon(&core);
                }
            };
            drop(core.timers.after(0, RELOAD, Timed::Run(Box::new(look))).map(|key| key.map(drop)));
        }
    }

    /// Whether a process leaves memory that has nothing to do. From now on nothing reaches its mailbox but timers.
    fn begins_to_sleep(&self, resident: &Arc<Resident>) -> bool {
        let Some(core) = self.core() else { return false };
        let Some(cell) = resident.local.get().and_then(|local| core.road.table.cell(*local)) else { return false };
        self.residency.enter(resident.serial, |residence| {
            let is_here = matches!(&residence.place, Place::Resident(one) if Arc::ptr_eq(one, resident));
            // It is called under this lock to read again what is on disk.
            let is_ordered =
                !residence.repairs.is_empty() || resident.is_called(Call::Repair) || resident.is_called(Call::Outside);
            let leaves = is_here && !is_ordered && !resident.is_wanted() && cell.is_quiet();
            if leaves {
                residence.place = Place::LeavingToSleep;
                // The last load has counted others.
                residence.on_disk = lock(&resident.mail).len();
            }
            leaves
        })
    }

    /// A process is out of memory that has left to sleep.
    pub(super) fn fell_asleep(&self, resident: &Resident, &Sleeper { has_times }: &Sleeper) {
        let serial = resident.serial;
        self.keeper.left();
        let core = self.core().filter(|core| !core.road.door.is_closed());
        let (is_asleep, left_behind, dropped) = self.residency.enter(serial, |residence| {
            // Under the lock: a stored event may have come since, and a load must not read before its record.
            let left_behind = self.tail.end();
            self.open_commands.leave(serial);
            let is_asleep = matches!(residence.place, Place::LeavingToSleep)
                && residence.is_empty()
                && !resident.has_given_requests();
            residence.left_behind = Some(left_behind);
            residence.place = if is_asleep || core.is_none() { Place::Asleep } else { Place::Loading };
            // A store that is closed loads nothing. Stored messages stay on disk, and questions are dropped.
            let dropped = if core.is_none() { std::mem::take(&mut residence.waiting) } else { Vec::new() };
            (is_asleep, left_behind, dropped)
        });
        dropped.into_iter().for_each(|mail| drop_contained(mail.message));
        let Some(core) = core else {
            self.keeper.left_at_end();
            return self.refuse_repairs(serial, &NotRepaired::Closed);
        };
        if !is_asleep {
            return self.start_load(&core, serial);
        }
        let me = self.me.clone();
        self.tail.when_released(left_behind.0, left_behind.1, move |fate| {
            if let Some(me) = me.upgrade().filter(|_| fate != Fate::Unknown) {
                me.residency.forget_sleeper(serial, left_behind);
                if has_times {
                    me.watch_timers_of(serial);
                }
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
