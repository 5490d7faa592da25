//! Connections to the files of a store, and the errors of SQLite.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::lock_file::LockFile;
use super::wal_damage;
use crate::durable::journal::error::{Damage, JournalError, Position};
use crate::outcome::{BoxError, tell_log};
use crate::primitives::{AtomicU64, Ordering};

/// The format of the files. A change of a table, of a batch or of a record makes a new one.
pub(super) const FORMAT: i64 = 1;

/// A file that SQLite keeps to write into it again is cut to this size, in bytes.
const WAL_LIMIT: u64 = 64 << 20;

/// How much memory a connection uses for pages, in KiB.
const CACHE: i64 = 1 << 10;

/// The same for a file that is read from its beginning to its end, so no page is read twice.
const SMALL_CACHE: i64 = 512;

/// A disk with less room than this is full, in bytes. It is more than the shared memory of SQLite grows by at once.
const PROBE: usize = 1 << 20;

/// How many bytes of a WAL are written again at once.
const CHUNK: usize = 1 << 20;

/// How long a call waits for the locks of another connection.
const BUSY: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(5) };

/// The store as its parts share it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) _lock: LockFile,
    opening: AtomicU64,
    applied: AtomicU64,
}

impl Held {
    pub(super) fn new(lock: LockFile) -> Held {
        Held { _lock: lock, opening: AtomicU64::new(0), applied: AtomicU64::new(0) }
    }

    /// Breaks the parts of the last opening, and returns the number of a new one.
    pub(super) fn begin_opening(&self) -> u64 {
        // Ordering: a part that was given to another thread came there by an operation that orders. A part of an
        // earlier opening that sees the old number has begun its call before.
        self.opening.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn is_opening(&self, number: u64) -> bool {
        self.opening.load(Ordering::Relaxed) == number
    }

    /// The position that the tables have on disk.
    pub(super) fn applied(&self) -> Position {
        // Ordering: `set_applied` comes after the commit of the mark. A reader that sees the mark may rely on it.
        Position(self.applied.load(Ordering::Acquire))
    }

    pub(super) fn set_applied(&self, applied: Position) {
        // Ordering: pairs with the load in `applied`. A thread with parts of an earlier opening may come later.
        self.applied.fetch_max(applied.0, Ordering::Release);
    }
}

/// A connection that stops at the first error.
#[derive(Debug)]
pub(super) struct Guarded {
    connection: Connection,
    is_broken: bool,
    opening: u64,
    /// The connection is closed before the store is unlocked.
    pub(super) held: crate::primitives::Arc<Held>,
}

impl Guarded {
    pub(super) fn new(connection: Connection, opening: u64, held: &crate::primitives::Arc<Held>) -> Guarded {
        Guarded { connection, is_broken: false, opening, held: held.clone() }
    }

    /// Makes a call, and breaks this connection if it fails.
    pub(super) fn call<T>(
        &mut self,
        call: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if self.is_broken {
            return Err(JournalError::Broken);
        }
        let result = self.read(call);
        self.is_broken = result.is_err();
        result
    }

    /// Makes a call in a transaction of its own, and commits that. If it fails, this connection is broken.
    pub(super) fn write<T>(
        &mut self,
        name: &'static str,
        call: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let (held, opening) = (self.held.clone(), self.opening);
        self.call(|connection| {
            let failed = failed(connection, name);
            // Dropping it rolls back.
            let transaction =
                Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(&failed)?;
            // An opening changes the number before it takes this lock. So a transaction that sees the old number is
            // committed before the opening reads the file.
            if !held.is_opening(opening) {
                return Err(JournalError::Broken);
            }
            let result = call(&transaction)?;
            transaction.commit().map_err(&failed)?;
            Ok(result)
        })
    }

    /// Makes a call that writes nothing. If it fails, later calls go on.
    pub(super) fn read<T>(&self, call: impl FnOnce(&Connection) -> Result<T, JournalError>) -> Result<T, JournalError> {
        if !self.held.is_opening(self.opening) {
            return Err(JournalError::Broken);
        }
        let result = call(&self.connection);
        // The next opening may have trimmed the rows that the call was reading. That is no damage.
        if result.is_err() && !self.held.is_opening(self.opening) {
            return Err(JournalError::Broken);
        }
        result
    }

