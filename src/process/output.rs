//! The yields: everything that a step can want done.

use std::any::Any;
use std::time::{Duration, Instant};

use super::body::{Order, StepOutput, Work, Yield};
use super::command::{Command, CommandError, Tag, TimerFired};
use super::handler::BoxedCommand;
use super::pid::Pid;
use super::reply::{ProcessAsk, Reply};
use super::target::{Accepts, Target};
use crate::cancel::CancelToken;
use crate::outcome::Reason;
use crate::sync::Arc;

/// Yields are written down, and performed in the order in which they were written when the step has returned `Ok`.
///
/// Those that return a [`Tag`] are *commands*: each is answered once, by an
/// [`Event::Completed`](super::Event::Completed) with that tag. The others have no answer; what can go wrong with them
/// is told elsewhere: a message that cannot be delivered becomes a dead letter, a child that cannot start has that as its
/// exit, a reply that comes too late is counted.
impl StepOutput {
    /// The PID of the process that is being stepped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The time, by the runtime's clock.
    pub fn now(&self) -> Instant {
        self.link.clock().now()
    }

    /// Whether the runtime shuts down: it takes no new process any more, and asks all that there are to stop. So whoever
    /// hears of another's end can know that nobody is to blame for it.
    pub fn is_shutting_down(&self) -> bool {
        self.link.is_shutting_down()
    }

