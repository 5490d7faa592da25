//! The changes of the messages that wait for room: one of them begins to wait, some are let in, or some give up. Each
//! is one critical section of the receiver's cell. `room_queue.rs` has the protocol.

use super::bounded_mailbox::{Bounds, WaitingSender};
use super::mailbox::{AnyMailbox, Overflow};
use super::room_queue::{Entry, QueuedSend, SendEnd, SenderQueue, Turn};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::DeadLetterReason;
use crate::process::host::Host;
use crate::timer::TimerId;

/// Messages that a critical section has taken out of the queue. Their senders are told after it.
#[derive(Default)]
#[must_use]
pub(crate) struct ToldSends {
    pub(crate) ended: Vec<(QueuedSend, SendEnd)>,
    /// Messages of processes that have a place each. The caller converts them, and fills the places.
    pub(crate) converting: Vec<(Pid, QueuedSend)>,
    /// Messages from outside that have a place each. The caller fills the places.
    pub(crate) granted: Vec<Arc<dyn WaitingSender>>,
    /// The number of messages that are in the mailbox now.
    pub(crate) entered: u32,
}

impl ToldSends {
    pub(crate) fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.converting.is_empty() && self.granted.is_empty()
    }
}

/// An open mailbox with a bound and with messages that wait for room in it.
pub(crate) struct Doorway<'a> {
    pub(crate) mailbox: &'a mut dyn AnyMailbox,
    pub(crate) bounds: &'a mut Bounds,
    pub(crate) takes: fn() -> &'static str,
}

impl Doorway<'_> {
    /// Lets messages in until there is no room or none waits.
    pub(crate) fn let_in(&mut self) -> ToldSends {
        let mut told = ToldSends::default();
        let Some(mut waiting) = self.bounds.waiting.take() else { return told };
        while self.has_room()
            && let Some(turn) = waiting.next_turn(self.bounds.are_grants_filled() || !told.granted.is_empty())
        {
            match turn {
                Turn::Outside(sender) => {
                    self.bounds.give_place();
                    told.granted.push(sender);
                }
                Turn::Process(from, mut queue) => {
                    if let Some(first) = queue.sends.pop_front() {
                        queue.converts = self.enter(from, first, &mut told);
                    }
                    self.let_plain_go(from, &mut queue, &mut told);
                    waiting.had_turn(from, queue);
                }
            }
        }
        self.bounds.waiting = Some(waiting);
        self.bounds.forget_empty_queue();
        told
    }

    /// Takes out one message that waits for room.
    pub(crate) fn withdraw(&mut self, from: Pid, number: u64) -> ToldSends {
        let end = SendEnd::Full(self.bounds.bound.limit);
        self.withdraw_if(from, end, |send| send.number() == number)
    }

    /// Takes out all messages of a process that has ended.
    pub(crate) fn withdraw_all(&mut self, from: Pid) -> ToldSends {
        let end = SendEnd::NoSender(self.bounds.bound.limit);
        self.withdraw_if(from, end, QueuedSend::waits_for_room)
    }

    fn withdraw_if(&mut self, from: Pid, end: SendEnd, which: impl Fn(&QueuedSend) -> bool) -> ToldSends {
        self.change_queue(from, |_, queue, told| {
            let (out, left): (Vec<_>, Vec<_>) =
                std::mem::take(&mut queue.sends).into_iter().partition(|send| which(send));
            queue.sends = left.into();
            told.ended.extend(out.into_iter().map(|send| (send, end)));
            true
        })
    }

    /// Fills the place of a message that was converted, or gives it back if there is none. Then the process has its
    /// next turn.
    pub(crate) fn fill_converted(&mut self, from: Pid, converted: Option<QueuedSend>) -> ToldSends {
        self.bounds.leave_reservation();
        let mut converted = converted;
        let mut told = self.change_queue(from, |doorway, queue, told| {
            if let Some(converted) = converted.take() {
                doorway.enter(from, converted, told);
            }
            queue.converts = false;
            false
        });
        told.ended.extend(converted.map(|converted| (converted, SendEnd::NoReceiver)));
        let more = self.let_in();
        told.ended.extend(more.ended);
        told.converting.extend(more.converting);
        told.granted.extend(more.granted);
        told.entered += more.entered;
        told
    }

    /// Changes the messages of one process. `change` returns whether the process keeps its turn.
    fn change_queue(
        &mut self,
        from: Pid,
        change: impl FnOnce(&mut Self, &mut SenderQueue, &mut ToldSends) -> bool,
    ) -> ToldSends {
        let mut told = ToldSends::default();
        let Some(mut waiting) = self.bounds.waiting.take() else { return told };
        if let Some(mut queue) = waiting.remove(from) {
            let keeps_turn = change(self, &mut queue, &mut told);
            self.let_plain_go(from, &mut queue, &mut told);
            if keeps_turn {
                waiting.keeps_turn(from, queue);
            } else {
                waiting.had_turn(from, queue);
            }
        }
        self.bounds.waiting = Some(waiting);
        self.bounds.forget_empty_queue();
        told
    }

    /// Treats plain messages that nothing precedes any more as if they were sent now.
    fn let_plain_go(&mut self, from: Pid, queue: &mut SenderQueue, told: &mut ToldSends) {
        while !queue.converts
            && let Some(plain) = queue.sends.pop_front_if(|first| !first.waits_for_room())
        {
            if self.has_room() {
                self.enter(from, plain, told);
            } else {
                told.ended.push((plain, SendEnd::Full(self.bounds.bound.limit)));
            }
        }
    }

    /// Puts a message into the mailbox. If it is to be converted first, this keeps a place, and returns `true`.
    fn enter(&mut self, from: Pid, mut send: QueuedSend, told: &mut ToldSends) -> bool {
        let converts = send.is_converted() && send.is_for(self.mailbox);
        if converts {
            self.bounds.keep_place();
            told.converting.push((from, send));
        } else if !send.is_converted()
            && let Entry::Accepted = send.enter(self.mailbox, None)
        {
            self.bounds.has_new = true;
            told.entered += 1;
            told.ended.push((send, SendEnd::Accepted));
        } else {
            told.ended.push((send, SendEnd::WrongType(self.takes)));
        }
        converts
    }

    fn has_room(&self) -> bool {
        self.bounds.has_room(self.mailbox.messages())
    }
}

