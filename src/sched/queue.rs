//! Queues of ready processes.
//!
//! The *global queue* is first in, first out. It has a part for submissions from outside, and a *shard* for each
//! worker, with the processes that the worker has put behind all others. Only the worker itself appends to its shard,
//! so that costs no contended write. Each worker also has a deque (last in, first out) for the processes that its steps
//! spawn. The other workers steal from deques and shards.

use crossbeam_deque::{Injector, Steal, Stealer, Worker as Deque};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;

use crate::sched::body::Ready;

/// The most processes that a worker takes from one part of the global queue before it looks into the other.
pub(crate) const BATCH: usize = 16;

/// The most processes that a thief takes at once. It takes half of what is there, up to this number.
const MOST_STOLEN: usize = 256;

/// The queues that every worker looks at.
pub(crate) struct Queues {
    outside: Injector<Ready>,
    stealers: Box<[Stealers]>,
}

/// The ends from which other workers take.
struct Stealers {
    deque: Stealer<Ready>,
    shard: Stealer<Ready>,
}

/// The ends of a worker's queues that only the worker has.
pub(crate) struct WorkerQueues {
    pub(super) deque: Deque<Ready>,
    shard: Deque<Ready>,
    /// How many processes the worker takes from its shard before it looks into the part for submissions from outside.
    turns: usize,
    /// Whether the next single process comes from outside.
    is_outside_next: bool,
}

impl WorkerQueues {
    /// Appends a process behind all others of this worker.
    #[inline]
    pub(super) fn push(&self, ready: Ready) {
        self.shard.push(ready);
    }

    /// The number of processes in the shard.
    pub(super) fn waiting(&self) -> usize {
        self.shard.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.deque.is_empty() && self.shard.is_empty()
    }

    /// Takes any process of this worker, for a worker that leaves.
    pub(super) fn take_any(&self) -> Option<Ready> {
        self.deque.pop().or_else(|| self.shard.pop())
    }

    /// Takes a process of the global queue. As many come from the shard as it had when its turns began, at most
    /// [`BATCH`]. Then the other part has its turn, with a batch.
    ///
    /// On the way from the other part to the deque, the batch is visible in neither. Then `offers` is set: workers that
    /// fall asleep then must be notified.
    #[inline]
    pub(super) fn take_global(&mut self, queues: &Queues, offers: &mut bool) -> Option<Ready> {
        if self.turns > 0 {
            self.turns -= 1;
            // Thieves may have emptied it.
            if let Some(ready) = self.shard.pop() {
                return Some(ready);
            }
        }
        self.turns = self.shard.len().min(BATCH);
        if let Some(ready) = queues.take_batch(&self.deque) {
            *offers = true;
            return Some(ready);
        }
        self.turns = self.turns.saturating_sub(1);
        self.shard.pop()
    }

    /// Takes a single process of the global queue, from each of its parts in turn.
    pub(super) fn take_one_global(&mut self, queues: &Queues) -> Option<Ready> {
        self.is_outside_next = !self.is_outside_next;
        if self.is_outside_next {
            self.shard.pop().or_else(|| queues.take_one())
        } else {
            queues.take_one().or_else(|| self.shard.pop())
        }
    }
}

impl Queues {
    /// Makes queues for this many workers, and each worker's own ends.
    pub(crate) fn new(workers: usize) -> (Queues, Vec<WorkerQueues>) {
        let own =
            || WorkerQueues { deque: Deque::new_lifo(), shard: Deque::new_fifo(), turns: 0, is_outside_next: true };
        let own: Vec<_> = std::iter::repeat_with(own).take(workers).collect();
        let stealers = own.iter().map(|own| Stealers { deque: own.deque.stealer(), shard: own.shard.stealer() });
        (Queues { outside: Injector::new(), stealers: stealers.collect() }, own)
    }

    /// Appends a process from outside the workers.
    #[inline]
    pub(crate) fn push(&self, ready: Ready) {
        self.outside.push(ready);
    }

    /// Whether no submission from outside waits.
    pub(crate) fn is_outside_empty(&self) -> bool {
        self.outside.is_empty()
    }

    /// The number of processes in the global queue.
    pub(crate) fn global_len(&self) -> usize {
        self.outside.len() + self.stealers.iter().map(|stealers| stealers.shard.len()).sum::<usize>()
    }

    /// Whether any worker could find work here.
    pub(crate) fn has_work(&self) -> bool {
        !self.outside.is_empty()
            || self.stealers.iter().any(|stealers| !stealers.shard.is_empty() || !stealers.deque.is_empty())
    }

    /// Takes the oldest submission from outside, and moves a batch into `own`.
    pub(crate) fn take_batch(&self, own: &Deque<Ready>) -> Option<Ready> {
        // Cheaper than an attempt, which has a fence.
        if self.outside.is_empty() {
            return None;
        }
        retry(|| self.outside.steal_batch_with_limit_and_pop(own, BATCH + 1))
    }

