//! The events that wait for a process: messages in the order of their arrival, and signals (control and completions).
//!
//! The same structure is used twice. One is behind the lock of the process's cell, for events that arrive while a
//! thread holds the body. The other is inside the body, for events that its next steps will see.

use std::any::Any;
use std::collections::HashSet;

pub(crate) use super::signals::{Control, Senders, Signal, Signals, Unwanted};
use super::small_queue::SmallQueue;
use crate::outcome::{LinkedExit, drop_contained};
use crate::pid::Pid;
use crate::process::dead_letter::DeadLetter;
use crate::process::propagation::{TraceContext, with_trace};
use crate::process::reply::Completion;
use crate::sched::trace_marks::Context;

/// The behaviour of a full mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The message is refused. A sender outside gets it back. The message of a process becomes a dead letter.
    Refuse,
    /// The message is accepted. The oldest message that waits is dropped, and becomes a dead letter.
    DropOldest,
    /// The message is dropped, and becomes a dead letter.
    DropNewest,
}

/// The bound of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) limit: usize,
    pub(crate) overflow: Overflow,
}

/// A message and its sender.
pub(crate) struct Envelope<M> {
    pub(crate) from: Option<Pid>,
    pub(crate) message: M,
}

/// The messages that wait, in the order of their arrival.
pub(crate) type Queue<M> = SmallQueue<Envelope<M>>;

impl<M> Queue<M> {
    /// As `push`, for the parts of an envelope.
    ///
    /// The envelope is put together at its final place. If it were put together elsewhere and then moved as a whole,
    /// it would be read before its parts are written.
    #[inline]
    pub(crate) fn push_parts(&mut self, from: Option<Pid>, message: M) {
        match self {
            Queue::Empty => *self = Queue::One(Envelope { from, message }),
            Queue::Many(many) => many.push_back(Envelope { from, message }),
            Queue::One(_) => self.push_second(Envelope { from, message }),
        }
    }
}

impl<M> Senders for Queue<M> {
    fn len(&self) -> usize {
        self.len()
    }

    fn sender(&self, place: usize) -> Option<Pid> {
        match self {
            Queue::Empty => None,
            Queue::One(only) => only.from,
            Queue::Many(many) => many.get(place)?.from,
        }
    }
}

/// Messages and signals of one process.
pub(crate) struct Mailbox<M> {
    pub(crate) messages: Queue<M>,
    pub(crate) signals: Option<Box<Signals>>,
}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> Mailbox<M> {
        Mailbox { messages: Queue::Empty, signals: None }
    }

    #[inline]
    pub(crate) fn pop_message(&mut self) -> Option<Envelope<M>> {
        let envelope = self.messages.pop();
        if let (Some(signals), Some(_)) = (&mut self.signals, &envelope) {
            signals.popped += 1;
        }
        envelope
    }

    /// Takes the context of the next message. Call it before the message is taken.
    #[inline]
    pub(crate) fn take_mark(&mut self) -> Option<Context> {
        self.signals.as_mut()?.take_mark()
    }

    /// Drops everything. The caller should have taken the contents out.
    pub(crate) fn clear(&mut self) {
        if !matches!(self.messages, Queue::Empty) {
            drop_contained(std::mem::replace(&mut self.messages, Queue::Empty));
        }
        if let Some(signals) = self.signals.take() {
            signals.drop_each();
        }
    }

    pub(crate) fn has_signals(&self) -> bool {
        self.signals.as_ref().is_some_and(|signals| !signals.is_empty())
    }

    /// The number of messages that have arrived, counted as `popped` is.
    fn arrived(&self) -> u64 {
        self.signals.as_ref().map_or(0, |signals| signals.popped) + self.messages.len() as u64
    }
}

/// A dead message, as it is shown before it is dropped.
pub(crate) struct Dead<'a> {
    pub(crate) from: Option<Pid>,
    pub(crate) type_name: &'static str,
    pub(crate) message: &'a dyn Any,
    pub(crate) context: Option<&'a dyn TraceContext>,
}

impl Dead<'_> {
    /// Tells `tell` of the message. `all` has the properties that all these messages share.
    pub(crate) fn tell(&self, all: &DeadLetter<'_>, tell: impl FnOnce(&DeadLetter<'_>)) {
        let Dead { from, type_name, message, context } = *self;
        with_trace(context, &DeadLetter { from, type_name, message: Some(message), ..*all }, tell);
    }
}

/// Called with each dead message.
pub(crate) type Grave<'a> = dyn FnMut(Dead<'_>) + 'a;

