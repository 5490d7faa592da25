//! Delays between restarts.

use std::time::Duration;

use super::spec::SpecError;
use crate::command::Retry;

/// Delays between the restarts of a child.
///
/// The delay doubles with each failure in a row, up to a longest delay. [`jitter`](Self::jitter) makes each delay
/// shorter by a random part. The delays begin anew when the child has been up for [long enough](Self::stable_after).
#[derive(Clone, Debug)]
pub struct Backoff {
    pub(super) first: Duration,
    pub(super) cap: Duration,
    pub(super) jitter: f64,
    pub(super) stable: Duration,
    pub(super) seed: Option<u64>,
}

impl Backoff {
    /// Makes delays from `first` to `cap`, without jitter.
    ///
    /// The delays begin anew when a child has been up for as long as `cap`.
    pub fn exponential(first: Duration, cap: Duration) -> Backoff {
        Backoff { first, cap, jitter: 0.0, stable: cap, seed: None }
    }

    /// Makes each delay shorter by a random part of it.
    ///
    /// The random part is at most `part`, which is from 0 to 1. So children that failed together are not restarted
    /// together.
    pub fn jitter(mut self, part: f64) -> Backoff {
        self.jitter = part;
        self
    }

    /// Sets how long a child must be up before its delays begin anew.
    pub fn stable_after(mut self, stable: Duration) -> Backoff {
        self.stable = stable;
        self
    }

    /// Sets the seed of the jitter. The same seed gives the same delays.
    ///
    /// By default the supervisor [draws](crate::StepOutput::random) the random parts. So they depend on the seed of
    /// the runtime.
    pub fn seed(mut self, seed: u64) -> Backoff {
        self.seed = Some(seed);
        self
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        let Backoff { first, cap, jitter, .. } = *self;
        if first.is_zero() || first > cap || !(0.0..=1.0).contains(&jitter) {
            return Err(SpecError::Backoff { first, cap, jitter });
        }
        Ok(())
    }

    /// The delay after this many failures in a row, with jitter by the [seed](Self::seed). Without a seed it has no
    /// jitter.
    ///
    /// A supervisor has a jitter of its own for each child. This is the delay of the first one.
    pub fn delay(&self, failures: u32) -> Duration {
        self.delay_of(failures, 0, || 0)
    }

    /// The delay after this many failures in a row, for the child with this number. Without a seed, `draw` gives a
    /// random number.
    pub(super) fn delay_of(&self, failures: u32, child: u64, draw: impl FnOnce() -> u64) -> Duration {
        let pauses = Retry::new().first_pause(self.first).factor(2.0).cap(self.cap).jitter(self.jitter);
        let of_seed = |seed| mix(seed ^ mix(child.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(failures)));
        let random = if self.jitter == 0.0 { 0 } else { self.seed.map_or_else(draw, of_seed) };
        pauses.jittered_pause(failures, random)
    }
}

/// The finishing step of SplitMix64: every bit of the result depends on every bit of the seed.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_jitter_only_takes_off() {
        let ms = Duration::from_millis;
        let none = || unreachable!("no number is drawn if there is a seed, or no jitter");
        let plain = Backoff::exponential(ms(100), ms(1_500));
        let delays: Vec<_> = [1, 2, 3, 4, 5, 6, 40, u32::MAX].iter().map(|n| plain.delay_of(*n, 7, none)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_500, 1_500, 1_500, 1_500].map(ms));
        let longest = Backoff::exponential(Duration::MAX, Duration::MAX);
        assert_eq!(longest.delay_of(1, 7, none), Duration::MAX, "a child that is never to be restarted by itself");
        assert!((0..100).all(|child| longest.clone().jitter(1.0).seed(0).delay_of(2, child, none) < Duration::MAX));
        let jittered = plain.clone().jitter(0.5).seed(9);
        let some: Vec<_> = (0..100).map(|child| jittered.delay_of(3, child, none)).collect();
        assert!(some.iter().all(|delay| *delay > ms(199) && *delay <= ms(400)));
        assert!(some.iter().any(|delay| *delay < ms(220)) && some.iter().any(|delay| *delay > ms(380)), "{some:?}");
        assert!(some.windows(2).any(|pair| pair[0] != pair[1]), "children differ");
        assert_eq!(
            jittered.delay_of(3, 5, none),
            jittered.clone().delay_of(3, 5, none),
            "a seed gives the same delays"
        );
    }

    #[test]
    fn without_a_seed_the_jitter_is_drawn() {
        let ms = Duration::from_millis;
        let jittered = Backoff::exponential(ms(100), ms(100)).jitter(1.0);
        let delays = [0, 1 << 63, u64::MAX].map(|number| jittered.delay_of(1, 7, || number));
        assert_eq!(delays[..2], [ms(100), ms(50)]);
        assert!(delays[2] < ms(1));
    }
}
