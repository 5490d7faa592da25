//! Cancellation: a request to stop, with a reason, which spreads down a tree of tokens.

use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::latch::{Latch, LatchCallback, LatchFuture};
use crate::numbered_list::NumberedList;
use crate::outcome::Reason;
use crate::primitives::{Arc, Mutex, Weak, lock};

/// A request to stop, shared by all clones of the token.
///
/// Cancelling a token also cancels all tokens below it, and none above it.
///
/// ```
/// use procession::{CancelToken, Reason};
///
/// let all = CancelToken::new();
/// let one = all.child();
/// assert!(one.check().is_ok());
/// assert!(all.cancel(Reason::from("closing time")));
/// assert_eq!(one.check(), Err(Reason::from("closing time")));
/// ```
#[derive(Clone)]
pub struct CancelToken {
    node: Arc<Node>,
}

struct Node {
    reason: Latch<Reason>,
    clock: Clock,
    children: Mutex<NumberedList<Weak<Node>>>,
    /// The token above this one, and the number of this one among its children.
    parent: Option<(CancelToken, u64)>,
}

impl CancelToken {
    /// Makes a token that is not cancelled.
    pub fn new() -> CancelToken {
        CancelToken::with_clock(Clock::system())
    }

    /// Makes a token whose [`sleep`](Self::sleep) uses the given clock. If it is the system's clock, a sleep in a
    /// simulation uses the clock of the world.
    ///
    /// Tokens below it use the same clock.
    pub fn with_clock(clock: Clock) -> CancelToken {
        CancelToken::node(clock, None)
    }

    fn node(clock: Clock, parent: Option<(CancelToken, u64)>) -> CancelToken {
        CancelToken { node: Arc::new(Node { reason: Latch::new(), clock, children: Mutex::default(), parent }) }
    }

    /// Makes a token below this one, which is cancelled with this one.
    ///
    /// If this token is already cancelled, so is the child.
    pub fn child(&self) -> CancelToken {
        let child = {
            let mut children = lock(&self.node.children);
            let child = CancelToken::node(self.node.clock.clone(), Some((self.clone(), children.next_number())));
            children.push(Arc::downgrade(&child.node));
            child
        };
        // `cancel` sets the reason first and collects the children afterwards. So either it finds this child in the
        // list, or the child finds the reason here.
        if let Some(reason) = self.reason() {
            child.cancel(reason);
        }
        child
    }

    /// Cancels the token, with a reason. Returns whether this call cancelled it.
    ///
    /// If the token is already cancelled, the call has no effect, and the first reason stays.
    ///
    /// The token's callbacks run on this thread before the call returns. A callback should be short.
    ///
    /// A callback may cancel another token. The callbacks of that token then run inside the first callback. Callbacks
    /// nest to a depth of 32. Deeper tokens are cancelled at once as well, but their callbacks run when the innermost
    /// callback has returned. So a long chain of tokens needs no deep stack. A callback that cancels another token must
    /// not wait for the callbacks of that token. They may run on the same thread after the callback, which would then
    /// wait for ever.
    pub fn cancel(&self, reason: impl Into<Reason>) -> bool {
        let reason = reason.into();
        let first = self.node.tell(&reason);
        if first {
            // A list instead of recursion, so that a deep tree needs no deep stack.
            let mut below = self.node.take_children();
            while let Some(node) = below.pop() {
                if node.tell(&reason) {
                    below.extend(node.take_children());
                }
            }
        }
        first
    }

    /// Whether anybody could notice that the token is cancelled, except through this very token.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.node) > 1 || self.node.reason.is_shared()
    }

    /// Returns the reason, if the token is cancelled.
    pub fn reason(&self) -> Option<Reason> {
        self.node.reason.get()
    }

    /// Whether the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.node.reason.is_set()
    }

    /// Returns the reason as an error if the token is cancelled.
    ///
    /// Call `cancel.check()?` between two pieces of work.
    pub fn check(&self) -> Result<(), Reason> {
        self.reason().map_or(Ok(()), Err)
    }

    /// Blocks the calling thread for `duration`, or until the token is cancelled.
    ///
    /// # Errors
    /// The token is cancelled. The error is the reason.
    pub fn sleep(&self, duration: Duration) -> Result<(), Reason> {
        let clock = self.node.clock.here();
        self.node.reason.wait_until(&clock, clock.deadline(duration));
        self.check()
    }

    /// The number of tokens directly below this one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn children(&self) -> usize {
        lock(&self.node.children).iter().count()
    }

    /// Blocks the calling thread until the token is cancelled, and returns the reason.
    ///
    /// In a simulation, the wait drives the world. If nothing cancels the token, the run fails, and the wait panics.
    pub fn wait(&self) -> Reason {
        self.node.reason.wait_by(&self.node.clock)
    }

    /// Returns a future that yields the reason when the token is cancelled.
    pub fn cancelled(&self) -> impl Future<Output = Reason> + Send + use<> {
        LatchFuture::new(self.node.reason.clone())
    }

    /// Registers `callback`, which is called with the reason when the token is cancelled.
    ///
    /// The thread that cancels the token calls it.
    ///
    /// If the token is already cancelled, this call calls the callback. Dropping the [`CancelCallback`] removes the
    /// callback, unless the token was cancelled before.
    pub fn on_cancel(&self, callback: impl FnOnce(&Reason) + Send + 'static) -> CancelCallback {
        CancelCallback { _callback: self.node.reason.on_set(callback), _token: self.clone() }
    }
}

