//! The yields: all actions that a step can request.

use std::any::Any;
use std::time::{Duration, Instant, SystemTime};

use super::command::{Command, CommandError, Tag, TimerFired};
use super::duty::CommandCancel;
use super::handler::BoxedCommand;
use super::names::{NameError, Naming, PendingNames, Subscription};
use super::no_such_process::NoSuchProcessError;
use super::propagation::{TraceContext, in_trace};
use super::relation::{Monitor, Relate};
use super::reply::{Ask, Reply};
use super::target::{Accepts, Target};
use crate::cancel::CancelToken;
use crate::outcome::{Failure, Reason};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::sched::body::{StepOutput, Work, Yield};
use crate::sched::orders::Order;

/// Yields are recorded. The runtime performs them in order when the step has returned `Ok`.
///
/// Yields that return a [`Tag`] are *commands*. Each command is answered once, by an
/// [`Event::Completed`](super::Event::Completed) with that tag. The other yields have no answer. If a message cannot
/// be delivered, it becomes a dead letter. If a child cannot start, its exit has the reason. If a reply comes too
/// late, it is counted in the statistics.
impl StepOutput {
    /// The PID of the process that is being stepped.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The current time, by the runtime's clock.
    pub fn now(&self) -> Instant {
        self.reads.now()
    }

    /// The current wall-clock time.
    ///
    /// It is the time of the system. In a runtime with a manual clock, it moves only with that clock. In a replayed
    /// [recording](crate::recording) it is the recorded time. So a step that calls this can be replayed. A step that
    /// calls `SystemTime::now` cannot.
    pub fn system_time(&self) -> SystemTime {
        self.reads.system_time()
    }

    /// Whether the runtime is shutting down. It then accepts no new process, and asks every process to stop. A process
    /// that is notified of another's end can call this to tell a shutdown from a failure.
    pub fn is_shutting_down(&self) -> bool {
        self.reads.is_shutting_down()
    }

    /// Sends a message. Messages from this process to one receiver are stepped in the order in which they were sent.
    ///
    /// For an [`Address`](super::Address) and a handle, the compiler checks that the process takes messages of this
    /// type. For every other target, the type is checked when the message is delivered. A message that cannot be
    /// delivered becomes a dead letter. The same happens if no process has the name, or if the group has no members.
    #[inline]
    pub fn send<M: Send + 'static>(&mut self, to: impl Accepts<M>, message: M) {
        let pid = self.resolve(&to);
        let lane = self.put(&to, message);
        let to = match pid {
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

    /// Puts a message on the lane for its type, converted if the target is a recipient. Returns the number of the lane.
    #[inline]
    fn put<M: Send + 'static>(&mut self, to: &impl Accepts<M>, message: M) -> u32 {
        match to.recipient() {
            None => self.outbox.push(message),
            Some(recipient) => recipient.route().push(&mut self.outbox, message),
        }
    }

    /// Adds `by` to a figure of the type of this process: `out.count("orders", 1)`.
    ///
    /// A failed step counts nothing. A count only grows. [`Runtime::snapshot`](crate::Runtime::snapshot) has the sums,
    /// by type and name. If the runtime does not [collect figures](crate::config::RuntimeBuilder::metrics), this call
    /// does nothing. The first 256 names of a type have sums of their own. All others share one. So use a few fixed
    /// names, and not names of customers or PIDs.
    pub fn count(&mut self, name: &'static str, by: u64) {
        if !self.counts {
            return;
        }
        match self.counted.iter_mut().find(|(counted, _)| std::ptr::eq(*counted, name)) {
            Some((_, sum)) => *sum = sum.wrapping_add(by),
            None => self.counted.push((name, by)),
        }
    }

