//! The requested pauses, in the order of the requests. Only the first is in force. When it ends, the next is in
//! force.
//!
//! **The mark.** A pause's mark is the number that the next job will have. Jobs with smaller numbers still run. The
//! others wait until the pause ends. The pause *holds* when no job below its mark waits and none runs. So a pause
//! needs no workers. Exactly the jobs that were submitted before it run before it holds.

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct PauseQueue {
    pauses: VecDeque<Asked>,
    next: u64,
}

struct Asked {
    id: u64,
    mark: u64,
    // The number of waiting jobs below the mark.
    before: usize,
}

impl PauseQueue {
    /// Adds a pause. `mark` is the number of the next job, and `waiting` jobs wait. Returns the number of the pause.
    pub(super) fn ask(&mut self, mark: u64, waiting: usize) -> u64 {
        self.next += 1;
        self.pauses.push_back(Asked { id: self.next, mark, before: waiting });
        self.next
    }

    /// Ends a pause, whether or not it is in force. Returns whether the pause existed.
    pub(super) fn end(&mut self, id: u64) -> bool {
        let place = self.pauses.iter().position(|asked| asked.id == id);
        place.is_some_and(|place| self.pauses.remove(place).is_some())
    }

    pub(super) fn end_all(&mut self) {
        self.pauses.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.pauses.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pauses.is_empty()
    }

    /// How many of `waiting` jobs may begin.
    #[inline]
    pub(super) fn open(&self, waiting: usize) -> usize {
        self.pauses.front().map_or(waiting, |first| first.before)
    }

    /// Notes that a job was taken out of the queue.
    #[inline]
    pub(super) fn job_left(&mut self, number: u64) {
        for asked in &mut self.pauses {
            asked.before -= usize::from(number < asked.mark);
        }
    }

    /// Notes that a job was put back into its place in the queue.
    pub(super) fn job_came_back(&mut self, number: u64) {
        for asked in &mut self.pauses {
            asked.before += usize::from(number < asked.mark);
        }
    }

    /// Notes that no job waits.
    pub(super) fn queue_was_emptied(&mut self) {
        for asked in &mut self.pauses {
            asked.before = 0;
        }
    }

    /// Whether the pause in force holds while `running` jobs run. If `which` is given, that pause must also be the
    /// one in force.
    pub(super) fn holds(&self, running: usize, which: Option<u64>) -> bool {
        let first = self.pauses.front();
        running == 0 && first.is_some_and(|first| first.before == 0 && which.is_none_or(|id| id == first.id))
    }

    pub(super) fn is_there(&self, id: u64) -> bool {
        self.pauses.iter().any(|asked| asked.id == id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pause_holds_when_the_jobs_before_it_have_been_run() {
        let mut pauses = PauseQueue::default();
        assert_eq!(pauses.open(3), 3);
        let first = pauses.ask(10, 2);
        let second = pauses.ask(12, 4);
        assert_eq!((pauses.open(5), pauses.holds(0, None)), (2, false));
        pauses.job_left(8);
        pauses.job_left(9);
        assert_eq!((pauses.open(3), pauses.holds(1, None), pauses.holds(0, Some(first))), (0, false, true));
        assert!(!pauses.holds(0, Some(second)), "the second waits for the first to end");
        pauses.job_left(10);
        assert!(pauses.end(first) && !pauses.end(first));
        assert_eq!((pauses.open(2), pauses.holds(0, Some(second))), (1, false), "what came between them is run");
        pauses.job_came_back(7);
        assert_eq!(pauses.open(3), 2);
        pauses.queue_was_emptied();
        assert!(pauses.holds(0, Some(second)) && pauses.is_there(second));
        pauses.end_all();
        assert!(pauses.is_empty() && !pauses.holds(0, None));
    }
}
