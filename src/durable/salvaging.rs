//! Ends processes of which the disk has damaged rows. Nothing of them can run, and they can end.
//!
//! The end of such a process is made of the rows that can be read. If the row of the process itself is lost, its id is
//! found by the names of the store, and its parent by the entries of children. The record of the end replaces the lost
//! row, and removes the entries that cannot be read. So the damage goes with the process.

use super::coding::Format;
use super::core::{Found, StoreCore};
use super::journal::{JournalError, Position, ProcessRow, Reader, Salvaged, Status, StoredProcess};
use super::rows::{CHILDREN, FirstEnd, IDS, KEPT, StoredChild, StoredHead, StoredParent};
use super::tail::Life;

/// The number of children that are read at once.
const PAGE: usize = 1_000;

impl Found {
    /// The rest of a process of which rows are damaged. `None` if it has ended, or if there is no such process.
    pub(super) fn salvaged(
        serial: u64,
        (life, now): (Life, u64),
        reader: &mut dyn Reader,
    ) -> Result<Option<Found>, JournalError> {
        let Salvaged { stored: StoredProcess { row, entries }, damaged, names } = reader.salvage(serial)?;
        let mut classes = entries.iter().map(|(class, ..)| class).chain(damaged.iter().map(|(class, _)| class));
        if classes.any(|class| *class == KEPT) {
            return Ok(None);
        }
        let of = |row| Found::of(serial, life, StoredProcess { row: Some(row), entries: entries.clone() });
        let found = match row.map(of) {
            Some(Ok(found)) => found.filter(|found| found.head.exit.is_none()),
            Some(Err(JournalError::Damaged(_))) | None => {
                let id = names.into_iter().find(|(class, ..)| *class == IDS);
                let (id, kind) = id.map(|(_, id, row)| (id, String::from_utf8_lossy(&row.body).into_owned())).unzip();
                let mut head = StoredHead::new(Format::Json, id, now);
                head.parent = parent_of(serial, reader)?;
                let kind = kind.unwrap_or_default();
                let row = ProcessRow { status: Status::Parked, kind, version: 0, state: Vec::new(), head: Vec::new() };
                Some(Found::with_head(serial, life, (row, head), entries.clone()))
            }
            Some(Err(error)) => return Err(error),
        };
        Ok(found.map(|mut found| {
            found.entries.extend(damaged);
            found
        }))
    }
}

/// The parent of a process, as the entries of children have it. Those that cannot be read are passed over.
fn parent_of(serial: u64, reader: &mut dyn Reader) -> Result<Option<StoredParent>, JournalError> {
    let mut after = (0, 0);
    loop {
        let page = match reader.of_class(CHILDREN, after, PAGE) {
            Err(JournalError::Damaged(_)) => return Ok(None),
            page => page?,
        };
        for (parent, tag, row) in &page {
            let child = postcard::from_bytes::<StoredChild>(&row.body);
            if child.is_ok_and(|child| child.serial == serial) {
                return Ok(Some(StoredParent { serial: *parent, tag: *tag }));
            }
        }
        match page.last() {
            Some((parent, tag, _)) if page.len() == PAGE => after = (*parent, *tag),
            _ => return Ok(None),
        }
    }
}

impl StoreCore {
    /// The rest of a damaged process, if it is to end. The tables have the records through `through`.
    pub(super) fn is_to_end_damaged(
        &self,
        serial: u64,
        (life, through): (Life, Position),
        outside: Option<FirstEnd>,
    ) -> Option<Found> {
        let found = self.with_tables(|tables, reader| {
            self.catch_up_to(tables, through)?;
            Found::salvaged(serial, (life, self.wall_millis()), reader)
        });
        // Another error is met again by the next load.
        let found = found.ok().flatten().map(|found| Found { outside, ..found });
        found.filter(|found| found.is_to_end(self.run))
    }
}
