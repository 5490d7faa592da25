//! A file as blocks that can be counted independently: no block ends in the middle of a word.

use std::io::{self, Read};

use super::counts::LONGEST_KEPT;

/// The size of one read, in bytes, for a file of known size. Larger blocks have fewer different words in all, so
/// there is less to merge. But they take more of the processor's cache.
pub(super) const LARGEST_BLOCK: usize = 1 << 19;

/// The size of one read, in bytes, for a source of unknown size, such as a pipe. It is smaller, so that a read does
/// not wait for long.
pub(super) const SMALLEST_BLOCK: usize = 1 << 16;

/// Whether a byte is ASCII white space. The vertical tab counts, which `u8::is_ascii_whitespace` leaves out.
pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A piece of a file.
#[derive(Debug, PartialEq)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    /// Whether the block begins in the middle of a very long word, which was counted with the block before.
    pub(super) in_word: bool,
}

impl Block {
    /// The words that begin in this block.
    pub(super) fn words(&self) -> impl Iterator<Item = &[u8]> {
        let mut pieces = self.bytes.split(|byte| is_space(*byte));
        if self.in_word {
            pieces.next();
        }
        pieces.filter(|piece| !piece.is_empty())
    }
}

/// Reads a source in blocks.
pub(super) struct Blocks<R> {
    source: R,
    size: usize,
    /// The beginning of a word, which belongs to the next block.
    carry: Vec<u8>,
    in_word: bool,
}

impl<R: Read> Blocks<R> {
    /// Reads `source`, which has about `size` bytes.
    pub(super) fn new(source: R, size: u64) -> Blocks<R> {
        // One byte more than there is. Then the block with the last byte also reaches the end.
        let size = usize::try_from(size.saturating_add(1)).unwrap_or(LARGEST_BLOCK);
        let size = size.clamp(SMALLEST_BLOCK, LARGEST_BLOCK);
        Blocks { source, size, carry: Vec::new(), in_word: false }
    }

    /// Reads the next block. Also returns whether it is the last.
    pub(super) fn next(&mut self) -> io::Result<(Block, bool)> {
        let mut bytes = std::mem::take(&mut self.carry);
        let room = self.size - bytes.len();
        // The system provides memory only when it is first written to. So a small file takes only as much as it
        // needs.
        bytes.reserve_exact(room);
        let read = self.source.by_ref().take(room as u64).read_to_end(&mut bytes)?;
        let in_word = self.in_word;
        if read < room {
            return Ok((Block { bytes, in_word }, true));
        }
        let cut = bytes.iter().rposition(|byte| is_space(*byte)).map_or(0, |space| space + 1);
        // Of a word that is too long to be kept, only the length matters.
        self.in_word = bytes.len() - cut > LONGEST_KEPT;
        if !self.in_word {
            self.carry = bytes.split_off(cut);
        }
        Ok((Block { bytes, in_word }, false))
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::*;

    /// A source that yields a few bytes at a time, as a pipe does.
    struct Drops<'a>(&'a [u8]);

    impl Read for Drops<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let few = into.len().min(7_001);
            self.0.read(&mut into[..few])
        }
    }

    fn blocks(text: &[u8]) -> Vec<Block> {
        let mut blocks = Blocks::new(Drops(text), 0);
        let mut all = Vec::new();
        loop {
            let (block, is_last) = blocks.next().unwrap();
            assert!(block.bytes.len() <= SMALLEST_BLOCK);
            all.push(block);
            if is_last {
                return all;
            }
        }
    }

    /// Checks that the blocks together are the text and have its words, whatever their size.
    fn check(text: &[u8]) -> Vec<Block> {
        let blocks = blocks(text);
        assert_eq!(blocks.iter().flat_map(|block| &block.bytes).copied().collect::<Vec<u8>>(), text);
        let mut all = Counts::default();
        blocks.iter().for_each(|block| all.merge(&Counts::of(block)));
        let whole = Counts::of(&Block { bytes: text.to_vec(), in_word: false });
        assert_eq!((all.words, all.lines, all.bytes), (whole.words, whole.lines, whole.bytes));
        assert_eq!(all.table.top(1 << 20), whole.table.top(1 << 20));
        blocks
    }

    #[test]
    fn a_word_across_blocks_is_one_word_wherever_the_cut_would_be() {
        for before in SMALLEST_BLOCK - 12..SMALLEST_BLOCK + 2 {
            let mut text = b"x ".repeat(before / 2);
            text.resize(before, b' ');
            text.extend_from_slice(b"word words\n");
            text.extend(b"yy ".repeat(SMALLEST_BLOCK / 3));
            assert!(check(&text).len() > 1);
        }
    }

    #[test]
    fn a_word_longer_than_any_block_is_one_word_and_is_not_kept() {
        for length in [LONGEST_KEPT, LONGEST_KEPT + 1, SMALLEST_BLOCK, 3 * SMALLEST_BLOCK, 5 * SMALLEST_BLOCK + 3] {
            for before in [0, 1, SMALLEST_BLOCK - LONGEST_KEPT, SMALLEST_BLOCK - 1] {
                let text = [b" ".repeat(before), b"w".repeat(length), b" end".to_vec()].concat();
                check(&text);
                check(&text[..text.len() - 4]);
            }
        }
    }

    #[test]
    fn the_block_with_the_last_byte_is_the_last() {
        assert_eq!(check(b""), [Block { bytes: vec![], in_word: false }]);
        assert_eq!(check(b"no newline").len(), 1);
        for size in [1, SMALLEST_BLOCK, SMALLEST_BLOCK + 1, LARGEST_BLOCK - 1] {
            let text = vec![b' '; size];
            let (block, is_last) = Blocks::new(&text[..], size as u64).next().unwrap();
            assert_eq!((block.bytes.len(), is_last), (size, true));
        }
        let (block, is_last) = Blocks::new(io::repeat(b' '), u64::MAX).next().unwrap();
        assert_eq!((block.bytes.len(), is_last), (LARGEST_BLOCK, false));
    }
}