    /// Answers a question.
    pub fn reply<T: Send + 'static>(&mut self, reply: Reply<T>, value: T) {
        self.push(Yield::Reply(reply.pending(value)));
    }

    /// Asks another process. `question` receives a [`Reply`] and returns the message that contains it. The command is
    /// answered with the reply, or with an error that says why there is none. The error comes at once in these cases:
    ///
    /// - There is no process at the target, or the process ends.
    /// - The process takes messages of another type.
    /// - The mailbox of the process is full.
    /// - The process drops the reply.
    ///
    /// Otherwise the error comes when `limit` is over. [`Duration::MAX`] is no limit.
    ///
    /// A process that asks and returns [`Step::Wait`](super::Step::Wait) takes no questions until it is answered.
    /// Processes form a *cycle* if each of them waits in this way for one answer of the next one, and the last one
    /// waits for the first. In a cycle of at most 1,000 processes, one ask is answered at once with
    /// [`CommandError::Cycle`], whatever its limit is. The error lists the processes. A longer cycle, and a cycle in
    /// which a process waits for several answers, ends when the limit of one of its asks is over. So give each ask a
    /// limit. A cycle is not found, either, if a process in it waits for the output of a child that it
    /// [runs](StepOutput::run). A process that passes a [`Reply`] on must call [`Reply::delegate`] before it asks and
    /// waits itself.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        &mut self,
        to: impl Accepts<M>,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Tag<T> {
        let pid = match self.resolve(&to) {
            Ok(pid) => pid,
            Err(why) => return self.refused(why.into()),
        };
        let tag = self.tag();
        let ask = self
            .spare_asks
            .renew::<T>(self.pid, tag.id(), pid)
            .unwrap_or_else(|| Arc::new(Ask::of_process::<T>(self.link.clone(), self.pid, tag.id(), pid)));
        let message = question(Reply::new(ask.clone()));
        let lane = self.put(&to, message);
        self.push(Yield::Ask { lane, to: pid, ask, limit });
        tag
    }

    /// Runs a closure on the pool, where it may block. The answer is the value that the closure returns. If the
    /// closure panics, the answer is [`CommandError::Panicked`].
    pub fn blocking<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Tag<T> {
        self.blocking_work(Box::new(move |_| Box::new(work()) as Box<dyn Any + Send>))
    }

    /// Runs a closure on the pool, and lends it a [`CancelToken`]. The token is cancelled when the process has ended,
    /// when its state machine has failed, or when a step [cancels the command](Self::cancel_command). Nothing receives
    /// the result then. If the closure has not begun by then, it is not run.
    ///
    /// A closure that is yielded with [`Step::Done`](super::Step::Done) is run all the same. Its token is cancelled
    /// when the limit of a shutdown is over.
    pub fn blocking_with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&CancelToken) -> T + Send + 'static,
    ) -> Tag<T> {
        self.blocking_work(Box::new(move |cancel| Box::new(work(cancel.token())) as Box<dyn Any + Send>))
    }

    fn blocking_work<T>(&mut self, work: Work) -> Tag<T> {
        let work = match self.current_trace() {
            None => work,
            Some(context) => Box::new(move |cancel: &CommandCancel| in_trace(Some(&*context), || work(cancel))),
        };
        let tag = self.tag();
        self.push(Yield::Blocking { tag: tag.id(), work });
        tag
    }

    /// Sets a timer. The command is answered when `delay` has passed by the runtime's clock, and never before.
    pub fn after(&mut self, delay: Duration) -> Tag<TimerFired> {
        let tag = self.tag();
        self.push(Yield::Timer { tag: tag.id(), delay });
        tag
    }

    /// Cancels a timer of this process. Its command is answered with [`CommandError::Cancelled`], unless the timer has
    /// already fired.
    pub fn cancel_timer(&mut self, timer: Tag<TimerFired>) {
        self.push(Yield::CancelTimer { tag: timer.id() });
    }

    /// Yields a command that the user defines. Its handler performs it and answers.
    pub fn command<C: Command>(&mut self, command: C) -> Tag<C::Output> {
        let tag = self.tag();
        self.push(Yield::Command { tag: tag.id(), command: BoxedCommand::new(command) });
        tag
    }

    /// Asks a process to stop, with a reason. The answer is `true` if the process lived, and `false` if it has ended.
    /// The answer is [`CommandError::NoSuchProcess`] if no process has ever had the PID, if no process has the name,
    /// or if the group has no members.
    pub fn cancel(&mut self, target: impl Target, reason: impl Into<Reason>) -> Tag<bool> {
        self.cancel_request(target, reason.into(), None)
    }

    /// Asks a process to stop within `limit`. The request contains the deadline. If the process does not stop in time,
    /// nothing happens.
    pub fn cancel_timeout(&mut self, target: impl Target, reason: impl Into<Reason>, limit: Duration) -> Tag<bool> {
        self.cancel_request(target, reason.into(), Some(limit))
    }

    fn cancel_request(&mut self, target: impl Target, reason: Reason, limit: Option<Duration>) -> Tag<bool> {
        self.command_to(target, |tag, to| Yield::Cancel { tag, to, request: Box::new((reason, limit)) })
    }

    /// Terminates a process. If it is in a step, the step runs to its end. Then the process is not stepped again. The
    /// answer is `true` if the process lived. The errors are those of [`cancel`](Self::cancel).
    pub fn terminate(&mut self, target: impl Target) -> Tag<bool> {
        self.command_to(target, |tag, to| Yield::Terminate { tag, to })
    }

    /// Yields a command about the process at a target.
    fn command_to<T>(&mut self, target: impl Target, command: impl FnOnce(u64, Pid) -> Yield) -> Tag<T> {
        match self.resolve(&target) {
            Ok(pid) => {
                let tag = self.tag();
                self.push(command(tag.id(), pid));
                tag
            }
            Err(why) => self.refused(why.into()),
        }
    }

    /// Yields a command that is answered with this error.
    #[cold]
    pub(crate) fn refused<T>(&mut self, why: CommandError) -> Tag<T> {
        let tag = self.tag();
        self.push(Yield::Refused { tag: tag.id(), why: Box::new(why) });
        tag
    }

    #[inline]
    pub(super) fn resolve(&self, target: &impl Target) -> Result<Pid, NoSuchProcessError> {
        target.named().find(
            |name| self.whereis(name),
            |group| self.reads.next_member(group),
            |name| self.reads.shared_holder(name),
        )
    }

    /// The PID of the process at a target. If there is none, a PID that no process has.
    pub(super) fn pid_of(&self, target: impl Target) -> Pid {
        self.resolve(&target).unwrap_or_else(|_| self.link.nobody())
    }

    /// As `tag`, for a command of the library. It is in no trace.
    pub(super) fn tag_of_library<T>(&mut self) -> Tag<T> {
        self.tags += 1;
        Tag::new(self.tags)
    }

    /// Sets the trace in which a command is answered.
    pub(crate) fn goes_on_within<T>(&mut self, command: Tag<T>, context: Option<&Arc<dyn TraceContext>>) {
        if let Some(traces) = self.outbox.traces() {
            traces.commands.push((command.id(), context.cloned()));
        }
    }

    /// Has the next step of the process continue with the traced event of this one, in this trace.
    pub(crate) fn continues_in(&mut self, context: Option<&Arc<dyn TraceContext>>) {
        if let Some(traces) = self.outbox.traces() {
            traces.continues = context.cloned();
        }
    }

    /// The trace in which the step runs, if the runtime propagates traces.
    pub(crate) fn current_trace(&mut self) -> Option<Arc<dyn TraceContext>> {
        self.outbox.traces()?.current()
    }

    pub(super) fn tag<T>(&mut self) -> Tag<T> {
        self.tags += 1;
        if let Some(traces) = self.outbox.traces() {
            traces.note_command(self.tags);
        }
        Tag::new(self.tags)
    }
}

