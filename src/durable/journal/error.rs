//! Positions of records, and why a call of a journal fails.

use std::path::PathBuf;

use super::record::RowKey;
use crate::outcome::BoxError;

/// The place of a record in the order of all records of a store. The first record has 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl Position {
    /// The place before the first record.
    pub const START: Position = Position(0);

    /// The next place.
    #[must_use]
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
}

/// Why a call of a journal failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// There is no room on the disk.
    #[error("the disk of the store is full")]
    Full,
    /// Another journal has the store.
    #[error("the store is open in {}", holder.map_or(String::from("another process"), |id| format!("process {id}")))]
    InUse {
        /// The number of the operating system's process that has the store, if it is known.
        holder: Option<u32>,
    },
    /// Another program has a file of the store locked. Later calls can succeed.
    #[error("another program has a file of the store locked: {}", file.display())]
    Busy {
        /// The file.
        file: PathBuf,
    },
    /// The disk returned an error.
    #[error("{call} of the store failed: {source}")]
    Io {
        /// The call that failed.
        call: &'static str,
        /// The error of the disk.
        source: BoxError,
    },
    /// Stored bytes have changed since they were written.
    #[error("the store is damaged: {0}")]
    Damaged(Damage),
    /// The store was written in a format that this version does not know.
    #[error("the store has the format {found}, and this version reads the format {expected}")]
    Format {
        /// The format of the store.
        found: i64,
        /// The format that this version reads.
        expected: i64,
    },
    /// The first record of a batch does not follow the last record of the log.
    #[error("a batch begins at record {}, and the last record of the log is {}", first.0, last.0)]
    Order {
        /// The first record of the batch.
        first: Position,
        /// The last record of the log.
        last: Position,
    },
    /// An earlier call failed, or the journal was opened anew.
    #[error("this part of the journal is no longer valid, because a call failed or the journal was opened again")]
    Broken,
    /// The store opens its files again after an error. Later calls can succeed.
    #[error("the store opens its files again after an error: try again")]
    Reopening,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

impl JournalError {
    /// Whether it counts towards the errors that close a store. A full disk may have room later, and another program
    /// may let go of a file.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, JournalError::Full | JournalError::Busy { .. } | JournalError::Reopening | JournalError::Closed)
    }

    /// Whether it follows from another error.
    pub(crate) fn follows(&self) -> bool {
        matches!(self, JournalError::Broken | JournalError::Reopening | JournalError::Closed)
    }
}

#[cfg(feature = "sqlite")]
impl JournalError {
    /// The error of a call of the operating system.
    pub(super) fn of_system(call: &'static str, error: std::io::Error) -> JournalError {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => JournalError::Full,
            _ => JournalError::Io { call, source: error.into() },
        }
    }
}

/// Stored bytes that have changed since they were written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A record of the log.
    #[error("record {} cannot be read", .0.0)]
    Record(Position),
    /// Records of the log are missing.
    #[error("record {} is missing", .0.0)]
    Missing(Position),
    /// A row of the tables.
    #[error("{0} cannot be read")]
    Row(RowKey),
    /// The position up to which the tables have all changes.
    #[error("the mark of the tables cannot be read")]
    Mark,
    /// Messages are missing, or were taken twice.
    #[error("messages are missing or were taken twice: {accepted} accepted, {taken} taken, {queued} waiting")]
    Mail {
        /// Messages that the store has accepted.
        accepted: u64,
        /// Messages that were stepped or became dead letters.
        taken: u64,
        /// Messages that wait.
        queued: u64,
    },
    /// A file, as the library that reads it says.
    #[error("{0}")]
    File(String),
}
