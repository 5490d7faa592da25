//! Tasklets from closures that count their steps, and panics that are expected.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::tasklet::{Directive, TaskletContext, ready};

pub(crate) use crate::wait::*;

pub use std::sync::Arc;
pub use std::thread::ThreadId;

/// Panics with this in their message are expected, and fill no screen.
pub const ON_PURPOSE: &str = "on purpose";

pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload().downcast_ref::<&str>().copied().unwrap_or_default();
            if !text.contains(ON_PURPOSE) {
                loud(info);
            }
        }));
    });
}

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
