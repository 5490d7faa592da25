//! Stores of durable processes in a world.

use std::time::Duration;

use super::decision::{Choose as _, Odds, Place};
use super::entries::Entry;
use super::faults::{What, Whom};
use super::shared::Shared;
use super::world::World;
use crate::config::RuntimeBuilder;
use crate::durable::journal::Fault;
use crate::durable::simulated::{StoreHost, StoreWork};
use crate::durable::{Store, StoreBuilder, StoreError};
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};
use crate::random::random_at;
use crate::runtime::Runtime;
use crate::runtime::simulated::Job;

/// The stream of random numbers of the stores of a world.
const STREAM: u64 = 0x73_746f_7265;

impl World {
    /// Kills the [`program`](Self::program) when this record is on disk, and before anybody is told. The first record
    /// that a store of the world commits after its start is 1.
    pub fn kill_behind_commit(&self, number: u64) {
        self.shared.state().kills.behind = Some(number);
    }

    /// Starts a store in this world, with a runtime. It has no threads: the world decides when a record is committed,
    /// and when a process is loaded.
    ///
    /// A store on a [`MemoryJournal`](crate::durable::journal::MemoryJournal) survives kills of its
    /// [`program`](Self::program), and its disk has the faults of [`Faults::disk`](super::Faults::disk).
    ///
    /// # Errors
    /// The errors of [`StoreBuilder::start`].
    pub fn start_store(&self, store: StoreBuilder, builder: RuntimeBuilder) -> Result<(Store, Runtime), StoreError> {
        // That of the runtime that is started next.
        let runtime = self.runtimes.borrow().len();
        let host = WorldStores { shared: Arc::downgrade(&self.shared), seed: self.seed(), runtime };
        store.start_by(builder, |builder| self.start(builder), Some(Arc::new(host)))
    }
}

/// The world, as its stores see it.
struct WorldStores {
    shared: Weak<Shared>,
    seed: u64,
    runtime: usize,
}

impl StoreHost for WorldStores {
    fn draw(&self, position: u64) -> u64 {
        random_at(self.seed, STREAM, position)
    }

    fn work(&self, work: StoreWork, delay: Duration, job: Job) {
        let work = match work {
            StoreWork::Write => "store: commit",
            StoreWork::Job => "store: load",
        };
        if let Some(shared) = self.shared.upgrade() {
            shared.push_after(delay, Entry::Store(Box::new((work, self.runtime, job))));
        }
    }

    fn disk_fault(&self, calls: u64) -> Option<(Fault, u64)> {
        let shared = self.shared.upgrade()?;
        let What::Disk(fault) = shared.inject(Pid::FIRST, |rule| matches!(rule.whom, Whom::Disk))? else { return None };
        let state = &mut *shared.state();
        let place = Place::Fault { rule: u32::MAX, of: Pid::FIRST, nth: state.next_asked(u32::MAX, Pid::FIRST) };
        Some((fault, state.chooser.decide(place, Odds::Below(calls))))
    }

    fn committed(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.committed();
        }
    }

    fn on_kill(&self, kill: Job) {
        if let Some(shared) = self.shared.upgrade() {
            shared.on_kill(kill);
        }
    }
}
