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
//! thousand messages does not keep others out. Senders outside have turns in the same order (`bounded_mailbox.rs`,
//! `waiting_send.rs`). Their messages are given places, which are filled after the lock is released. While such places
//! are not filled, no turn comes to a message from outside. So messages of one thread do not overtake each other.
//!
//! **Conversions.** A message to a `Recipient` is converted by user code, which does not run under the lock. In its
//! turn it gets a place. The thread that gave the place converts the message and fills the place. Meanwhile the process
//! has no turn, and its later messages stay behind.
//!
//! **No lost wake-up.** Outside the critical sections, this holds: *if a message waits, there is no room*. A message
//! begins to wait only where there is none. Room appears when a step is given its share of messages
//! (`Cell::fill`), when a step has taken messages that earlier steps had left (`Cell::hold`), and when a place is not
//! filled after all (`Cell::fill_converted`, `Cell::give_place_back`, and after `Cell::fill_each`). All of them let
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

use std::any::{Any, TypeId, type_name};
use std::collections::{HashMap, VecDeque};

use super::mailbox::{AnyMailbox, Envelope, Mailbox, Overflow};
use super::trace_marks::{Context, MessageTrace};
use crate::outcome::{Panic, Rejected, drop_contained};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::command::why_dead;
use crate::process::host::Host;
use crate::process::propagation::with_trace;
use crate::process::{Answer, Ask, CommandError, DeadLetter, DeadLetterReason, NoSuchProcessError, SendError};
use crate::timer::TimerId;

/// A sender whose messages wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    Process(Pid),
    /// The registration of a message from outside.
    Outside(u64),
}

/// All messages that wait for room in one mailbox. `O` is a message from outside.
pub(crate) struct RoomQueue<O> {
    processes: HashMap<Pid, SenderQueue>,
    outside: HashMap<u64, O>,
    /// The senders in the order of their turns. Those that no longer wait are skipped.
    turns: VecDeque<(Sender, u64)>,
    /// The number of the next turn or registration.
    next: u64,
}

/// The messages of one process. The first one waits for room, unless a message before it is converted.
pub(super) struct SenderQueue {
    number: u64,
    pub(super) sends: VecDeque<QueuedSend>,
    /// Whether a message has a place, and is converted at this moment. Then the process has no turn.
    pub(super) converts: bool,
}

/// The sender whose turn it is.
pub(super) enum Turn<O> {
    Process(Pid, SenderQueue),
    Outside(O),
}

/// The most turns of senders that no longer wait, beside as many as there are senders.
pub(super) const STALE_TURNS: usize = 16;

impl<O> Default for RoomQueue<O> {
    fn default() -> RoomQueue<O> {
        RoomQueue { processes: HashMap::new(), outside: HashMap::new(), turns: VecDeque::new(), next: 0 }
    }
}

impl<O> RoomQueue<O> {
    /// Whether messages of this process wait, or are converted.
    pub(crate) fn is_waiting(&self, from: Pid) -> bool {
        self.processes.contains_key(&from)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.outside.is_empty()
    }

    /// Puts a message behind the others of its process. The first one waits for room.
    pub(crate) fn push(&mut self, from: Pid, send: QueuedSend) {
        if let Some(queue) = self.processes.get_mut(&from) {
            return queue.sends.push_back(send);
        }
        let number = self.new_number();
        self.processes.insert(from, SenderQueue { number, sends: VecDeque::from([send]), converts: false });
        self.turns.push_back((Sender::Process(from), number));
    }

    /// Registers a message from outside. Returns the number of the registration.
    pub(crate) fn register(&mut self, sender: O) -> u64 {
        let number = self.new_number();
        self.turns.push_back((Sender::Outside(number), number));
        self.outside.insert(number, sender);
        number
    }

    /// Takes a registration out, if it is there and is meant.
    pub(crate) fn unregister(&mut self, number: u64, is_meant: impl FnOnce(&O) -> bool) -> Option<O> {
        self.outside.get(&number).is_some_and(is_meant).then(|| self.outside.remove(&number))?
    }

    fn is_current(&self, (sender, number): (Sender, u64)) -> bool {
        match sender {
            Sender::Process(pid) => self.processes.get(&pid).is_some_and(|queue| queue.number == number),
            Sender::Outside(number) => self.outside.contains_key(&number),
        }
    }

    /// Returns a new number. Now and then turns of senders that no longer wait are removed.
    fn new_number(&mut self) -> u64 {
        if self.turns.len() >= 2 * (self.processes.len() + self.outside.len()) + STALE_TURNS {
            let mut turns = std::mem::take(&mut self.turns);
            turns.retain(|turn| self.is_current(*turn));
            turns.shrink_to(2 * turns.len() + STALE_TURNS);
            self.turns = turns;
        }
        self.next += 1;
        self.next
    }

