//! The newest steps of a process, in a bounded number of bytes.

use super::codec::last_word;
use super::words::{Memory, Words};
use crate::primitives::{Arc, AtomicUsize, Ordering};

/// The bytes that all rings together may have.
pub(super) struct Total {
    limit: usize,
    used: AtomicUsize,
}

impl Total {
    pub(super) fn new(limit: usize) -> Total {
        Total { limit, used: AtomicUsize::new(0) }
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn reserve(&self, bytes: usize) -> bool {
        let more = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        // Ordering: Relaxed: the count protects no other memory.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The kinds of frames. They are part of the format.
pub(super) const STEP: u8 = 2;
pub(super) const SNAPSHOT: u8 = 3;

/// The bytes of a word.
const WORD: usize = size_of::<u64>();

/// The words with which a ring begins.
const LEAST: usize = 32;

/// The frames of the newest steps. The first word of a frame is its head: see [`Head`].
pub(super) struct Ring {
    /// Its size is counted in the total.
    words: Arc<Words>,
    /// The same memory, for other threads.
    memory: Arc<Memory>,
    /// The place of the oldest word.
    first: usize,
    /// The number of words of complete frames. They go on at the beginning of the memory.
    length: usize,
    /// The number of words of the oldest frame. It is read when the frame before it is dropped. That is long before it
    /// is needed, because it is usually in no near cache. Zero: not read yet.
    oldest: usize,
    /// The place of the first word of the open frame.
    head: usize,
    /// The place of the next word of the open frame. Each word changes only this field: the compiler would read two
    /// fields with one load, and the processor stalls if it has just written them with two stores.
    next: usize,
    /// The words from `next` up to here are free.
    stop: usize,
    /// The place from which the open frame goes on to `next`.
    from: usize,
    /// The number of words of the open frame before `from`.
    before: usize,
    /// Whether the open frame is too large.
    is_too_large: bool,
    /// The most words.
    limit: usize,
    total: Arc<Total>,
    /// Whether the ring must begin with a snapshot, or with the first step.
    begins_with_snapshot: bool,
    /// The words after the newest snapshot.
    since_snapshot: usize,
    /// Whether frames were dropped since the beginning.
    has_dropped: bool,
}

impl Ring {
    /// Makes a ring of at most so many bytes.
    pub(super) fn new(limit: usize, total: Arc<Total>, begins_with_snapshot: bool) -> Ring {
        let words = Arc::new(Words::new(0, &[], 0));
        Ring {
            memory: Arc::new(Memory::new(words.clone())),
            words,
            first: 0,
            length: 0,
            oldest: 0,
            head: 0,
            next: 0,
            stop: 0,
            from: 0,
            before: 0,
            is_too_large: false,
            limit: limit / WORD,
            total,
            begins_with_snapshot,
            since_snapshot: 0,
            has_dropped: false,
        }
    }

    /// The memory, for other threads.
    pub(super) fn memory(&self) -> Arc<Memory> {
        self.memory.clone()
    }

    /// Begins a frame with these words. The first one is the place of the head.
    #[inline]
    pub(super) fn begin<const N: usize>(&mut self, words: [u64; N]) {
        self.is_too_large = false;
        self.put_all(words);
    }

    /// Adds these words to the open frame.
    #[inline]
    pub(super) fn put_all<const N: usize>(&mut self, words: [u64; N]) {
        if self.stop == self.next {
            self.make_room();
        }
        if self.stop - self.next >= N {
            self.words.put_all(self.next, words);
            self.next += N;
        } else {
            self.put_slowly(&words);
        }
    }

    #[inline(never)]
    fn put_slowly(&mut self, words: &[u64]) {
        words.iter().for_each(|word| self.put(*word));
    }

    /// Adds a word to the open frame. Frames that are too old go.
    #[inline]
    pub(super) fn put(&mut self, word: u64) {
        if self.stop == self.next && !self.make_room() {
            return;
        }
        self.words.put(self.next, word);
        self.next += 1;
    }

    /// The number of words of the open frame.
    #[inline]
    fn open(&self) -> usize {
        self.before + (self.next - self.from)
    }

    /// Sets the number of words of the open frame, and the place at which it goes on.
    #[inline]
    fn go_on(&mut self, place: usize, open: usize) {
        (self.next, self.from, self.before) = (place, place, open);
        let size = self.words.len();
        self.stop = place + (size - place).min(size - self.length - open);
    }

    /// Adds bytes to the open frame.
    #[inline]
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        let (whole, rest) = bytes.as_chunks::<WORD>();
        whole.iter().for_each(|word| self.put(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.put(last_word(rest));
        }
    }

    /// Shows other threads the open frame, as far as it is there.
    #[inline]
    pub(super) fn show(&mut self) {
        if !self.is_too_large && !self.is_useless(STEP) {
            self.words.set_open(self.open());
        }
    }

    /// Completes the open frame. If it is too large, everything goes.
    #[inline]
    pub(super) fn complete(&mut self, head: Head) {
        if self.is_too_large {
            return self.lose();
        }
        if self.is_useless(head.kind) {
            return self.discard();
        }
        let open = self.open();
        self.words.put(self.head, head.word(open));
        self.words.complete(open);
        self.length += open;
        self.since_snapshot = if head.kind == SNAPSHOT { 0 } else { self.since_snapshot.saturating_add(open) };
        self.head = if self.next == self.words.len() { 0 } else { self.next };
        self.go_on(self.head, 0);
    }

    /// Whether a frame of this kind would be of no use, because the state before it is not known.
    #[inline]
    fn is_useless(&self, kind: u8) -> bool {
        self.begins_with_snapshot && kind != SNAPSHOT && self.length == 0 && self.has_dropped
    }

    #[cold]
    fn discard(&mut self) {
        self.words.set_open(0);
        self.go_on(self.head, 0);
    }

    /// The place so many words after another one.
    #[inline]
    fn place(&self, from: usize, count: usize) -> usize {
        let place = from + count;
        if place >= self.words.len() { place - self.words.len() } else { place }
    }

    /// Whether the state should be written down now: much has been recorded since, or steps are lost without it.
    #[inline]
    pub(super) fn wants_snapshot(&self) -> bool {
        self.begins_with_snapshot && (self.since_snapshot > self.limit / 4 || self.length == 0 && self.has_dropped)
    }

    /// Makes room for a further word. Returns `false` if there can be none.
    #[inline(never)]
    fn make_room(&mut self) -> bool {
        if self.is_too_large {
            return false;
        }
        if self.length + self.open() == self.words.len() {
            if self.length > 0 && self.words.len() == self.limit && !self.begins_with_snapshot {
                // The usual case: the ring has its full size, and its oldest step is dropped.
                self.drop_frame();
            } else if !self.make_words() {
                return false;
            }
        }
        self.go_on(if self.next == self.words.len() { 0 } else { self.next }, self.open());
        true
    }

    /// Frees a word. Returns `false` if it cannot.
    #[cold]
    #[inline(never)]
    fn make_words(&mut self) -> bool {
        if self.words.len() < self.limit {
            let least = self.length + self.open() + 1;
            let wanted = (self.words.len() * 2).max(least).max(LEAST).min(self.limit);
            // Less would do, too, if the total has no more.
            if self.grow(wanted) || self.grow(least) {
                return true;
            }
        }
        self.is_too_large = !self.drop_oldest();
        !self.is_too_large
    }

    #[cold]
    fn grow(&mut self, size: usize) -> bool {
        if !self.total.reserve((size - self.words.len()) * WORD) {
            return false;
        }
        let word = |number| self.words.get(self.place(self.first, number));
        let open = self.open();
        let words: Vec<u64> = (0..self.length + open).map(word).collect();
        self.words = Arc::new(Words::new(size, &words, self.length));
        self.memory.replace(self.words.clone());
        (self.first, self.head) = (0, self.length);
        self.go_on(self.length + open, open);
        true
    }

    /// Drops the oldest frame, and those after it that are of no use without it. Returns whether there was one.
    ///
    /// They are dropped together, so that a copy that is made meanwhile also begins with a snapshot.
    fn drop_oldest(&mut self) -> bool {
        if self.length == 0 {
            return false;
        }
        let frame = |number| Head::of(self.words.get(self.place(self.first, number)));
        let mut count = frame(0).1;
        while self.begins_with_snapshot && count < self.length {
            let (head, size) = frame(count);
            if head.kind == SNAPSHOT {
                break;
            }
            count += size;
        }
        self.drop_words(count);
        true
    }

    /// Drops the oldest frame. The ring has one, and may begin with any frame.
    #[inline]
    fn drop_frame(&mut self) {
        let count = if self.oldest > 0 { self.oldest } else { Head::of(self.words.get(self.first)).1 };
        self.drop_words(count);
    }

    /// Drops the oldest frames, which have this many words.
    #[inline]
    fn drop_words(&mut self, count: usize) {
        self.words.drop_oldest(count);
        self.length -= count;
        self.first = self.place(self.first, count);
        self.oldest = if self.length > 0 { Head::of(self.words.get(self.first)).1 } else { 0 };
        self.has_dropped = true;
    }

    /// Drops everything: a step is missing.
    fn lose(&mut self) {
        let old = std::mem::replace(&mut self.words, Arc::new(Words::new(0, &[], 0)));
        self.memory.replace(self.words.clone());
        (self.first, self.length, self.oldest, self.head, self.has_dropped) = (0, 0, 0, 0, true);
        self.go_on(0, 0);
        self.total.release(old.len() * WORD);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.total.release(self.words.len() * WORD);
    }
}

/// The first word of a frame, without the number of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: u8,
    /// A byte of the frame that is known at its end.
    pub(super) last: u8,
}

impl Head {
    #[inline]
    fn word(self, count: usize) -> u64 {
        // A ring with more words than that would have 32 GB.
        count as u64 & 0xffff_ffff | u64::from(self.kind) << 32 | u64::from(self.last) << 40
    }

    /// The head with this word, and the number of words of the frame.
    fn of(word: u64) -> (Head, usize) {
        (Head { kind: (word >> 32) as u8, last: (word >> 40) as u8 }, word as u32 as usize)
    }
}

/// The frames that begin with these words: their heads, and the words after these.
pub(super) fn frames_of(words: &[u64]) -> impl Iterator<Item = (Head, &[u64])> {
    let mut left = words;
    std::iter::from_fn(move || {
        let (head, count) = Head::of(*left.first()?);
        let (frame, rest) = left.split_at_checked(count)?;
        left = rest;
        Some((head, frame.get(1..)?))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use super::super::words::Copied;
    use super::*;

    /// Adds a frame with this body.
    fn push(ring: &mut Ring, kind: u8, body: &[u8]) {
        ring.begin([0]);
        ring.put_bytes(body);
        ring.complete(Head { kind, last: 0 });
    }

    fn numbers(ring: &Ring) -> Vec<(u8, u8)> {
        frames_of(&ring.memory.copy().frames).map(|(head, words)| (head.kind, words[0] as u8)).collect()
    }

    fn bytes(ring: &Ring) -> usize {
        ring.words.len() * WORD
    }

    #[test]
    fn a_ring_keeps_the_newest_frames_in_exactly_its_bytes() {
        let total = Arc::new(Total::new(10_000));
        let mut ring = Ring::new(1_000, total.clone(), false);
        for number in 0..=255_u8 {
            push(&mut ring, STEP, &[number; 95]);
            assert!(ring.length * WORD <= bytes(&ring) && bytes(&ring) <= 1_000, "{}", bytes(&ring));
            assert_eq!(total.used(), bytes(&ring));
        }
        // A frame has 13 words of 8 bytes.
        assert_eq!(numbers(&ring), (247..=255).map(|number| (STEP, number)).collect::<Vec<_>>());
        push(&mut ring, STEP, &[0; 996]);
        assert!(numbers(&ring).is_empty(), "a frame that is too large leaves nothing before it");
        assert_eq!(total.used(), 0);
        push(&mut ring, STEP, &[7; 10]);
        assert_eq!(numbers(&ring), [(STEP, 7)]);
        drop(ring);
        assert_eq!(total.used(), 0);
    }

    #[test]
    fn the_words_of_frames_stay_whole_at_every_place() {
        let mut ring = Ring::new(200, Arc::new(Total::new(1_000)), false);
        let body = |number: u8| vec![u64::from(number); usize::from(number) % 20 + 1];
        for number in 0..=255_u8 {
            ring.begin([0]);
            for (place, word) in body(number).iter().enumerate() {
                ring.put(*word);
                ring.show();
                assert_eq!(ring.memory.copy().open[1..], body(number)[..=place]);
            }
            ring.complete(Head { kind: STEP, last: 0 });
            let copied = ring.memory.copy();
            let frames: Vec<_> = frames_of(&copied.frames).map(|(_, words)| words.to_vec()).collect();
            let oldest = (usize::from(number) + 1).saturating_sub(frames.len()) as u8;
            assert!(!frames.is_empty());
            assert_eq!(frames, (oldest..=number).map(body).collect::<Vec<_>>());
            assert!(copied.open.is_empty());
        }
    }

    #[test]
    fn rings_share_a_total_that_is_never_passed() {
        let total = Arc::new(Total::new(1_500));
        let mut rings: Vec<Ring> = (0..3).map(|_| Ring::new(1_000, total.clone(), false)).collect();
        for number in 0..=255_u8 {
            for ring in &mut rings {
                push(ring, STEP, &[number; 95]);
            }
            assert!(total.used() <= 1_500);
            assert_eq!(total.used(), rings.iter().map(bytes).sum::<usize>());
        }
        assert!(rings.iter().filter(|ring| numbers(ring).last() == Some(&(STEP, 255))).count() >= 2);
    }

    #[test]
    fn a_ring_with_snapshots_always_begins_with_one() {
        let mut ring = Ring::new(1_000, Arc::new(Total::new(10_000)), true);
        let mut snapshots = 0;
        for number in 0..=255_u8 {
            // Steps of different sizes, and now and then one that needs nearly everything.
            let size = if number % 50 == 49 { 990 } else { 10 + usize::from(number) % 60 };
            push(&mut ring, STEP, &vec![number; size]);
            if ring.wants_snapshot() {
                push(&mut ring, SNAPSHOT, &[number; 50]);
                snapshots += 1;
                assert!(!ring.wants_snapshot());
            }
            let frames = numbers(&ring);
            assert!(frames.first().is_none_or(|first| *first == (STEP, 0) || first.0 == SNAPSHOT), "{frames:?}");
            assert_eq!(frames.last().map(|last| last.1), Some(number), "nothing is lost at the end");
        }
        assert!(snapshots > 10, "{snapshots}");
    }

    #[test]
    fn a_copy_begins_with_a_snapshot_while_the_ring_goes_on() {
        let mut ring = Ring::new(1_000, Arc::new(Total::new(10_000)), true);
        let (memory, is_over) = (ring.memory(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..500_000_u64 {
                    ring.begin([0, number]);
                    ring.complete(Head { kind: STEP, last: 0 });
                    if ring.wants_snapshot() {
                        push(&mut ring, SNAPSHOT, &[1; 8]);
                    }
                }
                is_over.store(1, Ordering::Relaxed);
            });
            while is_over.load(Ordering::Relaxed) == 0 {
                let copied = memory.copy().frames;
                let first = frames_of(&copied).next().map(|(head, words)| (head.kind, words[0]));
                assert!(first.is_none_or(|first| first == (STEP, 0) || first.0 == SNAPSHOT), "{first:?}");
            }
        });
    }

    /// A simple model of the frames that a ring has.
    struct Model {
        frames: VecDeque<(u8, Vec<u64>)>,
        limit: usize,
        begins_with_snapshot: bool,
        has_dropped: bool,
    }

    impl Model {
        fn push(&mut self, kind: u8, words: Vec<u64>) {
            let is_too_large = words.len() > self.limit;
            let size = |frames: &VecDeque<(u8, Vec<u64>)>| frames.iter().map(|frame| frame.1.len()).sum::<usize>();
            while !self.frames.is_empty() && (is_too_large || size(&self.frames) + words.len() > self.limit) {
                self.frames.pop_front();
                self.has_dropped = true;
                while self.begins_with_snapshot && self.frames.front().is_some_and(|frame| frame.0 != SNAPSHOT) {
                    self.frames.pop_front();
                }
            }
            self.has_dropped |= is_too_large;
            let is_useless =
                self.begins_with_snapshot && kind != SNAPSHOT && self.frames.is_empty() && self.has_dropped;
            if !is_too_large && !is_useless {
                self.frames.push_back((kind, words));
            }
        }
    }

    #[test]
    fn frames_are_whole_at_every_limit_however_their_words_come() {
        for (limit, begins_with_snapshot) in (1..=40).flat_map(|limit| [(limit, false), (limit, true)]) {
            let mut ring = Ring::new(limit * WORD, Arc::new(Total::new(10_000)), begins_with_snapshot);
            let mut model = Model { frames: VecDeque::new(), limit, begins_with_snapshot, has_dropped: false };
            let (mut word, mut random) = (0_u64, limit as u64);
            for _ in 0..300 {
                let mut next = || {
                    word += 1;
                    word
                };
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let kind = if ring.wants_snapshot() && random >> 63 == 0 { SNAPSHOT } else { STEP };
                let head = [0, next(), next(), next()];
                ring.begin(head);
                let mut words = head.to_vec();
                // A bit for each part says whether it has one word or two.
                for part in 0..(random >> 40) % 9 {
                    if random >> part & 1 == 0 {
                        let both = [next(), next()];
                        ring.put_all(both);
                        words.extend(both);
                    } else {
                        words.push(next());
                        ring.put(words[words.len() - 1]);
                    }
                }
                ring.complete(Head { kind, last: 0 });
                words[0] = Head { kind, last: 0 }.word(words.len());
                model.push(kind, words);
                let frames: Vec<u64> = model.frames.iter().flat_map(|frame| frame.1.clone()).collect();
                assert_eq!(ring.memory.copy(), Copied { frames: frames.clone(), open: Vec::new() }, "{limit}");
                // Each word is unique. So equal frames show that the writer and the readers agree about the places.
                let of_writer = (0..ring.length).map(|number| ring.words.get(ring.place(ring.first, number)));
                assert_eq!(of_writer.collect::<Vec<_>>(), frames, "{limit}");
            }
        }
    }
}
