//! The names and groups of processes, as steps change them.

use super::dispatch::Core;
use crate::groups::Doer;
use crate::outcome::{Exit, Failure};
use crate::primitives::Arc;
use crate::process::{Answer, CommandError, NameError, Naming, Pid, SpawnError};
use crate::sched::body::Rare;
use crate::sched::road::Executor;

impl Core {
    /// Gives a process a name.
    pub(super) fn register(&self, name: &Arc<str>, pid: Pid) -> Result<(), NameError> {
        let lives = || self.road.table.cell(pid).is_some_and(|cell| cell.relate(pid));
        self.names.register(name, pid, lives)
    }

    /// Gives a process that begins the name of its spawn options, once. Later the process may change it, also when
    /// its state machine is replaced.
    #[cold]
    pub(super) fn take_name(&self, rare: &mut Rare, pid: Pid) -> Result<(), Exit> {
        let Some(name) = rare.name.as_ref().filter(|_| !rare.is_named) else { return Ok(()) };
        // It is not in the table of processes yet. Its end finds the name in its head.
        self.names.register(name, pid, || true).map_err(|why| {
            Exit::Failed(match why {
                NameError::Taken { name, holder } => Failure::new(SpawnError::NameTaken { name, holder }),
                other => Failure::new(other),
            })
        })?;
        rare.is_named = true;
        Ok(())
    }

    /// Adds a process to a group.
    pub(super) fn join_group<H: Executor>(
        &self,
        group: &Arc<str>,
        pid: Pid,
        by: Doer,
        executor: &mut H,
    ) -> Result<(), NameError> {
        let told = self.groups.join(&*self.road, group, pid, by)?;
        told.into_iter().for_each(|told| self.told(told, executor));
        Ok(())
    }

    /// Adds a process that begins to the groups of its spawn options.
    #[cold]
    pub(super) fn join_given<H: Executor>(&self, groups: Vec<Arc<str>>, pid: Pid, executor: &mut H) {
        for group in groups {
            // The body is in hand and no name is empty, so the join is not refused.
            let _ = self.join_group(&group, pid, Doer::Another, executor);
        }
    }

    /// Performs a change of names or groups that a process has yielded, and answers it.
    pub(super) fn name_process<H: Executor>(&self, by: Pid, tag: u64, naming: Naming, executor: &mut H) {
        let failed = |why: NameError| CommandError::Failed(Failure::new(why));
        let answer: Answer = match naming {
            Naming::Register { name, pid } => self.register(&name, pid).map(|()| Box::new(()) as _).map_err(failed),
            Naming::Unregister { name } => Ok(Box::new(self.names.unregister(&name, None))),
            Naming::Join { group, pid } => {
                self.join_group(&group, pid, doer(by, pid), executor).map(|()| Box::new(()) as _).map_err(failed)
            }
            Naming::Leave { group, pid } => {
                let (was_in, told) = self.groups.leave(&*self.road, &group, pid, doer(by, pid));
                told.into_iter().for_each(|told| self.told(told, executor));
                Ok(Box::new(was_in))
            }
        };
        self.road.answer(executor, by, tag, answer);
    }
}

fn doer(by: Pid, pid: Pid) -> Doer {
    if by == pid { Doer::Itself } else { Doer::Another }
}