    /// Takes out the sender whose turn it is. None has a turn while it is that of a message from outside, and the
    /// places of earlier ones `are_filled` not yet.
    pub(super) fn next_turn(&mut self, are_filled: bool) -> Option<Turn<O>> {
        loop {
            let turn = *self.turns.front()?;
            let is_current = self.is_current(turn);
            match turn.0 {
                Sender::Outside(_) if is_current && !are_filled => return None,
                Sender::Outside(number) if is_current => {
                    self.turns.pop_front();
                    return self.outside.remove(&number).map(Turn::Outside);
                }
                Sender::Process(pid) if is_current => {
                    self.turns.pop_front();
                    return self.processes.remove(&pid).map(|queue| Turn::Process(pid, queue));
                }
                _ => _ = self.turns.pop_front(),
            }
        }
    }

    /// Puts a process that has had its turn at the end.
    pub(super) fn had_turn(&mut self, from: Pid, queue: SenderQueue) {
        if queue.converts {
            // It has its next turn when the message is converted.
            self.processes.insert(from, queue);
        } else if !queue.sends.is_empty() {
            self.turns.push_back((Sender::Process(from), queue.number));
            self.processes.insert(from, queue);
        }
    }

    /// Takes out the messages of one process, which keeps its turn.
    pub(super) fn remove(&mut self, from: Pid) -> Option<SenderQueue> {
        self.processes.remove(&from)
    }

    /// Puts the rest of them back.
    pub(super) fn keeps_turn(&mut self, from: Pid, queue: SenderQueue) {
        if queue.converts || !queue.sends.is_empty() {
            self.processes.insert(from, queue);
        }
    }

    /// Takes out everything in order: the messages of processes, and those from outside.
    pub(crate) fn take_all(mut self) -> (Vec<QueuedSend>, Vec<O>) {
        let (mut sends, mut outside) = (Vec::new(), Vec::new());
        while let Some(turn) = self.next_turn(true) {
            match turn {
                Turn::Process(_, queue) => sends.extend(queue.sends),
                Turn::Outside(sender) => outside.push(sender),
            }
        }
        sends.extend(self.processes.into_values().flat_map(|queue| queue.sends));
        (sends, outside)
    }

    pub(super) fn find(&mut self, from: Pid, number: u64) -> Option<&mut QueuedSend> {
        self.processes.get_mut(&from)?.sends.iter_mut().find(|send| send.number == number)
    }

    /// The number of turns that are kept.
    #[cfg(all(test, not(loom)))]
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// The number of messages that wait.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn len(&self) -> usize {
        self.outside.len() + self.processes.values().map(|queue| queue.sends.len()).sum::<usize>()
    }
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
pub(crate) struct QueuedSend {
    /// The number under which it is withdrawn. Zero for a plain message.
    number: u64,
    /// The timer that ends its wait.
    timer: Option<(Arc<dyn Host>, TimerId)>,
    message: Box<dyn AnyMessage>,
    context: MessageTrace,
}

