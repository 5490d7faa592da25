//! Brings the tables up to the log: a little after its batches, and when the journal was opened anew.

use std::collections::VecDeque;

use super::core::StoreCore;
use super::journal::{Batch, JournalError, LARGEST_BATCH, Log, Opened, Position};
use super::residency::{Call, Place};
use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::tell_log;
use crate::primitives::{Arc, Ordering, lock};

/// The bytes of records after which the tables are brought up to the log.
const APPLY_AFTER: u64 = 4 << 20;

/// A log that trims records that the tables have, a little after each batch.
///
/// The tables are brought up to it by a thread of the pool. If two thirds of the log's limit are not in the tables,
/// they are *late*. Then the writer waits for at most [`late_wait`](super::settings::Settings::late_wait) before each
/// batch. So the log grows slowly, and no commit waits long while the pool keeps up. If the log reaches its limit
/// nevertheless, the writer waits until the tables have more. Records are released late meanwhile, so processes wait
/// for room in the tail.
///
/// The pool may be busy, or closed. So after a wait in vain, the writer applies a piece itself, unless another thread
/// has the tables. So it also finds out that the tables are broken.
#[derive(Debug)]
struct TrimmedLog {
    log: Box<dyn Log>,
    core: Arc<StoreCore>,
    /// The last positions of the batches that the tables may not have, and their sizes.
    batches: VecDeque<(Position, u64)>,
    /// The sum of these sizes.
    size: u64,
}

impl TrimmedLog {
    /// Returns once the log has room for a batch.
    fn wait_for_tables(&mut self) -> Result<(), JournalError> {
        let limit = self.core.settings.log_limit;
        if !self.find_lacking(limit / 3 * 2) {
            return Ok(());
        }
        loop {
            let is_full = self.find_lacking(limit);
            let may_wait = self.may_wait();
            let is_helped = may_wait && self.wait_for_progress();
            if !is_helped && (may_wait || is_full) {
                self.core.apply_piece(!may_wait)?;
            }
            if !is_full || !self.find_lacking(limit) {
                return Ok(());
            }
        }
    }

    /// Finds out whether the tables lack so many bytes, and something.
    fn find_lacking(&mut self, bytes: u64) -> bool {
        if self.size >= bytes {
            self.note_applied();
        }
        self.size >= bytes && self.size > 0
    }

    /// Whether the writer may wait for the pool. In a simulation, the pool does nothing meanwhile. Neither the shutdown
    /// nor `close` is to be slow.
    fn may_wait(&self) -> bool {
        let is_open = self.core.core().is_some_and(|core| !core.road.door.is_closed());
        is_open && self.core.simulation.is_none() && !self.core.tail.is_closing()
    }

    /// Waits until the tables have more, for a moment at most. Returns `false` if they have not, and at once if the
    /// pool refuses to bring them up.
    fn wait_for_progress(&mut self) -> bool {
        let before = self.size;
        let progress = Latch::new();
        *lock(&self.core.progress) = Some(progress.clone());
        // An application that was over before the latch was there has not set it.
        self.note_applied();
        if self.size == before && self.core.schedule_application() {
            let _ = progress.wait_timeout(self.core.settings.late_wait);
            self.note_applied();
        }
        self.size < before
    }

    fn note_applied(&mut self) -> Position {
        let applied = Position(self.core.applied.load(Ordering::Acquire));
        while let Some((_, bytes)) = self.batches.pop_front_if(|(last, _)| *last <= applied) {
            self.size -= bytes;
        }
        applied
    }
}

impl Log for TrimmedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.wait_for_tables()?;
        let begin = Clock::system().now();
        self.log.commit(batch)?;
        self.core.commits.committed(batch, begin.elapsed());
        let bytes = batch.size() as u64;
        self.batches.push_back((batch.last(), bytes));
        self.size += bytes;
        self.core.committed(bytes);
        let applied = self.note_applied();
        // As much as was committed, so that the file does not grow.
        if self.log.trim(applied)? && batch.size() > LARGEST_BATCH {
            self.log.trim(applied)?;
        }
        Ok(())
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.log.trim(applied)
    }
}

impl StoreCore {
    pub(super) fn trims(&self, log: Box<dyn Log>) -> Box<dyn Log> {
        match self.me.upgrade() {
            Some(core) => Box::new(TrimmedLog { log, core, batches: VecDeque::new(), size: 0 }),
            None => log,
        }
    }

    /// A batch is on disk. Has the tables brought up to the log from time to time.
    fn committed(&self, bytes: u64) {
        if self.unapplied.fetch_add(bytes, Ordering::Relaxed) + bytes >= APPLY_AFTER {
            self.schedule_application();
        }
    }

    /// Has the pool bring the tables up to the log. Returns `false` if the pool refuses the job.
    fn schedule_application(&self) -> bool {
        let (Some(core), Some(me)) = (self.core(), self.me.upgrade()) else { return false };
        // One job that waits is enough. More of them would take up the pool while the disk is slow.
        if self.is_apply_due.swap(true, Ordering::AcqRel) {
            return true;
        }
        let apply = move || {
            if let Err(error) = me.apply() {
                tell_log(|| tracing::error!(%error, "the tables of a store cannot be written"));
                me.wake_writer();
            }
        };
        let is_taken = self.in_pool(&core, apply);
        if !is_taken {
            self.is_apply_due.store(false, Ordering::Release);
        }
        is_taken
    }

    /// The journal was opened anew after an error: records that were not on disk are lost.
    pub(super) fn reopened(
        &self,
        opened: Opened,
        of_world: impl FnOnce(Box<dyn Log>) -> Box<dyn Log>,
    ) -> (Box<dyn Log>, Result<(), JournalError>) {
        let Opened { recovered, log, mut tables } = opened;
        self.commits.rewound(recovered.last.0);
        let read = tables.apply(recovered.last).and_then(|applied| {
            self.note_applied(applied);
            let mut reader = tables.reader()?;
            self.core().map_or(Ok(()), |core| self.settle_names(&core, &mut *reader))?;
            Ok(reader)
        });
        let (tables, result) = match read {
            Ok(reader) => (Some((tables, reader)), Ok(())),
            Err(error) => {
                tell_log(|| tracing::error!(%error, "the tables of a store cannot be read"));
                (None, Err(error))
            }
        };
        *lock(&self.tables) = tables;
        self.unapplied.store(0, Ordering::Relaxed);
        self.is_apply_due.store(false, Ordering::Release);
        lock(&self.numbers).renew();
        lock(&self.ids).clear();
        self.keys.clear();
        self.open_commands.clear();
        if let Some(core) = self.core() {
            for (_, residence) in self.residency.all() {
                let mut residence = lock(&residence);
                let is_lost = residence.left_behind.is_some_and(|(_, position)| position > recovered.last);
                match &residence.place {
                    Place::Resident(resident) => resident.call(&core.road, Call::Leave),
                    // Its end is lost, and it is about to leave.
                    Place::Ending if is_lost => residence.place = Place::Leaving,
                    _ => {}
                }
            }
        }
        (self.trims(of_world(log)), result)
    }
}
