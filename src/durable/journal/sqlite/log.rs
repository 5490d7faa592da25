//! The log of a store: one row for each batch.

use rusqlite::{Connection, params};

use super::checkpoints::Checkpoints;
use super::connection::{Guarded, failed};
use crate::durable::journal::batch::{Batch, read_batch};
use crate::durable::journal::contract::Log;
use crate::durable::journal::error::{Damage, JournalError, Position};

pub(super) const TABLES: &str = "CREATE TABLE log(position INTEGER PRIMARY KEY, count INTEGER NOT NULL, \
     crc INTEGER NOT NULL, body BLOB NOT NULL);";

/// The name of the file.
pub(super) const FILE: &str = "log.db";

/// How many bytes of batches one call of [`Log::trim`] removes, at most one batch more.
const TRIMMED: u64 = 4 << 20;

/// The bytes that a commit writes besides its batch, about.
const PAGES: u64 = 8 << 10;

#[derive(Debug)]
pub(super) struct SqliteLog {
    file: Guarded,
    last: Position,
    checkpoints: Checkpoints,
}

impl SqliteLog {
    pub(super) fn new(file: Guarded, last: Position) -> SqliteLog {
        SqliteLog { file, last, checkpoints: Checkpoints::default() }
    }
}

impl Log for SqliteLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        if batch.is_empty() {
            return Ok(());
        }
        let last = self.last;
        if batch.first() != last.next() {
            return self.file.call(|_| Err(JournalError::Order { first: batch.first(), last }));
        }
        self.checkpoints.make(&mut self.file, FILE)?;
        self.checkpoints.add(batch.size() as u64 + PAGES);
        self.file.write("a commit", |connection| {
            let row = params![batch.first().0 as i64, batch.count() as i64, batch.head_crc(), batch.body()];
            let text = "INSERT INTO log VALUES (?1, ?2, ?3, ?4)";
            connection.execute(text, row).map_err(failed(connection, "a commit"))
        })?;
        self.last = batch.last();
        Ok(())
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        let SqliteLog { file, last, checkpoints } = self;
        checkpoints.make(file, FILE)?;
        let through = applied.min(file.held.applied());
        file.write("trimming the log", |connection| {
            let failed = failed(connection, "trimming the log");
            // A batch ends where the next one begins. Its count may be damaged, and is not asked.
            let text = "SELECT position, length(body) FROM log WHERE position < ?1 AND coalesce(\
                        (SELECT min(later.position) FROM log AS later WHERE later.position > log.position), ?2) <= ?1 \
                        ORDER BY position";
            let mut select = connection.prepare(text).map_err(&failed)?;
            let mut rows = select.query([through.next().0 as i64, last.next().0 as i64]).map_err(&failed)?;
            let (mut end, mut bytes) = (None, 0);
            while let Some(row) = rows.next().map_err(&failed)? {
                end = Some(row.get::<_, i64>(0).map_err(&failed)?);
                bytes += row.get::<_, u64>(1).map_err(&failed)?;
                if bytes >= TRIMMED {
                    break;
                }
            }
            drop(rows);
            let Some(end) = end else { return Ok(false) };
            checkpoints.add(bytes / 256 + PAGES);
            connection.execute("DELETE FROM log WHERE position <= ?1", [end]).map_err(&failed)?;
            Ok(bytes >= TRIMMED)
        })
    }
}

/// Reads the records after one position, up to another one, as they are stored. Stops after the batch with which `most`
/// bytes are read. Returns the position of the last record of that batch, if it is after the first position.
///
/// Records must follow each other.
pub(super) fn read_log(
    connection: &Connection,
    (after, through): (Position, Position),
    most: u64,
    mut found: impl FnMut(Position, &[u8]) -> Result<(), Damage>,
) -> Result<Option<Position>, JournalError> {
    let failed = failed(connection, "reading the log");
    // It begins with the batch that may have the first wanted record. No count decides, because it may be damaged.
    let text = "SELECT position, count, crc, body FROM log \
                WHERE position >= (SELECT coalesce(max(position), 0) FROM log WHERE position <= ?1) AND position <= ?2 \
                ORDER BY position";
    let mut select = connection.prepare(text).map_err(&failed)?;
    let limit = |position: Position| i64::try_from(position.0).unwrap_or(i64::MAX);
    let mut rows = select.query([limit(after.next()), limit(through)]).map_err(&failed)?;
    let (mut next, mut bytes) = (None, 0);
    while bytes < most
        && let Some(row) = rows.next().map_err(&failed)?
    {
        let number = |column| row.get::<_, i64>(column).ok().and_then(|number| u64::try_from(number).ok());
        let expected = next.unwrap_or(after.next());
        let damaged = || JournalError::Damaged(Damage::Record(expected));
        let (first, count) = (Position(number(0).ok_or_else(damaged)?), number(1).ok_or_else(damaged)?);
        let crc = number(2).and_then(|crc| u32::try_from(crc).ok()).ok_or_else(damaged)?;
        let body = row.get_ref(3).ok().and_then(|body| body.as_blob().ok()).ok_or_else(damaged)?;
        if next.is_some_and(|next| first != next) || first > after.next() && next.is_none() {
            return Err(JournalError::Damaged(Damage::Missing(expected)));
        }
        let wanted = |position: Position, bytes: &[u8]| match position > after && position <= through {
            true => found(position, bytes),
            false => Ok(()),
        };
        read_batch(first, count, crc, body, wanted).map_err(JournalError::Damaged)?;
        next = Some(Position(first.0 + count));
        bytes += body.len() as u64;
    }
    Ok(next.map(|next| Position(next.0 - 1)).filter(|last| *last > after))
}
