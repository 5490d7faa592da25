//! Mailboxes with a bound: how many messages may wait, and what happens to one too many.

use super::mailbox::{AnyMailbox, Bound, Envelope, Mailbox, Overflow};
use super::waiting_sends::WaitingSends;
use crate::process::dead_letter::DeadLetterReason;

/// A mailbox that holds at most a given number of messages.
///
/// A message holds its place until a step is given it. If the step leaves it, it holds a place again. Signals are
/// never counted and never refused.
///
/// The mailbox stays behind the lock of the process's cell even while the process is ready. So the oldest message can
/// be pushed out at any time. A step gets its messages under that lock. New messages may come into the places of
/// messages that the step then leaves. So there may be twice as many as the bound allows. Nothing more is accepted
/// until there is room again. A mailbox that drops the oldest also accepts a message in the place of one that a step
/// has left. That one is older than all messages here, and is dropped before the next step.
pub(crate) struct BoundedMailbox {
    pub(crate) mailbox: Box<dyn AnyMailbox>,
    pub(crate) bounds: Bounds,
}

/// The bound of a mailbox, and the places that are taken.
pub(crate) struct Bounds {
    pub(crate) bound: Bound,
    /// The number of messages that steps were given and have left. They are in the body.
    pub(crate) held: usize,
    /// Whether a message has arrived since a step was last given its share.
    pub(crate) has_new: bool,
    /// Messages that wait for room, if there are any.
    pub(crate) waiting: Option<Box<WaitingSends>>,
}

impl BoundedMailbox {
    pub(crate) fn new(mailbox: Box<dyn AnyMailbox>, bound: Bound) -> Box<BoundedMailbox> {
        Box::new(BoundedMailbox { mailbox, bounds: Bounds { bound, held: 0, has_new: false, waiting: None } })
    }

    /// Returns the mailbox and its bounds.
    pub(crate) fn open(&mut self) -> (&mut dyn AnyMailbox, Option<&mut Bounds>) {
        (&mut *self.mailbox, Some(&mut self.bounds))
    }
}

impl Bounds {
    /// Offers a message to the mailbox of these bounds. Returns the message that has no place there: this one, or the
    /// oldest one.
    pub(crate) fn offer<M>(
        &mut self,
        mailbox: &mut Mailbox<M>,
        envelope: Envelope<M>,
    ) -> Option<(Envelope<M>, DeadLetterReason)> {
        let messages = mailbox.messages.len();
        let mut oldest = None;
        match self.overflow(messages) {
            None => {}
            Some(Overflow::Refuse) => return Some((envelope, DeadLetterReason::Full)),
            Some(Overflow::DropNewest) => return Some((envelope, DeadLetterReason::DroppedNewest)),
            Some(Overflow::DropOldest) => oldest = mailbox.pop_message(),
        }
        mailbox.messages.push(envelope);
        self.has_new = true;
        Some((oldest?, DeadLetterReason::DroppedOldest))
    }

    /// The behaviour of the mailbox, if it is full with these messages.
    pub(crate) fn overflow(&self, messages: usize) -> Option<Overflow> {
        let is_full = match self.bound.overflow {
            Overflow::Refuse | Overflow::DropNewest => !self.has_room(messages),
            // It takes the places of messages that a step has left.
            Overflow::DropOldest => messages >= self.bound.limit,
        };
        is_full.then_some(self.bound.overflow)
    }

    /// Admits so many messages if there is room for all of them beside those that wait.
    #[inline]
    pub(crate) fn admit(&mut self, count: usize, messages: usize) -> bool {
        let has_room = self.held + messages + count <= self.bound.limit;
        self.has_new |= has_room;
        has_room
    }

    /// Whether there is room for another message beside these.
    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.held + messages < self.bound.limit
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn offers(overflow: Overflow) -> (Vec<String>, Vec<u32>) {
        let mut mailbox = Mailbox::new();
        let mut bounds = BoundedMailbox::new(Box::new(Mailbox::<u32>::new()), Bound { limit: 2, overflow }).bounds;
        let told = (1..=4)
            .map(|message| match bounds.offer(&mut mailbox, Envelope { from: None, message }) {
                None => String::from("taken"),
                Some((back, DeadLetterReason::Full)) => format!("{} refused", back.message),
                Some((dead, why)) => format!("{} dead, {why}", dead.message),
            })
            .collect();
        let left = std::iter::from_fn(|| mailbox.pop_message()).map(|envelope| envelope.message).collect();
        (told, left)
    }

    #[test]
    fn a_full_mailbox_does_what_its_policy_says() {
        let (told, left) = offers(Overflow::Refuse);
        assert_eq!((&told[2..], &left[..]), (&["3 refused".into(), "4 refused".into()][..], &[1, 2][..]));
        let (told, left) = offers(Overflow::DropOldest);
        assert_eq!(told[2..], ["1 dead, pushed out by a later message", "2 dead, pushed out by a later message"]);
        assert_eq!(left, [3, 4]);
        let (told, left) = offers(Overflow::DropNewest);
        assert_eq!(told[2..], ["3 dead, dropped by a full mailbox", "4 dead, dropped by a full mailbox"]);
        assert_eq!(left, [1, 2]);
    }

    #[test]
    fn a_run_is_admitted_beside_all_that_wait_or_not_at_all() {
        for overflow in [Overflow::Refuse, Overflow::DropOldest, Overflow::DropNewest] {
            let mut bounds = BoundedMailbox::new(Box::new(Mailbox::<u32>::new()), Bound { limit: 4, overflow }).bounds;
            bounds.held = 1;
            assert!(!bounds.admit(2, 2) && !bounds.has_new);
            assert!(bounds.admit(1, 2) && bounds.has_new);
        }
    }
}
