//! The order in which a worker looks for work.
//!
//! First comes the hand-off slot: the first process that the last step woke, up to a limit in a row. Then come its own
//! deque (last in, first out) and the global queue: its own shard and the submissions from outside, in turn. Last comes
//! half of what another worker has, of a shard before a deque. To leave nothing behind for ever, some searches, at
//! regular intervals, begin with the oldest process of the global queue, and some with the oldest of its own deque. A
//! worker that always has work of its own looks at another one at regular intervals, and takes from it if it is stuck,
//! neglects its shard, or has much more waiting.

use super::search::{Searcher, search};
use super::turn::Engine;
use super::worker::{GLOBAL_FIRST, Own, Progress, Robs, Worker};
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
            self.global_at = self.searches.wrapping_add(GLOBAL_FIRST).wrapping_add(own.queues.deque.len() as u32);
            own.looks_elsewhere();
            if let Some(ready) = own.queues.take_one_global(&own.road.queues) {
                own.one(|counters| &counters.from_global);
                return Some(ready);
            }
        }
        if own.robs == Robs::Nothing { None } else { own.rob() }
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
        if (self.searches == self.global_at || self.own.robs != Robs::Nothing)
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
        if let Some(ready) = own.queues.deque.pop() {
            own.one(|counters| &counters.from_own);
            return Some(ready);
        }
        if let Some(ready) = own.queues.take_global(queues, &mut own.offered) {
            own.one(|counters| &counters.from_global);
            return Some(ready);
        }
        let stolen = queues.steal(own.index, &own.queues, &mut self.random)?;
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
        self.own.falls_asleep();
    }

    fn slept(&mut self) {
        self.own.wakes();
    }

    fn has_woken(&mut self) {
        self.own.one(|counters| &counters.woke_others);
    }
}

impl Own {
    /// Whether the next search begins with the deque of another worker.
    #[inline]
    pub(super) fn is_to_rob(&mut self) -> bool {
        self.robs != Robs::Nothing
            || self.steps.wrapping_sub(self.looked_at) >= STEPS_A_LOOK_ELSEWHERE && self.looks_elsewhere()
    }

    /// Whether to take from the worker that this one has looked at before. There are three reasons:
    ///
    /// - It has made no step since then, and has work. It is stuck.
    /// - It has taken nothing from the global queue since then, and has work in its shard.
    /// - It has much more in its shard than this worker.
    ///
    /// The first is needed for fairness. The others spread work sooner. With the second, a process does not wait until
    /// the other worker comes to its shard, which may be after all processes of a deep deque.
    ///
    /// If there is none, the next look is at another worker.
    #[cold]
    fn looks_elsewhere(&mut self) -> bool {
        self.looked_at = self.steps;
        let (queues, before, now) = (&self.road.queues, self.seen, self.progress_of(self.victim));
        let (spawned, woken) = (queues.own_len(self.victim), queues.shard_len(self.victim));
        let is_stuck = before.steps == now.steps && spawned + woken > 0;
        let neglects = before.from_global == now.from_global && woken > 0;
        let has_more = woken > 2 * self.queues.waiting() + 1;
        self.robs = if self.victim == self.index {
            Robs::Nothing
        } else if is_stuck {
            Robs::ShardOrDeque
        } else if neglects || has_more {
            Robs::Shard
        } else {
            Robs::Nothing
        };
        self.seen = now;
        if self.robs == Robs::Nothing {
            self.looks_at_next();
        }
        self.robs != Robs::Nothing
    }

    fn looks_at_next(&mut self) {
        self.victim = (self.victim + 1) % self.road.views.len();
        self.seen = self.progress_of(self.victim);
    }

    fn progress_of(&self, worker: usize) -> Progress {
        let counters = &self.road.views[worker].counters;
        Progress { steps: counters.steps.get(), from_global: counters.from_global.get() }
    }

    /// Takes half of the other worker's shard. If it is stuck and its shard is empty, takes from its deque.
    #[cold]
    fn rob(&mut self) -> Option<Ready> {
        let robs = std::mem::replace(&mut self.robs, Robs::Nothing);
        let (queues, victim) = (&self.road.queues, self.victim);
        let mut stolen = queues.steal_shard(victim, &self.queues);
        if robs == Robs::ShardOrDeque {
            stolen = stolen.or_else(|| queues.steal_deque(victim, &self.queues));
        } else {
            // There may always be a reason to take from this worker. Meanwhile, another one may be stuck.
            self.looks_at_next();
        }
        let stolen = stolen?;
        self.offered = true;
        self.one(|counters| &counters.stolen);
        Some(stolen)
    }

    /// Called when the only process of this worker lets its turn pass. The next search begins with the shard of another
    /// worker, because the process that should be stepped first may be there. So the backlog does not grow until that
    /// worker comes to it.
    #[cold]
    pub(super) fn robs_meanwhile(&mut self) {
        self.looks_at_next();
        if self.victim != self.index && self.road.queues.shard_len(self.victim) > 0 {
            self.robs = Robs::Shard;
        }
    }
}
