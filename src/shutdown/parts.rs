//! What a node of the tree is in: its life, its times, and the shutdown that it belongs to.

use std::time::Instant;

use crate::clock::Clock;
use crate::latch::Latch;
use crate::sync::{Arc, Mutex, lock};
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

/// What one shutdown has in common: timers, if a node has limits.
#[derive(Default)]
pub(super) struct Closing {
    /// By the clocks of the nodes that have limits: nearly always one.
    timers: Mutex<Vec<(Clock, Timers)>>,
}

impl Closing {
    pub(super) fn new() -> Arc<Closing> {
        Arc::default()
    }

    pub(super) fn timers(&self, clock: &Clock) -> Timers {
        let mut all = lock(&self.timers);
        if let Some((_, timers)) = all.iter().find(|(other, _)| other.is_same(clock)) {
            return timers.clone();
        }
        let timers = Timers::new(clock.clone(), "procession-limits");
        all.push((clock.clone(), timers.clone()));
        timers
    }

    pub(super) fn forget(&self, clock: &Clock, limits: &[TimerKey]) {
        if !limits.is_empty() {
            let timers = self.timers(clock);
            limits.iter().for_each(|limit| drop(timers.cancel(*limit)));
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        // Their thread may be telling a job to cancel, which is code of the user's: it is not waited for.
        let all = std::mem::take(&mut *lock(&self.timers));
        all.iter().for_each(|(_, timers)| drop(timers.halt()));
    }
}