impl QueuedSend {
    /// A message that a process sends with a limit. `tag` is the tag of its command.
    pub(crate) fn of_process<M: Send + 'static>(from: Pid, tag: u64, message: M) -> QueuedSend {
        QueuedSend::new(tag, Message { message: Some(message), from: Some(from), told: Told::Process { tag } })
    }

    /// A message that a process sent without a limit. It may ask this question.
    pub(crate) fn plain<M: Send + 'static>(from: Pid, message: M, ask: Option<Arc<Ask>>) -> QueuedSend {
        QueuedSend::new(0, Message { message: Some(message), from: Some(from), told: Told::Nobody(ask) })
    }

    pub(super) fn new(number: u64, message: impl AnyMessage + 'static) -> QueuedSend {
        QueuedSend { number, timer: None, message: Box::new(message), context: MessageTrace::default() }
    }

    /// Gives the message a context.
    pub(crate) fn in_trace(mut self, context: Option<Context>) -> QueuedSend {
        self.context = MessageTrace::new(context);
        self
    }

    /// Takes the context of the message.
    pub(super) fn take_trace(&mut self) -> MessageTrace {
        std::mem::take(&mut self.context)
    }

    /// Whether the message is converted when it has a place.
    pub(super) fn is_converted(&self) -> bool {
        self.message.is_converted()
    }

    /// The type of the message when it is converted, with its name. `None` if it is not to be converted.
    pub(super) fn converts_to(&self) -> Option<(TypeId, &'static str)> {
        self.message.converts_to()
    }

    /// Whether the mailbox takes the message, when it is converted.
    pub(super) fn is_for(&self, mailbox: &dyn AnyMailbox) -> bool {
        self.message.is_for(mailbox)
    }

    /// Converts the message. This runs user code. The result is a plain message.
    pub(super) fn convert(&mut self) -> Result<QueuedSend, Panic> {
        let converted = self.message.convert()?;
        Ok(converted.in_trace(self.context.take()))
    }

    /// The answer for a message that is in a mailbox, or could not be converted.
    pub(crate) fn answer_converted(mut self, panic: Option<Panic>, to: Pid) -> Option<(Pid, u64, Answer)> {
        self.forget_timer();
        let (from, tag, answer) = self.message.end(to, SendEnd::Accepted, &mut |_| ())?;
        Some((from, tag, panic.map_or(answer, |panic| Err(CommandError::Panicked(panic)))))
    }

    fn forget_timer(&mut self) {
        if let Some((host, timer)) = self.timer.take() {
            host.forget_timer(timer);
        }
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
        let mut entry = self.message.enter(mailbox, overflow);
        let is_in = match &mut entry {
            Entry::Accepted => true,
            Entry::Instead(oldest, DeadLetterReason::DroppedOldest) => {
                let mark = mailbox.signals().as_mut().and_then(|signals| signals.take_last_mark());
                oldest.context = MessageTrace::new(mark);
                true
            }
            Entry::Instead(newest, _) => {
                newest.context = MessageTrace::new(self.context.take());
                false
            }
            Entry::Full | Entry::WrongType => false,
        };
        if is_in && let Some(context) = self.context.take() {
            mailbox.mark(context);
        }
        entry
    }

    pub(super) fn waits_for_room(&self) -> bool {
        self.number > 0
    }

    /// Tells the sender how the wait ended, and reports dead letters to `grave`. Returns an answer that the caller
    /// delivers.
    pub(crate) fn end(
        mut self,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)> {
        self.forget_timer();
        let context = self.context.take();
        let told = self.message.end(to, end, &mut |letter| with_trace(context.as_deref(), letter, &mut *grave));
        drop_contained(context);
        told
    }

    /// Converts the message of a process, if it is to be converted and the result has type `M`, for a test that accepts
    /// it. Otherwise returns the name of the type that it has or would have. The outer result has the message in its
    /// place.
    pub(crate) fn take_converted<M: Send + 'static>(&mut self) -> Result<Result<M, Panic>, &'static str> {
        if !self.is_converted() {
            return self.take_message().map(Ok);
        }
        if !self.is_for(&Mailbox::<M>::new()) {
            return Err(self.message.type_name());
        }
        let converted = self.convert();
        let panic = |_| Panic::new(Box::new("the message was taken before"));
        Ok(converted.and_then(|mut converted| converted.take_message().map_err(panic)))
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

    /// Takes the message out, with the name of its type, unless it is to be converted.
    pub(super) fn take_boxed(&mut self) -> Option<(Box<dyn Any + Send>, &'static str)> {
        self.message.take_boxed()
    }

    /// The answer to a process whose message was taken out and is handed back.
    pub(super) fn come_back(mut self, message: Box<dyn Any + Send>, why: SendError) -> Option<(Pid, u64, Answer)> {
        let (number, from) = (self.number, self.message.put_back(message)?);
        Some((from, number, self.handed_back(why)))
    }

    /// Whether the end runs user code: an observer of dead letters.
    pub(crate) fn tells_user_code(&self, end: SendEnd) -> bool {
        match end {
            SendEnd::Accepted => false,
            SendEnd::NoSender(_) => true,
            _ => self.message.is_plain(),
        }
    }

    /// Whether the message counts as accepted when its wait ends in this way.
    pub(crate) fn counts(&self, end: SendEnd) -> bool {
        matches!(end, SendEnd::Accepted | SendEnd::NoSender(_)) || self.message.is_plain()
    }
}

/// The result of an attempt to put a message into a mailbox.
pub(super) enum Entry {
    /// It is in the mailbox, which has grown.
    Accepted,
    /// It was accepted, and this one had to go: itself or the oldest.
    Instead(QueuedSend, DeadLetterReason),
    Full,
    WrongType,
}

/// A message and its sender, with the type of the message erased.
pub(super) trait AnyMessage: Send {
    /// Whether the message was sent without a limit.
    fn is_plain(&self) -> bool;

    /// Whether the message is converted when it has a place.
    fn is_converted(&self) -> bool {
        false
    }

    /// The type of the converted message, with its name.
    fn converts_to(&self) -> Option<(TypeId, &'static str)> {
        None
    }

