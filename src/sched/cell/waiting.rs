//! Messages outside that wait for room in the bounded mailbox of a process. `bounded_mailbox.rs` has the protocol.

use super::{Cell, Missed};
use crate::primitives::{Arc, enter};
use crate::process::{DeadLetter, Pid};
use crate::sched::body::Ready;
use crate::sched::bounded_mailbox::{BoundedMailbox, WaitingSender};

/// What follows from a place that was filled, or left free.
pub(crate) enum Filled<'a> {
    /// A message was accepted. With the body, if that woke the process.
    Accepted(Option<Ready>),
    /// A message was accepted, and is dead, because the process has ended.
    Dead(&'a DeadLetter<'a>),
}

impl Cell {
    /// Registers a message that waits for room. Returns the number of the registration. `None` if there is room, and no
    /// message has waited longer: then the message has a place, which the caller fills with [`fill_each`](Self::fill_each).
    pub(crate) fn register(&self, pid: Pid, sender: &Arc<dyn WaitingSender>) -> Result<Option<u64>, Missed> {
        let mut number = None;
        self.post(pid, |mailbox, bounds| {
            number = bounds.and_then(|bounds| bounds.wait_or_grant(mailbox.messages(), sender));
            Some(0)
        })?;
        Ok(number)
    }

    /// Takes out the registration of a message that waits for room, if it is there.
    pub(crate) fn unregister(
        &self,
        pid: Pid,
        number: u64,
        sender: &Arc<dyn WaitingSender>,
    ) -> Option<Arc<dyn WaitingSender>> {
        let mut inner = enter(&self.inner);
        if !inner.is_live(pid) {
            return None;
        }
        inner.body.bounded()?.bounds.unregister(number, sender)
    }

    /// Puts messages into the places that they were given, and then others into further free places.
    #[cold]
    pub(crate) fn fill_each(
        &self,
        pid: Pid,
        mut granted: Vec<Arc<dyn WaitingSender>>,
        mut filled: impl FnMut(Filled<'_>),
    ) {
        while !granted.is_empty() {
            for sender in granted {
                sender.prepare();
                let mut is_filled = false;
                let posted = self.post(pid, |mailbox, mut bounds| {
                    bounds.iter_mut().for_each(|bounds| bounds.leave_grant());
                    let more = sender.fill(mailbox, bounds)?;
                    is_filled = more > 0;
                    Some(more)
                });
                if is_filled {
                    filled(Filled::Accepted(posted.ok().and_then(|(ready, _)| ready)));
                }
                sender.settle(is_filled, &mut |letter| filled(Filled::Dead(letter)));
            }
            granted = self.grant(pid);
        }
    }

    /// Gives back a place that was kept for a message. Returns the messages that have waited for it.
    pub(crate) fn give_place_back(&self, pid: Pid) -> Vec<Arc<dyn WaitingSender>> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return Vec::new();
        }
        inner.body.bounded().map_or_else(Vec::new, |bounded| {
            bounded.bounds.leave_reservation();
            bounded.grant()
        })
    }

    /// Gives free places to messages that wait for room.
    fn grant(&self, pid: Pid) -> Vec<Arc<dyn WaitingSender>> {
        let mut inner = enter(&self.inner);
        if inner.missing(pid).is_some() {
            return Vec::new();
        }
        inner.body.bounded().map_or_else(Vec::new, BoundedMailbox::grant)
    }
}
