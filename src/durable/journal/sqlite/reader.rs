//! Reading the tables of a store.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::connection::{Guarded, failed};
use crate::durable::journal::contract::{Reader, Salvaged, StoredProcess};
use crate::durable::journal::error::{Damage, JournalError, Position};
use crate::durable::journal::record::{Change, EntryRow, NameRow, ProcessRow, RowKey, Status};
use crate::durable::journal::rows::row_crc;

#[derive(Debug)]
pub(super) struct SqliteReader(Guarded);

impl SqliteReader {
    pub(super) fn new(file: Guarded) -> SqliteReader {
        SqliteReader(file)
    }
}

/// The columns of a row, as [`process_of`] reads them.
pub(super) const PROCESS: &str = "serial, position, crc, status, kind, version, state, head";
/// The columns of a row, as [`entry_of`] reads them.
pub(super) const ENTRY: &str = "serial, class, number, position, crc, due, body";
/// The columns of a row, as [`name_of`] reads them.
pub(super) const NAME: &str = "class, name, position, crc, serial, body";

/// A row with its position and its check sum, as it was read.
pub(super) struct Read {
    position: Position,
    crc: u32,
    change: Change,
}

impl Read {
    /// Returns the row if its check sum is right.
    pub(super) fn checked(self) -> Result<Change, Damage> {
        match row_crc(self.position, &self.change) {
            Ok(crc) if crc == self.crc => Ok(self.change),
            _ => Err(Damage::Row(self.change.key())),
        }
    }
}

pub(super) fn process_of(row: &Row<'_>) -> Result<Read, rusqlite::Error> {
    let status: usize = row.get(3)?;
    let status = Status::ALL.get(status).copied();
    let content = ProcessRow {
        status: status.ok_or(rusqlite::Error::InvalidColumnName("status".into()))?,
        kind: row.get(4)?,
        version: row.get(5)?,
        state: row.get(6)?,
        head: row.get(7)?,
    };
    let change = Change::Process { serial: row.get(0)?, row: Some(content) };
    Ok(Read { position: Position(row.get(1)?), crc: row.get(2)?, change })
}

pub(super) fn entry_of(row: &Row<'_>) -> Result<Read, rusqlite::Error> {
    let content = EntryRow { due: row.get(5)?, body: row.get(6)? };
    let change = Change::Entry { serial: row.get(0)?, class: row.get(1)?, number: row.get(2)?, row: Some(content) };
    Ok(Read { position: Position(row.get(3)?), crc: row.get(4)?, change })
}

pub(super) fn name_of(row: &Row<'_>) -> Result<Read, rusqlite::Error> {
    let content = NameRow { serial: row.get(4)?, body: row.get(5)? };
    let change = Change::Name { class: row.get(0)?, name: row.get(1)?, row: Some(content) };
    Ok(Read { position: Position(row.get(2)?), crc: row.get(3)?, change })
}

/// Turns an error of one row into the damage of that row.
fn of_row(file: &Connection, key: RowKey) -> impl Fn(rusqlite::Error) -> JournalError {
    move |error| match error.sqlite_error_code() {
        // The row has values that were never written.
        None => JournalError::Damaged(Damage::Row(key.clone())),
        Some(_) => failed(file, "reading a row")(error),
    }
}

