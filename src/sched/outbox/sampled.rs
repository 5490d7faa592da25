//! Samples of the messages that steps send, in a runtime with figures. The receiver learns how long they have waited.
//!
//! When a step has returned, its messages are counted. If one of them is to be measured, its lane is *covered* by a
//! lane that does the same, and that marks the message when it is in its mailbox. The next message for the lane takes
//! the cover off. So lanes, and the sends to them, do not know of samples.

use std::convert::Infallible;

use super::*;
use crate::sched::small_queue::SmallQueue;
use crate::sched::wait_sampler::{SinceStart, WaitSampler};

/// The most lanes that are counted without an allocation.
const FEW: usize = 8;

/// The sampler of an outbox, and the covers of its lanes, which are used again.
pub(super) struct Sampling {
    sampler: WaitSampler,
    /// The covers that are not in use. Each has an empty lane in it.
    // Boxed, because a cover replaces a boxed lane.
    #[allow(clippy::vec_box)]
    spare: Vec<Box<SampledLane>>,
}

impl Outbox {
    /// Adds a sampler of the messages.
    pub(crate) fn with_sampler(self, sampler: Option<WaitSampler>) -> Outbox {
        let Some(mut sampler) = sampler else { return Outbox { unmeasured: u32::MAX, ..self } };
        let unmeasured = sampler.first_gap();
        let sampling = Sampling { sampler, spare: Vec::new() };
        Outbox { sampling: Some(Box::new(sampling)), unmeasured, ..self }
    }

    /// Counts messages. Returns false, and counts nothing, if one of them may have to be measured.
    #[inline]
    pub(crate) fn passes(&mut self, messages: u32) -> bool {
        let passes = messages < self.unmeasured;
        if passes {
            self.unmeasured -= messages;
        }
        passes
    }

    /// Chooses the messages of a step that are measured. `deliveries` has all deliveries of the step in order. Each has
    /// a lane and the number of its messages.
    #[cold]
    pub(crate) fn sample(&mut self, deliveries: impl Iterator<Item = (u32, u32)>) {
        let (mut few, mut many);
        let passed: &mut [u32] = match self.lanes.len() {
            lanes @ ..=FEW => {
                few = [0; FEW];
                &mut few[..lanes]
            }
            lanes => {
                many = vec![0; lanes];
                &mut many
            }
        };
        for (lane, count) in deliveries {
            let Some(first) = passed.get_mut(lane as usize) else { return };
            self.measure(lane, *first, count);
            *first += count;
        }
    }

    /// As `sample`, for the only delivery of a step.
    #[cold]
    pub(crate) fn sample_lane(&mut self, lane: u32, count: u32) {
        self.measure(lane, 0, count);
    }

    /// Chooses the messages of a delivery that are measured. `first` messages of the step for this lane came before it.
    fn measure(&mut self, lane: u32, first: u32, count: u32) {
        let Some(sampling) = &mut self.sampling else {
            // Without a sampler, no message is measured. The countdown begins again.
            self.unmeasured = u32::MAX;
            return;
        };
        let (mut place, mut left) = (first, count);
        let mut measured = SmallQueue::Empty;
        while left >= self.unmeasured {
            let next = std::mem::replace(&mut self.unmeasured, sampling.sampler.next_gap());
            left -= next;
            place += next;
            measured.push(place - 1);
        }
        self.unmeasured -= left;
        if !measured.is_empty() {
            let clock = sampling.sampler.clock().clone();
            self.cover(lane as usize, measured, clock);
        }
    }

    /// Has the next message of a lane measured.
    pub(crate) fn sample_next(&mut self, lane: u32, clock: SinceStart) {
        self.cover(lane as usize, SmallQueue::One(0), clock);
    }

