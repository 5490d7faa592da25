//! A value that is set once. A thread, a callback or a `Future` can wait for it.
//!
//! Several threads may try to set the value at the same moment. For example, a task may return while it is cancelled.
//! The first [`set`](Latch::set) wins. The other calls give their values back.
//!
//! **No deep stack.** A callback or a waker may set another latch. The callbacks of that latch then run inside the
//! first callback. Callbacks nest to a depth of 32 ([`DEEPEST`]). Deeper callbacks wait in a list of the thread, and
//! run when the innermost callback has returned.

use std::cell::RefCell;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, refuse_step_timeout};
use crate::nesting::{Nesting, in_turn};
use crate::numbered_list::NumberedList;
use crate::outcome::{contain, drop_contained, tell_log};
use crate::primitives::{Arc, Condvar, Mutex, lock, thread_local};

/// A value that is set once, and that threads can wait for.
///
/// Clones are the same latch.
pub struct Latch<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    set: Condvar,
}

struct State<T> {
    value: Value<T>,
    // Stays true after the value was taken: a latch that was set cannot be set again.
    decided: bool,
    // Each has a number, by which its owner removes it.
    waiters: NumberedList<Waiter<T>>,
    // The number of threads that sleep. If there is none, `set` makes no system call to wake them.
    sleepers: usize,
}

/// User code that is called when the latch is set.
enum Waiter<T> {
    Waker(Waker),
    Callback(Box<dyn FnOnce(&T) + Send>),
}

/// Drops the waiters that were never called, one by one.
///
/// If one destructor panics, the others must not run while it unwinds.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let waiters = lock(&self.state).waiters.take();
        waiters.into_iter().for_each(drop_contained);
    }
}

/// The wakers and callbacks to call for a latch that has just been set.
#[must_use = "the wakers and callbacks are not called"]
pub(crate) struct Calls<T> {
    waiters: NumberedList<Waiter<T>>,
    /// The value, if there are callbacks.
    value: Option<Arc<T>>,
}

/// The depth to which callbacks run inside of each other on one thread.
const DEEPEST: usize = 32;

thread_local! {
    static CALLING: RefCell<Nesting> = Nesting::none();
}

impl<T: 'static> Calls<T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Makes the calls on this thread. A panic in one is contained.
    #[inline]
    pub(crate) fn make(self) {
        if !self.is_empty() {
            self.make_nested();
        }
    }

    /// Makes the calls now, or leaves them to the innermost call of this thread.
    ///
    /// Not inlined: most latches have no waker and no callback, and the callers stay small.
    #[inline(never)]
    fn make_nested(self) {
        in_turn(&CALLING, DEEPEST, || self.make_now());
    }

    /// Wakers come first, because a callback may take long.
    fn make_now(self) {
        let mut callbacks = Vec::new();
        for waiter in self.waiters.into_iter() {
            match waiter {
                Waiter::Waker(waker) => call(|| waker.wake()),
                Waiter::Callback(callback) => callbacks.push(callback),
            }
        }
        if let Some(value) = self.value {
            callbacks.into_iter().for_each(|callback| call(|| callback(&value)));
            drop_contained(value);
        }
    }
}

fn call(waiter: impl FnOnce()) {
    if let Err(panic) = contain(waiter) {
        tell_log(|| tracing::error!(%panic, "a waker or a callback of a latch panicked"));
    }
}

/// The value that was set.
///
/// A clone runs user code, which must not run under the lock. So a caller that wants a clone shares the value first.
/// A caller that takes the value needs no share.
enum Value<T> {
    None,
    Whole(T),
    Shared(Arc<T>),
}

impl<T> Value<T> {
    fn shared(&mut self) -> Option<Arc<T>> {
        let shared = match std::mem::replace(self, Value::None) {
            Value::None => return None,
            Value::Whole(value) => Arc::new(value),
            Value::Shared(shared) => shared,
        };
        *self = Value::Shared(shared.clone());
        Some(shared)
    }

    /// Takes the value. A value that is shared at this moment cannot be taken.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, Value::None) {
            Value::None => None,
            Value::Whole(value) => Some(value),
            Value::Shared(shared) => Arc::try_unwrap(shared).map_err(|shared| *self = Value::Shared(shared)).ok(),
        }
    }
}

