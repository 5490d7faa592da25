//! Thread-local state of tasklets.
//!
//! It has the loops that the thread is in, its options for new loops, and its nesting of ends of tasklets.
//!
//! The state ends with the thread.

use std::any::Any;
use std::cell::RefCell;
use std::time::Duration;

use super::report::PanicPolicy;
use crate::clock::Clock;
use crate::nesting::{Nesting, in_turn};
use crate::pool::Pool;
use crate::primitives::{self, Arc};

/// Builds a [`Loop`](super::Loop). A clone is cheap.
///
/// ```
/// use procession::clock::ManualClock;
/// use procession::tasklet::{Loop, PanicPolicy};
///
/// let manual = ManualClock::new();
/// let home = Loop::<u64>::builder().clock(manual.clock()).on_panic(PanicPolicy::Stop).build(0);
/// assert_eq!(*home.get(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoopBuilder {
    pub(super) pool: Option<Pool>,
    pub(super) clock: Clock,
    pub(super) policy: PanicPolicy,
    pub(super) automatic: bool,
    pub(super) shutdown_limit: Option<Duration>,
}

impl LoopBuilder {
    /// Returns a builder with the default options.
    ///
    /// The loop has its own pool, the system's clock and [`PanicPolicy::Finish`]. It is not automatic, and its shutdown
    /// has no limit.
    pub fn new() -> LoopBuilder {
        LoopBuilder::default()
    }

    /// Returns the options with which the calling thread makes loops.
    ///
    /// They are the options of [`set_for_thread`](Self::set_for_thread), or the defaults. In a pool step, they are the
    /// options of the home thread of the step's loop.
    pub fn of_thread() -> LoopBuilder {
        builder().map_or_else(LoopBuilder::new, Arc::unwrap_or_clone)
    }

    /// Makes these the calling thread's options for new loops.
    ///
    /// They apply to [`Loop::new`](super::Loop::new) and to [automatic](super::on_automatic) loops. They also apply in
    /// the pool steps of a loop whose home thread is this thread. Returns the earlier options, if there were any.
    pub fn set_for_thread(self) -> Option<LoopBuilder> {
        set_builder(Some(Arc::new(self))).map(Arc::unwrap_or_clone)
    }

    /// Removes the calling thread's options for new loops, and returns them.
    pub fn reset_for_thread() -> Option<LoopBuilder> {
        set_builder(None).map(Arc::unwrap_or_clone)
    }

    /// Sets the pool for pool steps.
    ///
    /// Several loops and other code can share the pool. By default the loop makes its own pool on first use, with at
    /// most 512 threads.
    pub fn pool(mut self, pool: &Pool) -> LoopBuilder {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets the clock for limits and timers.
    pub fn clock(mut self, clock: Clock) -> LoopBuilder {
        self.clock = clock;
        self
    }

    /// Sets what happens when a step panics.
    pub fn on_panic(mut self, policy: PanicPolicy) -> LoopBuilder {
        self.policy = policy;
        self
    }

    /// Sets how long the loop's [node](super::Loop::shutdown_node) waits for running steps.
    ///
    /// When the limit has passed, the node no longer waits for a step that still runs. (If the loop has its own pool,
    /// the node waits longer by twice the [`SHUTDOWN_GRACE`](crate::pool::SHUTDOWN_GRACE).)
    pub fn shutdown_limit(mut self, limit: Duration) -> LoopBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Makes the loop automatic, so that it runs by itself.
    ///
    /// On such a loop, [`Loop::schedule`](super::Loop::schedule) runs all ready home steps before it returns.
    pub fn automatic(mut self) -> LoopBuilder {
        self.automatic = true;
        self
    }
}

type AnyLoop = Arc<dyn Any + Send + Sync>;

struct Here {
    // The innermost loop is last.
    loops: Vec<AnyLoop>,
    builder: Option<Arc<LoopBuilder>>,
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here { loops: Vec::new(), builder: None }) };
}

primitives::thread_local! {
    static ENDS: RefCell<Nesting> = Nesting::none();
}

/// Returns `None` if the thread is ending.
fn here<R>(use_it: impl FnOnce(&mut Here) -> R) -> Option<R> {
    HERE.try_with(|here| use_it(&mut here.borrow_mut())).ok()
}

/// A guard that keeps the calling thread in a loop.
#[must_use]
pub(super) struct Entered(());

/// Enters a loop.
pub(super) fn enter(entered: AnyLoop) -> Entered {
    here(|here| here.loops.push(entered));
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        // This may drop the last reference to a loop. Destructors of the loop's tasklets may call this module again.
        drop(here(|here| here.loops.pop()));
    }
}

/// The innermost loop that the calling thread is in, if it has this type.
pub(super) fn current<T: Any + Send + Sync>() -> Option<Arc<T>> {
    here(|here| here.loops.last().cloned())??.downcast().ok()
}

fn is_same<T>(entered: &AnyLoop, other: &Arc<T>) -> bool {
    Arc::as_ptr(entered).cast::<()>() == Arc::as_ptr(other).cast()
}

/// Enters a loop, unless the calling thread is already in it. That case costs less.
pub(super) fn enter_if_elsewhere<T: Any + Send + Sync>(entered: &Arc<T>) -> Option<Entered> {
    let is_here = here(|here| here.loops.last().is_some_and(|last| is_same(last, entered)));
    (is_here != Some(true)).then(|| enter(entered.clone()))
}

/// Whether the calling thread is in this loop, at any depth.
pub(super) fn is_inside<T>(which: &Arc<T>) -> bool {
    here(|here| here.loops.iter().any(|entered| is_same(entered, which))).unwrap_or_default()
}

/// The most ends of tasklets that may nest on one stack. Sixteen destructors fit on any stack.
const DEEPEST: usize = 16;

/// Runs `end`, whose destructors may end other tasklets, and so on. In a chain of tasklets, each may own the `Resume`
/// of the next. Such a chain must not need a deep stack. Beyond [`DEEPEST`] levels, the lowest level runs the
/// remaining ends one after the other, when its own `end` has returned.
pub(super) fn end_in_turn(end: impl FnOnce() + 'static) {
    in_turn(&ENDS, DEEPEST, end);
}

/// The calling thread's options for new loops, if any were set.
pub(super) fn builder() -> Option<Arc<LoopBuilder>> {
    here(|here| here.builder.clone()).flatten()
}

/// Sets the calling thread's options for new loops. Returns the ones before.
pub(super) fn set_builder(builder: Option<Arc<LoopBuilder>>) -> Option<Arc<LoopBuilder>> {
    here(|here| std::mem::replace(&mut here.builder, builder)).flatten()
}
