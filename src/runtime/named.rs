//! Names and groups from outside: taking and giving back, looking up, and every call that takes a PID by name instead.

use std::fmt;
use std::time::Duration;

use super::ask::AskFuture;
use super::inspect::{ProcessInfo, ProcessState};
use super::system::Runtime;
use super::watch::ExitWatcher;
use crate::groups::Doer;
use crate::outcome::{Reason, Rejected};
use crate::process::{CommandError, NameError, NoSuchName, Pid, Reply, SendError};
use crate::relations::Told;
use crate::sync::Arc;

impl Runtime {
    /// Gives a process a further name. A name has one holder at most, a process any number of names. It is free again when
    /// its holder has ended, before those who monitor that are told.
    ///
    /// # Errors
    /// The name is taken, and by whom; or empty; or the process has ended.
    pub fn register(&self, name: impl Into<Arc<str>>, pid: Pid) -> Result<(), NameError> {
        self.core().register(&name.into(), pid)
    }

    /// Takes a name from whoever has it. Whose it was.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        self.core().names.unregister(name, None)
    }

    /// The PID of the process that has this name.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.core().names.holder(name)
    }

    /// The process that has this name, in the place of a PID: looked up anew with each call.
    pub fn named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named { runtime: self, name }
    }

    /// A process joins a group, which begins with its first member. A process may be in many groups, and in one several
    /// times. It is in none any more when it has ended.
    ///
    /// # Errors
    /// The process has ended, or the group's name is empty.
    pub fn join_group(&self, group: impl Into<Arc<str>>, pid: Pid) -> Result<(), NameError> {
        let core = self.core();
        core.join_group(&group.into(), pid, Doer::Another, &mut core.executor())
    }

    /// A process leaves a group, once. Whether it was in it.
    pub fn leave_group(&self, group: &str, pid: Pid) -> bool {
        let core = self.core();
        let (was_in, told) = core.groups.leave(&*core.road, group, pid, Doer::Another);
        self.tell(told);
        was_in
    }

    /// Who is in a group, each as often as it has joined; nobody, if there is no such group.
    pub fn group_members(&self, group: &str) -> Vec<Pid> {
        self.core().groups.members(group)
    }

    /// The groups that have members.
    pub fn groups(&self) -> Vec<Arc<str>> {
        self.core().groups.all()
    }

    /// Sends a message to each process that is in the group, once, however often it has joined. How many have accepted it:
    /// not those that have just ended, are full, or take messages of another type.
    pub fn broadcast<M: Clone + Send + 'static>(&self, group: &str, message: M) -> usize {
        let members = self.core().groups.processes(group);
        let Some((last, others)) = members.split_last() else { return 0 };
        let accepted = others.iter().filter(|member| self.send_to(**member, message.clone()).is_ok()).count();
        accepted + usize::from(self.send_to(*last, message).is_ok())
    }

    fn tell(&self, told: Vec<Told>) {
        let core = self.core();
        told.into_iter().for_each(|told| core.told(told, &mut core.executor()));
    }
}

/// Whoever has a name, made with [`Runtime::named`].
#[derive(Clone, Copy)]
pub struct Named<'a> {
    runtime: &'a Runtime,
    name: &'a str,
}