    fn cover(&mut self, at: usize, mut measured: SmallQueue<u32>, clock: SinceStart) {
        match self.cover_of(at) {
            // This cover was made in the same step.
            Some(cover) if cover.passed == 0 => return cover.measured.append(&mut measured),
            Some(_) => self.uncover(at),
            None => {}
        }
        let Some((_, lane)) = self.lanes.get_mut(at) else { return };
        let spare = self.sampling.as_mut().and_then(|sampling| sampling.spare.pop());
        let mut cover = match spare {
            Some(spare) => spare,
            None => {
                let (lane, measured) = (empty_lane(), SmallQueue::Empty);
                Box::new(SampledLane { lane, nothing: None, passed: 0, measured, clock })
            }
        };
        (cover.passed, cover.measured) = (0, measured);
        std::mem::swap(&mut cover.lane, lane);
        let nothing = std::mem::replace(lane, cover);
        if let Some(cover) = self.cover_of(at) {
            cover.nothing = Some(nothing);
        }
    }

    fn cover_of(&mut self, lane: usize) -> Option<&mut SampledLane> {
        let (_, lane) = self.lanes.get_mut(lane)?;
        (&mut **lane as &mut dyn Any).downcast_mut()
    }

    /// Takes the cover off a lane, if it has one. The cover measures no further message.
    #[cold]
    pub(super) fn uncover(&mut self, at: usize) {
        let Some(cover) = self.cover_of(at) else { return };
        let nothing = cover.nothing.take();
        let Some((_, lane)) = self.lanes.get_mut(at) else { return };
        let covered = std::mem::replace(lane, nothing.unwrap_or_else(empty_lane));
        if let Ok(mut cover) = (covered as Box<dyn Any>).downcast::<SampledLane>() {
            std::mem::swap(&mut cover.lane, lane);
            if let Some(sampling) = &mut self.sampling {
                cover.measured = SmallQueue::Empty;
                sampling.spare.push(cover);
            }
        }
    }
}

/// A lane without messages. It fills the place of a lane.
fn empty_lane() -> Box<dyn Lane> {
    Box::new(LaneOf::<Infallible>::new(VecDeque::new()))
}

/// A lane of which some messages are measured.
struct SampledLane {
    lane: Box<dyn Lane>,
    /// The empty lane, while this covers a lane.
    nothing: Option<Box<dyn Lane>>,
    /// The number of messages that have left the lane.
    passed: u32,
    /// The numbers of the messages that are measured. The first that leaves the lane has the number 0.
    measured: SmallQueue<u32>,
    clock: SinceStart,
}

impl SampledLane {
    /// Records that messages have left the lane. Returns whether the last of them is to be measured.
    fn pass(&mut self, count: u32) -> bool {
        self.passed += count;
        let mut last = None;
        while self.measured.front().is_some_and(|number| *number < self.passed) {
            last = self.measured.pop();
        }
        last.is_some_and(|last| last + 1 == self.passed)
    }
}

impl Lane for SampledLane {
    fn fill(
        &mut self,
        count: u32,
        from: Option<Pid>,
        mailbox: &mut dyn AnyMailbox,
        mut bounds: Option<&mut Bounds>,
    ) -> Option<u32> {
        let end = self.passed + count;
        if self.measured.front().is_none_or(|number| *number >= end) {
            let grown = self.lane.fill(count, from, mailbox, bounds)?;
            self.passed = end;
            return Some(grown);
        }
        if bounds.is_none() {
            let grown = self.lane.fill(count, from, mailbox, None)?;
            let now = self.clock.now();
            while self.measured.front().is_some_and(|number| *number < end)
                && let Some(number) = self.measured.pop()
            {
                mailbox.mark_wait(u64::from(end - 1 - number), now);
            }
            self.passed = end;
            return Some(grown);
        }
        let mut grown = 0;
        for _ in 0..count {
            let (dead, _) = self.lane.last_dead();
            let more = self.lane.fill(1, from, mailbox, bounds.as_deref_mut())?;
            grown += more;
            // A message that waits for room has not entered.
            let has_entered = match self.lane.last_dead() {
                (now, Some(DeadLetterReason::DroppedOldest)) if now > dead => true,
                _ => more == 1,
            };
            if self.pass(1) && has_entered {
                mailbox.mark_wait(0, self.clock.now());
            }
        }
        Some(grown)
    }

