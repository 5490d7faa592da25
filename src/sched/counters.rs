//! Counts of spawns, sends, steps and losses. Each worker keeps its own; they are added up on request.

use crate::outcome::Exit;
use crate::primitives::{AtomicU64, Ordering};
use crate::process::DeadLetterReason;

/// One count, written by one thread or by several. The owner of the [`Counters`] decides which.
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
}

/// The counts of one worker, or of all other threads together.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    shared: bool,
    pub(crate) spawned: Count,
    pub(crate) done: Count,
    pub(crate) failed: Count,
    pub(crate) panicked: Count,
    pub(crate) terminated: Count,
    pub(crate) accepted: Count,
    pub(crate) stepped: Count,
    pub(crate) dead: [Count; DeadLetterReason::ALL.len()],
    pub(crate) discarded_answers: Count,
    pub(crate) late_replies: Count,
    pub(crate) steps: Count,
    pub(crate) handed_off: Count,
    pub(crate) from_own: Count,
    pub(crate) from_global: Count,
    pub(crate) stolen: Count,
    pub(crate) parked: Count,
    pub(crate) woke_others: Count,
}

impl Counters {
    /// Counts that several threads write.
    pub(crate) fn shared() -> Counters {
        Counters { shared: true, ..Counters::default() }
    }

    /// Adds to one of these counts.
    #[inline]
    pub(crate) fn add(&self, count: &Count, by: u64) {
        // Ordering: Relaxed: each count is a number by itself. A thread that compares several of them waits for a
        // quiet moment by other means, and those order the counts as well.
        if self.shared {
            count.0.fetch_add(by, Ordering::Relaxed);
        } else {
            // There is only one writer, so no locked instruction is needed.
            count.0.store(count.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
        }
    }

    /// Subtracts from one of these counts what this thread has just added to it.
    #[cold]
    pub(crate) fn take_back(&self, count: &Count, by: u64) {
        self.add(count, by.wrapping_neg());
    }

    #[cold]
    pub(crate) fn dead(&self, reason: DeadLetterReason, by: u64) {
        if let Some(place) = DeadLetterReason::ALL.iter().position(|one| *one == reason) {
            self.add(&self.dead[place], by);
        }
    }

    pub(crate) fn ended(&self, exit: &Exit) {
        let count = match exit {
            Exit::Done(()) => &self.done,
            Exit::Failed(_) => &self.failed,
            Exit::Panicked(_) => &self.panicked,
            Exit::Terminated(_) => &self.terminated,
        };
        self.add(count, 1);
    }
}