/// Reads the first row that a statement finds. The connection keeps the statement for the next call.
fn first<T>(
    file: &Connection,
    text: &str,
    of: &[&dyn rusqlite::ToSql],
    read: impl FnOnce(&Row<'_>) -> Result<T, rusqlite::Error>,
) -> Result<Option<T>, rusqlite::Error> {
    file.prepare_cached(text)?.query_row(of, read).optional()
}

fn read_process(file: &Connection, serial: u64) -> Result<Option<ProcessRow>, JournalError> {
    let text = format!("SELECT {PROCESS} FROM processes WHERE serial = ?1");
    let failed = of_row(file, RowKey::Of { serial, entry: None });
    let found = first(file, &text, params![serial], process_of).map_err(failed)?;
    let change = found.map(Read::checked).transpose().map_err(JournalError::Damaged)?;
    Ok(change.and_then(|change| if let Change::Process { row, .. } = change { row } else { None }))
}

fn read_entries(file: &Connection, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError> {
    let text = format!("SELECT {ENTRY} FROM entries WHERE serial = ?1 ORDER BY class, number");
    let failed = of_row(file, RowKey::Of { serial, entry: None });
    let mut select = file.prepare_cached(&text).map_err(&failed)?;
    let mut rows = select.query(params![serial]).map_err(&failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        let change = entry_of(row).map_err(&failed)?.checked().map_err(JournalError::Damaged)?;
        if let Change::Entry { class, number, row: Some(row), .. } = change {
            found.push((class, number, row));
        }
    }
    Ok(found)
}

pub(super) fn read_name(file: &Connection, class: u8, name: &str) -> Result<Option<NameRow>, JournalError> {
    let text = format!("SELECT {NAME} FROM names WHERE class = ?1 AND name = ?2");
    let failed = of_row(file, RowKey::Name { class, name: name.into() });
    let found = first(file, &text, params![class, name], name_of).map_err(failed)?;
    let change = found.map(Read::checked).transpose().map_err(JournalError::Damaged)?;
    Ok(change.and_then(|change| if let Change::Name { row, .. } = change { row } else { None }))
}

/// Counts the entries of a class that are due at the time 0. The index has all that it reads, so it reads no bodies.
pub(super) fn count_at_once(file: &Connection, class: u8) -> Result<u64, JournalError> {
    let text = "SELECT count(*) FROM entries WHERE due = 0 AND class = ?1";
    file.query_row(text, params![class], |row| row.get(0)).map_err(failed(file, "counting entries"))
}

/// The row that was read, unless it is damaged.
fn sound(read: Result<Read, JournalError>) -> Result<Option<Change>, JournalError> {
    match read.and_then(|read| read.checked().map_err(JournalError::Damaged)) {
        Ok(change) => Ok(Some(change)),
        Err(JournalError::Damaged(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn salvage(file: &Connection, serial: u64) -> Result<Salvaged, JournalError> {
    let mut found = Salvaged::default();
    found.stored.row = match read_process(file, serial) {
        Err(JournalError::Damaged(_)) => None,
        row => row?,
    };
    let failed = of_row(file, RowKey::Of { serial, entry: None });
    let mut select = file
        .prepare(&format!("SELECT {ENTRY} FROM entries WHERE serial = ?1 ORDER BY class, number"))
        .map_err(&failed)?;
    let mut rows = select.query(params![serial]).map_err(&failed)?;
    while let Some(row) = rows.next().map_err(&failed)? {
        match sound(entry_of(row).map_err(&failed))? {
            Some(Change::Entry { class, number, row: Some(row), .. }) => {
                found.stored.entries.push((class, number, row))
            }
            _ => {
                let key = row.get(1).and_then(|class| Ok((class, row.get(2)?)));
                found.damaged.push(key.map_err(&failed)?);
            }
        }
    }
    let mut select = file.prepare(&format!("SELECT {NAME} FROM names WHERE serial = ?1")).map_err(&failed)?;
    let mut rows = select.query(params![serial]).map_err(&failed)?;
    while let Some(row) = rows.next().map_err(&failed)? {
        if let Some(Change::Name { class, name, row: Some(row) }) = sound(name_of(row).map_err(&failed))? {
            found.names.push((class, name, row));
        }
    }
    Ok(found)
}

impl Reader for SqliteReader {
    fn load(&mut self, serial: u64) -> Result<StoredProcess, JournalError> {
        self.0.read(|file| {
            // Its reads are of one snapshot. Dropping it ends it.
            let snapshot = file.unchecked_transaction().map_err(failed(file, "reading a process"))?;
            Ok(StoredProcess { row: read_process(&snapshot, serial)?, entries: read_entries(&snapshot, serial)? })
        })
    }

    fn salvage(&mut self, serial: u64) -> Result<Salvaged, JournalError> {
        self.0.read(|file| {
            let snapshot = file.unchecked_transaction().map_err(failed(file, "reading a process"))?;
            salvage(&snapshot, serial)
        })
    }

    fn process(&mut self, serial: u64) -> Result<Option<ProcessRow>, JournalError> {
        self.0.read(|file| read_process(file, serial))
    }

    fn entries(&mut self, serial: u64) -> Result<Vec<(u8, u64, EntryRow)>, JournalError> {
        self.0.read(|file| read_entries(file, serial))
    }

    fn name(&mut self, class: u8, name: &str) -> Result<Option<NameRow>, JournalError> {
        self.0.read(|file| read_name(file, class, name))
    }

    fn with_status(&mut self, status: Option<Status>, after: u64, limit: usize) -> Result<Vec<u64>, JournalError> {
        // The index has no sleeping processes. SQLite uses it if the condition of the index is in the text.
        let of = match status {
            None => String::new(),
            Some(Status::Sleeping) => format!("AND status = {}", Status::Sleeping as u8),
            Some(status) => format!("AND status = {} AND status > 0", status as u8),
        };
        let text = format!("SELECT serial FROM processes WHERE serial > ?1 {of} ORDER BY serial LIMIT ?2");
        self.list(&text, params![as_signed(after), as_signed(limit as u64)], |row| row.get(0))
    }

    fn entry(&mut self, serial: u64, class: u8, number: u64) -> Result<Option<EntryRow>, JournalError> {
        let text = format!("SELECT {ENTRY} FROM entries WHERE serial = ?1 AND class = ?2 AND number = ?3");
        let found = self.0.read(|file| {
            let failed = of_row(file, RowKey::Of { serial, entry: Some((class, number)) });
            let of = params![as_signed(serial), class, as_signed(number)];
            first(file, &text, of, entry_of).map_err(failed)
        })?;
        let change = found.map(Read::checked).transpose().map_err(JournalError::Damaged)?;
        Ok(change.and_then(|change| if let Change::Entry { row, .. } = change { row } else { None }))
    }

    fn of_class(
        &mut self,
        class: u8,
        (serial, number): (u64, u64),
        limit: usize,
    ) -> Result<Vec<(u64, u64, EntryRow)>, JournalError> {
        // In two reads. One condition for both would have SQLite read all entries of the class for each page.
        let of_first = "class = ?1 AND serial = ?2 AND number > ?3 ORDER BY number LIMIT ?4";
        let of_others = "class = ?1 AND serial > ?2 ORDER BY serial, number LIMIT ?3";
        let text = |of| format!("SELECT {ENTRY} FROM entries WHERE {of}");
        let of = params![class, as_signed(serial), as_signed(number), as_signed(limit as u64)];
        let mut read = self.list(&text(of_first), of, entry_of)?;
        let left = limit.saturating_sub(read.len());
        if left > 0 {
            let of = params![class, as_signed(serial), as_signed(left as u64)];
            read.extend(self.list(&text(of_others), of, entry_of)?);
        }
        let checked = read.into_iter().map(|read| match read.checked().map_err(JournalError::Damaged)? {
            Change::Entry { serial, number, row: Some(row), .. } => Ok(Some((serial, number, row))),
            _ => Ok(None),
        });
        checked.filter_map(Result::transpose).collect()
    }

    fn count_at_once(&mut self, class: u8) -> Result<u64, JournalError> {
        self.0.read(|file| count_at_once(file, class))
    }

    fn due(&mut self, from: u64, until: u64, limit: usize) -> Result<Vec<(u64, u64, u8, u64)>, JournalError> {
        let text = "SELECT due, serial, class, number FROM entries WHERE due BETWEEN ?1 AND ?2 \
                    ORDER BY due, serial, class, number LIMIT ?3";
        let of = params![as_signed(from), as_signed(until), as_signed(limit as u64)];
        self.list(text, of, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
    }
}

impl SqliteReader {
    fn list<T>(
        &self,
        text: &str,
        of: &[&dyn rusqlite::ToSql],
        read: impl FnMut(&Row<'_>) -> Result<T, rusqlite::Error>,
    ) -> Result<Vec<T>, JournalError> {
        self.0.read(|file| {
            let failed = failed(file, "listing rows");
            let mut select = file.prepare_cached(text).map_err(&failed)?;
            select.query_map(of, read).and_then(Iterator::collect).map_err(&failed)
        })
    }
}

/// The largest number of SQLite, if this one is larger.
fn as_signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
