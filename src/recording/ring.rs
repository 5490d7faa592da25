//! The newest steps of a process, in a bounded number of bytes.

use std::collections::VecDeque;

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

/// The bytes before the body of a frame: its length, and its kind.
const HEAD: usize = 5;

/// The bytes with which a ring begins.
const LEAST: usize = 256;

/// The frames of the newest steps.
pub(super) struct Ring {
    bytes: VecDeque<u8>,
    /// The bytes that are counted in the total. At least the capacity of the buffer.
    counted: usize,
    limit: usize,
    total: Arc<Total>,
    /// Whether the ring must begin with a snapshot, or with the first step.
    begins_with_snapshot: bool,
    /// The bytes behind the newest snapshot.
    since_snapshot: usize,
    /// Whether frames were dropped since the beginning.
    has_dropped: bool,
}

impl Ring {
    pub(super) fn new(limit: usize, total: Arc<Total>, begins_with_snapshot: bool) -> Ring {
        let bytes = VecDeque::new();
        Ring { bytes, counted: 0, limit, total, begins_with_snapshot, since_snapshot: 0, has_dropped: false }
    }

    /// Adds a frame. Frames that are too old go. If the frame itself is too large, everything goes.
    pub(super) fn push(&mut self, kind: u8, body: &[u8]) {
        let needed = HEAD + body.len();
        let is_snapshot = kind == SNAPSHOT;
        if self.begins_with_snapshot && !is_snapshot && self.bytes.is_empty() && self.has_dropped {
            // Without the state before it, the step is of no use.
            return;
        }
        if !self.make_room(needed) || u32::try_from(body.len()).is_err() {
            return self.lose();
        }
        if self.begins_with_snapshot && !is_snapshot && self.bytes.is_empty() && self.has_dropped {
            return;
        }
        let [a, b, c, d] = (body.len() as u32).to_le_bytes();
        self.bytes.extend(&[a, b, c, d, kind]);
        self.bytes.extend(body);
        self.since_snapshot = if is_snapshot { 0 } else { self.since_snapshot.saturating_add(needed) };
    }

    /// Whether the state should be written down now: much has been recorded since, or steps are lost without it.
    pub(super) fn wants_snapshot(&self) -> bool {
        self.begins_with_snapshot && (self.since_snapshot > self.limit / 4 || self.bytes.is_empty() && self.has_dropped)
    }

    /// The bytes of the frames, oldest first: see [`frames_of`].
    pub(super) fn copy(&self) -> Vec<u8> {
        let (first, second) = self.bytes.as_slices();
        [first, second].concat()
    }

    /// Makes room for so many bytes. Returns `false` if there can be none.
    fn make_room(&mut self, needed: usize) -> bool {
        if needed > self.limit {
            return false;
        }
        loop {
            if self.bytes.len() + needed <= self.counted {
                return true;
            }
            let wanted = (self.counted * 2).max(self.bytes.len() + needed).max(LEAST).min(self.limit);
            // Less would do, too, if the total has no more.
            let least = self.bytes.len() + needed;
            for size in [wanted, least] {
                if size >= least && size <= self.limit && self.grow(size) {
                    return true;
                }
            }
            if !self.drop_oldest() {
                return false;
            }
        }
    }

    fn grow(&mut self, size: usize) -> bool {
        let more = size.saturating_sub(self.counted);
        if !self.total.reserve(more) {
            return false;
        }
        self.counted += more;
        self.bytes.reserve_exact(size - self.bytes.len());
        true
    }

    /// Drops the oldest frame, and those behind it that are of no use without it. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let mut has_dropped = false;
        while let Some((length, kind)) = self.front() {
            if has_dropped && (!self.begins_with_snapshot || kind == SNAPSHOT) {
                break;
            }
            self.bytes.drain(..HEAD + length);
            has_dropped = true;
        }
        self.has_dropped |= has_dropped;
        has_dropped
    }

    /// Drops everything: a step is missing.
    pub(super) fn lose(&mut self) {
        self.bytes = VecDeque::new();
        self.has_dropped = true;
        self.total.release(std::mem::take(&mut self.counted));
    }

    fn front(&self) -> Option<(usize, u8)> {
        if let Some(front) = head_of(self.bytes.as_slices().0) {
            return Some(front);
        }
        // The head may be in two parts, at the end of the buffer.
        let mut head = [0; HEAD];
        for (place, byte) in head.iter_mut().enumerate() {
            *byte = *self.bytes.get(place)?;
        }
        head_of(&head)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.total.release(self.counted);
    }
}

/// The kinds and the bodies of these frames.
pub(super) fn frames_of(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut left, mut frames) = (bytes, Vec::new());
    while let Some((length, kind)) = head_of(left) {
        frames.push((kind, left[HEAD..HEAD + length].to_vec()));
        left = &left[HEAD + length..];
    }
    frames
}

/// The length and the kind of the frame at the front.
fn head_of(bytes: &[u8]) -> Option<(usize, u8)> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*length) as usize, *rest.first()?))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn numbers(ring: &Ring) -> Vec<(u8, u8)> {
        frames_of(&ring.copy()).into_iter().map(|(kind, body)| (kind, body[0])).collect()
    }

    #[test]
    fn a_ring_keeps_the_newest_frames_in_exactly_its_bytes() {
        let total = Arc::new(Total::new(10_000));
        let mut ring = Ring::new(1_000, total.clone(), false);
        for number in 0..=255_u8 {
            ring.push(STEP, &[number; 95]);
            assert!(ring.bytes.len() <= 1_000 && ring.bytes.capacity() <= 1_000, "{}", ring.bytes.capacity());
            assert!(ring.bytes.capacity() <= ring.counted && total.used() == ring.counted);
        }
        assert_eq!(numbers(&ring), (246..=255).map(|number| (STEP, number)).collect::<Vec<_>>());
        ring.push(STEP, &[0; 996]);
        assert!(ring.copy().is_empty(), "a frame that is too large leaves nothing before it");
        assert_eq!(total.used(), 0);
        ring.push(STEP, &[7; 10]);
        assert_eq!(numbers(&ring), [(STEP, 7)]);
        drop(ring);
        assert_eq!(total.used(), 0);
    }

    #[test]
    fn rings_share_a_total_that_is_never_passed() {
        let total = Arc::new(Total::new(1_500));
        let mut rings: Vec<Ring> = (0..3).map(|_| Ring::new(1_000, total.clone(), false)).collect();
        for number in 0..=255_u8 {
            for ring in &mut rings {
                ring.push(STEP, &[number; 95]);
            }
            assert!(total.used() <= 1_500);
            assert_eq!(total.used(), rings.iter().map(|ring| ring.counted).sum::<usize>());
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
            ring.push(STEP, &vec![number; size]);
            if ring.wants_snapshot() {
                ring.push(SNAPSHOT, &[number; 50]);
                snapshots += 1;
                assert!(!ring.wants_snapshot());
            }
            let frames = numbers(&ring);
            assert!(frames.first().is_none_or(|first| *first == (STEP, 0) || first.0 == SNAPSHOT), "{frames:?}");
            assert_eq!(frames.last().map(|last| last.1), Some(number), "nothing is lost at the end");
        }
        assert!(snapshots > 10, "{snapshots}");
    }
}
