//! A thread's automatic loops: one for each type of state, made when it is first asked for, and gone with the thread.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::event_loop::Loop;
use crate::outcome::drop_contained;

thread_local! {
    static SPOTS: RefCell<HashMap<TypeId, Spot>> = RefCell::new(HashMap::new());
}

/// Where a thread has a loop.
#[derive(Default)]
struct Spot {
    /// Nothing while somebody uses it.
    home: Option<Box<dyn Any>>,
    /// How often it was reset. What was lent before that does not come back.
    resets: u64,
    is_lent: bool,
}

impl Drop for Spot {
    fn drop(&mut self) {
        drop_contained(self.home.take());
    }
}

/// The automatic loop cannot be had: it is in use further up on this thread's stack, or the thread is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread's automatic loop is in use")]
pub struct LoopInUseError;

/// Lends the calling thread's automatic loop of this state to `use_it`. The first time, and the first time after a
/// [reset](reset_automatic), it is a new one with the default state, made as the thread
/// [makes its loops](super::LoopBuilder::of_thread); otherwise the same as the last time. It ends with the thread.
///
/// On an automatic loop, a tasklet that is scheduled with [`Directive::Home`](super::Directive::Home) has run when
/// [`schedule`](Loop::schedule) returns.
///
/// ```
/// use procession::tasklet::{Directive, Loop, on_automatic, ready};
///
/// let count = || ready::from_fn(|count: &mut u32, _| { *count += 1; Directive::Done });
/// on_automatic(|home: &mut Loop<u32>| home.schedule(count(), Directive::Home).is_ok())?;
/// on_automatic(|home: &mut Loop<u32>| assert_eq!(*home.get(), 1))?;
/// # Ok::<(), procession::tasklet::LoopInUseError>(())
/// ```
///
/// # Errors
/// It is lent already: this is called by one of its steps, or by `use_it`.
///
/// # Panics
/// If `use_it` does. The loop is unharmed.
pub fn on_automatic<S: Default + 'static, R>(use_it: impl FnOnce(&mut Loop<S>) -> R) -> Result<R, LoopInUseError> {
    let (before, resets) = lend::<S>()?;
    let mut home = match before {
        Some(home) => home,
        // No loop yet: a default that panics must leave none that is lent for ever.
        None => match catch_unwind(AssertUnwindSafe(|| Box::new(Loop::<S>::automatic(S::default())))) {
            Ok(home) => home,
            Err(panic) => {
                give_back::<S>(None, resets);
                resume_unwind(panic)
            }
        },
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| use_it(&mut home)));
    give_back(Some(home), resets);
    outcome.map_err(|panic| resume_unwind(panic))
}

/// Forgets the calling thread's automatic loop of this state, which is closed; if it is in use, when that is over. Whether
/// there was one. The next one is new.
pub fn reset_automatic<S: 'static>() -> bool {
    let gone = SPOTS.try_with(|spots| {
        let mut spots = spots.borrow_mut();
        let spot = spots.get_mut(&TypeId::of::<S>())?;
        spot.resets += 1;
        let was_lent = std::mem::take(&mut spot.is_lent);
        let home = spot.home.take();
        (was_lent || home.is_some()).then_some(home)
    });
    let gone = gone.ok().flatten();
    let there_was_one = gone.is_some();
    drop_contained(gone);
    there_was_one
}

type Lent<S> = (Option<Box<Loop<S>>>, u64);

fn lend<S: 'static>() -> Result<Lent<S>, LoopInUseError> {
    SPOTS
        .try_with(|spots| {
            let mut spots = spots.borrow_mut();
            let spot = spots.entry(TypeId::of::<S>()).or_default();
            if std::mem::replace(&mut spot.is_lent, true) {
                return Err(LoopInUseError);
            }
            Ok((spot.home.take().and_then(|home| home.downcast().ok()), spot.resets))
        })
        .unwrap_or(Err(LoopInUseError))
}

fn give_back<S: 'static>(home: Option<Box<Loop<S>>>, resets: u64) {
    let mut home = home;
    let _ = SPOTS.try_with(|spots| {
        let mut spots = spots.borrow_mut();
        let spot = spots.entry(TypeId::of::<S>()).or_default();
        if spot.resets == resets {
            spot.is_lent = false;
            spot.home = home.take().map(|home| home as Box<dyn Any>);
        }
    });
    // Of before a reset, or the thread is ending: with nothing borrowed, for destructors may come back here.
    drop_contained(home);
}
