//! Processes and requests of other nodes.

use super::dispatch::Core;
use crate::outcome::drop_contained;
use crate::primitives::Arc;
use crate::process::host::CountedHost;
use crate::process::{Ask, Pid, SpawnError};
use crate::sched::body::Ready;
use crate::sched::non_local::{NonLocal, Stop};
use crate::sched::turn::begin;

impl Core {
    /// Asks a process of another node to end. `asker` is the process that does, and the tag of its command.
    #[cold]
    pub(super) fn stop_elsewhere(&self, node: &dyn NonLocal, (asker, tag): (Pid, u64), to: Pid, stop: Stop) {
        let Some(core) = self.shared() else { return };
        let host = Arc::new(core as Arc<dyn crate::process::host::Host>) as CountedHost;
        node.stop((asker, to), stop, Arc::new(Ask::of_process::<bool>(host, asker, tag, to)));
    }

    /// Spawns a process for one of another node. `make` makes its body, which is then scheduled.
    pub(crate) fn spawn_from_elsewhere(
        &self,
        make: impl FnOnce(Pid) -> Result<Ready, SpawnError>,
    ) -> Result<(), SpawnError> {
        let road = &self.road;
        let visit = road.door.enter();
        let Some(pid) = visit.as_ref().and_then(|_| road.table.vacancy()) else {
            // It has a value of the user.
            drop_contained(make);
            let limit = road.table.limit();
            return Err(if visit.is_some() { SpawnError::Limit { limit } } else { SpawnError::ShuttingDown });
        };
        match make(pid) {
            Ok(body) => {
                begin(self, &mut self.executor(), body, 0);
                Ok(())
            }
            Err(why) => {
                road.table.give_back_after(pid);
                Err(why)
            }
        }
    }
}
