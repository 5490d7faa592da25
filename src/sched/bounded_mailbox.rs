//! Mailboxes with a bound: how many messages may wait, and what happens to one too many.

use super::mailbox::{AnyMailbox, Bound, Envelope, Mailbox, Overflow};
use super::room_queue::RoomQueue;
use crate::primitives::Arc;
use crate::process::dead_letter::{DeadLetter, DeadLetterReason};

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
    /// The number of messages that were dropped here since the signals of the body were last put behind messages.
    pub(crate) lost: u64,
    /// Places that were given to messages that have waited, and are not filled yet.
    granted: usize,
    /// Places that are kept for messages that are being converted.
    reserved: usize,
    /// Messages that wait for room, if there are any.
    pub(crate) waiting: Option<Box<RoomQueue<Arc<dyn WaitingSender>>>>,
}

/// A message that waits outside for room in a bounded mailbox.
pub(crate) trait WaitingSender: Send + Sync {
    /// Prepares the message, which has been given a place. This may run user code.
    fn prepare(&self);

    /// Puts the message into its place, under the lock of the cell. Returns 1, or 0 if the sender has given up. `None`
    /// if the mailbox is for another type.
    fn fill(&self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Option<u32>;

    /// Tells the sender that the message is in the mailbox (`is_sent`), or that it must try again. A message that can
    /// neither be sent nor be returned is shown to `grave`.
    fn settle(&self, is_sent: bool, grave: &mut dyn FnMut(&DeadLetter<'_>));

    /// Tells the sender to try again, because the process has ended or its mailbox was replaced.
    fn try_again(&self);
}

impl BoundedMailbox {
    pub(crate) fn new(mailbox: Box<dyn AnyMailbox>, bound: Bound) -> Box<BoundedMailbox> {
        Box::new(BoundedMailbox { mailbox, bounds: Bounds::new(bound) })
    }

    /// Returns the mailbox and its bounds.
    pub(crate) fn open(&mut self) -> (&mut dyn AnyMailbox, Option<&mut Bounds>) {
        (&mut *self.mailbox, Some(&mut self.bounds))
    }
}

impl Bounds {
    pub(crate) fn new(bound: Bound) -> Bounds {
        Bounds { bound, held: 0, has_new: false, lost: 0, granted: 0, reserved: 0, waiting: None }
    }

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
        self.lost += u64::from(oldest.is_some());
        mailbox.messages.push(envelope);
        self.has_new = true;
        Some((oldest?, DeadLetterReason::DroppedOldest))
    }

    /// Tells the signals of the body that they need not wait for the messages that were dropped here.
    pub(crate) fn tell_of_lost(&mut self, body: &mut dyn AnyMailbox) {
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            let held = body.messages() as u64;
            body.signals().iter_mut().for_each(|signals| signals.lose(held, lost));
        }
    }

    /// The behaviour of the mailbox, if it is full with these messages. It is full for new messages while others wait.
    pub(crate) fn overflow(&self, messages: usize) -> Option<Overflow> {
        let is_full = match self.bound.overflow {
            Overflow::Refuse => !self.has_room(messages) || self.is_promised(),
            Overflow::DropNewest => !self.has_room(messages),
            // It takes the places of messages that a step has left.
            Overflow::DropOldest => messages >= self.bound.limit,
        };
        is_full.then_some(self.bound.overflow)
    }

    /// Admits so many messages if there is room for all of them, and no message waits for it. A message may wait
    /// although there is room: it has no turn while an earlier place is not filled.
    #[inline]
    pub(crate) fn admit(&mut self, count: usize, messages: usize) -> bool {
        let has_room = self.taken() + messages + count <= self.bound.limit && self.waiting.is_none();
        self.has_new |= has_room;
        has_room
    }

    /// Whether there is room for another message beside these.
    pub(crate) fn has_room(&self, messages: usize) -> bool {
        self.taken() + messages < self.bound.limit
    }

    /// The places that are taken by messages elsewhere.
    #[inline]
    fn taken(&self) -> usize {
        self.held + self.granted + self.reserved
    }

    /// Whether room is promised to messages that have waited longer.
    fn is_promised(&self) -> bool {
        self.granted > 0 || self.waiting.is_some()
    }

    /// Registers a message that waits for room. Returns the number of the registration. If there is room beside these
    /// messages, and no message has waited longer, gives it a place instead.
    pub(crate) fn wait_or_grant(&mut self, messages: usize, sender: &Arc<dyn WaitingSender>) -> Option<u64> {
        if self.has_room(messages) && !self.is_promised() {
            self.granted += 1;
            return None;
        }
        Some(self.waiting.get_or_insert_default().register(sender.clone()))
    }

    /// Takes a registration out, if it is there.
    pub(crate) fn unregister(
        &mut self,
        number: u64,
        sender: &Arc<dyn WaitingSender>,
    ) -> Option<Arc<dyn WaitingSender>> {
        let waiting = self.waiting.as_mut()?;
        // The numbers begin anew when no message waits.
        let taken = waiting.unregister(number, |other| Arc::ptr_eq(other, sender));
        self.forget_empty_queue();
        taken
    }

    /// Drops the queue if no message waits.
    pub(crate) fn forget_empty_queue(&mut self) {
        self.waiting.take_if(|waiting| waiting.is_empty());
    }

    /// Whether the places that were given to messages from outside are filled.
    pub(crate) fn are_grants_filled(&self) -> bool {
        self.granted == 0
    }

    /// Gives a place to a message from outside, which fills it later.
    pub(crate) fn give_place(&mut self) {
        self.granted += 1;
    }

    /// Keeps a place for a message that is converted now.
    pub(crate) fn keep_place(&mut self) {
        self.reserved += 1;
    }

    /// Takes a place that was given to a waiting message. The caller fills it in the same critical section, or leaves
    /// it free.
    pub(crate) fn leave_grant(&mut self) {
        self.granted = self.granted.saturating_sub(1);
    }

    /// Whether messages wait for places here. A mailbox that drops messages needs no places.
    pub(crate) fn keeps_places(&self) -> bool {
        self.bound.overflow == Overflow::Refuse
    }

    /// Keeps a place beside these messages for a message that is being converted. A mailbox that drops messages needs
    /// no places.
    ///
    /// # Errors
    /// There is no room. The error is the bound.
    pub(crate) fn reserve(&mut self, messages: usize) -> Result<(), usize> {
        if !self.keeps_places() {
            return Ok(());
        }
        if !self.has_room(messages) || self.is_promised() {
            return Err(self.bound.limit);
        }
        self.reserved += 1;
        Ok(())
    }

    /// Takes a place that was kept for a message. The caller fills it in the same critical section, or leaves it free.
    pub(crate) fn leave_reservation(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Puts a message into a place that was given to it.
    pub(crate) fn put<M>(&mut self, mailbox: &mut Mailbox<M>, message: M) {
        mailbox.messages.push_parts(None, message);
        self.has_new = true;
    }

    /// Takes over the places that were given away before the mailbox was replaced, and the messages that wait.
    pub(crate) fn inherit(&mut self, old: &mut Bounds) {
        (self.granted, self.reserved) = (old.granted, old.reserved);
        // In the same critical section, so that no later message of a waiting sender comes first.
        self.waiting = old.waiting.take();
    }

    /// The number of messages that wait for room.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::any::Any;

    use super::*;
    use crate::outcome::Exit;
    use crate::pid::Pid;
    use crate::process::{Down, Monitor};
    use crate::sched::signals::{Control, Signal};

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
    fn a_signal_does_not_wait_for_messages_that_were_dropped() {
        let of = |slot| Pid::new(1, slot, 1).unwrap();
        let mut body = Mailbox::new();
        let mut inbox =
            BoundedMailbox::new(Box::new(Mailbox::<u32>::new()), Bound { limit: 2, overflow: Overflow::DropOldest });
        let BoundedMailbox { mailbox, bounds } = &mut *inbox;
        let mailbox = (&mut **mailbox as &mut dyn Any).downcast_mut::<Mailbox<u32>>().unwrap();
        for from in [1, 2] {
            assert!(bounds.offer(mailbox, Envelope { from: Some(of(from)), message: from }).is_none());
        }
        // The end of process 2 waits behind its message, which stays in the inbox.
        let down = Down { monitor: Monitor::new(0, of(2)), pid: of(2), exit: Exit::Done(()) };
        mailbox.signal(Signal::Control(Control::Down(down)));
        body.absorb(mailbox, 0);
        let dropped = bounds.offer(mailbox, Envelope { from: None, message: 3 });
        assert_eq!(dropped.map(|(envelope, _)| envelope.message), Some(1));
        bounds.tell_of_lost(&mut body);
        body.absorb(mailbox, usize::MAX);
        let is_next = |body: &mut Mailbox<u32>| {
            let messages = &body.messages;
            body.signals.as_mut().unwrap().next_control(messages, true).is_some()
        };
        assert!(!is_next(&mut body), "message 2 comes first");
        assert_eq!(body.pop_message().map(|envelope| envelope.message), Some(2));
        assert!(is_next(&mut body), "message 3 is of another process");
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