/// A message with a limit that does not wait.
pub(crate) struct Placed {
    pub(crate) send: QueuedSend,
    pub(crate) end: SendEnd,
    /// A message that a full mailbox has dropped for it, or itself.
    pub(crate) instead: Option<(QueuedSend, DeadLetterReason)>,
}

impl Bounds {
    /// Whether messages of this process wait.
    #[inline]
    pub(crate) fn is_waiting(&self, from: Pid) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_waiting(from))
    }

    /// Makes a message wait for room, or for the messages of its process that wait.
    pub(crate) fn wait(&mut self, from: Pid, send: QueuedSend) {
        self.waiting.get_or_insert_default().push(from, send);
    }

    /// Records the timer of a message that waits. Returns whether it still waits.
    pub(crate) fn note_timer(&mut self, from: Pid, number: u64, timer: (Arc<dyn Host>, TimerId)) -> bool {
        let found = self.waiting.as_mut().and_then(|waiting| waiting.find(from, number));
        found.map(|send| send.set_timer(timer)).is_some()
    }
}

/// Offers a message to an open mailbox. If there is no room, it waits there if it `may_wait`. Otherwise this returns
/// it. Also returns by how many messages the mailbox has grown, or `None` if it is for another type.
pub(crate) fn put(
    mut send: QueuedSend,
    from: Pid,
    may_wait: bool,
    mailbox: &mut dyn AnyMailbox,
    bounds: Option<&mut Bounds>,
) -> (Option<u32>, Option<Placed>) {
    let is_behind = bounds.as_ref().is_some_and(|bounds| bounds.is_waiting(from));
    let overflow = bounds.as_ref().and_then(|bounds| bounds.overflow(mailbox.messages()));
    let entry = if is_behind { Entry::Full } else { send.enter(mailbox, overflow) };
    let (grown, end, instead) = match (entry, bounds) {
        (Entry::Full, Some(bounds)) if may_wait => {
            bounds.wait(from, send);
            return (Some(0), None);
        }
        (Entry::Full, bounds) => (Some(0), SendEnd::Full(bounds.map_or(0, |bounds| bounds.bound.limit)), None),
        (Entry::Accepted, bounds) => {
            bounds.into_iter().for_each(|bounds| bounds.has_new = true);
            (Some(1), SendEnd::Accepted, None)
        }
        (Entry::Instead(dead, reason), bounds) => {
            if let Some(bounds) = bounds.filter(|_| reason == DeadLetterReason::DroppedOldest) {
                (bounds.has_new, bounds.lost) = (true, bounds.lost + 1);
            }
            (Some(0), SendEnd::Accepted, Some((dead, reason)))
        }
        // The caller knows the type of the mailbox.
        (Entry::WrongType, _) => (None, SendEnd::NoReceiver, None),
    };
    (grown, Some(Placed { send, end, instead }))
}

