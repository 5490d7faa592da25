//! Code that blocks until a test releases it: a step, a job, a task, a callback, a destructor, a waker.

// No suite uses all of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::task::{Wake, Waker};

use procession::pool::Pool;
use procession::sync::Latch;

use crate::wait::wait;

/// Two latches: the code that blocks has begun, and it is released.
///
/// The test keeps the [`Blocker`]; the code that blocks has a [`Blocked`] and calls [`Blocked::wait`]. A test that
/// fails drops its blocker, which releases the code. So no thread is left behind, and a failure is not a hang.
pub(crate) struct Blocker {
    blocked: Blocked,
}

/// The half of a blocker that the blocking code has. Clones belong to the same blocker.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    begun: Latch<()>,
    release: Latch<()>,
}

impl Blocker {
    pub(crate) fn new() -> Blocker {
        Blocker { blocked: Blocked { begun: Latch::new(), release: Latch::new() } }
    }

    /// The half for the code that blocks. Each call returns another clone.
    pub(crate) fn blocked(&self) -> Blocked {
        self.blocked.clone()
    }

    /// A waker that blocks. Several wakers of a blocker are different wakers.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(Arc::new(self.blocked()))
    }

    /// The latch that is set when the code is about to block, for a thread that has no blocker.
    pub(crate) fn begun(&self) -> Latch<()> {
        self.blocked.begun.clone()
    }

    /// Waits until the code is about to block.
    #[track_caller]
    pub(crate) fn wait_begun(&self) {
        wait(&self.blocked.begun);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.blocked.has_begun()
    }

    /// Lets the code go on. A second call does nothing.
    pub(crate) fn release(&self) {
        let _ = self.blocked.release.set(());
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        self.release();
    }
}

impl Blocked {
    /// Says that the code has begun, and blocks until it is released.
    #[track_caller]
    pub(crate) fn wait(&self) {
        let _ = self.begun.set(());
        wait(&self.release);
    }

    /// Whether the code, or a clone of it, has begun before.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_set()
    }
}

impl Wake for Blocked {
    fn wake(self: Arc<Blocked>) {
        self.wait();
    }
}

/// A value whose destructor blocks.
#[derive(Debug)]
pub(crate) struct BlocksInDrop(pub(crate) Blocked);

impl Drop for BlocksInDrop {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// Submits a job that blocks its worker.
pub(crate) fn submit_held(pool: &Pool) -> Blocker {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    pool.execute(move || blocked.wait()).unwrap();
    blocker
}

/// Submits a job that blocks its worker, and waits until it has begun. So one worker of the pool is occupied.
#[track_caller]
pub(crate) fn hold(pool: &Pool) -> Blocker {
    let blocker = submit_held(pool);
    blocker.wait_begun();
    blocker
}
