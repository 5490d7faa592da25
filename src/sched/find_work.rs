//! The order in which a worker looks for work.
//!
//! First comes the hand-off slot: the first process that the last step woke, up to a limit in a row. Then come its
//! own deque (last in, first out) and the global queue (first in, first out: one, and a batch into its own deque).
//! Last comes half of another worker's deque. To leave nothing behind for ever, some searches, at regular intervals,
//! begin with the oldest process of the global queue, and some with the oldest of its own deque. A worker that always
//! has work of its own looks at regular intervals whether another one is stuck. The processes in the deque of a stuck
//! worker wait behind a step that may never return.

use super::search::{Searcher, search};
use super::turn::Engine;
use super::worker::{GLOBAL_FIRST, Own, Worker};
use crate::primitives::Ordering;
use crate::sched::body::Ready;

/// One in this many searches begins with the oldest process of the worker's own deque. It is the one in the middle.
const BOTTOM_FIRST: u32 = 127;

/// The steps after which a busy worker looks whether another one is stuck.
pub(super) const STEPS_A_LOOK_ELSEWHERE: u32 = 64;

impl<E: Engine> Worker<E> {
    /// Looks first into the global queue, or into the deque of a stuck worker.
    #[cold]
    fn look_beyond(&mut self) -> Option<Ready> {
        let own = &mut self.own;
        if self.searches == self.global_at {
            // The processes in the own deque come first. Otherwise a process of the global queue that continues and
            // spawns more than a few in each step would fill the deque faster than the worker empties it.
            self.global_at = self.searches.wrapping_add(GLOBAL_FIRST).wrapping_add(own.deque.len() as u32);
            own.looks_elsewhere();
            if let Some(ready) = own.road.queues.take_one() {
                own.one(|counters| &counters.from_global);
                return Some(ready);
            }
        }
        if own.robs { own.rob() } else { None }
    }
}

impl<E: Engine> Searcher for Worker<E> {
    type Work = Ready;

    #[inline]
    fn at_hand(&mut self) -> Option<Ready> {
        self.own.take_next().or_else(|| self.look())
    }

    fn search(&mut self) -> Option<Ready> {
        let road = self.own.road.clone();
        let found = search(&road.sleep, self.own.index, self)?;
        self.own.works();
        Some(found)
    }

    /// Looks everywhere but in the hand-off slot.
    // Inlined into the search as well, because an idle worker looks many times before it sleeps.
    #[inline(always)]
    fn look(&mut self) -> Option<Ready> {
        self.searches = self.searches.wrapping_add(1);
        if (self.searches == self.global_at || self.own.robs)
            && let Some(ready) = self.look_beyond()
        {
            return Some(ready);
        }
        let own = &mut self.own;
        let queues = &own.road.queues;
        if self.searches % BOTTOM_FIRST == BOTTOM_FIRST / 2
            && let Some(ready) = queues.take_bottom(own.index)
        {
            own.one(|counters| &counters.from_own);
            return Some(ready);
        }
        if let Some(ready) = own.deque.pop() {
            own.one(|counters| &counters.from_own);
            return Some(ready);
        }
        if let Some(ready) = queues.take_batch(&own.deque) {
            // On the way from the global queue to the deque, the batch was visible in neither. Workers that fell
            // asleep then are notified.
            own.offered = true;
            own.one(|counters| &counters.from_global);
            return Some(ready);
        }
        let stolen = queues.steal(own.index, &own.deque, &mut self.random)?;
        own.offered = true;
        own.one(|counters| &counters.stolen);
        Some(stolen)
    }

    fn has_work(&self) -> bool {
        self.own.road.queues.has_work()
    }

    fn is_stopped(&self) -> bool {
        self.own.road.stopped.load(Ordering::Acquire)
    }

    fn is_surplus(&self) -> bool {
        self.own.is_surplus()
    }

    fn leaves(&mut self) -> bool {
        self.own.leaves()
    }

    fn sleeps(&mut self) {
        self.own.one(|counters| &counters.parked);
    }

    fn has_woken(&mut self) {
        self.own.one(|counters| &counters.woke_others);
    }
}

impl Own {
    /// Whether the next search begins with the deque of another worker.
    #[inline]
    pub(super) fn is_to_rob(&mut self) -> bool {
        self.robs || self.steps.wrapping_sub(self.looked_at) >= STEPS_A_LOOK_ELSEWHERE && self.looks_elsewhere()
    }

    /// Whether the worker that this one looked at last has made no progress and has work in its deque. If not, the
    /// next look is at another worker.
    #[cold]
    fn looks_elsewhere(&mut self) -> bool {
        self.looked_at = self.steps;
        let steps = |worker: usize| self.road.views[worker].counters.steps.get();
        self.robs = self.victim_steps == steps(self.victim) && self.road.queues.own_len(self.victim) > 0;
        if !self.robs {
            self.victim = (self.victim + 1) % self.road.views.len();
            self.victim_steps = steps(self.victim);
        }
        self.robs
    }

    /// Takes half of the deque of the stuck worker.
    #[cold]
    fn rob(&mut self) -> Option<Ready> {
        self.robs = false;
        let stolen = self.road.queues.steal_from(self.victim, &self.deque)?;
        self.offered = true;
        self.one(|counters| &counters.stolen);
        Some(stolen)
    }
}
