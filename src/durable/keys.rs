//! The keys of messages that the tables do not have yet: see [`Store::send_once`](super::Store::send_once).

use std::collections::HashMap;

use super::journal::Position;
use super::tail::Life;
use crate::primitives::{Mutex, MutexGuard, lock};

/// Where the records of keyed messages are, by the names of their keys.
#[derive(Default)]
pub(super) struct Keys(Mutex<HashMap<String, (Life, Position)>>);

impl Keys {
    /// A sender keeps the lock from its look at the tables until its record is appended. So of two senders with one
    /// key, the second finds the record of the first.
    pub(super) fn enter(&self) -> MutexGuard<'_, HashMap<String, (Life, Position)>> {
        lock(&self.0)
    }

    /// A key is kept no longer.
    pub(super) fn forget(&self, name: &str) {
        lock(&self.0).remove(name);
    }

    /// The tables have all records up to this one.
    pub(super) fn forget_applied(&self, applied: Position) {
        lock(&self.0).retain(|_, (_, position)| *position > applied);
    }

    /// The journal was opened anew, and its tables have everything that is on disk.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }
}
