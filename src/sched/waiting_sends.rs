//! Messages that wait for room in a bounded mailbox, and the turns of their senders.
//!
//! A process, or a thread outside, may send with a limit. If the mailbox is full, its message waits *at the receiver*,
//! behind the lock of the receiver's cell. So no thread and no body waits, and every decision below is made in one
//! critical section of one cell.
//!
//! A message that waits is in one of these states. The arrows that leave *waits* remove the message from the queue.
//! So only one of them is taken. Its sender is told after the lock is released.
//!
//! | from | event, under the lock of the receiver's cell | to | the sender gets |
//! |---|---|---|---|
//! | offered | there is room, or the mailbox has no bound that refuses | accepted | an answer |
//! | offered | the mailbox is full, or an earlier message of this sender waits | waits | nothing yet |
//! | offered | there is no such process, or it takes another type | — | the message back |
//! | waits | the receiver makes room, and it is this sender's turn | accepted | an answer |
//! | waits | the receiver was replaced by one that takes another type, and makes room | — | the message back |
//! | waits | the limit is over, or the sender gives up | — | the message back |
//! | waits | the receiver ends | — | the message back |
//! | waits | the sender, a process, ends or its state machine has failed | — | nothing: it is a dead letter |
//!
//! **Order.** A later message of the same process to the same receiver must not overtake. Every message of a process
//! comes through the lock of the cell. There, it is put behind the waiting messages of its sender. A message that was
//! sent without a limit (*plain*, also a question) does not wait for room. It waits only for the messages before it.
//! When the last of these has left the queue, whatever the reason, the plain message is treated as if it were sent at
//! that moment: it is accepted, or it is a dead letter.
//!
//! **Turns.** Each sender has a queue of its own, and the senders take turns in the order in which they began to wait.
//! In its turn a sender brings one message, and the plain ones behind it. Then it goes to the end. So a sender with a
//! thousand messages does not keep others out. Threads outside are senders like any other.
//!
//! **No lost wake-up.** Outside the critical sections, this holds: *if a message waits, there is no room*. A message
//! begins to wait only where there is none. Room appears in two places only: when a step is given its share of
//! messages (`Cell::fill`), and when a step has taken messages that earlier steps had left (`Cell::hold`). Both let
//! waiting messages in, in the same critical section, until there is no room or no message that waits. Where there is no room, the
//! receiver has messages. So it is stepped again, unless it declines them or waits for an answer. What `hold` lets in
//! is there when the decision to rest is made, and counts as new.
//!
//! **The receiver's state machine is replaced.** The queues move to the new mailbox in the critical section that
//! replaces the old one. So there is no moment at which a message of a waiting sender could overtake. A `hold` follows.
//!
//! **The limit.** The timer of a limit is set after the message has begun to wait, and is then noted with the message
//! in another critical section. If the message is not there any more, the timer is cancelled. If the timer fires
//! before it is noted, it takes the message out. So no message stays behind without its timer, and no timer without
//! its message.
//!
//! **Cycles.** Processes may wait for room in each other's mailboxes, and take no messages meanwhile. No message is
//! accepted then until a limit is over.

use std::any::{Any, type_name};
use std::collections::{HashMap, VecDeque};

use super::bounded_mailbox::Bounds;
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
use super::router::why_dead;
use crate::latch::Latch;
use crate::outcome::{Rejected, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::host::Host;
use crate::process::target::NoSuchProcessError;
use crate::process::{Answer, Ask, DeadLetter, DeadLetterReason, SendError};
use crate::timer::TimerId;

/// A sender whose messages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Process(Pid),
    /// A send from outside has a number of its own.
    Outside(u64),
}

/// All messages that wait for room in one mailbox.
#[derive(Default)]
pub(crate) struct WaitingSends {
    senders: HashMap<Sender, SenderQueue>,
    /// The senders in the order of their turns. Those that no longer wait are skipped.
    turns: VecDeque<(Sender, u64)>,
    /// The number of the next queue.
    next: u64,
}

/// The messages of one sender. The first one waits for room.
struct SenderQueue {
    number: u64,
    sends: VecDeque<WaitingSend>,
}

/// The most turns of senders that no longer wait, beside as many as there are senders.
const STALE_TURNS: usize = 16;

impl WaitingSends {
    pub(crate) fn is_waiting(&self, sender: Sender) -> bool {
        self.senders.contains_key(&sender)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.senders.is_empty()
    }

