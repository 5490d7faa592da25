//! Messages outside that wait for room in the bounded mailbox of a process. `bounded_mailbox.rs` has the protocol.

use std::time::Instant;

use super::{BodyState, Cell, Missed};
use crate::primitives::{Arc, enter};
use crate::process::{DeadLetter, Pid};
use crate::sched::body::Ready;
use crate::sched::bounded_mailbox::WaitingSender;
use crate::sched::mailbox::AnyMailbox;

/// The outcome for a message that was given a place.
pub(crate) enum Filled<'a> {
    /// A message was accepted. With the body, if that woke the process.
    Accepted(Option<Ready>),
    /// A message was accepted, and is dead, because the process has ended.
    Dead(&'a DeadLetter<'a>),
}

impl Cell {
    /// Registers a message that waits for room. Returns the number of the registration. `None` if there is room, and no
    /// message has waited longer. Then the message has a place, and the caller [fills](Self::fill_each) it.
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

    /// Puts messages into the places that they were given. Then other messages may have a turn. `entered` is called
    /// under the lock, with the mailbox that a message has entered.
    #[cold]
    pub(crate) fn fill_each(
        &self,
        pid: Pid,
        granted: Vec<Arc<dyn WaitingSender>>,
        entered: impl Fn(&mut dyn AnyMailbox),
        mut filled: impl FnMut(Filled<'_>),
    ) {
        for sender in granted {
            sender.prepare();
            let mut is_filled = false;
            let posted = self.post(pid, |mailbox, mut bounds| {
                bounds.iter_mut().for_each(|bounds| bounds.leave_grant());
                let more = sender.fill(mailbox, bounds)?;
                is_filled = more > 0;
                if is_filled {
                    entered(mailbox);
                }
                Some(more)
            });
            if is_filled {
                filled(Filled::Accepted(posted.ok().and_then(|(ready, _)| ready)));
            }
            sender.settle(is_filled, &mut |letter| filled(Filled::Dead(letter)));
        }
    }

    /// The number of commands of the process that are at work, if the process rests. Timers and questions do not count.
    /// A process that does not rest counts as one: a thread may have woken it, and be about to put it into a queue.
    pub(crate) fn commands_at_work(&self, now: Instant) -> usize {
        match &enter(&self.inner).body {
            BodyState::Resting(body) => body.head.commands_at_work(now),
            BodyState::Held(held) => held.body().head.commands_at_work(now),
            BodyState::Out(_) | BodyState::OutBounded(_) => 1,
            BodyState::Vacant => 0,
        }
    }
}