impl<T> Latch<T> {
    /// Makes a latch that is not set.
    pub fn new() -> Latch<T> {
        Latch {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    value: Value::None,
                    decided: false,
                    waiters: NumberedList::new(),
                    sleepers: 0,
                }),
                set: Condvar::new(),
            }),
        }
    }

    /// Whether there are other clones of this latch.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// The number of threads that sleep until the latch is set.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn sleepers(&self) -> usize {
        lock(&self.shared.state).sleepers
    }

    /// Whether the latch is set.
    pub fn is_set(&self) -> bool {
        lock(&self.shared.state).decided
    }

    /// Returns a clone of the value, if the latch is set.
    pub fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        let shared = lock(&self.shared.state).value.shared();
        shared.map(Arc::unwrap_or_clone)
    }

    /// Takes the value, for its only receiver.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.shared.state).value.take()
    }

    /// Blocks the calling thread until the latch is set. Returns a clone of the value.
    ///
    /// In a simulation, the wait drives the world. If nothing sets the latch, the run fails, and the wait panics.
    pub fn wait(&self) -> T
    where
        T: Clone,
    {
        self.wait_by(&Clock::system())
    }

    /// As [`wait`](Self::wait). If the clock is that of a simulation, the wait drives it.
    pub(crate) fn wait_by(&self, clock: &Clock) -> T
    where
        T: Clone,
    {
        if let Some(simulation) = clock.here().driver()
            && !simulation.drive(&mut || self.is_set(), Deadline::NEVER)
        {
            // The run has failed, or ends. There is no value to return, so the waiting code is unwound.
            resume_unwind(Box::new("a wait that nothing ends, in a simulation"));
        }
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(shared) = state.value.shared() {
                drop(state);
                return Arc::unwrap_or_clone(shared);
            }
            state.sleepers += 1;
            state = crate::primitives::wait(&self.shared.set, state);
            state.sleepers -= 1;
        }
    }

    /// Calls `callback` with the value when the latch is set.
    ///
    /// If the latch is already set, this call calls it. Otherwise the thread that sets the latch does.
    ///
    /// Dropping the returned guard removes the callback, unless the latch was set before.
    pub(crate) fn on_set(&self, callback: impl FnOnce(&T) + Send + 'static) -> LatchCallback<T> {
        let mut state = lock(&self.shared.state);
        let Some(value) = state.value.shared() else {
            let number = state.waiters.push(Waiter::Callback(Box::new(callback)));
            return LatchCallback { pending: Some((self.clone(), number)) };
        };
        drop(state);
        callback(&value);
        LatchCallback { pending: None }
    }

    /// Removes a callback or a waker, if it has not been called.
    fn forget(&self, number: u64) {
        let removed = lock(&self.shared.state).waiters.remove(number);
        drop_contained(removed);
    }

    /// Polls for the value itself, for its only receiver. `place` holds the number of the future's waker.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<T> {
        self.poll_with(cx, place, Value::take)
    }

    /// Removes the waker of a future.
    pub(crate) fn forget_waker(&self, place: Option<u64>) {
        if let Some(number) = place {
            self.forget(number);
        }
    }

    fn poll_with<R>(
        &self,
        cx: &mut Context<'_>,
        place: &mut Option<u64>,
        out: impl FnOnce(&mut Value<T>) -> Option<R>,
    ) -> Poll<R> {
        // Cloned and dropped without the lock: a waker is user code.
        let waker = cx.waker().clone();
        let mut state = lock(&self.shared.state);
        if let Some(value) = out(&mut state.value) {
            drop(state);
            return Poll::Ready(value);
        }
        let mine = place.and_then(|number| state.waiters.get_mut(number));
        let other = match mine {
            Some(mine) => Some(std::mem::replace(mine, Waiter::Waker(waker))),
            None => {
                *place = Some(state.waiters.push(Waiter::Waker(waker)));
                None
            }
        };
        drop(state);
        drop_contained(other);
        Poll::Pending
    }
}

impl<T: 'static> Latch<T> {
    /// Sets the value. The first call wins and wakes all waiters.
    ///
    /// Callbacks and wakers run on this thread before `set` returns. A panic in one of them is contained. If this call
    /// is made inside 32 nested callbacks of other latches, its callbacks and wakers run when the innermost callback
    /// has returned.
    ///
    /// # Errors
    /// Returns the given value if the latch has been set before.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.decide(value).map(Calls::make)
    }

    /// As [`set`](Self::set), but calls `before_calls` first if there are wakers or callbacks.
    pub(crate) fn set_with(&self, value: T, before_calls: impl FnOnce()) -> Result<(), T> {
        let calls = self.decide(value)?;
        if !calls.is_empty() {
            before_calls();
            calls.make();
        }
        Ok(())
    }

    /// Sets the value and wakes the threads that wait. The caller makes the calls to wakers and callbacks, now or
    /// later.
    pub(crate) fn decide(&self, value: T) -> Result<Calls<T>, T> {
        let mut state = lock(&self.shared.state);
        if state.decided {
            return Err(value);
        }
        state.decided = true;
        state.value = Value::Whole(value);
        let waiters = state.waiters.take();
        let has_callbacks = waiters.iter().any(|waiter| matches!(waiter, Waiter::Callback(_)));
        let value = if has_callbacks { state.value.shared() } else { None };
        let has_sleepers = state.sleepers > 0;
        drop(state);
        if has_sleepers {
            self.shared.set.notify_all();
        }
        Ok(Calls { waiters, value })
    }
}

