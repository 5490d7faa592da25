//! Wakers that count, and wakers that panic.

// No suite uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<WakeCounter>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl WakeCounter {
    pub(crate) fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Panics when it is woken.
pub(crate) struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<PanickingWaker>) {
        panic!("in a waker");
    }
}
