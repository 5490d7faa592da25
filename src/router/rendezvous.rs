//! Rendezvous hashing: to which of several places a key belongs.
//!
//! Each place and key give a number. The key belongs to the place with the highest number. So each place has the same
//! share of the keys. If a place is added, it takes its share from all others, and no other key moves. If a place goes
//! away, only its keys move.
//!
//! The numbers are the same in every build and on every machine. Nothing here may be changed: the places of keys would
//! change with it.

use std::hash::{Hash, Hasher};

/// The golden ratio times 2^64. Its multiples are spread evenly.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the place that a key belongs to, by its index. `None` if there is no place.
///
/// A place is named by a number that it keeps: the result depends on the numbers, and not on their order. If two places
/// draw the same number, the one with the higher name has the key.
pub(crate) fn pick(key: u64, places: impl IntoIterator<Item = u64>) -> Option<usize> {
    let drawn = |place: u64| mix(key ^ mix(place.wrapping_add(1).wrapping_mul(GOLDEN)));
    let drawn = places.into_iter().enumerate().map(|(index, place)| (drawn(place), place, index));
    drawn.max().map(|(_, _, index)| index)
}

/// Returns the hash of a key.
pub(crate) fn hash_of(key: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = StableHasher(GOLDEN);
    key.hash(&mut hasher);
    hasher.finish()
}

/// The finishing step of SplitMix64: every bit of the result depends on every bit of the input.
fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A hasher that does not depend on the machine. Each integer is one word, of whatever size it is.
struct StableHasher(u64);

impl StableHasher {
    fn word(&mut self, word: u64) {
        self.0 = mix(self.0.wrapping_mul(GOLDEN) ^ word);
    }
}

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        mix(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.word(u64::from_le_bytes(word));
        }
        // So that zeros at the end count.
        self.word(bytes.len() as u64);
    }

    fn write_u8(&mut self, n: u8) {
        self.word(n.into());
    }

    fn write_u16(&mut self, n: u16) {
        self.word(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.word(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        self.word(n);
    }

    fn write_u128(&mut self, n: u128) {
        self.word(n as u64);
        self.word((n >> 64) as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.word(n as u64);
    }

    fn write_i8(&mut self, n: i8) {
        self.word(n as u64);
    }

    fn write_i16(&mut self, n: i16) {
        self.word(n as u64);
    }

    fn write_i32(&mut self, n: i32) {
        self.word(n as u64);
    }

    fn write_i64(&mut self, n: i64) {
        self.word(n as u64);
    }

    fn write_i128(&mut self, n: i128) {
        self.write_u128(n as u128);
    }

    fn write_isize(&mut self, n: isize) {
        self.word(n as u64);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const KEYS: u64 = 20_000;

    fn place(key: u64, places: u64) -> usize {
        pick(hash_of(&key), 0..places).unwrap()
    }

    /// The bounds are six standard deviations.
    #[test]
    fn every_place_has_its_share_of_the_keys() {
        for places in [1, 2, 3, 10, 64] {
            let mut counts = vec![0_u64; places as usize];
            (0..KEYS).for_each(|key| counts[place(key, places)] += 1);
            let share = KEYS / places;
            let most = 6 * (share as f64).sqrt() as u64;
            assert!(counts.iter().all(|count| count.abs_diff(share) <= most), "{places}: {counts:?}");
        }
    }

    #[test]
    fn a_new_place_takes_its_share_and_no_other_key_moves() {
        for places in 1..20 {
            let moved: Vec<u64> = (0..KEYS).filter(|key| place(*key, places) != place(*key, places + 1)).collect();
            assert!(moved.iter().all(|key| place(*key, places + 1) == places as usize), "only to the new place");
            let share = KEYS / (places + 1);
            assert!((moved.len() as u64).abs_diff(share) < share / 4, "{} of {share}", moved.len());
        }
    }

    #[test]
    fn a_place_that_goes_away_moves_its_own_keys_only() {
        let all = [3, 1, 4, 15, 92, 6];
        for key in (0..KEYS).map(|key| hash_of(&key)) {
            let before = all[pick(key, all).unwrap()];
            let without = all.map(|place| if place == 4 { 92 } else { place });
            assert!(before == 4 || without[pick(key, without).unwrap()] == before);
            let mut reversed = all;
            reversed.reverse();
            assert_eq!(reversed[pick(key, reversed).unwrap()], before);
        }
        assert_eq!(pick(7, []), None);
    }

    /// The figures are those of every build and every machine.
    #[test]
    fn the_place_of_a_key_never_changes() {
        let hashes = [hash_of(&7_u64), hash_of(&7_u8), hash_of(&-7_i32), hash_of("seven"), hash_of(&(1_u128, 'x'))];
        assert_eq!(hashes, FIXED);
        let places: Vec<usize> = (0..12_u64).map(|key| place(key, 5)).collect();
        assert_eq!(places, PLACES);
        assert_ne!(hash_of(&b"ab\0"[..]), hash_of(&b"ab"[..]));
        assert_ne!(hash_of(&("a", "bc")), hash_of(&("ab", "c")));
    }

    /// Computed by a second program, which was written from the description.
    const FIXED: [u64; 5] = [
        0x6c7a_fd5d_94c8_4e96,
        0x6c7a_fd5d_94c8_4e96,
        0x6ddf_9614_4e7b_27f9,
        0x96a0_6af6_ed0a_bce1,
        0x5999_fb68_2779_164e,
    ];
    const PLACES: [usize; 12] = [4, 2, 4, 0, 4, 1, 0, 1, 0, 2, 1, 2];
}
