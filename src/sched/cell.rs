//! The cell of a process: a small lock around the place of its body and the events that have arrived in the meantime.
//!
//! The two races of waking are decided here, under the lock. `docs/scheduling.md` has the argument.
//!
//! | the body is | a message or signal arrives | the step it was out for ends |
//! |---|---|---|
//! | **resting**, and waits for such an event | into the body's mailbox; the sender *takes the body out* | — |
//! | **resting**, and waits for something else | into the body's mailbox | — |
//! | **out** (in a queue, or in an executor) | into the inbox | the inbox goes to the body; it stays out or rests |
//! | **nowhere** (vacant: the process has ended, or is not yet) | it is refused | — |
//!
//! With a bound, messages stay in the inbox until they are given to a step. While there are some, an answer to a
//! resting process goes there, too: it comes after them.
//!
//! To take the body out is the wake. It can happen only once, because then the body is out. After a step, the body
//! stays out if the process waits for any of the events from the inbox. Otherwise it is put to rest.
//!
//! When a step has said `Idle`, "waits for any of it" depends on how the step treated its events:
//!
//! | the step | nothing has come since it was given its events | something has come |
//! |---|---|---|
//! | took some, or passed some over, and nothing is left that it was not shown | rests | stepped again |
//! | took some, or passed some over, and left others | stepped again | stepped again |
//! | took none and passed none over, and there are some | rests | stepped again, with all that is there |
//! | the same, after `Wait`: it was not offered the messages | stepped again | stepped again |
//!
//! The third row is [`Verdict::Declined`]. The inbox shows whether something has come. It is empty when a step is given
//! its events, or holds only events that were not shown to the step. Events found there go to the body at once. So no
//! event is found there as new twice. With a bound the inbox also holds older messages, for which the share of the
//! step had no room. So there a mark says whether a message has come. The mark is set with the message, and cleared
//! when the step is given its share. Both happen under this lock, as the decision to rest does. So the decision
//! either sees a new event, or the event finds the body at rest and takes it out. Messages that were passed over
//! earlier (and are kept in the body) are offered to each step, and wake no process. If a step does not come to all of
//! them, it has left others.
//!
//! The answer to a command that is performed at once goes into the body in hand, if the inbox is empty. The look into
//! the inbox is under this lock. So everything that has arrived before the answer is before it, or makes it take the
//! way through the inbox. A mark in the head of the body says that something has come. It belongs to the thread that
//! has the body, which clears it when it decides under the lock whether the process rests.
//!
//! No user code runs under the lock, and no user value is dropped under it.

mod asking;
mod holding;
mod polling;
mod related;
mod replacing;
mod room;
pub(crate) mod view;
mod waiting;

pub(crate) use self::asking::AskWait;
use self::holding::Held;
pub(crate) use self::waiting::Filled;
use super::marks::{BOUNDED, FLAGS, HAS_FAILED, HELD, POLLS, WAITS, doom};
pub(crate) use super::marks::{BY_SHUTDOWN, Birth, DOOMED, NEVER_HELD, NO_THREAD, RELATED, TRAPS, WATCHED};
use crate::outcome::{LinkedExit, Reason};
use crate::primitives::{Arc, Brief, BriefGuard, enter};
use crate::process::{CancelRequest, Completion, Pid};
use crate::sched::body::{Kind, Ready, Stepped, Verdict};
use crate::sched::bounded_mailbox::{BoundedMailbox, Bounds, WaitingSender};
use crate::sched::doorway::ToldSends;
use crate::sched::mailbox::{AnyMailbox, Bound, Control, Overflow, Signal};
use crate::sched::room_queue::RoomQueue;

/// Why a PID names no living process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No process has had it.
    Never,
    /// Its process has ended, or is being ended.
    Ended,
    /// Its process may live, and cannot be reached now: its store opens its files again.
    #[cfg_attr(not(feature = "durable"), allow(dead_code))]
    NotNow,
    /// Its process is on another node, and there is no connection to that node.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    NodeDown,
}

