//! Where a worker finds work.
//!
//! It looks in this order: the hand-off slot (the first process that the last step woke, at most so many in a row),
//! its own deque (last in, first out), the global queue (first in, first out: one, and a batch into the own deque),
//! half of another worker's deque. So that nothing is left behind for ever, every so many searches begin with the
//! oldest of the global queue, and every so many with the oldest of the own deque. A worker that always has work of
//! its own looks every so many steps whether another one is stuck: what lies in its deque is behind a step that may
//! never return.

use super::search::{Searcher, search};
use super::turn::Engine;
use super::worker::{GLOBAL_FIRST, Own, Worker};
use crate::primitives::Ordering;
use crate::sched::body::Ready;

/// In every so many searches, the one in the middle begins with the oldest of the own deque.
const BOTTOM_FIRST: u32 = 127;

/// After so many steps a worker looks whether another one is stuck, whatever work it has of its own.
pub(super) const STEPS_A_LOOK_ELSEWHERE: u32 = 64;

impl<E: Engine, const WATCHED: bool> Worker<E, WATCHED> {
    /// A look that begins with what others have put into the global queue, or with what lies behind a worker that is
    /// stuck.
    #[cold]
    fn look_beyond(&mut self) -> Option<Ready> {
        let own = &mut self.own;
        if self.searches == self.global_at {
            // The processes in the own deque come first: a process of the global queue that continues and spawns more
            // than a few in each step would otherwise fill the deque faster than it is emptied.
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

impl<E: Engine, const WATCHED: bool> Searcher for Worker<E, WATCHED> {
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

    /// Everywhere but in the hand-off slot.
    #[inline]
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
            // Between the global queue and the deque, what came along was nowhere to be seen; who fell asleep then is
            // told.
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
        WATCHED && self.own.is_surplus()
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

impl<const WATCHED: bool> Own<WATCHED> {
    /// Whether the next search is to begin with the deque of another worker.
    #[inline]
    pub(super) fn is_to_rob(&mut self) -> bool {
        self.robs || self.steps.wrapping_sub(self.looked_at) >= STEPS_A_LOOK_ELSEWHERE && self.looks_elsewhere()
    }

    /// Whether the worker at which this one looked the last time has not come any further, and has something in its
    /// deque. Otherwise it is another one's turn.
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

    /// Takes half of what lies in the deque of the worker that is stuck.
    #[cold]
    fn rob(&mut self) -> Option<Ready> {
        self.robs = false;
        let stolen = self.road.queues.steal_from(self.victim, &self.deque)?;
        self.offered = true;
        self.one(|counters| &counters.stolen);
        Some(stolen)
    }
}