/// Relations between processes.
///
/// Like all yields, they are performed in order, after the step has returned `Ok`.
impl StepOutput {
    /// Monitors a process. When it ends, this process gets one [`Event::Down`](super::Event::Down) with the monitor.
    /// If there is no such process, the event comes at once. If this process sets several monitors of one process, it
    /// gets one event for each.
    ///
    /// The event comes after everything that the ended process sent to this one: its messages, and its answers to
    /// questions. It overtakes all other messages. A step after [`Step::Wait`](super::Step::Wait) is given no
    /// messages, so there the event does not wait for messages. The bound of a mailbox does not count the event.
    ///
    /// If no process has the name, or if the group has no members, the PID of the monitor is one that no process has.
    pub fn monitor(&mut self, target: impl Target) -> Monitor {
        let pid = self.pid_of(target);
        let monitor = self.new_monitor(pid);
        self.push(Yield::Relate(Relate::Monitor(monitor)));
        monitor
    }

    /// Removes a monitor of this process. When the step has succeeded, no later step receives its event, even if the
    /// event is already in the mailbox. If the event was received before, or if the monitor belongs to another
    /// process, this has no effect.
    pub fn demonitor(&mut self, monitor: Monitor) {
        self.push(Yield::Relate(Relate::Demonitor(monitor)));
    }

