//! The automatic loops of a thread. There is one for each type of state. It is made on first use, and ends with the
//! thread.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::HashMap;

use super::event_loop::Loop;
use crate::outcome::drop_contained;

thread_local! {
    static SPOTS: RefCell<HashMap<TypeId, Spot>> = RefCell::new(HashMap::new());
}

/// A thread's storage for one loop.
#[derive(Default)]
struct Spot {
    /// The loop. It is `None` while it is lent.
    home: Option<Box<dyn Any>>,
    /// How often the loop was reset. A loop that was lent before a reset is not put back.
    resets: u64,
    is_lent: bool,
}

impl Drop for Spot {
    fn drop(&mut self) {
        drop_contained(self.home.take());
    }
}

/// The thread's automatic loop is in use.
///
/// The caller is inside the closure of an outer [`on_automatic`] call, or the thread is ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the thread's automatic loop is in use")]
pub struct LoopInUseError;

/// Lends the calling thread's automatic loop for this type of state to `use_it`.
///
/// The first call makes the loop, with the default state and the [thread's options](super::LoopBuilder::of_thread). So
/// does the first call after a [reset](reset_automatic). Later calls lend the same loop. The loop ends with the thread.
///
/// An automatic loop runs by itself: [`schedule`](Loop::schedule) runs all ready home steps before it returns.
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
/// The loop is already lent, because the caller is one of its steps or `use_it`. Or the thread is ending.
///
/// # Panics
/// The call panics if `use_it` panics. The loop stays usable.
pub fn on_automatic<S: Default + 'static, R>(use_it: impl FnOnce(&mut Loop<S>) -> R) -> Result<R, LoopInUseError> {
    let mut lent = Lent::<S>::take()?;
    Ok(use_it(lent.home.get_or_insert_with(|| Box::new(Loop::automatic(S::default())))))
}

/// Closes the calling thread's automatic loop for this type of state, and forgets it.
///
/// If the loop is in use, it is closed when it is given back. The next call of [`on_automatic`] makes a new loop.
/// Returns whether there was a loop.
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

/// A lent loop. Dropping it gives the loop back, also after a panic of the user's code.
struct Lent<S: 'static> {
    /// The loop. It is `None` before it is made.
    home: Option<Box<Loop<S>>>,
    resets: u64,
}

impl<S: 'static> Lent<S> {
    fn take() -> Result<Lent<S>, LoopInUseError> {
        let lent = SPOTS.try_with(|spots| {
            let mut spots = spots.borrow_mut();
            let spot = spots.entry(TypeId::of::<S>()).or_default();
            let was_lent = std::mem::replace(&mut spot.is_lent, true);
            let home = spot.home.take().and_then(|home| home.downcast().ok());
            (!was_lent).then(|| Lent { home, resets: spot.resets })
        });
        lent.ok().flatten().ok_or(LoopInUseError)
    }
}

impl<S: 'static> Drop for Lent<S> {
    fn drop(&mut self) {
        let _ = SPOTS.try_with(|spots| {
            let mut spots = spots.borrow_mut();
            let spot = spots.entry(TypeId::of::<S>()).or_default();
            if spot.resets == self.resets {
                spot.is_lent = false;
                spot.home = self.home.take().map(|home| home as Box<dyn Any>);
            }
        });
        // The loop is from before a reset, or the thread is ending. Nothing is borrowed here, because destructors may
        // call this module again.
        drop_contained(self.home.take());
    }
}
