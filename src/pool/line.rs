//! The line of waiting jobs: in the order of their numbers, each to be taken out by its number.
//!
//! A job that is taken out of the middle leaves a gap. The first place never is one, so that the next job is at hand; and
//! when there are more gaps than jobs the line closes up. So taking out costs a binary search however many wait, and gaps
//! cost no more memory than the jobs beside them.

use std::collections::VecDeque;

/// Gaps that are not worth closing up for.
const FEW: usize = 32;

/// An empty line keeps no more room than for so many.
const ROOM: usize = 1024;

pub(super) struct Line<J> {
    places: VecDeque<(u64, Option<J>)>,
    waiting: usize,
}

impl<J> Line<J> {
    pub(super) fn new() -> Line<J> {
        Line { places: VecDeque::new(), waiting: 0 }
    }

    /// How many wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Puts a job at the end. Its number is greater than all before it.
    #[inline]
    pub(super) fn push(&mut self, number: u64, job: J) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < number));
        self.places.push_back((number, Some(job)));
        self.waiting += 1;
    }

    /// Puts a job where its number has its place, perhaps in front of others.
    pub(super) fn insert(&mut self, number: u64, job: J) {
        match self.places.binary_search_by_key(&number, |(other, _)| *other) {
            Ok(place) => self.places[place].1 = Some(job),
            Err(place) => self.places.insert(place, (number, Some(job))),
        }
        self.waiting += 1;
    }

    /// Takes the first, with its number.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u64, J)> {
        let (number, job) = self.places.pop_front()?;
        self.waiting -= 1;
        self.skip_gaps();
        job.map(|job| (number, job))
    }

    /// Takes out the one with this number, if it waits.
    pub(super) fn take(&mut self, number: u64) -> Option<J> {
        let place = self.places.binary_search_by_key(&number, |(other, _)| *other).ok()?;
        let job = self.places[place].1.take()?;
        self.waiting -= 1;
        self.skip_gaps();
        if self.places.len() > 2 * self.waiting + FEW {
            self.places.retain(|(_, job)| job.is_some());
            self.places.shrink_to(2 * self.waiting + FEW);
        }
        Some(job)
    }

    /// Takes all, in order.
    pub(super) fn take_all(&mut self) -> VecDeque<J> {
        self.waiting = 0;
        std::mem::take(&mut self.places).into_iter().filter_map(|(_, job)| job).collect()
    }

    fn skip_gaps(&mut self) {
        while self.places.front().is_some_and(|(_, job)| job.is_none()) {
            self.places.pop_front();
        }
        if self.places.is_empty() && self.places.capacity() > ROOM {
            self.places = VecDeque::new();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn line(jobs: impl IntoIterator<Item = u64>) -> Line<u64> {
        let mut line = Line::new();
        jobs.into_iter().for_each(|job| line.push(job, job));
        line
    }

    #[test]
    fn what_is_taken_out_is_not_met_again_and_the_others_keep_their_order() {
        let mut line = line(0..6);
        assert_eq!((line.take(0), line.take(3), line.take(3), line.take(9)), (Some(0), Some(3), None, None));
        assert_eq!((line.len(), line.pop(), line.pop()), (4, Some((1, 1)), Some((2, 2))));
        assert_eq!(line.take(1), None, "it has begun");
        assert_eq!((line.take(5), line.pop(), line.pop(), line.len()), (Some(5), Some((4, 4)), None, 0));
    }

    #[test]
    fn a_job_that_comes_back_has_its_old_place() {
        let mut line = line([1, 3, 5]);
        line.take(3);
        line.insert(3, 33);
        line.insert(4, 4);
        line.insert(0, 0);
        assert_eq!(line.len(), 5);
        assert_eq!(line.take_all(), [0, 1, 33, 4, 5]);
        assert!(line.is_empty() && line.pop().is_none());
    }

    #[test]
    fn gaps_do_not_pile_up_behind_a_job_that_waits_for_long() {
        let mut line = line([0]);
        for number in 1..100_000 {
            line.push(number, number);
            if number > 1 {
                assert_eq!(line.take(number - 1), Some(number - 1));
            }
            assert!(line.places.len() <= 2 * line.len() + FEW + 1, "{} places for {}", line.places.len(), line.len());
        }
        assert_eq!(line.take_all(), [0, 99_999]);
    }

    #[test]
    fn out_of_a_million_each_is_found_without_looking_at_the_others() {
        let many = 1_000_000;
        let mut line = line(0..many);
        // A search from one end would look at 10^12 / 4 places: hours.
        for number in (0..many).rev().step_by(2).chain((0..many).step_by(2)) {
            assert_eq!(line.take(number), Some(number));
        }
        assert!(line.is_empty());
        assert!(line.places.capacity() <= ROOM, "{} places are kept for nothing", line.places.capacity());
    }
}
