//! Queues of ready processes.
//!
//! There is one global queue (first in, first out). Each worker has a deque of its own (last in, first out), from
//! which the others steal.

use crossbeam_deque::{Injector, Steal, Stealer, Worker as Deque};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;

use crate::sched::body::Ready;

/// A worker takes one process from the global queue, and at most this many more for its own deque.
pub(crate) const BATCH: usize = 16;

/// The most processes that a thief takes at once. It takes half of the deque, up to this number.
const MOST_STOLEN: usize = 256;

/// The queues that every worker looks at.
pub(crate) struct Queues {
    global: Injector<Ready>,
    stealers: Box<[Stealer<Ready>]>,
}

impl Queues {
    /// Makes queues for this many workers, and each worker's own deque.
    pub(crate) fn new(workers: usize) -> (Queues, Vec<Deque<Ready>>) {
        let deques: Vec<_> = std::iter::repeat_with(Deque::new_lifo).take(workers).collect();
        let stealers = deques.iter().map(Deque::stealer).collect();
        (Queues { global: Injector::new(), stealers }, deques)
    }

    /// Appends a process behind all others.
    #[inline]
    pub(crate) fn push(&self, ready: Ready) {
        self.global.push(ready);
    }

    pub(crate) fn is_global_empty(&self) -> bool {
        self.global.is_empty()
    }

    pub(crate) fn global_len(&self) -> usize {
        self.global.len()
    }

    /// Whether any worker could find work here.
    pub(crate) fn has_work(&self) -> bool {
        !self.global.is_empty() || self.stealers.iter().any(|stealer| !stealer.is_empty())
    }

    /// Takes the oldest process of the global queue, and moves a batch into `own`.
    pub(crate) fn take_batch(&self, own: &Deque<Ready>) -> Option<Ready> {
        retry(|| self.global.steal_batch_with_limit_and_pop(own, BATCH + 1))
    }

    /// Takes the oldest process of the global queue.
    pub(crate) fn take_one(&self) -> Option<Ready> {
        retry(|| self.global.steal())
    }

    /// Takes the oldest process of a worker's own deque, from the end where thieves take.
    pub(crate) fn take_bottom(&self, worker: usize) -> Option<Ready> {
        retry(|| self.stealers[worker].steal())
    }

    /// Steals half of a victim's deque, beginning with a random victim. Returns the oldest and moves the rest into
    /// `own`.
    pub(crate) fn steal(&self, thief: usize, own: &Deque<Ready>, random: &mut Xoshiro256PlusPlus) -> Option<Ready> {
        let workers = self.stealers.len();
        if workers < 2 {
            return None;
        }
        let start = random.random_range(0..workers);
        let mut victims = (0..workers).map(|step| (start + step) % workers).filter(|victim| *victim != thief);
        victims.find_map(|victim| self.steal_from(victim, own))
    }

    /// Steals half of this worker's deque. Returns the oldest and moves the rest into `own`.
    pub(crate) fn steal_from(&self, victim: usize, own: &Deque<Ready>) -> Option<Ready> {
        // Twice the limit: the deque gives at most half of its contents, and never more than the limit.
        retry(|| self.stealers[victim].steal_batch_with_limit_and_pop(own, MOST_STOLEN))
    }

    /// Returns the number of processes in this worker's deque.
    pub(crate) fn own_len(&self, worker: usize) -> usize {
        self.stealers[worker].len()
    }

    /// Takes any process, for a shutdown that ends processes that no worker came to.
    pub(crate) fn take_any(&self) -> Option<Ready> {
        self.take_one().or_else(|| (0..self.stealers.len()).find_map(|worker| self.take_bottom(worker)))
    }
}

/// Tries again after a lost race, because that is not the same as finding nothing.
fn retry<T>(mut take: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match take() {
            Steal::Success(taken) => return Some(taken),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rand::SeedableRng as _;

    use super::*;
    use crate::process::{Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, described_body};

    struct Anybody;

    impl Process for Anybody {
        type Message = ();
        type Output = ();

        fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            Ok(Step::Idle)
        }
    }

    fn ready(number: usize) -> Ready {
        let pid = Pid::new(0, number as u32, 1).unwrap();
        described_body(Anybody, pid, SpawnOptions::new(), None)
    }

    fn numbers(found: impl IntoIterator<Item = Ready>) -> Vec<usize> {
        found.into_iter().map(|ready| ready.head.pid.slot() as usize).collect()
    }

    #[test]
    fn a_batch_takes_the_oldest_and_half_the_rest_up_to_sixteen() {
        // The length of the queue, and how many processes come along with the oldest.
        for (there, expected) in [(0, None), (1, Some(0)), (2, Some(0)), (5, Some(2)), (20, Some(9)), (60, Some(16))] {
            let (queues, deques) = Queues::new(1);
            (0..there).for_each(|number| queues.push(ready(number)));
            let first = queues.take_batch(&deques[0]);
            assert_eq!(first.is_some(), expected.is_some());
            let batch = numbers(first.into_iter().chain(std::iter::from_fn(|| deques[0].pop())));
            assert_eq!(batch, (0..expected.map_or(0, |more| 1 + more)).collect::<Vec<_>>(), "the oldest first");
            assert_eq!(queues.global_len(), there - batch.len());
        }
    }

    #[test]
    fn a_thief_takes_the_older_half_of_a_deque_and_never_more_than_its_limit() {
        for (there, expected) in [(1, 1), (2, 1), (3, 2), (100, 50), (10_000, MOST_STOLEN)] {
            let (queues, deques) = Queues::new(2);
            (0..there).for_each(|number| deques[0].push(ready(number)));
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let first = queues.steal(1, &deques[1], &mut random);
            let mut stolen = numbers(first.into_iter().chain(std::iter::from_fn(|| deques[1].pop())));
            stolen.sort_unstable();
            assert_eq!(stolen, (0..expected).collect::<Vec<_>>());
            assert_eq!(deques[0].len(), there - expected);
        }
    }

    #[test]
    fn a_thief_begins_with_any_other_and_finds_the_only_one_who_has_something() {
        const WORKERS: usize = 4;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for thief in 0..WORKERS {
            let mut robbed = [0; WORKERS];
            for _ in 0..400 {
                let (queues, deques) = Queues::new(WORKERS);
                for (victim, deque) in deques.iter().enumerate().filter(|(victim, _)| *victim != thief) {
                    deque.push(ready(victim));
                }
                robbed[numbers(queues.steal(thief, &deques[thief], &mut random))[0]] += 1;
            }
            assert_eq!(robbed[thief], 0);
            assert!(robbed.iter().filter(|times| **times > 50).count() == WORKERS - 1, "{thief} robs {robbed:?}");
            for victim in (0..WORKERS).filter(|victim| *victim != thief) {
                let (queues, deques) = Queues::new(WORKERS);
                deques[victim].push(ready(victim));
                assert_eq!(numbers(queues.steal(thief, &deques[thief], &mut random)), [victim]);
                assert!(queues.steal(thief, &deques[thief], &mut random).is_none());
            }
        }
    }
}