    /// Takes the oldest submission from outside.
    pub(crate) fn take_one(&self) -> Option<Ready> {
        retry(|| self.outside.steal())
    }

    /// Takes the oldest process of a worker's own deque, from the end where thieves take.
    pub(crate) fn take_bottom(&self, worker: usize) -> Option<Ready> {
        retry(|| self.stealers[worker].deque.steal())
    }

    /// Steals from another worker: from the first that has something in its shard, or else in its deque. Begins with a
    /// random one.
    pub(crate) fn steal(&self, thief: usize, own: &WorkerQueues, random: &mut Xoshiro256PlusPlus) -> Option<Ready> {
        let workers = self.stealers.len();
        if workers < 2 {
            return None;
        }
        let start = random.random_range(0..workers);
        let victims = || (0..workers).map(|step| (start + step) % workers).filter(|victim| *victim != thief);
        let from_shard = victims().find_map(|victim| self.steal_shard(victim, own));
        from_shard.or_else(|| victims().find_map(|victim| self.steal_deque(victim, own)))
    }

    /// Steals half of this worker's deque. Returns the oldest and moves the rest into the thief's deque.
    pub(crate) fn steal_deque(&self, victim: usize, own: &WorkerQueues) -> Option<Ready> {
        retry(|| self.stealers[victim].deque.steal_batch_with_limit_and_pop(&own.deque, MOST_STOLEN))
    }

    /// Steals half of this worker's shard. Returns the oldest. The rest goes into the thief's shard if that is empty.
    /// Otherwise it is a batch for the thief's deque, so that it does not wait behind the thief's shard.
    ///
    /// Gives up after some lost races. The owner takes from its shard all the time, and each time wins against a thief
    /// that copies a batch.
    pub(crate) fn steal_shard(&self, victim: usize, own: &WorkerQueues) -> Option<Ready> {
        let (to, most) = if own.shard.is_empty() { (&own.shard, MOST_STOLEN) } else { (&own.deque, BATCH + 1) };
        let shard = &self.stealers[victim].shard;
        let limits = [most, most.min(BATCH + 1), 4, 1, 1];
        limits.into_iter().find_map(|limit| shard.steal_batch_with_limit_and_pop(to, limit).success())
    }

    /// Returns the number of processes in this worker's deque.
    pub(crate) fn own_len(&self, worker: usize) -> usize {
        self.stealers[worker].deque.len()
    }

    /// Returns the number of processes in this worker's shard.
    pub(crate) fn shard_len(&self, worker: usize) -> usize {
        self.stealers[worker].shard.len()
    }

