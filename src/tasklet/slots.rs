//! The slots of a loop: the place of each tasklet, and its pending notes.
//!
//! # The protocol
//!
//! **The body is the permission.** A tasklet's body is in exactly one place: at rest in its slot, or held by the
//! thread that steps it. All slots of a loop are under one lock, which is never held while user code runs. Every
//! transition below is one critical section. So of two racing transitions one comes first, and the other one sees it.
//!
//! A tasklet at rest is in one of four places. A *ready* one is queued for the home thread. A *handed* one is in the
//! pool, whose thread takes the body out of the slot when it begins. A *held* one is to go to the pool when a thread
//! is in the loop. A *waiting* one waits. Being resumed (only while it waits), redirected or cancelled gives the
//! tasklet another directive:
//!
//! | at rest | `Home` | `Pool` | `Pool`, no thread inside | `Wait` | `Done` | cancelled |
//! |---|---|---|---|---|---|---|
//! | ready | ready | handed | refused | waiting | over | over |
//! | handed | ready | handed | refused | waiting | over | over |
//! | held | ready | handed | refused | waiting | over | over |
//! | waiting | ready | handed | held | waiting | over | over |
//!
//! A tasklet in a step cannot be given a directive, because its body is not in the slot. So the directive is *noted*
//! in the slot. The note is read when the step returns. This is the only mechanism for wake-ups, and it loses none. A
//! resumption may find the body at rest and move it. Otherwise the step returns later under the same lock, and finds
//! the note.
//!
//! | the step returns | nothing noted | resumed `Home` | resumed `Done` | all resumptions dropped | cancelled |
//! |---|---|---|---|---|---|
//! | `Home` | ready | ready | over | ready | over |
//! | `Pool` | handed | handed | over | handed | over |
//! | `Pool`, no thread inside | held | held | over | held | over |
//! | `Wait` | waiting | ready | over | over | over |
//! | `Done` | over | over | over | over | over |
//!
//! **Resumptions** carry the slot's *epoch*. The first one that is used advances the epoch, so all others of that
//! epoch do nothing. The same holds for a deadline. A resumption may also be made for a wait that has ended before it
//! began. It gets the passed epoch. The slot counts the unused resumptions. If the last one is dropped unused and the
//! tasklet waits for it, nothing could ever wake the tasklet. Then it ends, and the report says so. If a step does
//! not wait for its suspension, the suspension stays open until a later step waits.
//!
//! **The home thread** goes to sleep under the lock, after it has found no ready tasklet but a remaining one. A
//! thread that makes a tasklet ready, or that retires the last one, holds the lock as well. It finds that the home
//! thread sleeps, and wakes it. If the home thread is in no run or turn, the wake-up hook is called once, until the
//! next run or turn. [`Loop::with`](super::Loop::with) is neither. The steps that a `schedule` runs on an automatic
//! loop are neither.
//!
//! A run or turn ends under the lock as well, in the critical section of its last look: it leaves. A transition comes
//! before that look, and is seen. Or it comes after the leave, finds no home thread, and calls the hook. The thread
//! that leaves calls the hook itself if a tasklet is still ready, or if none is left and its outcome does not say so.
//!
//! **Ending** takes two steps. First the body is taken out under the lock and dropped without it. Then the slot is
//! retired. Until then the tasklet counts, so `run` does not return before the destructor has run.

use std::borrow::Cow;

use super::directive::{Directive, ScheduleError, TaskletId};
use super::report::{PanicPolicy, Report, TaskletInfo, TaskletPanic};
use super::table::{Given, List, Slot, Table};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::{Exit, Panic, Reason};
use crate::primitives::Arc;
use crate::timer::TimerId;

/// Called when there is work and no thread is in the loop.
pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Slots<B> {
    table: Table<B>,
    ready: List,
    held: List,
    clock: Clock,
    pub(super) home: Presence,
    hook: Option<Hook>,
    /// Whether the hook has been called since the last run or turn.
    told: bool,
    pub(super) closed: bool,
    /// The panic that has stopped the loop.
    pub(super) stopped: Option<TaskletPanic>,
    pub(super) policy: PanicPolicy,
    pub(super) report: Report,
}

/// How the home thread is in the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    /// It is in no run or turn. A tasklet that returns from the pool would find no thread.
    Away,
    Inside,
    Asleep,
}

/// The suspension that a resumption belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) id: TaskletId,
    epoch: u64,
}

