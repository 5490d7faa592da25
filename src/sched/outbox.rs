//! Messages that a step has yielded and that are not sent yet. There is one lane for each type of message.
//!
//! A lane holds its messages by value, without unsafe code. So a message needs no allocation on its way from one
//! process to another. The receiver and its type are looked up once for each run of messages to the same receiver.

mod sampled;
mod traced;

use std::any::{Any, TypeId, type_name};
use std::collections::VecDeque;
use std::iter::repeat_n;

use self::sampled::Sampling;
use super::bounded_mailbox::Bounds;
use super::mailbox::{AnyMailbox, Envelope, Mailbox};
use super::room_queue::QueuedSend;
use super::trace_marks::{Context, MessageTrace, TracedYields};
use crate::outcome::{drop_contained, undo_if_panicking};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::dead_letter::{DeadLetter, DeadLetterReason};
use crate::process::propagation::Propagator;
use crate::process::reply::Ask;

/// The lanes of one step output. They are kept from step to step, so that their buffers are reused.
#[derive(Default)]
pub(crate) struct Outbox {
    lanes: Vec<(TypeId, Box<dyn Lane>)>,
    // The lane of the last send. It is looked at first, because most steps send one type of message.
    last: usize,
    /// Present if the runtime has a propagator of traces.
    traces: Option<Box<TracedYields>>,
    /// Present if the runtime measures the waits of messages.
    sampling: Option<Box<Sampling>>,
    /// The messages until one is measured.
    unmeasured: u32,
}

impl Outbox {
    /// An outbox whose messages carry the contexts in which they are yielded.
    pub(crate) fn with_traces(propagator: Option<Arc<dyn Propagator>>) -> Outbox {
        let traces = propagator.map(|propagator| Box::new(TracedYields::new(propagator)));
        Outbox { traces, ..Outbox::default() }
    }

    /// Takes the messages of another outbox in place of those here, which were sent.
    #[cfg(feature = "durable")]
    pub(crate) fn replace_lanes(&mut self, other: Outbox) {
        (0..self.lanes.len()).for_each(|lane| self.uncover(lane));
        (self.lanes, self.last) = (other.lanes, other.last);
    }

    /// Whether the runtime has a propagator of traces.
    #[inline]
    pub(crate) fn has_traces(&self) -> bool {
        self.traces.is_some()
    }

    /// The contexts of the yields, if the runtime has a propagator of traces.
    #[inline]
    pub(crate) fn traces(&mut self) -> Option<&mut TracedYields> {
        self.traces.as_deref_mut()
    }

    /// Puts a message on the lane for its type. Returns the number of the lane.
    #[inline]
    pub(crate) fn push<M: Send + 'static>(&mut self, message: M) -> u32 {
        match self.lane_of::<M>() {
            Some(lane) => lane.letters.push_back(message),
            None => self.find_and_push(message),
        }
        self.last as u32
    }

    /// Puts copies of a message on the lane for its type. The last copy is the message itself. Returns the number of
    /// the lane. If a clone panics, no copy stays there.
    pub(crate) fn push_copies<M: Clone + Send + 'static>(&mut self, message: M, count: usize) -> u32 {
        if self.lane_of::<M>().is_none() {
            self.find::<M>();
            self.uncover(self.last);
        }
        if self.traces.is_some() {
            return self.push_traced_copies(message, count);
        }
        if let Some(lane) = self.lane_of::<M>() {
            lane.push_copies(message, count);
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
        match self.lane_of::<M>() {
            Some(lane) => lane.letters.push_back(message),
            None => self.push_otherwise(message),
        }
    }

    /// As `push`, for a message whose lane, which is the last one, is no plain one.
    #[cold]
    fn push_otherwise<M: Send + 'static>(&mut self, message: M) {
        self.uncover(self.last);
        match self.lane_of::<M>() {
            Some(lane) => lane.letters.push_back(message),
            None => self.push_traced(message),
        }
    }

    fn find<M: Send + 'static>(&mut self) {
        let wanted = TypeId::of::<M>();
        self.last = self.lanes.iter().position(|(of, _)| *of == wanted).unwrap_or_else(|| {
            let lane: Box<dyn Lane> = match self.traces {
                None => Box::new(LaneOf::<M>::new(VecDeque::new())),
                Some(_) => traced::lane::<M>(),
            };
            self.lanes.push((wanted, lane));
            self.lanes.len() - 1
        });
    }

    /// Returns a lane, whose next messages are delivered.
    #[inline]
    pub(crate) fn lane(&mut self, lane: u32) -> &mut dyn Lane {
        &mut *self.lanes[lane as usize].1
    }

    /// Looks at a message that is not sent yet, by its lane and its place there.
    pub(crate) fn look(&self, lane: u32, place: usize) -> Option<(&dyn Any, &'static str)> {
        self.lanes.get(lane as usize)?.1.look(place)
    }

    /// The next message of a lane. `None` if it has another type, or is not a plain message.
    #[inline]
    pub(crate) fn next_of<M: Send + 'static>(&self, lane: u32) -> Option<&M> {
        let (_, lane) = self.lanes.get(lane as usize)?;
        (&**lane as &dyn Any).downcast_ref::<LaneOf<M>>()?.letters.front()
    }

    /// Drops the messages that were not sent.
    pub(crate) fn clear(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| lane.clear());
        self.traces.iter_mut().for_each(|traces| traces.clear());
    }

    /// Frees large empty buffers.
    pub(crate) fn shrink(&mut self) {
        self.lanes.iter_mut().for_each(|(_, lane)| _ = lane.settle());
    }
}

