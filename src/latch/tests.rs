//! Tests of latches: the first to decide wins, and all waiters are notified.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::latch::{DEEPEST, Latch, LatchFuture};
use crate::primitives::{Arc, AtomicUsize, Mutex, Ordering, lock, thread};
use crate::wait::wait;

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
    let counts = latch.on_set(move |value| {
        count.fetch_add(*value, Ordering::Relaxed);
    });
    counts.keep();
    drop(latch.on_set(|_| panic!("it was taken back")));
    let _panics = latch.on_set(|_| panic!("contained"));

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
    drop(latch.on_set(move |_| late.store(0, Ordering::Relaxed)));
    assert_eq!(heard.load(Ordering::Relaxed), 0);
}

#[test]
fn a_future_that_is_polled_again_with_another_waker_wakes_that_one_only() {
    let latch = Latch::new();
    let flags = [0; 3].map(|_| Arc::new(Flag(AtomicUsize::new(0))));
    let wakers = flags.clone().map(Waker::from);
    let (mut future, mut other) = (latch.clone().into_future(), latch.clone().into_future());
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&wakers[0])).is_pending());
    assert!(Pin::new(&mut other).poll(&mut Context::from_waker(&wakers[2])).is_pending());
    // It has moved to another task.
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&wakers[1])).is_pending());
    latch.set(()).unwrap();
    assert_eq!(flags.map(|flag| flag.0.load(Ordering::Relaxed)), [0, 1, 1]);
}

#[test]
fn a_latch_contains_waker_panics_and_forgets_dropped_futures() {
    struct Bomb;
    impl std::task::Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let (latch, flag, bomb) = (Latch::new(), Arc::new(Flag(AtomicUsize::new(0))), Waker::from(Arc::new(Bomb)));
    let waker = Waker::from(flag.clone());
    for _ in 0..1_000 {
        let mut given_up = LatchFuture::new(latch.clone());
        assert!(Pin::new(&mut given_up).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&flag), 2);
    let (mut one, mut two) = (LatchFuture::new(latch.clone()), LatchFuture::new(latch.clone()));
    assert!(Pin::new(&mut one).poll(&mut Context::from_waker(&bomb)).is_pending());
    assert!(Pin::new(&mut two).poll(&mut Context::from_waker(&waker)).is_pending());
    latch.set(()).unwrap();
    assert_eq!(flag.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_panic_in_the_destructor_of_a_replaced_waker_does_not_reach_the_poll() {
    struct Bomb;
    impl std::task::Wake for Bomb {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the destructor of a waker");
        }
    }
    let (latch, flag) = (Latch::new(), Arc::new(Flag(AtomicUsize::new(0))));
    let mut future = LatchFuture::new(latch.clone());
    let bomb = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&bomb)).is_pending());
    // The future has the last reference now.
    crate::outcome::drop_contained(bomb);
    let waker = Waker::from(flag.clone());
    let mut cx = Context::from_waker(&waker);
    let poll = crate::outcome::contain(|| Pin::new(&mut future).poll(&mut cx));
    assert!(poll.is_ok_and(|poll| poll.is_pending()));
    latch.set(()).unwrap();
    assert_eq!(flag.0.load(Ordering::Relaxed), 1, "the later waker is registered");
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
            // A second look by the thread that holds the lock would wait for ever. A look by another thread is only
            // delayed.
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
    latch.on_set(|_: &Looks| ()).keep();
    latch.set(Looks(latch.clone(), looks.clone())).ok().unwrap();
    drop((latch.get(), latch.wait()));
    let mut future = latch.clone().into_future();
    assert!(Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!(looks.load(Ordering::SeqCst), 6, "three clones, and the ends of them");
    // A latch in its own value would never be freed.
    assert!(latch.take().is_some());
}

/// Makes latches of which each has a callback that sets the next and then calls `then` with its number.
fn chain(count: usize, then: impl Fn(usize) + Clone + Send + 'static) -> Vec<Latch<()>> {
    let latches: Vec<Latch<()>> = (0..count).map(|_| Latch::new()).collect();
    let nexts = latches.iter().skip(1).cloned().map(Some).chain([None]);
    for (number, (latch, next)) in latches.iter().zip(nexts).enumerate() {
        let then = then.clone();
        let callback = latch.on_set(move |()| {
            next.iter().for_each(|next| next.set(()).unwrap());
            then(number);
        });
        callback.keep();
    }
    latches
}

#[test]
fn callbacks_that_each_set_the_next_latch_need_no_deep_stack() {
    let body = || {
        let called = Arc::new(AtomicUsize::new(0));
        let counts = called.clone();
        let latches = chain(30_000, move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
        });
        latches[0].set(()).unwrap();
        assert_eq!(called.load(Ordering::Relaxed), latches.len());
    };
    wait(std::thread::Builder::new().stack_size(512 * 1024).spawn(body).unwrap()).unwrap();
}

#[test]
fn callbacks_run_inside_of_each_other_to_a_depth_and_then_in_order() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let notes = order.clone();
    let latches = chain(DEEPEST + 3, move |number| lock(&notes).push(number));
    latches[0].set(()).unwrap();
    let mut order = lock(&order).clone();
    // The innermost first, then those that waited for it, and then outwards.
    assert_eq!(order.drain(..4).collect::<Vec<_>>(), [DEEPEST - 1, DEEPEST, DEEPEST + 1, DEEPEST + 2]);
    assert!(order.into_iter().eq((0..DEEPEST - 1).rev()));
}

#[test]
fn a_wait_with_a_limit_returns_the_value_or_nothing() {
    let latch = Latch::new();
    assert_eq!(latch.wait_timeout(Duration::ZERO), None);
    latch.set(7).unwrap();
    assert_eq!(latch.wait_timeout(Duration::ZERO), Some(7));
}