/// A tasklet that is about to be stepped.
pub(super) struct Begun<B> {
    pub(super) id: TaskletId,
    pub(super) body: B,
    pub(super) timed_out: bool,
}

/// Work for the time after the lock was released.
#[must_use]
pub(super) struct Effects<B> {
    pub(super) start: Option<TaskletId>,
    pub(super) wake: Option<Wake>,
    pub(super) cancel: Option<(CancelToken, Reason)>,
    pub(super) deadlines: Vec<TimerId>,
    pub(super) panicked: Option<(PanicPolicy, TaskletPanic)>,
    pub(super) over: Option<Over<B>>,
}

/// A wake-up to be made.
pub(super) enum Wake {
    Home,
    Hook(Hook),
}

/// An ended tasklet. Its body must be dropped and its end reported. After that its slot must be retired.
pub(super) struct Over<B> {
    pub(super) id: TaskletId,
    /// It is `None` if the tasklet was taken back.
    pub(super) body: Option<B>,
    pub(super) exit: Exit,
    pub(super) ended: Option<Latch<Exit>>,
    // The token's callbacks are user code, and are dropped with the body.
    pub(super) cancel: Option<CancelToken>,
}

impl<B> Effects<B> {
    const NONE: Effects<B> =
        Effects { start: None, wake: None, cancel: None, deadlines: Vec::new(), panicked: None, over: None };

    /// Whether there is any work.
    #[inline]
    pub(super) fn are_some(&self) -> bool {
        self.over.is_some()
            || self.start.is_some()
            || self.wake.is_some()
            || self.cancel.is_some()
            || self.panicked.is_some()
            || !self.deadlines.is_empty()
    }
}

/// The reason for the end of a tasklet whose last resumption was dropped.
const ABANDONED: &str = "its resumption was dropped unused";

// The transitions.
impl<B> Slots<B> {
    pub(super) fn new(owner: u64, policy: PanicPolicy, clock: Clock) -> Slots<B> {
        Slots {
            table: Table::new(owner),
            ready: List::EMPTY,
            held: List::EMPTY,
            clock,
            home: Presence::Away,
            hook: None,
            told: false,
            closed: false,
            stopped: None,
            policy,
            report: Report::default(),
        }
    }

