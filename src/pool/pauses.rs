//! The pauses that somebody has asked for, in the order of asking. Only the first is in force; the next one is when that
//! ends.
//!
//! **The mark.** A pause has the number of the next job at the moment of asking. Jobs below the mark are still run; those at
//! and above it wait until the pause ends. It *holds* when no job below its mark waits and none runs. So it needs no
//! workers, and jobs that are run for it are exactly those that were there before it.

use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Pauses {
    asked: VecDeque<Asked>,
    next: u64,
}

struct Asked {
    id: u64,
    mark: u64,
    // Waiting jobs with numbers below the mark.
    before: usize,
}

impl Pauses {
    /// Asks for a pause: `mark` is the number of the next job, and `waiting` wait now. What it is called.
    pub(super) fn ask(&mut self, mark: u64, waiting: usize) -> u64 {
        self.next += 1;
        self.asked.push_back(Asked { id: self.next, mark, before: waiting });
        self.next
    }

    /// Ends a pause, or takes it back. Whether it was still there.
    pub(super) fn end(&mut self, id: u64) -> bool {
        let place = self.asked.iter().position(|asked| asked.id == id);
        place.is_some_and(|place| self.asked.remove(place).is_some())
    }

    pub(super) fn end_all(&mut self) {
        self.asked.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }

    /// Of so many waiting jobs, how many may begin.
    #[inline]
    pub(super) fn open(&self, waiting: usize) -> usize {
        self.asked.front().map_or(waiting, |first| first.before)
    }

    /// A job has left the line.
    #[inline]
    pub(super) fn job_left(&mut self, number: u64) {
        for asked in &mut self.asked {
            asked.before -= usize::from(number < asked.mark);
        }
    }

    /// A job has come back to its old place in the line.
    pub(super) fn job_came_back(&mut self, number: u64) {
        for asked in &mut self.asked {
            asked.before += usize::from(number < asked.mark);
        }
    }

    /// Nobody waits any more.
    pub(super) fn line_was_emptied(&mut self) {
        for asked in &mut self.asked {
            asked.before = 0;
        }
    }

    /// Whether the pause in force holds, with so many jobs running; and if one is given, whether it is that one.
    pub(super) fn holds(&self, running: usize, which: Option<u64>) -> bool {
        let first = self.asked.front();
        running == 0 && first.is_some_and(|first| first.before == 0 && which.is_none_or(|id| id == first.id))
    }

    pub(super) fn is_there(&self, id: u64) -> bool {
        self.asked.iter().any(|asked| asked.id == id)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_pause_holds_when_what_was_there_before_it_has_been_run_and_the_next_takes_its_turn() {
        let mut pauses = Pauses::default();
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
        pauses.line_was_emptied();
        assert!(pauses.holds(0, Some(second)) && pauses.is_there(second));
        pauses.end_all();
        assert!(pauses.is_empty() && !pauses.holds(0, None));
    }
}