/// A mailbox with its message type erased.
pub(crate) trait AnyMailbox: Any + Send {
    fn signal(&mut self, signal: Signal);

    /// Gives the last message a context.
    fn mark(&mut self, context: Context);

    /// Has the wait of a message measured that was accepted at this moment. It is the last one but for `later` others.
    fn mark_wait(&mut self, later: u64, accepted: u64);

    /// As `signal`, for a completion.
    fn complete(&mut self, completion: Completion);

    /// Moves the contents of `other`, a mailbox of the same type, behind the contents here. At most `limit` messages
    /// are moved. Returns how many completions were moved.
    fn absorb(&mut self, other: &mut dyn AnyMailbox, limit: usize) -> u32;

    fn messages(&self) -> usize;

    /// Shows each message, with its sender.
    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any));

    fn has_signals(&self) -> bool;

    /// Frees large empty buffers.
    fn shrink(&mut self);

    /// Takes the messages out one by one, and shows each to `grave` before it is dropped.
    fn bury(&mut self, grave: &mut Grave<'_>);

    /// Returns the signals.
    fn signals(&mut self) -> &mut Option<Box<Signals>>;

    /// Whether a signal waits that is no answer.
    fn has_control(&mut self) -> bool {
        self.signals().as_ref().is_some_and(|signals| signals.has_control())
    }

    /// Takes the link through which the process was ended, if it was recorded here.
    fn take_killer(&mut self) -> Option<LinkedExit> {
        self.signals().as_mut()?.take_killer()
    }

    /// Takes out events that the process no longer wants.
    fn forget(&mut self, unwanted: &HashSet<Unwanted>) -> Vec<Control> {
        self.signals().as_mut().map_or_else(Vec::new, |signals| signals.forget(unwanted))
    }

    /// Whether the process was asked to stop. The request may wait here, or a step may have taken it from here.
    fn is_asked_to_stop(&mut self) -> bool {
        self.signals().as_ref().is_some_and(|signals| signals.is_asked_to_stop())
    }

    /// Takes out the signals that only the failed state machine wanted.
    fn take_of_failed(&mut self) -> Vec<Signal> {
        self.signals().as_mut().map_or_else(Vec::new, |signals| signals.take_of_failed())
    }

    /// Drops the signals, each by itself: an answer is a user's value, and so is an error in an exit.
    fn drop_signals(&mut self) {
        if let Some(signals) = self.signals().take() {
            signals.drop_each();
        }
    }
}

/// Takes out the marks of the messages that are not among the first `moved`. They stay with these messages.
#[cold]
fn leave_marks(signals: &mut Option<Box<Signals>>, moved: u64) -> Option<Box<Signals>> {
    // Those of a flooded mailbox stay where they are at each step.
    let all_stay = moved == 0 && signals.as_ref().is_some_and(|signals| signals.has_only_waits());
    if all_stay { signals.take() } else { signals.as_mut()?.split_marks(moved) }
}

impl<M: Send + 'static> AnyMailbox for Mailbox<M> {
    fn signal(&mut self, signal: Signal) {
        let arrived = self.arrived();
        self.signals.get_or_insert_default().add(signal, arrived);
    }

    fn mark(&mut self, context: Context) {
        let last = self.arrived().saturating_sub(1);
        self.signals.get_or_insert_default().mark(last, context);
    }

    fn mark_wait(&mut self, later: u64, accepted: u64) {
        let behind = (self.messages.len() as u64).saturating_sub(later + 1);
        self.signals.get_or_insert_default().mark_wait(behind, accepted);
    }

    fn complete(&mut self, completion: Completion) {
        let arrived = self.arrived();
        self.signals.get_or_insert_default().completions.push((arrived, completion));
    }

    fn absorb(&mut self, other: &mut dyn AnyMailbox, limit: usize) -> u32 {
        let mut signals = other.signals().take();
        let is_same_type = (other as &dyn Any).is::<Mailbox<M>>();
        let moved = if is_same_type { limit } else { 0 };
        if signals.as_ref().is_some_and(|signals| signals.has_marks()) {
            *other.signals() = leave_marks(&mut signals, moved as u64);
        }
        let Some(other) = (other as &mut dyn Any).downcast_mut::<Mailbox<M>>() else {
            // From a mailbox of another type, only the signals are moved. The messages among which its completions
            // had their places are not moved, so the completions come next.
            return self.absorb_signals(signals, |_| 0);
        };
        let completions = self.absorb_signals(signals, |place| place);
        if limit >= other.messages.len() {
            self.messages.append(&mut other.messages);
        } else {
            for _ in 0..limit {
                if let Some(envelope) = other.messages.pop() {
                    self.messages.push(envelope);
                }
            }
            let arrived = self.arrived();
            if let Some(signals) = &mut self.signals {
                signals.wait_behind(arrived, &other.messages);
            }
        }
        completions
    }

    fn messages(&self) -> usize {
        self.messages.len()
    }

    fn show_messages<'a>(&'a self, show: &mut dyn FnMut(Option<Pid>, &'a dyn Any)) {
        // Most mailboxes are empty, and an invariant looks at all of them.
        if !self.messages.is_empty() {
            self.messages.iter().for_each(|envelope| show(envelope.from, &envelope.message));
        }
    }

    fn has_signals(&self) -> bool {
        self.has_signals()
    }

    fn shrink(&mut self) {
        self.messages.shrink();
        if self.signals.as_ref().is_some_and(|signals| signals.is_needless()) {
            self.signals = None;
        }
    }

    fn bury(&mut self, grave: &mut Grave<'_>) {
        while !self.messages.is_empty() {
            let context = self.take_mark();
            let Some(envelope) = self.pop_message() else { return };
            let Envelope { from, message } = &envelope;
            let type_name = std::any::type_name::<M>();
            grave(Dead { from: *from, type_name, message, context: context.as_deref() });
            drop_contained(envelope);
            drop_contained(context);
        }
    }

    fn signals(&mut self) -> &mut Option<Box<Signals>> {
        &mut self.signals
    }
}

