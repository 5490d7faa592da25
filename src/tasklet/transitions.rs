//! The transitions between the places of a tasklet, by the protocol of `slots.rs`. Each is one critical section.

use std::borrow::Cow;

use super::directive::{Directive, ScheduleError, TaskletId};
use super::report::{PanicPolicy, TaskletInfo, TaskletPanic};
use super::slots::{
    Begun, Effects, End, Entry, Given, Hook, KEPT, NO_SLOT, Place, Presence, Retired, Slot, Slots, Ticket, Wake, taken,
};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::{Exit, Panic, Reason};
use crate::timer::Kept;

impl<B> Slots<B> {
    /// Adds a tasklet with its first directive.
    pub(super) fn insert(
        &mut self,
        (name, ended): (Cow<'static, str>, Option<Latch<Exit>>),
        body: B,
        directive: Directive,
        clock: &Clock,
    ) -> Result<(TaskletId, Effects<B>), (B, ScheduleError)> {
        if directive == Directive::Pool && !self.closed && !self.is_attended() {
            return Err((body, ScheduleError::NotRunning));
        }
        match self.admit(name, ended, clock) {
            Ok(id) => Ok((id, self.put(id, body, directive, clock))),
            Err(why) => Err((body, why)),
        }
    }

    /// Adds a tasklet whose body the caller holds. The caller steps it at once, at home.
    pub(super) fn admit(
        &mut self,
        name: Cow<'static, str>,
        ended: Option<Latch<Exit>>,
        clock: &Clock,
    ) -> Result<TaskletId, ScheduleError> {
        if self.closed {
            return Err(ScheduleError::Closed);
        }
        self.last += 1;
        let slot = Slot {
            number: self.last,
            place: Place::Home,
            before: NO_SLOT,
            behind: NO_SLOT,
            since: clock.now(),
            name,
            ended,
            cancel: None,
            doomed: None,
            given: None,
            epoch: 0,
            out: 0,
            suspended: false,
            deadlines: Vec::new(),
            timed_out: false,
        };
        let place = match self.table.get(self.vacant as usize) {
            Some(Entry::Vacant(next)) => {
                let place = std::mem::replace(&mut self.vacant, *next);
                self.table[place as usize] = Entry::Taken(slot);
                place
            }
            _ => {
                self.table.push(Entry::Taken(slot));
                (self.table.len() - 1) as u32
            }
        };
        self.live += 1;
        Ok(TaskletId { owner: self.owner, number: self.last, slot: place })
    }

    /// Begins a home step of the tasklet that has been ready for the longest.
    #[inline]
    pub(super) fn begin_home(&mut self) -> Option<Begun<B>> {
        let place = self.ready.first;
        let slot = taken(&mut self.table, place)?;
        let id = TaskletId { owner: self.owner, number: slot.number, slot: place };
        self.report.home_steps += 1;
        self.begin(id, Place::Home)
    }

    /// Begins a pool step of a tasklet that was handed to the pool, if it still is there.
    pub(super) fn begin_elsewhere(&mut self, id: TaskletId) -> Option<Begun<B>> {
        if !matches!(self.find(id)?.place, Place::Handed(_)) {
            return None;
        }
        self.report.pool_steps += 1;
        self.begin(id, Place::Elsewhere)
    }

    #[inline]
    fn begin(&mut self, id: TaskletId, place: Place<B>) -> Option<Begun<B>> {
        let body = self.take_body(id)?;
        let slot = self.find(id)?;
        slot.place = place;
        if let Some(given) = &mut slot.given {
            given.is_old = true;
        }
        Some(Begun { id, body, timed_out: std::mem::take(&mut slot.timed_out) })
    }

    /// Notes that a step has returned.
    #[inline]
    pub(super) fn settle(&mut self, id: TaskletId, body: B, returned: Directive, clock: &Clock) -> Effects<B> {
        let Some(slot) = self.find(id) else { return self.end_as(id, Some(body), Exit::Done(())) };
        if returned == Directive::Done || slot.given.is_some_and(|given| given.directive == Directive::Done) {
            return self.end(id, Some(body), End::Done);
        }
        if let Some(reason) = slot.doomed.take() {
            return self.end(id, Some(body), End::Cancelled(reason));
        }
        if returned != Directive::Wait {
            return self.put(id, body, returned, clock);
        }
        if let Some(given) = slot.given.take() {
            (slot.timed_out, slot.suspended) = (given.timed_out, false);
            return self.put(id, body, given.directive, clock);
        }
        if slot.suspended && slot.out == 0 {
            return self.end(id, Some(body), End::Abandoned);
        }
        self.put(id, body, Directive::Wait, clock)
    }

    /// Notes that a step has panicked. The policy decides whether that stops the loop, unless the panic is rethrown
    /// to the caller.
    pub(super) fn panicked(&mut self, id: TaskletId, body: B, panic: Panic, rethrown: bool) -> Effects<B> {
        let Some(slot) = self.find(id) else { return self.end_as(id, Some(body), Exit::Done(())) };
        let directive = if matches!(slot.place, Place::Elsewhere) { Directive::Pool } else { Directive::Home };
        let told = TaskletPanic { id, name: slot.name.clone(), directive, panic };
        self.report.panicked(&told);
        let mut effects = self.end_as(id, Some(body), Exit::Panicked(told.panic.clone()));
        if matches!(self.policy, PanicPolicy::Stop) && !rethrown && self.stopped.is_none() {
            self.stopped = Some(told.clone());
            effects.wake = self.wake_home();
        }
        effects.panicked = Some((self.policy.clone(), told));
        effects
    }

    /// Opens a suspension for a tasklet in a step, or adds a resumption to it. `first` tells whether it is the step's
    /// first one.
    pub(super) fn suspend(&mut self, id: TaskletId, first: bool) -> Ticket {
        // The tasklet is in a step, so it is in the table. If it were not, the ticket would do nothing.
        let Some(slot) = self.find(id) else { return Ticket { id, epoch: 0 } };
        if first && slot.given.is_some_and(|given| given.is_old && given.directive != Directive::Done) {
            // A resumption of an earlier suspension, for which no step waited, must not end this one.
            slot.given = None;
        }
        if slot.given.is_some() {
            // The wait has ended before it began. Resumptions that are made for it now belong to the passed epoch.
            return Ticket { id, epoch: slot.epoch - 1 };
        }
        slot.suspended = true;
        slot.out += 1;
        Ticket { id, epoch: slot.epoch }
    }

    /// Notes the timer that limits the wait. Returns it if the wait has already ended.
    pub(super) fn set_deadline(&mut self, ticket: Ticket, kept: Kept) -> Option<Kept> {
        match self.find(ticket.id).filter(|slot| slot.epoch == ticket.epoch) {
            Some(slot) => {
                slot.deadlines.push(kept);
                None
            }
            None => Some(kept),
        }
    }

    /// Uses a resumption.
    pub(super) fn resume(
        &mut self,
        ticket: Ticket,
        directive: Directive,
        timed_out: bool,
        clock: &Clock,
    ) -> Effects<B> {
        let Some(slot) = self.find(ticket.id).filter(|slot| slot.epoch == ticket.epoch) else { return Effects::NONE };
        slot.turn_epoch();
        let deadlines = std::mem::take(&mut slot.deadlines);
        if directive == Directive::Wait {
            // The tasklet waits on without a resumption. It can still be redirected or cancelled.
            slot.suspended = false;
            return Effects { deadlines, ..Effects::NONE };
        }
        if !matches!(slot.place, Place::Waiting(_)) {
            slot.given = Some(Given { directive, timed_out, is_old: false });
            return Effects { deadlines, ..Effects::NONE };
        }
        (slot.timed_out, slot.suspended) = (timed_out, false);
        let Some(body) = self.take_body(ticket.id) else { return Effects { deadlines, ..Effects::NONE } };
        let mut effects = self.put(ticket.id, body, directive, clock);
        effects.deadlines = deadlines;
        effects
    }

    /// Notes that a resumption was dropped unused.
    pub(super) fn release(&mut self, ticket: Ticket) -> Effects<B> {
        let Some(slot) = self.find(ticket.id).filter(|slot| slot.epoch == ticket.epoch) else { return Effects::NONE };
        slot.out -= 1;
        if slot.out > 0 || !slot.suspended || !matches!(slot.place, Place::Waiting(_)) {
            return Effects::NONE;
        }
        let body = self.take_body(ticket.id);
        self.end(ticket.id, body, End::Abandoned)
    }

    /// Gives a tasklet another directive. Returns whether the loop has the tasklet.
    pub(super) fn redirect(
        &mut self,
        id: TaskletId,
        directive: Directive,
        clock: &Clock,
    ) -> Result<Option<Effects<B>>, ScheduleError> {
        let attended = self.is_attended();
        let Some(slot) = self.find(id) else { return Ok(None) };
        match (&slot.place, directive) {
            (Place::Ending, _) => return Ok(None),
            (Place::Home | Place::Elsewhere, Directive::Wait)
            | (Place::Ready(_), Directive::Home)
            | (Place::Waiting(_), Directive::Wait) => return Ok(Some(Effects::NONE)),
            (Place::Home | Place::Elsewhere, _) => {
                slot.turn_epoch();
                slot.given = Some(Given { directive, timed_out: false, is_old: false });
                return Ok(Some(Effects { deadlines: std::mem::take(&mut slot.deadlines), ..Effects::NONE }));
            }
            (Place::Handed(_), Directive::Pool) if attended => return Ok(Some(Effects::NONE)),
            (Place::Ready(_) | Place::Handed(_) | Place::Held(_), Directive::Pool) if !attended => {
                return Err(ScheduleError::NotRunning);
            }
            _ => {}
        }
        let mut deadlines = Vec::new();
        if matches!(slot.place, Place::Waiting(_)) {
            slot.turn_epoch();
            slot.suspended = false;
            deadlines = std::mem::take(&mut slot.deadlines);
        }
        let Some(body) = self.take_body(id) else { return Ok(None) };
        let mut effects = self.put(id, body, directive, clock);
        effects.deadlines.append(&mut deadlines);
        Ok(Some(effects))
    }

    /// Cancels a tasklet. Does nothing if it has already ended or was already cancelled.
    pub(super) fn cancel(&mut self, id: TaskletId, reason: Reason) -> Option<Effects<B>> {
        let slot = self.find(id).filter(|slot| slot.doomed.is_none())?;
        let token = slot.cancel.clone().map(|cancel| (cancel, reason.clone()));
        match slot.place {
            Place::Ending => None,
            Place::Home | Place::Elsewhere => {
                slot.doomed = Some(reason);
                Some(Effects { cancel: token, ..Effects::NONE })
            }
            _ => {
                let body = self.take_body(id);
                let mut effects = self.end(id, body, End::Cancelled(reason));
                effects.cancel = token;
                Some(effects)
            }
        }
    }

    /// Makes the loop refuse further tasklets.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Cancels the next tasklet at this index of the table or behind it.
    pub(super) fn cancel_next(&mut self, place: &mut usize, reason: &Reason) -> Option<Effects<B>> {
        while *place < self.table.len() {
            let slot = *place as u32;
            *place += 1;
            let Some(number) = taken(&mut self.table, slot).map(|slot| slot.number) else { continue };
            let id = TaskletId { owner: self.owner, number, slot };
            if let Some(effects) = self.cancel(id, reason.clone()) {
                return Some(effects);
            }
        }
        None
    }

    /// Ends a tasklet that the pool refuses to step.
    pub(super) fn refuse(&mut self, id: TaskletId, reason: Reason) -> Effects<B> {
        match self.find(id).map(|slot| &slot.place) {
            Some(Place::Handed(_)) => {
                let body = self.take_body(id);
                self.end(id, body, End::Refused(reason))
            }
            _ => Effects::NONE,
        }
    }

    /// As `refuse`, with the body already taken back.
    pub(super) fn refused(&mut self, id: TaskletId, body: B, reason: Reason) -> Effects<B> {
        self.end(id, Some(body), End::Refused(reason))
    }

    /// Takes back a tasklet that was handed to the pool and has not begun. The caller must then retire its slot.
    pub(super) fn take_handed(&mut self, id: TaskletId) -> Option<B> {
        match self.find(id)?.place {
            Place::Handed(_) => self.take_body(id),
            _ => None,
        }
    }

    /// As `take_handed`, for a tasklet that was not yet handed to the pool.
    pub(super) fn take_held(&mut self, id: TaskletId) -> Option<B> {
        match self.find(id)?.place {
            Place::Held(_) => self.take_body(id),
            _ => None,
        }
    }

    /// Frees the slot of a tasklet that has ended or was taken back.
    pub(super) fn retire(&mut self, id: TaskletId) -> Retired {
        if self.find(id).is_none() {
            return Retired { wake: None, slot_left: None };
        }
        let gone = std::mem::replace(&mut self.table[id.slot as usize], Entry::Vacant(self.vacant));
        self.vacant = id.slot;
        self.live -= 1;
        // A tasklet that was taken back may have a token, or a limit for a wait that never begins.
        let slot_left = match gone {
            Entry::Taken(Slot { cancel, deadlines, .. }) => Some((cancel, deadlines)),
            Entry::Vacant(_) => None,
        };
        if self.live > 0 {
            return Retired { wake: None, slot_left };
        }
        if self.table.capacity() > KEPT {
            (self.table, self.vacant) = (Vec::new(), NO_SLOT);
        }
        Retired { wake: self.wake_home(), slot_left }
    }

    /// The token of a tasklet in a step, which is made on first use. Also the reason, if the tasklet was cancelled
    /// before.
    pub(super) fn token(&mut self, id: TaskletId, clock: &Clock) -> (CancelToken, Option<Reason>) {
        match self.find(id) {
            Some(slot) => {
                let token = slot.cancel.get_or_insert_with(|| CancelToken::with_clock(clock.clone())).clone();
                (token, slot.doomed.clone())
            }
            None => (CancelToken::with_clock(clock.clone()), None),
        }
    }

    /// Notes that a thread enters the loop.
    pub(super) fn enter(&mut self, presence: Presence) {
        self.home = presence;
        self.told = false;
    }

    /// Notes that the thread exits the loop. The hook is called if there is more to do, or if no tasklet is left and
    /// the outcome of the run or turn does not report that.
    pub(super) fn leave(&mut self, is_end_reported: bool) -> Option<Wake> {
        self.home = Presence::Away;
        let is_news = self.is_ready() || self.live == 0 && !is_end_reported;
        if is_news { self.wake_home() } else { None }
    }

    /// Notes that the home thread goes to sleep. A transition with work for it wakes it.
    pub(super) fn fall_asleep(&mut self) {
        self.home = Presence::Asleep;
    }

    pub(super) fn wake_up(&mut self) {
        self.home = Presence::Inside;
    }

    /// Sets the hook, which is called from now on when there is work and no thread is in the loop.
    pub(super) fn set_hook(&mut self, hook: Option<Hook>) -> Option<Hook> {
        self.told = false;
        std::mem::replace(&mut self.hook, hook)
    }

    /// The next tasklet that was held until a thread came. The caller hands it to the pool.
    pub(super) fn release_held(&mut self, clock: &Clock) -> Option<TaskletId> {
        if !self.is_attended() {
            return None;
        }
        let place = self.held.first;
        let number = taken(&mut self.table, place)?.number;
        let id = TaskletId { owner: self.owner, number, slot: place };
        let body = self.take_body(id)?;
        self.put(id, body, Directive::Pool, clock).start
    }

    /// Takes the panic that has stopped the loop.
    pub(super) fn take_stop(&mut self) -> Option<TaskletPanic> {
        self.stopped.take()
    }

    /// Whether a home step is ready.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.ready.first != NO_SLOT
    }

    /// The number of tasklets, also of those that are about to end.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The tasklets that the loop still has, in the order in which they were scheduled.
    pub(super) fn tasklets(&self, clock: &Clock) -> Vec<TaskletInfo> {
        let now = clock.now();
        let mut holding: Vec<TaskletInfo> = Vec::new();
        for (place, entry) in self.table.iter().enumerate() {
            let Entry::Taken(slot) = entry else { continue };
            let (directive, running) = match slot.place {
                Place::Ready(_) => (Directive::Home, false),
                Place::Handed(_) | Place::Held(_) => (Directive::Pool, false),
                Place::Waiting(_) => (Directive::Wait, false),
                Place::Home => (Directive::Home, true),
                Place::Elsewhere => (Directive::Pool, true),
                Place::Ending => continue,
            };
            let id = TaskletId { owner: self.owner, number: slot.number, slot: place as u32 };
            let since = now.saturating_duration_since(slot.since);
            holding.push(TaskletInfo { id, name: slot.name.clone(), directive, running, since });
        }
        holding.sort_unstable_by_key(|holding| holding.id.number);
        holding
    }
}