/// Why a mailbox was not opened. It is small, because it is the result of every post.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missed {
    NoSuchProcess,
    /// The mailbox has another type. The function returns the name of its type.
    WrongType(fn() -> &'static str),
}

/// The outcome of a step.
#[must_use]
pub(crate) enum Settled {
    /// The body is at rest.
    Resting,
    /// The body is at rest, and waits for one answer, of this process.
    Asking(Pid),
    /// The process is to be stepped again.
    Again(Ready),
    /// The process is to be ended: it is doomed, or it waits for a signal and none can come.
    Ends(Ready),
}

/// Messages and senders that a bounded mailbox has released.
#[derive(Default)]
#[must_use]
pub(crate) struct Freed {
    /// Messages that were pushed out.
    pub(crate) oldest: Option<Box<dyn AnyMailbox>>,
    /// Messages that have waited for room. The caller tells their senders, and fills their places.
    pub(crate) told: ToldSends,
}

/// The inbox of a cell, taken out.
pub(crate) struct Inbox {
    pub(crate) mailbox: Box<dyn AnyMailbox>,
    /// Messages that wait for room.
    pub(crate) waiting: Option<Box<RoomQueue<Arc<dyn WaitingSender>>>>,
}

/// The outcome of notifying a process of the end of a linked process.
#[must_use]
pub(crate) enum LinkTold {
    /// The process traps exits, and the event is in its mailbox. With its body, if that woke it.
    Trapped(Option<Ready>),
    /// The process is to be ended. With its body, if it was at rest.
    Doomed(Option<Ready>),
    /// The process has ended, is being ended, or ignores this.
    Refused(Control),
}

/// The contents of the cell of a process that has ended.
pub(crate) struct Vacated {
    body: BodyState,
    /// If they include [`RELATED`], others are notified of the end: only now, when the cell is vacant. See the table of
    /// `relations.rs`.
    pub(crate) marks: u64,
    /// Messages that no step had taken.
    pub(crate) queued: u32,
}

impl Vacated {
    /// Returns the link through which the process was ended, if the inbox has it.
    #[cold]
    pub(crate) fn take_killer(&mut self) -> Option<LinkedExit> {
        self.body.inbox()?.0.take_killer()
    }

    /// Takes the inbox out, if there is one. Mostly there is none.
    #[inline]
    pub(crate) fn into_inbox(self) -> Option<Inbox> {
        if matches!(self.body, BodyState::Out(None)) {
            // Nothing is there. Forgetting it saves the check for what to drop.
            std::mem::forget(self);
            return None;
        }
        self.body.into_inbox()
    }
}

/// The state of a process, as seen from outside.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) generation: u32,
    pub(crate) kind: &'static Kind,
    pub(crate) rest: Rest,
    pub(crate) steps: u64,
    /// The number of times that the process has recovered.
    pub(crate) incarnation: u16,
    pub(crate) queued: u32,
    /// The birth of the process: microseconds since the start of the runtime, to within 1,024 of them,
    /// and without the multiples of [`BORN_SPAN`].
    pub(crate) born: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Idle,
    Waiting,
    Out,
}

/// One slot of the process table. It is a cache line, so that neighbours do not disturb each other.
#[repr(align(64))]
pub(crate) struct Cell {
    inner: Brief<Inner>,
}

struct Inner {
    body: BodyState,
    /// The type of the process. If the slot is vacant, the type of the last one.
    kind: Option<&'static Kind>,
    steps: u64,
    /// The flags, the incarnation and the birth of the process.
    ///
    /// The lower 12 bits are the flags, the next 16 the incarnation, and the others the time of the spawn.
    stamp: u64,
    generation: u32,
    /// Messages that were accepted and not yet taken by a step.
    queued: u32,
}

enum BodyState {
    Vacant,
    Resting(Ready),
    /// The body is out. The mailbox holds what has arrived in the meantime.
    Out(Option<Box<dyn AnyMailbox>>),
    /// As `Out`, for a process whose mailbox has a bound. It is in the body only while that rests.
    OutBounded(Box<BoundedMailbox>),
    /// The process is held. Only a signal wakes it.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    Held(Box<Held>),
}

