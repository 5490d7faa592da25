//! Sending: puts a message into the mailbox of a PID, and wakes the process if it waits for that.

use std::any::{Any, type_name};

use super::cell::{Doomed, Missing};
use super::road::{Executor, Road};
use crate::latch::Latch;
use crate::outcome::{Rejected, drop_contained};
use crate::primitives::Ordering;
use crate::process::{
    Answer, Ask, CommandError, Completion, DeadLetter, DeadLetterReason, NoSuchProcessError, Pid, SendError,
};
use crate::sched::bounded_mailbox::{BoundedMailbox, Offer};
use crate::sched::mailbox::{Envelope, Mailbox, Signal};
use crate::sched::outbox::{Missed, Opened, Post};

/// The router, on behalf of an executor.
pub(crate) struct Router<'a, H: Executor> {
    road: &'a Road,
    executor: &'a mut H,
}

impl<'a, H: Executor> Router<'a, H> {
    #[inline]
    pub(crate) fn new(road: &'a Road, executor: &'a mut H) -> Router<'a, H> {
        Router { road, executor }
    }
}

impl<H: Executor> Post for Router<'_, H> {
    #[inline]
    fn post(&mut self, to: Pid, fill: &mut dyn FnMut(Opened<'_>) -> Option<u32>) -> Result<(), Missed> {
        let cell = self.road.table.cell(to).ok_or(Missed::NoSuchProcess)?;
        let (ready, queued) = cell.post(to, fill)?;
        self.executor.posted(queued);
        if let Some(ready) = ready {
            self.executor.woken(ready);
        }
        Ok(())
    }

    fn dead(&mut self, letter: &DeadLetter<'_>) {
        self.executor.let_go();
        self.road.dead_letter(self.executor.counters(), letter);
    }
}

/// The router for a question. If it cannot be delivered, the asker gets the reason.
pub(crate) struct AskPost<'a, 'r, H: Executor> {
    router: Router<'r, H>,
    ask: &'a Ask,
    missed: Option<Missed>,
    refused: bool,
}

impl<'a, 'r, H: Executor> AskPost<'a, 'r, H> {
    pub(crate) fn new(router: Router<'r, H>, ask: &'a Ask) -> AskPost<'a, 'r, H> {
        AskPost { router, ask, missed: None, refused: false }
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }
}

impl<H: Executor> Post for AskPost<'_, '_, H> {
    fn post(&mut self, to: Pid, fill: &mut dyn FnMut(Opened<'_>) -> Option<u32>) -> Result<(), Missed> {
        self.router.post(to, fill).inspect_err(|missed| self.missed = Some(*missed))
    }

    fn dead(&mut self, letter: &DeadLetter<'_>) {
        // A message that was dropped to make room belongs to another sender.
        let refused = match self.missed {
            Some(missed) => Some(missed.into_error(letter.to, letter.type_name).into()),
            None => (letter.reason != DeadLetterReason::DroppedOldest).then_some(CommandError::Full(letter.to)),
        };
        if let Some(refused) = refused {
            self.refused = true;
            self.ask.refuse(refused);
        }
        self.router.dead(letter);
    }
}

/// Makes a message a dead letter, because no process has the name to which it was sent.
pub(crate) struct NoSuchName<'a, 'r, H: Executor> {
    pub(crate) router: Router<'r, H>,
    pub(crate) why: &'a NoSuchProcessError,
}

impl<H: Executor> Post for NoSuchName<'_, '_, H> {
    fn post(&mut self, _: Pid, _: &mut dyn FnMut(Opened<'_>) -> Option<u32>) -> Result<(), Missed> {
        Err(Missed::NoSuchProcess)
    }

    fn dead(&mut self, letter: &DeadLetter<'_>) {
        let reason = DeadLetterReason::NoSuchName;
        self.router.dead(&DeadLetter { reason, name: self.why.name(), ..*letter });
    }
}

/// A refused message. If the sender wants to wait, it comes with a latch that is set when a retry makes sense.
pub(crate) struct Refused<M> {
    pub(crate) message: Rejected<M, SendError>,
    pub(crate) room: Option<Latch<()>>,
}

/// The fate of a message from outside.
enum Sent<M> {
    Taken,
    /// The message was accepted or dropped, and this one is dead.
    Dead(Envelope<M>, DeadLetterReason),
    /// The message was refused. If the sender wants to wait, it comes with a latch that is set when there is room.
    Refused(M, SendError, Option<Latch<()>>),
}

impl Road {
    /// Sends a message from outside the runtime.
    pub(crate) fn send<M: Send + 'static>(&self, to: Pid, message: M) -> Result<(), Rejected<M, SendError>> {
        self.offer(to, message, false).map_err(|refused| refused.message)
    }

