//! A disk in memory, which can fail.
//!
//! It models the properties of a file that a store must survive: unsynced bytes that a crash keeps, tears or
//! loses, and a failed fsync. After a failed fsync the system shows bytes that are not on the disk, and later calls of
//! fsync do not write them either. Only writing them again does.

use std::collections::BTreeMap;

use super::batch::Batch;
use super::entry_counts::EntryCounts;
use super::error::{Damage, JournalError, Position};
use super::record::{Change, RowKey};
use super::rows::row_crc;
use crate::primitives::{Arc, Mutex, MutexGuard, lock};
use crate::random::{below, random_at};

/// A disk for [`MemoryJournal`](super::MemoryJournal)s. Its clones are the same disk. It outlives its journals.
///
/// The journal's calls of the disk are counted. Each has a number, and a fault may be set for each number.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<Disk>>,
}

/// The fault of one call of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// There is no room.
    Full,
    /// The call returns an error. A write has written all of its bytes, some or none. The bytes of a sync are not on
    /// disk, though reads show them.
    Error,
    /// The machine loses its power before the call.
    Crash,
    /// The machine loses its power after the call.
    CrashBehind,
}

/// The content of a disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The batches of the log, in order.
    pub(super) log: Vec<Frame>,
    /// The rows of the tables, encoded. They are on disk when they are written.
    pub(super) rows: BTreeMap<RowKey, StoredRow>,
    /// The position up to which the tables have all changes.
    pub(super) applied: Position,
    /// The number of the hold that has the disk.
    pub(super) holder: Option<u64>,
    /// The number of the opening whose parts are not broken.
    pub(super) opening: u64,
    /// How many bytes there is room for. `None` for no limit.
    room: Option<usize>,
    faults: BTreeMap<u64, Fault>,
    calls: u64,
    seed: u64,
    draws: u64,
}

/// One batch in the log.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) first: Position,
    pub(super) count: u64,
    pub(super) crc: u32,
    pub(super) body: Vec<u8>,
    /// Whether it survives a crash.
    is_synced: bool,
    /// Whether a failed sync has made the system forget that it must be written.
    is_forgotten: bool,
}

/// One row in the tables.
#[derive(Clone, Debug)]
pub(super) struct StoredRow {
    pub(super) position: Position,
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

impl MemoryDisk {
    /// Makes an empty disk without faults.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    /// Makes an empty disk. The seed decides how much of unsynced bytes a crash keeps.
    pub fn with_seed(seed: u64) -> MemoryDisk {
        let disk = MemoryDisk::new();
        disk.lock().seed = seed;
        disk
    }

    /// Sets the fault of the call with this number. The first call has 0.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.lock().faults.insert(call, fault);
    }

    /// Removes all faults of later calls.
    pub fn heal(&self) {
        self.lock().faults.clear();
    }

    /// How many calls there have been.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    /// Sets how many bytes the disk has room for. `None` removes the limit.
    pub fn set_room(&self, bytes: Option<usize>) {
        self.lock().room = bytes;
    }

    /// How many bytes the log and the tables have.
    pub fn size(&self) -> usize {
        self.lock().size()
    }

    /// How many bytes the log has.
    pub fn log_size(&self) -> usize {
        self.lock().log.iter().map(|frame| frame.body.len()).sum()
    }

    /// The machine loses its power. Unsynced bytes are lost, torn or kept, as the seed decides. All parts of journals
    /// are broken, and none of them holds the store.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// Flips one bit of the log or of the tables, whose bytes are counted as one sequence. Returns `false` if there are
    /// fewer bits.
    pub fn flip(&self, bit: u64) -> bool {
        let mut disk = self.lock();
        let mut byte = usize::try_from(bit / 8).unwrap_or(usize::MAX);
        let disk = &mut *disk;
        let parts =
            disk.log.iter_mut().map(|frame| &mut frame.body).chain(disk.rows.values_mut().map(|row| &mut row.bytes));
        for part in parts {
            match part.get_mut(byte) {
                Some(there) => {
                    *there ^= 1 << (bit % 8);
                    return true;
                }
                None => byte -= part.len(),
            }
        }
        false
    }

    /// Removes one batch from the log, as damage of the disk does. Returns `false` if there are fewer batches.
    pub fn lose_batch(&self, number: usize) -> bool {
        let mut disk = self.lock();
        let is_there = number < disk.log.len();
        if is_there {
            disk.log.remove(number);
        }
        is_there
    }

    /// Whether this bit is one of the last batch of the log.
    ///
    /// A reader cannot tell such a flip from a batch whose write was torn.
    pub fn is_in_last_batch(&self, bit: u64) -> bool {
        let disk = self.lock();
        let sizes: Vec<u64> = disk.log.iter().map(|frame| frame.body.len() as u64).collect();
        let end: u64 = sizes.iter().sum();
        (end - sizes.last().unwrap_or(&0)..end).contains(&(bit / 8))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Disk> {
        lock(&self.state)
    }
}

impl Disk {
    /// Begins a call. Returns its fault, if that is not one that comes after the call.
    fn begin(&mut self) -> Option<Fault> {
        let fault = self.faults.remove(&self.calls);
        self.calls += 1;
        fault
    }

    fn draw(&mut self, count: u64) -> u64 {
        let Disk { seed, draws, .. } = self;
        below(count, || {
            *draws += 1;
            random_at(*seed, 0, *draws)
        })
    }

