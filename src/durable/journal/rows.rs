//! Rows that are to be applied: the newest change of each, with the position of its record.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::entry_counts::EntryCounts;
use super::error::{Damage, Position};
use super::record::{Change, Record, RowKey};

/// The newest change of each row in a range of records.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    changes: BTreeMap<RowKey, (Position, Change)>,
    counts: EntryCounts,
}

impl Rows {
    /// Adds the changes of a record. A change replaces an older one of the same row.
    pub fn add(&mut self, position: Position, record: Record) {
        self.counts.count(&record);
        for change in record.changes {
            match self.changes.entry(change.key()) {
                Entry::Occupied(there) if there.get().0 > position => {}
                Entry::Occupied(mut there) => *there.get_mut() = (position, change),
                Entry::Vacant(place) => {
                    place.insert((position, change));
                }
            }
        }
    }

    /// The change of a row, with the position of its record.
    pub fn get(&self, key: &RowKey) -> Option<(Position, &Change)> {
        self.changes.get(key).map(|(position, change)| (*position, change))
    }

    /// All changes in the order of their keys, each with the position of its record.
    pub fn iter(&self) -> impl Iterator<Item = (&RowKey, Position, &Change)> {
        self.changes.iter().map(|(key, (position, change))| (key, *position, change))
    }

    /// The entries that these records write and remove.
    pub(super) fn counts(&self) -> &EntryCounts {
        &self.counts
    }

    /// The number of changed rows.
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Whether no row is changed.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// The check sum of a row in the tables. It covers the key, the position and the content.
pub(crate) fn row_crc(position: Position, change: &Change) -> Result<u32, Damage> {
    // A row that has been in a record can be encoded.
    let bytes = postcard::to_stdvec(change).map_err(|_| Damage::Row(change.key()))?;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&position.0.to_le_bytes());
    crc.update(&bytes);
    Ok(crc.finalize())
}
