//! The waker of an async process, and the future by which a wake makes the process be stepped.
//!
//! See the protocol in `mod.rs`.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};

use crate::primitives::{Arc, AtomicBool, Brief, Ordering, enter, fence};

/// The state of the wakers of one async process.
#[derive(Default)]
pub(super) struct WakeFlag {
    /// Whether it was woken since the last poll began.
    is_set: AtomicBool,
    /// The waker of the listener, while that waits.
    listener: Brief<Option<Waker>>,
}

impl WakeFlag {
    /// Begins a poll. Returns whether the process was woken before.
    pub(super) fn take(&self) -> bool {
        // Ordering: Acquire, so that the poll sees everything that the waking thread wrote before.
        self.is_set.load(Ordering::Relaxed) && self.is_set.swap(false, Ordering::Acquire)
    }

    /// Whether it was woken since the last poll began.
    pub(super) fn is_set(&self) -> bool {
        // Ordering: Relaxed: a poll that follows begins with `take`.
        self.is_set.load(Ordering::Relaxed)
    }

    /// Whether anybody has a waker, except for `own` owners. If not, no wake begins any more, and the next look at the
    /// flag sees all wakes that have begun.
    pub(super) fn is_held(flag: &Arc<WakeFlag>, own: usize) -> bool {
        // The model checker does not see the count. It tries the orders of this lock instead.
        #[cfg(loom)]
        drop(enter(&flag.listener));
        let is_held = Arc::strong_count(flag) > own;
        // Ordering: pairs with the decrement of the count. A thread wakes first, and drops its waker then.
        fence(Ordering::Acquire);
        is_held
    }

    fn set(&self) {
        // Ordering: Release, for `take`. The listener sees it, too: if it has had the lock later, by that lock.
        self.is_set.store(true, Ordering::Release);
        let listener = enter(&self.listener).take();
        if let Some(listener) = listener {
            listener.wake();
        }
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

/// A command of the async process: a future that is ready when the wake flag is set.
pub(super) struct Listener(pub(super) Arc<WakeFlag>);

impl Future for Listener {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let waker = context.waker().clone();
        let mut listener = enter(&self.0.listener);
        if self.0.is_set() {
            return Poll::Ready(());
        }
        let old = listener.replace(waker);
        drop(listener);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let listener = enter(&self.0.listener).take();
        drop(listener);
    }
}