    /// Links this process and another process, in both directions.
    ///
    /// If one of the two fails, panics or is terminated, the other one is terminated with [`Reason::Linked`]. That
    /// reason names the process that ended first, and how it ended. If the other one traps exits, it is not
    /// terminated. It gets an [`Event::Exit`](super::Event::Exit) instead.
    ///
    /// If one of the two is done, the other one gets the event if it traps exits. Otherwise it is not notified.
    ///
    /// If there is no such process, this has the same effect as an exit of the other process with
    /// [`Reason::NoSuchProcess`]. A second link between the same two processes has no effect. A link of a process to
    /// itself has no effect, either.
    pub fn link(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Link(pid)));
    }

    /// Removes a link. Either of the two processes may have made it. When the step has succeeded, no later step
    /// receives the other's exit, even if the event is already in the mailbox. If there is no link, this has no
    /// effect.
    pub fn unlink(&mut self, target: impl Target) {
        let pid = self.pid_of(target);
        self.push(Yield::Relate(Relate::Unlink(pid)));
    }

    /// Sets whether this process traps exits. If it does, the end of a linked process is an event to it: see
    /// [`link`](Self::link). To trap exits from the birth of a process, use
    /// [`SpawnOptions::trap_exits`](crate::SpawnOptions::trap_exits).
    pub fn trap_exits(&mut self, trap: bool) {
        self.push(Yield::Relate(Relate::TrapExits(trap)));
    }

    pub(super) fn new_monitor(&mut self, pid: Pid) -> Monitor {
        Monitor::new(self.new_number(), pid)
    }

    /// A number that no other monitor or subscription has.
    pub(crate) fn new_number(&mut self) -> u64 {
        self.monitors.next().unwrap_or_else(|| {
            self.monitors = self.reads.monitor_numbers();
            self.monitors.next().unwrap_or_default()
        })
    }
}

/// Names and groups.
///
/// Changes are performed in order with the other yields. Look-ups of names and groups return the state at the time of
/// the call.
///
/// The look-up of a name considers the yields that the step has written so far. It finds a process that the step has
/// registered, or spawned with a name. It does not find a process whose name the step has unregistered. If the step
/// registers a name that another process has, the look-up finds that other process, because it keeps the name. If the
/// step gives a name to an ended process, the look-up finds that process until the step is over. A message to it
/// becomes a dead letter.
impl StepOutput {
    /// Gives a process a further name. To name this process, give its own PID ([`pid`](Self::pid)). The command is
    /// answered when the process has the name. If the name is taken or empty, or if the process has ended, the answer
    /// is a [`NameError`] in a [`CommandError::Failed`]. [`CommandError::downcast_ref`] returns it. When the holder of
    /// a name has ended, the name is free before the processes that monitor the holder are notified.
    pub fn register(&mut self, name: impl Into<Arc<str>>, target: impl Target) -> Tag<()> {
        let name = name.into();
        let pid = match self.resolve(&target) {
            Ok(pid) => pid,
            Err(why) => return self.not_named(why),
        };
        self.pending_names().give(&name, pid);
        self.naming(Naming::Register { name, pid })
    }

