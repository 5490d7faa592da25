//! A parker, at which one thread waits until another thread wakes it. A wake-up before the wait is not lost.
//!
//! Idle workers wait here. So do threads that wait for room, for a pause to hold, or for the end. So no thread waits
//! on the pool's one lock. A thread that wakes another needs only its parker.

use std::task::Waker;

use crate::clock::{Clock, ClockWatch, Deadline};
use crate::primitives::{Arc, AtomicBool, Condvar, Mutex, Ordering, lock};

/// Clones refer to the same parker.
#[derive(Clone)]
pub(crate) struct Parker {
    shared: Arc<Shared>,
}

struct Shared {
    token: Mutex<Token>,
    woken: Condvar,
    // Whether this parker is on the stack of parked workers. The ledger owns both flags. They are written and read
    // only under the pool's lock, so they order nothing.
    is_parked: AtomicBool,
    // Whether the ledger took this parker off the stack and the worker has not asked for work since.
    is_coming: AtomicBool,
    // The waker of a task that waits for others to run jobs. No thread waits at such a parker.
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token {
    None,
    Awaited,
    Given,
}

impl Parker {
    pub(crate) fn new() -> Parker {
        Parker::with(None)
    }

    /// A parker at which no thread waits. It calls a waker that runs no user code.
    pub(super) fn with_waker(waker: Waker) -> Parker {
        Parker::with(Some(waker))
    }

    fn with(waker: Option<Waker>) -> Parker {
        let (token, woken) = (Mutex::new(Token::None), Condvar::new());
        let (is_parked, is_coming) = (AtomicBool::new(false), AtomicBool::new(false));
        Parker { shared: Arc::new(Shared { token, woken, is_parked, is_coming, waker }) }
    }

    /// Wakes the thread that waits here. If none does, the next wait returns at once.
    pub(crate) fn unpark(&self) {
        if let Some(waker) = &self.shared.waker {
            return waker.wake_by_ref();
        }
        let before = std::mem::replace(&mut *lock(&self.shared.token), Token::Given);
        if before == Token::Awaited {
            self.shared.woken.notify_one();
        }
    }

    /// Waits until woken or until the deadline. In both cases the caller checks its condition again. A manual clock
    /// needs a [`watch`](Self::watch).
    pub(crate) fn park(&self, clock: &Clock, deadline: Deadline) {
        let mut token = lock(&self.shared.token);
        while *token != Token::Given && !deadline.has_passed(clock) {
            *token = Token::Awaited;
            token = clock.wait(&self.shared.woken, token, deadline);
        }
        *token = Token::None;
    }

    /// Wakes the thread when a manual clock is moved.
    pub(crate) fn watch(&self, clock: &Clock) -> ClockWatch {
        let parker = self.clone();
        clock.watch(move || parker.unpark())
    }

    pub(super) fn is(&self, other: &Parker) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(super) fn has_waker(&self) -> bool {
        self.shared.waker.is_some()
    }

    pub(super) fn is_parked(&self) -> bool {
        self.shared.is_parked.load(Ordering::Relaxed)
    }

    pub(super) fn set_parked(&self, is_parked: bool) {
        self.shared.is_parked.store(is_parked, Ordering::Relaxed);
    }

    pub(super) fn is_coming(&self) -> bool {
        self.shared.is_coming.load(Ordering::Relaxed)
    }

    pub(super) fn set_coming(&self, is_coming: bool) {
        self.shared.is_coming.store(is_coming, Ordering::Relaxed);
    }
}

/// Wakes all the parkers. The caller must not hold the pool's lock, because each woken thread needs it.
pub(super) fn unpark_all(parkers: impl IntoIterator<Item = Parker>) {
    for parker in parkers {
        parker.unpark();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;
    use std::time::Duration;

    #[test]
    fn a_wake_up_before_the_wait_is_not_lost_and_counts_once() {
        let (manual, parker) = (ManualClock::new(), Parker::new());
        let clock = manual.clock();
        let _watch = parker.watch(&clock);
        parker.unpark();
        parker.unpark();
        parker.park(&clock, Deadline::NEVER);
        let waiter = std::thread::spawn({
            let (parker, clock) = (parker.clone(), clock.clone());
            let deadline = clock.deadline(Duration::from_secs(9));
            move || {
                while !deadline.has_passed(&clock) {
                    parker.park(&clock, deadline);
                }
            }
        });
        manual.advance(Duration::from_secs(8));
        assert!(!waiter.is_finished(), "a second wait ends with the deadline only");
        manual.advance(Duration::from_secs(1));
        wait(waiter).unwrap();
    }
}
