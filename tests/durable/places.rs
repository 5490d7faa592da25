//! The places that a journal can be in. Every test of the conformance suite runs in all of them.

use std::fmt::Debug;
#[cfg(feature = "sqlite")]
use std::path::{Path, PathBuf};
#[cfg(feature = "sqlite")]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "sqlite")]
use procession::durable::journal::SqliteJournal;
use procession::durable::journal::{Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Store, StoreBuilder};

/// A store in this journal. With `PROCESSION_AHEAD=0` all steps of the suite wait for the disk.
pub(crate) fn store_in(journal: impl Journal + 'static) -> StoreBuilder {
    Store::with_journal(journal).ahead(is_ahead())
}

/// Whether steps do not wait for the disk.
pub(crate) fn is_ahead() -> bool {
    std::env::var_os("PROCESSION_AHEAD").is_none_or(|value| value != "0")
}

/// Whether a test goes on that holds a commit back and looks at the steps that go ahead of the disk.
pub(crate) fn goes_ahead() -> bool {
    if !is_ahead() {
        println!("left out: steps wait for the disk");
    }
    is_ahead()
}

/// A place for one journal, which outlives it.
pub(crate) trait Place: Debug {
    fn journal(&self) -> Box<dyn Journal>;

    /// The program ends, and its journal is gone. Call it when all parts are dropped or will not be used again.
    fn crash(&self);
}

#[derive(Debug)]
struct InMemory(MemoryDisk);

impl Place for InMemory {
    fn journal(&self) -> Box<dyn Journal> {
        Box::new(MemoryJournal::new(&self.0))
    }

    fn crash(&self) {
        self.0.crash();
    }
}

/// One new place of each kind.
pub(crate) fn places() -> Vec<Box<dyn Place>> {
    vec![
        Box::new(InMemory(MemoryDisk::new())),
        #[cfg(feature = "sqlite")]
        Box::new(Directory::new()),
    ]
}

/// A directory of its own, which is removed at the end. It is in memory if the system has such a file system.
#[cfg(feature = "sqlite")]
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

#[cfg(feature = "sqlite")]
impl Directory {
    pub(crate) fn new() -> Directory {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.into() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Directory(parent.join(format!("procession-durable-{}-{number}", std::process::id())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(feature = "sqlite")]
impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(feature = "sqlite")]
impl Place for Directory {
    fn journal(&self) -> Box<dyn Journal> {
        Box::new(SqliteJournal::new(&self.0))
    }

    /// Closing a journal writes nothing, so its files are those of a killed program.
    fn crash(&self) {}
}