/// The messages of one type that are not sent yet.
pub(crate) trait Lane: Any + Send {
    /// Moves the first `count` messages, which all go to the same receiver, into its open mailbox. Returns by how many
    /// messages the mailbox has grown, or `None` if it is for another type.
    fn fill(
        &mut self,
        count: u32,
        from: Option<Pid>,
        mailbox: &mut dyn AnyMailbox,
        bounds: Option<&mut Bounds>,
    ) -> Option<u32>;

    /// As `fill`, for one message from outside that was given a place, or for which one was kept. The place is there,
    /// even if a step has left messages since.
    fn fill_place(&mut self, mailbox: &mut dyn AnyMailbox, bounds: &mut Bounds) -> Option<u32> {
        let more = self.fill(1, None, mailbox, None)?;
        bounds.has_new = true;
        Some(more)
    }

    /// The number of messages that have found no room, and the reason for the last of them.
    fn last_dead(&self) -> (usize, Option<DeadLetterReason>);

    /// Sets the question that the next message asks. The lane needs it only if the message must wait.
    fn set_ask(&mut self, ask: Option<Arc<Ask>>);

    /// Takes the number of messages that wait behind others of their sender.
    fn take_waiting(&mut self) -> u32;

    /// Frees a large empty buffer. Returns whether messages have found no room, or wait. They are to be buried, or
    /// counted.
    fn settle(&mut self) -> bool;

    /// Shows to `grave` the messages that have found no room, and the first `missed` messages, whose mailbox was not
    /// opened, and drops them. `all` has the properties of the missed ones. No mailbox is open.
    fn bury(&mut self, missed: u32, all: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>));

    /// Drops all messages.
    fn clear(&mut self);

    /// Looks at a message that is not sent yet, by its place, and at its type.
    fn look(&self, place: usize) -> Option<(&dyn Any, &'static str)>;

    /// Takes the next message out, on a lane of its own.
    fn split_off_first(&mut self) -> Box<dyn Lane>;

    /// Moves the next `count` messages to another outbox. Returns the number of the lane there.
    #[cfg(feature = "durable")]
    fn forward(&mut self, count: usize, outbox: &mut Outbox) -> u32;

    /// Takes the next message.
    fn pop(&mut self) -> Option<Popped>;
}

/// A message that was taken out of its lane.
pub(crate) struct Popped {
    pub(crate) message: Box<dyn Any + Send>,
    /// The name of its type.
    pub(crate) type_name: &'static str,
    pub(crate) trace: MessageTrace,
}

struct LaneOf<M> {
    letters: VecDeque<M>,
    /// Messages that a mailbox with a bound has not taken, or has pushed out.
    dead: Vec<(Envelope<M>, DeadLetterReason)>,
    /// The number of messages that wait behind others of their sender.
    waiting: u32,
    ask: Option<Arc<Ask>>,
    /// The context of the next message. The lane needs it only if the message must wait.
    context: Option<Context>,
}

/// The largest buffer, in bytes, that a lane keeps from one busy time to the next.
const KEPT: usize = 64 * 1024;

