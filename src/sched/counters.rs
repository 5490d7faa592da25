//! Counts of spawns, sends, steps and losses. Each worker keeps its own; they are added up on request.

pub(crate) use super::count::Count;
use super::figures::{Directory, Figures};
use crate::outcome::Exit;
use crate::primitives::Arc;
use crate::process::DeadLetterReason;
use crate::sched::body::Kind;

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
    /// The figures by type of process, if the runtime has them. They have the same writers as these counts.
    pub(crate) figures: Option<Box<Figures>>,
}

impl Counters {
    /// Counts that several threads write.
    pub(crate) fn shared() -> Counters {
        Counters { shared: true, ..Counters::default() }
    }

    /// Adds figures by type, with the same writers.
    pub(crate) fn add_figures(&mut self, directory: &Arc<Directory>) {
        self.figures = Some(Box::new(Figures::new(directory.clone(), self.shared)));
    }

    /// Adds to one of these counts.
    #[inline]
    pub(crate) fn add(&self, count: &Count, by: u64) {
        count.add(by, self.shared);
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

    /// Counts the replacement of a state machine of a type by one that may have another type.
    pub(crate) fn replaced(&self, before: &'static Kind, now: &'static Kind) {
        if let Some(figures) = &self.figures {
            figures.replaced(before, now);
        }
    }
}
