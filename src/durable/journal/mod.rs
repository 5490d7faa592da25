//! Where the records of durable processes are stored: a log, and tables with the newest version of each row.
//!
//! A [`Record`] is a set of changed rows that are on disk together, or not at all. The records of a store have one
//! order, each with its [`Position`]. A [`Batch`] of them is committed with one fsync. So the content of the disk is
//! always a prefix of that order.
//!
//! [`Journal`] is the trait. [`MemoryJournal`] is for tests: a test can inject faults into its [`MemoryDisk`].
#![cfg_attr(feature = "sqlite", doc = "[`SqliteJournal`] stores in two files of SQLite.")]
//!
//! The file `docs/durable.md` of the repository has the protocols, and the reasons for them.

mod batch;
mod bytes;
mod contract;
mod disk;
mod entry_counts;
mod error;
mod memory;
mod record;
mod rows;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use self::batch::{Batch, LARGEST_BATCH};
pub use self::contract::{CopyTables, Journal, Log, Opened, Reader, Recovered, Salvaged, StoredProcess, Tables};
pub use self::disk::{Fault, MemoryDisk};
pub(crate) use self::entry_counts::{COUNTS, EntryCounts, MESSAGES};
pub use self::error::{Damage, JournalError, Position};
pub use self::memory::MemoryJournal;
pub use self::record::{
    Change, EncodedRecord, EntryRow, LARGEST_RECORD, NameRow, ProcessRow, Record, RecordError, RowKey, Status,
};
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteJournal;
