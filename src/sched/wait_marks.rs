//! The marks of messages whose waiting is measured.
//!
//! A mark has the moment at which its message was accepted, and the place of the message, counted as the places of
//! completions are (`signals.rs`). It is put into the mailbox under the same lock as the message. It is no event: it
//! wakes nobody, counts under no bound, and is given to no step. A mailbox without marks has no memory for them. So a
//! runtime without figures has none of this.
//!
//! `docs/observability.md` has the protocol.

use super::small_queue::SmallQueue;

/// The marks of the messages of a mailbox.
#[derive(Default)]
pub(crate) struct WaitMarks {
    /// Places, and moments in nanoseconds since the start of the runtime. In the order of the places.
    marks: SmallQueue<(u64, u64)>,
}

impl WaitMarks {
    /// Marks the message at this place, which is behind all others that are marked. Messages before `popped` are gone.
    pub(crate) fn mark(&mut self, place: u64, accepted: u64, popped: u64) {
        self.forget_before(popped);
        self.marks.push((place, accepted));
    }

    /// Forgets the marks of messages that have left the mailbox. If nobody asks for them, they must not pile up.
    fn forget_before(&mut self, popped: u64) {
        while self.take_before(popped).is_some() {}
    }

    /// The place of the first mark from this place on. Forgets all before.
    pub(crate) fn first_from(&mut self, place: u64) -> Option<u64> {
        self.forget_before(place);
        self.marks.front().map(|(place, _)| *place)
    }

    /// Takes the first mark of a message before this place. Returns when the message was accepted.
    pub(crate) fn take_before(&mut self, place: u64) -> Option<u64> {
        self.marks.front().filter(|(marked, _)| *marked < place)?;
        self.marks.pop().map(|(_, accepted)| accepted)
    }

    /// Takes out the marks of the messages from this place on.
    pub(crate) fn split_off(&mut self, place: u64) -> WaitMarks {
        // The others are moved, which are the share of a step: very many may wait.
        let mut marks = std::mem::take(&mut self.marks);
        while let Some((marked, _)) = marks.front()
            && *marked < place
        {
            marks.pop().into_iter().for_each(|mark| self.marks.push(mark));
        }
        WaitMarks { marks }
    }

    /// Changes the places. Messages without a new place are gone.
    pub(crate) fn move_messages(&mut self, place: impl Fn(u64) -> Option<u64>) {
        let is_moved = |(marked, _): &mut (u64, u64)| place(*marked).map(|new| *marked = new).is_some();
        match &mut self.marks {
            SmallQueue::Empty => {}
            SmallQueue::One(only) => {
                if !is_moved(only) {
                    self.marks = SmallQueue::Empty;
                }
            }
            SmallQueue::Many(many) => many.retain_mut(is_moved),
        }
    }

    /// Puts other marks behind these. Their places have been changed. Messages before `popped` are gone.
    pub(crate) fn absorb(&mut self, mut other: WaitMarks, popped: u64) {
        self.forget_before(popped);
        self.marks.append(&mut other.marks);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sched::mailbox::{AnyMailbox, Envelope, Mailbox};

    fn push(mailbox: &mut Mailbox<u32>, messages: std::ops::Range<u32>) {
        messages.for_each(|message| mailbox.messages.push(Envelope { from: None, message }));
    }

    /// The messages that are left, each with the moment of its mark.
    fn marked(mailbox: &mut Mailbox<u32>) -> Vec<(u32, Option<u64>)> {
        let popped = mailbox.signals.as_ref().map_or(0, |signals| signals.popped);
        let waits = mailbox.signals.as_mut().map(|signals| std::mem::take(&mut signals.waits));
        let marks: Vec<_> = waits.unwrap_or_default().marks.take_all().collect();
        let moment = |place: u64| marks.iter().find(|(marked, _)| *marked == place).map(|(_, moment)| *moment);
        let messages = mailbox.messages.iter().zip(popped..);
        messages.map(|(envelope, place)| (envelope.message, moment(place))).collect()
    }

    #[test]
    fn marks_go_with_their_messages_from_mailbox_to_mailbox() {
        let (mut body, mut inbox) = (Mailbox::new(), Mailbox::new());
        push(&mut body, 0..3);
        body.mark_wait(1, 10);
        push(&mut inbox, 3..5);
        inbox.mark_wait(0, 20);
        push(&mut inbox, 5..8);
        inbox.mark_wait(2, 30);
        inbox.mark_wait(0, 40);
        inbox.pop_message();
        // Four are left, of which two come over.
        body.absorb(&mut inbox, 2);
        assert_eq!(marked(&mut body), [(0, None), (1, Some(10)), (2, None), (4, Some(20)), (5, Some(30))]);
        assert_eq!(marked(&mut inbox), [(6, None), (7, Some(40))]);
    }

    #[test]
    fn a_mark_of_a_message_that_is_gone_is_forgotten() {
        let mut mailbox = Mailbox::new();
        for n in 0..1_000_u32 {
            push(&mut mailbox, n..n + 1);
            mailbox.mark_wait(0, u64::from(n));
            if n >= 2 {
                mailbox.pop_message();
            }
        }
        let waits = &mailbox.signals.as_ref().unwrap().waits;
        let room = if let SmallQueue::Many(many) = &waits.marks { many.capacity() } else { 1 };
        assert!(waits.marks.len() <= 3 && room <= 8, "{} in {room}", waits.marks.len());
        assert_eq!(marked(&mut mailbox), [(998, Some(998)), (999, Some(999))]);
    }

    #[test]
    fn marks_that_nobody_asks_for_are_forgotten_when_the_mailbox_moves() {
        let mut body = Mailbox::<u32>::new();
        for n in 0..1_000_u32 {
            let mut inbox = Mailbox::<u32>::new();
            push(&mut inbox, n..n + 1);
            inbox.mark_wait(0, u64::from(n));
            body.absorb(&mut inbox, usize::MAX);
            if n >= 2 {
                body.pop_message();
            }
        }
        let waits = &body.signals.as_ref().unwrap().waits;
        assert!(waits.marks.len() <= 3, "{}", waits.marks.len());
        assert_eq!(marked(&mut body), [(998, Some(998)), (999, Some(999))]);
    }

    #[test]
    fn marks_alone_stay_where_they_are_if_no_message_moves() {
        let (mut body, mut inbox) = (Mailbox::<u32>::new(), Mailbox::<u32>::new());
        push(&mut inbox, 0..3);
        inbox.mark_wait(1, 10);
        let address = |mailbox: &Mailbox<u32>| mailbox.signals.as_deref().map(std::ptr::from_ref);
        let before = address(&inbox);
        body.absorb(&mut inbox, 0);
        assert_eq!(address(&inbox), before);
        assert!(body.signals.is_none());
        assert_eq!(marked(&mut inbox), [(0, None), (1, Some(10)), (2, None)]);
    }

    #[test]
    fn marks_of_messages_stay_if_the_signals_go_to_a_mailbox_of_another_type() {
        let (mut body, mut inbox) = (Mailbox::<String>::new(), Mailbox::new());
        push(&mut inbox, 0..1);
        inbox.mark_wait(0, 10);
        body.absorb(&mut inbox, usize::MAX);
        assert!(body.signals.is_none_or(|signals| signals.is_needless()));
        assert_eq!(marked(&mut inbox), [(0, Some(10))]);
    }
}
