//! The questions of one process that may be open: for who ends it, and for who looks for asks that form a cycle.

use super::pid::Pid;
use super::reply::ProcessAsk;
use crate::sync::{Arc, Weak};

/// Questions that a process has asked, oldest first: all that are open, and some that are decided.
#[derive(Default)]
pub(crate) struct Asked {
    asks: Vec<Weak<ProcessAsk>>,
    // At how many to look for those that are decided.
    full: usize,
}

impl Asked {
    /// A question was asked. Now and then those that are decided are forgotten; it costs each question no more than a
    /// constant.
    pub(crate) fn note(&mut self, ask: &Arc<ProcessAsk>) {
        if self.asks.len() >= self.full {
            self.asks.retain(|ask| ask.upgrade().is_some_and(|ask| !ask.is_decided()));
            self.full = (self.asks.len() * 2).max(16);
        }
        self.asks.push(Arc::downgrade(ask));
    }

    /// Forgets those that are decided, from the newest up to one that is open.
    #[inline]
    pub(crate) fn forget_decided(&mut self) {
        while let Some(last) = self.asks.last() {
            if last.upgrade().is_some_and(|ask| !ask.is_decided()) {
                return;
            }
            self.asks.pop();
        }
    }

    /// Whom the newest question waits for, if that may be all that the process waits for: with so many commands
    /// outstanding, there is none but questions. That is said at a glance, and may be wrong in one way only: something else
    /// is outstanding, after all.
    #[inline]
    pub(crate) fn glance(&self, outstanding: u32) -> Option<Pid> {
        if self.asks.len() < outstanding as usize {
            return None;
        }
        self.asks.last()?.upgrade()?.waits_for()
    }

    /// The question in this place, counted from the newest. Nothing beyond the oldest; a question that is gone is decided.
    pub(crate) fn newest_but(&self, place: usize) -> Option<Option<Arc<ProcessAsk>>> {
        self.asks.iter().rev().nth(place).map(Weak::upgrade)
    }

    /// Takes out those that are open, and some that are decided.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<ProcessAsk>> {
        std::mem::take(&mut self.asks).into_iter().filter_map(|ask| ask.upgrade())
    }
}