    /// Puts a message behind the others of its sender. The first one waits for room.
    pub(crate) fn push(&mut self, sender: Sender, send: WaitingSend) {
        if let Some(queue) = self.senders.get_mut(&sender) {
            return queue.sends.push_back(send);
        }
        self.next += 1;
        if self.turns.len() >= 2 * self.senders.len() + STALE_TURNS {
            let senders = &self.senders;
            self.turns.retain(|(sender, number)| senders.get(sender).is_some_and(|queue| queue.number == *number));
            self.turns.shrink_to(2 * self.turns.len() + STALE_TURNS);
        }
        self.turns.push_back((sender, self.next));
        self.senders.insert(sender, SenderQueue { number: self.next, sends: VecDeque::from([send]) });
    }

    /// Takes out the sender whose turn it is.
    fn next_turn(&mut self) -> Option<(Sender, SenderQueue)> {
        loop {
            let (sender, number) = self.turns.pop_front()?;
            if self.senders.get(&sender).is_some_and(|queue| queue.number == number) {
                return self.senders.remove_entry(&sender);
            }
        }
    }

    /// Puts a sender that has had its turn at the end.
    fn had_turn(&mut self, sender: Sender, queue: SenderQueue) {
        if !queue.sends.is_empty() {
            self.turns.push_back((sender, queue.number));
            self.senders.insert(sender, queue);
        }
    }

    /// Takes out everything, each sender's messages in order.
    pub(crate) fn take_all(mut self) -> Vec<WaitingSend> {
        std::iter::from_fn(|| self.next_turn()).flat_map(|(_, queue)| queue.sends).collect()
    }

    fn find(&mut self, sender: Sender, number: u64) -> Option<&mut WaitingSend> {
        self.senders.get_mut(&sender)?.sends.iter_mut().find(|send| send.number == number)
    }

    /// The number of messages that wait.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.senders.values().map(|queue| queue.sends.len()).sum()
    }
}

/// The messages that a critical section has taken out of the queue. Their senders are told after it.
#[derive(Default)]
#[must_use]
pub(crate) struct EndedSends {
    pub(crate) ended: Vec<(WaitingSend, SendEnd)>,
    /// The number of messages that are in the mailbox now.
    pub(crate) entered: u32,
}

