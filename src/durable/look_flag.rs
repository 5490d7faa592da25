//! Whether a look through many things is set or goes on. One thread at a time sets and does it.

use crate::primitives::{AtomicUsize, Ordering};

/// No look is set.
const NONE: usize = 0;
/// A look is set, or goes on.
const SET: usize = 1;
/// As `SET`, and another look was requested since the last one began.
const AGAIN: usize = 2;

/// The state of a look.
#[derive(Debug)]
pub(super) struct LookFlag(AtomicUsize);

impl LookFlag {
    pub(super) fn new() -> LookFlag {
        LookFlag(AtomicUsize::new(NONE))
    }

    /// Requests a look that begins after this call. Returns whether this thread is to set it.
    pub(super) fn request(&self) -> bool {
        self.0.load(Ordering::Acquire) != AGAIN && self.0.swap(AGAIN, Ordering::AcqRel) == NONE
    }

    /// A look that was requested begins. Requests from now on have another one follow.
    pub(super) fn begin(&self) {
        self.0.store(SET, Ordering::Release);
    }

    /// A look that was requested has ended. Returns whether another one is to follow.
    pub(super) fn end(&self) -> bool {
        self.0.compare_exchange(SET, NONE, Ordering::AcqRel, Ordering::Acquire).is_err()
    }

    /// Sets a look, if none is set. Returns whether this thread is to do so.
    pub(super) fn set(&self) -> bool {
        self.0.swap(SET, Ordering::AcqRel) == NONE
    }

    /// A look that was set begins. From now on the next one can be set.
    pub(super) fn clear(&self) {
        self.0.swap(NONE, Ordering::AcqRel);
    }
}
