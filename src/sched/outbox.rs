//! Messages that a step has yielded and that are not sent yet. There is one lane for each type of message.
//!
//! A lane holds its messages by value, without unsafe code. So a message needs no allocation on its way from one
//! process to another. The receiver and its type are looked up once for each run of messages to the same receiver.

use std::any::{Any, TypeId, type_name};
use std::collections::VecDeque;

use super::bounded_mailbox::{BoundedMailbox, Offer};
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
use crate::outcome::drop_contained;
use crate::pid::Pid;
use crate::process::dead_letter::{DeadLetter, DeadLetterReason, SendError};
use crate::process::target::NoSuchProcessError;

/// The lanes of one step output. They are kept from step to step, so that their buffers are reused.
#[derive(Default)]
pub(crate) struct Outbox {
    lanes: Vec<(TypeId, Box<dyn Lane>)>,
    // The lane of the last send. It is looked at first, because most steps send one type of message.
    last: usize,
}

impl Outbox {
    /// Puts a message on the lane for its type. Returns the number of the lane.
    #[inline]
    pub(crate) fn push<M: Send + 'static>(&mut self, message: M) -> u32 {
        match self.lane_of::<M>() {
            Some(lane) => lane.letters.push_back(message),
            None => self.find_and_push(message),
        }
        self.last as u32
    }

    /// Returns the lane of the last send, if it is for this type.
    #[inline]
    fn lane_of<M: Send + 'static>(&mut self) -> Option<&mut LaneOf<M>> {
        let (_, lane) = self.lanes.get_mut(self.last)?;
        (&mut **lane as &mut dyn Any).downcast_mut()
    }

    #[inline(never)]
    fn find_and_push<M: Send + 'static>(&mut self, message: M) {
        self.find::<M>();
        if let Some(lane) = self.lane_of::<M>() {
            lane.letters.push_back(message);
        }
    }

    fn find<M: Send + 'static>(&mut self) {
        let wanted = TypeId::of::<M>();
        self.last = self.lanes.iter().position(|(of, _)| *of == wanted).unwrap_or_else(|| {
            self.lanes.push((wanted, Box::new(LaneOf::<M> { letters: VecDeque::new() })));
            self.lanes.len() - 1
        });
    }

    /// Posts the next `count` messages of a lane, all of them to one receiver.
    #[inline]
    pub(crate) fn deliver(&mut self, lane: u32, count: u32, to: Pid, from: Pid, post: &mut dyn Post) {
        self.lanes[lane as usize].1.deliver(count, to, from, post);
    }

    /// Puts the next `count` messages of a lane into a mailbox that no other thread can reach. Returns whether it
    /// accepts them.
    #[inline]
    pub(crate) fn give(&mut self, lane: u32, count: u32, from: Pid, mailbox: &mut dyn AnyMailbox) -> bool {
        self.lanes[lane as usize].1.give(count, from, mailbox)
    }

    /// Drops the messages that were not sent.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.clear());
    }

    /// Frees large empty buffers.
    pub(crate) fn shrink(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.shrink());
    }

    /// Takes the next message of a lane, and its type, for a test that inspects yields.
    pub(crate) fn pop(&mut self, lane: u32) -> Option<(Box<dyn Any + Send>, &'static str)> {
        self.lanes[lane as usize].1.pop()
    }
}

