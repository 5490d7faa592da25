//! What a node of the tree is in: its life, its times, and the shutdown that it belongs to.

use std::time::Instant;

use crate::clock::Clock;
use crate::latch::Latch;
use crate::sync::{Arc, OnceLock};
use crate::timer::{TimerKey, Timers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Closing,
    Told,
    Done,
}

/// What the node itself has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Nothing,
    /// Somebody has a tail that needs no end signal. It keeps the node from ending by itself, and from nothing else.
    Held,
    /// A job.
    Works,
    /// A job that was told to end, and later to do so at once.
    Cancelled,
    /// A job that was not waited for any longer.
    GivenUp,
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    Always,
    NotYet,
    Yes,
    /// The tail was dropped without a word.
    Never,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) made: Instant,
    pub(super) asked: Option<Instant>,
    pub(super) told: Option<Instant>,
    pub(super) done: Option<Instant>,
}

/// What somebody may wait for. Made when somebody does.
#[derive(Clone, Copy)]
pub(super) enum Bell {
    Asked,
    Done,
    Failed,
    Ready,
    Zero,
}

pub(super) type Bells = [Option<Latch<()>>; 5];

/// What one shutdown has in common: its clock, and timers if a node has limits.
pub(super) struct Closing {
    clock: Clock,
    timers: OnceLock<Timers>,
}

impl Closing {
    pub(super) fn new(clock: &Clock) -> Arc<Closing> {
        Arc::new(Closing { clock: clock.clone(), timers: OnceLock::new() })
    }

    pub(super) fn timers(&self) -> &Timers {
        self.timers.get_or_init(|| Timers::new(self.clock.clone(), "procession-limits"))
    }

    pub(super) fn forget(&self, limits: &[TimerKey]) {
        if let Some(timers) = self.timers.get() {
            limits.iter().for_each(|limit| drop(timers.cancel(*limit)));
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Their thread may be telling a job to cancel, which is code of the user's: it is not waited for.
        if let Some(timers) = self.timers.get() {
            drop(timers.halt());
        }
    }
}
