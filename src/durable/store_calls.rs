//! The calls of a store for operators.

use serde_json::Value;

use super::error::StoreError;
use super::journal::Damage;
use super::mail_counts::MailCounts;
use super::query::{Listed, Query, Request, Shown, ShownDead};
use super::repair::Action;
use super::store::Store;
use crate::pid::Pid;
use crate::runtime::StoreStats;

impl Store {
    /// Lists the processes that a query selects, as they are on disk. If the query has no limit, the list has at most
    /// 1,000 processes.
    ///
    /// # Errors
    ///
    /// The tables cannot be read.
    pub fn list(&self, query: &Query) -> Result<Vec<Listed>, StoreError> {
        self.operator().read(|desk| desk.list(query))
    }

    /// Counts the processes that a query selects.
    ///
    /// # Errors
    ///
    /// The tables cannot be read.
    pub fn count(&self, query: &Query) -> Result<u64, StoreError> {
        self.operator().read(|desk| desk.count(query))
    }

    /// Counts of the store at this moment. [`Snapshot::with_store`](crate::observe::Snapshot::with_store) adds them to
    /// the figures of a runtime. As each reading call, it brings the tables up to the log. It counts the parked
    /// processes by their index, so its cost grows with their number.
    ///
    /// If the tables cannot be read, and in a step of a process, [`StoreStats::parked`] is `None`. All other counts are
    /// in memory.
    pub fn stats(&self) -> StoreStats {
        self.operator().stats(self.count(&Query::all().parked()).ok())
    }

    /// Returns everything that the store has of a process, as it is on disk.
    ///
    /// # Errors
    ///
    /// There is no such process, or the tables cannot be read.
    pub fn show(&self, pid: Pid) -> Result<Shown, StoreError> {
        let operator = self.operator();
        let serial = operator.serial_of(pid)?;
        operator.read(|desk| desk.show(serial))
    }

    /// Has a parked process try again, with the event that it could not take. Returns when this is on disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotRepaired`]: there is no such process, or it is not parked.
    pub fn retry(&self, pid: Pid) -> Result<(), StoreError> {
        let operator = self.operator();
        operator.order(operator.serial_of(pid)?, Action::Retry)
    }

    /// Has a parked process go on without the event that its step cannot take. A message becomes a dead letter. Returns
    /// when this is on disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotRepaired`]: there is no such process, it is not parked, or its step fails without a message or
    /// an answer.
    pub fn skip(&self, pid: Pid) -> Result<(), StoreError> {
        let operator = self.operator();
        operator.order(operator.serial_of(pid)?, Action::Skip)
    }

    /// Gives a parked process another state, as JSON, and has it try again. Returns when this is on disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotRepaired`]: there is no such process, it is not parked, or the state cannot be read as one of
    /// its kind. [`StoreError::NotStored`]: the program does not know the kind.
    pub fn replace(&self, pid: Pid, state: &str) -> Result<(), StoreError> {
        let operator = self.operator();
        operator.replace(operator.serial_of(pid)?, state)
    }

    /// Ends a process. It may be asleep or parked, or of a kind that the program does not know. Its mail becomes dead
    /// letters. Returns when its end is on disk.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotRepaired`]: there is no such process.
    pub fn terminate(&self, pid: Pid) -> Result<(), StoreError> {
        self.operator().terminate(pid)
    }

    /// Has all parked processes that a query selects try again. Returns their number.
    ///
    /// # Errors
    ///
    /// The tables cannot be read, or the change of a process was not stored.
    pub fn retry_all(&self, query: &Query) -> Result<u64, StoreError> {
        self.operator().order_all(query, &Action::Retry)
    }

    /// Has all parked processes that a query selects go on, each without the event that its step cannot take. Returns
    /// their number.
    ///
    /// # Errors
    ///
    /// As [`retry_all`](Self::retry_all).
    pub fn skip_all(&self, query: &Query) -> Result<u64, StoreError> {
        self.operator().order_all(query, &Action::Skip)
    }

    /// Lists dead letters in the order of their receivers, at most `limit` of them. The list begins after the dead
    /// letter `after`, or at the first one.
    ///
    /// # Errors
    ///
    /// The tables cannot be read.
    pub fn dead_letters(&self, after: Option<&ShownDead>, limit: usize) -> Result<Vec<ShownDead>, StoreError> {
        let operator = self.operator();
        let after = match after {
            Some(dead) => (operator.serial_of(dead.to)?, dead.number),
            None => (0, 0),
        };
        operator.read(|desk| desk.dead_letters(after, limit))
    }

    /// Sends a dead letter to its receiver again, after all other mail. Returns when this is on disk. If the receiver
    /// is in memory, it leaves memory and is loaded again, and its futures are answered with `Interrupted`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotRepaired`]: the receiver has ended, or there is no such dead letter.
    pub fn resend(&self, dead: &ShownDead) -> Result<(), StoreError> {
        let operator = self.operator();
        operator.order(operator.serial_of(dead.to)?, Action::Resend(dead.number))
    }

    /// Reads everything that is stored, and returns all damage. Meanwhile no process is loaded.
    ///
    /// # Errors
    ///
    /// The files cannot be read.
    pub fn check(&self) -> Result<Vec<Damage>, StoreError> {
        self.operator().check()
    }

    /// Counts the stored messages over the whole life of the store.
    ///
    /// It counts what is on disk. It reads all messages that wait. No process is loaded meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError::Journal`] with [`Damage::Mail`] if messages are missing, or were taken twice.
    pub fn mail_counts(&self) -> Result<MailCounts, StoreError> {
        self.operator().mail_counts()
    }

    /// Copies the store into a folder that does not exist yet. The copy can be opened as a store. It has everything
    /// that was on disk when the call began. The store goes on meanwhile.
    ///
    /// # Errors
    ///
    /// The folder exists already, or cannot be written.
    pub fn backup(&self, folder: impl AsRef<std::path::Path>) -> Result<(), StoreError> {
        self.operator().backup(folder.as_ref())
    }

    /// Carries out a request of an operator. The answer is JSON: see the variants of [`Request`].
    ///
    /// # Errors
    ///
    /// The errors of the methods of the same names.
    pub fn operate(&self, request: &Request) -> Result<Value, StoreError> {
        self.operator().carry_out(request)
    }
}
