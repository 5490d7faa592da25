//! Calls from outside for names and groups.

use super::system::Runtime;
use crate::groups::Doer;
use crate::primitives::Arc;
use crate::process::{NameError, Pid, Target};
use crate::relations::Told;

impl Runtime {
    /// Gives a process a further name. A name has at most one holder, and a process may have any number of names.
    /// When its holder has ended, the name is free before the processes that monitor the holder are told.
    ///
    /// # Errors
    /// The name is taken (the error says by which process), the name is empty, or there is no process at the target.
    pub fn register(&self, name: impl Into<Arc<str>>, target: impl Target) -> Result<(), NameError> {
        let core = self.core();
        core.register(&name.into(), core.resolve(&target)?)
    }

    /// Takes a name from its holder. Returns the process that had it.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        self.core().names.unregister(name, None)
    }

    /// The PID of the process that has this name.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.core().names.holder(name)
    }

    /// Adds a process to a group. A group begins with its first member. A process may be in many groups, and several
    /// times in one group. A process that has ended is in no group.
    ///
    /// # Errors
    /// There is no process at the target, or the group's name is empty.
    pub fn join_group(&self, group: impl Into<Arc<str>>, target: impl Target) -> Result<(), NameError> {
        let core = self.core();
        let pid = core.resolve(&target)?;
        core.join_group(&group.into(), pid, Doer::Another, &mut core.executor())
    }

    /// Removes a process from a group, once. Returns whether it was in the group.
    pub fn leave_group(&self, group: &str, target: impl Target) -> bool {
        let core = self.core();
        let Ok(pid) = core.resolve(&target) else { return false };
        let (was_in, told) = core.groups.leave(&*core.road, group, pid, Doer::Another);
        self.tell(told);
        was_in
    }

    /// The members of a group, each as often as it has joined. The list is empty if there is no such group.
    pub fn group_members(&self, group: &str) -> Vec<Pid> {
        self.core().groups.members(group)
    }

    /// The groups that have members.
    pub fn groups(&self) -> Vec<Arc<str>> {
        self.core().groups.all()
    }

    /// Sends a message to each process in the group. A process that has joined several times gets the message once.
    /// Returns how many processes have accepted it. Processes that have just ended, are full, or take messages of
    /// another type are not counted.
    pub fn broadcast<M: Clone + Send + 'static>(&self, group: &str, message: M) -> usize {
        let members = self.core().groups.processes(group);
        let Some((last, others)) = members.split_last() else { return 0 };
        let accepted = others.iter().filter(|member| self.send(**member, message.clone()).is_ok()).count();
        accepted + usize::from(self.send(*last, message).is_ok())
    }

    fn tell(&self, told: Vec<Told>) {
        let core = self.core();
        told.into_iter().for_each(|told| core.told(told, &mut core.executor()));
    }
}