    /// Adds a tasklet with its first directive.
    pub(super) fn insert(
        &mut self,
        (name, ended): (Cow<'static, str>, Option<Latch<Exit>>),
        body: B,
        directive: Directive,
    ) -> Result<(TaskletId, Effects<B>), (B, ScheduleError)> {
        if directive == Directive::Pool && !self.closed && !self.is_attended() {
            return Err((body, ScheduleError::NotRunning));
        }
        match self.admit(name, ended) {
            Ok(id) => Ok((id, self.put(id, body, directive))),
            Err(why) => Err((body, why)),
        }
    }

    /// Adds a tasklet whose body the caller holds. The caller steps it at once, at home.
    pub(super) fn admit(
        &mut self,
        name: Cow<'static, str>,
        ended: Option<Latch<Exit>>,
    ) -> Result<TaskletId, ScheduleError> {
        if self.closed {
            return Err(ScheduleError::Closed);
        }
        Ok(self.table.insert(name, ended, self.clock.now()))
    }

    /// Begins a home step of the tasklet that has been ready for the longest.
    #[inline]
    pub(super) fn begin_home(&mut self) -> Option<Begun<B>> {
        let id = self.ready.first(&mut self.table)?;
        let body = self.take_body(id)?;
        self.report.home_steps += 1;
        Some(self.begin(id, body))
    }

    /// Begins a tasklet's pool step, if the pool still has the tasklet.
    pub(super) fn begin_elsewhere(&mut self, id: TaskletId) -> Option<Begun<B>> {
        let body = self.take_queued(id, false)?;
        self.report.pool_steps += 1;
        Some(self.begin(id, body))
    }

    #[inline]
    fn begin(&mut self, id: TaskletId, body: B) -> Begun<B> {
        let slot = self.table.slot(id);
        if let Some(given) = &mut slot.given {
            given.is_old = true;
        }
        Begun { id, body, timed_out: std::mem::take(&mut slot.timed_out) }
    }

    /// Notes that a step has returned or panicked.
    #[inline]
    pub(super) fn settle(&mut self, id: TaskletId, body: B, outcome: Result<Directive, Panic>) -> Effects<B> {
        let returned = match outcome {
            Ok(returned) => returned,
            Err(panic) => return self.panicked(id, body, panic, false),
        };
        let slot = self.table.slot(id);
        if returned == Directive::Done || slot.given.is_some_and(|given| given.directive == Directive::Done) {
            return self.put(id, body, Directive::Done);
        }
        if let Some(reason) = slot.doomed.take() {
            return self.cancelled(id, body, reason);
        }
        if returned != Directive::Wait {
            return self.put(id, body, returned);
        }
        if let Some(given) = slot.given.take() {
            slot.timed_out = given.timed_out;
            return self.put(id, body, given.directive);
        }
        if slot.suspended && slot.out == 0 {
            return self.abandoned(id, body);
        }
        self.put(id, body, Directive::Wait)
    }

    /// Notes that a step has panicked. The policy decides whether that stops the loop, unless the panic is rethrown
    /// to the caller.
    pub(super) fn panicked(&mut self, id: TaskletId, body: B, panic: Panic, rethrown: bool) -> Effects<B> {
        let slot = self.table.slot(id);
        let told = TaskletPanic { id, name: slot.name.clone(), directive: slot.directive, panic };
        self.report.panicked(&told);
        let mut effects = self.end(id, Some(body), Exit::Panicked(told.panic.clone()));
        if matches!(self.policy, PanicPolicy::Stop) && !rethrown && self.stopped.is_none() {
            self.stopped = Some(told.clone());
            effects.wake = self.wake_home();
        }
        effects.panicked = Some((self.policy.clone(), told));
        effects
    }

    /// Opens a suspension for a tasklet in a step, or adds a resumption to it.
    pub(super) fn suspend(&mut self, id: TaskletId) -> Ticket {
        let slot = self.table.slot(id);
        // A resumption of an earlier suspension, for which no step waited, must not end this one.
        slot.given = slot.given.filter(|given| !given.is_old || given.directive == Directive::Done);
        if slot.given.is_some() {
            // The wait has ended before it began. Resumptions that are made for it now belong to the passed epoch.
            return Ticket { id, epoch: slot.epoch - 1 };
        }
        slot.suspended = true;
        slot.out += 1;
        Ticket { id, epoch: slot.epoch }
    }

    /// Notes a timer that limits the wait. Returns it if the wait has already ended.
    pub(super) fn set_deadline(&mut self, ticket: Ticket, kept: TimerId) -> Option<TimerId> {
        match self.suspended(ticket) {
            Some(slot) => {
                slot.deadlines.push(kept);
                None
            }
            None => Some(kept),
        }
    }

    /// Uses a resumption. With `Wait`, the tasklet waits on without a resumption. It can still be redirected or
    /// cancelled.
    pub(super) fn resume(&mut self, ticket: Ticket, directive: Directive, timed_out: bool) -> Effects<B> {
        match self.suspended(ticket) {
            Some(slot) if directive == Directive::Wait => Effects { deadlines: slot.end_suspension(), ..Effects::NONE },
            Some(_) => self.give(ticket.id, directive, timed_out),
            None => Effects::NONE,
        }
    }

    /// Ends the suspension of a tasklet. If the tasklet waits, it gets the directive. Otherwise the directive is noted.
    fn give(&mut self, id: TaskletId, directive: Directive, timed_out: bool) -> Effects<B> {
        let slot = self.table.slot(id);
        let deadlines = slot.end_suspension();
        let effects = match slot.body.take_if(|_| slot.directive == Directive::Wait) {
            Some(body) => {
                slot.timed_out = timed_out;
                self.put(id, body, directive)
            }
            None => {
                slot.given = Some(Given { directive, timed_out, is_old: false });
                Effects::NONE
            }
        };
        Effects { deadlines, ..effects }
    }

    /// Notes that a resumption was dropped unused.
    pub(super) fn release(&mut self, ticket: Ticket) -> Effects<B> {
        let Some(slot) = self.suspended(ticket) else { return Effects::NONE };
        slot.out -= 1;
        if slot.out > 0 || slot.directive != Directive::Wait {
            return Effects::NONE;
        }
        self.take_body(ticket.id).map_or(Effects::NONE, |body| self.abandoned(ticket.id, body))
    }

    /// Gives a tasklet another directive. Returns whether the loop has the tasklet.
    pub(super) fn redirect(
        &mut self,
        id: TaskletId,
        directive: Directive,
    ) -> Result<Option<Effects<B>>, ScheduleError> {
        let attended = self.is_attended();
        let Some(slot) = self.table.find(id).filter(|slot| slot.directive != Directive::Done) else { return Ok(None) };
        let is_queued = slot.body.is_some() && slot.directive != Directive::Wait;
        if !is_queued {
            let waits_on = directive == Directive::Wait;
            return Ok(Some(if waits_on { Effects::NONE } else { self.give(id, directive, false) }));
        }
        if directive == Directive::Pool && !attended {
            return Err(ScheduleError::NotRunning);
        }
        if slot.directive == directive && !slot.is_held {
            return Ok(Some(Effects::NONE));
        }
        Ok(self.take_body(id).map(|body| self.put(id, body, directive)))
    }

    /// Cancels a tasklet. Does nothing if it has already ended or was already cancelled.
    pub(super) fn cancel(&mut self, id: TaskletId, reason: Reason) -> Option<Effects<B>> {
        let slot = self.table.find(id).filter(|slot| slot.doomed.is_none() && slot.directive != Directive::Done)?;
        let cancel = slot.cancel.clone().map(|cancel| (cancel, reason.clone()));
        let effects = match self.take_body(id) {
            Some(body) => self.cancelled(id, body, reason),
            None => {
                self.table.slot(id).doomed = Some(reason);
                Effects::NONE
            }
        };
        Some(Effects { cancel, ..effects })
    }

    /// Makes the loop refuse further tasklets. Returns those that it has.
    pub(super) fn close(&mut self) -> Vec<TaskletId> {
        self.closed = true;
        self.table.iter().map(|(id, _)| id).collect()
    }

    /// Ends a tasklet that the pool does not step.
    pub(super) fn refuse(&mut self, id: TaskletId, reason: Reason) -> Effects<B> {
        let Some(body) = self.take_queued(id, false) else { return Effects::NONE };
        self.report.refused += 1;
        self.end(id, Some(body), Exit::Terminated(reason))
    }

    /// Takes back a tasklet whose pool step has not begun, or a held one.
    pub(super) fn take_back(&mut self, id: TaskletId, is_held: bool) -> Option<(B, Effects<B>)> {
        let body = self.take_queued(id, is_held)?;
        // No handle of the tasklet was given away, so nobody sees this exit.
        Some((body, self.end(id, None, Exit::Terminated(Reason::Cancelled))))
    }

    /// Frees the slot of an ended tasklet. The slot is to be dropped with no lock held.
    pub(super) fn retire(&mut self, id: TaskletId) -> (Option<Slot<B>>, Option<Wake>) {
        let gone = self.table.remove(id);
        (gone, if self.live() == 0 { self.wake_home() } else { None })
    }

    /// The number of tasklets, also of those that are about to end.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.table.live()
    }