const INCARNATION_SHIFT: u32 = 12;

/// In units of 1,024 microseconds since the start of the runtime.
const BORN_SHIFT: u32 = 28;
const BORN_UNIT: u32 = 10;

/// The time, in microseconds, after which the times of births begin anew: two years. Differences are right below it.
pub(crate) const BORN_SPAN: u64 = 1 << (u64::BITS - BORN_SHIFT + BORN_UNIT);

impl Cell {
    pub(crate) fn new() -> Cell {
        Cell {
            inner: Brief::new(Inner {
                body: BodyState::Vacant,
                kind: None,
                steps: 0,
                stamp: 0,
                generation: 0,
                queued: 0,
            }),
        }
    }

    /// Makes a process of this generation live. The caller has its body.
    ///
    /// If `closed` says that no process may begin any longer, this does nothing. `closed` is asked under the lock, so
    /// a look through the table after the closing sees every process.
    // Inlined: one caller, a spawn, is on a hot path. The other is a driver.
    #[inline(always)]
    pub(crate) fn install(
        &self,
        generation: u32,
        kind: &'static Kind,
        birth: Birth,
        born: u64,
        closed: impl FnOnce() -> bool,
    ) -> bool {
        let body = BodyState::out(kind, birth.bound);
        let mut inner = enter(&self.inner);
        if closed() {
            drop(inner);
            return false;
        }
        let flags = birth.marks | if birth.bound.is_some() { BOUNDED } else { 0 };
        *inner = Inner {
            body,
            kind: Some(kind),
            steps: 0,
            stamp: (born >> BORN_UNIT) << BORN_SHIFT | flags,
            generation,
            queued: birth.queued,
        };
        true
    }

    /// Opens the mailbox of a living process, and calls `fill` under the lock.
    ///
    /// `fill` is given the mailbox, and its bounds if it has any. It returns by how many messages the mailbox has
    /// grown, or `None` if it is for another type. A returned body has been woken. The number is how many messages wait
    /// now.
    #[inline(always)]
    pub(crate) fn post<F>(&self, pid: Pid, fill: F) -> Result<(Option<Ready>, u32), Missed>
    where
        F: FnOnce(&mut dyn AnyMailbox, Option<&mut Bounds>) -> Option<u32>,
    {
        let mut inner = enter(&self.inner);
        let Some(kind) = inner.kind.filter(|_| inner.missing(pid).is_none()) else { return Err(Missed::NoSuchProcess) };
        let has_bound = inner.stamp & BOUNDED != 0;
        let (mailbox, bounds) = match &mut inner.body {
            BodyState::Resting(body) if has_bound => match &mut body.head.rare().bounded {
                Some(bounded) => bounded.open(),
                None => return Err(Missed::NoSuchProcess),
            },
            BodyState::Resting(body) => (body.machine.mailbox(), None),
            BodyState::Out(inbox) => (&mut **inbox.get_or_insert_with(kind.new_mailbox), None),
            BodyState::OutBounded(bounded) => bounded.open(),
            BodyState::Held(held) => held.open(kind.new_mailbox).ok_or(Missed::NoSuchProcess)?,
            BodyState::Vacant => return Err(Missed::NoSuchProcess),
        };
        let Some(more) = fill(mailbox, bounds) else { return Err(Missed::WrongType(kind.message_name)) };
        inner.queued += more;
        let queued = inner.queued;
        Ok((if more > 0 && inner.stamp & WAITS == 0 { inner.wake() } else { None }, queued))
    }

    /// Checks that the PID's process lives.
    pub(crate) fn check(&self, pid: Pid) -> Result<(), Missing> {
        enter(&self.inner).missing(pid).map_or(Ok(()), Err)
    }