/// Has a message that is to be converted wait, if the mailbox refuses messages when it is full. Returns the message if
/// it needs no place, or `None` in the first place if the mailbox is for another type.
pub(crate) fn queue_converted(
    send: QueuedSend,
    from: Pid,
    mailbox: &mut dyn AnyMailbox,
    bounds: Option<&mut Bounds>,
) -> (Option<u32>, Option<QueuedSend>) {
    if !send.is_for(mailbox) {
        return (None, Some(send));
    }
    match bounds {
        Some(bounds) if bounds.bound.overflow == Overflow::Refuse => {
            bounds.wait(from, send);
            (Some(0), None)
        }
        _ => (Some(0), Some(send)),
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::primitives::{AtomicBool, Ordering};
    use crate::process::DeadLetter;
    use crate::sched::bounded_mailbox::BoundedMailbox;
    use crate::sched::mailbox::{Bound, Mailbox};
    use crate::sched::room_queue::STALE_TURNS;

    /// A mailbox of numbers with this bound, and the messages that have left the queue.
    struct Door {
        mailbox: Mailbox<u32>,
        bounds: Bounds,
        told: Vec<(bool, u32)>,
        granted: Vec<Arc<dyn WaitingSender>>,
    }

    /// A message from outside.
    struct Outside(u32, AtomicBool);

    impl WaitingSender for Outside {
        fn prepare(&self) {}

        fn fill(&self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Option<u32> {
            let mailbox = (mailbox as &mut dyn std::any::Any).downcast_mut::<Mailbox<u32>>()?;
            bounds?.put(mailbox, self.0);
            self.1.store(true, Ordering::Relaxed);
            Some(1)
        }

        fn settle(&self, _: bool, _: &mut dyn FnMut(&DeadLetter<'_>)) {}

        fn try_again(&self) {}
    }

    fn process(number: u32) -> Pid {
        Pid::new(0, number, 1).unwrap()
    }

    impl Door {
        fn new(limit: usize) -> Door {
            let bound = Bound { limit, overflow: Overflow::Refuse };
            let bounds = BoundedMailbox::new(Box::new(Mailbox::<u32>::new()), bound).bounds;
            Door { mailbox: Mailbox::new(), bounds, told: Vec::new(), granted: Vec::new() }
        }

        fn sends(&mut self, from: Pid, number: u64, message: u32) {
            let send = match number {
                0 => QueuedSend::plain(from, message, None),
                _ => QueuedSend::of_process(from, number, message),
            };
            let (grown, placed) = put(send, from, true, &mut self.mailbox, Some(&mut self.bounds));
            assert_eq!(grown == Some(1), placed.is_some());
        }

        fn registers(&mut self, message: u32) {
            let sender: Arc<dyn WaitingSender> = Arc::new(Outside(message, AtomicBool::new(false)));
            assert!(self.bounds.wait_or_grant(self.mailbox.messages.len(), &sender).is_some(), "there is no room");
        }

        /// Takes one message, and lets the next ones in.
        fn takes(&mut self) -> Option<u32> {
            let taken = self.mailbox.pop_message().map(|envelope| envelope.message);
            self.changes(|doorway| doorway.let_in());
            while let Some(sender) = self.granted.pop() {
                self.bounds.leave_grant();
                assert_eq!(sender.fill(&mut self.mailbox, Some(&mut self.bounds)), Some(1));
                self.changes(|doorway| doorway.let_in());
            }
            taken
        }

        fn changes(&mut self, change: impl for<'a> FnOnce(&mut Doorway<'a>) -> ToldSends) {
            let (mailbox, bounds) = (&mut self.mailbox, &mut self.bounds);
            let changed = change(&mut Doorway { mailbox, bounds, takes: || "u32" });
            let told = |(mut send, end): (QueuedSend, SendEnd)| {
                let accepted = matches!(end, SendEnd::Accepted);
                (accepted, send.take_message().unwrap_or_default())
            };
            self.told.extend(changed.ended.into_iter().map(told));
            self.granted.extend(changed.granted);
        }
    }

    #[test]
    fn processes_and_threads_take_turns_in_one_queue() {
        let (mut door, first, second) = (Door::new(1), process(1), process(2));
        (0..4).for_each(|n| door.sends(first, u64::from(n) + 1, n));
        door.registers(20);
        (0..3).for_each(|n| door.sends(second, u64::from(n) + 1, 10 + n));
        door.registers(21);
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 1, 20, 10, 21, 2, 11, 3, 12]);
        assert!(door.bounds.waiting.is_none());
    }

    #[test]
    fn no_turn_comes_to_a_thread_while_earlier_places_are_not_filled() {
        let (mut door, first) = (Door::new(2), process(1));
        door.sends(first, 1, 0);
        door.sends(first, 2, 1);
        door.registers(20);
        door.registers(21);
        door.sends(first, 3, 2);
        door.mailbox.pop_message();
        door.changes(|doorway| doorway.let_in());
        assert_eq!(door.granted.len(), 1);
        door.mailbox.pop_message();
        door.changes(|doorway| doorway.let_in());
        assert_eq!((door.granted.len(), door.mailbox.messages.len()), (1, 0), "the second one may not overtake");
        let taken: Vec<u32> = std::iter::from_fn(|| Some(door.takes())).skip(1).map_while(|taken| taken).collect();
        assert_eq!(taken, [20, 21, 2]);
    }

    #[test]
    fn no_plain_message_passes_one_that_waits_for_a_place_to_be_filled() {
        let (mut door, first) = (Door::new(2), process(1));
        door.sends(first, 1, 0);
        door.sends(first, 2, 1);
        door.registers(20);
        door.registers(21);
        door.mailbox.pop_message();
        door.mailbox.pop_message();
        door.changes(|doorway| doorway.let_in());
        assert_eq!(door.granted.len(), 2);
        // Both have places. A third one waits, although there is room again.
        door.bounds.leave_grant();
        let sender: Arc<dyn WaitingSender> = Arc::new(Outside(22, AtomicBool::new(false)));
        assert!(door.bounds.wait_or_grant(0, &sender).is_some());
        assert!(door.bounds.has_room(0) && !door.bounds.admit(1, 0), "it would pass the one that waits");
        door.bounds.leave_grant();
        door.changes(|doorway| doorway.let_in());
        assert!(door.bounds.waiting.is_none() && door.bounds.admit(1, 0));
    }

    #[test]
    fn plain_messages_go_with_the_turn_of_the_one_before_them() {
        let (mut door, first, second) = (Door::new(2), process(1), process(2));
        door.sends(first, 1, 0);
        door.sends(first, 2, 1);
        door.sends(first, 3, 2);
        (3..5_u32).for_each(|n| door.bounds.wait(first, QueuedSend::plain(first, n, None)));
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
        door.bounds.wait(first, QueuedSend::plain(first, 9_u32, None));
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
            assert!(turns <= 4 + STALE_TURNS, "{turns} after {n}");
        }
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 1]);
    }
}
