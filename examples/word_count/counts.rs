//! The counts: bytes, lines, words, and how often each word occurs.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::sync::LazyLock;

use super::blocks::{Block, SMALLEST_BLOCK};

/// The longest word, in bytes, that is kept for the list of the most frequent. Longer words are only counted. Text
/// rarely repeats them, and a file without white space would be kept whole.
pub(super) const LONGEST_KEPT: usize = 1024;

/// Counts of a block, of a file, or of everything.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) words: u64,
    pub(super) bytes: u64,
    pub(super) table: Table,
}

impl Counts {
    pub(super) fn of(block: &Block) -> Counts {
        let mut counts = Counts { bytes: block.bytes.len() as u64, ..Counts::default() };
        counts.lines = block.bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        for word in block.words() {
            counts.words += 1;
            if word.len() <= LONGEST_KEPT {
                counts.table.add(word, hash(word), 1);
            }
        }
        counts
    }

    pub(super) fn merge(&mut self, other: &Counts) {
        self.lines += other.lines;
        self.words += other.words;
        self.bytes += other.bytes;
        self.table.merge(&other.table);
    }
}

/// How often each word occurs.
///
/// All words are in one text, one after the other. The slots refer to them by their hashes. A `HashMap<Box<[u8]>,
/// u64>` allocates memory for each word. This table has one allocation, which grows now and then. Here it takes a
/// third of the time of the map.
#[derive(Default)]
pub(super) struct Table {
    /// Each slot is zero, or has the word's hash above the number of its entry, counted from one. The number of slots
    /// is a power of two. At most half of them are taken.
    slots: Vec<u64>,
    /// In the order in which the words were added.
    entries: Vec<Entry>,
    text: Vec<u8>,
    forgotten: u64,
}

struct Entry {
    start: usize,
    count: u64,
    hash: u32,
    length: u32,
}

impl Table {
    /// The most by which a count may be too small because its word was forgotten: see
    /// [`keep_timeout`](Self::keep_timeout).
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn add(&mut self, word: &[u8], hash: u32, count: u64) {
        if self.entries.len() * 2 >= self.slots.len() {
            self.lay_out((self.slots.len() * 2).max(64));
        }
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                let (start, length) = (self.text.len(), word.len() as u32);
                self.text.extend_from_slice(word);
                self.entries.push(Entry { start, count, hash, length });
                self.slots[place] = slot_of(hash, self.entries.len());
                return;
            }
            if (slot >> 32) as u32 == hash {
                let entry = &mut self.entries[slot as u32 as usize - 1];
                if self.text[entry.start..][..entry.length as usize] == *word {
                    entry.count += count;
                    return;
                }
            }
            place = (place + 1) & mask;
        }
    }

    fn lay_out(&mut self, slots: usize) {
        // The old slots are freed before the new ones are allocated. Their contents are not needed.
        self.slots = Vec::new();
        self.slots = vec![0; slots];
        for (number, entry) in (1..).zip(&self.entries) {
            let mut place = entry.hash as usize & (slots - 1);
            while self.slots[place] != 0 {
                place = (place + 1) & (slots - 1);
            }
            self.slots[place] = slot_of(entry.hash, number);
        }
    }

    fn merge(&mut self, other: &Table) {
        self.forgotten += other.forgotten;
        for batch in other.entries.chunks(16) {
            self.touch(batch);
            for entry in batch {
                self.add(other.word(entry), entry.hash, entry.count);
            }
        }
    }

    /// Reads the slots where these words will be looked up. A large table is not in the processor's cache. If the
    /// slots are read together, their memory accesses overlap, and a merge takes two thirds of the time.
    fn touch(&self, batch: &[Entry]) {
        let slot = |entry: &Entry| self.slots.get(entry.hash as usize & self.slots.len().wrapping_sub(1));
        black_box(batch.iter().filter_map(slot).fold(0, |sum, slot| sum ^ slot));
        let entry = |slot: &u64| self.entries.get((*slot as u32 as usize).wrapping_sub(1));
        black_box(batch.iter().filter_map(slot).filter_map(entry).fold(0, |sum, entry| sum ^ entry.start));
    }

    /// Forgets the rarer half of the words if there are more than `words` of them, or more than `bytes` bytes. It
    /// forgets more if many are equally rare. So one file of random bytes cannot use up the memory. A forgotten word
    /// that occurs again starts at zero, so all counts are then slightly uncertain.
    pub(super) fn keep_timeout(&mut self, words: usize, bytes: usize) {
        if self.entries.len() <= words && self.text.len() <= bytes {
            return;
        }
        let mut counts: Vec<u64> = self.entries.iter().map(|entry| entry.count).collect();
        let middle = counts.len() / 2;
        let rare = *counts.select_nth_unstable(middle).1;
        drop(counts);
        let (text, mut kept) = (&mut self.text, 0);
        self.entries.retain_mut(|entry| {
            if entry.count <= rare {
                return false;
            }
            let length = entry.length as usize;
            text.copy_within(entry.start..entry.start + length, kept);
            entry.start = kept;
            kept += length;
            true
        });
        self.text.truncate(kept);
        self.lay_out(self.slots.len());
        self.forgotten += rare;
    }

    /// The most frequent words, beginning with the most frequent. Equally frequent words are in the order of their
    /// bytes.
    pub(super) fn top(&self, most: usize) -> Vec<(&[u8], u64)> {
        let mut top: Vec<(&[u8], u64)> = Vec::with_capacity(most + 1);
        for entry in &self.entries {
            let (word, count) = (self.word(entry), entry.count);
            let place = top.partition_point(|(other, more)| (count, *other) < (*more, word));
            if place < most {
                top.insert(place, (word, count));
                top.truncate(most);
            }
        }
        top
    }

    fn word(&self, entry: &Entry) -> &[u8] {
        &self.text[entry.start..][..entry.length as usize]
    }
}

