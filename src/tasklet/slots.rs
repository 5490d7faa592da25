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
//! next run or turn. [`Loop::with`](super::Loop::with) is neither.
//!
//! A run or turn ends under the lock as well, in the critical section of its last look: it leaves. A transition comes
//! before that look, and is seen. Or it comes after the leave, finds no home thread, and calls the hook. The thread
//! that leaves calls the hook itself if a tasklet is still ready, or if none is left and its outcome does not say so.
//!
//! **Ending** takes two steps. First the body is taken out under the lock and dropped without it. Then the slot is
//! retired. Until then the tasklet counts, so `run` does not return before the destructor has run.

use std::borrow::Cow;
use std::time::Instant;

use super::directive::{Directive, TaskletId};
use super::report::{PanicPolicy, Report, TaskletPanic};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason};
use crate::primitives::Arc;
use crate::timer::Kept;

/// Called when there is work and no thread is in the loop.
pub(super) type Hook = Arc<dyn Fn() + Send + Sync>;

pub(super) struct Slots<B> {
    pub(super) owner: u64,
    pub(super) last: u64,
    pub(super) table: Vec<Entry<B>>,
    pub(super) vacant: u32,
    pub(super) ready: List,
    pub(super) held: List,
    pub(super) live: usize,
    pub(super) home: Presence,
    pub(super) hook: Option<Hook>,
    // Whether the hook has been called since a thread was last in the loop.
    pub(super) told: bool,
    pub(super) closed: bool,
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

pub(super) enum Entry<B> {
    Vacant(u32),
    Taken(Slot<B>),
}

pub(super) struct Slot<B> {
    pub(super) number: u64,
    pub(super) place: Place<B>,
    pub(super) before: u32,
    pub(super) behind: u32,
    pub(super) since: Instant,
    pub(super) name: Cow<'static, str>,
    pub(super) ended: Option<Latch<Exit>>,
    pub(super) cancel: Option<CancelToken>,
    // The fields from here on are notes that were made while the body is out.
    pub(super) doomed: Option<Reason>,
    pub(super) given: Option<Given>,
    // The open suspension: its epoch, its number of unused resumptions, and the timer that limits it.
    pub(super) epoch: u64,
    pub(super) out: u32,
    pub(super) suspended: bool,
    pub(super) deadlines: Vec<Kept>,
    // Whether its limit ended the last wait. The next step can query this.
    pub(super) timed_out: bool,
}

pub(super) enum Place<B> {
    Ready(B),
    Handed(B),
    Held(B),
    Waiting(B),
    Home,
    Elsewhere,
    Ending,
}

#[derive(Clone, Copy)]
pub(super) struct Given {
    pub(super) directive: Directive,
    pub(super) timed_out: bool,
    // Whether it was noted before the current step began.
    pub(super) is_old: bool,
}

/// The suspension that a resumption belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) id: TaskletId,
    pub(super) epoch: u64,
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
    pub(super) deadlines: Vec<Kept>,
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
    pub(super) body: Option<B>,
    pub(super) exit: Exit,
    pub(super) ended: Option<Latch<Exit>>,
    // The token's callbacks are user code, and are dropped with the body.
    pub(super) cancel: Option<CancelToken>,
}

/// The contents of a freed slot, to be dropped with no lock held.
#[must_use]
pub(super) struct Retired {
    pub(super) wake: Option<Wake>,
    pub(super) slot_left: Option<(Option<CancelToken>, Vec<Kept>)>,
}

pub(super) enum End {
    Done,
    Cancelled(Reason),
    Abandoned,
    Refused(Reason),
}

impl<B> Effects<B> {
    pub(super) const NONE: Effects<B> =
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

/// A list of slots, which are linked through themselves. Any slot is removed in constant time, without allocation.
#[derive(Clone, Copy)]
pub(super) struct List {
    pub(super) first: u32,
    pub(super) last: u32,
}

impl List {
    pub(super) const EMPTY: List = List { first: NO_SLOT, last: NO_SLOT };
}

/// An index that no slot has.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// The largest table, in slots, that is kept when the loop is empty.
pub(super) const KEPT: usize = 1_024;

/// The reason for the end of a tasklet whose last resumption was dropped.
pub(super) const ABANDONED: &str = "its resumption was dropped unused";

pub(super) fn taken<B>(table: &mut [Entry<B>], place: u32) -> Option<&mut Slot<B>> {
    match table.get_mut(place as usize) {
        Some(Entry::Taken(slot)) => Some(slot),
        _ => None,
    }
}

impl<B> Slot<B> {
    /// Advances the epoch. Resumptions of earlier epochs then do nothing.
    pub(super) fn turn_epoch(&mut self) {
        self.epoch += 1;
        self.out = 0;
    }
}

// The building blocks of the transitions.
impl<B> Slots<B> {
    pub(super) fn new(owner: u64, policy: PanicPolicy) -> Slots<B> {
        Slots {
            owner,
            last: 0,
            table: Vec::new(),
            vacant: NO_SLOT,
            ready: List::EMPTY,
            held: List::EMPTY,
            live: 0,
            home: Presence::Away,
            hook: None,
            told: false,
            closed: false,
            stopped: None,
            policy,
            report: Report::default(),
        }
    }

