//! The yields with names and groups.

use super::body::{StepOutput, Yield};
use super::command::{CommandError, Tag};
use super::naming::{NameError, Naming, Subscription};
use super::pending_names::PendingNames;
use super::pid::Pid;
use super::relation::Relate;
use super::target::sealed::Directory;
use super::target::{NoSuchProcessError, Target};
use crate::outcome::Failure;
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
    /// times. Answered when it is in it; with a [`NameError`](super::NameError) if the process has ended, or the group's name
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