impl<M> LaneOf<M> {
    fn new(letters: VecDeque<M>) -> LaneOf<M> {
        LaneOf { letters, dead: Vec::new(), waiting: 0, ask: None, context: None }
    }

    /// Puts copies of a message here. The last copy is the message itself. If a clone panics, no copy stays here.
    fn push_copies(&mut self, message: M, count: usize)
    where
        M: Clone,
    {
        let before = self.letters.len();
        undo_if_panicking(
            (self, repeat_n(message, count)),
            |(lane, copies)| lane.letters.extend(copies),
            |(lane, copies)| {
                drop_contained(copies);
                lane.take_back(before);
            },
        );
    }

    /// Drops the messages after the first `count`.
    #[cold]
    fn take_back(&mut self, count: usize) {
        self.letters.drain(count..).for_each(drop_contained);
    }

    /// As `fill`, for a mailbox that has no room for all of them.
    #[inline(never)]
    fn offer(&mut self, count: u32, from: Option<Pid>, mailbox: &mut Mailbox<M>, bounds: &mut Bounds) -> u32 {
        let before = self.dead.len();
        let letters = self.letters.drain(..count as usize);
        self.dead.extend(letters.filter_map(|message| bounds.offer(mailbox, Envelope { from, message })));
        count - (self.dead.len() - before) as u32
    }
}

impl<M: Send + 'static> LaneOf<M> {
    /// As `fill`, for a process whose earlier messages wait for room.
    #[cold]
    fn wait(&mut self, count: u32, from: Pid, bounds: &mut Bounds) -> u32 {
        for message in self.letters.drain(..count as usize) {
            bounds.wait(from, QueuedSend::plain(from, message, self.ask.take()).in_trace(self.context.take()));
        }
        self.waiting += count;
        0
    }
}

