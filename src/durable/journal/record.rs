//! Records: changes of rows that are on disk together, or not at all.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::bytes;

/// The changes that one step makes, or one call from outside. All of them are on disk, or none.
///
/// A journal does not interpret a row. It stores the newest version of each, and finds rows by their keys, by their
/// status and by their time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The changes, in order. A later change of a row replaces an earlier one.
    pub changes: Vec<Change>,
}

/// The new version of one row, or its removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// A process, by its serial number.
    Process {
        /// The serial number of the process. It is at most `i64::MAX`.
        serial: u64,
        /// The row. `None` removes it. The entries of the process stay.
        row: Option<ProcessRow>,
    },
    /// Something that belongs to a process: a message in its mailbox, a command, a timer.
    Entry {
        /// The serial number of the process.
        serial: u64,
        /// Which kind of thing this is. Each kind has numbers of its own.
        class: u8,
        /// The number of the entry. It is at most `i64::MAX`.
        number: u64,
        /// The row. `None` removes it.
        row: Option<EntryRow>,
    },
    /// A key that leads to a process, for example its id or a name, or a mark of the whole store.
    Name {
        /// Which kind of key this is.
        class: u8,
        /// The key.
        name: String,
        /// The row. `None` removes it.
        row: Option<NameRow>,
    },
}

impl Change {
    /// The key of the row that is changed.
    pub fn key(&self) -> RowKey {
        match self {
            Change::Process { serial, .. } => RowKey::Of { serial: *serial, entry: None },
            Change::Entry { serial, class, number, .. } => {
                RowKey::Of { serial: *serial, entry: Some((*class, *number)) }
            }
            Change::Name { class, name, .. } => RowKey::Name { class: *class, name: name.clone() },
        }
    }

    /// Whether the row is removed.
    pub fn removes(&self) -> bool {
        match self {
            Change::Process { row, .. } => row.is_none(),
            Change::Entry { row, .. } => row.is_none(),
            Change::Name { row, .. } => row.is_none(),
        }
    }
}

impl fmt::Display for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowKey::Of { serial, entry: None } => write!(f, "the row of the process with the number {serial}"),
            RowKey::Of { serial, entry: Some((class, number)) } => {
                write!(f, "the entry {class}/{number} of the process with the number {serial}")
            }
            RowKey::Name { class, name } => write!(f, "the name {name:?} of the class {class}"),
        }
    }
}

/// The key of a row. In their order, the row of a process stands before its entries.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKey {
    /// The row of a process, or one of its entries.
    Of {
        /// The serial number of the process.
        serial: u64,
        /// The class and the number of the entry. `None` for the process itself.
        entry: Option<(u8, u64)>,
    },
    /// A name.
    Name {
        /// Which kind of key this is.
        class: u8,
        /// The key.
        name: String,
    },
}

impl RowKey {
    /// The change that removes the row.
    pub(super) fn removal(&self) -> Change {
        match self {
            RowKey::Of { serial, entry: None } => Change::Process { serial: *serial, row: None },
            RowKey::Of { serial, entry: Some((class, number)) } => {
                Change::Entry { serial: *serial, class: *class, number: *number, row: None }
            }
            RowKey::Name { class, name } => Change::Name { class: *class, name: name.clone(), row: None },
        }
    }
}

/// The row of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRow {
    /// Whether the process has something to do.
    pub status: Status,
    /// The name of the type of the state.
    pub kind: String,
    /// The version of that type.
    pub version: u32,
    /// The state, encoded.
    #[serde(with = "bytes")]
    pub state: Vec<u8>,
    /// All else that the runtime stores about the process itself, encoded.
    #[serde(with = "bytes")]
    pub head: Vec<u8>,
}

/// Whether a stored process has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The process waits for an event. Most processes of a store do.
    Sleeping,
    /// The process has something to do, and is to be stepped.
    Ready,
    /// The process runs nothing until an operator repairs it, or another version of its kind can read it.
    Parked,
    /// The process has ended. Its row has the result.
    Ended,
}

impl Status {
    /// All of them, each at the number by which it is stored.
    #[cfg(feature = "sqlite")]
    pub(crate) const ALL: [Status; 4] = [Status::Sleeping, Status::Ready, Status::Parked, Status::Ended];
}

/// The row of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryRow {
    /// When the entry is due, in milliseconds since 1970. It is at most `i64::MAX`.
    pub due: Option<u64>,
    /// The entry, encoded.
    #[serde(with = "bytes")]
    pub body: Vec<u8>,
}

/// The row of a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRow {
    /// The serial number of the process that has the name.
    pub serial: u64,
    /// All else, encoded.
    #[serde(with = "bytes")]
    pub body: Vec<u8>,
}

/// The most bytes of an encoded record. A batch has room for one of this size.
pub const LARGEST_RECORD: usize = 8 << 20;

/// A record as it is stored. It is encoded once, by the thread that has made it.
#[derive(Clone, Debug)]
pub struct EncodedRecord {
    bytes: Vec<u8>,
    crc: u32,
}

impl EncodedRecord {
    /// Encodes a record.
    ///
    /// # Errors
    ///
    /// If the encoded record is larger than [`LARGEST_RECORD`], or if a number in it is larger than `i64::MAX`.
    pub fn new(record: &Record) -> Result<EncodedRecord, RecordError> {
        let is_large = |number: u64| i64::try_from(number).is_err();
        for change in &record.changes {
            let too_large = match change {
                Change::Process { serial, .. } => is_large(*serial),
                Change::Entry { serial, number, row, .. } => {
                    let due = row.as_ref().and_then(|row| row.due);
                    is_large(*serial) || is_large(*number) || due.is_some_and(is_large)
                }
                Change::Name { row, .. } => row.as_ref().is_some_and(|row| is_large(row.serial)),
            };
            if too_large {
                return Err(RecordError::Number(change.key()));
            }
        }
        let bytes = postcard::to_stdvec(record).map_err(RecordError::Encoding)?;
        if bytes.len() > LARGEST_RECORD {
            return Err(RecordError::TooLarge { size: bytes.len() });
        }
        let crc = crc32fast::hash(&bytes);
        Ok(EncodedRecord { bytes, crc })
    }

    /// The number of its bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn crc(&self) -> u32 {
        self.crc
    }
}

/// Why a record cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The encoded record is too large.
    #[error("a record has {size} bytes, and the limit is {LARGEST_RECORD}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
    },
    /// A number is too large for the tables.
    #[error("a number of the row {0:?} is larger than {max}", max = i64::MAX)]
    Number(RowKey),
    /// The encoding failed.
    #[error("a record cannot be encoded")]
    Encoding(#[source] postcard::Error),
}
