//! A store in a simulated world: no thread of its own, and a disk whose faults the world decides.
//!
//! The writer is a participant of the world. Each commit of a record, and each attempt to open the journal anew, is a
//! turn. The world decides when it comes: before or after steps, timers and loads. So are the jobs that the store has
//! done by the pool.
//!
//! A *kill* ends the writer at once: records that it has not committed are lost. The disk loses its power, too.

use std::time::Duration;

use super::journal::{Batch, Fault, Journal, JournalError, Log, MemoryDisk, Opened, Position};
use super::tail::Tail;
use super::writer::Writer;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::primitives::{Arc, AtomicBool, Mutex, Ordering, Weak, lock};
use crate::runtime::simulated::Job;

/// The kinds of work that a world does for a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreWork {
    /// The writer commits a record, or opens the journal anew.
    Write,
    /// A job that a thread of the pool would do: a load, for example.
    Job,
}

/// The world of a store.
pub(crate) trait StoreHost: Send + Sync {
    /// A number that follows from the seed of the world and this position.
    fn draw(&self, position: u64) -> u64;

    /// Does this work later, after this delay at the earliest.
    fn work(&self, work: StoreWork, delay: Duration, job: Job);

    /// Decides whether one of the next calls of the disk fails, and which: `calls` is their number.
    fn disk_fault(&self, calls: u64) -> Option<(Fault, u64)>;

    /// A record is on disk, and no waiter was told. The world may kill the program now.
    fn committed(&self);

    /// Has this called if the program is killed.
    fn on_kill(&self, kill: Job);
}

/// The world of a store, and the disk.
pub(crate) struct SimulatedStore {
    pub(super) host: Arc<dyn StoreHost>,
    disk: Option<MemoryDisk>,
}

impl SimulatedStore {
    pub(crate) fn new(host: Arc<dyn StoreHost>, journal: &dyn Journal) -> SimulatedStore {
        SimulatedStore { host, disk: journal.memory() }
    }

    /// Sets the fault of one of the next calls of the disk, perhaps.
    pub(super) fn disturb(&self) {
        if let Some(disk) = &self.disk
            // A batch is written and synced. A change of the tables is written and marked.
            && let Some((fault, call)) = self.host.disk_fault(2)
        {
            disk.fail_at(disk.calls() + call, fault);
        }
    }

    /// The log of this log in the world.
    pub(super) fn log(self: &Arc<Self>, log: Box<dyn Log>) -> Box<dyn Log> {
        Box::new(SimulatedLog { log, simulation: self.clone() })
    }
}

/// A log whose calls may fail, and after whose calls the program may be killed.
struct SimulatedLog {
    log: Box<dyn Log>,
    simulation: Arc<SimulatedStore>,
}

impl std::fmt::Debug for SimulatedLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.log.fmt(f)
    }
}

impl Log for SimulatedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.simulation.disturb();
        self.log.commit(batch)?;
        self.simulation.host.committed();
        Ok(())
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.log.trim(applied)
    }
}

/// Opens the parts of a store anew, with a journal that was opened.
type Reopened = Box<dyn FnMut(Opened) -> (Box<dyn Log>, Result<(), JournalError>) + Send>;

/// A writer without a thread.
pub(crate) struct SimulatedWriter {
    tail: Arc<Tail>,
    simulation: Arc<SimulatedStore>,
    /// The pause before the journal is opened anew.
    pause: Duration,
    parts: Mutex<Parts>,
    /// Whether the world has a turn for it.
    is_due: AtomicBool,
    me: Weak<SimulatedWriter>,
}

enum Parts {
    Rests(Box<(Writer, Box<dyn Journal>, Reopened)>),
    HasATurn,
    Ended(Option<JournalError>),
}

impl SimulatedWriter {
    pub(crate) fn begin(
        (tail, simulation, pause): (Arc<Tail>, Arc<SimulatedStore>, Duration),
        (journal, log): (Box<dyn Journal>, Box<dyn Log>),
        reopened: impl FnMut(Opened) -> (Box<dyn Log>, Result<(), JournalError>) + Send + 'static,
    ) -> Arc<SimulatedWriter> {
        let parts = Parts::Rests(Box::new((Writer::new(log), journal, Box::new(reopened))));
        let writer = Arc::new_cyclic(|me| SimulatedWriter {
            tail,
            simulation,
            pause,
            parts: Mutex::new(parts),
            is_due: AtomicBool::new(false),
            me: Weak::clone(me),
        });
        let (wakes, kills) = (Arc::downgrade(&writer), Arc::downgrade(&writer));
        writer.tail.set_on_work(move || wakes.upgrade().into_iter().for_each(|writer| writer.wake(Duration::ZERO)));
        let kill = move || kills.upgrade().into_iter().for_each(|writer| writer.kill());
        writer.simulation.host.on_kill(Box::new(kill));
        // Records may be there already.
        writer.wake(Duration::ZERO);
        writer
    }

    /// Has the world give the writer a turn.
    fn wake(&self, delay: Duration) {
        // Ordering: Relaxed: a world has one thread.
        if !self.is_due.swap(true, Ordering::Relaxed) {
            let me = self.me.clone();
            let turn = move || me.upgrade().into_iter().for_each(|writer| writer.turn());
            self.simulation.host.work(StoreWork::Write, delay, Box::new(turn));
        }
    }

    fn turn(&self) {
        self.is_due.store(false, Ordering::Relaxed);
        let Parts::Rests(mut parts) = std::mem::replace(&mut *lock(&self.parts), Parts::HasATurn) else { return };
        let (writer, journal, reopened) = &mut *parts;
        let done = if writer.is_broken() {
            self.simulation.disturb();
            writer.open(&self.tail, &mut **journal, reopened).map(|()| true)
        } else {
            match self.tail.try_take() {
                Some(work) => writer.work(&self.tail, work),
                None => Ok(true),
            }
        };
        let is_broken = writer.is_broken();
        let next = match done {
            Ok(true) => Parts::Rests(parts),
            Ok(false) => Parts::Ended(None),
            Err(error) => Parts::Ended(Some(error)),
        };
        let is_over = matches!(next, Parts::Ended(_));
        let mut parts = lock(&self.parts);
        if matches!(*parts, Parts::Ended(_)) {
            // It was killed in its turn.
            return;
        }
        *parts = next;
        drop(parts);
        if is_over {
            self.tail.give_up();
        } else if is_broken {
            self.wake(self.pause);
        } else if self.tail.has_work() {
            self.wake(Duration::ZERO);
        }
    }

    fn kill(&self) {
        let parts = std::mem::replace(&mut *lock(&self.parts), Parts::Ended(Some(JournalError::Broken)));
        drop(parts);
        self.tail.give_up();
        self.simulation.disk.iter().for_each(MemoryDisk::crash);
    }

    /// Has the world go on until everything is on disk. The tail is closed.
    pub(crate) fn join(&self, clock: &Clock) -> Result<(), JournalError> {
        let is_over = || matches!(*lock(&self.parts), Parts::Ended(_));
        if let Some(world) = clock.driver().filter(|_| !is_step()) {
            world.drive(&mut || is_over(), Deadline::NEVER);
        }
        match std::mem::replace(&mut *lock(&self.parts), Parts::Ended(None)) {
            Parts::Ended(None) => Ok(()),
            Parts::Ended(Some(error)) => Err(error),
            Parts::Rests(_) | Parts::HasATurn => Err(JournalError::Broken),
        }
    }
}
