//! The changes of the messages that wait for room: one of them begins to wait, some are let in, or some give up. Each
//! is one critical section of the receiver's cell. `waiting_sends.rs` has the protocol.

use super::bounded_mailbox::Bounds;
use super::mailbox::AnyMailbox;
use super::waiting_sends::{EndedSends, Entry, SendEnd, Sender, SenderQueue, WaitingSend};
use crate::primitives::Arc;
use crate::process::DeadLetterReason;
use crate::process::host::Host;
use crate::timer::TimerId;

/// An open mailbox with a bound and with messages that wait for room in it.
pub(crate) struct Doorway<'a> {
    pub(crate) mailbox: &'a mut dyn AnyMailbox,
    pub(crate) bounds: &'a mut Bounds,
    pub(crate) takes: fn() -> &'static str,
}

impl Doorway<'_> {
    /// Lets messages in until there is no room or none waits.
    pub(crate) fn let_in(&mut self) -> EndedSends {
        let mut told = EndedSends::default();
        let Some(mut waiting) = self.bounds.waiting.take() else { return told };
        while self.has_room()
            && let Some((sender, mut queue)) = waiting.next_turn()
        {
            if let Some(first) = queue.sends.pop_front() {
                self.enter(first, &mut told);
            }
            self.let_plain_go(&mut queue, &mut told);
            waiting.had_turn(sender, queue);
        }
        if !waiting.is_empty() {
            self.bounds.waiting = Some(waiting);
        }
        told
    }

    /// Takes out one message that waits for room.
    pub(crate) fn withdraw(&mut self, sender: Sender, number: u64) -> EndedSends {
        let end = SendEnd::Full(self.bounds.bound.limit);
        self.withdraw_if(sender, end, |send| send.number() == number)
    }

    /// Takes out all messages of a process that has ended.
    pub(crate) fn withdraw_all(&mut self, sender: Sender) -> EndedSends {
        let end = SendEnd::NoSender(self.bounds.bound.limit);
        self.withdraw_if(sender, end, WaitingSend::waits_for_room)
    }

    fn withdraw_if(&mut self, sender: Sender, end: SendEnd, which: impl Fn(&WaitingSend) -> bool) -> EndedSends {
        let mut told = EndedSends::default();
        let Some(waiting) = &mut self.bounds.waiting else { return told };
        let Some(mut queue) = waiting.remove(sender) else { return told };
        let (out, left): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.sends).into_iter().partition(|send| which(send));
        queue.sends = left.into();
        told.ended.extend(out.into_iter().map(|send| (send, end)));
        self.let_plain_go(&mut queue, &mut told);
        let Some(waiting) = &mut self.bounds.waiting else { return told };
        waiting.keeps_turn(sender, queue);
        if waiting.is_empty() {
            self.bounds.waiting = None;
        }
        told
    }

    /// Treats plain messages that nothing precedes any more as if they were sent now.
    fn let_plain_go(&mut self, queue: &mut SenderQueue, told: &mut EndedSends) {
        while let Some(plain) = queue.sends.pop_front_if(|first| !first.waits_for_room()) {
            if self.has_room() {
                self.enter(plain, told);
            } else {
                told.ended.push((plain, SendEnd::Full(self.bounds.bound.limit)));
            }
        }
    }

    fn enter(&mut self, mut send: WaitingSend, told: &mut EndedSends) {
        let end = if let Entry::Accepted = send.enter(self.mailbox, None) {
            self.bounds.has_new = true;
            told.entered += 1;
            SendEnd::Accepted
        } else {
            SendEnd::WrongType(self.takes)
        };
        told.ended.push((send, end));
    }

    fn has_room(&self) -> bool {
        self.bounds.has_room(self.mailbox.messages())
    }
}

/// A message with a limit that does not wait.
pub(crate) struct Placed {
    pub(crate) send: WaitingSend,
    pub(crate) end: SendEnd,
    /// A message that a full mailbox has dropped for it, or itself.
    pub(crate) instead: Option<(WaitingSend, DeadLetterReason)>,
}

impl Bounds {
    /// Whether messages of this sender wait.
    #[inline]
    pub(crate) fn is_waiting(&self, sender: Sender) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_waiting(sender))
    }

    /// Makes a message wait for room, or for the messages of its sender that wait.
    pub(crate) fn wait(&mut self, sender: Sender, send: WaitingSend) {
        self.waiting.get_or_insert_default().push(sender, send);
    }

    /// Records the timer of a message that waits. Returns whether it still waits.
    pub(crate) fn note_timer(&mut self, sender: Sender, number: u64, timer: (Arc<dyn Host>, TimerId)) -> bool {
        let found = self.waiting.as_mut().and_then(|waiting| waiting.find(sender, number));
        found.map(|send| send.set_timer(timer)).is_some()
    }
}

