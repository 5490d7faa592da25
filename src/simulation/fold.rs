//! The hash of a run: equal runs have equal hashes.

/// Folds numbers into one. The order counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fold(u64);

impl Default for Fold {
    fn default() -> Fold {
        Fold(0x243f_6a88_85a3_08d3)
    }
}

impl Fold {
    pub(super) fn add(&mut self, numbers: &[u64]) {
        for number in numbers {
            let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = mixed ^ (mixed >> 29);
        }
    }

    /// Folds the letters of a text, and not its address: they are the same in each program.
    pub(super) fn add_text(&mut self, text: &str) {
        let (eights, rest) = text.as_bytes().as_chunks::<8>();
        let last = rest.iter().fold(0, |last, byte| last << 8 | u64::from(*byte));
        let words = eights.iter().map(|eight| u64::from_le_bytes(*eight)).chain([last]);
        // A multiplication a word is enough, because `add` mixes the result.
        let number = words.fold(text.len() as u64, |number, word| (number ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        self.add(&[number]);
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}
