//! What is asked of a cell by who looks for asks that form a cycle; `sched/asks.rs` has the protocol.

use super::Cell;
use super::Inner;
use super::Place;
use super::WAITS;
use crate::process::body::Body;
use crate::process::{Pid, ProcessAsk};
use crate::sync::{Arc, enter};

/// One of the questions of a process that rests.
pub(crate) enum Question {
    Open(Arc<ProcessAsk>),
    Decided,
    /// There are no more.
    NoMore,
}

impl Cell {
    /// Whom the process has asked last, if it rests and, by all that can be seen at a glance, waits for nothing but answers.
    pub(crate) fn asking(&self, pid: Pid) -> Option<Pid> {
        let inner = enter(&self.inner);
        let head = &inner.waiting(pid)?.head;
        head.asking()
    }

    /// If the process rests until a command is answered: which of its rests this is, and how many commands are outstanding.
    pub(crate) fn rests(&self, pid: Pid) -> Option<(u64, u32)> {
        let inner = enter(&self.inner);
        inner.waiting(pid).map(|body| (inner.steps, body.head.outstanding))
    }

    /// The question in this place, counted from the newest, if the process is still in this rest, in which questions keep
    /// their places.
    pub(crate) fn question(&self, pid: Pid, rest: u64, place: usize) -> Option<Question> {
        let inner = enter(&self.inner);
        let body = inner.waiting(pid).filter(|_| inner.steps == rest)?;
        Some(match body.head.rare.as_ref().and_then(|rare| rare.asked.newest_but(place)) {
            Some(ask) if !ask.is_decided() => Question::Open(ask.clone()),
            Some(_) => Question::Decided,
            None => Question::NoMore,
        })
    }
}

impl Inner {
    /// The body, if it rests until a command is answered.
    fn waiting(&self, pid: Pid) -> Option<&Body> {
        match &self.place {
            Place::Resting(body) if self.stamp & WAITS != 0 && self.missing(pid).is_none() => Some(body),
            _ => None,
        }
    }
}
