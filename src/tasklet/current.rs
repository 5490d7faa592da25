//! The state of a thread: the loops that it is in, how it makes new ones, and how deep it is in ends of tasklets.
//!
//! All of it ends with the thread by itself.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use super::report::PanicPolicy;
use crate::clock::Clock;
use crate::pool::Pool;
use crate::primitives::Arc;

/// How a loop is made. Cheap to clone.
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
    /// Each option with its default: a pool of its own, the system's clock, [`PanicPolicy::Finish`], not automatic, no limit
    /// for a shutdown.
    pub fn new() -> LoopBuilder {
        let (clock, policy) = (Clock::system(), PanicPolicy::Finish);
        LoopBuilder { pool: None, clock, policy, automatic: false, shutdown_limit: None }
    }

    /// The options with which the calling thread makes loops: those of [`set_for_thread`](Self::set_for_thread), or those of
    /// the loop whose pool step it runs.
    pub fn of_thread() -> LoopBuilder {
        inherited().map_or_else(LoopBuilder::new, |builder| LoopBuilder::clone(&builder))
    }

    /// Has the calling thread make its loops with this from now on, those of [`Loop::new`](super::Loop::new) and the
    /// [automatic](super::on_automatic) ones, and the pool steps of loops that run here as well. Gives what it was before, if
    /// something had been set.
    pub fn set_for_thread(self) -> Option<LoopBuilder> {
        replace(Some(Arc::new(self)))
    }

    /// Takes that back.
    pub fn reset_for_thread() -> Option<LoopBuilder> {
        replace(None)
    }

    /// The pool on which pool steps run. It can be shared by many loops, and with other work. Without this the loop makes
    /// one of its own when it first needs one, of at most 512 threads.
    pub fn pool(mut self, pool: &Pool) -> LoopBuilder {
        self.pool = Some(pool.clone());
        self
    }

    /// The clock for limits and timers.
    pub fn clock(mut self, clock: Clock) -> LoopBuilder {
        self.clock = clock;
        self
    }

    /// Sets what a panic in a step does.
    pub fn on_panic(mut self, policy: PanicPolicy) -> LoopBuilder {
        self.policy = policy;
        self
    }

    /// How long a step that runs has to return when the loop is shut down through its [state](super::Loop::shutdown_node): one that has
    /// not by then is not waited for any longer. (With a pool of its own,
    /// twice the [`SHUTDOWN_GRACE`](crate::pool::SHUTDOWN_GRACE) comes on top.)
    pub fn shutdown_limit(mut self, limit: Duration) -> LoopBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Makes loops that turn by themselves: a tasklet that is scheduled with [`Directive::Home`](super::Directive::Home)
    /// has run when [`Loop::schedule`](super::Loop::schedule) returns.
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
    // The innermost last.
    loops: Vec<AnyLoop>,
    builder: Option<Arc<LoopBuilder>>,
}

thread_local! {
    static HERE: RefCell<Here> = const { RefCell::new(Here { loops: Vec::new(), builder: None }) };
}

/// The calling thread is in a loop as long as this lives; afterwards it is where it was before.
#[must_use]
pub(super) struct Entered {
    builder: Option<Option<Arc<LoopBuilder>>>,
}

/// Comes into a loop.
pub(super) fn enter(entered: AnyLoop) -> Entered {
    let _ = HERE.try_with(|here| here.borrow_mut().loops.push(entered));
    Entered { builder: None }
}

/// The same for a pool step, which makes loops as its loop's home thread does.
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
        // This may drop the last reference to a loop, whose tasklets may have destructors that come back here.
        let left = HERE.try_with(|here| {
            let mut here = here.borrow_mut();
            let builder = self.builder.take().map(|before| std::mem::replace(&mut here.builder, before));
            (here.loops.pop(), builder)
        });
        drop(left);
    }
}

/// The innermost loop that the calling thread is in, if it is one of these.
pub(super) fn current<T: Any + Send + Sync>() -> Option<Arc<T>> {
    let innermost = HERE.try_with(|here| here.borrow().loops.last().cloned()).ok()??;
    innermost.downcast().ok()
}

/// Comes into a loop, unless the calling thread is there already, which costs less.
pub(super) fn enter_if_elsewhere<T: Any + Send + Sync>(entered: &Arc<T>) -> Option<Entered> {
    let address = Arc::as_ptr(entered).cast::<()>();
    let is_here =
        HERE.try_with(|here| here.borrow().loops.last().is_some_and(|last| Arc::as_ptr(last).cast::<()>() == address));
    (!is_here.unwrap_or_default()).then(|| enter(entered.clone()))
}

/// Whether the calling thread is in this loop, however deep.
pub(super) fn is_inside<T>(which: &Arc<T>) -> bool {
    let address = Arc::as_ptr(which).cast::<()>();
    HERE.try_with(|here| here.borrow().loops.iter().any(|other| Arc::as_ptr(other).cast::<()>() == address))
        .unwrap_or_default()
}

/// The most ends of tasklets inside of each other on one stack. Sixteen destructors fit on any stack.
const DEEPEST: usize = 16;

type Late = Box<dyn FnOnce()>;

struct Ends {
    depth: usize,
    late: VecDeque<Late>,
}

thread_local! {
    static ENDS: RefCell<Ends> = const { RefCell::new(Ends { depth: 0, late: VecDeque::new() }) };
}

/// Does `end`, which by a destructor may end other tasklets, and these others again: a chain of tasklets of which each has
/// the resumption of the next needs no deep stack. Where that would get too deep, the rest is done by the lowest level, one
/// after the other, when its own `end` has returned.
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
    // Without its list, if the thread is ending.
    let Ok(depth) = depth else { return end() };
    end();
    while depth == DEEPEST
        && let Some(late) = ENDS.try_with(|ends| ends.borrow_mut().late.pop_front()).ok().flatten()
    {
        late();
    }
    let _ = ENDS.try_with(|ends| ends.borrow_mut().depth -= 1);
}

/// How the calling thread makes loops, if it was told.
pub(super) fn inherited() -> Option<Arc<LoopBuilder>> {
    HERE.try_with(|here| here.borrow().builder.clone()).ok().flatten()
}

fn replace(builder: Option<Arc<LoopBuilder>>) -> Option<LoopBuilder> {
    let before = HERE.try_with(|here| std::mem::replace(&mut here.borrow_mut().builder, builder)).ok().flatten();
    before.map(Arc::unwrap_or_clone)
}
