//! Random gaps between samples.

/// Random numbers with a given average. A fixed gap could keep step with the program, and take the same part of it
/// always.
pub(super) struct Gaps {
    average: u32,
    random: u32,
}

impl Gaps {
    /// Gaps of this average. Each `number` has other gaps.
    pub(super) fn new(average: u32, number: usize) -> Gaps {
        // The upper half of the product depends on all bits, so the gaps of consecutive numbers differ from the first
        // one on. A zero would stay a zero.
        let product = (number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Gaps { average, random: (product >> 32) as u32 | 1 }
    }

    /// The next gap: from 1 to twice the average less 1.
    #[inline]
    pub(super) fn next(&mut self) -> u32 {
        let random = &mut self.random;
        *random ^= *random << 13;
        *random ^= *random >> 17;
        *random ^= *random << 5;
        1 + ((u64::from(*random) * u64::from(2 * self.average - 1)) >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_random_and_have_the_average() {
        let mut gaps = Gaps::new(16, 3);
        let gaps: Vec<u32> = (0..100_000).map(|_| gaps.next()).collect();
        assert!(gaps.iter().all(|gap| (1..=31).contains(gap)) && (1..=31).all(|gap| gaps.contains(&gap)));
        let sum: u32 = gaps.iter().sum();
        assert!((1_580_000..1_620_000).contains(&sum), "{sum}");
        let mut all = Gaps::new(1, 0);
        assert!((0..100).all(|_| all.next() == 1));
    }
}