impl<M: Send + 'static> Lane for LaneOf<M> {
    fn fill(
        &mut self,
        count: u32,
        from: Option<Pid>,
        mailbox: &mut dyn AnyMailbox,
        bounds: Option<&mut Bounds>,
    ) -> Option<u32> {
        let mailbox = (mailbox as &mut dyn Any).downcast_mut::<Mailbox<M>>()?;
        if let Some(bounds) = bounds {
            if let Some(from) = from
                && bounds.is_waiting(from)
            {
                return Some(self.wait(count, from, bounds));
            }
            if !bounds.admit(count as usize, mailbox.messages.len()) {
                return Some(self.offer(count, from, mailbox, bounds));
            }
        }
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

    fn settle(&mut self) -> bool {
        // Consecutive letters are one order, so a small list of orders does not mean that this buffer is small.
        if self.letters.capacity() * size_of::<M>() > KEPT && self.letters.is_empty() {
            self.letters = VecDeque::new();
        }
        self.dead.len() + self.waiting as usize > 0
    }

    fn last_dead(&self) -> (usize, Option<DeadLetterReason>) {
        (self.dead.len(), self.dead.last().map(|(_, reason)| *reason))
    }

    fn set_ask(&mut self, ask: Option<Arc<Ask>>) {
        self.ask = ask;
    }

    fn take_waiting(&mut self) -> u32 {
        std::mem::take(&mut self.waiting)
    }

    #[cold]
    fn bury(&mut self, missed: u32, all: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        let missed =
            self.letters.drain(..missed as usize).map(|message| (Envelope { from: all.from, message }, all.reason));
        for (envelope, reason) in std::mem::take(&mut self.dead).into_iter().chain(missed) {
            let (from, message) = (envelope.from, Some(&envelope.message as &dyn Any));
            grave(&DeadLetter { from, reason, type_name: type_name::<M>(), message, ..*all });
            drop_contained(envelope);
        }
        self.settle();
    }

    fn clear(&mut self) {
        while let Some(letter) = self.letters.pop_front() {
            drop_contained(letter);
        }
        self.settle();
    }

    fn look(&self, place: usize) -> Option<(&dyn Any, &'static str)> {
        Some((self.letters.get(place)?, type_name::<M>()))
    }

    fn split_off_first(&mut self) -> Box<dyn Lane> {
        let letters = self.letters.pop_front().into_iter().collect();
        Box::new(LaneOf::new(letters))
    }

    #[cfg(feature = "durable")]
    fn forward(&mut self, count: usize, outbox: &mut Outbox) -> u32 {
        // Not by `push`: with a second caller, the compiler does not inline it into the steps that send.
        self.letters.drain(..count).for_each(|message| outbox.find_and_push(message));
        outbox.last as u32
    }

    fn pop(&mut self) -> Option<Popped> {
        let message = Box::new(self.letters.pop_front()?);
        Some(Popped { message, type_name: type_name::<M>(), trace: MessageTrace::default() })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::outcome::contain;
    use crate::primitives::{Arc, AtomicUsize, Ordering};
    use crate::process::{Events, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};
    use crate::sched::body::Ready;
    use crate::sched::cell::{Birth, Cell};
    use crate::sched::queue::Queues;
    use crate::sched::road::{OutsideExecutor, Road};
    use crate::sched::table::Table;

    #[test]
    fn a_lane_that_grew_in_a_burst_lets_its_buffer_go() {
        let pid: Pid = "<0.1.1>".parse().unwrap();
        for is_taken in [true, false] {
            let (mut outbox, mut mailbox) = (Outbox::default(), Mailbox::<u64>::new());
            (0..100_000_u64).for_each(|n| assert_eq!(outbox.push(n), 0));
            let lane = outbox.lane(0);
            if is_taken {
                assert_eq!(lane.fill(100_000, Some(pid), &mut mailbox, None), Some(100_000));
                assert!(!lane.settle());
                assert_eq!(mailbox.messages.len(), 100_000);
            } else {
                lane.bury(100_000, &DeadLetter::new(pid, DeadLetterReason::NoSuchProcess), &mut |_| ());
            }
            let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<u64>>().unwrap();
            assert_eq!((lane.letters.len(), lane.letters.capacity()), (0, 0));
        }
    }

    /// Takes large messages.
    struct Anybody;

    impl Process for Anybody {
        type Message = [u8; 1024];
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, [u8; 1024]>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    #[test]
    fn a_large_broadcast_leaves_no_large_buffer_behind() {
        let road = Road::new(Table::new(0, 200).unwrap(), Queues::new(0).0, 0, Clock::default(), 1);
        let live = |_| {
            let pid = road.table.vacancy()?;
            let body: Ready = described_body(Anybody, pid, SpawnOptions::new(), None);
            let kind = body.machine.kind();
            assert!(road.table.cell(pid)?.install(pid.generation(), kind, Birth::default(), 0, || false));
            Some(pid)
        };
        let receivers: Vec<Pid> = (0..200).filter_map(live).collect();
        assert_eq!(receivers.len(), 200);
        let mut outbox = Outbox::default();
        let lane = outbox.push_copies([0_u8; 1024], receivers.len());
        let mut executor = OutsideExecutor { road: &road };
        road.deliver_each(&mut executor, outbox.lane(lane), receivers[0], &receivers);
        let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<[u8; 1024]>>().unwrap();
        assert_eq!((lane.letters.len(), lane.letters.capacity()), (0, 0));
        let queued = |pid: &Pid| road.table.cell(*pid).and_then(Cell::look).map(|look| look.queued);
        assert!(receivers.iter().all(|pid| queued(pid) == Some(1)));
    }

    #[test]
    fn copies_of_a_clone_that_panics_leave_the_lane() {
        #[derive(Debug)]
        struct Fragile(Arc<AtomicUsize>);
        impl Clone for Fragile {
            fn clone(&self) -> Fragile {
                assert!(Arc::strong_count(&self.0) < 6, "on purpose");
                Fragile(self.0.clone())
            }
        }
        impl Drop for Fragile {
            // Each value is dropped by itself: the message, and then the copies.
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
                panic!("in a destructor");
            }
        }
        let (mut outbox, drops) = (Outbox::default(), Arc::new(AtomicUsize::new(0)));
        assert_eq!(outbox.push(Fragile(drops.clone())), 0);
        assert_eq!(outbox.push_copies(Fragile(drops.clone()), 1), 0);
        let copies = contain(|| outbox.push_copies(Fragile(drops.clone()), 5));
        assert_eq!(copies.unwrap_err().message(), "on purpose");
        let lane = (&*outbox.lanes[0].1 as &dyn Any).downcast_ref::<LaneOf<Fragile>>().unwrap();
        assert_eq!(lane.letters.len(), 2, "those of the sends before");
        assert_eq!(drops.load(Ordering::Relaxed), 3, "the message and two copies");
        outbox.clear();
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
