//! Names and groups, carried out for a process.

use super::dispatch::Core;
use crate::outcome::Failure;
use crate::process::{Answer, CommandError, NameError, Naming, Pid};
use crate::sched::road::Hands;
use crate::sync::Arc;

impl Core {
    /// Gives a process a name.
    pub(super) fn register(&self, name: &Arc<str>, pid: Pid) -> Result<(), NameError> {
        let lives = || self.road.table.cell(pid).is_some_and(|cell| cell.relate(pid));
        self.names.register(name, pid, lives)
    }

    /// Does what a process wants done with names or groups, and answers it.
    pub(super) fn name_process<H: Hands>(&self, by: Pid, tag: u64, naming: Naming, hands: &mut H) {
        let failed = |why: NameError| CommandError::Failed(Failure::new(why));
        let answer: Answer = match naming {
            Naming::Register { name, pid } => self.register(&name, pid).map(|()| Box::new(()) as _).map_err(failed),
            Naming::Unregister { name } => Ok(Box::new(self.names.unregister(&name, None))),
            Naming::Join { group, pid } => match self.groups.join(&*self.road, &group, pid) {
                Ok(told) => {
                    told.into_iter().for_each(|told| self.told(told, hands));
                    Ok(Box::new(()))
                }
                Err(why) => Err(failed(why)),
            },
            Naming::Leave { group, pid } => {
                let (was_in, told) = self.groups.leave(&*self.road, &group, pid);
                told.into_iter().for_each(|told| self.told(told, hands));
                Ok(Box::new(was_in))
            }
        };
        self.road.answer(hands, by, tag, answer);
    }
}
