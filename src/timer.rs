//! Timers, which run actions at given moments.
//!
//! [`Timers`] are a set of timers (`timer/set.rs`) whose values are actions. The runtime has a set of its own, whose
//! values need no allocation.

mod set;
mod store;

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

pub use self::set::TimerKey;
pub(crate) use self::set::{Place, TimerId, TimerSet};
use crate::clock::Clock;
use crate::primitives::{Arc, thread};

/// The action of a timer. It should be short.
///
/// The action runs on the timers' thread. With a manual clock it runs on the thread that moves the clock. If the timer
/// is already due when it is set, the action runs on the thread that sets it.
pub type Action = Box<dyn FnOnce() + Send>;

/// A set of timers with a clock. Clones are the same set.
///
/// Dropping the last clone stops the timers.
#[derive(Clone)]
pub struct Timers {
    set: Arc<TimerSet<Action>>,
}

impl Timers {
    /// Makes a set of timers that uses `clock`.
    ///
    /// The timers' thread starts when it is first needed, and is called `name`.
    pub fn new(clock: Clock, name: impl Into<String>) -> Timers {
        Timers { set: Arc::new(TimerSet::new(clock, name, 1, |action: Action| action())) }
    }

    /// Runs `action` after `delay`, and never before.
    ///
    /// Two timers for the same moment fire in the order in which they were set. If no `Instant` can express the end of
    /// the delay, the action is dropped, and the result is `Ok(None)`.
    ///
    /// With a manual clock, a timer that is due when it is set fires before this call returns. If another thread has
    /// just moved the clock and is about to fire other timers, this timer may fire before those. If an action of these
    /// timers sets the timer, the timer fires when that action has returned.
    ///
    /// # Errors
    /// Returns the action if the timers have been stopped, or if their thread could not be started.
    pub fn after(&self, delay: Duration, action: Action) -> Result<Option<TimerKey>, Action> {
        self.set.after(0, delay, action)
    }

    /// Runs `action` at the moment `at`, or at once if that moment has passed.
    ///
    /// # Errors
    /// As [`after`](Self::after).
    pub fn at(&self, at: Instant, action: Action) -> Result<TimerKey, Action> {
        self.set.at(0, at, action)
    }

    /// Starts the thread, if there is none yet. Afterwards no action is refused for lack of a thread.
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.set.begin()
    }

    /// As [`after`](Self::after), but also keeps an action that is never due. Stopping returns it.
    pub(crate) fn after_or_never(&self, delay: Duration, action: Action) -> Result<TimerId, Action> {
        self.set.after_or_never(delay, action)
    }

    /// Removes an action, if it is still there.
    pub(crate) fn take_back(&self, id: TimerId) -> Option<Action> {
        self.set.cancel(id)
    }

    /// Cancels a pending timer. Returns `None` if it has fired, is firing, or was cancelled before.
    pub fn cancel(&self, key: TimerKey) -> Option<Action> {
        self.set.cancel(key.id())
    }

    /// Returns the number of pending timers.
    pub fn pending(&self) -> usize {
        self.set.pending()
    }

    /// Returns the number of timers that have fired.
    pub fn fired(&self) -> u64 {
        self.set.fired()
    }

    /// Stops the timers. Returns the pending actions in the order of their moments.
    ///
    /// After this call, no timer fires. When the call returns, the timers' thread has ended, with two exceptions. The
    /// timers' own thread makes the call. Or an earlier call has stopped the timers and still waits for the thread.
    pub fn stop(&self) -> Vec<Action> {
        self.set.stop()
    }

    /// As `stop`, but returns the thread, too. The caller joins it with a limit, because an action may take long.
    pub(crate) fn halt(&self) -> (Vec<Action>, Option<thread::JoinHandle<()>>) {
        self.set.halt()
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("name", &self.set.name()).field("pending", &self.pending()).finish()
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
