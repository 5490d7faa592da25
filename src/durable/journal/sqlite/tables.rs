//! The tables of a store: they are brought up to the log.

use std::borrow::Cow;
use std::path::PathBuf;

use rusqlite::{Connection, Row, params};

use super::checkpoints::Checkpoints;
use super::connection::{Guarded, failed, open_reader};
use super::copying::copy_into;
use super::log::read_log;
use super::reader::{
    ENTRY, NAME, PROCESS, Read, SqliteReader, count_at_once, entry_of, name_of, process_of, read_name,
};
use crate::durable::journal::batch::decode;
use crate::durable::journal::contract::{CopyTables, Reader, Tables};
use crate::durable::journal::entry_counts::{COUNTS, EntryCounts, MESSAGES};
use crate::durable::journal::error::{Damage, JournalError, Position};
use crate::durable::journal::record::{Change, NameRow, RowKey};
use crate::durable::journal::rows::{Rows, row_crc};

pub(super) const TABLES: &str = "\
    CREATE TABLE mark(one INTEGER PRIMARY KEY, position INTEGER NOT NULL, crc INTEGER NOT NULL);
    INSERT INTO mark VALUES (1, 0, 1895344301);
    CREATE TABLE processes(serial INTEGER PRIMARY KEY, position INTEGER NOT NULL, crc INTEGER NOT NULL, \
        status INTEGER NOT NULL, kind TEXT NOT NULL, version INTEGER NOT NULL, state BLOB NOT NULL, head BLOB NOT NULL);
    CREATE INDEX processes_by_status ON processes(status, serial) WHERE status > 0;
    CREATE TABLE entries(serial INTEGER NOT NULL, class INTEGER NOT NULL, number INTEGER NOT NULL, \
        position INTEGER NOT NULL, crc INTEGER NOT NULL, due INTEGER, body BLOB NOT NULL, \
        PRIMARY KEY(serial, class, number)) WITHOUT ROWID;
    CREATE INDEX entries_by_due ON entries(due, serial, class, number) WHERE due IS NOT NULL;
    CREATE TABLE names(class INTEGER NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, crc INTEGER NOT NULL, \
        serial INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(class, name)) WITHOUT ROWID;";

/// The name of the file.
pub(super) const TABLES_FILE: &str = "tables.db";

/// How many rows one transaction of an application changes, at most one process more.
const SLICE_ROWS: usize = 4_000;

/// How many bytes one transaction of an application writes, about.
const SLICE_BYTES: u64 = 4 << 20;

/// How many bytes of the log are read before their rows are written, at most one batch more. They are in memory
/// meanwhile. In smaller pieces, a row that has changed often is written more often.
const PIECE: u64 = if cfg!(test) { 1 << 10 } else { 32 << 20 };

/// The bytes that a changed row writes besides its content, about: a page of the table, and parts of other pages.
const PAGES: u64 = 6 << 10;

#[derive(Debug)]
pub(super) struct SqliteTables {
    /// The log, for reading. It is closed before the store is unlocked.
    log: Connection,
    file: Guarded,
    path: PathBuf,
    checkpoints: Checkpoints,
}

impl SqliteTables {
    pub(super) fn new(file: Guarded, log: Connection, path: PathBuf) -> SqliteTables {
        SqliteTables { log, file, path, checkpoints: Checkpoints::default() }
    }

