//! The stored messages of a process that become dead letters, until the records of that are on disk.
//!
//! One record removes the row of a message and writes its dead letter. A second one would count the message twice. Two
//! threads could append one: the one that was refused the message, and a load that reads its row.
//!
//! | arrow | with the lock of the residence | `open` | `last` |
//! |---|---|---|---|
//! | `begin` | the message finds nobody, or its row was read and the process has ended | more | |
//! | `appended` | its record is in the tail, or is refused | less | the record, if there is one |
//! | `settle` | the writer has told the fate of a record | | none, if it is not in the tail any more |
//!
//! # Why no message is a dead letter twice
//!
//! - *A load before `begin`.* A message finds nobody in the lock section that appends it. Mail that waits begins in the
//!   section that makes its process nobody, and its load is the only one. So do rows that were read.
//! - *A load between `begin` and `settle`.* It reads nothing while a burial is open, or while `last` is not on disk. It
//!   looks again under the lock when it has read. If a burial is there since, it reads again.
//! - *A residence that was removed.* A residence stays until its burials are over. The residence of a process that has
//!   ended stays until its end is on disk, because until then the process may be in memory.
//! - *A load of the present life, and a record of an earlier one.* The record is refused, because it is appended in the
//!   life of its message. A load that finds that its life is over reads again.
//!
//! If a record is refused or lost, the row stays. Messages with questions are looked at again, and all others at the
//! next start or the next load. Observers are notified of the dead letters when no burial of these messages is open: an
//! observer may take long, and a load waits for open burials.

use super::journal::{Change, Position};
use super::tail::Life;

/// The burials of a process.
#[derive(Debug, Default)]
pub(super) struct Burial {
    /// The messages whose records are about to be appended.
    open: usize,
    /// The last record that is not known to be on disk.
    last: Option<(Life, Position)>,
}

/// Messages of a process that become dead letters in a record of this life.
pub(super) struct Buried {
    pub(super) life: Life,
    pub(super) changes: Vec<Change>,
    /// How many of them have begun.
    pub(super) begun: usize,
}

impl Burial {
    pub(super) fn begin(&mut self, messages: usize) {
        self.open += messages;
    }

    /// The record of these messages was appended, or is refused.
    pub(super) fn appended(&mut self, messages: usize, record: Option<(Life, Position)>) {
        self.open = self.open.saturating_sub(messages);
        self.last = record.or(self.last);
    }

    /// The fate of a record is known. `is_settled` says whether that of another one is.
    pub(super) fn settle(&mut self, is_settled: impl FnOnce((Life, Position)) -> bool) {
        self.last = self.last.filter(|record| !is_settled(*record));
    }

    pub(super) fn is_open(&self) -> bool {
        self.open > 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.open == 0 && self.last.is_none()
    }

    pub(super) fn last(&self) -> Option<(Life, Position)> {
        self.last
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