    fn size(&self) -> usize {
        let log = self.log.iter().map(|frame| frame.body.len()).sum::<usize>();
        log + self.rows.values().map(|row| row.bytes.len()).sum::<usize>()
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.room.is_none_or(|room| self.size() + bytes <= room)
    }

    /// Writes a batch to the end of the log. It is not synced.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let frame = Frame {
            first: batch.first(),
            count: batch.count(),
            crc: batch.head_crc(),
            body: batch.body().to_vec(),
            is_synced: false,
            is_forgotten: false,
        };
        let fault = self.begin();
        if fault == Some(Fault::Full) || !self.has_room(frame.body.len()) {
            return Err(JournalError::Full);
        }
        match fault {
            Some(Fault::Error) => {
                self.write_torn(frame);
                Err(io("a write of the log"))
            }
            Some(Fault::Crash) => {
                self.crash();
                Err(io("a write of the log"))
            }
            Some(Fault::CrashBehind) => {
                self.log.push(frame);
                self.crash();
                Err(io("a write of the log"))
            }
            Some(Fault::Full) | None => {
                self.log.push(frame);
                Ok(())
            }
        }
    }

    /// Writes all of a frame, a part of it, or nothing.
    fn write_torn(&mut self, mut frame: Frame) {
        match self.draw(3) {
            0 => {}
            1 => {
                let kept = self.draw(frame.body.len() as u64) as usize;
                frame.body.truncate(kept);
                self.log.push(frame);
            }
            _ => self.log.push(frame),
        }
    }

    /// Syncs the log.
    pub(super) fn sync(&mut self) -> Result<(), JournalError> {
        match self.begin() {
            Some(Fault::Crash) => self.crash(),
            Some(Fault::CrashBehind) => {
                self.sync_all();
                self.crash();
            }
            Some(Fault::Full) => return Err(JournalError::Full),
            Some(Fault::Error) => self.log.iter_mut().for_each(|frame| frame.is_forgotten = true),
            None => {
                self.sync_all();
                return Ok(());
            }
        }
        Err(io("an fsync of the log"))
    }

    fn sync_all(&mut self) {
        self.log.iter_mut().filter(|frame| !frame.is_forgotten).for_each(|frame| frame.is_synced = true);
    }

    /// Writes all batches again that may not be on disk, and syncs them.
    pub(super) fn rewrite(&mut self) -> Result<(), JournalError> {
        self.log.iter_mut().filter(|frame| !frame.is_synced).for_each(|frame| frame.is_forgotten = false);
        self.sync()
    }

    /// Removes batches from the front of the log.
    pub(super) fn remove(&mut self, batches: usize) -> Result<(), JournalError> {
        let fault = self.simple("a write of the log")?;
        self.log.drain(..batches);
        self.behind(fault, "a write of the log")
    }

    /// Writes or removes one row of the tables. It is on disk then.
    pub(super) fn write_row(&mut self, key: &RowKey, position: Position, change: &Change) -> Result<(), JournalError> {
        let fault = self.simple("a write of the tables")?;
        if change.removes() {
            self.rows.remove(key);
        } else {
            self.insert(position, change)?;
        }
        self.behind(fault, "a write of the tables")
    }

    fn insert(&mut self, position: Position, change: &Change) -> Result<(), JournalError> {
        let key = change.key();
        let crc = row_crc(position, change).map_err(JournalError::Damaged)?;
        let bytes = postcard::to_stdvec(change).map_err(|_| JournalError::Damaged(Damage::Row(key.clone())))?;
        if !self.has_room(bytes.len()) {
            return Err(JournalError::Full);
        }
        self.rows.insert(key, StoredRow { position, bytes, crc });
        Ok(())
    }

    /// Moves the mark of the tables, and stores the counts with it.
    pub(super) fn mark(&mut self, applied: Position, counts: EntryCounts) -> Result<(), JournalError> {
        let fault = self.simple("an fsync of the tables")?;
        self.insert(applied, &counts.row(applied))?;
        self.applied = applied;
        self.behind(fault, "an fsync of the tables")
    }

    /// Begins a call that happens as a whole or not at all.
    fn simple(&mut self, call: &'static str) -> Result<Option<Fault>, JournalError> {
        match self.begin() {
            Some(Fault::Full) => Err(JournalError::Full),
            Some(Fault::Error) => Err(io(call)),
            Some(Fault::Crash) => {
                self.crash();
                Err(io(call))
            }
            fault => Ok(fault),
        }
    }

    fn behind(&mut self, fault: Option<Fault>, call: &'static str) -> Result<(), JournalError> {
        if fault != Some(Fault::CrashBehind) {
            return Ok(());
        }
        self.crash();
        Err(io(call))
    }

    fn crash(&mut self) {
        let unsynced = self.log.iter().position(|frame| !frame.is_synced).unwrap_or(self.log.len());
        let lost = self.log.split_off(unsynced);
        // The system writes unsynced bytes in any order. A batch after a torn one is never read, so one is enough.
        if let Some(frame) = lost.into_iter().next().filter(|frame| !frame.is_forgotten) {
            self.write_torn(frame);
        }
        self.log.iter_mut().for_each(|frame| frame.is_synced = true);
        self.holder = None;
        self.opening += 1;
    }
}

fn io(call: &'static str) -> JournalError {
    JournalError::Io { call, source: "the disk in memory was told to fail".into() }
}
