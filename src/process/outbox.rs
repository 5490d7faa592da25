//! Messages that a step has yielded and that are not sent yet: one lane for each type of message.
//!
//! A lane holds its messages by value, so that a message costs no allocation on its way from one process to another,
//! without a word of unsafe code; what is not known here (which process, of which type) is asked once for each run of
//! messages to the same receiver.

use std::any::{Any, TypeId, type_name};
use std::collections::VecDeque;

use super::bounded::{BoundedMailbox, Offer};
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
use super::pid::Pid;
use super::refusal::{DeadReason, SendError};
use crate::outcome::drop_contained;

/// The lanes of one step output. They are kept from step to step, so that the next message finds room.
#[derive(Default)]
pub(crate) struct Outbox {
    lanes: Vec<(TypeId, Box<dyn Lane>)>,
    // Most steps send one type of message; the lane of the last send is looked at first.
    last: usize,
}

impl Outbox {
    /// Puts a message on its lane, and says which.
    #[inline]
    pub(crate) fn push<M: Send + 'static>(&mut self, to: Pid, message: M) -> u32 {
        let wanted = TypeId::of::<M>();
        if self.lanes.get(self.last).is_none_or(|(of, _)| *of != wanted) {
            self.find::<M>();
        }
        let lane: &mut dyn Any = &mut *self.lanes[self.last].1;
        if let Some(lane) = lane.downcast_mut::<LaneOf<M>>() {
            lane.letters.push_back((to, message));
        }
        self.last as u32
    }

    #[inline(never)]
    fn find<M: Send + 'static>(&mut self) {
        let wanted = TypeId::of::<M>();
        self.last = self.lanes.iter().position(|(of, _)| *of == wanted).unwrap_or_else(|| {
            self.lanes.push((wanted, Box::new(LaneOf::<M> { letters: VecDeque::new() })));
            self.lanes.len() - 1
        });
    }

    /// Posts the next `count` messages of a lane.
    #[inline]
    pub(crate) fn deliver(&mut self, lane: u32, count: u32, from: Pid, post: &mut dyn Post) {
        self.lanes[lane as usize].1.deliver(count, from, post);
    }

    /// Drops what was not sent.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.clear());
    }

    /// Lets large empty buffers go.
    pub(crate) fn shrink(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.shrink());
    }

    /// The next message of a lane as it is, for a test that looks at what was yielded.
    pub(crate) fn pop(&mut self, lane: u32) -> Option<(Pid, Box<dyn Any + Send>)> {
        self.lanes[lane as usize].1.pop()
    }
}

