//! The queue of waiting jobs, in the order of their numbers. A job can be removed by its number.
//!
//! A job that is removed from the middle leaves a gap. The first place is never a gap, so the next job is found at
//! once. When there are more gaps than jobs, the queue closes them. So a removal takes one binary search. The gaps
//! take no more memory than the jobs.

use std::collections::VecDeque;

/// The number of gaps up to which the queue does not close them. Closing fewer is not worth the work.
const FEW: usize = 32;

/// The most places for which an empty queue keeps its memory allocated.
const ROOM: usize = 1024;

pub(super) struct JobQueue<J> {
    places: VecDeque<(u64, Option<J>)>,
    waiting: usize,
}

impl<J> JobQueue<J> {
    pub(super) fn new() -> JobQueue<J> {
        JobQueue { places: VecDeque::new(), waiting: 0 }
    }

    /// The number of waiting jobs.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Adds a job at the end. Its number is greater than all before it.
    #[inline]
    pub(super) fn push(&mut self, number: u64, job: J) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < number));
        self.places.push_back((number, Some(job)));
        self.waiting += 1;
    }

    /// Inserts a job at the place of its number, perhaps before other jobs.
    pub(super) fn insert(&mut self, number: u64, job: J) {
        match self.places.binary_search_by_key(&number, |(other, _)| *other) {
            Ok(place) => self.places[place].1 = Some(job),
            Err(place) => self.places.insert(place, (number, Some(job))),
        }
        self.waiting += 1;
    }

    /// Takes the first job.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<J> {
        let (_, job) = self.places.pop_front()?;
        self.waiting -= 1;
        self.skip_gaps();
        job
    }

    /// Removes the job with this number, if it waits.
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

    /// How many jobs with smaller numbers wait, counted up to `most`.
    ///
    /// The call visits the places of these jobs and the gaps between them. The removal of the first job also removes
    /// the gaps behind it. So calls between which jobs are taken visit a gap at most `most` times.
    pub(super) fn count_before(&self, number: u64, most: usize) -> usize {
        let before = self.places.iter().take_while(|(other, _)| *other < number);
        before.filter(|(_, job)| job.is_some()).take(most).count()
    }

    /// Takes all jobs, in order.
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

    fn queue(jobs: impl IntoIterator<Item = u64>) -> JobQueue<u64> {
        let mut queue = JobQueue::new();
        jobs.into_iter().for_each(|job| queue.push(job, job));
        queue
    }

    #[test]
    fn a_removed_job_is_gone_and_the_others_keep_their_order() {
        let mut queue = queue(0..6);
        assert_eq!((queue.take(0), queue.take(3), queue.take(3), queue.take(9)), (Some(0), Some(3), None, None));
        assert_eq!((queue.len(), queue.pop(), queue.pop()), (4, Some(1), Some(2)));
        assert_eq!(queue.take(1), None, "it has begun");
        assert_eq!((queue.take(5), queue.pop(), queue.pop(), queue.len()), (Some(5), Some(4), None, 0));
    }

    #[test]
    fn a_returned_job_has_its_old_place() {
        let mut queue = queue([1, 3, 5]);
        queue.take(3);
        queue.insert(3, 33);
        queue.insert(4, 4);
        queue.insert(0, 0);
        assert_eq!(queue.len(), 5);
        assert_eq!(queue.take_all(), [0, 1, 33, 4, 5]);
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn jobs_before_a_number_are_counted() {
        let mut queue = queue(0..6);
        let before = |queue: &JobQueue<u64>, number| queue.count_before(number, usize::MAX);
        assert_eq!((before(&queue, 0), before(&queue, 4), before(&queue, 9)), (0, 4, 6));
        assert_eq!((queue.count_before(9, 0), queue.count_before(9, 2), queue.count_before(1, 2)), (0, 2, 1));
        queue.take(0);
        assert_eq!((before(&queue, 1), before(&queue, 4)), (0, 3));
        queue.take(2);
        assert_eq!((before(&queue, 4), queue.count_before(9, 2)), (2, 2), "the gap does not count");
        queue.take(4);
        queue.take(5);
        assert_eq!(before(&queue, 9), 2);
        queue.insert(4, 4);
        queue.take(1);
        queue.take(3);
        assert_eq!((before(&queue, 4), before(&queue, 5)), (0, 1));
    }

    #[test]
    fn gaps_do_not_pile_up_behind_a_long_wait() {
        let mut queue = queue([0]);
        for number in 1..100_000 {
            queue.push(number, number);
            if number > 1 {
                assert_eq!(queue.take(number - 1), Some(number - 1));
            }
            assert!(
                queue.places.len() <= 2 * queue.len() + FEW + 1,
                "{} places for {}",
                queue.places.len(),
                queue.len()
            );
        }
        assert_eq!(queue.take_all(), [0, 99_999]);
    }

    #[test]
    fn a_removal_does_not_scan_the_queue() {
        let many = 1_000_000;
        let mut queue = queue(0..many);
        // A search from one end would visit 10^12 / 4 places, which takes hours.
        for number in (0..many).rev().step_by(2).chain((0..many).step_by(2)) {
            assert_eq!(queue.take(number), Some(number));
        }
        assert!(queue.is_empty());
        assert!(queue.places.capacity() <= ROOM, "{} places are kept for nothing", queue.places.capacity());
    }
}