    /// Sends a message. From this process to one receiver, what is sent first is stepped first.
    ///
    /// For an [`Address`](super::Address) and a handle, the compiler checks that the process takes this type. For every other
    /// target that is checked when the message is delivered. A message that cannot be delivered is a dead letter, also if nobody
    /// has the name or is in the group.
    #[inline]
    pub fn send<M: Send + 'static>(&mut self, to: impl Accepts<M>, message: M) {
        let to = to.resolve(self);
        let lane = self.outbox.push(message);
        let to = match to {
            Ok(pid) => pid,
            Err(why) => return self.push(Yield::SendNowhere { lane, why }),
        };
        match self.orders.last_mut() {
            Some(Order::Send { lane: last, count, to: receiver })
                if *last == lane && *receiver == to && *count < u32::MAX =>
            {
                *count += 1;
            }
            _ => self.orders.push(Order::Send { lane, count: 1, to }),
        }
    }

    /// Answers a question.
    pub fn reply<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        if let Some(reply) = reply.pending(value) {
            self.push(Yield::Reply(reply));
        }
    }

    /// Asks another process: `question` makes the message around the [`Reply`] that it carries. Answered with the reply,
    /// or with an error that says why there is none: at once if there is no process at the target, takes other messages, has
    /// ended, or drops the reply; and when `limit` is over ([`Duration::MAX`] is no limit).
    ///
    /// A process that asks and says [`Step::Wait`](super::Step::Wait) takes no questions meanwhile. If processes wait so for
    /// each other, each for one answer of the next, and the last for one of the first, they form a cycle. One ask of a cycle of
    /// at most 1,000 processes is answered at once, whatever its limit, with
    /// [`CommandError::Cycle`](super::CommandError::Cycle), which names them. A longer cycle, and a cycle in which a process waits
    /// for several answers, ends by the limits: so give each ask one. See [`Reply`] for questions that the process that was
    /// asked leaves to another.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &mut self,
        to: impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Tag<T> {
        let to = match to.resolve(self) {
            Ok(pid) => pid,
            Err(why) => return self.refused(why.into()),
        };
        let tag = self.tag();
        let ask = self
            .spare_asks
            .renew(self.pid, tag.id(), to)
            .unwrap_or_else(|| Arc::new(ProcessAsk::new(self.ask_link.clone(), self.pid, tag.id(), to)));
        let message = question(Reply::new(ask.clone()));
        let lane = self.outbox.push(message);
        self.push(Yield::Ask { lane, to, ask, limit });
        tag
    }

    /// Runs a closure on the pool, where it may block. Answered with what it returns; if it panics, with the panic.
    pub fn blocking<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Tag<T> {
        self.blocking_with(move |_| work())
    }

    /// Runs a closure on the pool, where it may block, and lends it a [`CancelToken`] that tells when the process has ended
    /// and nobody wants the result any more. A closure that has not begun by then is not run.
    pub fn blocking_with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&CancelToken) -> T + Send + 'static,
    ) -> Tag<T> {
        let tag = self.tag();
        let work: Work = Box::new(move |cancel| Box::new(work(cancel)) as Box<dyn Any + Send>);
        self.push(Yield::Blocking { tag: tag.id(), work });
        tag
    }

    /// Sets a timer. Answered when `delay` has passed by the runtime's clock, and never before.
    pub fn after(&mut self, delay: Duration) -> Tag<TimerFired> {
        let tag = self.tag();
        self.push(Yield::Timer { tag: tag.id(), delay });
        tag
    }

    /// Cancels a timer of this process: it is answered with
    /// [`CommandError::Cancelled`](super::CommandError::Cancelled), unless its answer is on its way already.
    pub fn cancel_timer(&mut self, timer: Tag<TimerFired>) {
        self.push(Yield::CancelTimer { tag: timer.id() });
    }

    /// Has a command of the user's own carried out by its handler.
    pub fn command<C: Command>(&mut self, command: C) -> Tag<C::Output> {
        let tag = self.tag();
        self.push(Yield::Command { tag: tag.id(), command: BoxedCommand::new(command) });
        tag
    }

    /// Asks a process to stop, with a reason. Answered with whether it was there to be told; with
    /// [`CommandError::NoSuchProcess`](super::CommandError::NoSuchProcess) if the PID has never been given, or if nobody has the
    /// name or is in the group.
    pub fn cancel(&mut self, target: impl Target, reason: impl Into<Reason>) -> Tag<bool> {
        self.cancel_request(target, reason.into(), None)
    }

    /// Asks a process to stop within `limit`, which the process is told; nothing happens when it is over.
    pub fn cancel_timeout(&mut self, target: impl Target, reason: impl Into<Reason>, limit: Duration) -> Tag<bool> {
        self.cancel_request(target, reason.into(), Some(limit))
    }

    fn cancel_request(&mut self, target: impl Target, reason: Reason, limit: Option<Duration>) -> Tag<bool> {
        self.command_to(target, |tag, to| Yield::Cancel { tag, to, request: Box::new((reason, limit)) })
    }

    /// Ends a process: after the step that it may be in, it is not stepped again. Answered with whether it was there to
    /// be ended, or with an error as [`cancel`](Self::cancel).
    pub fn terminate(&mut self, target: impl Target) -> Tag<bool> {
        self.command_to(target, |tag, to| Yield::Terminate { tag, to })
    }

    /// A command about the process at a target.
    fn command_to<T>(&mut self, target: impl Target, command: impl FnOnce(u64, Pid) -> Yield) -> Tag<T> {
        match target.resolve(self) {
            Ok(pid) => {
                let tag = self.tag();
                self.push(command(tag.id(), pid));
                tag
            }
            Err(why) => self.refused(why.into()),
        }
    }

    /// A command that is answered with this error.
    #[cold]
    pub(super) fn refused<T>(&mut self, why: CommandError) -> Tag<T> {
        let tag = self.tag();
        self.push(Yield::Refused { tag: tag.id(), why: Box::new(why) });
        tag
    }

    /// The PID of the process at a target; of nobody, if there is none.
    pub(super) fn pid_of(&self, target: impl Target) -> Pid {
        target.resolve(self).unwrap_or_else(|_| self.link.nobody())
    }

    pub(super) fn tag<T>(&mut self) -> Tag<T> {
        self.tags += 1;
        Tag::new(self.tags)
    }
}