    fn last_dead(&self) -> (usize, Option<DeadLetterReason>) {
        self.lane.last_dead()
    }

    fn set_ask(&mut self, ask: Option<Arc<Ask>>) {
        self.lane.set_ask(ask);
    }

    fn take_waiting(&mut self) -> u32 {
        self.lane.take_waiting()
    }

    fn settle(&mut self) -> bool {
        self.lane.settle()
    }

    fn bury(&mut self, missed: u32, all: &DeadLetter<'_>, grave: &mut dyn FnMut(&DeadLetter<'_>)) {
        self.pass(missed);
        self.lane.bury(missed, all, grave);
    }

    fn clear(&mut self) {
        self.measured = SmallQueue::Empty;
        self.lane.clear();
    }

    fn look(&self, place: usize) -> Option<(&dyn Any, &'static str)> {
        self.lane.look(place)
    }

    fn split_off_first(&mut self) -> Box<dyn Lane> {
        self.pass(1);
        self.lane.split_off_first()
    }

    #[cfg(feature = "durable")]
    fn forward(&mut self, count: usize, outbox: &mut Outbox) -> u32 {
        self.pass(count as u32);
        self.lane.forward(count, outbox)
    }

    fn pop(&mut self) -> Option<Popped> {
        self.pass(1);
        self.lane.pop()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;
    use crate::sched::mailbox::{Bound, Overflow};

    /// An outbox that measures one message in so many.
    fn sampling(one_in: u32) -> Outbox {
        let clock = ManualClock::new().clock();
        let sampler = WaitSampler::new(one_in, 0, SinceStart::new(clock.clone(), clock.now()));
        Outbox::default().with_sampler(Some(sampler))
    }

    fn pid() -> Pid {
        "<0.1.1>".parse().unwrap()
    }

    /// The messages of a mailbox that are measured.
    fn measured<M: Copy>(mailbox: &mut Mailbox<M>) -> Vec<M> {
        let mut measured = Vec::new();
        while let Some(Envelope { message, .. }) = mailbox.pop_message() {
            let signals = mailbox.signals.as_mut();
            let mark = signals.and_then(|signals| signals.waits.take_before(signals.popped));
            measured.extend(mark.map(|_| message));
        }
        measured
    }

    /// Sends numbers, a few of two types at a time. Returns those that are measured.
    fn send(outbox: &mut Outbox, steps: u32) -> Vec<u32> {
        let (mut small, mut large) = (Mailbox::<u32>::new(), Mailbox::<u64>::new());
        for step in 0..steps {
            let first = step * 10;
            let lanes = [(outbox.push(first), 3), (outbox.push(u64::from(first + 3)), 2)];
            (first + 1..first + 3).for_each(|number| assert_eq!(outbox.push(number), lanes[0].0));
            assert_eq!(outbox.push_copies(u64::from(first + 4), 1), lanes[1].0);
            let deliveries = lanes.map(|(lane, _)| (lane, 1)).into_iter().chain([(lanes[0].0, 2), (lanes[1].0, 1)]);
            if !outbox.passes(5) {
                outbox.sample(deliveries);
            }
            assert_eq!(outbox.lane(lanes[0].0).fill(1, Some(pid()), &mut small, None), Some(1));
            assert_eq!(outbox.lane(lanes[1].0).fill(2, Some(pid()), &mut large, None), Some(2));
            assert_eq!(outbox.lane(lanes[0].0).fill(2, Some(pid()), &mut small, None), Some(2));
        }
        let first: Vec<u32> = small.messages.iter().map(|one| one.message % 10).collect();
        assert_eq!(first, [0, 1, 2].repeat(steps as usize), "the order has not changed");
        let mut all = measured(&mut small);
        all.extend(measured(&mut large).into_iter().map(|number| number as u32));
        all
    }

    #[test]
    fn each_message_is_measured_or_one_in_so_many() {
        assert_eq!(send(&mut sampling(1), 100).len(), 500);
        let some = send(&mut sampling(10), 1_000);
        assert!((400..600).contains(&some.len()), "{}", some.len());
        assert!((0..5).all(|place| some.iter().any(|number| number % 10 == place)), "each place has its turn");
    }

    #[test]
    fn a_message_that_is_not_delivered_takes_no_mark_of_another_one() {
        let mut outbox = sampling(1);
        let all = DeadLetter::new(pid(), DeadLetterReason::NoSuchProcess);
        let lane = (0..6).map(|number: u32| outbox.push(number)).max().unwrap();
        outbox.sample([(lane, 6)].into_iter());
        let mut mailbox = Mailbox::<u32>::new();
        let mut buried = 0;
        outbox.lane(lane).bury(1, &all, &mut |_| buried += 1);
        assert_eq!(outbox.lane(lane).fill(1, None, &mut Mailbox::<String>::new(), None), None);
        assert!(outbox.lane(lane).pop().is_some());
        outbox.lane(lane).split_off_first();
        let mut bounds = Bounds::new(Bound { limit: 2, overflow: Overflow::Refuse });
        assert_eq!(outbox.lane(lane).fill(3, None, &mut mailbox, Some(&mut bounds)), Some(2));
        assert!(outbox.lane(lane).settle());
        outbox.lane(lane).bury(0, &all, &mut |_| buried += 1);
        assert_eq!((buried, measured(&mut mailbox)), (2, vec![3, 4]));
    }

    #[test]
    fn what_a_failed_step_has_sent_is_not_measured_later() {
        let mut outbox = sampling(1);
        let lane = outbox.push(1_u32);
        outbox.sample([(lane, 1)].into_iter());
        outbox.clear();
        assert_eq!(outbox.push(2_u32), lane);
        let mut mailbox = Mailbox::<u32>::new();
        assert_eq!(outbox.lane(lane).fill(1, None, &mut mailbox, None), Some(1));
        assert!(mailbox.signals.is_none());
    }

    #[test]
    fn a_burst_is_measured_with_the_time_of_its_delivery() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let start = clock.now();
        let sampler = WaitSampler::new(1, 0, SinceStart::new(clock, start));
        let mut outbox = Outbox::default().with_sampler(Some(sampler));
        let lane = outbox.push_copies(7_u32, 3);
        outbox.sample([(lane, 3)].into_iter());
        let mut mailbox = Mailbox::<u32>::new();
        assert_eq!(outbox.lane(lane).fill(2, None, &mut mailbox, None), Some(2));
        manual.advance(Duration::from_secs(5));
        assert_eq!(outbox.lane(lane).fill(1, None, &mut mailbox, None), Some(1));
        let waits = &mut mailbox.signals.as_mut().unwrap().waits;
        let moments: Vec<u64> = std::iter::from_fn(|| waits.take_before(3)).collect();
        assert_eq!(moments, [0, 0, 5_000_000_000]);
    }

    #[test]
    #[cfg(feature = "durable")]
    fn the_cover_of_a_lane_that_is_replaced_is_used_again() {
        let mut outbox = sampling(1);
        for _ in 0..1_000 {
            let lane = outbox.push(1_u32);
            outbox.sample([(lane, 1)].into_iter());
            assert_eq!(outbox.lane(lane).fill(1, None, &mut Mailbox::<u32>::new(), None), Some(1));
            outbox.replace_lanes(Outbox::default());
        }
        let lane = outbox.push_copies(1_u32, 10);
        outbox.sample([(lane, 10)].into_iter());
        outbox.replace_lanes(Outbox::default());
        let spare = outbox.sampling.unwrap().spare;
        assert!(matches!(&spare[..], [only] if matches!(only.measured, SmallQueue::Empty)));
    }
}