    /// Delivers a signal. A returned body has been woken.
    #[inline]
    pub(crate) fn signal(&self, pid: Pid, signal: Signal) -> Result<Option<Ready>, (Missing, Signal)> {
        let signal = match signal {
            Signal::Completed(completion) => {
                return self.complete(pid, completion).map_err(|refused| (Missing::Ended, Signal::Completed(refused)));
            }
            control => control,
        };
        let mut inner = enter(&self.inner);
        match inner.missing(pid) {
            None => Ok(inner.signal(signal)),
            Some(missing) => Err((missing, signal)),
        }
    }

    /// Delivers a completion. A returned body has been woken. The answer to a command of an earlier incarnation is
    /// refused.
    #[inline]
    pub(crate) fn complete(&self, pid: Pid, completion: Completion) -> Result<Option<Ready>, Completion> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() || inner.is_late(&completion) {
            return Err(completion);
        }
        let woken = inner.wake();
        if let Some(mut body) = woken {
            match &mut inner.body {
                // Messages that have stayed here are older. The body gets the completion with its next share.
                BodyState::OutBounded(bounded) if bounded.mailbox.messages() > 0 => {
                    bounded.mailbox.complete(completion)
                }
                _ => {
                    body.head.answered(1);
                    body.machine.mailbox().complete(completion);
                }
            }
            return Ok(Some(body));
        }
        if let Some(inbox) = inner.make_inbox() {
            inbox.complete(completion);
        }
        Ok(None)
    }

    /// Puts the body to rest after a step, unless there is an event for the process.
    #[inline(always)]
    pub(crate) fn settle(&self, mut body: Ready, stepped: Stepped) -> Settled {
        let mut inner = enter(&self.inner);
        inner.steps += 1;
        inner.queued = inner.queued.saturating_sub(stepped.taken);
        // The usual case: the process waits for any event, and there is none.
        if stepped.verdict == Verdict::Idle
            && !stepped.unseen
            && !stepped.signals
            && !body.head.is_answered
            && stepped.taken <= 1
            && inner.stamp & (DOOMED | BOUNDED | WAITS | POLLS | HELD) == 0
            && matches!(inner.body, BodyState::Out(None))
        {
            body.head.waits = false;
            // The old value was empty. Forgetting it saves the check for what to drop.
            std::mem::forget(std::mem::replace(&mut inner.body, BodyState::Resting(body)));
            return Settled::Resting;
        }
        Cell::settle_otherwise(inner, body, stepped)
    }

    #[inline(never)]
    fn settle_otherwise(mut inner: BriefGuard<'_, Inner>, mut body: Ready, stepped: Stepped) -> Settled {
        // The second most usual case: the process waits for an answer, and nothing has come.
        if stepped.verdict == Verdict::Wait
            && !stepped.signals
            && !body.head.is_answered
            && stepped.taken <= 1
            && body.head.outstanding > 0
            && inner.stamp & (DOOMED | BOUNDED | POLLS | HELD) == 0
            && matches!(inner.body, BodyState::Out(None))
        {
            body.head.waits = true;
            inner.stamp |= WAITS;
            let asked = body.head.waits_for();
            std::mem::forget(std::mem::replace(&mut inner.body, BodyState::Resting(body)));
            return asked.map_or(Settled::Resting, Settled::Asking);
        }
        if inner.stamp & DOOMED != 0 {
            return Settled::Ends(body);
        }
        if inner.stamp & HELD != 0 {
            let Some(back) = inner.hold_body(body, stepped) else { return Settled::Resting };
            body = back;
        }
        // An answer that is in the body already is news, too.
        let mut news = std::mem::take(&mut body.head.is_answered);
        let (mut messages, mut signals) = (stepped.unseen, stepped.signals || news);
        let mut spare = None;
        if let Some((inbox, mut bounds)) = inner.body.inbox() {
            // Messages under a bound stay here until a step is about to be given them. Other messages stay until
            // those before them are stepped. So they are never copied: the empty queue moves in the other direction.
            // A process that took nothing gets new events at once, so that the next step finds no new events here.
            let mailbox = body.machine.mailbox();
            let is_bounded = bounds.is_some();
            bounds.iter_mut().for_each(|bounds| bounds.tell_of_lost(mailbox));
            news |= bounds.map_or(inbox.messages() > 0, |bounds| bounds.has_new) || inbox.has_signals();
            let stay = is_bounded || (mailbox.messages() > 0 && stepped.verdict != Verdict::Declined);
            let completions = mailbox.absorb(inbox, if stay { 0 } else { usize::MAX });
            messages = mailbox.messages() > 0 || inbox.messages() > 0;
            signals = mailbox.has_signals();
            body.head.answered(completions);
            messages = messages || stepped.unseen && body.machine.keeps_unseen();
        }
        let again = match stepped.verdict {
            Verdict::Idle => messages || signals,
            Verdict::Declined => news,
            Verdict::Wait => signals,
            _ => true,
        };
        let waits = stepped.verdict == Verdict::Wait;
        body.head.waits = waits;
        if inner.take_poll_request(&mut body, !again) || again {
            return Settled::Again(body);
        }
        if waits && body.head.outstanding == 0 {
            return Settled::Ends(body);
        }
        if let BodyState::Out(inbox) = &mut inner.body {
            spare = inbox.take();
            if let Some(inbox) = &mut spare {
                // A process that rests until a command is answered may leave messages there.
                body.machine.mailbox().absorb(&mut **inbox, usize::MAX);
            }
        } else if let BodyState::OutBounded(mut bounded) = std::mem::replace(&mut inner.body, BodyState::Vacant) {
            bounded.mailbox.shrink();
            body.head.rare().bounded = Some(bounded);
        }
        if stepped.taken > 1 || spare.is_some() {
            body.machine.mailbox().shrink();
        }
        let asked = if waits { body.head.waits_for() } else { None };
        inner.set_flag(WAITS, waits);
        // The old value has no body and no inbox. Forgetting it saves the check for what to drop.
        std::mem::forget(std::mem::replace(&mut inner.body, BodyState::Resting(body)));
        drop(inner);
        drop(spare);
        asked.map_or(Settled::Resting, Settled::Asking)
    }

    /// Gives a process without a bound, before its first step, the events that have arrived.
    ///
    /// Otherwise the process would get these events only with its second step. Returns the empty inbox.
    #[inline]
    pub(crate) fn hand_over(&self, body: &mut Ready) -> Option<Box<dyn AnyMailbox>> {
        let mut inner = enter(&self.inner);
        let BodyState::Out(inbox) = &mut inner.body else { return None };
        let mut inbox = inbox.take()?;
        let completions = body.machine.mailbox().absorb(&mut *inbox, usize::MAX);
        body.head.answered(completions);
        Some(inbox)
    }

    /// Gives a process with a bounded mailbox at most `budget` messages before its step. That makes room.
    pub(crate) fn fill(&self, body: &mut Ready, budget: u32) -> Freed {
        let mut inner = enter(&self.inner);
        let oldest = inner.push_out(body);
        let BodyState::OutBounded(bounded) = &mut inner.body else { return Freed::default() };
        let mailbox = body.machine.mailbox();
        let wanted = if body.head.waits { 0 } else { (budget as usize).saturating_sub(mailbox.messages()) };
        bounded.bounds.tell_of_lost(mailbox);
        let completions = mailbox.absorb(&mut *bounded.mailbox, wanted);
        bounded.bounds.has_new = false;
        body.head.answered(completions);
        Freed { oldest, told: inner.let_in() }
    }

    /// Lets the messages that such a step has left hold their places again.
    pub(crate) fn hold(&self, body: &mut Ready) -> Freed {
        let mut inner = enter(&self.inner);
        let oldest = inner.push_out(body);
        let BodyState::OutBounded(bounded) = &mut inner.body else { return Freed::default() };
        bounded.bounds.held = body.machine.held();
        Freed { oldest, told: inner.let_in() }
    }

    /// Takes the body out, if it is at rest, for a step without an event.
    pub(crate) fn take_resting(&self) -> Option<Ready> {
        enter(&self.inner).wake()
    }

    /// Decides that the process is to be ended instead of stepped. `why` is [`BY_SHUTDOWN`], [`NO_THREAD`] or 0.
    ///
    /// Returns its body if it was at rest. The caller must end it then. Otherwise the thread that has the body will
    /// find out.
    pub(crate) fn doom(&self, pid: Pid, why: u64) -> Result<Option<Ready>, Missing> {
        let mut inner = enter(&self.inner);
        if let Some(missing) = inner.missing(pid) {
            return Err(missing);
        }
        inner.stamp |= DOOMED | why;
        Ok(inner.wake_even_if_held())
    }

    /// Whether something urgent has arrived: a signal, or the decision to end the process.
    pub(crate) fn is_urgent(&self) -> bool {
        let mut inner = enter(&self.inner);
        inner.body.inbox().is_some_and(|(inbox, _)| inbox.has_signals()) || inner.stamp & DOOMED != 0
    }

    /// Whether nothing has arrived since the events that are in the body, which the caller has. The process is not to
    /// be ended.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut inner = enter(&self.inner);
        let is_empty = |inbox: &mut dyn AnyMailbox| inbox.messages() == 0 && !inbox.has_signals();
        inner.stamp & DOOMED == 0 && inner.body.inbox().is_none_or(|(inbox, _)| is_empty(inbox))
    }

    /// The reason why the process is to be ended, if it is.
    pub(crate) fn doomed(&self) -> Option<Reason> {
        enter(&self.inner).doom()
    }

    /// Vacates the cell of a process that has ended. From now on its PID names no process.
    pub(crate) fn vacate(&self) -> Vacated {
        let mut inner = enter(&self.inner);
        let body = std::mem::replace(&mut inner.body, BodyState::Vacant);
        Vacated { body, marks: inner.stamp & FLAGS, queued: std::mem::take(&mut inner.queued) }
    }

    /// Returns the kind of this process, even after its end, until another process takes the slot.
    pub(crate) fn kind_of(&self, pid: Pid) -> Option<&'static Kind> {
        let inner = enter(&self.inner);
        inner.kind.filter(|_| inner.generation == pid.generation())
    }

    /// As `vacate`, for a process whose body is lost, unless the process was put to rest or has ended.
    pub(crate) fn vacate_lost(&self, pid: Pid) -> Option<Vacated> {
        let is_out = {
            let inner = enter(&self.inner);
            inner.is_live(pid) && !matches!(inner.body, BodyState::Resting(_) | BodyState::Held(_))
        };
        // No thread has the body, so nothing can have changed.
        is_out.then(|| self.vacate())
    }

    /// Subtracts accepted messages that are dead and will not be taken by a step.
    pub(crate) fn forget_messages(&self, count: u32) {
        let mut inner = enter(&self.inner);
        inner.queued = inner.queued.saturating_sub(count);
    }

    /// For the shutdown: asks the process that lives here to stop, and has its end reported. Returns its body if the
    /// request woke it.
    pub(crate) fn cancel_and_watch(&self, request: &CancelRequest, watched: impl FnOnce()) -> Option<Ready> {
        let mut inner = enter(&self.inner);
        if matches!(inner.body, BodyState::Vacant) {
            return None;
        }
        inner.stamp |= WATCHED;
        watched();
        if inner.stamp & DOOMED != 0 {
            return None;
        }
        inner.signal(Signal::Control(Control::Cancel(request.clone())))
    }

    /// The number of messages that wait for room.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiting(&self) -> usize {
        enter(&self.inner).body.bounded().map_or(0, |bounded| bounded.bounds.waiting())
    }
}