impl Node {
    /// Makes the request for this token alone, and calls its callbacks. Returns whether it is the first.
    fn tell(&self, reason: &Reason) -> bool {
        self.reason.set(reason.clone()).is_ok()
    }

    fn take_children(&self) -> Vec<Arc<Node>> {
        let children = lock(&self.children).take();
        let mut children: Vec<Arc<Node>> = children.into_iter().filter_map(|child| child.upgrade()).collect();
        // They are popped from the end, so that the oldest is cancelled first.
        children.reverse();
        children
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A loop instead of recursion, so that a long chain of parents needs no deep stack.
        let mut above = self.parent.take();
        while let Some((parent, id)) = above {
            lock(&parent.node.children).remove(id);
            above = Arc::into_inner(parent.node).and_then(|mut node| node.parent.take());
        }
    }
}

impl Default for CancelToken {
    fn default() -> CancelToken {
        CancelToken::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("reason", &self.reason()).finish()
    }
}

/// Keeps a callback of [`CancelToken::on_cancel`] registered until it is dropped.
#[derive(Debug)]
#[must_use = "dropping this takes the callback back"]
pub struct CancelCallback {
    _callback: LatchCallback<Reason>,
    // Dropped with the callback and not before, so that a cancellation of a token above reaches it.
    _token: CancelToken,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_last_of_a_long_chain_takes_the_whole_chain_with_it_without_depth() {
        let root = CancelToken::new();
        let mut leaf = root.child();
        for _ in 0..200_000 {
            leaf = leaf.child();
        }
        drop(leaf);
        assert!(lock(&root.node.children).is_empty());
    }

    #[test]
    fn a_request_spreads_down_and_not_up() {
        let root = CancelToken::new();
        let (left, right) = (root.child(), root.child());
        let leaf = left.child();
        assert!(left.cancel("left only"));
        assert!(!left.cancel("again"));
        assert_eq!(leaf.reason(), Some(Reason::from("left only")));
        assert!(!root.is_cancelled() && !right.is_cancelled());
        assert!(root.cancel(Reason::Shutdown));
        assert_eq!(right.check(), Err(Reason::Shutdown));
        assert_eq!(left.reason(), Some(Reason::from("left only")), "the first reason stays");
        assert_eq!(root.child().reason(), Some(Reason::Shutdown), "who comes late is cancelled at once");
    }

    #[test]
    fn tokens_need_no_deep_stack_and_no_memory_for_dropped_children() {
        let root = CancelToken::new();
        let mut chain = vec![root.clone()];
        for _ in 0..100_000 {
            chain.push(chain.last().unwrap().child());
        }
        root.cancel(Reason::Cancelled);
        assert!(chain.last().unwrap().is_cancelled());
        while chain.pop().is_some() {}

        let busy = CancelToken::new();
        for _ in 0..1_000 {
            let _ = busy.child();
        }
        assert!(lock(&busy.node.children).is_empty());
    }

    #[test]
    fn sleeping_ends_with_the_time_or_with_the_request() {
        let manual = ManualClock::new();
        let cancel = CancelToken::with_clock(manual.clock());
        let sleeper = std::thread::spawn({
            let child = cancel.child();
            move || child.sleep(Duration::from_secs(60))
        });
        cancel.cancel("woken");
        assert_eq!(wait(sleeper).unwrap(), Err(Reason::from("woken")));

        let calm = CancelToken::with_clock(manual.clock());
        assert_eq!(calm.sleep(Duration::ZERO), Ok(()));
    }

    #[test]
    fn a_callback_outlives_its_token() {
        let (all, calls) = (CancelToken::new(), std::sync::Arc::new(AtomicUsize::new(0)));
        let counted = calls.clone();
        let callback = all.child().on_cancel(move |_| _ = counted.fetch_add(1, Ordering::SeqCst));
        assert_eq!(all.children(), 1, "the callback keeps it");
        all.cancel(Reason::Ended);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        drop(callback);
        assert_eq!(all.child().reason(), Some(Reason::Ended));
    }

    #[test]
    fn a_callback_is_called_once_or_taken_back() {
        let called = Arc::new(AtomicUsize::new(0));
        let count = |by: usize| {
            let called = called.clone();
            move |_: &Reason| {
                called.fetch_add(by, Ordering::Relaxed);
            }
        };
        let cancel = CancelToken::new();
        let kept = cancel.on_cancel(count(1));
        drop(cancel.on_cancel(count(10)));
        cancel.cancel(Reason::Cancelled);
        let _late = cancel.on_cancel(count(100));
        drop(kept);
        assert_eq!(called.load(Ordering::Relaxed), 101);
    }
}