    /// Whether a thread will step a tasklet that returns from the pool.
    pub(super) fn is_attended(&self) -> bool {
        self.hook.is_some() || matches!(self.home, Presence::Inside | Presence::Asleep)
    }

    #[inline]
    pub(super) fn find(&mut self, id: TaskletId) -> Option<&mut Slot<B>> {
        let owner = self.owner;
        taken(&mut self.table, id.slot).filter(|slot| slot.number == id.number && id.owner == owner)
    }

    /// Puts a body to rest, or ends its tasklet.
    #[inline]
    pub(super) fn put(&mut self, id: TaskletId, body: B, directive: Directive, clock: &Clock) -> Effects<B> {
        let attended = self.is_attended();
        let Some(slot) = self.find(id) else { return self.end_as(id, Some(body), Exit::Done(())) };
        if directive != Directive::Home || !matches!(slot.place, Place::Home) {
            slot.since = clock.now();
        }
        match directive {
            Directive::Home => {
                slot.place = Place::Ready(body);
                link(&mut self.table, &mut self.ready, id.slot);
                Effects { wake: self.wake_home(), ..Effects::NONE }
            }
            Directive::Pool if attended => {
                slot.place = Place::Handed(body);
                Effects { start: Some(id), ..Effects::NONE }
            }
            Directive::Pool => {
                slot.place = Place::Held(body);
                link(&mut self.table, &mut self.held, id.slot);
                Effects::NONE
            }
            Directive::Wait => {
                slot.place = Place::Waiting(body);
                Effects::NONE
            }
            Directive::Done => self.end(id, Some(body), End::Done),
        }
    }

    /// Takes a resting body out of its slot. Until the body is put elsewhere, the slot counts as ending.
    #[inline]
    pub(super) fn take_body(&mut self, id: TaskletId) -> Option<B> {
        match std::mem::replace(&mut self.find(id)?.place, Place::Ending) {
            Place::Ready(body) => {
                unlink(&mut self.table, &mut self.ready, id.slot);
                Some(body)
            }
            Place::Held(body) => {
                unlink(&mut self.table, &mut self.held, id.slot);
                Some(body)
            }
            Place::Handed(body) | Place::Waiting(body) => Some(body),
            Place::Home | Place::Elsewhere | Place::Ending => None,
        }
    }

    pub(super) fn end(&mut self, id: TaskletId, body: Option<B>, end: End) -> Effects<B> {
        let exit = match end {
            End::Done => {
                self.report.finished += 1;
                Exit::Done(())
            }
            End::Cancelled(reason) => {
                self.report.cancelled += 1;
                Exit::Terminated(reason)
            }
            End::Refused(reason) => {
                self.report.refused += 1;
                Exit::Terminated(reason)
            }
            End::Abandoned => {
                let owner = self.owner;
                if let Some(slot) = taken(&mut self.table, id.slot).filter(|_| id.owner == owner) {
                    self.report.abandoned(id, slot.name.clone());
                }
                Exit::Terminated(Reason::from(ABANDONED))
            }
        };
        self.end_as(id, body, exit)
    }

    pub(super) fn end_as(&mut self, id: TaskletId, body: Option<B>, exit: Exit) -> Effects<B> {
        let Some(slot) = self.find(id) else {
            return Effects { over: Some(Over { id, body, exit, ended: None, cancel: None }), ..Effects::NONE };
        };
        slot.place = Place::Ending;
        slot.turn_epoch();
        let deadlines = std::mem::take(&mut slot.deadlines);
        let over = Over { id, body, exit, ended: slot.ended.take(), cancel: slot.cancel.take() };
        Effects { deadlines, over: Some(over), ..Effects::NONE }
    }

    /// Notes that there is work for the home thread.
    #[inline]
    pub(super) fn wake_home(&mut self) -> Option<Wake> {
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

fn link<B>(table: &mut [Entry<B>], list: &mut List, place: u32) {
    let last = std::mem::replace(&mut list.last, place);
    match taken(table, last) {
        Some(slot) => slot.behind = place,
        None => list.first = place,
    }
    if let Some(slot) = taken(table, place) {
        (slot.before, slot.behind) = (last, NO_SLOT);
    }
}

fn unlink<B>(table: &mut [Entry<B>], list: &mut List, place: u32) {
    let Some(slot) = taken(table, place) else { return };
    let (before, behind) = (slot.before, slot.behind);
    match taken(table, before) {
        Some(slot) => slot.behind = behind,
        None => list.first = behind,
    }
    match taken(table, behind) {
        Some(slot) => slot.before = before,
        None => list.last = before,
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