    fn is_for(&self, _: &dyn AnyMailbox) -> bool {
        true
    }

    /// Converts the message. Call it only if it is to be converted.
    fn convert(&mut self) -> Result<QueuedSend, Panic> {
        Err(Panic::new(Box::new("this message is not to be converted")))
    }

    /// Moves the message into the mailbox, if it has this type. If the mailbox is full, it does what `overflow` says.
    fn enter(&mut self, mailbox: &mut dyn AnyMailbox, overflow: Option<Overflow>) -> Entry;

    fn end(
        self: Box<Self>,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)>;

    fn handed_back(self: Box<Self>, why: SendError) -> Answer;

    /// Takes the message, unless it is to be converted.
    fn take_boxed(&mut self) -> Option<(Box<dyn Any + Send>, &'static str)> {
        None
    }

    /// Puts a message back that was taken. Returns its sender.
    fn put_back(&mut self, message: Box<dyn Any + Send>) -> Option<Pid> {
        drop_contained(message);
        None
    }

    /// The message, which is an `Option`, and the name of its type.
    fn message(&mut self) -> (&mut dyn Any, &'static str);

    /// The name of the type of the message, when it is converted.
    fn type_name(&mut self) -> &'static str {
        self.message().1
    }

    fn bury(self: Box<Self>, letter: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>));
}

struct Message<M> {
    /// Present until it is in a mailbox.
    message: Option<M>,
    from: Option<Pid>,
    told: Told,
}

/// The receiver of the result of a send.
enum Told {
    Process {
        tag: u64,
    },
    /// The message was sent without a limit. If it asks, the asker gets the reason for which it is dead.
    Nobody(Option<Arc<Ask>>),
}

/// The answer to a process: its message is accepted, or comes back.
pub(super) fn result<M: Send + 'static>(message: Option<M>, why: SendError) -> Answer {
    let result: Result<(), _> = message.map_or(Ok(()), |message| Err(Rejected::new(message, why)));
    Ok(Box::new(result))
}

/// The reasons for a dead letter and for a message that comes back. They are not used for one that was accepted.
pub(super) fn reasons(to: Pid, end: SendEnd, sent: &'static str) -> (DeadLetter<'static>, SendError) {
    let (reason, takes, why) = match end {
        SendEnd::WrongType(takes) => {
            let takes = takes();
            (DeadLetterReason::WrongType, Some(takes), SendError::WrongType { pid: to, takes, sent })
        }
        SendEnd::NoReceiver => (DeadLetterReason::Ended, None, NoSuchProcessError::Pid(to).into()),
        SendEnd::Full(limit) | SendEnd::NoSender(limit) => {
            (DeadLetterReason::Full, None, SendError::Full { pid: to, limit })
        }
        SendEnd::Accepted => (DeadLetterReason::Full, None, SendError::Full { pid: to, limit: 0 }),
    };
    (DeadLetter { takes, ..DeadLetter::new(to, reason) }, why)
}

impl<M: Send + 'static> AnyMessage for Message<M> {
    fn is_plain(&self) -> bool {
        matches!(self.told, Told::Nobody(_))
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
                Entry::Instead(QueuedSend::new(0, dead), reason)
            }
        }
    }

    fn end(
        self: Box<Self>,
        to: Pid,
        end: SendEnd,
        grave: &mut dyn FnMut(&DeadLetter<'_>),
    ) -> Option<(Pid, u64, Answer)> {
        let (letter, why) = reasons(to, end, type_name::<M>());
        match self.told {
            Told::Process { tag } if !matches!(end, SendEnd::NoSender(_)) => {
                Some((self.from?, tag, result(self.message, why)))
            }
            _ => {
                if self.message.is_some() {
                    self.bury(&letter, grave);
                }
                None
            }
        }
    }

    fn handed_back(self: Box<Self>, why: SendError) -> Answer {
        result(self.message, why)
    }

    fn take_boxed(&mut self) -> Option<(Box<dyn Any + Send>, &'static str)> {
        Some((Box::new(self.message.take()?), type_name::<M>()))
    }

    fn put_back(&mut self, message: Box<dyn Any + Send>) -> Option<Pid> {
        self.message = message.downcast().ok().map(|message| *message);
        self.from
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

impl QueuedSend {
    /// Reports a message that a full mailbox has dropped for another one.
    pub(crate) fn bury(mut self, to: Pid, reason: DeadLetterReason, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        let context = self.context.take();
        let mut grave = |letter: &DeadLetter<'_>| with_trace(context.as_deref(), letter, &mut *grave);
        self.message.bury(&DeadLetter::new(to, reason), &mut grave);
        drop_contained(context);
    }
}
