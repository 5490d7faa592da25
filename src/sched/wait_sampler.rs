//! The decision which messages are measured, of those that one thread's steps send.

use std::time::Instant;

use super::gaps::Gaps;
use crate::clock::Clock;

/// Decides which messages are measured.
pub(crate) struct WaitSampler {
    gaps: Gaps,
    clock: SinceStart,
}

/// The time since the start of a runtime.
#[derive(Clone)]
pub(crate) struct SinceStart {
    clock: Clock,
    start: Instant,
}

impl SinceStart {
    pub(crate) fn new(clock: Clock, start: Instant) -> SinceStart {
        SinceStart { clock, start }
    }

    /// Nanoseconds since the start of the runtime.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().saturating_duration_since(self.start).as_nanos() as u64
    }
}

impl WaitSampler {
    /// One message in `one_in` is measured, on average. Each `number` has other samples.
    pub(crate) fn new(one_in: u32, number: usize, clock: SinceStart) -> WaitSampler {
        WaitSampler { gaps: Gaps::new(one_in, number), clock }
    }

    /// The number of messages up to the next one that is measured, with it.
    pub(crate) fn next_gap(&mut self) -> u32 {
        self.gaps.next()
    }

    pub(crate) fn clock(&self) -> &SinceStart {
        &self.clock
    }
}