/// How the wait of a message ended.
#[derive(Clone, Copy)]
pub(crate) enum SendEnd {
    Accepted,
    /// There was no room when it had to be there. The number is the bound.
    Full(usize),
    /// The receiver takes messages of this type.
    WrongType(fn() -> &'static str),
    /// The receiver has ended.
    NoReceiver,
    /// The sender has ended, or its state machine has failed.
    NoSender(usize),
}

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
        self.withdraw_if(sender, end, |send| send.number == number)
    }

    /// Takes out all messages of a process that has ended.
    pub(crate) fn withdraw_all(&mut self, sender: Sender) -> EndedSends {
        let end = SendEnd::NoSender(self.bounds.bound.limit);
        self.withdraw_if(sender, end, WaitingSend::waits_for_room)
    }

    fn withdraw_if(&mut self, sender: Sender, end: SendEnd, which: impl Fn(&WaitingSend) -> bool) -> EndedSends {
        let mut told = EndedSends::default();
        let Some(waiting) = &mut self.bounds.waiting else { return told };
        let Some(mut queue) = waiting.senders.remove(&sender) else { return told };
        let (out, left): (Vec<_>, Vec<_>) = std::mem::take(&mut queue.sends).into_iter().partition(|send| which(send));
        queue.sends = left.into();
        told.ended.extend(out.into_iter().map(|send| (send, end)));
        self.let_plain_go(&mut queue, &mut told);
        let Some(waiting) = &mut self.bounds.waiting else { return told };
        if !queue.sends.is_empty() {
            // It keeps its turn.
            waiting.senders.insert(sender, queue);
        } else if waiting.is_empty() {
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
        let end = if send.message.enter(self.mailbox) {
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

/// A message that waits, or that is offered with a limit.
pub(crate) struct WaitingSend {
    /// The number under which it is withdrawn. Zero for a plain message.
    number: u64,
    /// The timer that ends its wait.
    timer: Option<(Arc<dyn Host>, TimerId)>,
    message: Box<dyn AnyMessage>,
}

impl WaitingSend {
    /// A message that a process sends with a limit. `tag` is the tag of its command.
    pub(crate) fn of_process<M: Send + 'static>(from: Pid, tag: u64, message: M) -> WaitingSend {
        WaitingSend::new(tag, Message { message: Some(message), from: Some(from), asker: Told::Process { tag } })
    }

    /// A message from outside. The result is set in the latch.
    pub(crate) fn from_outside<M: Send + 'static>(number: u64, message: M, result: OutsideResult<M>) -> WaitingSend {
        WaitingSend::new(number, Message { message: Some(message), from: None, asker: Told::Outside(result) })
    }

    /// A message that a process sent without a limit. It may ask this question.
    pub(crate) fn plain<M: Send + 'static>(from: Pid, message: M, ask: Option<Arc<Ask>>) -> WaitingSend {
        WaitingSend::new(0, Message { message: Some(message), from: Some(from), asker: Told::Nobody(ask) })
    }

    fn new<M: Send + 'static>(number: u64, message: Message<M>) -> WaitingSend {
        WaitingSend { number, timer: None, message: Box::new(message) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    fn waits_for_room(&self) -> bool {
        self.number > 0
    }

    /// Offers the message to an open mailbox. If there is no room, it waits there if it `may_wait`. Otherwise this
    /// returns it. Also returns by how many messages the mailbox has grown, or `None` if it is for another type.
    pub(crate) fn put(
        mut self,
        sender: Sender,
        may_wait: bool,
        mailbox: &mut dyn AnyMailbox,
        mut bounds: Option<&mut Bounds>,
    ) -> (Option<u32>, Option<Placed>) {
        let is_behind = bounds.as_ref().filter(|bounds| bounds.is_waiting(sender));
        let offered = match is_behind {
            Some(bounds) => Offered::Full(bounds.bound.limit),
            None => self.message.offer(mailbox, bounds.as_deref_mut()),
        };
        let (grown, end, instead) = match (offered, bounds) {
            (Offered::Full(_), Some(bounds)) if may_wait => {
                bounds.wait(sender, self);
                return (Some(0), None);
            }
            (Offered::Accepted, _) => (Some(1), SendEnd::Accepted, None),
            (Offered::Instead(dead, reason), _) => (Some(0), SendEnd::Accepted, Some((dead, reason))),
            (Offered::Full(limit), _) => (Some(0), SendEnd::Full(limit), None),
            // The caller knows the type of the mailbox.
            (Offered::WrongType, _) => (None, SendEnd::NoReceiver, None),
        };
        (grown, Some(Placed { send: self, end, instead }))
    }

    /// Tells the sender how the wait ended, and reports dead letters to `grave`. Returns an answer that the caller
    /// delivers.
    pub(crate) fn end(
        self,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)> {
        if let Some((host, timer)) = self.timer {
            host.forget_timer(timer);
        }
        self.message.end(to, end, grave)
    }

    /// Takes the message, for a test that inspects yields. If it has another type, returns the name of that type.
    pub(crate) fn take_message<M: 'static>(&mut self) -> Result<M, &'static str> {
        let (message, type_name) = self.message.message();
        message.downcast_mut::<Option<M>>().and_then(Option::take).ok_or(type_name)
    }

    /// The answer to a process whose message is handed back before it has waited.
    pub(crate) fn handed_back(self, why: SendError) -> Answer {
        self.message.handed_back(why)
    }

    /// Whether the end runs user code: wakers of a thread outside, or an observer of dead letters.
    pub(crate) fn tells_user_code(&self, end: SendEnd) -> bool {
        match self.message.told() {
            ToldKind::Process => matches!(end, SendEnd::NoSender(_)),
            ToldKind::Outside => true,
            ToldKind::Nobody => !matches!(end, SendEnd::Accepted),
        }
    }

    /// Whether the message counts as accepted when its wait ends in this way.
    pub(crate) fn counts(&self, end: SendEnd) -> bool {
        matches!(end, SendEnd::Accepted | SendEnd::NoSender(_)) || matches!(self.message.told(), ToldKind::Nobody)
    }
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
        found.map(|send| send.timer = Some(timer)).is_some()
    }
}

/// The result of a send from outside.
pub(crate) type OutsideResult<M> = Latch<Result<(), Rejected<M, SendError>>>;

/// A message with a limit that does not wait.
pub(crate) struct Placed {
    pub(crate) send: WaitingSend,
    pub(crate) end: SendEnd,
    /// A message that a full mailbox has dropped for it, or itself.
    pub(crate) instead: Option<(WaitingSend, DeadLetterReason)>,
}

/// The result of an offer.
enum Offered {
    /// It is in the mailbox, which has grown.
    Accepted,
    /// It was accepted, and this one had to go: itself or the oldest.
    Instead(WaitingSend, DeadLetterReason),
    /// There is no room. The number is the bound.
    Full(usize),
    WrongType,
}

/// A message and its sender, with the type of the message erased.
trait AnyMessage: Send {
    fn told(&self) -> ToldKind;

