//! It happened: a value that is set once, and waited for by a thread, a callback or a `Future`.
//!
//! The race that lives here: several want to decide (returned, cancelled, timed out, stopped) at the same moment. The
//! first [`set`](Latch::set) wins, the others get their value back.

mod line;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use self::line::Line;
use crate::clock::{Clock, Deadline};
use crate::outcome::{contain, drop_contained, tell_log};
use crate::sync::{Arc, Condvar, Mutex, lock};

/// A value that is set once. Clones are the same latch.
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
    // By number, so that each future has one and takes it back.
    wakers: Line<Waker>,
    callbacks: Line<Callback<T>>,
    next: u64,
    // Threads that sleep: to wake nobody would be a system call for nothing.
    sleepers: usize,
}

type Callback<T> = Box<dyn FnOnce(&T) + Send>;

/// What was never called goes one by one: a destructor that panics must not meet another one that does.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        let (wakers, callbacks) = (std::mem::take(&mut state.wakers), std::mem::take(&mut state.callbacks));
        drop(state);
        wakers.into_iter().for_each(drop_contained);
        callbacks.into_iter().for_each(drop_contained);
    }
}

/// What was set. It is cloned by code of the user's, which must not run under the lock: so whoever wants a clone shares it
/// first, and whoever takes it spares that.
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

    /// Only what nobody shares can be taken.
    fn take(&mut self) -> Option<T> {
        match std::mem::replace(self, Value::None) {
            Value::None => None,
            Value::Whole(value) => Some(value),
            Value::Shared(shared) => Arc::try_unwrap(shared).map_err(|shared| *self = Value::Shared(shared)).ok(),
        }
    }
}

/// A clone, and the share let go. With no lock held: both may run code of the user's.
fn clone_of<T: Clone>(shared: Arc<T>) -> T {
    Arc::unwrap_or_clone(shared)
}

impl<T> Latch<T> {
    /// A latch that is open: nothing has happened yet.
    pub fn new() -> Latch<T> {
        Latch {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    value: Value::None,
                    decided: false,
                    wakers: Line::new(),
                    callbacks: Line::new(),
                    next: 0,
                    sleepers: 0,
                }),
                set: Condvar::new(),
            }),
        }
    }

    /// Decides. The first call wins and wakes everybody who waits; every later one gets its value back. Callbacks run on this
    /// thread before `set` returns; a panic in one is contained.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.set_with(value, || ())
    }

    /// The same. If there are wakers or callbacks, which are code of whoever waits, `before_calls` comes before them.
    pub(crate) fn set_with(&self, value: T, before_calls: impl FnOnce()) -> Result<(), T> {
        let mut state = lock(&self.shared.state);
        if state.decided {
            return Err(value);
        }
        state.decided = true;
        state.value = Value::Whole(value);
        let (wakers, callbacks) = (std::mem::take(&mut state.wakers), std::mem::take(&mut state.callbacks));
        let for_callbacks = if callbacks.is_empty() { None } else { state.value.shared() };
        let has_sleepers = state.sleepers > 0;
        drop(state);
        if has_sleepers {
            self.shared.set.notify_all();
        }
        if for_callbacks.is_some() || !wakers.is_empty() {
            before_calls();
        }
        for waker in wakers.into_iter() {
            // A waker is code of whoever waits.
            if let Err(panic) = contain(|| waker.wake()) {
                tell_log(|| tracing::error!(%panic, "a waker panicked"));
            }
        }
        if let Some(value) = for_callbacks {
            for callback in callbacks.into_iter() {
                if let Err(panic) = contain(|| callback(&value)) {
                    tell_log(|| tracing::error!(%panic, "a callback of a latch panicked"));
                }
            }
            drop_contained(value);
        }
        Ok(())
    }

    /// Whether anybody else has this latch.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }

    /// Whether it has happened.
    pub fn is_set(&self) -> bool {
        lock(&self.shared.state).decided
    }

    /// The value, if it has happened.
    pub fn get(&self) -> Option<T>
    where
        T: Clone,
    {
        let shared = lock(&self.shared.state).value.shared();
        shared.map(clone_of)
    }

    /// The value itself, for the one that it is meant for.
    pub(crate) fn take(&self) -> Option<T> {
        lock(&self.shared.state).value.take()
    }

    /// Blocks the calling thread until it has happened.
    pub fn wait(&self) -> T
    where
        T: Clone,
    {
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(shared) = state.value.shared() {
                drop(state);
                return clone_of(shared);
            }
            state.sleepers += 1;
            state = crate::sync::wait(&self.shared.set, state);
            state.sleepers -= 1;
        }
    }

    /// Has `callback` called with the value, at once if it has happened already, otherwise by the thread that sets it.
    /// The number names the callback for [`forget`](Self::forget); there is none if it was called at once.
    pub(crate) fn on_set(&self, callback: impl FnOnce(&T) + Send + 'static) -> Option<u64> {
        let mut state = lock(&self.shared.state);
        if let Some(value) = state.value.shared() {
            drop(state);
            callback(&value);
            return None;
        }
        state.next += 1;
        let id = state.next;
        state.callbacks.push(id, Box::new(callback));
        Some(id)
    }

    /// Takes a callback back. Whether it was still there: if not, it has been called or is being called.
    pub(crate) fn forget(&self, callback: u64) -> bool {
        let mut state = lock(&self.shared.state);
        let removed = state.callbacks.remove(callback);
        drop(state);
        let was_there = removed.is_some();
        drop_contained(removed);
        was_there
    }

    /// Polls for the value itself, for the one that it is meant for. `place` is the future's own: where its waker is.
    pub(crate) fn poll_take(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<T> {
        self.poll_with(cx, place, Value::take)
    }

    fn poll_with<R>(
        &self,
        cx: &mut Context<'_>,
        place: &mut Option<u64>,
        out: impl FnOnce(&mut Value<T>) -> Option<R>,
    ) -> Poll<R> {
        // Cloned and dropped without the lock: a waker is code of whoever waits.
        let waker = cx.waker().clone();
        let mut state = lock(&self.shared.state);
        if let Some(value) = out(&mut state.value) {
            drop(state);
            return Poll::Ready(value);
        }
        let mine = place.and_then(|id| state.wakers.get_mut(id));
        let other = match mine {
            Some(mine) => Some(std::mem::replace(mine, waker)),
            None => {
                state.next += 1;
                let id = state.next;
                *place = Some(id);
                state.wakers.push(id, waker);
                None
            }
        };
        drop(state);
        drop(other);
        Poll::Pending
    }

    /// Takes a future's waker back.
    pub(crate) fn forget_waker(&self, place: Option<u64>) {
        let Some(place) = place else { return };
        let mut state = lock(&self.shared.state);
        let waker = state.wakers.remove(place);
        drop(state);
        drop_contained(waker);
    }
}

