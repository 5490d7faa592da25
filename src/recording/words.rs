//! The memory of a ring. Its process writes it, and other threads read it at any time.
//!
//! The memory is a ring of words, so that no lock is needed on the way of a message. Three counts say what is in it.
//! They begin with 0 and never go back, except for `open`:
//!
//! - `begin`: the words before the oldest frame,
//! - `end`: the words before the frame that is being written,
//! - `open`: the words of that frame that can be read.
//!
//! **The writer** stores the words of a frame after `end`. Then it stores `open`, as often as it likes. When the
//! frame is complete, it takes `open` back to 0, and moves `end` past the frame. Before it uses the words of old
//! frames again, it moves `begin` past these frames, and **fences**.
//!
//! **A reader** loads `end` and `open`, copies the words between `begin` and there, **fences**, and loads `begin` and
//! `end` again. There are two races:
//!
//! - The writer uses words again that the reader copies. If the reader has copied such a word, it sees the new
//!   `begin` after its fence. It leaves out all words before it.
//! - The writer completes the frame, and begins the next one, between the loads of `end` and of `open`. If the reader
//!   has loaded an `open` of the next frame, it sees the new `end` after that. So it leaves the open frame out if
//!   `end` has changed.

use crate::primitives::{Arc, AtomicU64, Brief, Ordering, enter, fence};

/// How often a reader tries again if its process was faster than the copy.
const TRIES: usize = 1_000;

/// A ring of words.
pub(super) struct Words {
    words: Box<[AtomicU64]>,
    begin: AtomicU64,
    end: AtomicU64,
    open: AtomicU64,
}

/// A copy of the frames, in words.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    /// The complete frames.
    pub(super) frames: Vec<u64>,
    /// The open frame, as far as it is there.
    pub(super) open: Vec<u64>,
}

impl Words {
    /// Makes a ring of so many words, which begins with these. So many of these belong to complete frames.
    pub(super) fn new(size: usize, first: &[u64], complete: usize) -> Words {
        let word = |place| AtomicU64::new(first.get(place).copied().unwrap_or(0));
        let words = (0..size).map(word).collect();
        Words { words, begin: AtomicU64::new(0), end: AtomicU64::new(complete as u64), open: AtomicU64::new(0) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The word at this place. It is for the writer.
    #[inline]
    pub(super) fn get(&self, place: usize) -> u64 {
        self.words[place].load(Ordering::Relaxed)
    }

    /// Stores words from this place on, and one more after them.
    #[inline]
    pub(super) fn put(&self, place: usize, word: u64) {
        // Ordering: Relaxed: the stores of `open` and `end` publish it.
        self.words[place].store(word, Ordering::Relaxed);
    }

    /// Stores these words from this place on.
    #[inline]
    pub(super) fn put_all<const N: usize>(&self, place: usize, words: [u64; N]) {
        let places = &self.words[place..place + N];
        places.iter().zip(words).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    }

    /// Gives up the oldest words.
    #[inline]
    pub(super) fn drop_oldest(&self, count: usize) {
        self.begin.store(self.begin.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
        // Ordering: pairs with the fence of `try_copy`. A reader that has copied a word that is stored from here on
        // sees the new `begin`.
        fence(Ordering::Release);
    }

    /// Lets readers see so many words of the open frame.
    #[inline]
    pub(super) fn set_open(&self, count: usize) {
        // Ordering: pairs with the load in `try_copy`. The reader sees the words, and the `end` before this frame.
        self.open.store(count as u64, Ordering::Release);
    }

    /// Completes the open frame, which has so many words.
    #[inline]
    pub(super) fn complete(&self, count: usize) {
        self.open.store(0, Ordering::Relaxed);
        // Ordering: pairs with the load in `try_copy`: the reader sees the words.
        self.end.store(self.end.load(Ordering::Relaxed) + count as u64, Ordering::Release);
    }

    /// Copies what is there. `None` if the writer was faster.
    fn try_copy(&self) -> Option<Copied> {
        let size = self.words.len() as u64;
        let load = |count: u64| self.words[(count % size) as usize].load(Ordering::Relaxed);
        // Ordering: pairs with `complete`.
        let end = self.end.load(Ordering::Acquire);
        // Ordering: pairs with `set_open`.
        let open = self.open.load(Ordering::Acquire);
        let begin = self.begin.load(Ordering::Relaxed).min(end);
        let mut frames: Vec<u64> = (begin..end).map(load).collect();
        let open: Vec<u64> = (end..end + open).map(load).collect();
        // Ordering: pairs with the fence of `drop_oldest`, and keeps the loads below after the copy.
        fence(Ordering::Acquire);
        let dropped = self.begin.load(Ordering::Relaxed);
        if dropped > end {
            return None;
        }
        frames.drain(..dropped.saturating_sub(begin) as usize);
        let is_same = self.end.load(Ordering::Relaxed) == end;
        Some(Copied { frames, open: if is_same { open } else { Vec::new() } })
    }
}

/// The memory of a ring. The ring replaces it when it grows.
pub(super) struct Memory(Brief<Arc<Words>>);

impl Memory {
    pub(super) fn new(words: Arc<Words>) -> Memory {
        Memory(Brief::new(words))
    }

    pub(super) fn replace(&self, words: Arc<Words>) {
        *enter(&self.0) = words;
    }

    /// Copies the frames, while their process may be writing. It never makes the process wait.
    pub(super) fn copy(&self) -> Copied {
        let words = || enter(&self.0).clone();
        (0..TRIES).find_map(|_| words().try_copy()).unwrap_or_default()
    }
}

/// A reader copies while the writer drops, writes, shows and completes frames.
#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Frame `n` is the words `10n` and `10n + 1`.
    fn is_whole(words: &[u64]) -> bool {
        words.chunks(2).all(|pair| pair.len() == 2 && pair[0] % 10 == 0 && pair[1] == pair[0] + 1)
    }

    #[test]
    fn a_copy_has_whole_frames_in_order_while_the_writer_goes_on() {
        loom::model(|| {
            // Room for two frames. The first is there, and the second is being written.
            let words = Arc::new(Words::new(4, &[10, 11], 2));
            let writer = words.clone();
            let writes = loom::thread::spawn(move || {
                writer.put(2, 20);
                writer.set_open(1);
                writer.put(3, 21);
                writer.complete(2);
                writer.drop_oldest(2);
                writer.put(0, 30);
                writer.put(1, 31);
                writer.set_open(2);
                writer.complete(2);
            });
            if let Some(copied) = words.try_copy() {
                assert!(is_whole(&copied.frames), "{copied:?}");
                assert!(copied.frames.is_sorted(), "{copied:?}");
                let next = copied.frames.last().map(|last| last + 9);
                // Of the second frame one word was shown, and of the third one two.
                assert!([&[][..], &[20], &[30, 31]].contains(&&copied.open[..]), "{copied:?}");
                assert!(copied.open.first().is_none_or(|open| next.is_none_or(|next| *open == next)), "{copied:?}");
            }
            writes.join().unwrap();
            assert_eq!(words.try_copy(), Some(Copied { frames: vec![20, 21, 30, 31], open: Vec::new() }));
        });
    }
}
