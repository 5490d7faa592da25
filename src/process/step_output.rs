//! The yields: everything that a step can want done.

use std::any::Any;
use std::time::{Duration, Instant};

use super::command::{Command, CommandError, Tag, TimerFired};
use super::handler::BoxedCommand;
use super::names::{NameError, Naming, PendingNames, Subscription};
use super::relation::{Monitor, Relate};
use super::reply::{ProcessAsk, Reply};
use super::target::sealed::Directory;
use super::target::{Accepts, NoSuchProcessError, Target};
use crate::cancel::CancelToken;
use crate::outcome::{Failure, Reason};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::sched::body::{Order, StepOutput, Work, Yield};

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
    /// [`CommandError::Cycle`], which names them. A longer cycle, and a cycle in which a process waits
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
    /// [`CommandError::Cancelled`], unless its answer is on its way already.
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
    /// [`CommandError::NoSuchProcess`] if the PID has never been given, or if nobody has the
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

/// Relations. Like all yields they are performed in order, after the step has returned `Ok`.
impl StepOutput {
    /// Monitors a process: when it ends, this one gets one [`Event::Down`](super::Event::Down) with this monitor; at once, if
    /// there is no such process. Each monitor is told by itself, also several of one process.
    ///
    /// What the process has sent to this one before it ended is stepped before the event (but a step after
    /// [`Step::Wait`](super::Step::Wait) is given no messages, and is told at once), and so is its answer to a question of
    /// this one. Otherwise the event overtakes messages, and a bound of the mailbox does not count it.
    ///
    /// If nobody has the name or is in the group, the monitor's PID is one that no process has.
    pub fn monitor(&mut self, target: impl Target) -> Monitor {
        let pid = self.pid_of(target);
        let monitor = self.new_monitor(pid);
        self.push(Yield::Relate(Relate::Monitor(monitor)));
        monitor
    }

    /// Takes a monitor of this process back: when the step has succeeded, no later one is told of it, also if the event was
    /// on its way. A monitor that has been told, or is not this process's, changes nothing.
    pub fn demonitor(&mut self, monitor: Monitor) {
        self.push(Yield::Relate(Relate::Demonitor(monitor)));
    }

    /// Links this process and another. When one of them ends otherwise than done (it failed, panicked, was terminated, or
    /// was ended through another link), the other is terminated with
    /// [`Reason::Linked`], which names the first that ended and how; unless it traps exits: then it
    /// gets an [`Event::Exit`](super::Event::Exit) and lives on. That one is done is an event for those that trap exits, and
    /// nothing to the others.
    ///
    /// If there is no such process, this one has that as the other's end. Linking twice is one link, and a link to oneself
    /// is none.
    pub fn link(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Link(pid)));
    }

    /// Takes a link away, whichever of the two had made it: when the step has succeeded, no later one is told of the other's
    /// end, also if the event was on its way. Where there is no link nothing changes.
    pub fn unlink(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Unlink(pid)));
    }

    /// Whether the ends of linked processes are events to this one, from now on. See [`link`](Self::link), and
    /// [`SpawnOptions::trap_exits`](crate::SpawnOptions::trap_exits) for one that must trap them from its birth.
    pub fn trap_exits(&mut self, trap: bool) {
        self.push(Yield::Relate(Relate::TrapExits(trap)));
    }

    pub(super) fn new_monitor(&mut self, pid: Pid) -> Monitor {
        Monitor::new(self.new_number(), pid)
    }

    /// A number that no other monitor or subscription has.
    pub(super) fn new_number(&mut self) -> u64 {
        self.monitors.next().unwrap_or_else(|| {
            self.monitors = self.link.monitor_numbers();
            self.monitors.next().unwrap_or_default()
        })
    }
}