    pub(super) fn opening(&self) -> u64 {
        self.opening
    }
}

/// Opens a file for writing, and makes its tables if it is new. All that it shows is on disk then.
pub(super) fn open(path: &Path, tables: &str) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_file(path, flags)?;
    let failed = failed(&connection, "opening a file");
    prepare(&connection).map_err(&failed)?;
    make_wal(&connection).map_err(&failed)?;
    connection.pragma_update(None, "synchronous", "full").map_err(&failed)?;
    connection.pragma_update(None, "journal_size_limit", WAL_LIMIT).map_err(&failed)?;
    // `checkpoint` does it, and returns its errors.
    connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(&failed)?;
    // A connection that has failed must not write when it is closed.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&failed)?;

    // Before the first write: a damaged WAL is kept as it is.
    write_again(&connection, path)?;
    let format: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(&failed)?;
    let is_new: bool =
        connection.query_row("SELECT count(*) = 0 FROM sqlite_master", [], |row| row.get(0)).map_err(&failed)?;
    if is_new && format == 0 {
        let text = format!("BEGIN IMMEDIATE; {tables} PRAGMA user_version = {FORMAT}; COMMIT;");
        connection.execute_batch(&text).map_err(&failed)?;
    } else if format != FORMAT {
        return Err(JournalError::Format { found: format, expected: FORMAT });
    }
    check_schema(&connection, tables)?;
    // A reader of another program may need pages of the WAL. They stay, and are on disk.
    connection.busy_timeout(Duration::ZERO).map_err(&failed)?;
    let progress = checkpoint(&connection, "TRUNCATE")?;
    connection.busy_timeout(BUSY).map_err(&failed)?;
    if progress.pages != 0 {
        let file = path.display();
        let text =
            "another connection uses the WAL of a file, so it cannot be truncated: end that connection, or it grows";
        tell_log(|| tracing::warn!(%file, "{text}"));
        cut_wal(&connection, path)?;
    }
    Ok(connection)
}

/// Lets a file have a WAL.
fn make_wal(connection: &Connection) -> Result<(), Error> {
    let mut pragma = connection.prepare("PRAGMA journal_mode = wal")?;
    let mut rows = pragma.query([])?;
    // The file is changed after the first row, and only the next step shows an error of that.
    while rows.next()?.is_some() {}
    Ok(())
}

/// Writes all bytes of the WAL again, and syncs it.
///
/// After a failed fsync the system shows bytes that are not on disk, and a second fsync does not write them. SQLite
/// would take them for synced, and copy pages into the main file that a loss of power takes from the WAL.
fn write_again(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    // A thread with parts of an earlier opening must not append meanwhile.
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(failed(connection, "locking a file"))?;
    let wal = wal_of(path);
    check_wal(&wal)?;
    let written = write_file_again(&wal).and_then(|()| {
        // SQLite ignores a failed sync of the directory.
        #[cfg(unix)]
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?;
        Ok(())
    });
    written.map_err(|error| JournalError::of_system("writing the WAL again", error))?;
    transaction.rollback().map_err(failed(connection, "unlocking a file"))
}

/// Cuts off everything behind the last transaction of a WAL that a reader has kept, and syncs that. `wal_damage` says
/// why. No reader looks there.
fn cut_wal(connection: &Connection, path: &Path) -> Result<(), JournalError> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)
        .map_err(failed(connection, "locking a file"))?;
    // SQLite knows where the next transaction is written: the file may have one that was complete, but failed. A
    // connection that has the write lock cannot ask for it. `NOOP` needs no lock. An older SQLite takes it for
    // `PASSIVE`, which does not know the number while another checkpoint runs: then nothing is cut.
    let other = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    other.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed(&other, "opening a file"))?;
    let Ok(frames) = u64::try_from(checkpoint(&other, "NOOP")?.pages) else { return Ok(()) };
    let cut =
        OpenOptions::new().read(true).write(true).open(wal_of(path)).and_then(|mut file| {
            match wal_damage::length(&mut file, frames)? {
                Some(length) if length < file.metadata()?.len() => file.set_len(length).and_then(|()| file.sync_all()),
                _ => Ok(()),
            }
        });
    cut.map_err(|error| JournalError::of_system("cutting the WAL", error))?;
    transaction.rollback().map_err(failed(connection, "unlocking a file"))
}

/// The WAL of a file.
fn wal_of(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

/// Refuses a WAL that is damaged. Nothing is written into a damaged WAL, because its pages may be needed to repair the
/// store.
fn check_wal(path: &Path) -> Result<(), JournalError> {
    let found = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened.and_then(wal_damage::find),
    };
    match found.map_err(|error| JournalError::of_system("reading the WAL", error))? {
        Some(at) => {
            let file = path.display();
            let text = format!(
                "{file} is damaged near byte {at}, and valid data is behind the damage: nothing was written, so copy \
                 the folder of the store first, and then open a backup, or the copy with its WAL cut at this byte"
            );
            Err(JournalError::Damaged(Damage::File(text)))
        }
        None => Ok(()),
    }
}