/// Offers a message to an open mailbox. If there is no room, it waits there if it `may_wait`. Otherwise this returns
/// it. Also returns by how many messages the mailbox has grown, or `None` if it is for another type.
pub(crate) fn put(
    mut send: WaitingSend,
    sender: Sender,
    may_wait: bool,
    mailbox: &mut dyn AnyMailbox,
    bounds: Option<&mut Bounds>,
) -> (Option<u32>, Option<Placed>) {
    let is_behind = bounds.as_ref().is_some_and(|bounds| bounds.is_waiting(sender));
    let overflow = bounds.as_ref().and_then(|bounds| bounds.overflow(mailbox.messages()));
    let entry = if is_behind { Entry::Full } else { send.enter(mailbox, overflow) };
    let (grown, end, instead) = match (entry, bounds) {
        (Entry::Full, Some(bounds)) if may_wait => {
            bounds.wait(sender, send);
            return (Some(0), None);
        }
        (Entry::Full, bounds) => (Some(0), SendEnd::Full(bounds.map_or(0, |bounds| bounds.bound.limit)), None),
        (Entry::Accepted, bounds) => {
            bounds.into_iter().for_each(|bounds| bounds.has_new = true);
            (Some(1), SendEnd::Accepted, None)
        }
        (Entry::Instead(dead, reason), bounds) => {
            bounds.into_iter().for_each(|bounds| bounds.has_new |= reason == DeadLetterReason::DroppedOldest);
            (Some(0), SendEnd::Accepted, Some((dead, reason)))
        }
        // The caller knows the type of the mailbox.
        (Entry::WrongType, _) => (None, SendEnd::NoReceiver, None),
    };
    (grown, Some(Placed { send, end, instead }))
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::latch::Latch;
    use crate::pid::Pid;
    use crate::sched::bounded_mailbox::BoundedMailbox;
    use crate::sched::mailbox::{Bound, Mailbox, Overflow};
    use crate::sched::waiting_sends::STALE_TURNS;

    /// A mailbox of numbers with this bound, and what has left the queue.
    struct Door {
        mailbox: Mailbox<u32>,
        bounds: Bounds,
        told: Vec<(bool, u32)>,
    }

    fn process(number: u32) -> Sender {
        Sender::Process(Pid::new(0, number, 1).unwrap())
    }

    impl Door {
        fn new(limit: usize) -> Door {
            let bound = Bound { limit, overflow: Overflow::Refuse };
            let bounds = BoundedMailbox::new(Box::new(Mailbox::<u32>::new()), bound).bounds;
            Door { mailbox: Mailbox::new(), bounds, told: Vec::new() }
        }

        fn sends(&mut self, from: Sender, number: u64, message: u32) {
            let send = match from {
                Sender::Process(pid) if number > 0 => WaitingSend::of_process(pid, number, message),
                Sender::Process(pid) => WaitingSend::plain(pid, message, None),
                Sender::Outside(_) => WaitingSend::from_outside(number, message, Latch::new()),
            };
            let (grown, placed) = put(send, from, true, &mut self.mailbox, Some(&mut self.bounds));
            assert_eq!(grown == Some(1), placed.is_some());
        }

        /// Takes one message, and lets the next ones in.
        fn takes(&mut self) -> Option<u32> {
            let taken = self.mailbox.pop_message().map(|envelope| envelope.message);
            self.changes(|doorway| doorway.let_in());
            taken
        }

        fn changes(&mut self, change: impl for<'a> FnOnce(&mut Doorway<'a>) -> EndedSends) {
            let (mailbox, bounds) = (&mut self.mailbox, &mut self.bounds);
            let ended = change(&mut Doorway { mailbox, bounds, takes: || "u32" }).ended;
            let told = |(mut send, end): (WaitingSend, SendEnd)| {
                let accepted = matches!(end, SendEnd::Accepted);
                (accepted, send.take_message().unwrap_or_default())
            };
            self.told.extend(ended.into_iter().map(told));
        }
    }

    #[test]
    fn processes_and_threads_take_turns_in_one_queue() {
        let mut door = Door::new(1);
        let (first, thread, second) = (process(1), Sender::Outside(1), process(2));
        (0..4).for_each(|n| door.sends(first, u64::from(n) + 1, n));
        door.sends(thread, 1, 20);
        (0..3).for_each(|n| door.sends(second, u64::from(n) + 1, 10 + n));
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 1, 20, 10, 2, 11, 3, 12]);
        assert!(door.bounds.waiting.is_none());
    }

    #[test]
    fn plain_messages_go_with_the_turn_of_the_one_before_them() {
        let (mut door, first, second) = (Door::new(2), process(1), process(2));
        door.sends(first, 1, 0);
        door.sends(first, 2, 1);
        door.sends(first, 3, 2);
        (3..5).for_each(|n| door.sends(first, 0, n));
        door.sends(first, 4, 5);
        door.sends(second, 1, 10);
        assert_eq!((door.takes(), door.mailbox.messages.len()), (Some(0), 2));
        // There was room for 2 alone, and none for the plain ones behind it.
        assert_eq!(std::mem::take(&mut door.told), [(true, 0), (false, 3), (false, 4)]);
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [1, 2, 10, 5]);
    }

    #[test]
    fn a_sender_that_gives_up_frees_the_plain_messages_behind_it() {
        let (mut door, first, second) = (Door::new(1), process(1), process(2));
        door.sends(first, 1, 0);
        (2..5).for_each(|n| door.sends(first, n, n as u32));
        door.sends(first, 0, 9);
        door.sends(second, 1, 10);
        door.changes(|doorway| doorway.withdraw(first, 3));
        door.changes(|doorway| doorway.withdraw(first, 3));
        door.changes(|doorway| doorway.withdraw(second, 2));
        assert_eq!(std::mem::take(&mut door.told), [(false, 3)]);
        door.changes(|doorway| doorway.withdraw_all(first));
        assert_eq!(std::mem::take(&mut door.told), [(false, 2), (false, 4), (false, 9)]);
        assert!(!door.bounds.is_waiting(first) && door.bounds.is_waiting(second));
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 10]);
    }

    #[test]
    fn turns_of_senders_that_have_given_up_do_not_pile_up() {
        let (mut door, waits) = (Door::new(1), process(1));
        door.sends(waits, 1, 0);
        door.sends(waits, 2, 1);
        for n in 0..10_000 {
            door.sends(process(2), 1, n);
            door.changes(|doorway| doorway.withdraw(process(2), 1));
            let turns = door.bounds.waiting.as_ref().unwrap().turns();
            assert!(turns <= 2 + STALE_TURNS, "{turns} after {n}");
        }
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 1]);
    }
}
