//! Jobs of a store on threads of the pool, or in the turns of a simulated world; random numbers of loaded processes.

use std::time::Duration;

use super::core::{RELOAD, StoreCore};
use super::simulated::StoreWork;
use crate::primitives::Arc;
use crate::random::random_at;
use crate::runtime::{Core, Timed};

/// The stream of the numbers from which loaded processes draw on.
const STREAM: u64 = 0x6472_6177;

impl StoreCore {
    /// The position from which a process draws its random numbers. One that is loaded may have drawn in this run
    /// before, so each load has another position.
    pub(super) fn first_draw(&self, is_new: bool) -> u64 {
        if is_new {
            return 0;
        }
        // A process that slept may return though nothing was stored meanwhile.
        let (stays, (life, last)) = (self.keeper.stays(), self.tail.end());
        (random_at(life.number() ^ stays << 32, STREAM, last.0) >> 1).max(1)
    }

    /// Has a thread of the pool do this. Returns `false` if the pool takes no job any more.
    pub(super) fn in_pool(&self, core: &Core, job: impl FnOnce() + Send + 'static) -> bool {
        let Some(simulation) = &self.simulation else { return core.pool.execute(job).is_ok() };
        let (faults, simulation) = (simulation.clone(), simulation.clone());
        let job = move || {
            faults.disturb();
            job();
        };
        simulation.host.work(StoreWork::Job, Duration::ZERO, Box::new(job));
        true
    }

    /// As [`start_load`](StoreCore::start_load), after a pause.
    pub(super) fn load_later(&self, core: &Arc<Core>, serial: u64) {
        self.load_in(core, serial, RELOAD);
    }

    /// As [`start_load`](StoreCore::start_load), for a thread that holds locks. A pool that cannot start a thread calls
    /// code of users.
    pub(super) fn load_soon(&self, core: &Arc<Core>, serial: u64) {
        self.load_in(core, serial, Duration::ZERO);
    }

    fn load_in(&self, core: &Arc<Core>, serial: u64, delay: Duration) {
        let (me, weak) = (self.me.clone(), Arc::downgrade(core));
        let again = move || {
            if let (Some(me), Some(core)) = (me.upgrade(), weak.upgrade()) {
                me.start_load(&core, serial);
            }
        };
        drop(core.timers.after(0, delay, Timed::Run(Box::new(again))).map(|key| key.map(drop)));
    }
}