impl<M: Send + 'static> Mailbox<M> {
    /// Puts signals that waited elsewhere behind the signals here. Their places among the messages were counted from
    /// the first message of that other queue, which comes after all messages here.
    fn absorb_signals(&mut self, signals: Option<Box<Signals>>, place: impl Fn(u64) -> u64) -> u32 {
        let Some(theirs) = signals else { return 0 };
        let offset = self.arrived();
        let place = |arrived| place(arrived) + offset;
        match &mut self.signals {
            Some(mine) => mine.absorb(*theirs, place),
            none => none.insert(theirs.moved(place)).completions.len() as u32,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn envelope(message: u32) -> Envelope<u32> {
        Envelope { from: None, message }
    }

    #[test]
    fn a_burst_leaves_no_large_buffer_behind() {
        let mut mailbox = Mailbox::new();
        (0..1_000).for_each(|n| mailbox.messages.push(envelope(n)));
        while mailbox.messages.pop().is_some() {}
        AnyMailbox::shrink(&mut mailbox);
        assert!(matches!(mailbox.messages, Queue::Empty));
    }

    #[test]
    fn absorbed_completions_keep_their_place_among_the_messages() {
        let completed = |tag| Signal::Completed(Completion::from(None, tag, Ok(Box::new(()))));
        let (mut body, mut inbox) = (Mailbox::new(), Mailbox::new());
        (0..3).for_each(|n| body.messages.push(envelope(n)));
        body.signal(completed(1));
        body.pop_message();
        inbox.messages.push(envelope(3));
        inbox.signal(completed(2));
        inbox.messages.push(envelope(4));
        assert_eq!(body.absorb(&mut inbox, usize::MAX), 1);
        let signals = body.signals.unwrap();
        let places: Vec<_> = signals.completions.iter().map(|(arrived, one)| (*arrived, one.tag())).collect();
        assert_eq!(places, [(3, 1), (4, 2)], "after message 2, and after message 3");
    }

    #[test]
    fn absorbed_completions_keep_their_place_where_there_are_none() {
        let completed = |tag| Signal::Completed(Completion::from(None, tag, Ok(Box::new(()))));
        let (mut body, mut inbox) = (Mailbox::new(), Mailbox::new());
        (0..2).for_each(|n| body.messages.push(envelope(n)));
        // One message and one completion have been taken there.
        inbox.messages.push(envelope(9));
        inbox.signal(completed(1));
        inbox.pop_message();
        assert!(inbox.signals.as_mut().unwrap().next_completion(true).is_some());
        inbox.messages.push(envelope(2));
        inbox.signal(completed(2));
        inbox.messages.push(envelope(3));
        inbox.signal(completed(3));
        assert_eq!(body.absorb(&mut inbox, usize::MAX), 2);
        let mut order = Vec::new();
        while !body.messages.is_empty() {
            let next = body.signals.as_mut().unwrap().next_completion(true);
            order.push(next.map_or_else(|| body.pop_message().unwrap().message, |next| next.tag() as u32 * 100));
        }
        order.extend(body.signals.unwrap().next_completion(true).map(|last| last.tag() as u32 * 100));
        assert_eq!(order, [0, 1, 2, 200, 3, 300]);
    }
}
