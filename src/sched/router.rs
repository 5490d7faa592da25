//! Sending: puts a message into the mailbox of a PID, and wakes the process if it waits for that.

use std::any::{Any, TypeId, type_name};

use super::cell::{Cell, Missed, Missing};
use super::doorway::ToldSends;
use super::elsewhere::offer_elsewhere;
use super::feeds::FeedHost;
use super::resident_waker::PollRequests;
use super::road::{Executor, OutsideExecutor, Road};
use crate::outcome::{Rejected, drop_contained};
use crate::primitives::{Arc, Ordering};
use crate::process::propagation::{current, with_trace};
use crate::process::recipient::Route;
use crate::process::{Answer, Completion, DeadLetter, DeadLetterReason, NoSuchProcessError, Pid, SendError};
use crate::sched::body::Ready;
use crate::sched::bounded_mailbox::{Bounds, WaitingSender};
use crate::sched::mailbox::{AnyMailbox, Envelope, Mailbox, Signal};
use crate::sched::outbox::{Lane, Outbox};
use crate::sched::trace_marks::{Context, MessageTrace};

impl PollRequests for Road {
    fn request_poll(&self, pid: Pid) {
        if let Some(ready) = self.table.cell(pid).and_then(|cell| cell.request_poll(pid)) {
            self.inject(ready);
        }
    }
}

#[cfg(feature = "durable")]
impl Road {
    /// As `request_poll`, also if the process is held for a node without room.
    pub(crate) fn poll_even_if_held(&self, pid: Pid) {
        if let Some(ready) = self.table.cell(pid).and_then(|cell| cell.poll_even_if_held(pid)) {
            self.inject(ready);
        }
    }
}

impl FeedHost for Road {
    fn fed(&self, pid: Pid) -> Option<bool> {
        let woken = self.table.cell(pid)?.fed(pid)?;
        let is_woken = woken.is_some();
        woken.into_iter().for_each(|ready| self.queues.push(ready));
        Some(is_woken)
    }

    fn announce(&self, is_woken: bool) {
        if is_woken {
            self.injected();
        }
        self.outside.add(&self.outside.accepted, 1);
    }
}

