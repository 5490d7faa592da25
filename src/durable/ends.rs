//! Ids and ends of processes: those that the tables have, and those that they do not have yet.

use std::collections::HashMap;

use super::core::{End, EndOrFate, Id, OpenTables, StoreCore};
use super::error::StoreError;
use super::journal::{EncodedRecord, JournalError, Position, ProcessRow, Reader, Record, Tables};
use super::notice::Notice;
use super::residency::{OpenRequest, Resident};
use super::rows::{self, StoredHead};
use super::tail::Fate;
use crate::latch::Latch;
use crate::outcome::BoxError;
use crate::primitives::{MutexGuard, Ordering, lock, try_lock};

/// The error of one that waits for an end and is told that there will be none.
pub(super) fn not_told(fate: Fate) -> StoreError {
    if fate == Fate::Lost { StoreError::Lost } else { StoreError::Unknown }
}

/// The row of a process, as a reader returns it.
type FoundRow = Result<Option<ProcessRow>, JournalError>;

impl StoreCore {
    /// Completes the record of a step with its notices, and with all that an end removes. The residences are locked.
    pub(super) fn close_record(
        &self,
        resident: &Resident,
        record: &mut Record,
        (notices, is_over): (&[Notice], bool),
    ) -> Result<EncodedRecord, BoxError> {
        for notice in notices {
            record.changes.push(notice.change()?);
        }
        if is_over {
            let serial = resident.serial;
            let events = lock(&resident.events);
            record.changes.extend(events.keys().map(|(class, number)| rows::answered(serial, *class, *number)));
            let left = lock(&resident.mail);
            let dead = self.dead_mail(resident, &left, &record.changes);
            record.changes.extend(dead);
            record.changes.push(rows::kept(serial, self.wall_millis(), self.keep));
            let open = lock(&resident.requests);
            let over = |one: &OpenRequest| rows::answered(serial, rows::REQUESTS, one.number);
            record.changes.extend(open.iter().map(over));
        }
        EncodedRecord::new(record).map_err(|error| error.to_string().into())
    }

    /// Whether the process is known not to exist, or to have an end that is on disk.
    pub(super) fn has_ended(&self, serial: u64) -> bool {
        // Its residence is removed before the tables have its end.
        self.residency.has_ended_by(serial, || self.tail.released()) || lock(&self.ends).recent.contains_key(&serial)
    }

    pub(super) fn tell_end(&self, serial: u64, end: End) {
        let mut ends = lock(&self.ends);
        ends.recent.insert(serial, (self.tail.released(), end.clone()));
        let waiting = ends.waiting.remove(&serial);
        drop(ends);
        if let Some((latch, _)) = waiting {
            drop(latch.set(Ok(end)));
        }
        self.keep_for_now();
    }

    /// Removes the residence of a process that has ended, if the tables have its end already.
    pub(super) fn forget_applied(&self, serial: u64) {
        let is_applied = !lock(&self.ends).recent.contains_key(&serial);
        if is_applied {
            self.residency.forget(serial);
        }
    }

    /// A process has never begun, because its first record is lost. Those who wait for its end are told.
    pub(super) fn tell_lost(&self, serial: u64) {
        let waiting = lock(&self.ends).waiting.remove(&serial);
        waiting.into_iter().for_each(|(latch, _)| drop(latch.set(Err(Fate::Lost))));
    }

    /// The store is closed. Those who wait for ends are told so.
    pub(super) fn tell_no_ends(&self) {
        let waiting = std::mem::take(&mut lock(&self.ends).waiting);
        waiting.into_values().for_each(|(latch, _)| drop(latch.set(Err(Fate::Unknown))));
    }

    /// The latch that is set when a process ends. It may be set already.
    pub(super) fn end_of(&self, serial: u64) -> Result<Latch<EndOrFate>, JournalError> {
        self.end_with(serial, |row| row)
    }

    /// As [`end_of`](Self::end_of), also of a process whose row is damaged.
    pub(super) fn end_of_any(&self, serial: u64) -> Result<Latch<EndOrFate>, JournalError> {
        self.end_with(serial, |row| if let Err(JournalError::Damaged(_)) = row { Ok(None) } else { row })
    }

