//! Rows that are to be applied: the newest change of each, with the position of its record.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::entry_counts::EntryCounts;
use super::error::{Damage, Position};
use super::record::{Change, Record, RowKey};

/// The newest change of each row in a range of records.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// A removed row has no change. There are many of them: each message that was taken is one.
    changes: BTreeMap<RowKey, (Position, Option<Box<Change>>)>,
    counts: EntryCounts,
}

impl Rows {
    /// Adds the changes of a record. A change replaces an older one of the same row.
    pub(super) fn add(&mut self, position: Position, record: Record) {
        self.counts.count(&record);
        for change in record.changes {
            let (key, removes) = (change.key(), change.removes());
            let change = (position, (!removes).then(|| Box::new(change)));
            match self.changes.entry(key) {
                Entry::Occupied(there) if there.get().0 > position => {}
                Entry::Occupied(mut there) => *there.get_mut() = change,
                Entry::Vacant(place) => {
                    place.insert(change);
                }
            }
        }
    }

    /// All changes in the order of their keys, each with the position of its record.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&RowKey, Position, Cow<'_, Change>)> {
        self.changes.iter().map(|(key, (position, change))| {
            let change = change.as_ref().map_or_else(|| Cow::Owned(key.removal()), |change| Cow::Borrowed(&**change));
            (key, *position, change)
        })
    }

    /// The entries that these records write and remove.
    pub(super) fn counts(&self) -> &EntryCounts {
        &self.counts
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
