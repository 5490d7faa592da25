//! Code that blocks until a test releases it: a step, a job, a task, a callback, a destructor.

use procession::sync::Latch;

use crate::wait::wait;

/// Two latches: the code that blocks has begun, and it is released. Clones are the same blocker.
///
/// The test keeps the [`Blocker`]; the code that blocks has a [`Blocked`] and calls [`Blocked::wait`]. A test that
/// fails drops its blocker, which releases the code. So no thread is left behind, and a failure is not a hang.
pub(crate) struct Blocker {
    begun: Latch<()>,
    release: Latch<()>,
}

/// The half of a blocker that the blocking code has.
#[derive(Clone)]
pub(crate) struct Blocked {
    begun: Latch<()>,
    release: Latch<()>,
}

impl Blocker {
    pub(crate) fn new() -> Blocker {
        Blocker { begun: Latch::new(), release: Latch::new() }
    }

    /// The half for the code that blocks. Each call returns another clone.
    pub(crate) fn blocked(&self) -> Blocked {
        Blocked { begun: self.begun.clone(), release: self.release.clone() }
    }

    /// Waits until the code is about to block.
    #[track_caller]
    pub(crate) fn wait_begun(&self) {
        wait(&self.begun);
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_set()
    }

    /// Lets the code go on. A second call does nothing.
    pub(crate) fn release(&self) {
        let _ = self.release.set(());
    }
}

impl Drop for Blocker {
    fn drop(&mut self) {
        self.release();
    }
}

impl Blocked {
    /// Says that the code has begun, and blocks until it is released.
    pub(crate) fn wait(&self) {
        let _ = self.begun.set(());
        wait(&self.release);
    }
}