    /// Sends a message from outside the runtime. If the mailbox is full and `waits` is true, the message is returned
    /// with a latch. The latch is set when a retry makes sense.
    pub(crate) fn offer<M: Send + 'static>(&self, to: Pid, message: M, waits: bool) -> Result<(), Refused<M>> {
        self.offer_told(to, message, waits, || ())
    }

    /// Sends a question from outside the runtime. `full` is called before a full mailbox that drops the newest drops
    /// the message.
    pub(crate) fn ask<M: Send + 'static>(
        &self,
        to: Pid,
        question: M,
        full: impl FnOnce(),
    ) -> Result<(), Rejected<M, SendError>> {
        self.offer_told(to, question, false, full).map_err(|refused| refused.message)
    }

    fn offer_told<M: Send + 'static>(
        &self,
        to: Pid,
        message: M,
        waits: bool,
        full: impl FnOnce(),
    ) -> Result<(), Refused<M>> {
        let mut sent = Sent::Refused(message, NoSuchProcessError::Pid(to).into(), None);
        if let Some(cell) = self.table.cell(to) {
            let posted = cell.post(to, |opened| {
                if let Sent::Refused(message, why, _) = std::mem::replace(&mut sent, Sent::Taken) {
                    sent = put(why, opened, message, waits);
                }
                match &sent {
                    Sent::Taken => Some(1),
                    // As above: the mailbox is for another type.
                    Sent::Refused(_, SendError::NoSuchProcess(_), _) => None,
                    Sent::Dead(..) | Sent::Refused(..) => Some(0),
                }
            });
            match posted {
                Ok((Some(ready), _)) => self.inject(ready),
                Ok((None, _)) => {}
                Err(missed) => {
                    if let Sent::Refused(_, why, _) = &mut sent {
                        *why = missed.into_error(to, type_name::<M>());
                    }
                }
            }
        }
        match sent {
            Sent::Refused(message, why, room) => {
                return Err(Refused { message: Rejected::new(message, why), room });
            }
            Sent::Taken => self.outside.add(&self.outside.accepted, 1),
            Sent::Dead(Envelope { from, message }, reason) => {
                self.outside.add(&self.outside.accepted, 1);
                if reason == DeadLetterReason::DroppedNewest {
                    full();
                }
                let letter = DeadLetter {
                    from,
                    type_name: type_name::<M>(),
                    message: Some(&message),
                    ..DeadLetter::new(to, reason)
                };
                self.dead_letter(&self.outside, &letter);
                drop_contained(message);
            }
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
    pub(crate) fn terminate<H: Executor>(
        &self,
        executor: &mut H,
        pid: Pid,
        by_shutdown: bool,
    ) -> Result<bool, Missing> {
        let cell = self.table.cell(pid).ok_or(Missing::Never)?;
        // Counted first: a worker that does not see the count yet is in the step that the process may be in.
        self.dooms.fetch_add(1, Ordering::SeqCst);
        let doomed = cell.doom(pid, by_shutdown);
        if !matches!(doomed, Ok(Doomed::Woken(_) | Doomed::Noted)) {
            self.dooms.fetch_sub(1, Ordering::SeqCst);
        }
        match doomed {
            Ok(Doomed::Woken(ready)) => executor.woken(ready),
            Ok(Doomed::Noted) => {}
            Ok(Doomed::Already) | Err(Missing::Ended) => return Ok(false),
            Err(Missing::Never) => return Err(Missing::Never),
        }
        Ok(true)
    }

    /// Whether the PID's process lives, and is not about to be ended.
    pub(crate) fn is_alive(&self, pid: Pid) -> bool {
        self.table.cell(pid).is_some_and(|cell| cell.check(pid).is_ok())
    }
}

/// Puts a message into an open mailbox. Refuses it as `missed` says if that is for another type.
fn put<M: Send + 'static>(missed: SendError, opened: Opened<'_>, message: M, waits: bool) -> Sent<M> {
    let envelope = Envelope { from: None, message };
    match opened {
        Opened::Free(mailbox) => match (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>() {
            Some(mailbox) => {
                mailbox.messages.push(envelope);
                Sent::Taken
            }
            None => Sent::Refused(envelope.message, missed, None),
        },
        Opened::Bounded(mailbox) => match (mailbox as &mut dyn Any).downcast_mut::<BoundedMailbox<M>>() {
            Some(mailbox) => match mailbox.offer(envelope) {
                Offer::Taken => Sent::Taken,
                Offer::Dead(dead, reason) => Sent::Dead(dead, reason),
                Offer::Refused(back) => {
                    let SendError::NoSuchProcess(NoSuchProcessError::Pid(pid)) = missed else {
                        return Sent::Refused(back.message, missed, None);
                    };
                    let full = SendError::Full { pid, limit: mailbox.limit() };
                    Sent::Refused(back.message, full, waits.then(|| mailbox.wait_for_room()))
                }
            },
            None => Sent::Refused(envelope.message, missed, None),
        },
    }
}