impl<T: Send + Sync + 'static> Latch<T> {
    /// Blocks the calling thread until the latch is set, for at most `limit`.
    ///
    /// Returns a clone of the value, or `None` if the limit has passed by the system's clock. In a simulation, the
    /// clock is that of the world.
    pub fn wait_timeout(&self, limit: Duration) -> Option<T>
    where
        T: Clone,
    {
        let clock = Clock::system().here();
        self.wait_until(&clock, clock.deadline(limit));
        self.get()
    }

    /// Returns a clone of the value when the latch is set. Refuses a step, which must not wait.
    pub(crate) fn join(&self, clock: &Clock, limit: Duration) -> Result<T, WaitError>
    where
        T: Clone,
    {
        refuse_step_timeout(limit)?;
        self.wait_until(clock, clock.deadline(limit));
        self.get().ok_or(WaitError::TimedOut)
    }

    /// Blocks the calling thread until the latch is set or `deadline` has passed. Returns whether it is set.
    pub(crate) fn wait_until(&self, clock: &Clock, deadline: Deadline) -> bool {
        if let Some(simulation) = clock.driver() {
            return simulation.drive(&mut || self.is_set(), deadline);
        }
        let shared = self.shared.clone();
        let _watch = clock.watch(move || {
            let _state = lock(&shared.state);
            shared.set.notify_all();
        });
        let mut state = lock(&self.shared.state);
        while !state.decided {
            if deadline.has_passed(clock) {
                return false;
            }
            state.sleepers += 1;
            state = clock.wait(&self.shared.set, state, deadline);
            state.sleepers -= 1;
        }
        true
    }
}

impl<T> Clone for Latch<T> {
    fn clone(&self) -> Latch<T> {
        Latch { shared: self.shared.clone() }
    }
}

impl<T> Default for Latch<T> {
    fn default() -> Latch<T> {
        Latch::new()
    }
}

impl<T> std::fmt::Debug for Latch<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Latch").field("is_set", &self.is_set()).finish()
    }
}

/// Keeps a callback of [`Latch::on_set`] registered until it is dropped.
#[must_use = "dropping this removes the callback"]
pub(crate) struct LatchCallback<T> {
    /// The latch and the callback's number in it. `None` if nothing is to be removed.
    pending: Option<(Latch<T>, u64)>,
}

impl<T> LatchCallback<T> {
    /// Keeps the callback registered for as long as the latch exists.
    pub(crate) fn keep(mut self) {
        self.pending = None;
    }
}

impl<T> Drop for LatchCallback<T> {
    fn drop(&mut self) {
        if let Some((latch, number)) = self.pending.take() {
            latch.forget(number);
        }
    }
}

impl<T> std::fmt::Debug for LatchCallback<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatchCallback").field("pending", &self.pending.is_some()).finish()
    }
}

/// A future that yields the value of a latch.
///
/// Dropping the future removes its waker from the latch.
pub struct LatchFuture<T> {
    latch: Latch<T>,
    place: Option<u64>,
}

impl<T> LatchFuture<T> {
    pub(crate) fn new(latch: Latch<T>) -> LatchFuture<T> {
        LatchFuture { latch, place: None }
    }

    pub(crate) fn latch(&self) -> &Latch<T> {
        &self.latch
    }

    /// Polls for the value itself, for its only receiver.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.latch.poll_take(cx, &mut self.place)
    }

    /// Removes the waker from the latch, which does not call it from here on.
    pub(crate) fn forget(&mut self) {
        self.latch.forget_waker(self.place.take());
    }
}

impl<T: Clone> Future for LatchFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let LatchFuture { latch, place } = &mut *self;
        latch.poll_with(cx, place, Value::shared).map(Arc::unwrap_or_clone)
    }
}

// The fields are a shared reference and a number; nothing is pinned.
impl<T> Unpin for LatchFuture<T> {}

/// Lets `latch.await` wait for the value.
impl<T: Clone> IntoFuture for Latch<T> {
    type Output = T;
    type IntoFuture = LatchFuture<T>;

    fn into_future(self) -> LatchFuture<T> {
        LatchFuture::new(self)
    }
}

impl<T> std::fmt::Debug for LatchFuture<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatchFuture").field("is_set", &self.latch.is_set()).finish()
    }
}

impl<T> Drop for LatchFuture<T> {
    fn drop(&mut self) {
        self.forget();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