impl Road {
    /// Delivers the next `count` messages of a lane, all of them to one receiver. Those that do not reach it are dead
    /// letters. `dead` is called with each of them before it is reported.
    #[inline(always)]
    pub(crate) fn deliver<H: Executor>(
        &self,
        executor: &mut H,
        lane: &mut dyn Lane,
        count: u32,
        (from, to): (Pid, Pid),
        dead: impl FnMut(&DeadLetter<'_>),
    ) {
        let posted = self.post(executor, lane, count, (from, to));
        if posted.is_err() || lane.settle() {
            self.bury_missed(executor, lane, count, (Some(from), to), posted.err(), dead);
        }
    }

    /// Delivers the next messages of a lane, one to each of these receivers.
    #[inline(never)]
    pub(crate) fn deliver_each<H: Executor>(&self, executor: &mut H, lane: &mut dyn Lane, from: Pid, to: &[Pid]) {
        for to in to {
            // Each when it is delivered: an observer of dead letters may look at the counts.
            executor.count(|counters| &counters.accepted, 1);
            let posted = self.post(executor, lane, 1, (from, *to));
            // Only a bound leaves messages that are to be buried.
            if !matches!(posted, Ok(false)) && (posted.is_err() || lane.settle()) {
                self.bury_missed(executor, lane, 1, (Some(from), *to), posted.err(), |_| ());
            }
        }
        lane.settle();
    }

    /// Moves the next messages of a lane into the mailbox of their receiver. Returns whether it has a bound.
    #[inline(always)]
    fn post<H: Executor>(
        &self,
        executor: &mut H,
        lane: &mut dyn Lane,
        count: u32,
        (from, to): (Pid, Pid),
    ) -> Result<bool, Missed> {
        let cell = self.table.cell(to).ok_or(Missed::NoSuchProcess)?;
        let mut has_bound = false;
        let (ready, queued) = cell.post(to, |mailbox, bounds| {
            has_bound = bounds.is_some();
            lane.fill(count, Some(from), mailbox, bounds)
        })?;
        executor.posted(queued);
        if let Some(ready) = ready {
            executor.woken(ready);
        }
        Ok(has_bound)
    }

    /// Reports the messages of a lane that a mailbox has not kept, or all if it was not opened.
    #[cold]
    pub(super) fn bury_missed<H: Executor>(
        &self,
        executor: &mut H,
        lane: &mut dyn Lane,
        count: u32,
        (from, to): (Option<Pid>, Pid),
        missed: Option<Missed>,
        dead: impl FnMut(&DeadLetter<'_>),
    ) {
        if let (Some(Missed::NoSuchProcess), Some(elsewhere)) = (missed, self.elsewhere(to)) {
            executor.let_go();
            return self.hand_over(elsewhere, executor.counters(), (lane, count), (from, to), dead);
        }
        let waiting = lane.take_waiting();
        if waiting > 0 {
            // They were counted as accepted, and are not yet.
            let counters = executor.counters();
            counters.take_back(&counters.accepted, u64::from(waiting));
        }
        let mut letter = DeadLetter { from, ..DeadLetter::new(to, DeadLetterReason::NoSuchProcess) };
        if let Some(Missed::WrongType(takes)) = missed {
            (letter.reason, letter.takes) = (DeadLetterReason::WrongType, Some(takes()));
        }
        self.bury(executor, lane, if missed.is_some() { count } else { 0 }, &letter, dead);
    }

    /// Reports the dead messages of a lane. See [`Lane::bury`].
    #[cold]
    pub(crate) fn bury<H: Executor>(
        &self,
        executor: &mut H,
        lane: &mut dyn Lane,
        missed: u32,
        all: &DeadLetter<'_>,
        mut dead: impl FnMut(&DeadLetter<'_>),
    ) {
        executor.let_go();
        let counters = executor.counters();
        lane.bury(missed, all, &mut |letter| {
            dead(letter);
            self.dead_letter(counters, letter);
        });
    }

    /// The trace in which the calling thread runs, if the runtime propagates traces.
    pub(crate) fn current_trace(&self) -> Option<Context> {
        self.propagator.as_ref().and_then(|propagator| current(&**propagator))
    }

    /// Sends a message from outside the runtime.
    pub(crate) fn send<M: Send + 'static>(&self, to: Pid, message: M) -> Result<(), Rejected<M, SendError>> {
        self.offer(to, message, || ())
    }

    /// Sends a message from outside the runtime. `full` is called before a full mailbox that drops the newest drops
    /// the message.
    pub(crate) fn offer<M: Send + 'static>(
        &self,
        to: Pid,
        message: M,
        full: impl FnOnce(),
    ) -> Result<(), Rejected<M, SendError>> {
        let (mut message, mut dead) = (Some(message), None);
        let mut context = self.current_trace();
        let is_measured = self.is_next_measured();
        let mut dead_context = None;
        let mut limit = 0;
        let put = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>()?;
            let envelope = Envelope { from: None, message: message.take()? };
            let Some(bounds) = bounds else {
                mailbox.messages.push(envelope);
                context.take().into_iter().for_each(|context| mailbox.mark(context));
                self.mark_wait(mailbox, is_measured);
                return Some(1);
            };
            match bounds.offer(mailbox, envelope) {
                None => {
                    context.take().into_iter().for_each(|context| mailbox.mark(context));
                    self.mark_wait(mailbox, is_measured);
                    return Some(1);
                }
                Some((back, DeadLetterReason::Full)) => {
                    message = Some(back.message);
                    limit = bounds.bound.limit;
                }
                Some((newest, reason @ DeadLetterReason::DroppedNewest)) => {
                    (dead, dead_context) = (Some((newest, reason)), context.take());
                }
                pushed_out => {
                    dead_context = mailbox.signals.as_mut().and_then(|signals| signals.take_last_mark());
                    context.take().into_iter().for_each(|context| mailbox.mark(context));
                    self.mark_wait(mailbox, is_measured);
                    dead = pushed_out;
                }
            }
            Some(0)
        };
        let posted = self.table.cell(to).ok_or(Missed::NoSuchProcess).and_then(|cell| cell.post(to, put));
        if let Some(message) = message {
            let why = match posted {
                Ok(_) => SendError::Full { pid: to, limit },
                Err(Missed::NoSuchProcess) => match self.elsewhere(to) {
                    Some(elsewhere) => return offer_elsewhere(elsewhere, to, message, &MessageTrace::new(context)),
                    None => NoSuchProcessError::Pid(to).into(),
                },
                Err(Missed::WrongType(takes)) => {
                    SendError::WrongType { pid: to, takes: takes(), sent: type_name::<M>() }
                }
            };
            drop_contained(context);
            return Err(Rejected::new(message, why));
        }
        if let Ok((Some(ready), _)) = posted {
            self.inject(ready);
        }
        self.outside.add(&self.outside.accepted, 1);
        if let Some((Envelope { from, message }, reason)) = dead {
            if reason == DeadLetterReason::DroppedNewest {
                full();
            }
            let (type_name, shown) = (type_name::<M>(), Some(&message as &dyn Any));
            let letter = DeadLetter { from, type_name, message: shown, ..DeadLetter::new(to, reason) };
            with_trace(dead_context.as_deref(), &letter, |letter| self.dead_letter(&self.outside, letter));
            drop_contained(dead_context);
            drop_contained(message);
        }
        Ok(())
    }

