//! Copies the tables into a folder, in pieces.
//!
//! The copy is one snapshot: it begins while no application is halfway, and SQLite keeps it for the reader. The pieces
//! are synced one by one, and the pause after each is three times as long as the piece took. So a commit waits for the
//! sync of one piece at most, and has the disk to itself for three quarters of the time. A piece is so small that its
//! sync takes about as long as that of a commit. Meanwhile the WAL of the tables grows, because the snapshot needs it.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::connection::failed;
use crate::clock::Clock;
use crate::durable::journal::error::JournalError;
use crate::latch::Latch;

const COPYING: &str = "copying the tables";

/// The pages of a piece: 64 KiB. The sync of so few pages takes about as long as that of a commit, which may wait for
/// it.
const PIECE: i32 = 16;

/// The cache of the connection that writes, in KiB. The pages of a piece are mostly written before its sync.
const CACHE: i64 = 64;

/// The pause after a piece, as a multiple of the time that the piece took. Commits have the disk to themselves
/// meanwhile.
const PAUSES: u32 = 3;

/// The longest pause. A sync that takes long does not keep the snapshot for long.
const LONGEST: Duration = Duration::from_millis(100);

/// Copies the snapshot that `source` reads into a file of a new folder. The copy is on disk when this returns.
pub(super) fn copy_into(source: &Connection, folder: &Path, name: &str) -> Result<(), JournalError> {
    let io = |error| JournalError::of_system(COPYING, error);
    // `create_dir` fails if the folder exists, because the folder may hold a store.
    std::fs::create_dir(folder).map_err(io)?;
    let path = folder.join(name);
    let mut copy = Connection::open(&path).map_err(failed(source, COPYING))?;
    let prepared = copy
        .pragma_update(None, "cache_size", -CACHE)
        .and_then(|()| copy.pragma_update(None, "synchronous", "off"))
        // An incomplete copy is no store: it is not rolled back.
        .and_then(|()| copy.pragma_update_and_check(None, "journal_mode", "off", |_| Ok(())));
    prepared.map_err(failed(&copy, COPYING))?;
    // Nothing sets this latch: it only serves to pause.
    let (clock, pause) = (Clock::system(), Latch::<()>::new());
    let file = File::options().write(true).open(&path).map_err(io)?;
    {
        let backup = Backup::new(source, &mut copy).map_err(failed(source, COPYING))?;
        loop {
            let begun = clock.now();
            match backup.step(PIECE).map_err(failed(source, COPYING))? {
                StepResult::Done => break,
                StepResult::More => {
                    file.sync_data().map_err(io)?;
                    let _ = pause.wait_timeout((PAUSES * clock.now().saturating_duration_since(begun)).min(LONGEST));
                }
                // No other connection uses the copy, and a reader of a snapshot is never locked out.
                _ => return Err(JournalError::Broken),
            }
        }
    }
    // In the mode `wal`, a reader of the copy would need a WAL file.
    let settled = copy.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()));
    settled.map_err(failed(&copy, COPYING))?;
    drop(copy);
    file.sync_all().map_err(io)?;
    #[cfg(unix)]
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok(())
}