    /// Changes the rows of some processes. The last slice of a piece of the log moves the mark, too.
    pub(super) fn apply_slice(
        &mut self,
        slice: &[(Position, Cow<'_, Change>)],
        bytes: u64,
        mark: Option<(Position, &EntryCounts)>,
    ) -> Result<(), JournalError> {
        let SqliteTables { file, checkpoints, .. } = self;
        let applied = file.held.applied();
        checkpoints.make(file, TABLES_FILE)?;
        checkpoints.add(bytes);
        file.write("an application", |connection| {
            let failed = failed(connection, "an application");
            let mut writer = Writer::new(connection).map_err(&failed)?;
            for (position, change) in slice {
                let crc =
                    if change.removes() { 0 } else { row_crc(*position, change).map_err(JournalError::Damaged)? };
                writer.write(*position, crc, change).map_err(&failed)?;
            }
            if let Some((mark, counts)) = mark {
                let waiting = || count_at_once(connection, MESSAGES);
                let row = counts.after((applied, read_counts(connection)?), waiting)?.row(mark);
                let crc = row_crc(mark, &row).map_err(JournalError::Damaged)?;
                // A damaged row may have a later position, and would stay.
                let no_row = "DELETE FROM names WHERE class = ?1 AND name = ?2";
                connection.execute(no_row, params![COUNTS.0, COUNTS.1]).map_err(&failed)?;
                writer.write(mark, crc, &row).map_err(&failed)?;
                let row = params![mark.0 as i64, mark_crc(mark)];
                let text = "UPDATE mark SET position = ?1, crc = ?2 WHERE position < ?1";
                connection.execute(text, row).map_err(&failed)?;
            }
            Ok(())
        })
    }

    /// Applies the next piece of the log. Returns the position that the tables have then.
    pub(super) fn apply_piece(&mut self, through: Position) -> Result<Position, JournalError> {
        let applied = self.file.held.applied();
        let mut rows = Rows::default();
        let log = &self.log;
        let add = |position, bytes: &[u8]| {
            rows.add(position, decode(position, bytes)?);
            Ok(())
        };
        let last = self.file.call(|_| read_log(log, (applied, through), PIECE, add))?;
        let Some(last) = last else { return Ok(applied) };
        let through = through.min(last);
        let (mut slice, mut bytes, mut owner) = (Vec::new(), 0, None);
        for (key, position, change) in rows.iter() {
            let of = if let RowKey::Of { serial, .. } = key { Some(*serial) } else { None };
            // The rows of a process stay together.
            let may_end = of.is_none() || of != owner;
            if may_end && (slice.len() >= SLICE_ROWS || bytes >= SLICE_BYTES) {
                self.apply_slice(&slice, bytes + PAGES * slice.len() as u64, None)?;
                (slice, bytes) = (Vec::new(), 0);
            }
            owner = of;
            bytes += content(&change);
            slice.push((position, change));
        }
        self.apply_slice(&slice, bytes + PAGES * slice.len() as u64, Some((through, rows.counts())))?;
        self.file.held.set_applied(through);
        Ok(through)
    }
}

impl Tables for SqliteTables {
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        let applied = self.file.held.applied();
        if through <= applied {
            return self.file.call(|_| Ok(applied));
        }
        self.apply_piece(through)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        let connection = open_reader(&self.path)?;
        Ok(Box::new(SqliteReader::new(Guarded::new(connection, self.file.opening(), &self.file.held))))
    }

    fn copy(&self) -> Result<CopyTables, JournalError> {
        let source = open_reader(&self.path)?;
        // The snapshot begins now, while no application is halfway.
        source.execute_batch("BEGIN").map_err(failed(&source, "copying the tables"))?;
        read_mark(&source)?;
        Ok(Box::new(move |folder| copy_into(&source, folder, TABLES_FILE)))
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        let applied = self.file.held.applied();
        let log = &self.log;
        self.file.read(|tables| {
            let mut found = Vec::new();
            for file in [tables, log] {
                collect(check_file(file), &mut found)?;
            }
            let decoded = |position, bytes: &[u8]| decode(position, bytes).map(drop);
            let all = (applied, Position(u64::MAX));
            collect(read_log(log, all, u64::MAX, decoded).map(|_| Vec::new()), &mut found)?;
            collect(read_mark(tables).map(|_| Vec::new()), &mut found)?;
            let processes = format!("SELECT {PROCESS} FROM processes");
            collect(check_rows(tables, &processes, process_of), &mut found)?;
            collect(check_rows(tables, &format!("SELECT {ENTRY} FROM entries"), entry_of), &mut found)?;
            collect(check_rows(tables, &format!("SELECT {NAME} FROM names"), name_of), &mut found)?;
            Ok(found)
        })
    }
}

/// The bytes of a change, about.
fn content(change: &Change) -> u64 {
    let bytes = match change {
        Change::Process { row, .. } => row.as_ref().map_or(0, |row| row.kind.len() + row.state.len() + row.head.len()),
        Change::Entry { row, .. } => row.as_ref().map_or(0, |row| row.body.len()),
        Change::Name { name, row, .. } => name.len() + row.as_ref().map_or(0, |row| row.body.len()),
    };
    bytes as u64
}

/// The statements that write rows. Each replaces or removes the row of its key, unless that row is newer.
struct Writer<'a> {
    process: rusqlite::Statement<'a>,
    entry: rusqlite::Statement<'a>,
    name: rusqlite::Statement<'a>,
    no_process: rusqlite::Statement<'a>,
    no_entry: rusqlite::Statement<'a>,
    no_name: rusqlite::Statement<'a>,
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection) -> Result<Writer<'a>, rusqlite::Error> {
        let newer = "WHERE excluded.position > position";
        let upsert = |table: &str, columns: &str, key: &str| {
            let values: Vec<String> = (1..=columns.split(", ").count()).map(|number| format!("?{number}")).collect();
            let set: Vec<String> = columns.split(", ").map(|name| format!("{name} = excluded.{name}")).collect();
            let (values, set) = (values.join(", "), set.join(", "));
            let text = format!(
                "INSERT INTO {table}({columns}) VALUES ({values}) ON CONFLICT({key}) DO UPDATE SET {set} {newer}"
            );
            connection.prepare(&text)
        };
        Ok(Writer {
            process: upsert("processes", PROCESS, "serial")?,
            entry: upsert("entries", ENTRY, "serial, class, number")?,
            name: upsert("names", NAME, "class, name")?,
            no_process: connection.prepare("DELETE FROM processes WHERE serial = ?1 AND position < ?2")?,
            no_entry: connection
                .prepare("DELETE FROM entries WHERE serial = ?1 AND class = ?2 AND number = ?3 AND position < ?4")?,
            no_name: connection.prepare("DELETE FROM names WHERE class = ?1 AND name = ?2 AND position < ?3")?,
        })
    }

    fn write(&mut self, position: Position, crc: u32, change: &Change) -> Result<usize, rusqlite::Error> {
        let at = position.0;
        match change {
            Change::Process { serial, row: Some(row) } => self.process.execute(params![
                serial,
                at,
                crc,
                row.status as u8,
                row.kind,
                row.version,
                row.state,
                row.head
            ]),
            Change::Process { serial, row: None } => self.no_process.execute(params![serial, at]),
            Change::Entry { serial, class, number, row: Some(row) } => {
                self.entry.execute(params![serial, class, number, at, crc, row.due, row.body])
            }
            Change::Entry { serial, class, number, row: None } => {
                self.no_entry.execute(params![serial, class, number, at])
            }
            Change::Name { class, name, row: Some(row) } => {
                self.name.execute(params![class, name, at, crc, row.serial, row.body])
            }
            Change::Name { class, name, row: None } => self.no_name.execute(params![class, name, at]),
        }
    }
}