    /// Sends a message that a recipient converts. `dead` is called with the converted message, if it is dropped.
    ///
    /// A place is kept for the message while it is converted. So a message that is refused was not converted yet, and
    /// is handed back.
    pub(crate) fn send_converted<T>(
        &self,
        to: Pid,
        message: T,
        route: &dyn Route<T>,
        dead: impl FnMut(&DeadLetter<'_>),
    ) -> Result<(), Rejected<T, SendError>> {
        let mut full = None;
        let reserve = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            if !route.is_for(mailbox) {
                return None;
            }
            full = bounds.and_then(|bounds| bounds.reserve(mailbox.messages()).err());
            Some(0)
        };
        let found = self.table.cell(to).ok_or(Missed::NoSuchProcess);
        let why = match found.and_then(|cell| cell.post(to, reserve).map(|_| cell)) {
            Ok(cell) => match full {
                None => {
                    let place = ReservedPlace { road: self, cell, to };
                    let mut outbox = Outbox::with_traces(self.propagator.clone());
                    let lane = route.push(&mut outbox, message);
                    if self.is_next_measured() {
                        outbox.sample_next(lane, self.since_start());
                    }
                    place.fill(outbox.lane(lane), dead);
                    return Ok(());
                }
                Some(limit) => SendError::Full { pid: to, limit },
            },
            Err(Missed::NoSuchProcess) => match self.elsewhere(to) {
                Some(elsewhere) => return self.convert_elsewhere(elsewhere, to, message, route, dead),
                None => NoSuchProcessError::Pid(to).into(),
            },
            Err(Missed::WrongType(takes)) => SendError::WrongType { pid: to, takes: takes(), sent: route.type_name() },
        };
        Err(Rejected::new(message, why))
    }

