//! The address and the random numbers of the process being stepped.

use std::ops::{Bound, RangeBounds};

use super::contract::Process;
use crate::pid::Address;
use crate::random::{Draws, below};
use crate::sched::body::{Head, StepOutput, Yield};

/// The process being stepped.
impl StepOutput {
    /// The address of the process being stepped. Name its type: `out.own_address::<Self>()`.
    ///
    /// In a step, [`Events::address`](super::Events::address) is the same address, and its type cannot be wrong. Use
    /// this method where there are no events: in [`Process::start`], and in functions that are given only the output.
    ///
    /// The type is that of the messages of `P`. The compiler cannot know that `P` is the process being stepped. If it
    /// is not, and takes other messages, messages to the address become dead letters.
    ///
    /// ```
    /// use procession::{Address, BoxError, Events, Process, Step, StepOutput, StepResult};
    ///
    /// struct Join(Address<u64>);
    ///
    /// struct Member { room: Address<Join> }
    ///
    /// impl Process for Member {
    ///     type Message = u64;
    ///     type Output = ();
    ///
    ///     fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
    ///         let me = out.own_address::<Self>();
    ///         out.send(self.room, Join(me));
    ///         Ok(())
    ///     }
    ///
    ///     fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> {
    ///         Ok(if events.next().is_some() { Step::Done(()) } else { Step::Idle })
    ///     }
    /// }
    /// ```
    pub fn own_address<P: Process>(&self) -> Address<P::Message> {
        self.pid.typed()
    }

    /// Draws a random number of 64 bits. All numbers are equally likely.
    ///
    /// Each process has its own stream of numbers. The stream depends only on the seed of the runtime
    /// ([`RuntimeBuilder::seed`](crate::config::RuntimeBuilder::seed)) and on the PID. Without a seed it is different
    /// in each run. A state machine that replaces another one continues the stream. The numbers that a failed step has
    /// drawn count as drawn. So a state machine that replaces a failed one does not draw them again.
    ///
    /// The seed gives all numbers away. So do not make keys or passwords of them. To draw from distributions, or to
    /// shuffle, use the number as the seed of another generator, for example one of the crate `rand`.
    ///
    /// A process that never draws pays nothing. The first draw allocates the memory of the fields that most processes
    /// do not need.
    ///
    /// ```
    /// use procession::testing::Driver;
    /// use procession::{Events, Process, Step, StepOutput, StepResult};
    ///
    /// struct Dice;
    ///
    /// impl Process for Dice {
    ///     type Message = ();
    ///     type Output = u64;
    ///
    ///     fn step(&mut self, _: &mut Events<()>, out: &mut StepOutput) -> StepResult<u64> {
    ///         Ok(Step::Done(out.random_range(1..=6)))
    ///     }
    /// }
    ///
    /// let roll = |seed| {
    ///     let mut dice = Driver::builder().seed(seed).build(Dice);
    ///     dice.run();
    ///     **dice.exit().unwrap().output().unwrap()
    /// };
    /// assert!((1..=6).contains(&roll(1)));
    /// assert_eq!(roll(1), roll(1));
    /// ```
    pub fn random(&mut self) -> u64 {
        let (number, is_first) = self.draws.next(self.pid, || self.link.seed());
        if is_first {
            // So that the count is noted in the process when the step has returned.
            self.push(Yield::Drawn);
        }
        number
    }

    /// Draws a random number from a range. All its numbers are equally likely. It may use more than one number of the
    /// process's stream: see [`random`](Self::random).
    ///
    /// From an empty range, it returns the start of the range.
    pub fn random_range(&mut self, range: impl RangeBounds<u64>) -> u64 {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => Some(*last),
            Bound::Excluded(end) => end.checked_sub(1),
            Bound::Unbounded => Some(u64::MAX),
        };
        match last.and_then(|last| last.checked_sub(first)) {
            // All numbers of 64 bits are one more than 64 bits can count.
            Some(distance) => first + below(distance.wrapping_add(1), || self.random()),
            None => first,
        }
    }

    /// Loads the draws of a process, before it is stepped.
    #[inline]
    pub(crate) fn load_draws(&mut self, head: &Head) {
        if let Some(rare) = &head.rare
            && rare.draws > 0
        {
            self.draws = Draws::of(head.pid, rare.draws);
        }
    }

    /// Notes the draws of the last step in its process, if the step has drawn.
    #[inline]
    pub(crate) fn note_draws(&mut self, head: &mut Head) {
        if let Some(count) = self.draws.take_new() {
            head.prepared().draws = count;
        }
    }
}
