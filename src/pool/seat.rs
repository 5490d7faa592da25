//! Where one thread waits until somebody calls it. A call that comes before the wait is not lost.
//!
//! Workers rest here, and so do threads that wait for room, for a pause to take hold, or for the end. So nobody waits on the
//! pool's one lock, and who calls needs only the seat.

use std::task::Waker;

use crate::clock::{Clock, Deadline, ExitWatcher};
use crate::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering, lock};

/// A seat, and who is to be called. Clones are the same seat.
#[derive(Clone)]
pub(super) struct Seat {
    shared: Arc<Shared>,
}

struct Shared {
    call: Mutex<Call>,
    called: Condvar,
    // Whether it lies on the stack of resting workers. Belongs to the ledger: written and read under the pool's lock only,
    // so nothing need be ordered by it.
    rests: AtomicBool,
    // Whether it was called from there and has not come yet. The ledger's as well.
    comes: AtomicBool,
    // Of somebody who waits elsewhere, and only for others to come to what waits.
    bell: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    None,
    Awaited,
    Made,
}

impl Seat {
    pub(super) fn new() -> Seat {
        Seat::with(None)
    }

    /// A seat where nobody waits: a call rings the bell, which runs no code of the user's.
    pub(super) fn with_bell(bell: Waker) -> Seat {
        Seat::with(Some(bell))
    }

    fn with(bell: Option<Waker>) -> Seat {
        let (call, called) = (Mutex::new(Call::None), Condvar::new());
        let (rests, comes) = (AtomicBool::new(false), AtomicBool::new(false));
        Seat { shared: Arc::new(Shared { call, called, rests, comes, bell }) }
    }

    /// Calls whoever waits here, or will wait here next.
    pub(super) fn call(&self) {
        if let Some(bell) = &self.shared.bell {
            return bell.wake_by_ref();
        }
        let before = std::mem::replace(&mut *lock(&self.shared.call), Call::Made);
        if before == Call::Awaited {
            self.shared.called.notify_one();
        }
    }

    /// Waits until called or until the deadline; the caller looks again in either case. With a manual clock there must be a
    /// [`watch`](Self::watch).
    pub(super) fn wait(&self, clock: &Clock, deadline: Deadline) {
        let mut call = lock(&self.shared.call);
        while *call != Call::Made && !deadline.has_passed(clock) {
            *call = Call::Awaited;
            call = clock.wait(&self.shared.called, call, deadline);
        }
        *call = Call::None;
    }

    /// Has the seat called when a manual clock is moved.
    pub(super) fn watch(&self, clock: &Clock) -> ExitWatcher {
        let seat = self.clone();
        clock.watch(move || seat.call())
    }

    pub(super) fn is(&self, other: &Seat) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn has_bell(&self) -> bool {
        self.shared.bell.is_some()
    }

    pub(super) fn rests(&self) -> bool {
        self.shared.rests.load(Ordering::Relaxed)
    }

    pub(super) fn comes(&self) -> bool {
        self.shared.comes.load(Ordering::Relaxed)
    }

    pub(super) fn set_comes(&self, comes: bool) {
        self.shared.comes.store(comes, Ordering::Relaxed);
    }

    pub(super) fn set_rests(&self, rests: bool) {
        self.shared.rests.store(rests, Ordering::Relaxed);
    }
}

/// Calls them all. With the pool's lock free: whoever comes needs it.
pub(super) fn call_all(seats: impl IntoIterator<Item = Seat>) {
    for seat in seats {
        seat.call();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;
    use std::time::Duration;

    #[test]
    fn a_call_that_comes_before_the_wait_is_not_lost_and_counts_once() {
        let (manual, seat) = (ManualClock::new(), Seat::new());
        let clock = manual.clock();
        let _watch = seat.watch(&clock);
        seat.call();
        seat.call();
        seat.wait(&clock, Deadline::NEVER);
        let waiter = std::thread::spawn({
            let (seat, clock) = (seat.clone(), clock.clone());
            let deadline = clock.deadline(Duration::from_secs(9));
            move || {
                while !deadline.has_passed(&clock) {
                    seat.wait(&clock, deadline);
                }
            }
        });
        manual.advance(Duration::from_secs(8));
        assert!(!waiter.is_finished(), "a second wait ends with the deadline only");
        manual.advance(Duration::from_secs(1));
        wait(waiter).unwrap();
    }
}