    fn offer(&mut self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Offered;

    /// Moves the message into the mailbox, if it has this type.
    fn enter(&mut self, mailbox: &mut dyn AnyMailbox) -> bool {
        matches!(self.offer(mailbox, None), Offered::Accepted)
    }

    fn end(
        self: Box<Self>,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)>;

    fn handed_back(self: Box<Self>, why: SendError) -> Answer;

    /// The message, which is an `Option`, and the name of its type.
    fn message(&mut self) -> (&mut dyn Any, &'static str);

    fn bury(self: Box<Self>, letter: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>));
}

struct Message<M> {
    /// Present until it is in a mailbox.
    message: Option<M>,
    from: Option<Pid>,
    asker: Told<M>,
}

/// The receiver of the result of a send.
enum Told<M> {
    Process {
        tag: u64,
    },
    Outside(OutsideResult<M>),
    /// The message was sent without a limit. If it asks, the asker gets the reason for which it is dead.
    Nobody(Option<Arc<Ask>>),
}

#[derive(Clone, Copy)]
enum ToldKind {
    Process,
    Outside,
    Nobody,
}

impl<M: Send + 'static> Message<M> {
    fn result(message: Option<M>, why: SendError) -> Result<(), Rejected<M, SendError>> {
        message.map_or(Ok(()), |message| Err(Rejected::new(message, why)))
    }
}

impl<M: Send + 'static> AnyMessage for Message<M> {
    fn told(&self) -> ToldKind {
        match self.asker {
            Told::Process { .. } => ToldKind::Process,
            Told::Outside(_) => ToldKind::Outside,
            Told::Nobody(_) => ToldKind::Nobody,
        }
    }

    fn offer(&mut self, mailbox: &mut dyn AnyMailbox, bounds: Option<&mut Bounds>) -> Offered {
        let Some(mailbox) = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>() else { return Offered::WrongType };
        let Some(message) = self.message.take() else { return Offered::Accepted };
        let envelope = Envelope { from: self.from, message };
        let Some(bounds) = bounds else {
            mailbox.messages.push(envelope);
            return Offered::Accepted;
        };
        match bounds.offer(mailbox, envelope) {
            None => Offered::Accepted,
            Some((back, DeadLetterReason::Full)) => {
                self.message = Some(back.message);
                Offered::Full(bounds.bound.limit)
            }
            Some((Envelope { from, message }, reason)) => {
                let dead = Message { message: Some(message), from, asker: Told::Nobody(None) };
                Offered::Instead(WaitingSend::new(0, dead), reason)
            }
        }
    }

    fn end(
        self: Box<Self>,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)> {
        let (reason, takes, why) = match end {
            SendEnd::WrongType(takes) => {
                let (takes, sent) = (takes(), type_name::<M>());
                (DeadLetterReason::WrongType, Some(takes), SendError::WrongType { pid: to, takes, sent })
            }
            SendEnd::NoReceiver => (DeadLetterReason::Ended, None, NoSuchProcessError::Pid(to).into()),
            // Not used for a message that was accepted.
            SendEnd::Full(limit) | SendEnd::NoSender(limit) => {
                (DeadLetterReason::Full, None, SendError::Full { pid: to, limit })
            }
            SendEnd::Accepted => (DeadLetterReason::Full, None, SendError::Full { pid: to, limit: 0 }),
        };
        let is_buried = matches!(end, SendEnd::NoSender(_)) || matches!(self.asker, Told::Nobody(_));
        if is_buried {
            if self.message.is_some() {
                self.bury(&DeadLetter { takes, ..DeadLetter::new(to, reason) }, grave);
            }
            return None;
        }
        let result = Message::result(self.message, why);
        match self.asker {
            Told::Process { tag } => Some((self.from?, tag, Ok(Box::new(result)))),
            Told::Outside(latch) => {
                drop_contained(latch.set(result));
                None
            }
            Told::Nobody(_) => None,
        }
    }

    fn handed_back(self: Box<Self>, why: SendError) -> Answer {
        Ok(Box::new(Message::result(self.message, why)))
    }

    fn message(&mut self) -> (&mut dyn Any, &'static str) {
        (&mut self.message, type_name::<M>())
    }

    fn bury(self: Box<Self>, letter: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        let shown = self.message.as_ref().map(|message| message as &dyn Any);
        let letter = DeadLetter { from: self.from, type_name: type_name::<M>(), message: shown, ..*letter };
        if let Told::Nobody(Some(ask)) = &self.asker
            && let Some(why) = why_dead(&letter)
        {
            ask.refuse(why);
        }
        grave(&letter);
        drop_contained(self);
    }
}

impl WaitingSend {
    /// Reports a message that a full mailbox has dropped for another one.
    pub(crate) fn bury(self, to: Pid, reason: DeadLetterReason, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        self.message.bury(&DeadLetter::new(to, reason), grave);
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sched::bounded_mailbox::BoundedMailbox;
    use crate::sched::mailbox::{Bound, Overflow};

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
            let (grown, placed) = send.put(from, true, &mut self.mailbox, Some(&mut self.bounds));
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
            let turns = door.bounds.waiting.as_ref().unwrap().turns.len();
            assert!(turns <= 2 + STALE_TURNS, "{turns} after {n}");
        }
        let taken: Vec<u32> = std::iter::from_fn(|| door.takes()).collect();
        assert_eq!(taken, [0, 1]);
    }
}
