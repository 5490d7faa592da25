//! The traits of a journal: the log, the tables and their readers.

use std::path::Path;

use super::batch::Batch;
use super::disk::MemoryDisk;
use super::error::{Damage, JournalError, Position};
use super::record::{EntryRow, NameRow, ProcessRow, Status};

/// A place for the records of a store.
///
/// A journal has two parts. New records go to the end of the *log*, a batch at a time. The *tables* have the newest
/// version of each row. From time to time another thread brings the tables up to the log, and the log is trimmed.
///
/// The tables never lead the log, and each row has the position of its record. So a repeated application changes
/// nothing, and an application that was interrupted is repeated.
pub trait Journal: Send {
    /// Opens the journal, or opens it anew after an error.
    ///
    /// Everything that this call finds is on disk when it returns. Batches whose commit has failed may be among the
    /// records that it finds: then they are stored. The parts that an earlier call has returned are broken from now on.
    ///
    /// # Errors
    ///
    /// - [`JournalError::InUse`] if another journal has the store.
    /// - [`JournalError::Damaged`] if a record is damaged.
    /// - [`JournalError::Format`] if the store has another format.
    /// - [`JournalError::Full`] and [`JournalError::Io`] if the disk refuses. The call may be made again.
    fn open(&mut self) -> Result<Opened, JournalError>;

    /// The folder of the journal, if it has one.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The disk in memory, if the journal is on one. A simulation injects its faults there.
    fn memory(&self) -> Option<MemoryDisk> {
        None
    }
}

/// A journal that has been opened. Each part can be moved to a thread of its own.
#[derive(Debug)]
pub struct Opened {
    /// The state that was found.
    pub recovered: Recovered,
    /// The end of the log, for the thread that writes.
    pub log: Box<dyn Log>,
    /// The tables, for the thread that applies the log.
    pub tables: Box<dyn Tables>,
}

/// The content of the disk when a journal was opened.
#[derive(Debug)]
pub struct Recovered {
    /// The position of the last record.
    pub last: Position,
    /// The position up to which the tables have all changes. A reader does not see later ones until they are applied.
    pub applied: Position,
}

/// The number of entries that are read at once to count them.
const PAGE: usize = 100;

/// The end of the log. After an error it is broken: every later call returns [`JournalError::Broken`], and the journal
/// must be opened anew.
pub trait Log: Send + std::fmt::Debug {
    /// Stores a batch. It is on disk when the call returns `Ok`.
    ///
    /// # Errors
    ///
    /// [`JournalError::Full`] and [`JournalError::Io`]. The batch is on disk as a whole, or nothing of it is; the next
    /// [`Journal::open`] shows which. [`JournalError::Order`] if the batch does not follow the last record.
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError>;

    /// Removes records from the log that the tables have. It removes at most a few batches, so that no commit waits for
    /// long. Returns whether there may be more.
    ///
    /// # Errors
    ///
    /// [`JournalError::Full`] and [`JournalError::Io`].
    fn trim(&mut self, applied: Position) -> Result<bool, JournalError>;
}

/// Copies tables into a folder.
pub type CopyTables = Box<dyn FnOnce(&Path) -> Result<(), JournalError> + Send>;

/// The tables of a journal.
///
/// They count the entries that they apply, in the row of a name of class 255. After an error they are broken, as the
/// log is.
pub trait Tables: Send + std::fmt::Debug {
    /// Brings the tables nearer to this record, or to the last one of the log, and returns the position that they have.
    /// It may stop on the way, so that the caller can note how far they are. It returns the position that they had
    /// before only if they have this record, or the last one.
    ///
    /// Rows of one process change together. Rows of different processes may change one after the other.
    ///
    /// # Errors
    ///
    /// [`JournalError::Full`], [`JournalError::Io`] and [`JournalError::Damaged`].
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError>;

    /// Calls [`apply_some`](Tables::apply_some) until the tables have this record, or the last one of the log.
    ///
    /// # Errors
    ///
    /// As [`apply_some`](Tables::apply_some).
    fn apply(&mut self, through: Position) -> Result<Position, JournalError> {
        let mut before = None;
        loop {
            let applied = self.apply_some(through)?;
            if applied >= through || before == Some(applied) {
                return Ok(applied);
            }
            before = Some(applied);
        }
    }

