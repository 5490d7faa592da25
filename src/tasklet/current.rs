//! Thread-local state: the loops that the thread is in, its options for new loops, and its nesting of tasklet ends.
//!
//! The state ends with the thread.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use super::report::PanicPolicy;
use crate::clock::Clock;
use crate::pool::Pool;
use crate::primitives::Arc;

/// The options with which loops are made. A clone is cheap.
///
/// ```
/// use procession::clock::ManualClock;
/// use procession::tasklet::{Loop, PanicPolicy};
///
/// let manual = ManualClock::new();
/// let home = Loop::<u64>::builder().clock(manual.clock()).on_panic(PanicPolicy::Stop).build(0);
/// assert_eq!(*home.get(), 0);
/// ```
#[derive(Clone, Debug)]
pub struct LoopBuilder {
    pub(super) pool: Option<Pool>,
    pub(super) clock: Clock,
    pub(super) policy: PanicPolicy,
    pub(super) automatic: bool,
    pub(super) shutdown_limit: Option<Duration>,
}

impl LoopBuilder {
    /// Returns a builder with the default options. A loop has its own pool, the system's clock and
    /// [`PanicPolicy::Finish`]. It is not automatic, and its shutdown has no limit.
    pub fn new() -> LoopBuilder {
        let (clock, policy) = (Clock::system(), PanicPolicy::Finish);
        LoopBuilder { pool: None, clock, policy, automatic: false, shutdown_limit: None }
    }

    /// The options with which the calling thread makes loops. They are those of
    /// [`set_for_thread`](Self::set_for_thread), or those of the loop whose pool step the thread runs.
    pub fn of_thread() -> LoopBuilder {
        inherited().map_or_else(LoopBuilder::new, |builder| LoopBuilder::clone(&builder))
    }

    /// Makes these the calling thread's options for new loops. They apply to [`Loop::new`](super::Loop::new) and to
    /// [automatic](super::on_automatic) loops. They also apply in pool steps of loops that run on this thread.
    /// Returns the earlier options, if there were any.
    pub fn set_for_thread(self) -> Option<LoopBuilder> {
        replace(Some(Arc::new(self)))
    }

    /// Removes the calling thread's options for new loops, and returns them.
    pub fn reset_for_thread() -> Option<LoopBuilder> {
        replace(None)
    }

    /// Sets the pool for pool steps. Many loops can share it, also with other work. By default the loop makes its own
    /// pool on first use, with at most 512 threads.
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

    /// Sets how long a running step may take when the loop's [node](super::Loop::shutdown_node) shuts it down. After
    /// the limit, the step is not waited for. (If the loop has its own pool, twice the
    /// [`SHUTDOWN_GRACE`](crate::pool::SHUTDOWN_GRACE) is added.)
    pub fn shutdown_limit(mut self, limit: Duration) -> LoopBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Makes loops that run by themselves. On such a loop, [`Loop::schedule`](super::Loop::schedule) runs a tasklet
    /// with [`Directive::Home`](super::Directive::Home) before it returns.
    pub fn automatic(mut self) -> LoopBuilder {
        self.automatic = true;
        self
    }
}

impl Default for LoopBuilder {
    fn default() -> LoopBuilder {
        LoopBuilder::new()
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

/// A guard that keeps the calling thread in a loop. Dropping it restores the state before.
#[must_use]
pub(super) struct Entered {
    builder: Option<Option<Arc<LoopBuilder>>>,
}

/// Enters a loop.
pub(super) fn enter(entered: AnyLoop) -> Entered {
    let _ = HERE.try_with(|here| here.borrow_mut().loops.push(entered));
    Entered { builder: None }
}

/// As `enter`, for a pool step. It makes loops with the options of its loop's home thread.
pub(super) fn enter_with(entered: AnyLoop, builder: Option<Arc<LoopBuilder>>) -> Entered {
    let before = HERE.try_with(|here| {
        let mut here = here.borrow_mut();
        here.loops.push(entered);
        std::mem::replace(&mut here.builder, builder)
    });
    Entered { builder: before.ok() }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // This may drop the last reference to a loop. Destructors of the loop's tasklets may call this module again.
        let left = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            let builder = self.builder.take().map(|before| std::mem::replace(&mut here.builder, before));
            (here.loops.pop(), builder)
        });
        drop(left);
    }
}

/// The innermost loop that the calling thread is in, if it has this type.
pub(super) fn current<T: Any + Send + Sync>() -> Option<Arc<T>> {
    let innermost = HERE.try_with(|here| here.borrow().loops.last().cloned()).ok()??;
    innermost.downcast().ok()
}

/// Enters a loop, unless the calling thread is already in it. That case costs less.
pub(super) fn enter_if_elsewhere<T: Any + Send + Sync>(entered: &Arc<T>) -> Option<Entered> {
    let address = Arc::as_ptr(entered).cast::<()>();
    let is_here =
        HERE.try_with(|here| here.borrow().loops.last().is_some_and(|last| Arc::as_ptr(last).cast::<()>() == address));
    (!is_here.unwrap_or_default()).then(|| enter(entered.clone()))
}

/// Whether the calling thread is in this loop, at any depth.
pub(super) fn is_inside<T>(which: &Arc<T>) -> bool {
    let address = Arc::as_ptr(which).cast::<()>();
    HERE.try_with(|here| here.borrow().loops.iter().any(|other| Arc::as_ptr(other).cast::<()>() == address))
        .unwrap_or_default()
}

/// The most ends of tasklets that may nest on one stack. Sixteen destructors fit on any stack.
const DEEPEST: usize = 16;

type Late = Box<dyn FnOnce()>;

struct Ends {
    depth: usize,
    late: VecDeque<Late>,
}

thread_local! {
    static ENDS: RefCell<Ends> = const { RefCell::new(Ends { depth: 0, late: VecDeque::new() }) };
}

/// Runs `end`, whose destructors may end other tasklets, and so on. In a chain of tasklets, each may own the `Resume`
/// of the next. Such a chain must not need a deep stack. Beyond [`DEEPEST`] levels, the lowest level runs the
/// remaining ends one after the other, when its own `end` has returned.
pub(super) fn in_turn(end: impl FnOnce() + 'static) {
    let mut end = Some(end);
    let depth = ENDS.try_with(|ends| {
        let mut ends = ends.borrow_mut();
        if ends.depth < DEEPEST {
            ends.depth += 1;
        } else if let Some(end) = end.take() {
            ends.late.push_back(Box::new(end));
        }
        ends.depth
    });
    let Some(end) = end else { return };
    // If the thread is ending, there is no list.
    let Ok(depth) = depth else { return end() };
    end();
    while depth == DEEPEST
        && let Some(late) = ENDS.try_with(|ends| ends.borrow_mut().late.pop_front()).ok().flatten()
    {
        late();
    }
    let _ = ENDS.try_with(|ends| ends.borrow_mut().depth -= 1);
}

/// The calling thread's options for new loops, if any were set.
pub(super) fn inherited() -> Option<Arc<LoopBuilder>> {
    HERE.try_with(|here| here.borrow().builder.clone()).ok().flatten()
}

fn replace(builder: Option<Arc<LoopBuilder>>) -> Option<LoopBuilder> {
    let before = HERE.try_with(|here| std::mem::replace(&mut here.borrow_mut().builder, builder)).ok().flatten();
    before.map(Arc::unwrap_or_clone)
}