impl<T: Send + Sync + 'static> Latch<T> {
    /// Blocks the calling thread until it has happened or `deadline` has passed; whether it has happened.
    pub(crate) fn wait_until(&self, clock: &Clock, deadline: Deadline) -> bool {
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

/// A latch as a future of its value. Dropped, it leaves nothing behind in the latch.
pub struct Waiting<T> {
    latch: Latch<T>,
    place: Option<u64>,
}

impl<T> Waiting<T> {
    pub(crate) fn new(latch: Latch<T>) -> Waiting<T> {
        Waiting { latch, place: None }
    }

    pub(crate) fn latch(&self) -> &Latch<T> {
        &self.latch
    }
}

impl<T: Clone> Future for Waiting<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Waiting { latch, place } = &mut *self;
        latch.poll_with(cx, place, Value::shared).map(clone_of)
    }
}

// The fields are a shared reference and a number; nothing is pinned.
impl<T> Unpin for Waiting<T> {}

/// So that `latch.await` waits for it.
impl<T: Clone> IntoFuture for Latch<T> {
    type Output = T;
    type IntoFuture = Waiting<T>;

    fn into_future(self) -> Waiting<T> {
        Waiting::new(self)
    }
}

impl<T> std::fmt::Debug for Waiting<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting").field("is_set", &self.latch.is_set()).finish()
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        self.latch.forget_waker(self.place.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    /// Counts how often it is woken.
    struct Flag(AtomicUsize);

    impl std::task::Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_to_decide_wins_and_the_others_get_their_value_back() {
        let latch = Latch::new();
        let won = AtomicUsize::new(0);
        thread::scope(|scope| {
            for n in 0..8 {
                let (latch, won) = (&latch, &won);
                scope.spawn(move || match latch.set(n) {
                    Ok(()) => {
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(back) => assert_eq!(back, n),
                });
            }
        });
        assert_eq!(won.load(Ordering::Relaxed), 1);
        assert_eq!(latch.wait(), latch.get().unwrap());
    }

    #[test]
    fn threads_callbacks_and_futures_all_hear_of_it() {
        let latch = Latch::new();
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        latch.on_set(move |value| {
            count.fetch_add(*value, Ordering::Relaxed);
        });
        let gone = latch.on_set(|_| panic!("it was taken back")).unwrap();
        assert!(latch.forget(gone));
        assert!(!latch.forget(gone));
        latch.on_set(|_| panic!("contained"));

        let flag = Arc::new(Flag(AtomicUsize::new(0)));
        let waker = Waker::from(flag.clone());
        let mut future = latch.clone().into_future();
        let mut given_up = latch.clone().into_future();
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut given_up).poll(&mut cx).is_pending());
        drop(given_up);

        let waits = latch.clone();
        let waiter = thread::spawn(move || waits.wait());
        latch.set(5).unwrap();
        assert_eq!(crate::wait::wait(waiter).unwrap(), 5);
        assert_eq!(heard.load(Ordering::Relaxed), 5);
        assert_eq!(flag.0.load(Ordering::Relaxed), 1, "one future is woken once, however often it was polled");
        assert_eq!(Pin::new(&mut future).poll(&mut cx), Poll::Ready(5));
        let late = heard.clone();
        assert!(latch.on_set(move |_| late.store(0, Ordering::Relaxed)).is_none());
        assert_eq!(heard.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_waker_that_panics_keeps_nobody_from_hearing_of_it_and_given_up_futures_leave_nothing_behind() {
        struct Bomb;
        impl std::task::Wake for Bomb {
            fn wake(self: Arc<Self>) {
                panic!("in a waker");
            }
        }
        let (latch, flag, bomb) = (Latch::new(), Arc::new(Flag(AtomicUsize::new(0))), Waker::from(Arc::new(Bomb)));
        let waker = Waker::from(flag.clone());
        for _ in 0..1_000 {
            let mut given_up = Waiting::new(latch.clone());
            assert!(Pin::new(&mut given_up).poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(Arc::strong_count(&flag), 2);
        let (mut one, mut two) = (Waiting::new(latch.clone()), Waiting::new(latch.clone()));
        assert!(Pin::new(&mut one).poll(&mut Context::from_waker(&bomb)).is_pending());
        assert!(Pin::new(&mut two).poll(&mut Context::from_waker(&waker)).is_pending());
        latch.set(()).unwrap();
        assert_eq!(flag.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_wait_with_a_limit_ends_when_the_manual_clock_says_so() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let latch: Latch<()> = Latch::new();
        let deadline = clock.deadline(Duration::from_secs(10));
        let (waits, by) = (latch.clone(), clock.clone());
        let waiter = thread::spawn(move || waits.wait_until(&by, deadline));
        manual.advance(Duration::from_secs(10));
        assert!(!crate::wait::wait(waiter).unwrap());
        latch.set(()).unwrap();
        assert!(latch.wait_until(&clock, deadline));
    }

    #[test]
    fn a_value_that_was_taken_is_not_set_again() {
        let latch = Latch::new();
        latch.set(String::from("one")).unwrap();
        assert_eq!(latch.take().unwrap(), "one");
        assert_eq!(latch.set(String::from("two")).unwrap_err(), "two");
        assert!(latch.is_set() && latch.take().is_none());
    }

    #[test]
    fn code_of_the_value_runs_with_the_lock_free() {
        /// Looks at its own latch whenever it is cloned or dropped.
        struct Looks(Latch<Looks>, Arc<AtomicUsize>);
        impl Looks {
            fn look(&self) {
                // A second look by the thread that holds the lock would wait for ever; one by another is only held up.
                let (latch, looked) = (self.0.clone(), Latch::new());
                let set = looked.clone();
                thread::spawn(move || {
                    latch.is_set();
                    let _ = set.set(());
                });
                assert!(looked.wait_until(&Clock::system(), Clock::system().deadline(Duration::from_secs(600))));
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }
        impl Clone for Looks {
            fn clone(&self) -> Looks {
                self.look();
                Looks(self.0.clone(), self.1.clone())
            }
        }
        impl Drop for Looks {
            fn drop(&mut self) {
                self.look();
            }
        }
        let (latch, looks) = (Latch::new(), Arc::new(AtomicUsize::new(0)));
        latch.on_set(|_: &Looks| ()).unwrap();
        latch.set(Looks(latch.clone(), looks.clone())).ok().unwrap();
        drop((latch.get(), latch.wait()));
        let mut future = latch.clone().into_future();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(looks.load(Ordering::SeqCst), 6, "three clones, and the ends of them");
        // A latch in its own value would never go.
        assert!(latch.take().is_some());
    }
}

#[cfg(all(test, loom))]
mod models;
