//! The replacement of a state machine. An upgrade keeps everything. A recovery begins the next incarnation of the
//! process.
//!
//! An answer says to which incarnation its command belongs. It comes in one critical section of the cell, and the
//! next incarnation begins in another one. If the answer comes first, it is in the inbox that `recover` gives back,
//! or in the mailbox of the body, and is taken out there. If it comes later, it is refused. So no answer to a failed
//! state machine reaches its successor.

use super::{BodyState, Cell, FLAGS, INCARNATION_SHIFT, Inbox, Inner, TRAPS};
use crate::primitives::enter;
use crate::process::Completion;
use crate::sched::body::Ready;
use crate::sched::mailbox::Signal;

/// The bits of a stamp that hold the incarnation.
const INCARNATION: u64 = 0xffff << INCARNATION_SHIFT;

const _: () = assert!(FLAGS & INCARNATION == 0, "an incarnation has bits of its own");

impl Cell {
    /// Replaces the state machine by the one in hand because a step has asked for it. That step has taken this many
    /// messages. Returns the inbox of the old one.
    pub(crate) fn upgrade(&self, body: &mut Ready, taken: u32) -> Option<Inbox> {
        let fresh = BodyState::out(body.machine.kind(), body.head.bound());
        enter(&self.inner).replace(body, fresh, taken)
    }

    /// Replaces a state machine that has failed by the one in hand. Returns the inbox of the old one, and the signals
    /// that only the old one wanted, from the inbox and the body.
    ///
    /// From now on answers to its commands are refused. Exits are trapped as at its birth.
    #[cold]
    pub(crate) fn recover(&self, body: &mut Ready, taken: u32) -> (Option<Inbox>, Vec<Signal>) {
        let incarnation = body.head.next_incarnation();
        let traps = body.head.rare.as_ref().is_some_and(|rare| rare.traps);
        let fresh = BodyState::out(body.machine.kind(), body.head.bound());
        let mut inbox = {
            let mut inner = enter(&self.inner);
            inner.stamp = inner.stamp & !INCARNATION | u64::from(incarnation) << INCARNATION_SHIFT;
            inner.set_flag(TRAPS, traps);
            inner.replace(body, fresh, taken)
        };
        let mut signals = body.machine.mailbox().take_of_failed();
        inbox.iter_mut().for_each(|inbox| signals.extend(inbox.mailbox.take_of_failed()));
        (inbox, signals)
    }

    /// Whether a request to stop has arrived while the body is out.
    #[cold]
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        enter(&self.inner).body.inbox().is_some_and(|(inbox, _)| inbox.is_asked_to_stop())
    }
}

impl Inner {
    /// Replaces the state machine whose body is in hand, with a `fresh` place for its inbox.
    fn replace(&mut self, body: &mut Ready, mut fresh: BodyState, taken: u32) -> Option<Inbox> {
        self.steps += 1;
        self.queued = self.queued.saturating_sub(taken);
        self.kind = Some(body.machine.kind());
        if let (BodyState::OutBounded(old), BodyState::OutBounded(fresh)) = (&mut self.body, &mut fresh) {
            old.bounds.tell_of_lost(body.machine.mailbox());
            fresh.bounds.inherit(&mut old.bounds);
        }
        std::mem::replace(&mut self.body, fresh).into_inbox()
    }

    #[inline]
    pub(super) fn incarnation(&self) -> u16 {
        (self.stamp >> INCARNATION_SHIFT) as u16
    }

    /// Whether this is the answer to a command of an earlier incarnation.
    #[inline]
    pub(super) fn is_late(&self, completion: &Completion) -> bool {
        completion.incarnation() != self.incarnation()
    }
}