    /// Checks that the PID's process lives and takes messages of this type.
    pub(crate) fn takes<M: Send + 'static>(&self, pid: Pid) -> Result<(), Missed> {
        let is_typed = |mailbox: &mut dyn AnyMailbox, _: Option<&mut Bounds>| {
            (mailbox as &dyn Any).is::<Mailbox<M>>().then_some(0)
        };
        match (self.table.cell(pid), self.elsewhere(pid)) {
            (Some(cell), _) => cell.post(pid, is_typed).map(drop),
            (None, Some(elsewhere)) => elsewhere.takes(pid, TypeId::of::<M>()),
            (None, None) => Err(Missed::NoSuchProcess),
        }
    }

    /// Has a message wait for room. Returns the number of its registration in the mailbox. If there is room, the
    /// message gets it at once, and has no number. If the process has ended, the sender is told so.
    pub(crate) fn wait_for_room(&self, to: Pid, sender: &Arc<dyn WaitingSender>) -> Option<u64> {
        match self.table.cell(to).ok_or(Missed::NoSuchProcess).and_then(|cell| cell.register(to, sender)) {
            Ok(None) => {
                let told = ToldSends { granted: vec![sender.clone()], ..ToldSends::default() };
                self.tell_senders(&mut OutsideExecutor { road: self }, to, told);
            }
            Ok(number) => return number,
            Err(_) => sender.try_again(),
        }
        None
    }

    /// Tells the senders of messages that have got a place, and queues the process if that woke it.
    fn tell_of_places(&self, to: Pid, (told, woken): (ToldSends, Option<Ready>)) {
        woken.into_iter().for_each(|ready| self.inject(ready));
        self.tell_senders(&mut OutsideExecutor { road: self }, to, told);
    }

    /// Delivers a signal.
    pub(crate) fn signal<H: Executor>(
        &self,
        executor: &mut H,
        to: Pid,
        signal: Signal,
    ) -> Result<(), (Missing, Signal)> {
        let Some(cell) = self.table.cell(to) else {
            return match self.elsewhere(to) {
                Some(elsewhere) => elsewhere.signal(to, signal),
                None => Err((Missing::Never, signal)),
            };
        };
        if let Some(ready) = cell.signal(to, signal)? {
            executor.woken(ready);
        }
        Ok(())
    }

    /// Delivers the answer to a command.
    pub(crate) fn answer<H: Executor>(&self, executor: &mut H, to: Pid, tag: u64, answer: Answer) {
        self.complete(executor, to, Completion::from(None, tag, answer));
    }

    /// Answers a command of the process in hand, whose body this is.
    ///
    /// If nothing has arrived that comes before the answer, the answer goes into the mailbox of the body at once. Then
    /// the cell need not keep it until the step is settled.
    pub(crate) fn answer_in_hand<H: Executor>(&self, executor: &mut H, body: &mut Ready, tag: u64, answer: Answer) {
        let pid = body.head.pid;
        if !self.table.cell(pid).is_some_and(|cell| cell.is_quiet()) {
            return self.answer(executor, pid, tag, answer);
        }
        body.head.answered(1);
        body.head.is_answered = true;
        body.machine.mailbox().complete(Completion::from(None, tag, answer));
    }

    /// Delivers a completion. If the process has ended, the answer is discarded and counted.
    pub(crate) fn complete<H: Executor>(&self, executor: &mut H, to: Pid, completion: Completion) {
        let refused = match self.table.cell(to) {
            Some(cell) => match cell.complete(to, completion) {
                Ok(None) => return,
                Ok(Some(ready)) => return executor.woken(ready),
                Err(refused) => refused,
            },
            None => match self.elsewhere(to) {
                Some(elsewhere) => match elsewhere.complete(to, completion) {
                    Ok(()) => return,
                    Err(refused) => refused,
                },
                None => completion,
            },
        };
        let counters = executor.counters();
        counters.add(&counters.discarded_answers, 1);
        executor.let_go();
        drop_contained(refused);
    }

    /// Decides that a process is ended instead of stepped, from the return of this call on. Returns whether there was
    /// one.
    pub(crate) fn terminate<H: Executor>(&self, executor: &mut H, pid: Pid, why: u64) -> Result<bool, Missing> {
        let Some(cell) = self.table.cell(pid) else {
            return self.elsewhere(pid).map_or(Err(Missing::Never), |elsewhere| elsewhere.terminate(pid));
        };
        // Counted first: a worker that does not see the count yet is in the step that the process may be in.
        self.dooms.fetch_add(1, Ordering::SeqCst);
        match cell.doom(pid, why) {
            Ok(woken) => {
                woken.into_iter().for_each(|ready| executor.woken(ready));
                Ok(true)
            }
            Err(missing) => {
                self.dooms.fetch_sub(1, Ordering::SeqCst);
                if missing == Missing::Ended { Ok(false) } else { Err(missing) }
            }
        }
    }

    /// Whether the PID's process lives, and is not about to be ended.
    pub(crate) fn is_alive(&self, pid: Pid) -> bool {
        match self.table.cell(pid) {
            Some(cell) => cell.check(pid).is_ok(),
            None => self.elsewhere(pid).is_some_and(|elsewhere| elsewhere.is_alive(pid)),
        }
    }
}

/// A place in a mailbox that is kept for a message while it is converted. Dropping it gives the place back.
struct ReservedPlace<'a> {
    road: &'a Road,
    cell: &'a Cell,
    to: Pid,
}

impl ReservedPlace<'_> {
    /// Puts the next message of a lane into the place. If the process has ended meanwhile, the message is dead.
    fn fill(self, lane: &mut dyn Lane, dead: impl FnMut(&DeadLetter<'_>)) {
        let ReservedPlace { road, cell, to } = self;
        std::mem::forget(self);
        road.outside.add(&road.outside.accepted, 1);
        let posted = cell.post(to, |mailbox, bounds| match bounds {
            Some(bounds) if bounds.keeps_places() => {
                bounds.leave_reservation();
                lane.fill_place(mailbox, bounds)
            }
            bounds => lane.fill(1, None, mailbox, bounds),
        });
        let missed = match posted {
            Ok((ready, _)) => {
                ready.into_iter().for_each(|ready| road.inject(ready));
                None
            }
            Err(missed) => Some(missed),
        };
        if missed.is_some() || lane.settle() {
            let reason = match missed {
                Some(Missed::WrongType(_)) => DeadLetterReason::WrongType,
                _ => DeadLetterReason::Ended,
            };
            let count = u32::from(missed.is_some());
            road.bury(&mut OutsideExecutor { road }, lane, count, &DeadLetter::new(to, reason), dead);
        }
        if missed.is_some() {
            // The place is free. The process may have been upgraded, and messages of its new type may wait for it.
            road.tell_of_places(to, cell.let_messages_in(to));
        }
    }
}

impl Drop for ReservedPlace<'_> {
    fn drop(&mut self) {
        self.road.tell_of_places(self.to, self.cell.give_place_back(self.to));
    }
}
