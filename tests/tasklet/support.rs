//! Tasklets from closures: some count their steps, some block, some panic.

use std::sync::atomic::{AtomicUsize, Ordering};

use procession::tasklet::{Directive, TaskletContext, ready};

pub(crate) use crate::blocker::*;
pub(crate) use crate::panics::{ON_PURPOSE, quiet_panics_on_purpose as quiet_panics};
pub(crate) use crate::wait::*;
pub(crate) use crate::waker::*;

pub use std::sync::Arc;
pub use std::thread::ThreadId;

/// A tasklet that panics at its first step, wherever that is.
pub fn bomb<S: 'static>() -> impl procession::tasklet::Tasklet<S> {
    quiet_panics();
    ready::from_fns(
        |_: &mut S, _| panic!("{}", ON_PURPOSE),
        |_: &mut TaskletContext<'_, S>| std::panic::panic_any(ON_PURPOSE),
    )
}

/// A tasklet at home that is given the number of its step, from 0.
pub fn numbered<S: 'static>(
    mut step: impl FnMut(usize, &mut S, &mut TaskletContext<'_, S>) -> Directive + Send + 'static,
) -> impl procession::tasklet::Tasklet<S> {
    let mut number = 0;
    ready::from_fn(move |state: &mut S, cx: &mut TaskletContext<'_, S>| {
        let directive = step(number, state, cx);
        number += 1;
        directive
    })
}

/// A tasklet whose steps are all on the pool.
pub fn elsewhere<S: 'static>(
    step: impl FnMut(&mut TaskletContext<'_, S>) -> Directive + Send + 'static,
) -> impl procession::tasklet::Tasklet<S> {
    ready::from_fns(|_: &mut S, _: &mut TaskletContext<'_, S>| Directive::Pool, step)
}

/// A tasklet whose step on the pool blocks, and then says this.
pub fn blocks_on_pool<S: 'static>(blocked: Blocked, then: Directive) -> impl procession::tasklet::Tasklet<S> {
    elsewhere(move |_| {
        blocked.wait();
        then
    })
}

/// Counts its drop.
pub struct Dropped(pub Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

pub fn count(counter: &Arc<AtomicUsize>) -> usize {
    counter.load(Ordering::SeqCst)
}

pub fn me() -> ThreadId {
    std::thread::current().id()
}
