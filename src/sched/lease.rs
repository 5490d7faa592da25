//! Leases of unique names: a process that holds one is not stepped after the end of its lease.
//!
//! A worker may have the body when the lease is given. So the lease is handed to the owner of the body (`handed.rs`),
//! who takes it at the beginning of the next turn, and says so. Only then is the process told that it holds the name.
//! So each step of a holder begins with a look at the clock.

use std::time::{Duration, Instant};

use crate::primitives::{Arc, AtomicU64, Ordering};

/// The end of a lease that is no lease any more: the name was released.
const RELEASED: u64 = u64::MAX;

/// The lease of a process. Its end moves.
pub(crate) struct Lease {
    start: Instant,
    /// In microseconds since the start.
    until: AtomicU64,
    pub(super) taken: Box<dyn Fn() + Send + Sync>,
}

impl Lease {
    /// Makes a lease that has ended. Its times are since `start`. `taken` is called when the owner of the body has it.
    pub(crate) fn new(start: Instant, taken: impl Fn() + Send + Sync + 'static) -> Arc<Lease> {
        Arc::new(Lease { start, until: AtomicU64::new(0), taken: Box::new(taken) })
    }

    // Ordering: SeqCst: the process must not be stepped after something that another node was told later.
    fn set(&self, until: u64) {
        self.until.store(until, Ordering::SeqCst);
    }

    /// Moves the end.
    pub(crate) fn extend(&self, until: Duration) {
        self.set((until.as_micros() as u64).min(RELEASED - 1));
    }

    /// Ends the lease now.
    pub(crate) fn lose(&self) {
        self.set(0);
    }

    /// The process may be stepped without the name.
    pub(crate) fn release(&self) {
        self.set(RELEASED);
    }

    pub(super) fn is_released(&self) -> bool {
        self.until.load(Ordering::SeqCst) == RELEASED
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        Duration::from_micros(self.until.load(Ordering::SeqCst)) <= now.saturating_duration_since(self.start)
    }
}