    /// Whether the loop is closed and empty.
    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.live() == 0
    }

    /// The token of a tasklet in a step, which is made on first use. Also the reason, if the tasklet was cancelled
    /// before.
    pub(super) fn token(&mut self, id: TaskletId) -> (CancelToken, Option<Reason>) {
        let slot = self.table.slot(id);
        let token = slot.cancel.get_or_insert_with(|| CancelToken::with_clock(self.clock.clone()));
        (token.clone(), slot.doomed.clone())
    }

    /// Notes that a thread begins to run ready steps. If this is a run or turn, the hook may be called again.
    pub(super) fn enter(&mut self, presence: Presence) {
        self.home = presence;
        self.told &= presence == Presence::Away;
    }

    /// Notes that the thread exits the loop. The hook is called if there is more to do, or if no tasklet is left and
    /// the outcome of the run or turn does not report that.
    pub(super) fn leave(&mut self, is_end_reported: bool) -> Option<Wake> {
        self.home = Presence::Away;
        let is_news = self.is_ready() || self.live() == 0 && !is_end_reported;
        if is_news { self.wake_home() } else { None }
    }

    /// Sets the hook, which is called when a loop without a thread has work.
    pub(super) fn set_hook(&mut self, hook: Option<Hook>) -> Option<Hook> {
        self.told = false;
        std::mem::replace(&mut self.hook, hook)
    }

    /// The next tasklet that was held until a thread came. The caller hands it to the pool.
    pub(super) fn release_held(&mut self) -> Option<TaskletId> {
        if !self.is_attended() {
            return None;
        }
        let id = self.held.first(&mut self.table)?;
        let body = self.take_body(id)?;
        self.put(id, body, Directive::Pool).start
    }

    /// Whether a home step is ready.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The tasklets that the loop still has, in the order in which they were scheduled.
    pub(super) fn tasklets(&self) -> Vec<TaskletInfo> {
        let now = self.clock.now();
        let left = self.table.iter().filter(|(_, slot)| slot.directive != Directive::Done);
        let mut holding: Vec<TaskletInfo> = left
            .map(|(id, slot)| TaskletInfo {
                id,
                name: slot.name.clone(),
                directive: slot.directive,
                running: slot.body.is_none(),
                since: now.saturating_duration_since(slot.since),
            })
            .collect();
        holding.sort_unstable_by_key(|holding| holding.id.number);
        holding
    }
}

