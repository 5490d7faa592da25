//! The yields with names: taking and giving back, groups, and every yield that is for a PID by name instead.

use std::time::Duration;

use super::body::{StepOutput, Yield};
use super::command::Tag;
use super::naming::{Naming, NoSuchName, Subscription};
use super::pending_names::PendingNames;
use super::pid::Pid;
use super::refusal::SendError;
use super::relation::{Monitor, Relate};
use super::reply::Reply;
use crate::outcome::{Reason, Rejected};
use crate::sync::Arc;

/// Names and groups. What changes them is performed in order with the other yields; who has a name, and who is in a group, is
/// looked up at once, as it is at that moment. A name is looked up as if the yields that the step has written so far had been
/// performed: a process that the step has registered, or spawned with a name, is found by it, and a name that the step has
/// taken away is not. If another process has the name already, that one is found, as it also keeps the name. (A name that the step
/// gives to a process that has ended is found until the step is over, and a message to it becomes a dead letter.)
impl StepOutput {
    /// Gives a process a further name: this one ([`pid`](Self::pid)) or another. Answered when it has it; with a
    /// [`NameError`](super::NameError) (see [`CommandError::downcast_ref`](super::CommandError::downcast_ref)) if the name is
    /// taken, and by whom, or empty, or the process has ended. The name is free again when its holder has ended, before
    /// those who monitor it are told.
    pub fn register(&mut self, name: impl Into<Arc<str>>, pid: Pid) -> Tag<()> {
        let name = name.into();
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
        let now = || self.link.whereis(name);
        self.pending_names.as_ref().map_or_else(now, |pending| pending.holder(name, now))
    }

    pub(super) fn pending_names(&mut self) -> &mut PendingNames {
        self.pending_names.get_or_insert_default()
    }

    /// The process that [`whereis`](Self::whereis) finds, in the place of a PID.
    pub fn named<'a>(&'a mut self, name: &'a str) -> NamedOutput<'a> {
        NamedOutput { name, out: self }
    }

    /// A process joins a group, which begins with its first member. A process may be in many groups, and in one several
    /// times. Answered when it is in it; with a [`NameError`](super::NameError) if the process has ended, or the group's name
    /// is empty.
    pub fn join_group(&mut self, group: impl Into<Arc<str>>, pid: Pid) -> Tag<()> {
        self.naming(Naming::Join { group: group.into(), pid })
    }

    /// A process leaves a group, once. Answered with whether it was in it.
    pub fn leave_group(&mut self, group: impl Into<Arc<str>>, pid: Pid) -> Tag<bool> {
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
        others.iter().for_each(|member| self.send_to(*member, message.clone()));
        self.send_to(*last, message);
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
}

/// The yields for whoever has a name, made with [`StepOutput::named`]. The name is looked up when the yield is written.
#[derive(Debug)]
#[must_use = "nothing is yielded until one of its methods is called"]
pub struct NamedOutput<'a> {
    name: &'a str,
    out: &'a mut StepOutput,
}

impl NamedOutput<'_> {
    /// The process that has the name.
    ///
    /// # Errors
    /// There is none.
    pub fn pid(&self) -> Result<Pid, NoSuchName> {
        self.out.whereis(self.name).ok_or_else(|| NoSuchName { name: Arc::from(self.name) })
    }

    /// See [`StepOutput::send_to`].
    ///
    /// # Errors
    /// The message comes back: no process has the name.
    pub fn send<M: Send + 'static>(self, message: M) -> Result<(), Rejected<M, SendError>> {
        match self.pid() {
            Ok(pid) => self.out.send_to(pid, message),
            Err(NoSuchName { name }) => return Err(Rejected::new(message, SendError::NoSuchName { name })),
        }
        Ok(())
    }

    /// See [`StepOutput::ask`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        self,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Result<Tag<T>, NoSuchName> {
        self.pid().map(|pid| self.out.ask(pid.typed(), question, limit))
    }

    /// See [`StepOutput::cancel`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn cancel(self, reason: impl Into<Reason>) -> Result<Tag<bool>, NoSuchName> {
        self.pid().map(|pid| self.out.cancel(pid, reason))
    }

    /// See [`StepOutput::cancel_timeout`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn cancel_timeout(self, reason: impl Into<Reason>, limit: Duration) -> Result<Tag<bool>, NoSuchName> {
        self.pid().map(|pid| self.out.cancel_timeout(pid, reason, limit))
    }

    /// See [`StepOutput::terminate`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn terminate(self) -> Result<Tag<bool>, NoSuchName> {
        self.pid().map(|pid| self.out.terminate(pid))
    }

    /// See [`StepOutput::monitor`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn monitor(self) -> Result<Monitor, NoSuchName> {
        self.pid().map(|pid| self.out.monitor(pid))
    }

    /// See [`StepOutput::link`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn link(self) -> Result<(), NoSuchName> {
        self.pid().map(|pid| self.out.link(pid))
    }

    /// See [`StepOutput::unlink`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn unlink(self) -> Result<(), NoSuchName> {
        self.pid().map(|pid| self.out.unlink(pid))
    }

    /// See [`StepOutput::register`].
    ///
    /// # Errors
    /// No process has the name that is known.
    pub fn register(self, further: impl Into<Arc<str>>) -> Result<Tag<()>, NoSuchName> {
        self.pid().map(|pid| self.out.register(further, pid))
    }

    /// See [`StepOutput::join_group`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn join_group(self, group: impl Into<Arc<str>>) -> Result<Tag<()>, NoSuchName> {
        self.pid().map(|pid| self.out.join_group(group, pid))
    }

    /// See [`StepOutput::leave_group`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn leave_group(self, group: impl Into<Arc<str>>) -> Result<Tag<bool>, NoSuchName> {
        self.pid().map(|pid| self.out.leave_group(group, pid))
    }
}