/// Where letters are posted: the router, on behalf of whoever steps the process.
pub(crate) trait Post {
    /// Opens the mailbox of `to` for messages of one type, has it filled under its lock, and wakes its owner if there is
    /// anything to wake it for. `fill` says how many more messages the mailbox holds.
    fn post(&mut self, to: Pid, sent: TypeId, fill: &mut dyn FnMut(Opened<'_>) -> u32) -> Result<(), Missed>;

    /// Reports a message that will not be stepped. No mailbox is open.
    fn dead(&mut self, to: Pid, from: Option<Pid>, why: DeadReason, type_name: &'static str, message: &dyn Any);
}

/// Why a mailbox was not opened. Small, for it is the result of every post.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Missed {
    NoSuchProcess,
    /// With the type that the process takes.
    WrongType(fn() -> &'static str),
}

impl Missed {
    pub(crate) fn into_error(self, pid: Pid, sent: &'static str) -> SendError {
        match self {
            Missed::NoSuchProcess => SendError::NoSuchProcess { pid },
            Missed::WrongType(takes) => SendError::WrongType { pid, takes: takes(), sent },
        }
    }

    fn dead_reason(self) -> DeadReason {
        match self {
            Missed::NoSuchProcess => DeadReason::NoSuchProcess,
            Missed::WrongType(_) => DeadReason::WrongType,
        }
    }
}

/// An open mailbox.
pub(crate) enum Opened<'a> {
    /// It takes whatever comes: a [`Mailbox`].
    Free(&'a mut dyn AnyMailbox),
    /// It has a bound: a [`BoundedMailbox`].
    Bounded(&'a mut dyn AnyMailbox),
}

trait Lane: Any + Send {
    fn deliver(&mut self, count: u32, from: Pid, post: &mut dyn Post);
    fn clear(&mut self);
    fn shrink(&mut self);
    fn pop(&mut self) -> Option<(Pid, Box<dyn Any + Send>)>;
}

struct LaneOf<M> {
    letters: VecDeque<(Pid, M)>,
}

/// A lane keeps a buffer of at most this many bytes from one busy time to the next.
const KEPT: usize = 64 * 1024;

/// Messages that are dead, with whoever had sent them.
type Dead<M> = Vec<(Envelope<M>, DeadReason)>;

impl<M: Send + 'static> LaneOf<M> {
    /// Posts the first `count` letters, which all go to the same receiver, into its open mailbox; how many more that
    /// holds now.
    #[inline]
    fn fill(&mut self, count: u32, from: Pid, opened: Opened<'_>, dead: &mut Dead<M>) -> u32 {
        let from = Some(from);
        match opened {
            Opened::Free(mailbox) => {
                let Some(mailbox) = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>() else { return 0 };
                for _ in 0..count {
                    if let Some((_, message)) = self.letters.pop_front() {
                        mailbox.messages.push(Envelope { from, message });
                    }
                }
                count
            }
            Opened::Bounded(mailbox) => {
                let Some(mailbox) = (mailbox as &mut dyn Any).downcast_mut::<BoundedMailbox<M>>() else { return 0 };
                let mut more = 0;
                for (_, message) in self.letters.drain(..count as usize) {
                    match mailbox.offer(Envelope { from, message }) {
                        Offer::Taken => more += 1,
                        Offer::Refused(envelope) => dead.push((envelope, DeadReason::Full)),
                        Offer::Dead(envelope, why) => dead.push((envelope, why)),
                    }
                }
                more
            }
        }
    }
}

impl<M: Send + 'static> Lane for LaneOf<M> {
    fn deliver(&mut self, mut left: u32, from: Pid, post: &mut dyn Post) {
        while left > 0 {
            let Some(&(to, _)) = self.letters.front() else { return };
            let mut same = 1;
            while same < left && self.letters.get(same as usize).is_some_and(|(other, _)| *other == to) {
                same += 1;
            }
            left -= same;
            let mut dead = Vec::new();
            let posted = post.post(to, TypeId::of::<M>(), &mut |opened| self.fill(same, from, opened, &mut dead));
            if let Err(missed) = posted {
                let letters = self.letters.drain(..same as usize);
                let why = missed.dead_reason();
                dead.extend(letters.map(|(_, message)| (Envelope { from: Some(from), message }, why)));
            }
            for (envelope, why) in dead {
                post.dead(to, envelope.from, why, type_name::<M>(), &envelope.message);
                drop_contained(envelope);
            }
        }
        // Consecutive letters are one order, so that a small list of orders says nothing about this buffer.
        self.shrink();
    }

    fn clear(&mut self) {
        while let Some(letter) = self.letters.pop_front() {
            drop_contained(letter);
        }
    }

    fn shrink(&mut self) {
        if self.letters.capacity() * size_of::<(Pid, M)>() > KEPT && self.letters.is_empty() {
            self.letters = VecDeque::new();
        }
    }

    fn pop(&mut self) -> Option<(Pid, Box<dyn Any + Send>)> {
        let (to, message) = self.letters.pop_front()?;
        Some((to, Box::new(message)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Takes everything into one mailbox, or nothing.
    struct Letterbox(Option<Mailbox<u64>>);

    impl Post for Letterbox {
        fn post(&mut self, _: Pid, _: TypeId, fill: &mut dyn FnMut(Opened<'_>) -> u32) -> Result<(), Missed> {
            fill(Opened::Free(self.0.as_mut().ok_or(Missed::NoSuchProcess)?));
            Ok(())
        }

        fn dead(&mut self, _: Pid, _: Option<Pid>, _: DeadReason, _: &'static str, _: &dyn Any) {}
    }

    #[test]
    fn a_lane_that_grew_in_a_burst_lets_its_buffer_go() {
        let pid = "<0.1.1>".parse().unwrap();
        for mut post in [Letterbox(Some(Mailbox::new())), Letterbox(None)] {
            let mut outbox = Outbox::default();
            (0..100_000_u64).for_each(|n| assert_eq!(outbox.push(pid, n), 0));
            outbox.deliver(0, 100_000, pid, &mut post);
            let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<u64>>().unwrap();
            assert_eq!((lane.letters.len(), lane.letters.capacity()), (0, 0));
            assert!(post.0.is_none_or(|mailbox| mailbox.messages.len() == 100_000));
        }
    }
}