impl Inner {
    /// Removes surplus messages from the body, under a bound that drops the oldest. They are older than all messages
    /// here.
    fn push_out(&mut self, body: &mut Ready) -> Option<Box<dyn AnyMailbox>> {
        let BodyState::OutBounded(bounded) = &self.body else { return None };
        let Bound { limit, overflow: Overflow::DropOldest } = bounded.bounds.bound else { return None };
        let oldest = body.machine.push_out(limit.saturating_sub(bounded.mailbox.messages()))?;
        self.queued = self.queued.saturating_sub(oldest.messages() as u32);
        Some(oldest)
    }

    fn is_live(&self, pid: Pid) -> bool {
        self.generation == pid.generation() && !matches!(self.body, BodyState::Vacant)
    }

    #[inline]
    fn missing(&self, pid: Pid) -> Option<Missing> {
        if self.is_live(pid) && self.stamp & DOOMED == 0 {
            None
        } else if pid.generation() > self.generation {
            Some(Missing::Never)
        } else {
            Some(Missing::Ended)
        }
    }

    fn doom(&self) -> Option<Reason> {
        doom(self.stamp)
    }

    fn set_flag(&mut self, flag: u64, on: bool) {
        debug_assert!(flag & !FLAGS == 0);
        self.stamp = if on { self.stamp | flag } else { self.stamp & !flag };
    }

