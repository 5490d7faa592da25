//! Requests to poll the futures of a process. `sched/resident_waker.rs` has the protocol.

use super::{BodyState, Cell, Inner, POLLS, Settled, WAITS};
use crate::primitives::enter;
use crate::process::Pid;
use crate::sched::body::{Ready, Stepped, Verdict};

impl Cell {
    /// Makes the process poll its woken futures. A returned body was at rest, and only polls are due.
    pub(crate) fn request_poll(&self, pid: Pid) -> Option<Ready> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return None;
        }
        let Some(mut body) = inner.wake() else {
            inner.stamp |= POLLS;
            return None;
        };
        body.head.request_poll(true);
        Some(body)
    }

    /// As `request_poll`, also if the process is held. Then it is held no longer.
    #[cfg(feature = "durable")]
    pub(crate) fn poll_even_if_held(&self, pid: Pid) -> Option<Ready> {
        if let Some(body) = self.request_poll(pid) {
            return Some(body);
        }
        let mut inner = enter(&self.inner);
        // The poll is still requested, and is seen when the step is settled.
        if inner.missing(pid).is_some() { None } else { inner.take_held() }
    }

    /// Counts an item of a feed as queued. A returned body was at rest. Returns `None` if the process does not live.
    pub(crate) fn fed(&self, pid: Pid) -> Option<Option<Ready>> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return None;
        }
        inner.queued += 1;
        if inner.stamp & WAITS == 0
            && let Some(body) = inner.wake()
        {
            return Some(Some(body));
        }
        if !matches!(inner.body, BodyState::Resting(_)) {
            inner.stamp |= POLLS;
        }
        Some(None)
    }

    /// Takes the request back. The caller polls now.
    pub(crate) fn take_poll_request(&self) {
        enter(&self.inner).stamp &= !POLLS;
    }

    /// Puts the body to rest as it was, after polls without a step, unless there is something new.
    pub(crate) fn settle_polled(&self, body: Ready) -> Settled {
        // A process that does not wait for answers rested because nothing new was there.
        let verdict = if body.head.waits { Verdict::Wait } else { Verdict::Declined };
        let polled = Stepped { verdict, unseen: false, signals: false, taken: 0 };
        Cell::settle_otherwise(enter(&self.inner), body, polled)
    }
}

impl Inner {
    /// Marks the body if polls are requested. `only` says that no step is due. Returns whether the body is marked.
    #[inline]
    pub(super) fn take_poll_request(&mut self, body: &mut Ready, only: bool) -> bool {
        if self.stamp & POLLS == 0 {
            return false;
        }
        self.stamp &= !POLLS;
        body.head.request_poll(only);
        true
    }
}
