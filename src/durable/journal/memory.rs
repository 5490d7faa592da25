//! The journal in memory, for tests and simulations.

use super::batch::{Batch, decode, read_batch};
use super::contract::{Journal, Log, Opened, Reader, Recovered, Salvaged, StoredProcess, Tables};
use super::disk::{Disk, Frame, MemoryDisk, StoredRow};
use super::entry_counts::{EntryCounts, MESSAGES};
use super::error::{Damage, JournalError, Position};
use super::record::{Change, EntryRow, NameRow, ProcessRow, Record, RowKey, Status};
use super::rows::{Rows, row_crc};
use crate::primitives::{Arc, MutexGuard};

/// The most batches that one call of [`Log::trim`] removes.
const TRIMMED: usize = 16;

/// A journal on a [`MemoryDisk`].
///
/// ```
/// use procession::durable::journal::{Batch, EncodedRecord, Journal, MemoryDisk, MemoryJournal, Position, Record};
///
/// let disk = MemoryDisk::new();
/// let mut opened = MemoryJournal::new(&disk).open()?;
/// let mut batch = Batch::new(opened.recovered.last.next());
/// batch.push(&EncodedRecord::new(&Record::default())?);
/// opened.log.commit(&batch)?;
///
/// disk.crash();
/// assert_eq!(MemoryJournal::new(&disk).open()?.recovered.last, Position(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct MemoryJournal {
    disk: MemoryDisk,
    hold: Option<Arc<Hold>>,
}

impl MemoryJournal {
    /// Makes a journal on this disk. It holds the disk from its first opening until it and all its parts are dropped.
    pub fn new(disk: &MemoryDisk) -> MemoryJournal {
        MemoryJournal { disk: disk.clone(), hold: None }
    }

    /// Takes the disk, or keeps it. Breaks the parts of the last opening, and returns the number of a new one.
    fn take_hold(&self) -> Result<(Arc<Hold>, u64), JournalError> {
        let mut disk = self.disk.lock();
        let opening = disk.opening + 1;
        let hold = match (disk.holder, &self.hold) {
            (Some(holder), Some(hold)) if hold.number == holder => hold.clone(),
            (Some(_), _) => return Err(JournalError::InUse { holder: Some(std::process::id()) }),
            (None, _) => Arc::new(Hold { disk: self.disk.clone(), number: opening }),
        };
        disk.holder = Some(hold.number);
        disk.opening = opening;
        Ok((hold, opening))
    }
}

/// The right to a disk. Dropping it lets another journal have the disk.
#[derive(Debug)]
struct Hold {
    disk: MemoryDisk,
    number: u64,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut disk = self.disk.lock();
        if disk.holder == Some(self.number) {
            disk.holder = None;
        }
    }
}

impl Journal for MemoryJournal {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let (hold, opening) = self.take_hold()?;
        // The hold that this replaces is dropped, which locks the disk.
        self.hold = Some(hold.clone());
        let mut disk = self.disk.lock();
        read_log(&mut disk)?;
        disk.rewrite()?;
        let (last, applied) = (last(&disk), disk.applied);
        drop(disk);
        let part = Part { hold, opening, is_broken: false };
        Ok(Opened {
            recovered: Recovered { last, applied },
            log: Box::new(MemoryLog(part.clone())),
            tables: Box::new(MemoryTables(part)),
        })
    }

    fn memory(&self) -> Option<MemoryDisk> {
        Some(self.disk.clone())
    }
}

/// The last record of the log, or the last one that the tables have.
fn last(disk: &Disk) -> Position {
    disk.log.last().map_or(disk.applied, |frame| Position(frame.first.0 + frame.count - 1))
}

/// Reads the log. Removes the last batch if its write was torn.
fn read_log(disk: &mut Disk) -> Result<(), JournalError> {
    let mut next = None;
    for number in 0..disk.log.len() {
        match read_frame(disk, number, next) {
            Ok(records) => next = records.last().map(|(position, _)| position.next()),
            Err(Damage::Record(_)) if number + 1 == disk.log.len() => {
                disk.log.pop();
            }
            Err(damage) => return Err(JournalError::Damaged(damage)),
        }
    }
    Ok(())
}

/// Reads one batch, which must begin with the next record.
fn read_frame(disk: &Disk, number: usize, next: Option<Position>) -> Result<Vec<(Position, Record)>, Damage> {
    let frame = &disk.log[number];
    let expected = next.unwrap_or(frame.first.min(disk.applied.next()));
    if frame.first != expected {
        return Err(Damage::Missing(expected));
    }
    let mut records = Vec::new();
    let add = |position, bytes: &[u8]| {
        records.push((position, decode(position, bytes)?));
        Ok(())
    };
    read_batch(frame.first, frame.count, frame.crc, &frame.body, add)?;
    Ok(records)
}

