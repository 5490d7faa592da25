//! Sending: puts a message into the mailbox of a PID, and wakes the process if it waits for that.

use std::any::{Any, type_name};

use super::cell::{Missed, Missing};
use super::road::{Executor, Road};
use crate::outcome::{Rejected, drop_contained};
use crate::primitives::Ordering;
use crate::process::{Answer, Completion, DeadLetter, DeadLetterReason, NoSuchProcessError, Pid, SendError};
use crate::sched::body::Ready;
use crate::sched::bounded_mailbox::Bounds;
use crate::sched::mailbox::{AnyMailbox, Envelope, Mailbox, Signal};
use crate::sched::outbox::Lane;

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
            self.bury_missed(executor, lane, count, (from, to), posted.err(), dead);
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
                self.bury_missed(executor, lane, 1, (from, *to), posted.err(), |_| ());
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
            lane.fill(count, from, mailbox, bounds)
        })?;
        executor.posted(queued);
        if let Some(ready) = ready {
            executor.woken(ready);
        }
        Ok(has_bound)
    }

    /// Reports the messages of a lane that a mailbox has not kept, or all if it was not opened.
    #[cold]
    fn bury_missed<H: Executor>(
        &self,
        executor: &mut H,
        lane: &mut dyn Lane,
        count: u32,
        (from, to): (Pid, Pid),
        missed: Option<Missed>,
        dead: impl FnMut(&DeadLetter<'_>),
    ) {
        let waiting = lane.take_waiting();
        if waiting > 0 {
            // They were counted as accepted, and are not yet.
            let counters = executor.counters();
            counters.take_back(&counters.accepted, u64::from(waiting));
        }
        let mut letter = DeadLetter { from: Some(from), ..DeadLetter::new(to, DeadLetterReason::NoSuchProcess) };
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

    /// Sends a message from outside the runtime.
    pub(crate) fn send<M: Send + 'static>(&self, to: Pid, message: M) -> Result<(), Rejected<M, SendError>> {
        self.offer(to, message, || ())
    }

    /// As `send`. `full` is called before a full mailbox that drops the newest drops the message.
    pub(crate) fn offer<M: Send + 'static>(
        &self,
        to: Pid,
        message: M,
        full: impl FnOnce(),
    ) -> Result<(), Rejected<M, SendError>> {
        let (mut message, mut dead) = (Some(message), None);
        let mut limit = 0;
        let put = |mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>| {
            let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>()?;
            let envelope = Envelope { from: None, message: message.take()? };
            let Some(bounds) = bounds else {
                mailbox.messages.push(envelope);
                return Some(1);
            };
            match bounds.offer(mailbox, envelope) {
                None => return Some(1),
                Some((back, DeadLetterReason::Full)) => {
                    message = Some(back.message);
                    limit = bounds.bound.limit;
                }
                pushed_out => dead = pushed_out,
            }
            Some(0)
        };
        let posted = self.table.cell(to).ok_or(Missed::NoSuchProcess).and_then(|cell| cell.post(to, put));
        if let Some(message) = message {
            let why = match posted {
                Ok(_) => SendError::Full { pid: to, limit },
                Err(Missed::NoSuchProcess) => NoSuchProcessError::Pid(to).into(),
                Err(Missed::WrongType(takes)) => {
                    SendError::WrongType { pid: to, takes: takes(), sent: type_name::<M>() }
                }
            };
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
            self.dead_letter(&self.outside, &letter);
            drop_contained(message);
        }
        Ok(())
    }

    /// Delivers a signal.
    pub(crate) fn signal<H: Executor>(
        &self,
        executor: &mut H,
        to: Pid,
        signal: Signal,
    ) -> Result<(), (Missing, Signal)> {
        let Some(cell) = self.table.cell(to) else { return Err((Missing::Never, signal)) };
        if let Some(ready) = cell.signal(to, signal)? {
            executor.woken(ready);
        }
        Ok(())
    }

    /// Delivers the answer to a command. If the process has ended, the answer is discarded and counted.
    pub(crate) fn answer<H: Executor>(&self, executor: &mut H, to: Pid, tag: u64, answer: Answer) {
        self.answer_from(executor, None, to, tag, answer);
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
        body.machine.mailbox().signal(Signal::Completed(Completion::from(None, tag, answer)));
    }

    /// As `answer`, for the answer of a process. It is delivered before that process's end is reported.
    pub(crate) fn answer_from<H: Executor>(
        &self,
        executor: &mut H,
        from: Option<Pid>,
        to: Pid,
        tag: u64,
        answer: Answer,
    ) {
        if let Err((_, signal)) = self.signal(executor, to, Signal::Completed(Completion::from(from, tag, answer))) {
            let counters = executor.counters();
            counters.add(&counters.discarded_answers, 1);
            executor.let_go();
            drop_contained(signal);
        }
    }

    /// Decides that a process is ended instead of stepped, from the return of this call on. Returns whether there was
    /// one.
    pub(crate) fn terminate<H: Executor>(&self, executor: &mut H, pid: Pid, why: u64) -> Result<bool, Missing> {
        let cell = self.table.cell(pid).ok_or(Missing::Never)?;
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
        self.table.cell(pid).is_some_and(|cell| cell.check(pid).is_ok())
    }
}
