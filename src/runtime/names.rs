//! Changes and look-ups of names and groups, by steps and by calls from outside.

use std::any::{Any, type_name};

use super::dispatch::Core;
use super::system::Runtime;
use crate::groups::Doer;
use crate::outcome::{Failure, drop_contained, undo_if_panicking};
use crate::primitives::Arc;
use crate::process::{
    Address, AddressError, Answer, CommandError, NameError, Naming, NoSuchProcessError, Pid, SpawnError, Target,
};
use crate::relations::mark;
use crate::sched::body::Rare;
use crate::sched::cell::Missed;
use crate::sched::road::Executor;

impl Runtime {
    /// Gives a process a further name. At most one process has a name. A process may have any number of names. When
    /// the holder of a name has ended, the name is free before the processes that monitor the holder are notified.
    ///
    /// # Errors
    /// The name is taken (the error says by which process), the name is empty, or there is no process at the target.
    pub fn register(&self, name: impl Into<Arc<str>>, target: impl Target) -> Result<(), NameError> {
        let core = self.core();
        core.register(&name.into(), core.resolve(&target)?)
    }

    /// Takes a name from the process that has it. Returns that process. `None` if no process had the name.
    pub fn unregister(&self, name: &str) -> Option<Pid> {
        self.core().names.unregister(name)
    }

    /// The PID of the process that has this name.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        let core = self.core();
        core.names.holder(name).or_else(|| core.road.named_elsewhere(name))
    }

    /// The typed address of the process at a target, for example at a name.
    ///
    /// The address is that of the process, and not that of the name: if another process gets the name, the address
    /// does not change. A process that is [upgraded](crate::Step::Upgrade) may take other messages later.
    ///
    /// # Errors
    /// There is no process at the target, or it takes messages of another type.
    ///
    /// ```
    /// use procession::names::AddressError;
    /// # use procession::prelude::*;
    /// # struct Bank;
    /// # impl Process for Bank {
    /// #     type Message = u64;
    /// #     type Output = ();
    /// #     fn step(&mut self, _: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> { Ok(Step::Idle) }
    /// # }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// runtime.spawn_with(Bank, SpawnOptions::new().name("bank"))?;
    /// let bank: Address<u64> = runtime.address("bank")?;
    /// assert!(matches!(runtime.address::<String>("bank"), Err(AddressError::WrongType { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn address<M: Send + 'static>(&self, target: impl Target) -> Result<Address<M>, AddressError> {
        let core = self.core();
        let pid = core.resolve(&target)?;
        match core.road.takes::<M>(pid) {
            Ok(()) => Ok(pid.typed()),
            Err(Missed::NoSuchProcess) => Err(NoSuchProcessError::Pid(pid).into()),
            Err(Missed::WrongType(takes)) => {
                Err(AddressError::WrongType { pid, takes: takes(), wanted: type_name::<M>() })
            }
        }
    }

    /// Adds a process to a group. A group exists while it has members. A process may be in many groups, and several
    /// times in one group. When a process ends, it leaves all its groups.
    ///
    /// # Errors
    /// There is no process at the target, or the group's name is empty.
    pub fn join_group(&self, group: impl Into<Arc<str>>, target: impl Target) -> Result<(), NameError> {
        let core = self.core();
        let pid = core.resolve(&target)?;
        core.join_group(&group.into(), pid, Doer::Another, &mut core.executor())
    }

    /// Removes one membership of a process in a group. Returns whether the process was in the group.
    pub fn leave_group(&self, group: &str, target: impl Target) -> bool {
        let core = self.core();
        let Ok(pid) = core.resolve(&target) else { return false };
        core.leave_group(group, pid, Doer::Another, &mut core.executor())
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
    /// Returns the number of processes that have accepted it. A process does not accept it if it has just ended, if
    /// its full mailbox refuses the message, or if it takes messages of another type.
    ///
    /// The message is cloned for each process but the last. So if a clone costs much, broadcast an [`Arc`] of the
    /// message. If a clone panics, this call does, and the processes before that have got the message.
    pub fn broadcast<M: Clone + Send + 'static>(&self, group: &str, message: M) -> usize {
        let core = self.core();
        let Some(receivers) = core.groups.receivers(group) else { return 0 };
        // The last copy is the message itself.
        let copies = std::iter::repeat_n(message, receivers.len());
        let send = |(to, copy): (&Pid, M)| usize::from(core.road.send(*to, copy).is_ok());
        undo_if_panicking(copies, |copies| receivers.iter().zip(copies).map(send).sum(), drop_contained)
    }
}

impl Core {
    /// Gives a process a name.
    pub(super) fn register(&self, name: &Arc<str>, pid: Pid) -> Result<(), NameError> {
        self.check_local(pid)?;
        let lives = || mark(&*self.road, pid);
        self.names.register(name, pid, lives)
    }

    /// Names and groups have only processes of this node.
    fn check_local(&self, pid: Pid) -> Result<(), NameError> {
        match self.road.elsewhere(pid) {
            Some(elsewhere) if !elsewhere.may_be_named() => Err(NameError::OtherNode(pid)),
            _ => Ok(()),
        }
    }

    /// Gives a new process the name of its spawn options. It does so only once, because the name may be changed later,
    /// also before the state machine is replaced.
    #[cold]
    pub(super) fn take_name(&self, rare: &mut Rare, pid: Pid) -> Result<(), SpawnError> {
        let Some(name) = rare.name.as_ref().filter(|_| !rare.is_named) else { return Ok(()) };
        // The process is not in the table yet. When it ends, the name is found in its head.
        self.names.register(name, pid, || true).map_err(|why| match why {
            NameError::Taken { name, holder } => SpawnError::NameTaken { name, holder },
            // The process counts as alive here, so there is no other reason.
            NameError::Empty | NameError::NoSuchProcess(_) | NameError::OtherNode(_) => SpawnError::EmptyName,
        })?;
        rare.is_named = true;
        Ok(())
    }

    /// Adds a process to a group.
    pub(crate) fn join_group<H: Executor>(
        &self,
        group: &Arc<str>,
        pid: Pid,
        by: Doer,
        executor: &mut H,
    ) -> Result<(), NameError> {
        self.check_local(pid)?;
        self.groups.join(&*self.road, group, pid, by, |told| self.told(told, executor))
    }

    pub(crate) fn leave_group<H: Executor>(&self, group: &str, pid: Pid, by: Doer, executor: &mut H) -> bool {
        self.groups.leave(&*self.road, group, pid, by, |told| self.told(told, executor))
    }

    /// Performs a change of names or groups that a process has yielded, and answers the command.
    pub(super) fn name_process<H: Executor>(&self, me: Pid, tag: u64, naming: Naming, executor: &mut H) {
        let by = |pid: Pid| if me == pid { Doer::Itself } else { Doer::Another };
        let named = |named: Result<(), NameError>| match named {
            Ok(()) => Ok(Box::new(()) as Box<dyn Any + Send>),
            Err(why) => Err(CommandError::Failed(Failure::new(why))),
        };
        let answer: Answer = match naming {
            Naming::Register { name, pid } => named(self.register(&name, pid)),
            Naming::Unregister { name } => Ok(Box::new(self.names.unregister(&name))),
            Naming::Join { group, pid } => named(self.join_group(&group, pid, by(pid), executor)),
            Naming::Leave { group, pid } => Ok(Box::new(self.leave_group(&group, pid, by(pid), executor))),
        };
        self.road.answer(executor, me, tag, answer);
    }
}