/// A part of an opened journal.
#[derive(Clone, Debug)]
struct Part {
    hold: Arc<Hold>,
    opening: u64,
    is_broken: bool,
}

impl Part {
    /// Makes a call, and breaks this part if it fails.
    fn call<T>(&mut self, call: impl FnOnce(&mut Disk) -> Result<T, JournalError>) -> Result<T, JournalError> {
        let mut disk = self.hold.disk.lock();
        if self.is_broken || disk.opening != self.opening {
            return Err(JournalError::Broken);
        }
        let result = call(&mut disk);
        self.is_broken = result.is_err();
        result
    }
}

#[derive(Debug)]
struct MemoryLog(Part);

impl Log for MemoryLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.0.call(|disk| {
            let last = last(disk);
            if batch.first() != last.next() {
                return Err(JournalError::Order { first: batch.first(), last });
            }
            disk.write(batch)?;
            disk.sync()
        })
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.0.call(|disk| {
            let through = applied.min(disk.applied);
            let is_applied = |frame: &&Frame| frame.first.0 + frame.count <= through.0 + 1;
            let batches = disk.log.iter().take_while(is_applied).take(TRIMMED).count();
            if batches > 0 {
                disk.remove(batches)?;
            }
            Ok(batches == TRIMMED)
        })
    }
}

#[derive(Debug)]
struct MemoryTables(Part);

impl Tables for MemoryTables {
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        self.0.call(|disk| {
            let through = through.min(last(disk));
            if through <= disk.applied {
                return Ok(disk.applied);
            }
            let mut rows = Rows::default();
            for number in 0..disk.log.len() {
                let records = read_frame(disk, number, Some(disk.log[number].first)).map_err(JournalError::Damaged)?;
                let wanted = records.into_iter().filter(|(at, _)| (disk.applied.next()..=through).contains(at));
                wanted.for_each(|(position, record)| rows.add(position, record));
            }
            for (key, position, change) in rows.iter() {
                disk.write_row(key, position, &change)?;
            }
            let counts = count(disk, rows.counts());
            disk.mark(through, counts)?;
            Ok(through)
        })
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        Ok(Box::new(MemoryReader(self.0.clone())))
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        let disk = self.0.hold.disk.lock();
        let mut found = Vec::new();
        let mut next = None;
        for number in 0..disk.log.len() {
            found.extend(read_frame(&disk, number, next).err());
            let frame = &disk.log[number];
            next = Some(Position(frame.first.0 + frame.count));
        }
        found.extend(disk.rows.iter().filter_map(|(key, row)| read_row(key, row).err()));
        Ok(found)
    }
}

/// The counts of all records through the ones that were just applied.
fn count(disk: &Disk, of_records: &EntryCounts) -> EntryCounts {
    let waiting = || {
        let is_message = |key: &&RowKey| matches!(key, RowKey::Of { entry: Some((MESSAGES, _)), .. });
        Ok(disk.rows.keys().filter(is_message).count() as u64)
    };
    let key = EntryCounts::key();
    let row = disk.rows.get(&key).and_then(|row| read_row(&key, row).ok());
    let row = row.and_then(|change| if let Change::Name { row, .. } = change { row } else { None });
    let counts: Result<_, std::convert::Infallible> = of_records.after((disk.applied, row), waiting);
    counts.unwrap_or_default()
}

fn read_row(key: &RowKey, row: &StoredRow) -> Result<Change, Damage> {
    let change = postcard::from_bytes::<Change>(&row.bytes).ok();
    let is_sound = |change: &Change| change.key() == *key && row_crc(row.position, change) == Ok(row.crc);
    change.filter(is_sound).ok_or_else(|| Damage::Row(key.clone()))
}

#[derive(Debug)]
struct MemoryReader(Part);

impl MemoryReader {
    fn disk(&self) -> Result<MutexGuard<'_, Disk>, JournalError> {
        let disk = self.0.hold.disk.lock();
        if disk.opening == self.0.opening { Ok(disk) } else { Err(JournalError::Broken) }
    }

    fn row(&self, key: &RowKey) -> Result<Option<Change>, JournalError> {
        let disk = self.disk()?;
        disk.rows.get(key).map(|row| read_row(key, row)).transpose().map_err(JournalError::Damaged)
    }

    /// All rows that can be read.
    fn rows(&self) -> Result<Vec<Change>, JournalError> {
        Ok(self.disk()?.rows.iter().filter_map(|(key, row)| read_row(key, row).ok()).collect())
    }
}

