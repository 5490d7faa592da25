//! Mailboxes with a bound: how many messages may wait, and what happens to one too many.

use super::mailbox::{AnyMailbox, Bound, Envelope, Grave, Mailbox, Overflow, Signal, Signals};
use crate::latch::Latch;
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
pub(crate) struct BoundedMailbox<M> {
    inner: Mailbox<M>,
    bound: Bound,
    // The number of messages that steps were given and have left. They are in the body.
    held: usize,
    // Whether a message has arrived since a step was last given its share.
    has_new: bool,
    // Senders outside that wait for room. They are notified when there is room, or when the process has ended.
    waiting: Vec<Latch<()>>,
}

/// The result of offering a message.
pub(crate) enum Offer<M> {
    Taken,
    Refused(Envelope<M>),
    /// A message is dead: this one or an older one.
    Dead(Envelope<M>, DeadLetterReason),
}

impl<M> BoundedMailbox<M> {
    pub(crate) fn new(bound: Bound) -> BoundedMailbox<M> {
        BoundedMailbox { inner: Mailbox::new(), bound, held: 0, has_new: false, waiting: Vec::new() }
    }

    pub(crate) fn limit(&self) -> usize {
        self.bound.limit
    }

    pub(crate) fn offer(&mut self, envelope: Envelope<M>) -> Offer<M> {
        let has_room = match self.bound.overflow {
            Overflow::DropOldest => self.inner.messages.len() < self.bound.limit,
            Overflow::Refuse | Overflow::DropNewest => self.has_room(),
        };
        if has_room {
            self.push(envelope);
            return Offer::Taken;
        }
        match self.bound.overflow {
            Overflow::Refuse => Offer::Refused(envelope),
            Overflow::DropNewest => Offer::Dead(envelope, DeadLetterReason::DroppedNewest),
            Overflow::DropOldest => {
                let oldest = self.inner.pop_message();
                self.push(envelope);
                oldest.map_or(Offer::Taken, |oldest| Offer::Dead(oldest, DeadLetterReason::DroppedOldest))
            }
        }
    }

    fn push(&mut self, envelope: Envelope<M>) {
        self.inner.messages.push(envelope);
        self.has_new = true;
    }

    /// Whether it keeps a buffer.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_buffer(&self) -> bool {
        matches!(self.inner.messages, super::mailbox::Queue::Many(_))
    }

    fn has_room(&self) -> bool {
        self.held + self.inner.messages.len() < self.bound.limit
    }

    /// Returns a latch that is set when there is room.
    pub(crate) fn wait_for_room(&mut self) -> Latch<()> {
        // Senders that have given up leave their latches behind.
        self.waiting.retain(Latch::is_shared);
        let room = Latch::new();
        self.waiting.push(room.clone());
        room
    }
}

impl<M: Send + 'static> AnyMailbox for BoundedMailbox<M> {
    fn plain(&mut self) -> &mut dyn AnyMailbox {
        &mut self.inner
    }

    fn hold(&mut self, held: usize) {
        self.held = held;
    }

    fn has_room(&self) -> bool {
        self.has_room()
    }

    fn has_new(&self) -> bool {
        self.has_new
    }

    fn offered(&mut self) {
        self.has_new = false;
    }

    fn take_waiting(&mut self) -> Vec<Latch<()>> {
        std::mem::take(&mut self.waiting)
    }

    #[cfg(all(test, not(loom)))]
    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn signal(&mut self, signal: Signal) {
        self.inner.signal(signal);
    }

    fn absorb(&mut self, other: &mut dyn AnyMailbox, limit: usize) -> u32 {
        self.inner.absorb(other, limit)
    }

    fn messages(&self) -> usize {
        self.inner.messages()
    }

    fn has_signals(&self) -> bool {
        self.inner.has_signals()
    }

    fn shrink(&mut self) {
        AnyMailbox::shrink(&mut self.inner);
    }

    fn bury(&mut self, grave: &mut Grave<'_>) {
        self.inner.bury(grave);
    }

    fn signals(&mut self) -> &mut Option<Box<Signals>> {
        self.inner.signals()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn offers(overflow: Overflow) -> (Vec<String>, Vec<u32>) {
        let mut mailbox = BoundedMailbox::new(Bound { limit: 2, overflow });
        let told = (1..=4)
            .map(|message| match mailbox.offer(Envelope { from: None, message }) {
                Offer::Taken => String::from("taken"),
                Offer::Refused(back) => format!("{} refused", back.message),
                Offer::Dead(dead, why) => format!("{} dead, {why}", dead.message),
            })
            .collect();
        let left = std::iter::from_fn(|| mailbox.inner.pop_message()).map(|envelope| envelope.message).collect();
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
}