    /// Returns a reader of the tables.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`].
    fn reader(&self) -> Result<Box<dyn Reader>, JournalError>;

    /// Returns a call that copies the tables into a new folder, as a store whose log is empty. The copy has the
    /// rows that the tables have now. It is on disk when the call returns. The tables can be used meanwhile.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`] if this journal cannot be copied. The call returns it, too, if the folder is there already.
    fn copy(&self) -> Result<CopyTables, JournalError> {
        Err(JournalError::Io { call: "copying the tables", source: "this journal cannot be copied".into() })
    }

    /// Reads everything, and returns all damage that it finds.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`].
    fn check(&mut self) -> Result<Vec<Damage>, JournalError>;
}

/// A process as the tables have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredProcess {
    /// Its row.
    pub row: Option<ProcessRow>,
    /// Its entries with their classes and numbers, in this order.
    pub entries: Vec<(u8, u64, EntryRow)>,
}

/// The readable rows of a process that has damaged rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salvaged {
    /// Its rows that can be read.
    pub stored: StoredProcess,
    /// The classes and numbers of its entries that cannot be read.
    pub damaged: Vec<(u8, u64)>,
    /// The names that are of this process, with their classes.
    pub names: Vec<(u8, String, NameRow)>,
}

/// A reader of the tables. Each call sees the changes that were applied when it began.
///
/// So two calls may return rows of different positions, because no snapshot outlives its call. A caller that also has
/// rows that are not applied yet must look there first, and ask the reader then. So it finds each change in one of the
/// two. In the other order, a change may be applied between the two looks, and the caller finds it in neither.
///
/// An error concerns this call only. A damaged row is [`JournalError::Damaged`]; other rows can be read.
pub trait Reader: Send + std::fmt::Debug {
    /// Returns the row of a process and all of its entries, as they were at one position.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn load(&mut self, serial: u64) -> Result<StoredProcess, JournalError>;

    /// Returns all that can be read of a process of which rows are damaged. It may read all names.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`], and [`JournalError::Damaged`] if this journal cannot pass over damaged rows.
    fn salvage(&mut self, serial: u64) -> Result<Salvaged, JournalError> {
        Ok(Salvaged { stored: self.load(serial)?, ..Salvaged::default() })
    }

    /// Returns the row of a process.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn process(&mut self, serial: u64) -> Result<Option<ProcessRow>, JournalError>;

    /// Returns the entries of a process with their classes and numbers, in this order.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn entries(&mut self, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError>;

    /// Returns the row of a name.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn name(&mut self, class: u8, name: &str) -> Result<Option<NameRow>, JournalError>;

    /// Returns the serial numbers of processes with a status, or of all: those after a number, at most so many, in
    /// order.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`].
    fn with_status(&mut self, status: Option<Status>, after: u64, limit: usize) -> Result<Vec<u64>, JournalError>;

    /// Returns one entry of a process.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn entry(&mut self, serial: u64, class: u8, number: u64) -> Result<Option<EntryRow>, JournalError>;

    /// Returns the entries of a class: those after a process and a number, at most so many, in order. Each has the
    /// serial number of its process, and its number.
    ///
    /// # Errors
    ///
    /// [`JournalError::Damaged`] and [`JournalError::Io`].
    fn of_class(
        &mut self,
        class: u8,
        after: (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, EntryRow)>, JournalError>;

    /// Counts the entries of a class that are due at the time 0, as messages are.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`], and [`JournalError::Damaged`] if this journal has no other way than to read them.
    fn count_at_once(&mut self, class: u8) -> Result<u64, JournalError> {
        let (mut count, mut after) = (0, (0, 0));
        loop {
            let page = self.of_class(class, after, PAGE)?;
            count += page.iter().filter(|(.., row)| row.due == Some(0)).count() as u64;
            match page.last() {
                Some((serial, number, _)) if page.len() == PAGE => after = (*serial, *number),
                _ => return Ok(count),
            }
        }
    }

    /// Returns the entries that are due between two times, both included, the earliest first, at most so many: their
    /// times, processes, classes and numbers.
    ///
    /// # Errors
    ///
    /// [`JournalError::Io`].
    fn due(&mut self, from: u64, until: u64, limit: usize) -> Result<Vec<(u64, u64, u8, u64)>, JournalError>;
}
