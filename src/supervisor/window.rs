//! How often children may be restarted, and how long to wait before: both as plain functions of the time.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A sliding window: how much has happened within the last so long.
#[derive(Debug)]
pub(super) struct Window<T> {
    most: usize,
    within: Duration,
    events: VecDeque<(Instant, T)>,
}

impl<T> Window<T> {
    pub(super) fn new(most: usize, within: Duration) -> Window<T> {
        Window { most, within, events: VecDeque::new() }
    }

    /// Something has happened. Whether that is more than may happen.
    ///
    /// The window is half open: what is just as old as it is long is not in it any more.
    pub(super) fn exceeded(&mut self, now: Instant, event: T) -> bool {
        // As many as can be counted are never too many, and there is no end to what would be remembered of them.
        if self.most == usize::MAX {
            return false;
        }
        self.events.push_back((now, event));
        let (within, most) = (self.within, self.most);
        while self.events.pop_front_if(|(then, _)| now.saturating_duration_since(*then) >= within).is_some() {}
        self.events.len() > most
    }

    pub(super) fn take(&mut self) -> Vec<T> {
        std::mem::take(&mut self.events).into_iter().map(|(_, event)| event).collect()
    }
}

/// Delays between the restarts of a child: the first, doubled with each failure up to a cap, a random part of it taken
/// off, and begun anew when the child has been up for long enough.
#[derive(Clone, Debug)]
pub struct Backoff {
    pub(super) first: Duration,
    pub(super) cap: Duration,
    pub(super) jitter: f64,
    pub(super) stable: Duration,
    pub(super) seed: u64,
}

impl Backoff {
    /// Delays from `first` to `cap`, without jitter; begun anew when a child has been up as long as the cap.
    pub fn exponential(first: Duration, cap: Duration) -> Backoff {
        Backoff { first, cap, jitter: 0.0, stable: cap, seed: 0 }
    }

    /// Up to this part of each delay, from 0 to 1, is taken off at random, so that children which failed together are not
    /// restarted together.
    pub fn jitter(mut self, part: f64) -> Backoff {
        self.jitter = part;
        self
    }

    /// How long a child must have been up for its delays to begin anew.
    pub fn stable_after(mut self, stable: Duration) -> Backoff {
        self.stable = stable;
        self
    }

    /// The seed of the jitter; the same seed gives the same delays.
    pub fn seed(mut self, seed: u64) -> Backoff {
        self.seed = seed;
        self
    }

    /// The delay after so many failures in a row, of a child with this number.
    pub(super) fn delay(&self, failures: u32, child: u64) -> Duration {
        let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = self.first.saturating_mul(doubled).min(self.cap);
        let mixed = mix(self.seed ^ mix(child.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(failures)));
        // 53 random bits are a number from 0 to 1.
        let random = (mixed >> 11) as f64 / (1_u64 << 53) as f64;
        // Taken off, for the whole of a delay that is nearly for ever cannot be had as a product.
        full.saturating_sub(full.mul_f64(self.jitter * random))
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
    fn exactly_as_many_as_may_happen_are_not_too_many_and_one_more_is() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut window = Window::new(3, 10 * second);
        assert!(!window.exceeded(now, 1) && !window.exceeded(now, 2) && !window.exceeded(now + 9 * second, 3));
        assert!(window.exceeded(now + 9 * second, 4));
        assert_eq!(window.take(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_rate_that_stays_below_never_is_too_much_however_long_it_goes_on() {
        let (mut now, second) = (Instant::now(), Duration::from_secs(1));
        let mut window = Window::new(3, 9 * second);
        for _ in 0..100_000 {
            now += 3 * second;
            assert!(!window.exceeded(now, ()), "three in nine seconds, for ever");
        }
        assert!(window.events.len() <= 3, "and nothing is remembered for longer than the window");
        assert!(window.exceeded(now + second, ()), "a little faster is too fast");
    }

    #[test]
    fn where_none_are_too_many_none_are_remembered() {
        let now = Instant::now();
        let mut window = Window::new(usize::MAX, Duration::MAX);
        assert!((0..1_000).all(|n| !window.exceeded(now, n)));
        assert!(window.events.is_empty());
    }

    #[test]
    fn delays_double_up_to_the_cap_and_jitter_only_takes_off() {
        let ms = Duration::from_millis;
        let plain = Backoff::exponential(ms(100), ms(1_500));
        let delays: Vec<_> = [1, 2, 3, 4, 5, 6, 40, u32::MAX].iter().map(|n| plain.delay(*n, 7)).collect();
        assert_eq!(delays, [100, 200, 400, 800, 1_500, 1_500, 1_500, 1_500].map(ms));
        let longest = Backoff::exponential(Duration::MAX, Duration::MAX);
        assert_eq!(longest.delay(1, 7), Duration::MAX, "a child that is never to be restarted by itself");
        assert!((0..100).all(|child| longest.clone().jitter(1.0).delay(2, child) < Duration::MAX));
        let jittered = plain.clone().jitter(0.5).seed(9);
        let some: Vec<_> = (0..100).map(|child| jittered.delay(3, child)).collect();
        assert!(some.iter().all(|delay| *delay > ms(199) && *delay <= ms(400)));
        assert!(some.windows(2).any(|pair| pair[0] != pair[1]), "children differ");
        assert_eq!(jittered.delay(3, 5), jittered.clone().delay(3, 5), "a seed gives the same delays");
    }
}