impl Named<'_> {
    /// The process that has the name.
    ///
    /// # Errors
    /// There is none.
    pub fn pid(self) -> Result<Pid, NoSuchName> {
        self.runtime.whereis(self.name).ok_or_else(|| NoSuchName { name: Arc::from(self.name) })
    }

    /// See [`Runtime::send_to`].
    ///
    /// # Errors
    /// The message comes back with the reason; also if no process has the name.
    pub fn send<M: Send + 'static>(self, message: M) -> Result<(), Rejected<M, SendError>> {
        match self.pid() {
            Ok(pid) => self.runtime.send_to(pid, message),
            Err(NoSuchName { name }) => Err(Rejected::new(message, SendError::NoSuchName { name })),
        }
    }

    /// See [`Runtime::send_timeout`].
    ///
    /// # Errors
    /// The message comes back with the reason; also if no process has the name.
    pub fn send_timeout<M: Send + 'static>(self, message: M, limit: Duration) -> Result<(), Rejected<M, SendError>> {
        match self.pid() {
            Ok(pid) => self.runtime.send_timeout(pid.typed(), message, limit),
            Err(NoSuchName { name }) => Err(Rejected::new(message, SendError::NoSuchName { name })),
        }
    }

    /// See [`Runtime::ask`].
    ///
    /// # Errors
    /// Why there is no reply; also if no process has the name.
    pub fn ask<M: Send + 'static, T: Send + 'static>(
        self,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Result<T, CommandError> {
        self.runtime.ask(self.pid()?.typed(), question, limit)
    }

    /// See [`Runtime::ask_async`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn ask_async<M: Send + 'static, T: Send + 'static>(
        self,
        question: impl FnOnce(Reply<T>) -> M,
        limit: Duration,
    ) -> Result<AskFuture<T>, NoSuchName> {
        Ok(self.runtime.ask_async(self.pid()?.typed(), question, limit))
    }

    /// See [`Runtime::cancel`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn cancel(self, reason: impl Into<Reason>) -> Result<bool, NoSuchName> {
        Ok(self.runtime.cancel(self.pid()?, reason).unwrap_or(false))
    }

    /// See [`Runtime::cancel_timeout`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn cancel_timeout(self, reason: impl Into<Reason>, limit: Duration) -> Result<bool, NoSuchName> {
        Ok(self.runtime.cancel_timeout(self.pid()?, reason, limit).unwrap_or(false))
    }

    /// See [`Runtime::terminate`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn terminate(self) -> Result<bool, NoSuchName> {
        Ok(self.runtime.terminate(self.pid()?).unwrap_or(false))
    }

    /// See [`Runtime::watch`].
    ///
    /// # Errors
    /// No process has the name.
    pub fn watch(self) -> Result<ExitWatcher, NoSuchName> {
        Ok(self.runtime.watch(self.pid()?))
    }

    /// See [`Runtime::is_alive`]; `false` if no process has the name.
    pub fn is_alive(self) -> bool {
        self.pid().is_ok_and(|pid| self.runtime.is_alive(pid))
    }

    /// See [`Runtime::process`]; nothing if no process has the name.
    pub fn process(self) -> Option<ProcessInfo> {
        self.runtime.process(self.pid().ok()?)
    }

    /// See [`Runtime::process_state`]; nothing if no process has the name.
    pub fn process_state(self) -> Option<ProcessState> {
        self.runtime.process_state(self.pid().ok()?)
    }

    /// See [`Runtime::register`]: a further name for the same process.
    ///
    /// # Errors
    /// No process has the name that is known, or the further one cannot be given.
    pub fn register(self, further: impl Into<Arc<str>>) -> Result<(), NameError> {
        let pid = self.pid().map_err(|NoSuchName { name }| NameError::NoSuchName { name })?;
        self.runtime.register(further, pid)
    }

    /// See [`Runtime::join_group`].
    ///
    /// # Errors
    /// No process has the name, or the group's name is empty.
    pub fn join_group(self, group: impl Into<Arc<str>>) -> Result<(), NameError> {
        let pid = self.pid().map_err(|NoSuchName { name }| NameError::NoSuchName { name })?;
        self.runtime.join_group(group, pid)
    }

    /// See [`Runtime::leave_group`]; `false` if no process has the name.
    pub fn leave_group(self, group: &str) -> bool {
        self.pid().is_ok_and(|pid| self.runtime.leave_group(group, pid))
    }
}

impl fmt::Debug for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("name", &self.name).field("pid", &self.pid().ok()).finish()
    }
}