/// Posts letters. The router does this for the executor that steps the process.
pub(crate) trait Post {
    /// Opens the mailbox of `to` and calls `fill` under its lock. Wakes its owner if an event should wake it.
    ///
    /// `fill` returns by how many messages the mailbox has grown, or `None` if the mailbox is for another type.
    fn post(&mut self, to: Pid, fill: &mut dyn FnMut(Opened<'_>) -> Option<u32>) -> Result<(), Missed>;

    /// Reports a message that no step will get. No mailbox is open.
    fn dead(&mut self, letter: &DeadLetter<'_>);
}

/// Why a mailbox was not opened. It is small, because it is the result of every post.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missed {
    NoSuchProcess,
    /// The mailbox has another type. The function returns the name of its type.
    WrongType(fn() -> &'static str),
}

impl Missed {
    pub(crate) fn into_error(self, pid: Pid, sent: &'static str) -> SendError {
        match self {
            Missed::NoSuchProcess => NoSuchProcessError::Pid(pid).into(),
            Missed::WrongType(takes) => SendError::WrongType { pid, takes: takes(), sent },
        }
    }

    fn dead_reason(self) -> DeadLetterReason {
        match self {
            Missed::NoSuchProcess => DeadLetterReason::NoSuchProcess,
            Missed::WrongType(_) => DeadLetterReason::WrongType,
        }
    }

    /// Returns the type that the process takes, if that is the reason.
    fn takes(self) -> Option<&'static str> {
        match self {
            Missed::NoSuchProcess => None,
            Missed::WrongType(takes) => Some(takes()),
        }
    }
}

/// An open mailbox.
pub(crate) enum Opened<'a> {
    /// A [`Mailbox`] without a bound.
    Free(&'a mut dyn AnyMailbox),
    /// A [`BoundedMailbox`].
    Bounded(&'a mut dyn AnyMailbox),
}

trait Lane: Any + Send {
    fn deliver(&mut self, count: u32, to: Pid, from: Pid, post: &mut dyn Post);
    fn give(&mut self, count: u32, from: Pid, mailbox: &mut dyn AnyMailbox) -> bool;
    fn clear(&mut self);
    fn shrink(&mut self);
    fn pop(&mut self) -> Option<(Box<dyn Any + Send>, &'static str)>;
}

struct LaneOf<M> {
    letters: VecDeque<M>,
}

/// The largest buffer, in bytes, that a lane keeps from one busy time to the next.
const KEPT: usize = 64 * 1024;

/// Dead messages with their senders.
type Dead<M> = Vec<(Envelope<M>, DeadLetterReason)>;

#[cold]
fn tell_of_dead<M: Send + 'static>(dead: Dead<M>, to: Pid, takes: Option<&'static str>, post: &mut dyn Post) {
    for (envelope, reason) in dead {
        let (from, message) = (envelope.from, Some(&envelope.message as &dyn Any));
        let type_name = type_name::<M>();
        post.dead(&DeadLetter { from, type_name, takes, message, ..DeadLetter::new(to, reason) });
        drop_contained(envelope);
    }
}

impl<M: Send + 'static> LaneOf<M> {
    /// Posts the first `count` letters, which all go to the same receiver, into its open mailbox. Returns by how many
    /// messages the mailbox has grown.
    #[inline(always)]
    fn fill(&mut self, count: u32, from: Pid, opened: Opened<'_>, dead: &mut Dead<M>) -> Option<u32> {
        let from = Some(from);
        match opened {
            Opened::Free(mailbox) => {
                let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>()?;
                if count == 1 {
                    if let Some(message) = self.letters.pop_front() {
                        mailbox.messages.push_parts(from, message);
                    }
                } else {
                    let letters = self.letters.drain(..count as usize);
                    mailbox.messages.extend(letters.map(|message| Envelope { from, message }));
                }
                Some(count)
            }
            Opened::Bounded(mailbox) => {
                let mailbox = (mailbox as &mut dyn Any).downcast_mut::<BoundedMailbox<M>>()?;
                let mut more = 0;
                for message in self.letters.drain(..count as usize) {
                    match mailbox.offer(Envelope { from, message }) {
                        Offer::Taken => more += 1,
                        Offer::Refused(envelope) => dead.push((envelope, DeadLetterReason::Full)),
                        Offer::Dead(envelope, why) => dead.push((envelope, why)),
                    }
                }
                Some(more)
            }
        }
    }
}

impl<M: Send + 'static> LaneOf<M> {
    /// Reports the first `count` letters as dead: the mailbox of their receiver was not opened.
    #[cold]
    fn bury(&mut self, count: u32, to: Pid, from: Pid, missed: Missed, post: &mut dyn Post) {
        let letters = self.letters.drain(..count as usize);
        let dead = letters.map(|message| (Envelope { from: Some(from), message }, missed.dead_reason())).collect();
        tell_of_dead(dead, to, missed.takes(), post);
    }
}

impl<M: Send + 'static> Lane for LaneOf<M> {
    fn deliver(&mut self, count: u32, to: Pid, from: Pid, post: &mut dyn Post) {
        let mut dead = Vec::new();
        let posted = post.post(to, &mut |opened| self.fill(count, from, opened, &mut dead));
        if let Err(missed) = posted {
            self.bury(count, to, from, missed, post);
        }
        if !dead.is_empty() {
            tell_of_dead(dead, to, None, post);
        }
        // Consecutive letters are one order, so a small list of orders does not mean that this buffer is small.
        self.shrink();
    }

    fn give(&mut self, count: u32, from: Pid, mailbox: &mut dyn AnyMailbox) -> bool {
        let given = self.fill(count, from, Opened::Free(mailbox), &mut Vec::new()).is_some();
        self.shrink();
        given
    }

    fn clear(&mut self) {
        while let Some(letter) = self.letters.pop_front() {
            drop_contained(letter);
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.letters.capacity() * size_of::<M>() > KEPT && self.letters.is_empty() {
            self.letters = VecDeque::new();
        }
    }

    fn pop(&mut self) -> Option<(Box<dyn Any + Send>, &'static str)> {
        Some((Box::new(self.letters.pop_front()?), type_name::<M>()))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Accepts everything into one mailbox, or nothing.
    struct Letterbox(Option<Mailbox<u64>>);

    impl Post for Letterbox {
        fn post(&mut self, _: Pid, fill: &mut dyn FnMut(Opened<'_>) -> Option<u32>) -> Result<(), Missed> {
            fill(Opened::Free(self.0.as_mut().ok_or(Missed::NoSuchProcess)?));
            Ok(())
        }

        fn dead(&mut self, _: &DeadLetter<'_>) {}
    }

    #[test]
    fn a_lane_that_grew_in_a_burst_lets_its_buffer_go() {
        let pid = "<0.1.1>".parse().unwrap();
        for mut post in [Letterbox(Some(Mailbox::new())), Letterbox(None)] {
            let mut outbox = Outbox::default();
            (0..100_000_u64).for_each(|n| assert_eq!(outbox.push(n), 0));
            outbox.deliver(0, 100_000, pid, pid, &mut post);
            let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<u64>>().unwrap();
            assert_eq!((lane.letters.len(), lane.letters.capacity()), (0, 0));
            assert!(post.0.is_none_or(|mailbox| mailbox.messages.len() == 100_000));
        }
    }
    #[test]
    fn a_step_that_failed_leaves_no_large_buffer_behind() {
        let mut outbox = Outbox::default();
        (0..100_000_u64).for_each(|n| assert_eq!(outbox.push(n), 0));
        outbox.clear();
        let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<u64>>().unwrap();
        assert_eq!((lane.letters.len(), lane.letters.capacity()), (0, 0));
    }
}
