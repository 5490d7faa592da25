//! Where ready processes wait: one global queue (first in, first out), and for each worker a deque of its own (last in,
//! first out) from which the others steal.

use crossbeam_deque::{Injector, Steal, Stealer, Worker as Deque};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;

use crate::process::body::Ready;

/// Taken from the global queue at once: one, and this many more for the own deque.
pub(crate) const BATCH: usize = 16;

/// The most that a thief takes at once; half of what there is, up to this.
const MOST_STOLEN: usize = 256;

/// What every worker looks at.
pub(crate) struct Queues {
    global: Injector<Ready>,
    stealers: Box<[Stealer<Ready>]>,
}

impl Queues {
    /// Queues for this many workers, and each worker's own deque.
    pub(crate) fn new(workers: usize) -> (Queues, Vec<Deque<Ready>>) {
        let deques: Vec<_> = std::iter::repeat_with(Deque::new_lifo).take(workers).collect();
        let stealers = deques.iter().map(Deque::stealer).collect();
        (Queues { global: Injector::new(), stealers }, deques)
    }

    /// Behind all others.
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

    /// Whether any worker could find something here.
    pub(crate) fn has_work(&self) -> bool {
        !self.global.is_empty() || self.stealers.iter().any(|stealer| !stealer.is_empty())
    }

    /// The oldest of the global queue, and a batch into `own`.
    pub(crate) fn take_batch(&self, own: &Deque<Ready>) -> Option<Ready> {
        retry(|| self.global.steal_batch_with_limit_and_pop(own, BATCH + 1))
    }

    /// The oldest of the global queue.
    pub(crate) fn take_one(&self) -> Option<Ready> {
        retry(|| self.global.steal())
    }

    /// The oldest of a worker's own deque, from the end where thieves take.
    pub(crate) fn take_bottom(&self, worker: usize) -> Option<Ready> {
        retry(|| self.stealers[worker].steal())
    }

    /// Half of a victim's deque, beginning with a random one; the oldest of that, the rest into `own`.
    pub(crate) fn steal(&self, thief: usize, own: &Deque<Ready>, random: &mut Xoshiro256PlusPlus) -> Option<Ready> {
        let workers = self.stealers.len();
        if workers < 2 {
            return None;
        }
        let start = random.random_range(0..workers);
        (0..workers).map(|step| (start + step) % workers).filter(|victim| *victim != thief).find_map(|victim| {
            let stealer = &self.stealers[victim];
            // Twice the limit: the deque gives at most half of what it holds, and never more than the limit.
            retry(|| stealer.steal_batch_with_limit_and_pop(own, MOST_STOLEN))
        })
    }

    /// Anything, wherever it is: for a shutdown that ends what no worker came to.
    pub(crate) fn take_any(&self) -> Option<Ready> {
        self.take_one().or_else(|| (0..self.stealers.len()).find_map(|worker| self.take_bottom(worker)))
    }
}

/// Losing a race against another taker is not the same as finding nothing.
fn retry<T>(mut take: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match take() {
            Steal::Success(taken) => return Some(taken),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
