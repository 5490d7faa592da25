//! Random numbers by position: the same seed, stream and position always give the same number.
//!
//! A generator that is a function of its position has no state beyond a count. So a process that draws keeps one word,
//! and a process that does not keeps nothing.

use crate::pid::Pid;

/// The golden ratio times 2^64. Its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The random numbers that a process has drawn. The PID is the number of its stream.
///
/// The output of a step has those of the process that was loaded last. They belong to the process being stepped, or
/// that process has not drawn yet: a process that has drawn is loaded before each step.
#[derive(Debug)]
pub(crate) struct Draws {
    by: Pid,
    count: u64,
    /// Whether the step in hand has drawn.
    is_new: bool,
}

impl Draws {
    pub(crate) fn of(by: Pid, count: u64) -> Draws {
        Draws { by, count, is_new: false }
    }

    /// Draws the next number of this process. Also returns whether it is the first one of the step.
    pub(crate) fn next(&mut self, by: Pid, seed: impl FnOnce() -> u64) -> (u64, bool) {
        if self.by != by {
            *self = Draws::of(by, 0);
        }
        let number = random_at(seed(), by.to_word(), self.count);
        self.count += 1;
        (number, !std::mem::replace(&mut self.is_new, true))
    }

    /// Whether these are the draws of this process.
    pub(crate) fn are_of(&self, pid: Pid) -> bool {
        self.by == pid
    }

    /// Returns the count, if the step in hand has drawn.
    #[inline]
    pub(crate) fn take_new(&mut self) -> Option<u64> {
        std::mem::take(&mut self.is_new).then_some(self.count)
    }
}

/// Returns the number at a position of a stream.
///
/// The position and the key of the stream are mixed one after the other. If they were added, all streams would be
/// parts of one long stream, and two of them could overlap.
pub(crate) fn random_at(seed: u64, stream: u64, position: u64) -> u64 {
    let key = mix(seed ^ mix(stream.wrapping_mul(GOLDEN)));
    mix(key ^ mix(position.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// Returns a number below `count`, or any number if `count` is zero. All are equally likely.
///
/// A random number times `count` is a number of two words, and its upper word is below `count`. The lower word shows
/// whether the number is one of the few that would make a result more likely than others. Then another one is drawn.
pub(crate) fn below(count: u64, mut draw: impl FnMut() -> u64) -> u64 {
    if count == 0 {
        return draw();
    }
    loop {
        let product = u128::from(draw()) * u128::from(count);
        if product as u64 >= count.wrapping_neg() % count {
            return (product >> 64) as u64;
        }
    }
}

/// The finishing step of SplitMix64: every bit of the result depends on every bit of the input.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_number_depends_on_seed_stream_and_position_only() {
        let some = |seed, stream| (0..100).map(move |position| random_at(seed, stream, position));
        assert!(some(1, 2).eq(some(1, 2)));
        let all: HashSet<u64> = (0..10).flat_map(|seed| (0..10).flat_map(move |stream| some(seed, stream))).collect();
        assert_eq!(all.len(), 10_000);
    }

    /// The bounds are six standard deviations, so that hardly any sound generator fails.
    #[test]
    fn each_bit_of_a_stream_is_set_half_of_the_time() {
        const DRAWS: u64 = 10_000;
        for stream in [0, 1, 2, u64::MAX] {
            for bit in 0..64 {
                let set = (0..DRAWS).filter(|position| random_at(0, stream, *position) >> bit & 1 == 1).count();
                assert!(set.abs_diff(5_000) < 300, "bit {bit} of stream {stream} is set {set} times");
                // Neighbours in a stream, and neighbouring streams, have nothing to do with each other.
                let alike = |other: &dyn Fn(u64) -> u64| {
                    (0..DRAWS).filter(|n| (random_at(0, stream, *n) ^ other(*n)) >> bit & 1 == 0).count()
                };
                assert!(alike(&|n| random_at(0, stream, n + 1)).abs_diff(5_000) < 300, "bit {bit}");
                assert!(alike(&|n| random_at(0, stream.wrapping_add(1), n)).abs_diff(5_000) < 300, "bit {bit}");
            }
        }
    }

    #[test]
    fn numbers_below_a_bound_are_equally_likely() {
        let mut position = 0;
        let mut draw = || {
            position += 1;
            random_at(7, 7, position)
        };
        let mut counts = [0_u32; 6];
        (0..60_000).for_each(|_| counts[below(6, &mut draw) as usize] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 550), "{counts:?}");
        assert_eq!(below(1, &mut draw), 0);
        // Two thirds of all numbers: a third of the draws is not used, and no half of the results is more likely.
        let bound = u64::MAX / 3 * 2;
        let low = (0..10_000).filter(|_| below(bound, &mut draw) < bound / 2).count();
        assert!(low.abs_diff(5_000) < 300, "{low}");
    }
}