    /// Takes the body out, if it is at rest. This is the only way in which a process is woken.
    #[inline(always)]
    fn wake(&mut self) -> Option<Ready> {
        if !matches!(self.body, BodyState::Resting(_)) {
            return None;
        }
        let BodyState::Resting(mut body) = std::mem::replace(&mut self.body, BodyState::Out(None)) else { return None };
        if self.stamp & BOUNDED != 0
            && let Some(bounded) = body.head.rare().bounded.take()
        {
            self.body = BodyState::OutBounded(bounded);
        }
        Some(body)
    }

    fn signal(&mut self, signal: Signal) -> Option<Ready> {
        match &mut self.body {
            BodyState::Resting(body) => {
                body.machine.mailbox().signal(signal);
                self.wake()
            }
            BodyState::Vacant => None,
            _ => {
                if let Some(inbox) = self.make_inbox() {
                    inbox.signal(signal);
                }
                self.take_held()
            }
        }
    }

    /// Returns the inbox, and makes it if there is none.
    fn make_inbox(&mut self) -> Option<&mut dyn AnyMailbox> {
        if let (BodyState::Out(inbox @ None), Some(kind)) = (self.body.unheld(), self.kind) {
            *inbox = Some((kind.new_mailbox)());
        }
        Some(self.body.inbox()?.0)
    }
}