    fn end_with(&self, serial: u64, known: impl Fn(FoundRow) -> FoundRow) -> Result<Latch<EndOrFate>, JournalError> {
        let latch = {
            let mut ends = lock(&self.ends);
            if let Some((_, end)) = ends.recent.get(&serial) {
                let latch = Latch::new();
                drop(latch.set(Ok(end.clone())));
                return Ok(latch);
            }
            let (latch, waiters) = ends.waiting.entry(serial).or_default();
            *waiters += 1;
            latch.clone()
        };
        let row = self.with_tables(|_, reader| reader.process(serial));
        let row = known(row).inspect_err(|_| self.waits_no_longer(serial))?;
        let head = row.and_then(|row| postcard::from_bytes::<StoredHead>(&row.head).ok());
        if let Some(end) = head.and_then(|head| Some((head.exit?, head.format))) {
            lock(&self.ends).waiting.remove(&serial);
            drop(latch.set(Ok(end)));
        } else if self.tail.is_closing() {
            // It may be too late to be told with the others.
            self.waits_no_longer(serial);
            let latch = Latch::new();
            drop(latch.set(Err(Fate::Unknown)));
            return Ok(latch);
        }
        Ok(latch)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.ends).waiting.len()
    }

    /// A waiter for the end of a process was dropped.
    pub(super) fn waits_no_longer(&self, serial: u64) {
        let mut ends = lock(&self.ends);
        let waiters = ends.waiting.get_mut(&serial).map(|(_, waiters)| {
            *waiters -= 1;
            *waiters
        });
        if waiters == Some(0) {
            ends.waiting.remove(&serial);
        }
    }

    /// The process that has this id.
    pub(super) fn find(&self, ids: &HashMap<String, Id>, id: &str) -> Result<Option<(u64, String)>, JournalError> {
        if let Some(id) = ids.get(id) {
            return Ok(Some((id.serial, id.kind.clone())));
        }
        let found = self.with_tables(|_, reader| reader.name(rows::IDS, id))?;
        Ok(found.map(|row| (row.serial, String::from_utf8_lossy(&row.body).into_owned())))
    }

    pub(super) fn note_applied(&self, applied: Position) {
        self.applied.fetch_max(applied.0, Ordering::AcqRel);
        self.wake_writer();
        let mut forgotten = Vec::new();
        lock(&self.ends).recent.retain(|serial, (position, _)| {
            let is_kept = *position > applied;
            forgotten.extend((!is_kept).then_some(*serial));
            is_kept
        });
        // The tables say that they have ended.
        forgotten.into_iter().for_each(|serial| self.residency.forget(serial));
    }

    /// Wakes the writer, if it waits for the tables.
    pub(super) fn wake_writer(&self) {
        if let Some(progress) = lock(&self.progress).take() {
            let _ = progress.set(());
        }
    }

    /// Brings the tables up to the log, and forgets ids and keys that the tables have. An error of the tables has the
    /// journal opened anew.
    pub(super) fn apply(&self) -> Result<(), JournalError> {
        self.with_tables(|tables, _| {
            self.unapplied.store(0, Ordering::Relaxed);
            // Batches that are committed from now on may have another job.
            self.is_apply_due.store(false, Ordering::Release);
            self.catch_up(tables)
        })?;
        // Without the lock of the tables: a sender with a key takes it behind that of the keys.
        self.forget_ids();
        self.forget_keys();
        Ok(())
    }

    /// Applies a piece of the log. If another thread has the tables, this waits, or does nothing if it may not wait.
    pub(super) fn apply_piece(&self, may_wait: bool) -> Result<(), JournalError> {
        let tables = if may_wait { Some(lock(&self.tables)) } else { try_lock(&self.tables) };
        let Some(tables) = tables else { return Ok(()) };
        self.with_locked_tables(tables, |tables, _| {
            self.note_applied(tables.apply_some(self.tail.released())?);
            Ok(())
        })
    }

    /// Applies all that is on disk. The lock of the tables is held.
    pub(super) fn catch_up(&self, tables: &mut dyn Tables) -> Result<(), JournalError> {
        let through = self.tail.released();
        // The tables have all that is noted: an opening of the journal applies everything.
        loop {
            let before = Position(self.applied.load(Ordering::Acquire));
            let applied = tables.apply_some(through)?;
            self.note_applied(applied);
            if applied <= before || applied >= through {
                return Ok(());
            }
        }
    }

    /// As [`catch_up`](Self::catch_up), unless the tables have this record already. So one application serves all reads
    /// that have waited for it. If processes write all the time, there is always something more to apply.
    pub(super) fn catch_up_to(&self, tables: &mut dyn Tables, through: Position) -> Result<(), JournalError> {
        if Position(self.applied.load(Ordering::Acquire)) >= through {
            return Ok(());
        }
        self.catch_up(tables)
    }

    /// Calls `read` with the tables and a reader of them. An error has the journal opened anew, unless it is damage,
    /// which concerns one row only.
    pub(super) fn with_tables<R>(
        &self,
        read: impl FnOnce(&mut dyn Tables, &mut dyn Reader) -> Result<R, JournalError>,
    ) -> Result<R, JournalError> {
        self.with_locked_tables(lock(&self.tables), read)
    }

    fn with_locked_tables<R>(
        &self,
        mut tables: MutexGuard<'_, Option<OpenTables>>,
        read: impl FnOnce(&mut dyn Tables, &mut dyn Reader) -> Result<R, JournalError>,
    ) -> Result<R, JournalError> {
        // With the lock: these tables are not those of a later life.
        let life = self.tail.life();
        let result = match tables.as_mut() {
            Some((tables, reader)) => read(&mut **tables, &mut **reader),
            None => Err(JournalError::Broken),
        };
        drop(tables);
        result.map_err(|error| {
            let _ = self.tables_failed(life, &error);
            match error {
                JournalError::Broken if self.tail.is_closing() => JournalError::Closed,
                JournalError::Broken => JournalError::Reopening,
                error => error,
            }
        })
    }

    /// Forgets ids that the tables have.
    pub(super) fn forget_ids(&self) {
        let applied = Position(self.applied.load(Ordering::Acquire));
        lock(&self.ids).retain(|_, id| id.position > applied);
    }
}
