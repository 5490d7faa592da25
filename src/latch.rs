//! It happened: a value that is set once, and waited for by a thread, a callback or a `Future`.
//!
//! The race that lives here: several want to decide (returned, cancelled, timed out, stopped) at the same moment. The
//! first [`set`](Latch::set) wins, the others get their value back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::clock::{Clock, Deadline};
use crate::outcome::drop_contained;
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
    value: Option<T>,
    // Stays true after the value was taken: a latch that was set cannot be set again.
    decided: bool,
    wakers: Vec<Waker>,
    callbacks: Vec<(u64, Callback<T>)>,
    next_callback: u64,
}

type Callback<T> = Box<dyn FnOnce(&T) + Send>;

impl<T> Latch<T> {
    /// A latch that is open: nothing has happened yet.
    pub fn new() -> Latch<T> {
        Latch {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    value: None,
                    decided: false,
                    wakers: Vec::new(),
                    callbacks: Vec::new(),
                    next_callback: 0,
                }),
                set: Condvar::new(),
            }),
        }
    }

    /// Decides. The first call wins and wakes everybody who waits; every later one gets its value back.
    ///
    /// Callbacks run on this thread before `set` returns; a panic in one is contained.
    pub fn set(&self, value: T) -> Result<(), T>
    where
        T: Clone,
    {
        let mut state = lock(&self.shared.state);
        if state.decided {
            return Err(value);
        }
        let callbacks = std::mem::take(&mut state.callbacks);
        let for_callbacks = (!callbacks.is_empty()).then(|| value.clone());
        self.decide(state, value);
        if let Some(value) = for_callbacks {
            for (_, callback) in callbacks {
                if let Err(panic) = crate::outcome::contain(|| callback(&value)) {
                    tracing::error!(%panic, "a callback of a latch panicked");
                }
            }
            drop_contained(value);
        }
        Ok(())
    }

    /// Decides, where nobody is called back: for values that cannot be cloned.
    pub(crate) fn set_once(&self, value: T) -> Result<(), T> {
        let state = lock(&self.shared.state);
        if state.decided {
            return Err(value);
        }
        self.decide(state, value);
        Ok(())
    }

    fn decide(&self, mut state: crate::sync::MutexGuard<'_, State<T>>, value: T) {
        state.decided = true;
        state.value = Some(value);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        self.shared.set.notify_all();
        for waker in wakers {
            waker.wake();
        }
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
        lock(&self.shared.state).value.clone()
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
            if let Some(value) = &state.value {
                return value.clone();
            }
            state = crate::sync::wait(&self.shared.set, state);
        }
    }

    /// Has `callback` called with the value, at once if it has happened already, otherwise by the thread that sets it.
    /// The number names the callback for [`forget`](Self::forget); there is none if it was called at once.
    pub(crate) fn on_set(&self, callback: impl FnOnce(&T) + Send + 'static) -> Option<u64>
    where
        T: Clone,
    {
        let mut state = lock(&self.shared.state);
        if let Some(value) = state.value.clone() {
            drop(state);
            callback(&value);
            return None;
        }
        state.next_callback += 1;
        let id = state.next_callback;
        state.callbacks.push((id, Box::new(callback)));
        Some(id)
    }

    /// Takes a callback back. Whether it was still there: if not, it has been called or is being called.
    pub(crate) fn forget(&self, callback: u64) -> bool {
        let mut state = lock(&self.shared.state);
        let place = state.callbacks.iter().position(|(id, _)| *id == callback);
        let removed = place.map(|place| state.callbacks.swap_remove(place));
        drop(state);
        removed.is_some()
    }

    /// Polls for the value, which `out` gets out of the latch.
    pub(crate) fn poll_with<R>(&self, cx: &mut Context<'_>, out: impl FnOnce(&mut Option<T>) -> Option<R>) -> Poll<R> {
        let mut state = lock(&self.shared.state);
        if let Some(value) = out(&mut state.value) {
            return Poll::Ready(value);
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl<T: Send + 'static> Latch<T> {
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
            state = clock.wait(&self.shared.set, state, deadline);
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

/// Waits for the latch to be set.
impl<T: Clone> Future for Latch<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.poll_with(cx, |value| value.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

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
        struct Flag(AtomicUsize);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
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
        let mut future = latch.clone();
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());

        let waiter = thread::spawn({
            let latch = latch.clone();
            move || latch.wait()
        });
        latch.set(5).unwrap();
        assert_eq!(waiter.join().unwrap(), 5);
        assert_eq!(heard.load(Ordering::Relaxed), 5);
        assert_eq!(flag.0.load(Ordering::Relaxed), 1, "one future is woken once, however often it was polled");
        assert_eq!(Pin::new(&mut future).poll(&mut cx), Poll::Ready(5));
        let late = heard.clone();
        assert!(latch.on_set(move |_| late.store(0, Ordering::Relaxed)).is_none());
        assert_eq!(heard.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_wait_with_a_limit_ends_when_the_manual_clock_says_so() {
        let manual = ManualClock::new();
        let clock = manual.clock();
        let latch: Latch<()> = Latch::new();
        let deadline = clock.deadline(Duration::from_secs(10));
        let waiter = thread::spawn({
            let (latch, clock) = (latch.clone(), clock.clone());
            move || latch.wait_until(&clock, deadline)
        });
        manual.advance(Duration::from_secs(10));
        assert!(!waiter.join().unwrap());
        latch.set(()).unwrap();
        assert!(latch.wait_until(&clock, deadline));
    }

    #[test]
    fn a_value_that_was_taken_is_not_set_again() {
        let latch = Latch::new();
        latch.set_once(String::from("one")).unwrap();
        assert_eq!(latch.take().unwrap(), "one");
        assert_eq!(latch.set_once(String::from("two")).unwrap_err(), "two");
        assert!(latch.is_set());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    /// Breaks when `decided` is looked at in one critical section and written in another.
    #[test]
    fn several_want_to_decide_and_one_does() {
        loom::model(|| {
            let latch: Latch<usize> = Latch::new();
            let deciders: Vec<_> = (1..=2)
                .map(|n| {
                    let latch = latch.clone();
                    loom::thread::spawn(move || latch.set(n).is_ok())
                })
                .collect();
            let seen = latch.wait();
            let decided: Vec<bool> = deciders.into_iter().map(|decider| decider.join().unwrap()).collect();
            assert_eq!(decided, [seen == 1, seen == 2], "one decided, and the waiter saw its value");
            assert_eq!(latch.get(), Some(seen));
        });
    }
}