// The building blocks of the transitions.
impl<B> Slots<B> {
    /// Whether a thread will step a tasklet that returns from the pool.
    fn is_attended(&self) -> bool {
        self.hook.is_some() || self.home != Presence::Away
    }

    /// The slot of a suspension that has not ended.
    fn suspended(&mut self, ticket: Ticket) -> Option<&mut Slot<B>> {
        self.table.find(ticket.id).filter(|slot| slot.epoch == ticket.epoch)
    }

    /// Puts a body to rest, or ends its tasklet.
    #[inline]
    fn put(&mut self, id: TaskletId, body: B, directive: Directive) -> Effects<B> {
        if directive == Directive::Done {
            self.report.finished += 1;
            return self.end(id, Some(body), Exit::Done(()));
        }
        let is_pool = directive == Directive::Pool;
        let is_held = is_pool && !self.is_attended();
        let slot = self.table.slot(id);
        if directive != Directive::Home || slot.directive != directive {
            slot.since = self.clock.now();
        }
        (slot.body, slot.directive, slot.is_held) = (Some(body), directive, is_held);
        if is_held {
            self.held.push(&mut self.table, id);
        } else if directive == Directive::Home {
            self.ready.push(&mut self.table, id);
            return Effects { wake: self.wake_home(), ..Effects::NONE };
        }
        Effects { start: (is_pool && !is_held).then_some(id), ..Effects::NONE }
    }

    /// Takes the body of a tasklet at rest out of its slot.
    #[inline]
    fn take_body(&mut self, id: TaskletId) -> Option<B> {
        let slot = self.table.find(id)?;
        let body = slot.body.take()?;
        let (directive, is_held) = (slot.directive, slot.is_held);
        if directive == Directive::Home {
            self.ready.remove(&mut self.table, id);
        } else if is_held {
            self.held.remove(&mut self.table, id);
        }
        Some(body)
    }

    /// As `take_body`, for a tasklet whose pool step has not begun, or a held one.
    fn take_queued(&mut self, id: TaskletId, is_held: bool) -> Option<B> {
        self.table.find(id).filter(|slot| slot.directive == Directive::Pool && slot.is_held == is_held)?;
        self.take_body(id)
    }

    fn cancelled(&mut self, id: TaskletId, body: B, reason: Reason) -> Effects<B> {
        self.report.cancelled += 1;
        self.end(id, Some(body), Exit::Terminated(reason))
    }

    fn abandoned(&mut self, id: TaskletId, body: B) -> Effects<B> {
        let name = self.table.slot(id).name.clone();
        self.report.abandoned(id, name);
        self.end(id, Some(body), Exit::Terminated(Reason::from(ABANDONED)))
    }

    fn end(&mut self, id: TaskletId, body: Option<B>, exit: Exit) -> Effects<B> {
        let slot = self.table.slot(id);
        slot.directive = Directive::Done;
        let deadlines = slot.end_suspension();
        let over = Over { id, body, exit, ended: slot.ended.take(), cancel: slot.cancel.take() };
        Effects { deadlines, over: Some(over), ..Effects::NONE }
    }

    /// Notes that there is work for the home thread.
    #[inline]
    fn wake_home(&mut self) -> Option<Wake> {
        match self.home {
            Presence::Asleep => {
                self.home = Presence::Inside;
                Some(Wake::Home)
            }
            Presence::Away if !self.told => {
                self.told = self.hook.is_some();
                self.hook.clone().map(Wake::Hook)
            }
            _ => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