/// Names and groups. What changes them is performed in order with the other yields; who has a name, and who is in a group, is
/// looked up at once, as it is at that moment. A name is looked up as if the yields that the step has written so far had been
/// performed: a process that the step has registered, or spawned with a name, is found by it, and a name that the step has
/// taken away is not. If another process has the name already, that one is found, as it also keeps the name. (A name that the step
/// gives to a process that has ended is found until the step is over, and a message to it becomes a dead letter.)
impl StepOutput {
    /// Gives a process a further name: this one ([`pid`](Self::pid)) or another. Answered when it has it; with a
    /// [`NameError`] (see [`CommandError::downcast_ref`]) if the name is
    /// taken, and by whom, or empty, or the process has ended. The name is free again when its holder has ended, before
    /// those who monitor it are told.
    pub fn register(&mut self, name: impl Into<Arc<str>>, target: impl Target) -> Tag<()> {
        let name = name.into();
        let pid = match target.resolve(self) {
            Ok(pid) => pid,
            Err(why) => return self.not_named(why),
        };
        self.pending_names().give(&name, pid);
        self.naming(Naming::Register { name, pid })
    }

    /// Takes a name from whoever has it. Answered with the process that had it, if one did.
    pub fn unregister(&mut self, name: impl Into<Arc<str>>) -> Tag<Option<Pid>> {
        let name = name.into();
        self.pending_names().free(&name);
        self.naming(Naming::Unregister { name })
    }

    /// The process that has this name now, or that this step has given it.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        let now = || self.link.holder(name);
        self.pending_names.as_ref().map_or_else(now, |pending| pending.holder(name, now))
    }

    pub(super) fn pending_names(&mut self) -> &mut PendingNames {
        self.pending_names.get_or_insert_default()
    }

    /// A process joins a group, which begins with its first member. A process may be in many groups, and in one several
    /// times. Answered when it is in it; with a [`NameError`] if the process has ended, or the group's name
    /// is empty.
    pub fn join_group(&mut self, group: impl Into<Arc<str>>, target: impl Target) -> Tag<()> {
        match target.resolve(self) {
            Ok(pid) => self.naming(Naming::Join { group: group.into(), pid }),
            Err(why) => self.not_named(why),
        }
    }

    /// A process leaves a group, once. Answered with whether it was in it.
    pub fn leave_group(&mut self, group: impl Into<Arc<str>>, target: impl Target) -> Tag<bool> {
        let pid = self.pid_of(target);
        self.naming(Naming::Leave { group: group.into(), pid })
    }

    /// Who is in a group now, each as often as it has joined; nobody, if there is no such group.
    pub fn group_members(&self, group: &str) -> Vec<Pid> {
        self.link.group(group)
    }

    /// Sends a message to each process that is in the group now, once, however often it has joined. To how many.
    pub fn broadcast<M: Clone + Send + 'static>(&mut self, group: &str, message: M) -> usize {
        let mut members = self.link.group(group);
        members.dedup();
        let Some((last, others)) = members.split_last() else { return 0 };
        others.iter().for_each(|member| self.send(*member, message.clone()));
        self.send(*last, message);
        members.len()
    }

    /// Subscribes to a group: told of its members by an [`Event::Group`](super::Event::Group), and from then on of each that
    /// joins or leaves, once, in order. The group need not have members.
    pub fn subscribe(&mut self, group: impl Into<Arc<str>>) -> Subscription {
        let subscription = Subscription::new(self.new_number(), group.into());
        self.push(Yield::Relate(Relate::Subscribe(subscription.clone())));
        subscription
    }

    /// Takes a subscription of this process back: when the step has succeeded, no later one is told of it.
    pub fn unsubscribe(&mut self, subscription: Subscription) {
        self.push(Yield::Relate(Relate::Unsubscribe(subscription)));
    }

    fn naming<T>(&mut self, naming: Naming) -> Tag<T> {
        let tag = self.tag();
        self.push(Yield::Naming { tag: tag.id(), naming: Box::new(naming) });
        tag
    }

    /// A command that nobody could be given a name or a group with.
    fn not_named<T>(&mut self, why: NoSuchProcessError) -> Tag<T> {
        self.refused(CommandError::Failed(Failure::new(NameError::NoSuchProcess(why))))
    }
}

impl Directory for StepOutput {
    fn holder(&self, name: &str) -> Option<Pid> {
        self.whereis(name)
    }

    fn next_member(&self, group: &str) -> Option<Pid> {
        self.link.next_member(group)
    }
}