/// The row of the counts. `None` if it cannot be read: a check reports that.
fn read_counts(connection: &Connection) -> Result<Option<NameRow>, JournalError> {
    match read_name(connection, COUNTS.0, COUNTS.1) {
        Err(JournalError::Damaged(_)) => Ok(None),
        row => row,
    }
}

/// Reads the position up to which the tables have all changes.
pub(super) fn read_mark(connection: &Connection) -> Result<Position, JournalError> {
    let read = |row: &Row<'_>| Ok((row.get::<_, u64>(0)?, row.get::<_, u32>(1)?));
    let found = connection.query_row("SELECT position, crc FROM mark", [], read);
    let (position, crc) = found.map_err(|error| match error.sqlite_error_code() {
        None => JournalError::Damaged(Damage::Mark),
        Some(_) => failed(connection, "reading the mark")(error),
    })?;
    let position = Position(position);
    if mark_crc(position) == crc { Ok(position) } else { Err(JournalError::Damaged(Damage::Mark)) }
}

fn mark_crc(position: Position) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(b"mark");
    crc.update(&position.0.to_le_bytes());
    crc.finalize()
}

/// Adds the damage that one part of a check has found. Other errors end the check.
fn collect(part: Result<Vec<Damage>, JournalError>, found: &mut Vec<Damage>) -> Result<(), JournalError> {
    match part {
        Ok(damage) => found.extend(damage),
        Err(JournalError::Damaged(damage)) => found.push(damage),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// The damage that SQLite itself finds in a file.
fn check_file(connection: &Connection) -> Result<Vec<Damage>, JournalError> {
    let failed = failed(connection, "checking a file");
    let mut check = connection.prepare("PRAGMA integrity_check").map_err(&failed)?;
    let lines: Result<Vec<String>, _> = check.query_map([], |row| row.get(0)).and_then(Iterator::collect);
    let lines = lines.map_err(&failed)?.into_iter().filter(|line| line != "ok");
    Ok(lines.map(Damage::File).collect())
}

fn check_rows(
    connection: &Connection,
    text: &str,
    read: impl Fn(&Row<'_>) -> Result<Read, rusqlite::Error>,
) -> Result<Vec<Damage>, JournalError> {
    let failed = failed(connection, "checking rows");
    let mut select = connection.prepare(text).map_err(&failed)?;
    let mut rows = select.query([]).map_err(&failed)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(&failed)? {
        match read(row) {
            Ok(read) => found.extend(read.checked().err()),
            Err(error) => found.push(Damage::File(error.to_string())),
        }
    }
    Ok(found)
}
