//! How often the entries of each class were written and removed, over the whole life of a store.
//!
//! The tables count the records that they apply, and store the counts with their mark. So the counts are those of the
//! records up to the mark, however often an application was interrupted and repeated. A commit does not count.
//!
//! Counts that another version has left behind, or that cannot be read, begin again at the first application. They
//! begin with the messages that wait after it. Messages that were taken by the records of this application are not
//! counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::error::Position;
use super::record::{Change, NameRow, Record, RowKey};

/// The class and the name of the row that has the counts. No record has a name of this class.
pub(crate) const COUNTS: (u8, &str) = (u8::MAX, "entries");

/// The class of messages that wait. They are due at the time 0.
pub(crate) const MESSAGES: u8 = 1;

/// How often entries of a class were written, and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassCount {
    pub(crate) written: u64,
    pub(crate) removed: u64,
}

/// The counts of the entries of all classes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EntryCounts {
    /// The last record that is counted.
    through: u64,
    classes: BTreeMap<u8, ClassCount>,
}

impl EntryCounts {
    pub(crate) fn of(&self, class: u8) -> ClassCount {
        self.classes.get(&class).copied().unwrap_or_default()
    }

    /// Counts the changes of a record.
    pub(super) fn count(&mut self, record: &Record) {
        for change in &record.changes {
            if let Change::Entry { class, row, .. } = change {
                let count = self.classes.entry(*class).or_default();
                match row {
                    Some(_) => count.written += 1,
                    None => count.removed += 1,
                }
            }
        }
    }

    /// The counts of an earlier row, and of the records from its mark on. `waiting` counts the messages that the tables
    /// have with these records.
    pub(super) fn after<E>(
        &self,
        (applied, row): (Position, Option<NameRow>),
        waiting: impl FnOnce() -> Result<u64, E>,
    ) -> Result<EntryCounts, E> {
        let before = row.and_then(|row| EntryCounts::read(&row, applied));
        let before = before.or_else(|| (applied == Position::START).then(EntryCounts::default));
        let Some(mut counts) = before else {
            return Ok(EntryCounts::of_waiting(waiting()?));
        };
        for (class, more) in &self.classes {
            let count = counts.classes.entry(*class).or_default();
            count.written += more.written;
            count.removed += more.removed;
        }
        Ok(counts)
    }

    /// Counts that begin with messages that wait.
    pub(crate) fn of_waiting(messages: u64) -> EntryCounts {
        let waiting = ClassCount { written: messages, removed: 0 };
        EntryCounts { through: 0, classes: BTreeMap::from([(MESSAGES, waiting)]) }
    }

    /// The counts of a row. `None` if they are not those of this mark.
    pub(crate) fn read(row: &NameRow, mark: Position) -> Option<EntryCounts> {
        postcard::from_bytes(&row.body).ok().filter(|counts: &EntryCounts| counts.through == mark.0)
    }

    /// The row of counts that end at this record.
    pub(super) fn row(mut self, through: Position) -> Change {
        self.through = through.0;
        // Numbers can be encoded.
        let body = postcard::to_stdvec(&self).unwrap_or_default();
        Change::Name { class: COUNTS.0, name: COUNTS.1.into(), row: Some(NameRow { serial: 0, body }) }
    }

    pub(super) fn key() -> RowKey {
        RowKey::Name { class: COUNTS.0, name: COUNTS.1.into() }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::durable::journal::record::EntryRow;

    fn entry(number: u64, row: Option<EntryRow>) -> Change {
        Change::Entry { serial: 1, class: MESSAGES, number, row }
    }

    fn of_records() -> EntryCounts {
        let row = || Some(EntryRow { due: None, body: Vec::new() });
        let mut counts = EntryCounts::default();
        counts.count(&Record { changes: vec![entry(1, row()), entry(2, row()), entry(1, None)] });
        counts
    }

    fn row(counts: EntryCounts, through: u64) -> Option<NameRow> {
        match counts.row(Position(through)) {
            Change::Name { row, .. } => row,
            _ => None,
        }
    }

    #[test]
    fn counts_begin_again_with_the_waiting_messages_at_another_mark() {
        let after = |applied, row: Option<NameRow>| {
            let waiting = || Ok::<_, Infallible>(40);
            let counts = of_records().after((Position(applied), row), waiting).unwrap_or_default();
            (counts.of(MESSAGES).written, counts.of(MESSAGES).removed)
        };
        assert_eq!(after(0, None), (2, 1), "a new store");
        assert_eq!(after(9, row(of_records(), 9)), (4, 2), "they go on");
        assert_eq!(after(9, None), (40, 0), "a version without counts has made it");
        assert_eq!(after(9, row(of_records(), 8)), (40, 0), "such a version has applied a record");
        assert_eq!(after(9, Some(NameRow { serial: 0, body: vec![200] })), (40, 0), "they cannot be read");
    }
}
