//! Brings the tables up to the log: a little after its batches, and when the journal was opened anew.

use super::core::StoreCore;
use super::journal::{Batch, JournalError, Log, Opened, Position};
use super::residency::{Call, Place};
use crate::outcome::tell_log;
use crate::primitives::{Arc, Ordering, lock};

/// The bytes of records after which the tables are brought up to the log.
const APPLY_AFTER: u64 = 4 << 20;

/// A log that trims records that the tables have, a little after each batch.
#[derive(Debug)]
struct TrimmedLog {
    log: Box<dyn Log>,
    core: Arc<StoreCore>,
}

impl Log for TrimmedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        self.log.commit(batch)?;
        let applied = self.core.committed(batch.size() as u64);
        self.log.trim(applied).map(drop)
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.log.trim(applied)
    }
}

impl StoreCore {
    pub(super) fn trims(&self, log: Box<dyn Log>) -> Box<dyn Log> {
        match self.me.upgrade() {
            Some(core) => Box::new(TrimmedLog { log, core }),
            None => log,
        }
    }

    /// A batch is on disk. Returns the position that the tables have.
    fn committed(&self, bytes: u64) -> Position {
        if self.unapplied.fetch_add(bytes, Ordering::Relaxed) + bytes >= APPLY_AFTER
            && let (Some(core), Some(me)) = (self.core(), self.me.upgrade())
        {
            self.unapplied.store(0, Ordering::Relaxed);
            let life = self.tail.life();
            let apply = move || match me.apply() {
                Ok(()) => {
                    me.forget_ids();
                    me.forget_keys();
                }
                Err(error) => {
                    tell_log(|| tracing::error!(%error, "the tables of a store cannot be written"));
                    me.tail.reopen(life, &error);
                }
            };
            self.in_pool(&core, apply);
        }
        Position(self.applied.load(Ordering::Acquire))
    }

    /// The journal was opened anew after an error: records that were not on disk are lost.
    pub(super) fn reopened(
        &self,
        opened: Opened,
        of_world: impl FnOnce(Box<dyn Log>) -> Box<dyn Log>,
    ) -> (Box<dyn Log>, Result<(), JournalError>) {
        let Opened { recovered, log, mut tables } = opened;
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
                    Place::Nobody if is_lost => residence.place = Place::Leaving,
                    _ => {}
                }
            }
        }
        (self.trims(of_world(log)), result)
    }
}
