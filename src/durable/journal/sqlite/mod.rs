//! The journal in two files of SQLite: `log.db` has the batches, `tables.db` the rows.
//!
//! They are two files, because SQLite has one writer a file: a commit must not wait for an application.

mod checkpoints;
mod connection;
mod copying;
mod lock_file;
mod log;
mod reader;
mod tables;
#[cfg(test)]
mod tests;
mod wal_damage;

use std::fs;
use std::path::{Path, PathBuf};

use self::connection::{Guarded, Held, open, open_reader, use_small_cache};
use self::lock_file::LockFile;
use self::log::{SqliteLog, read_log};
use self::tables::{SqliteTables, read_mark};
use super::contract::{Journal, Opened, Recovered};
use super::error::{JournalError, Position};
use crate::primitives::Arc;

/// A journal in a directory.
///
/// The directory has the files `lock`, `log.db` and `tables.db`, and files that SQLite makes beside them. One journal
/// has a directory at a time, of all processes of the operating system.
#[derive(Debug)]
pub struct SqliteJournal {
    directory: PathBuf,
    held: Option<Arc<Held>>,
}

impl SqliteJournal {
    /// Makes a journal in this directory. Nothing is read or written until it is opened. Then it holds the directory
    /// until it and all its parts are dropped.
    pub fn new(directory: impl AsRef<Path>) -> SqliteJournal {
        SqliteJournal { directory: directory.as_ref().into(), held: None }
    }

    /// Makes the directory, and locks it.
    fn hold(&mut self) -> Result<Arc<Held>, JournalError> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        make_directory(&self.directory).map_err(|error| JournalError::of_system("making the directory", error))?;
        let held = Arc::new(Held::new(LockFile::lock(&self.directory.join("lock"))?));
        self.held = Some(held.clone());
        Ok(held)
    }
}

impl Journal for SqliteJournal {
    fn folder(&self) -> Option<&Path> {
        Some(&self.directory)
    }

    fn open(&mut self) -> Result<Opened, JournalError> {
        let held = self.hold()?;
        let opening = held.begin_opening();
        let (log_path, tables_path) = (self.directory.join(log::FILE), self.directory.join(tables::TABLES_FILE));
        let tables = open(&tables_path, tables::TABLES)?;
        let log = open(&log_path, log::TABLES)?;
        let log_reader = open_reader(&log_path)?;
        use_small_cache(&log)?;
        use_small_cache(&log_reader)?;
        let applied = read_mark(&tables)?;
        // The records are decoded when they are applied. Here it only matters that all are there and undamaged.
        let end = read_log(&log, (applied, Position(u64::MAX)), u64::MAX, |_, _| Ok(()))?;
        let last = end.unwrap_or(applied);
        held.set_applied(applied);
        let tables = Guarded::new(tables, opening, &held);
        Ok(Opened {
            recovered: Recovered { last, applied },
            log: Box::new(SqliteLog::new(Guarded::new(log, opening, &held), last)),
            tables: Box::new(SqliteTables::new(tables, log_reader, tables_path)),
        })
    }
}

/// Makes a directory. Its name is on disk when this returns, and so are the names of those above it that were made.
fn make_directory(directory: &Path) -> std::io::Result<()> {
    // The parent of a relative path with one part is empty.
    let here = |path: &Path| if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() };
    let above: Vec<PathBuf> = directory.ancestors().skip(1).map(here).collect();
    let made = above.iter().take_while(|path| !path.is_dir()).count();
    let was_there = directory.is_dir();
    fs::create_dir_all(directory)?;
    #[cfg(unix)]
    for path in above.iter().take(made + 1) {
        let synced = fs::File::open(path).and_then(|parent| parent.sync_all());
        // A directory that was there may be in one that this program may not read.
        if !was_there {
            synced?;
        }
    }
    Ok(())
}
