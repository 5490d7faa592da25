//! The timers of one shard: what is to happen, and when.
//!
//! The values lie in *slots*. A heap orders the moments. A timer that is set takes a vacant slot and goes into the
//! heap. A timer that is cancelled leaves its slot at once, so its value is free. Its entry of the heap stays, and is
//! *stale*: the slot is vacant, or has another timer. Most timers are cancelled, and this costs no search in the heap.
//!
//! Each timer has a number of its own, its *order*. The slot and the entry have the same order as long as the entry is
//! not stale. The order also decides between two timers for the same moment.
//!
//! **Memory.** When as many timers have gone as there are slots, the stale entries are removed, vacant slots at the end
//! are given up, and the next timers take the first vacant slots. So the heap has at most about twice as many entries
//! as there are slots, and a timer that stays does not keep the memory of a busy time for ever. The cost for each timer
//! is constant.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

/// The least number of timers that must go before the store is tidied up. It is also the number of slots whose memory
/// is kept. The memory of twice as many entries is kept.
const FEW: usize = 64;

/// The end of the list of vacant slots.
const NONE: u32 = u32::MAX;

/// The timers of one shard.
pub(super) struct TimerStore<T> {
    slots: Vec<Slot<T>>,
    /// The first of the vacant slots that serve again.
    vacant: u32,
    /// Slots from this number on do not serve again when they become vacant, so that the memory of a busy time can be
    /// returned. Then they are vacant until it is tidied up. The limit ends when the slots do not suffice.
    limit: usize,
    moments: BinaryHeap<Moment>,
    /// The order of the timer that was set last.
    last: u64,
    /// The number of timers.
    taken: usize,
    /// The number of timers that have a moment.
    pending: usize,
    /// The number of timers that have gone since it was tidied up.
    gone: usize,
}

struct Slot<T> {
    /// The order of the timer that is here. Zero if the slot is vacant.
    order: u64,
    place: Place<T>,
}

enum Place<T> {
    /// The next vacant slot.
    Vacant(u32),
    Timed(T),
    /// Never due.
    Untimed(T),
}

/// When a timer is due. The greatest is the earliest, because it is the top of the heap.
#[derive(PartialEq, Eq)]
struct Moment {
    at: Instant,
    order: u64,
    slot: u32,
}

impl Ord for Moment {
    #[inline]
    fn cmp(&self, other: &Moment) -> Ordering {
        other.at.cmp(&self.at).then_with(|| other.order.cmp(&self.order))
    }
}

impl PartialOrd for Moment {
    #[inline]
    fn partial_cmp(&self, other: &Moment) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> TimerStore<T> {
    /// Makes an empty store. The orders of its timers are greater than `last`.
    pub(super) fn new(last: u64) -> TimerStore<T> {
        TimerStore {
            slots: Vec::new(),
            vacant: NONE,
            limit: usize::MAX,
            moments: BinaryHeap::new(),
            last,
            taken: 0,
            pending: 0,
            gone: 0,
        }
    }

    /// Sets a timer, which may never be due. Returns its order and its slot.
    #[inline]
    pub(super) fn set(&mut self, at: Option<Instant>, value: T) -> (u64, u32) {
        self.last += 1;
        let order = self.last;
        let place = if at.is_some() { Place::Timed(value) } else { Place::Untimed(value) };
        let full = Slot { order, place };
        let slot = match self.slots.get_mut(self.vacant as usize) {
            Some(found) => {
                let slot = self.vacant;
                if let Slot { place: Place::Vacant(next), .. } = std::mem::replace(found, full) {
                    self.vacant = next;
                }
                slot
            }
            None => {
                self.limit = usize::MAX;
                self.slots.push(full);
                (self.slots.len() - 1) as u32
            }
        };
        self.taken += 1;
        if let Some(at) = at {
            self.pending += 1;
            self.moments.push(Moment { at, order, slot });
        }
        (order, slot)
    }

    /// Takes out the timer of this order, if it is still there.
    #[inline]
    pub(super) fn remove(&mut self, order: u64, slot: u32) -> Option<T> {
        let value = self.take(order, slot)?;
        self.gone += 1;
        if self.gone >= self.slots.len().max(FEW) || self.taken == 0 && self.slots.len() > FEW {
            self.tidy_up();
        }
        Some(value)
    }

    #[inline]
    fn take(&mut self, order: u64, slot: u32) -> Option<T> {
        let found = self.slots.get_mut(slot as usize).filter(|found| found.order == order)?;
        found.order = 0;
        let place = std::mem::replace(&mut found.place, Place::Vacant(self.vacant));
        if (slot as usize) < self.limit {
            self.vacant = slot;
        }
        self.taken -= 1;
        match place {
            Place::Timed(value) => {
                self.pending -= 1;
                Some(value)
            }
            Place::Untimed(value) => Some(value),
            Place::Vacant(_) => None,
        }
    }

    /// Takes out the earliest timer, if it is due.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.earliest()? > now {
            return None;
        }
        let Moment { order, slot, .. } = self.moments.pop()?;
        self.remove(order, slot)
    }

    /// The moment of the earliest timer. It is exact.
    pub(super) fn earliest(&mut self) -> Option<Instant> {
        loop {
            let top = self.moments.peek()?;
            if has(&self.slots, top) {
                return Some(top.at);
            }
            self.moments.pop();
        }
    }

    /// The number of timers that have a moment.
    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    /// Takes out all timers, with their moments and orders.
    pub(super) fn take_all(&mut self) -> Vec<(Option<Instant>, u64, T)> {
        let mut all = Vec::new();
        for Moment { at, order, slot } in std::mem::take(&mut self.moments) {
            all.extend(self.take(order, slot).map(|value| (Some(at), order, value)));
        }
        for Slot { order, place } in std::mem::take(&mut self.slots) {
            if let Place::Timed(value) | Place::Untimed(value) = place {
                all.push((None, order, value));
            }
        }
        (self.vacant, self.taken, self.pending, self.gone) = (NONE, 0, 0, 0);
        all
    }

    #[cold]
    fn tidy_up(&mut self) {
        self.gone = 0;
        self.moments.retain(|moment| has(&self.slots, moment));
        while self.slots.pop_if(|slot| slot.order == 0).is_some() {}
        self.vacant = NONE;
        for (number, slot) in self.slots.iter_mut().enumerate().rev() {
            if let Place::Vacant(next) = &mut slot.place {
                *next = std::mem::replace(&mut self.vacant, number as u32);
            }
        }
        self.limit = (2 * self.taken).max(FEW);
        self.slots.shrink_to((2 * self.slots.len()).max(FEW));
        // Timers that are cancelled leave entries until the next tidy-up. This keeps room for them.
        self.moments.shrink_to((self.moments.len() + self.slots.len()).max(2 * FEW));
    }

    /// The number of slots and of entries that there is memory for.
    #[cfg(all(test, not(loom)))]
    fn capacity(&self) -> (usize, usize) {
        (self.slots.capacity(), self.moments.capacity())
    }
}

/// Whether the timer of this entry is still there.
#[inline]
fn has<T>(slots: &[Slot<T>], moment: &Moment) -> bool {
    slots.get(moment.slot as usize).is_some_and(|slot| slot.order == moment.order)
}

#[cfg(all(test, not(loom)))]
mod tests;