    /// Takes any process, for a shutdown that ends processes that no worker came to.
    pub(crate) fn take_any(&self) -> Option<Ready> {
        let take = |stealers: &Stealers| retry(|| stealers.deque.steal()).or_else(|| retry(|| stealers.shard.steal()));
        self.take_one().or_else(|| self.stealers.iter().find_map(take))
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
            let (queues, own) = Queues::new(1);
            (0..there).for_each(|number| queues.push(ready(number)));
            let first = queues.take_batch(&own[0].deque);
            assert_eq!(first.is_some(), expected.is_some());
            let batch = numbers(first.into_iter().chain(std::iter::from_fn(|| own[0].deque.pop())));
            assert_eq!(batch, (0..expected.map_or(0, |more| 1 + more)).collect::<Vec<_>>(), "the oldest first");
            assert_eq!(queues.global_len(), there - batch.len());
        }
    }

    /// Takes everything from the global queue, one by one. Every batch comes first.
    fn drain(queues: &Queues, own: &mut WorkerQueues) -> Vec<usize> {
        let next = || own.deque.pop().or_else(|| own.take_global(queues, &mut false));
        numbers(std::iter::from_fn(next))
    }

    #[test]
    fn the_own_shard_and_the_submissions_from_outside_take_turns() {
        const OUTSIDE: usize = 1_000;
        let (queues, mut own) = Queues::new(1);
        (0..100).for_each(|number| own[0].push(ready(number)));
        (OUTSIDE..OUTSIDE + 100).for_each(|number| queues.push(ready(number)));
        assert_eq!(queues.global_len(), 200);
        let order = drain(&queues, &mut own[0]);
        assert_eq!(order.len(), 200);
        let (outside, woken): (Vec<usize>, Vec<usize>) = order.iter().partition(|number| **number >= OUTSIDE);
        assert!(outside.is_sorted() && woken.is_sorted(), "each is first in, first out");
        let waits = |is_outside: bool| {
            let turns = order.chunk_by(|one, two| (*one >= OUTSIDE) == (*two >= OUTSIDE));
            // Those at the end have nothing else beside them.
            let last = order.iter().rposition(|number| (*number >= OUTSIDE) != (order[199] >= OUTSIDE)).unwrap();
            let lengths = turns.scan(0, |at, turn| (*at <= last).then(|| (*at += turn.len(), turn).1));
            lengths.filter(|turn| (turn[0] >= OUTSIDE) != is_outside).map(<[usize]>::len).max()
        };
        assert!(waits(true) <= Some(BATCH) && waits(false) <= Some(BATCH + 1), "{order:?}");
        assert!(drain(&queues, &mut own[0]).is_empty());
    }

    #[test]
    fn a_shard_that_thieves_have_emptied_does_not_hold_up_the_submissions() {
        let (queues, mut own) = Queues::new(2);
        (0..10).for_each(|number| own[0].push(ready(number)));
        let first = own[0].take_global(&queues, &mut false);
        assert_eq!(numbers(first), [0]);
        while queues.steal_shard(0, &own[1]).is_some() {}
        queues.push(ready(10));
        let next = own[0].take_global(&queues, &mut false);
        assert_eq!(numbers(next), [10]);
    }

    #[test]
    fn a_thief_takes_the_older_half_and_never_more_than_its_limit() {
        for (there, expected) in [(1, 1), (2, 1), (3, 2), (100, 50), (10_000, MOST_STOLEN)] {
            for is_shard in [false, true] {
                let (queues, mut own) = Queues::new(2);
                let put = |number| if is_shard { own[0].push(ready(number)) } else { own[0].deque.push(ready(number)) };
                (0..there).for_each(put);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
                let first = queues.steal(1, &own[1], &mut random);
                let rest = std::iter::from_fn(|| own[1].take_any());
                let mut stolen = numbers(first.into_iter().chain(rest));
                if is_shard {
                    assert!(stolen.is_sorted(), "the oldest first");
                }
                stolen.sort_unstable();
                assert_eq!(stolen, (0..expected).collect::<Vec<_>>());
                let left = drain(&queues, &mut own[0]);
                assert_eq!(left.len(), there - expected);
            }
        }
    }

    #[test]
    fn a_thief_with_a_shard_of_its_own_takes_a_batch_before_it() {
        for (there, has_own, expected) in [(100, true, BATCH + 1), (20, true, 10), (100, false, 50)] {
            let (queues, own) = Queues::new(2);
            (0..there).for_each(|number| own[0].push(ready(number)));
            (0..usize::from(has_own)).for_each(|_| own[1].push(ready(1_000)));
            let first = queues.steal_shard(0, &own[1]);
            let (to, in_shard) = if has_own { (&own[1].deque, 1) } else { (&own[1].shard, expected - 1) };
            assert_eq!(own[1].waiting(), in_shard, "the rest is behind none of the thief's own");
            let stolen = numbers(first.into_iter().chain(std::iter::from_fn(|| to.pop())));
            assert_eq!(stolen, (0..expected).collect::<Vec<_>>(), "the oldest first");
            assert_eq!(queues.shard_len(0), there - expected);
        }
    }

    #[test]
    fn single_processes_come_from_both_parts_of_the_global_queue_in_turn() {
        const OUTSIDE: usize = 1_000;
        let (queues, mut own) = Queues::new(1);
        (0..4).for_each(|number| own[0].push(ready(number)));
        (OUTSIDE..OUTSIDE + 2).for_each(|number| queues.push(ready(number)));
        let order = numbers(std::iter::from_fn(|| own[0].take_one_global(&queues)));
        assert_eq!(order, [OUTSIDE, 0, OUTSIDE + 1, 1, 2, 3]);
    }

    #[test]
    fn a_thief_begins_with_any_other_and_finds_the_only_one_who_has_something() {
        const WORKERS: usize = 4;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for thief in 0..WORKERS {
            let mut robbed = [0; WORKERS];
            for _ in 0..400 {
                let (queues, own) = Queues::new(WORKERS);
                for (victim, own) in own.iter().enumerate().filter(|(victim, _)| *victim != thief) {
                    own.push(ready(victim));
                }
                robbed[numbers(queues.steal(thief, &own[thief], &mut random))[0]] += 1;
            }
            assert_eq!(robbed[thief], 0);
            assert!(robbed.iter().filter(|times| **times > 50).count() == WORKERS - 1, "{thief} robs {robbed:?}");
            for victim in (0..WORKERS).filter(|victim| *victim != thief) {
                let (queues, own) = Queues::new(WORKERS);
                own[victim].deque.push(ready(victim));
                assert_eq!(numbers(queues.steal(thief, &own[thief], &mut random)), [victim]);
                assert!(queues.steal(thief, &own[thief], &mut random).is_none());
            }
        }
    }
}