fn write_file_again(path: &Path) -> std::io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut chunk = Vec::new();
    loop {
        let at = file.stream_position()?;
        chunk.clear();
        Read::by_ref(&mut file).take(CHUNK as u64).read_to_end(&mut chunk)?;
        if chunk.is_empty() {
            return file.sync_all();
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&chunk)?;
    }
}

/// Compares the tables of a file with those that it was made with. A flipped bit in their text can make SQLite read
/// other columns, and find nothing wrong.
fn check_schema(connection: &Connection, tables: &str) -> Result<(), JournalError> {
    let failed = failed(connection, "reading the tables of a file");
    // SQLite makes tables of its own, for example those of `ANALYZE`.
    let text = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'";
    let mut select = connection.prepare(text).map_err(&failed)?;
    let found: Result<HashSet<String>, _> = select.query_map([], |row| row.get(0)).and_then(Iterator::collect);
    let statements = tables.split(';').map(str::trim).filter(|statement| statement.starts_with("CREATE"));
    if found.map_err(&failed)? == statements.map(String::from).collect() {
        return Ok(());
    }
    Err(JournalError::Damaged(Damage::File("the tables of a file are not those of its format".into())))
}

/// Opens a file for reading.
pub(super) fn open_reader(path: &Path) -> Result<Connection, JournalError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open_file(path, flags)?;
    let failed = failed(&connection, "opening a file for reading");
    prepare(&connection).map_err(&failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(&failed)?;
    Ok(connection)
}

/// Lets a connection use little memory for pages.
pub(super) fn use_small_cache(connection: &Connection) -> Result<(), JournalError> {
    connection.pragma_update(None, "cache_size", -SMALL_CACHE).map_err(failed(connection, "opening a file"))
}

fn open_file(path: &Path, flags: OpenFlags) -> Result<Connection, JournalError> {
    Connection::open_with_flags(path, flags).map_err(|error| journal_error(error, path, "opening a file"))
}

fn prepare(connection: &Connection) -> Result<(), Error> {
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", -CACHE)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cell_size_check", true)
}

/// The state of a WAL after a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// The pages of the WAL.
    pub(super) pages: i64,
    /// Those that are in the main file.
    pub(super) copied: i64,
}

/// Copies the pages of the WAL to the main file, as far as no reader needs those of the main file. If all are copied,
/// the next writer begins the WAL anew.
pub(super) fn checkpoint(connection: &Connection, mode: &str) -> Result<Progress, JournalError> {
    let text = format!("PRAGMA wal_checkpoint({mode})");
    let read = |row: &rusqlite::Row<'_>| Ok(Progress { pages: row.get(1)?, copied: row.get(2)? });
    connection.query_row(&text, [], read).map_err(failed(connection, "a checkpoint"))
}

/// Turns the errors of a call into those of a journal.
pub(super) fn failed(connection: &Connection, call: &'static str) -> impl Fn(Error) -> JournalError + Copy {
    move |error| journal_error(error, connection.path().unwrap_or_default().as_ref(), call)
}

fn journal_error(error: Error, file: &Path, call: &'static str) -> JournalError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => JournalError::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            tell_log(|| tracing::warn!(file = %file.display(), call, "another program has locked a file of the store"));
            JournalError::Busy { file: file.into() }
        }
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => io_or_full(call, error.into(), file),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            JournalError::Damaged(Damage::File(error.to_string()))
        }
        // A call whose text is fixed fails so only if the file has other tables.
        Some(ErrorCode::Unknown) => JournalError::Damaged(Damage::File(error.to_string())),
        Some(_) => JournalError::Io { call, source: error.into() },
        None => JournalError::Damaged(Damage::File(error.to_string())),
    }
}

/// Asks the disk whether it is full. SQLite tells that from an error only if a write of a file says it, and not for its
/// shared memory.
fn io_or_full(call: &'static str, source: BoxError, file: &Path) -> JournalError {
    if has_room(file) { JournalError::Io { call, source } } else { JournalError::Full }
}

/// Whether a file beside this one can be written and synced. Only a full disk is `false`, and no other error.
fn has_room(beside: &Path) -> bool {
    let path = beside.with_file_name("room");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&vec![1; PROBE])?;
        file.sync_all()
    });
    let _ = std::fs::remove_file(&path);
    !written.is_err_and(|error| matches!(JournalError::of_system("", error), JournalError::Full))
}
