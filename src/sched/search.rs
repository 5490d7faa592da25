//! How a worker that has nothing to do finds work, sleeps, or exits.
//!
//! `docs/scheduling.md` has the protocol. It rests on the word and the list of `sleep.rs`. Here are the steps of the
//! worker that searches, in their order. Workers run them, and so do the models of `sleep.rs` and `stuck_steps.rs`.

use super::sleep::Sleep;
use crate::primitives::thread;

/// The number of looks without a pause, and of all looks, before a worker sleeps. The model checker tries all orders,
/// so it needs only one look.
const TIGHT: u32 = 4;
const LOOKS: u32 = if cfg!(loom) { 1 } else { 16 };

/// A worker, as a search sees it.
pub(crate) trait Searcher {
    type Work;

    /// Takes a piece of work that is there at once. The worker is not counted among those that look.
    fn at_hand(&mut self) -> Option<Self::Work>;

    /// Calls [`search`] with the word of the worker's runtime.
    fn search(&mut self) -> Option<Self::Work>;

    /// Looks once into every place where work may be. Takes a piece if there is one.
    fn look(&mut self) -> Option<Self::Work>;

    /// Whether work is in a place where every worker looks.
    fn has_work(&self) -> bool;

    /// Whether all workers are to exit.
    fn is_stopped(&self) -> bool;

    /// Whether the worker is a spare, and too many spares run.
    fn is_surplus(&self) -> bool;

    /// Lets a surplus spare exit, which neither looks nor sleeps. Returns whether it exits.
    fn leaves(&mut self) -> bool;

    /// Called when the worker is about to sleep.
    fn sleeps(&mut self);

    /// Called when the worker has been about to sleep and looks again.
    fn slept(&mut self) {}

    /// Called when the worker has woken another one.
    fn has_woken(&mut self);
}

/// Returns the next piece of work for a worker that has none. Returns `None` if the worker is to exit.
#[inline]
pub(crate) fn find<S: Searcher>(searcher: &mut S) -> Option<S::Work> {
    if searcher.is_surplus() && searcher.leaves() {
        return None;
    }
    if let Some(work) = searcher.at_hand() {
        return Some(work);
    }
    searcher.search()
}

/// Searches until there is work. Returns `None` if the worker is to exit.
#[inline(never)]
pub(crate) fn search<S: Searcher>(sleep: &Sleep, worker: usize, searcher: &mut S) -> Option<S::Work> {
    sleep.start_looking();
    let mut looks = 0;
    loop {
        if searcher.is_stopped() {
            sleep.work_found(|| false);
            return None;
        }
        if searcher.is_surplus() {
            stop_looking(sleep, searcher);
            if searcher.leaves() {
                return None;
            }
            sleep.start_looking();
        }
        if let Some(work) = searcher.look() {
            stop_looking(sleep, searcher);
            return Some(work);
        }
        looks += 1;
        if looks >= LOOKS {
            searcher.sleeps();
            sleep.fall_asleep(worker, || searcher.is_stopped() || searcher.is_surplus() || searcher.has_work());
            searcher.slept();
            looks = 0;
        } else if looks < TIGHT {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

/// Ends the search of a worker. If it was the last one that looked, and there is more work, another one is woken to
/// look.
fn stop_looking<S: Searcher>(sleep: &Sleep, searcher: &mut S) {
    if sleep.work_found(|| searcher.has_work()) {
        searcher.has_woken();
    }
}
