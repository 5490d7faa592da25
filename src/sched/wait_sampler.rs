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
        #[cfg(all(test, not(loom)))]
        crate::primitives::locks::count_clock_reading();
        self.clock.now().saturating_duration_since(self.start).as_nanos() as u64
    }
}

impl WaitSampler {
    /// One message in `one_in` is measured, on average. Each `number` has other samples.
    pub(crate) fn new(one_in: u32, number: usize, clock: SinceStart) -> WaitSampler {
        WaitSampler { gaps: Gaps::new(one_in, number), clock }
    }

    /// As `next_gap`, for the first gap. It is shorter on average, as if the sampler began in the middle of a gap. So
    /// a sampler of a few messages measures the same share of them as a sampler of many.
    pub(crate) fn first_gap(&mut self) -> u32 {
        self.gaps.next().min(self.gaps.next())
    }

    /// The number of messages up to the next measured one, including it.
    pub(crate) fn next_gap(&mut self) -> u32 {
        self.gaps.next()
    }

    pub(crate) fn clock(&self) -> &SinceStart {
        &self.clock
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn samplers_of_one_message_each_measure_the_same_share_evenly() {
        let clock = Clock::default();
        let clock = SinceStart::new(clock.clone(), clock.now());
        let measures = |number: &usize| WaitSampler::new(128, *number, clock.clone()).first_gap() == 1;
        let measuring: Vec<usize> = (0..100_000).filter(measures).collect();
        assert!((700..860).contains(&measuring.len()), "{}", measuring.len());
        let longest = measuring.windows(2).map(|two| two[1] - two[0]).max();
        assert!(longest < Some(2_000), "{longest:?}");
    }
}