impl BodyState {
    /// The state of a process whose body is out.
    fn out(kind: &'static Kind, bound: Option<Bound>) -> BodyState {
        match bound {
            Some(bound) => BodyState::OutBounded(BoundedMailbox::new((kind.new_mailbox)(), bound)),
            None => BodyState::Out(None),
        }
    }

    /// Returns the inbox, with its bounds if it has any.
    fn inbox(&mut self) -> Option<(&mut dyn AnyMailbox, Option<&mut Bounds>)> {
        match self.unheld() {
            BodyState::Out(Some(inbox)) => Some((&mut **inbox, None)),
            BodyState::OutBounded(bounded) => Some(bounded.open()),
            BodyState::Out(None) | BodyState::Resting(_) | BodyState::Vacant | BodyState::Held(_) => None,
        }
    }

    /// Returns the bounded mailbox, if there is one.
    fn bounded(&mut self) -> Option<&mut BoundedMailbox> {
        match self.unheld() {
            BodyState::Resting(body) => body.head.rare.as_mut()?.bounded.as_deref_mut(),
            BodyState::OutBounded(bounded) => Some(bounded),
            BodyState::Out(_) | BodyState::Vacant | BodyState::Held(_) => None,
        }
    }

    /// Takes the inbox out.
    #[inline(never)]
    fn into_inbox(self) -> Option<Inbox> {
        match self {
            BodyState::Out(mailbox) => Some(Inbox { mailbox: mailbox?, waiting: None }),
            BodyState::OutBounded(mut bounded) => {
                Some(Inbox { waiting: bounded.bounds.waiting.take(), mailbox: bounded.mailbox })
            }
            BodyState::Resting(_) | BodyState::Vacant | BodyState::Held(_) => None,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