    /// Takes a name from the process that has it. The answer is that process. It is `None` if no process had the name.
    pub fn unregister(&mut self, name: impl Into<Arc<str>>) -> Tag<Option<Pid>> {
        let name = name.into();
        self.pending_names().free(&name);
        self.naming(Naming::Unregister { name })
    }

    /// The process that has this name now, or to which this step has given it.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        let now = || self.reads.holder(name);
        self.pending_names.as_ref().map_or_else(now, |pending| pending.holder(name, now))
    }

    pub(super) fn pending_names(&mut self) -> &mut PendingNames {
        self.pending_names.get_or_insert_default()
    }

    /// Adds a process to a group. A group exists while it has members. A process may be in many groups, and several
    /// times in one group. The command is answered when the process is in the group. If the process has ended, or if
    /// the name of the group is empty, the answer is a [`NameError`] in a [`CommandError::Failed`].
    pub fn join_group(&mut self, group: impl Into<Arc<str>>, target: impl Target) -> Tag<()> {
        match self.resolve(&target) {
            Ok(pid) => self.naming(Naming::Join { group: group.into(), pid }),
            Err(why) => self.not_named(why),
        }
    }

    /// Removes one membership of a process in a group. The answer says whether the process was in the group.
    pub fn leave_group(&mut self, group: impl Into<Arc<str>>, target: impl Target) -> Tag<bool> {
        let pid = self.pid_of(target);
        self.naming(Naming::Leave { group: group.into(), pid })
    }

    /// The members of a group now, each as often as it has joined. The list is empty if there is no such group.
    pub fn group_members(&self, group: &str) -> Vec<Pid> {
        self.reads.group(group)
    }

    /// Sends a message to each process that is in the group now. Returns the number of these processes. A process that
    /// has joined several times gets the message once.
    ///
    /// The message is cloned in this call, once for each process but the last. So if a clone costs much, broadcast an
    /// [`Arc`] of the message. If a clone panics, no process gets the message.
    pub fn broadcast<M: Clone + Send + 'static>(&mut self, group: &str, message: M) -> usize {
        let Some(to) = self.reads.receivers(group) else { return 0 };
        let count = to.len();
        let lane = self.outbox.push_copies(message, count);
        self.push(Yield::Broadcast { lane, to });
        count
    }

    /// Subscribes to a group. This process first receives the members in an [`Event::Group`](super::Event::Group).
    /// From then on it receives one event for each process that joins or leaves, in order. The group need not have
    /// members. A durable process that is loaded again subscribes again: it receives the members once more.
    pub fn subscribe(&mut self, group: impl Into<Arc<str>>) -> Subscription {
        let subscription = Subscription::new(self.new_number(), group.into());
        self.push(Yield::Relate(Relate::Subscribe(subscription.clone())));
        subscription
    }

    /// Removes a subscription of this process. When the step has succeeded, no later step receives an event of it.
    pub fn unsubscribe(&mut self, subscription: Subscription) {
        self.push(Yield::Relate(Relate::Unsubscribe(subscription)));
    }

    fn naming<T>(&mut self, naming: Naming) -> Tag<T> {
        let tag = self.tag();
        self.push(Yield::Naming { tag: tag.id(), naming: Box::new(naming) });
        tag
    }

    /// Yields a command about a name or a group for which there is no process. Its answer is this error.
    fn not_named<T>(&mut self, why: NoSuchProcessError) -> Tag<T> {
        self.refused(CommandError::Failed(Failure::new(NameError::NoSuchProcess(why))))
    }
}

impl std::fmt::Debug for StepOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepOutput").field("pid", &self.pid).field("yields", &self.orders.len()).finish()
    }
}
