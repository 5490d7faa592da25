//! Batches: the records that one fsync stores.
//!
//! A record in a batch is its length, a check sum and its bytes. The check sum covers the position, too, so a record at
//! a wrong place is found. A batch has a check sum of its head, which are its first position and its count.

use super::error::{Damage, Position};
use super::record::{EncodedRecord, Record};

/// The number of bytes in front of each record.
const FRAME: usize = 8;

/// The most bytes of a batch, unless it has one record only.
pub const LARGEST_BATCH: usize = 2 << 20;

/// Records that follow each other, and are stored together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    first: Position,
    count: u64,
    body: Vec<u8>,
}

impl Batch {
    /// Makes a batch without records. Its first record will have this position.
    pub fn new(first: Position) -> Batch {
        Batch { first, count: 0, body: Vec::new() }
    }

    /// Adds a record, and returns its position. Returns `None` if the batch has no room for it.
    pub fn push(&mut self, record: &EncodedRecord) -> Option<Position> {
        if self.count > 0 && self.body.len() + FRAME + record.size() > LARGEST_BATCH {
            return None;
        }
        let position = Position(self.first.0 + self.count);
        // A record has at most `LARGEST_RECORD` bytes.
        let length = record.size() as u32;
        self.body.extend(length.to_le_bytes());
        self.body.extend(record_crc(position, length, record.crc()).to_le_bytes());
        self.body.extend(record.bytes());
        self.count += 1;
        Some(position)
    }

    /// The position of the first record.
    pub fn first(&self) -> Position {
        self.first
    }

    /// The position of the last record. Without records it is the position before the first.
    pub fn last(&self) -> Position {
        Position((self.first.0 + self.count).saturating_sub(1))
    }

    /// The number of records.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of bytes.
    pub fn size(&self) -> usize {
        self.body.len()
    }

    /// The number of bytes of the records themselves.
    pub(crate) fn records_size(&self) -> usize {
        self.body.len() - self.count as usize * FRAME
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// The check sum of the head.
    pub(crate) fn head_crc(&self) -> u32 {
        head_crc(self.first, self.count)
    }
}

/// Calls `found` with the position and the bytes of each record of a stored batch, in order.
///
/// # Errors
///
/// The first record that is damaged, and the first error of `found`.
pub(crate) fn read_batch(
    first: Position,
    count: u64,
    crc: u32,
    body: &[u8],
    mut found: impl FnMut(Position, &[u8]) -> Result<(), Damage>,
) -> Result<(), Damage> {
    if head_crc(first, count) != crc {
        return Err(Damage::Record(first));
    }
    let mut rest = body;
    for position in (first.0..).map(Position).take(usize::try_from(count).unwrap_or(usize::MAX)) {
        let bytes = take_record(position, &mut rest).ok_or(Damage::Record(position))?;
        found(position, bytes)?;
    }
    if rest.is_empty() { Ok(()) } else { Err(Damage::Record(Position(first.0 + count))) }
}

/// Decodes the record at this position of a stored batch.
pub(crate) fn decode(position: Position, bytes: &[u8]) -> Result<Record, Damage> {
    postcard::from_bytes(bytes).map_err(|_| Damage::Record(position))
}

fn take_record<'a>(position: Position, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let (crc, behind) = behind.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    let (bytes, behind) = behind.split_at_checked(usize::try_from(length).ok()?)?;
    if record_crc(position, length, crc32fast::hash(bytes)) != u32::from_le_bytes(*crc) {
        return None;
    }
    *rest = behind;
    Some(bytes)
}

fn record_crc(position: Position, length: u32, bytes: u32) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&position.0.to_le_bytes());
    crc.update(&length.to_le_bytes());
    crc.update(&bytes.to_le_bytes());
    crc.finalize()
}

fn head_crc(first: Position, count: u64) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&first.0.to_le_bytes());
    crc.update(&count.to_le_bytes());
    crc.finalize()
}
