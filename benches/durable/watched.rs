//! A journal that is watched: how long its commits take, and how much its log has. Its applications can be held up.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use procession::durable::journal::{
    Batch, CopyTables, Damage, Journal, JournalError, Log, Opened, Position, Reader, SqliteJournal, Tables,
};
use procession::sync::Latch;

/// The observations of a journal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The batches that the tables do not have: their last positions and their sizes.
    batches: VecDeque<(Position, u64)>,
    holds_applications: bool,
    /// The end of the last commit.
    committed: Option<Instant>,
    longest: Longest,
}

/// The longest times of commits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Longest {
    pub(crate) commit: Duration,
    /// From the end of a commit to the beginning of the next one. The writer waits here if the tables are late.
    pub(crate) pause: Duration,
}

impl Watch {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes of the log that the tables do not have.
    pub(crate) fn unapplied(&self) -> u64 {
        self.seen().batches.iter().map(|(_, size)| size).sum()
    }

    /// From now on no application begins.
    pub(crate) fn hold_applications(&self) {
        self.seen().holds_applications = true;
    }

    /// The longest times since the last call.
    pub(crate) fn take_longest(&self) -> Longest {
        let mut seen = self.seen();
        seen.committed = None;
        std::mem::take(&mut seen.longest)
    }
}

/// The journal.
pub(crate) struct Watched(pub(crate) SqliteJournal, pub(crate) Watch);

#[derive(Debug)]
struct WatchedLog(Box<dyn Log>, Watch);

#[derive(Debug)]
struct WatchedTables(Box<dyn Tables>, Watch);

impl Journal for Watched {
    fn open(&mut self) -> Result<Opened, JournalError> {
        let Opened { recovered, log, tables } = self.0.open()?;
        let log = Box::new(WatchedLog(log, self.1.clone()));
        Ok(Opened { recovered, log, tables: Box::new(WatchedTables(tables, self.1.clone())) })
    }

    fn folder(&self) -> Option<&Path> {
        self.0.folder()
    }
}

impl Log for WatchedLog {
    fn commit(&mut self, batch: &Batch) -> Result<(), JournalError> {
        let begin = Instant::now();
        self.0.commit(batch)?;
        let end = Instant::now();
        let mut seen = self.1.seen();
        seen.batches.push_back((batch.last(), batch.size() as u64));
        seen.longest.commit = seen.longest.commit.max(end - begin);
        if let Some(before) = seen.committed.replace(end) {
            seen.longest.pause = seen.longest.pause.max(begin - before);
        }
        Ok(())
    }

    fn trim(&mut self, applied: Position) -> Result<bool, JournalError> {
        self.0.trim(applied)
    }
}

impl Tables for WatchedTables {
    fn apply_some(&mut self, through: Position) -> Result<Position, JournalError> {
        if self.1.seen().holds_applications {
            // Until the program ends.
            Latch::<()>::new().wait();
        }
        let applied = self.0.apply_some(through)?;
        let mut seen = self.1.seen();
        while seen.batches.pop_front_if(|(last, _)| *last <= applied).is_some() {}
        Ok(applied)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, JournalError> {
        self.0.reader()
    }

    fn copy(&self) -> Result<CopyTables, JournalError> {
        self.0.copy()
    }

    fn check(&mut self) -> Result<Vec<Damage>, JournalError> {
        self.0.check()
    }
}