impl Reader for MemoryReader {
    fn load(&mut self, serial: u64) -> Result<StoredProcess, JournalError> {
        let disk = self.disk()?;
        let range = RowKey::Of { serial, entry: None }..=RowKey::Of { serial, entry: Some((u8::MAX, u64::MAX)) };
        let mut found = StoredProcess::default();
        for (key, row) in disk.rows.range(range) {
            match read_row(key, row).map_err(JournalError::Damaged)? {
                Change::Process { row, .. } => found.row = row,
                Change::Entry { class, number, row: Some(row), .. } => found.entries.push((class, number, row)),
                Change::Entry { .. } | Change::Name { .. } => {}
            }
        }
        Ok(found)
    }

    fn salvage(&mut self, serial: u64) -> Result<Salvaged, JournalError> {
        let mut found = Salvaged::default();
        for (key, row) in &self.disk()?.rows {
            match (key, read_row(key, row)) {
                (RowKey::Of { serial: of, .. }, _) if *of != serial => {}
                (RowKey::Of { entry: Some(entry), .. }, Err(_)) => found.damaged.push(*entry),
                (_, Ok(Change::Process { row, .. })) => found.stored.row = row,
                (_, Ok(Change::Entry { class, number, row: Some(row), .. })) => {
                    found.stored.entries.push((class, number, row));
                }
                (_, Ok(Change::Name { class, name, row: Some(row) })) if row.serial == serial => {
                    found.names.push((class, name, row));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    fn process(&mut self, serial: u64) -> Result<Option<ProcessRow>, JournalError> {
        let change = self.row(&RowKey::Of { serial, entry: None })?;
        Ok(change.and_then(|change| if let Change::Process { row, .. } = change { row } else { None }))
    }

    fn entries(&mut self, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError> {
        let disk = self.disk()?;
        let range =
            RowKey::Of { serial, entry: Some((0, 0)) }..=RowKey::Of { serial, entry: Some((u8::MAX, u64::MAX)) };
        let mut found = Vec::new();
        for (key, row) in disk.rows.range(range) {
            let change = read_row(key, row).map_err(JournalError::Damaged)?;
            if let Change::Entry { class, number, row: Some(row), .. } = change {
                found.push((class, number, row));
            }
        }
        Ok(found)
    }

    fn name(&mut self, class: u8, name: &str) -> Result<Option<NameRow>, JournalError> {
        let change = self.row(&RowKey::Name { class, name: name.into() })?;
        Ok(change.and_then(|change| if let Change::Name { row, .. } = change { row } else { None }))
    }

    fn with_status(&mut self, status: Option<Status>, after: u64, limit: usize) -> Result<Vec<u64>, JournalError> {
        let disk = self.disk()?;
        let is_of = |key: &RowKey, row: &StoredRow| match (status, read_row(key, row)) {
            // Also one that cannot be read.
            (None, _) => true,
            (Some(status), Ok(Change::Process { row: Some(row), .. })) => row.status == status,
            _ => false,
        };
        let rows = disk.rows.iter().filter_map(|(key, row)| match key {
            RowKey::Of { serial, entry: None } if *serial > after && is_of(key, row) => Some(*serial),
            _ => None,
        });
        Ok(rows.take(limit).collect())
    }

    fn entry(&mut self, serial: u64, class: u8, number: u64) -> Result<Option<EntryRow>, JournalError> {
        let change = self.row(&RowKey::Of { serial, entry: Some((class, number)) })?;
        Ok(change.and_then(|change| if let Change::Entry { row, .. } = change { row } else { None }))
    }

    fn of_class(
        &mut self,
        class: u8,
        after: (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, EntryRow)>, JournalError> {
        let rows = self.rows()?.into_iter().filter_map(|change| match change {
            Change::Entry { serial, class: of, number, row: Some(row) } if of == class && (serial, number) > after => {
                Some((serial, number, row))
            }
            _ => None,
        });
        Ok(rows.take(limit).collect())
    }

    fn due(&mut self, from: u64, until: u64, limit: usize) -> Result<Vec<(u64, u64, u8, u64)>, JournalError> {
        let rows = self.rows()?.into_iter().filter_map(|change| match change {
            Change::Entry { serial, class, number, row: Some(EntryRow { due: Some(due), .. }) }
                if (from..=until).contains(&due) =>
            {
                Some((due, serial, class, number))
            }
            _ => None,
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        rows.truncate(limit);
        Ok(rows)
    }
}
