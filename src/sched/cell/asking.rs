//! Queries to a cell that find cycles of asks. `sched/ask_cycles.rs` has the protocol.

use super::{BodyState, Cell, Inner, WAITS};
use crate::primitives::{Arc, enter};
use crate::process::{Ask, Pid};
use crate::sched::body::Body;

/// The wait of a process for one answer.
pub(crate) struct AskWait {
    /// The number of the process's rest.
    rest: u64,
    /// The process that alone can answer.
    pub(crate) asked: Pid,
    pub(crate) ask: Arc<Ask>,
}

impl AskWait {
    /// Whether this is the same wait as `before`, and the ask is open at this very moment.
    pub(crate) fn is_still(&self, before: &AskWait) -> bool {
        self.rest == before.rest && self.ask.is_open_now()
    }
}

impl Cell {
    /// Returns the process for whose answer this one waits, if it rests and waits for one answer.
    pub(crate) fn waits_for(&self, pid: Pid) -> Option<Pid> {
        let inner = enter(&self.inner);
        inner.waiting(pid)?.head.waits_for()
    }

    /// As `waits_for`, with what a second look needs.
    pub(crate) fn ask_wait(&self, pid: Pid) -> Option<AskWait> {
        let inner = enter(&self.inner);
        let ask = inner.waiting(pid)?.head.only_ask()?;
        Some(AskWait { rest: inner.steps, asked: ask.waits_for()?, ask: ask.clone() })
    }
}

impl Inner {
    /// Returns the body, if it rests until a command is answered.
    fn waiting(&self, pid: Pid) -> Option<&Body> {
        match &self.body {
            BodyState::Resting(body) if self.stamp & WAITS != 0 && self.missing(pid).is_none() => Some(body),
            _ => None,
        }
    }
}