fn slot_of(hash: u32, number: usize) -> u64 {
    u64::from(hash) << 32 | number as u64
}

/// Hashes a word. The hash is the same for all tables of one run, so that a merge need not compute it again. It
/// differs between runs, so that no file can be made whose words all collide.
fn hash(word: &[u8]) -> u32 {
    static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one("words"));
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = |hash: u64, eight: u64| {
        let product = u128::from(hash ^ eight) * u128::from(ODD);
        product as u64 ^ (product >> 64) as u64
    };
    let (eights, rest) = word.as_chunks::<8>();
    let hash = eights.iter().fold(*SEED ^ word.len() as u64, |hash, eight| mixed(hash, u64::from_le_bytes(*eight)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mixed(hash, u64::from_le_bytes(last)) as u32
}

// The beginning of a word that is kept for the next block leaves room in that block.
const _: () = assert!(LONGEST_KEPT < SMALLEST_BLOCK);

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> Counts {
        Counts::of(&Block { bytes: text.into(), in_word: false })
    }

    fn top(table: &Table, most: usize) -> Vec<(String, u64)> {
        table.top(most).into_iter().map(|(word, count)| (String::from_utf8_lossy(word).into_owned(), count)).collect()
    }

    #[test]
    fn lines_are_newlines_and_every_ascii_white_space_ends_a_word() {
        let counts = counts("\n one\ttwo\x0bthree\x0cfour\r\nfive\u{a0}still \u{2003}six\0six");
        assert_eq!((counts.lines, counts.words, counts.bytes), (2, 6, 44));
    }

    #[test]
    fn merged_counts_are_the_counts_of_the_whole() {
        let mut all = Counts::default();
        let mut whole = String::new();
        for number in 0..5_000_u32 {
            let piece = format!("w{} w{}\nw{}\n", number % 7, number % 1000, number);
            all.merge(&counts(&piece));
            whole += &piece;
        }
        let whole = counts(&whole);
        assert_eq!((all.lines, all.words, all.bytes), (whole.lines, whole.words, whole.bytes));
        assert_eq!((all.lines, all.words), (10_000, 15_000));
        assert_eq!(top(&all.table, 6_000), top(&whole.table, 6_000));
        assert_eq!(all.table.entries.len(), 5_000);
    }

    #[test]
    fn the_top_is_by_count_and_then_by_bytes() {
        let table = counts("b a c b a c d c long_enough_for_more_than_one_round ~").table;
        let expected = [("c", 3), ("a", 2), ("b", 2), ("d", 1)].map(|(word, count)| (String::from(word), count));
        assert_eq!(top(&table, 4), expected);
        assert_eq!(top(&table, 100).len(), 6);
        assert!(top(&Table::default(), 10).is_empty());
    }

    #[test]
    fn a_very_long_word_is_counted_and_not_kept() {
        let counts = counts(&format!("{} {}", "x".repeat(LONGEST_KEPT), "y".repeat(LONGEST_KEPT + 1)));
        assert_eq!(counts.words, 2);
        assert_eq!(top(&counts.table, 10), [("x".repeat(LONGEST_KEPT), 1)]);
    }

    #[test]
    fn too_many_words_lose_the_rare_ones_and_say_how_much_may_be_missing() {
        let mut table = counts("a a a a b b b c c d e").table;
        table.keep_timeout(5, 5);
        assert_eq!((table.entries.len(), table.forgotten()), (5, 0), "they are not too many");
        table.keep_timeout(4, 100);
        assert_eq!(table.forgotten(), 2);
        table.merge(&counts("b c f").table);
        let expected = [("a", 4), ("b", 4), ("c", 1), ("f", 1)].map(|(word, count)| (String::from(word), count));
        assert_eq!(top(&table, 10), expected, "nothing but what was forgotten is missing, and no word is there twice");
        table.keep_timeout(100, 3);
        assert_eq!((top(&table, 10), table.forgotten()), (vec![], 2 + 4));
    }
}
