//! One count.

use crate::primitives::{AtomicU64, Ordering};

/// One count, written by one thread or by several. Its owner decides which.
#[derive(Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds without a locked instruction. The caller must be the only writer.
    #[inline]
    pub(crate) fn add_alone(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Adds. `shared` says that several threads write this count.
    #[inline]
    pub(crate) fn add(&self, by: u64, shared: bool) {
        // Ordering: Relaxed: each count is a number by itself. A thread that compares several of them waits for a
        // quiet moment by other means, and those order the counts as well.
        if shared {
            self.0.fetch_add(by, Ordering::Relaxed);
        } else {
            self.add_alone(by);
        }
    }
}
