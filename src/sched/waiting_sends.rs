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
//! waiting messages in, in the same critical section, until there is no room or no message that waits. If there is no
//! room, the receiver has messages. So it is stepped again, unless it declines them or waits for an answer. Messages
//! that `hold` lets in are there when the decision to rest is made, and count as new.
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

use super::mailbox::{AnyMailbox, Envelope, Mailbox, Overflow};
use crate::latch::Latch;
use crate::outcome::{Rejected, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::host::Host;
use crate::process::target::NoSuchProcessError;
use crate::process::{Answer, Ask, CommandError, DeadLetter, DeadLetterReason, SendError};
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
pub(super) struct SenderQueue {
    number: u64,
    pub(super) sends: VecDeque<WaitingSend>,
}

/// The most turns of senders that no longer wait, beside as many as there are senders.
pub(super) const STALE_TURNS: usize = 16;

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
    pub(super) fn next_turn(&mut self) -> Option<(Sender, SenderQueue)> {
        loop {
            let (sender, number) = self.turns.pop_front()?;
            if self.senders.get(&sender).is_some_and(|queue| queue.number == number) {
                return self.senders.remove_entry(&sender);
            }
        }
    }

    /// Puts a sender that has had its turn at the end.
    pub(super) fn had_turn(&mut self, sender: Sender, queue: SenderQueue) {
        if !queue.sends.is_empty() {
            self.turns.push_back((sender, queue.number));
            self.senders.insert(sender, queue);
        }
    }

    /// Takes out the messages of one sender, which keeps its turn.
    pub(super) fn remove(&mut self, sender: Sender) -> Option<SenderQueue> {
        self.senders.remove(&sender)
    }

    /// Puts the rest of them back.
    pub(super) fn keeps_turn(&mut self, sender: Sender, queue: SenderQueue) {
        if !queue.sends.is_empty() {
            self.senders.insert(sender, queue);
        }
    }

    /// Takes out everything, each sender's messages in order.
    pub(crate) fn take_all(mut self) -> Vec<WaitingSend> {
        std::iter::from_fn(|| self.next_turn()).flat_map(|(_, queue)| queue.sends).collect()
    }

    pub(super) fn find(&mut self, sender: Sender, number: u64) -> Option<&mut WaitingSend> {
        self.senders.get_mut(&sender)?.sends.iter_mut().find(|send| send.number == number)
    }

    /// The number of turns that are kept.
    #[cfg(all(test, not(loom)))]
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
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
        WaitingSend::new(tag, Message { message: Some(message), from: Some(from), told: Told::Process { tag } })
    }

    /// A message from outside. The result is set in the latch.
    pub(crate) fn from_outside<M: Send + 'static>(number: u64, message: M, result: OutsideResult<M>) -> WaitingSend {
        WaitingSend::new(number, Message { message: Some(message), from: None, told: Told::Outside(result) })
    }

    /// A message that a process sent without a limit. It may ask this question.
    pub(crate) fn plain<M: Send + 'static>(from: Pid, message: M, ask: Option<Arc<Ask>>) -> WaitingSend {
        WaitingSend::new(0, Message { message: Some(message), from: Some(from), told: Told::Nobody(ask) })
    }

    fn new<M: Send + 'static>(number: u64, message: Message<M>) -> WaitingSend {
        WaitingSend { number, timer: None, message: Box::new(message) }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records the timer that ends the wait.
    pub(super) fn set_timer(&mut self, timer: (Arc<dyn Host>, TimerId)) {
        self.timer = Some(timer);
    }

    /// Moves the message into a mailbox.
    pub(super) fn enter(&mut self, mailbox: &mut dyn AnyMailbox, overflow: Option<Overflow>) -> Entry {
        self.message.enter(mailbox, overflow)
    }

    pub(super) fn waits_for_room(&self) -> bool {
        self.number > 0
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
        match self.message.kind() {
            ToldKind::Process => matches!(end, SendEnd::NoSender(_)),
            ToldKind::Outside => true,
            ToldKind::Nobody => !matches!(end, SendEnd::Accepted),
        }
    }

    /// Whether the message counts as accepted when its wait ends in this way.
    pub(crate) fn counts(&self, end: SendEnd) -> bool {
        matches!(end, SendEnd::Accepted | SendEnd::NoSender(_)) || matches!(self.message.kind(), ToldKind::Nobody)
    }
}

/// The result of a send from outside.
pub(crate) type OutsideResult<M> = Latch<Result<(), Rejected<M, SendError>>>;

/// The result of an attempt to put a message into a mailbox.
pub(super) enum Entry {
    /// It is in the mailbox, which has grown.
    Accepted,
    /// It was accepted, and this one had to go: itself or the oldest.
    Instead(WaitingSend, DeadLetterReason),
    Full,
    WrongType,
}

/// A message and its sender, with the type of the message erased.
trait AnyMessage: Send {
    fn kind(&self) -> ToldKind;

    /// Moves the message into the mailbox, if it has this type. If the mailbox is full, it does what `overflow` says.
    fn enter(&mut self, mailbox: &mut dyn AnyMailbox, overflow: Option<Overflow>) -> Entry;

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
    told: Told<M>,
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
    fn kind(&self) -> ToldKind {
        match self.told {
            Told::Process { .. } => ToldKind::Process,
            Told::Outside(_) => ToldKind::Outside,
            Told::Nobody(_) => ToldKind::Nobody,
        }
    }

    fn enter(&mut self, mailbox: &mut dyn AnyMailbox, overflow: Option<Overflow>) -> Entry {
        let Some(mailbox) = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>() else { return Entry::WrongType };
        let dropped = match overflow {
            None => None,
            Some(Overflow::Refuse) => return Entry::Full,
            Some(Overflow::DropNewest) => {
                let newest = self.message.take().map(|message| Envelope { from: self.from, message });
                newest.zip(Some(DeadLetterReason::DroppedNewest))
            }
            Some(Overflow::DropOldest) => mailbox.pop_message().zip(Some(DeadLetterReason::DroppedOldest)),
        };
        if let Some(message) = self.message.take() {
            mailbox.messages.push_parts(self.from, message);
        }
        match dropped {
            None => Entry::Accepted,
            Some((Envelope { from, message }, reason)) => {
                let dead = Message { message: Some(message), from, told: Told::Nobody(None) };
                Entry::Instead(WaitingSend::new(0, dead), reason)
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
        let is_buried = matches!(end, SendEnd::NoSender(_)) || matches!(self.told, Told::Nobody(_));
        if is_buried {
            if self.message.is_some() {
                self.bury(&DeadLetter { takes, ..DeadLetter::new(to, reason) }, grave);
            }
            return None;
        }
        let result = Message::result(self.message, why);
        match self.told {
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
        if let Told::Nobody(Some(ask)) = &self.told
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

/// The error for a process whose question is this dead letter. `None` if the question is not dead: a message that was
/// dropped to make room belongs to another sender.
pub(crate) fn why_dead(letter: &DeadLetter<'_>) -> Option<CommandError> {
    let pid = letter.to;
    Some(match (letter.reason, letter.takes) {
        (DeadLetterReason::DroppedOldest, _) => return None,
        (DeadLetterReason::NoSuchProcess, _) => NoSuchProcessError::Pid(pid).into(),
        (_, Some(takes)) => SendError::WrongType { pid, takes, sent: letter.type_name }.into(),
        _ => CommandError::Full(pid),
    })
}
