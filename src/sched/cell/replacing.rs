//! The replacement of a state machine. An upgrade keeps everything. A recovery begins the next incarnation of the
//! process.
//!
//! An answer says to which incarnation its command belongs. It comes in one critical section of the cell, and the
//! next incarnation begins in another one. If the answer comes first, it is in the inbox that `recover` gives back,
//! or in the mailbox of the body, and is taken out there. If it comes later, it is refused. So no answer to a failed
//! state machine reaches its successor.

use super::{BodyState, Cell, FLAGS, INCARNATION_SHIFT, Inner, Released, TRAPS};
use crate::primitives::enter;
use crate::sched::body::Kind;
use crate::sched::mailbox::{Bound, Signal};

/// The bits of a stamp that hold the incarnation.
const INCARNATION: u64 = 0xffff << INCARNATION_SHIFT;

const _: () = assert!(FLAGS & INCARNATION == 0, "an incarnation has bits of its own");

/// The state machine that replaces another one, as far as a cell needs it.
#[derive(Clone, Copy)]
pub(crate) struct Next {
    pub(crate) kind: &'static Kind,
    pub(crate) bound: Option<Bound>,
    /// The number of messages that the last step of the old one had taken.
    pub(crate) taken: u32,
}

impl Cell {
    /// Replaces the state machine because a step has asked for it. Returns the inbox of the old one.
    pub(crate) fn upgrade(&self, next: Next) -> Released {
        let fresh = BodyState::out(next.kind, next.bound);
        enter(&self.inner).replace(next, fresh)
    }

    /// Replaces a state machine that has failed. Returns the inbox of the old one.
    ///
    /// From now on answers to its commands are refused. Exits are trapped as at its birth.
    #[cold]
    pub(crate) fn recover(&self, next: Next, incarnation: u16, traps: bool) -> Released {
        let fresh = BodyState::out(next.kind, next.bound);
        let mut inner = enter(&self.inner);
        inner.stamp = inner.stamp & !INCARNATION | u64::from(incarnation) << INCARNATION_SHIFT;
        inner.set_flag(TRAPS, traps);
        inner.replace(next, fresh)
    }

    /// Whether a request to stop has arrived while the body is out.
    #[cold]
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        enter(&self.inner).body.inbox().is_some_and(|(inbox, _)| inbox.is_asked_to_stop())
    }
}

impl Inner {
    /// Replaces the state machine whose body is in hand, with a `fresh` place for its inbox.
    fn replace(&mut self, next: Next, fresh: BodyState) -> Released {
        self.steps += 1;
        self.queued = self.queued.saturating_sub(next.taken);
        self.kind = Some(next.kind);
        std::mem::replace(&mut self.body, fresh).into_inbox()
    }

    #[inline]
    pub(super) fn incarnation(&self) -> u16 {
        (self.stamp >> INCARNATION_SHIFT) as u16
    }

    /// Whether this is the answer to a command of an earlier incarnation.
    #[inline]
    pub(super) fn is_late(&self, signal: &Signal) -> bool {
        matches!(signal, Signal::Completed(completed) if completed.incarnation() != self.incarnation())
    }
}
