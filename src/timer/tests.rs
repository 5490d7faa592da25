//! Timers by a manual clock and by the real one.

use std::time::Duration;

use crate::clock::{Clock, Deadline, ManualClock};
use crate::latch::Latch;
use crate::primitives::{Arc, Mutex, lock, thread};
use crate::threads;
use crate::timer::{Action, TimerSet, Timers};
use crate::wait::{until, wait};

fn recorder() -> (Arc<Mutex<Vec<u32>>>, impl Fn(u32) -> Action) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = seen.clone();
    (seen, move |n| {
        let record = record.clone();
        Box::new(move || lock(&record).push(n))
    })
}

#[test]
fn due_timers_fire_in_the_order_of_their_times_and_not_before() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (seen, push) = recorder();
    for (delay, n) in [(30, 3), (10, 1), (20, 2), (10, 11)] {
        timers.after(Duration::from_millis(delay), push(n)).ok().unwrap();
    }
    manual.advance(Duration::from_millis(9));
    assert!(lock(&seen).is_empty());
    manual.advance(Duration::from_millis(1));
    assert_eq!(*lock(&seen), [1, 11]);
    manual.advance(Duration::from_secs(1));
    assert_eq!(*lock(&seen), [1, 11, 2, 3]);
    assert_eq!((timers.pending(), timers.fired()), (0, 4));
}

#[test]
fn timers_of_several_sets_fire_in_order_and_see_their_own_time() {
    let manual = ManualClock::new();
    let (one, two) = (Timers::new(manual.clock(), "one"), Timers::new(manual.clock(), "two"));
    let (start, seen) = (manual.now(), Arc::new(Mutex::new(Vec::new())));
    for (timers, seconds) in [(&one, 2), (&two, 1), (&one, 3)] {
        let (clock, seen) = (manual.clock(), seen.clone());
        let action = Box::new(move || lock(&seen).push((seconds, (clock.now() - start).as_secs())));
        timers.after(Duration::from_secs(seconds), action).ok().unwrap();
    }
    assert_eq!(manual.next_due(), Some(start + Duration::from_secs(1)));
    manual.advance(Duration::from_secs(10));
    assert_eq!(*lock(&seen), [(1, 1), (2, 2), (3, 3)]);
    assert_eq!((manual.next_due(), manual.now()), (None, start + Duration::from_secs(10)));
}

#[test]
fn a_cancelled_timer_gives_its_action_back_and_leaves_no_trace() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (seen, push) = recorder();
    let keys: Vec<_> =
        (0..1_000).map(|n| timers.after(Duration::from_secs(1), push(n)).ok().unwrap().unwrap()).collect();
    for key in &keys {
        assert!(timers.cancel(*key).is_some());
        assert!(timers.cancel(*key).is_none());
    }
    assert_eq!(timers.pending(), 0);
    manual.advance(Duration::from_secs(2));
    assert!(lock(&seen).is_empty());
    assert!(timers.after(Duration::MAX, push(0)).ok().unwrap().is_none(), "the greatest delay is never");
}

#[test]
fn a_panicking_action_disturbs_no_other_timer() {
    let timers = Timers::new(Clock::system(), "test-timers");
    let done = Latch::new();
    timers.after(Duration::ZERO, Box::new(|| panic!("in a timer"))).ok().unwrap();
    let set = done.clone();
    timers
        .after(
            Duration::from_millis(1),
            Box::new(move || {
                set.set(()).ok();
            }),
        )
        .ok()
        .unwrap();
    wait(&done);
    assert_eq!(timers.fired(), 2);
}

#[test]
fn stopping_gives_back_what_is_pending_and_refuses_what_comes_later() {
    let timers = Timers::new(Clock::system(), "test-timers");
    let (seen, push) = recorder();
    timers.after(Duration::from_secs(3600), push(1)).ok().unwrap();
    for action in timers.stop() {
        action();
    }
    assert_eq!(*lock(&seen), [1]);
    assert!(timers.after(Duration::ZERO, push(2)).is_err());
    assert!(timers.stop().is_empty());
}

#[test]
fn what_is_never_due_is_kept_until_it_is_taken_back_or_all_is_stopped() {
    let timers = Timers::new(Clock::system(), "test-timers");
    let (seen, push) = recorder();
    let taken = timers.after_or_never(Duration::MAX, push(1)).ok().unwrap();
    timers.after_or_never(Duration::MAX, push(2)).ok().unwrap();
    timers.after_or_never(Duration::from_secs(3600), push(3)).ok().unwrap();
    assert!(timers.take_back(taken).is_some() && timers.take_back(taken).is_none());
    timers.stop().into_iter().for_each(|action| action());
    assert_eq!(*lock(&seen), [3, 2]);
    assert!(timers.after_or_never(Duration::MAX, push(4)).is_err() && timers.set.are_stopped());
}

#[test]
fn without_a_thread_the_action_comes_back() {
    let timers = Timers::new(Clock::system(), "test-timers");
    threads::refuse(true);
    let refused = timers.after(Duration::ZERO, Box::new(|| ())).is_err();
    threads::refuse(false);
    assert!(refused && !timers.set.are_stopped());
    assert!(timers.after(Duration::from_secs(3600), Box::new(|| ())).is_ok());
}

#[test]
fn set_and_cancelled_timers_do_not_wake_the_thread_each_time() {
    let timers = Timers::new(Clock::system(), "test-timers");
    for _ in 0..1_000 {
        let key = timers.after(Duration::from_secs(3600), Box::new(|| ())).ok().unwrap().unwrap();
        assert!(timers.cancel(key).is_some());
    }
    assert!(timers.set.rounds() < 10);
    let done = Latch::new();
    let set = done.clone();
    timers.after(Duration::from_millis(1), Box::new(move || set.set(()).unwrap())).ok().unwrap();
    wait(&done);
}

#[test]
fn a_later_timer_that_is_due_earlier_wakes_the_thread() {
    let timers = Timers::new(Clock::system(), "test-timers");
    timers.after(Duration::from_secs(3600), Box::new(|| ())).ok().unwrap();
    let done = Latch::new();
    let set = done.clone();
    timers
        .after(
            Duration::from_millis(1),
            Box::new(move || {
                set.set(()).ok();
            }),
        )
        .ok()
        .unwrap();
    wait(&done);
}

#[test]
fn only_the_earliest_timer_of_all_shards_wakes_the_thread() {
    let timers = TimerSet::new(Clock::system(), "test-timers", 3, |_: u64| ());
    let hour = Duration::from_secs(3600);
    timers.after(0, hour, 0).unwrap();
    until("the thread sleeps", || timers.sleeps_until().is_some_and(|until| until.is_some()));
    let rounds = timers.rounds();
    let keys: Vec<_> = (1..3_000).map(|n| timers.after(n as usize, hour * 2, n).unwrap().unwrap()).collect();
    assert!(keys.into_iter().zip(1..).all(|(key, n)| timers.cancel(key.id()) == Some(n)));
    // The thread has been notified of nothing: it would have looked by the time that it sleeps for something else.
    assert_eq!(timers.rounds(), rounds);
    let sooner = timers.after(2, hour / 2, 0).unwrap().unwrap();
    until("the thread sleeps less", || timers.sleeps_until() == Some(Some(sooner.moment())));
    until("the thread has looked once", || timers.rounds() == rounds + 1);
}

/// Otherwise each ask with a limit would wake the thread, if there is any timer that is due later.
#[test]
fn timers_set_again_and_again_before_a_later_one_wake_nobody() {
    let timers = TimerSet::new(Clock::system(), "test-timers", 2, |_: u64| ());
    let hour = Duration::from_secs(3600);
    timers.after(0, hour * 2, 0).unwrap();
    let first = timers.after(0, hour, 1).unwrap().unwrap();
    timers.cancel(first.id());
    // The thread looks again because of this one, when the first has gone.
    let soon = timers.after(1, Duration::from_millis(1), 2).unwrap().unwrap();
    until("the thread sleeps again", || timers.sleeps_until().flatten() > Some(soon.moment()));
    assert_eq!((timers.fired(), timers.sleeps_until()), (1, Some(Some(first.moment()))));
    let rounds = timers.rounds();
    for n in 0..1_000 {
        let key = timers.after(0, hour * 3 / 2, n).unwrap().unwrap();
        timers.cancel(key.id());
    }
    assert_eq!((timers.rounds(), timers.sleeps_until()), (rounds, Some(Some(first.moment()))));
}

#[test]
fn timers_of_several_shards_fire_in_the_order_of_their_moments() {
    let (seen, done, manual) = (Arc::new(Mutex::new(Vec::new())), Latch::new(), ManualClock::new());
    let (sees, set) = (seen.clone(), done.clone());
    let timers = TimerSet::new(manual.clock(), "test-timers", 4, move |n: u64| {
        lock(&sees).push(n);
        if n == 99 {
            set.set(()).unwrap();
        }
    });
    let start = manual.clock().now();
    for n in (0..100).rev() {
        timers.at(n as usize % 7, start + Duration::from_millis(10) + Duration::from_micros(n), n).unwrap();
    }
    assert_eq!((timers.pending(), timers.fired()), (100, 0), "none is due yet");
    manual.advance(Duration::from_millis(11));
    wait(&done);
    assert!(timers.pending() == 0 && timers.fired() == 100);
    let mut seen = lock(&seen);
    assert!(seen.is_sorted(), "{:?}", *seen);
    seen.dedup();
    assert_eq!(seen.len(), 100);
}

#[test]
fn a_timer_of_one_set_is_not_taken_for_one_of_another() {
    let (one, two) = (Timers::new(Clock::system(), "one"), Timers::new(Clock::system(), "two"));
    let key = one.after(Duration::from_secs(3600), Box::new(|| ())).ok().unwrap().unwrap();
    two.after(Duration::from_secs(3600), Box::new(|| ())).ok().unwrap();
    assert!(two.cancel(key).is_none() && one.cancel(key).is_some() && one.cancel(key).is_none());
    assert_eq!((one.pending(), two.pending()), (0, 1));
}

#[test]
fn stopped_shards_give_all_values_back_in_order() {
    let timers = TimerSet::new(Clock::system(), "test-timers", 4, |_: u64| ());
    timers.at_or_never(Deadline::NEVER, 100).unwrap();
    for n in (0..50).rev() {
        timers.after(n as usize, Duration::from_secs(3600) + Duration::from_secs(n), n).unwrap();
    }
    let values = timers.stop();
    assert!(values.is_sorted() && values.len() == 51, "{values:?}");
    assert_eq!(timers.pending(), 0);
    assert_eq!(timers.after(0, Duration::ZERO, 7), Err(7));
    assert_eq!(timers.after(3, Duration::ZERO, 8), Err(8));
}

/// Otherwise it might not be over when the clock has been moved.
#[test]
fn advance_runs_due_timers_itself_while_another_thread_runs_one() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (go, set, ran) = (Latch::new(), Latch::new(), Arc::new(Mutex::new(Vec::new())));
    let note = |n: u32| {
        let ran = ran.clone();
        move || lock(&ran).push((n, thread::current().id()))
    };
    let (goes, waits) = (go.clone(), set.clone());
    let first = move || {
        goes.set(()).unwrap();
        wait(&waits);
    };
    timers.after(Duration::from_secs(1), Box::new(first)).ok().unwrap();
    timers.after(Duration::from_secs(1), Box::new(note(2))).ok().unwrap();
    let (other, at_once) = (timers.clone(), note(1));
    let setter = thread::spawn(move || {
        wait(&go);
        other.after(Duration::ZERO, Box::new(at_once)).ok().unwrap();
        set.set(()).unwrap();
        thread::current().id()
    });
    manual.advance(Duration::from_secs(1));
    let there = wait(setter).unwrap();
    assert_eq!(*lock(&ran), [(1, there), (2, thread::current().id())]);
    assert_eq!((timers.pending(), timers.fired()), (0, 3));
}

/// It holds even for a timer that is only just being set when the clock is moved.
#[test]
fn advance_runs_a_due_timer_itself_even_if_it_was_just_set() {
    for _ in 0..100 {
        let manual = ManualClock::new();
        let (set, ran) = (Latch::new(), Latch::new());
        // The thread that moves the clock comes to the timers long after the other thread has finished.
        let waits = set.clone();
        let _watch = manual.clock().watch(move || wait(&waits));
        let timers = Timers::new(manual.clock(), "test-timers");
        let (other, notes) = (timers.clone(), ran.clone());
        let setter = thread::spawn(move || {
            let note = Box::new(move || notes.set(thread::current().id()).unwrap());
            other.after(Duration::from_secs(1), note).ok().unwrap();
            set.set(()).unwrap();
        });
        while timers.pending() == 0 {
            std::hint::spin_loop();
        }
        manual.advance(Duration::from_secs(1));
        assert_eq!(ran.get(), Some(thread::current().id()));
        wait(setter).unwrap();
    }
}

/// Makes timers of which each sets the next one, on a small stack. Returns how many have fired.
fn set_by_each_other(
    count: u64,
    by: impl FnOnce(&ManualClock, Timers, Box<dyn FnOnce() + Send>) + Send + 'static,
) -> u64 {
    fn again(timers: &Timers, left: u64) {
        let timers_again = timers.clone();
        let action = move || {
            if left > 1 {
                again(&timers_again, left - 1);
            }
        };
        timers.after(Duration::ZERO, Box::new(action)).ok().unwrap();
    }
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (sets, counts) = (timers.clone(), timers.clone());
    let small = threads::start_sized(String::from("test-small-stack"), Some(128 * 1024), move || {
        let first = timers.clone();
        by(&manual, sets, Box::new(move || again(&first, count)));
    });
    crate::wait::wait(small.unwrap()).unwrap();
    counts.fired()
}

#[test]
fn timers_that_each_set_the_next_need_no_deep_stack() {
    const COUNT: u64 = 20_000;
    // Fired by the thread that moves the clock, and by the thread that sets a timer which is due already.
    let moved = set_by_each_other(COUNT, |manual, timers, begin| {
        timers.after(Duration::from_secs(1), begin).ok().unwrap();
        manual.advance(Duration::from_secs(1));
    });
    assert_eq!(moved, COUNT + 1);
    assert_eq!(set_by_each_other(COUNT, |_, _, begin| begin()), COUNT);
}

#[test]
fn a_due_timer_set_by_an_action_fires_later_and_is_cancellable() {
    for moves in [true, false] {
        let manual = ManualClock::new();
        let timers = Timers::new(manual.clock(), "test-timers");
        let (seen, push) = recorder();
        let (sets, first, second, third) = (timers.clone(), push(1), push(2), push(3));
        let action = move || {
            sets.after(Duration::ZERO, second).ok().unwrap();
            let cancelled = sets.after(Duration::ZERO, third).ok().unwrap().unwrap();
            assert!(sets.cancel(cancelled).is_some());
            first();
        };
        if moves {
            timers.after(Duration::from_secs(1), Box::new(action)).ok().unwrap();
            // Set before, for the same moment.
            timers.after(Duration::from_secs(1), push(4)).ok().unwrap();
            manual.advance(Duration::from_secs(1));
            assert_eq!(*lock(&seen), [1, 4, 2]);
        } else {
            timers.after(Duration::ZERO, Box::new(action)).ok().unwrap();
            assert_eq!(*lock(&seen), [1, 2]);
        }
        assert_eq!(timers.pending(), 0);
        assert_eq!(timers.set.firing(), 0);
    }
}

#[test]
fn a_clock_move_in_an_action_fires_due_timers_before_it_returns() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (seen, push) = recorder();
    let (sets, moves, inner, outer) = (timers.clone(), manual.clone(), push(1), push(2));
    let action = move || {
        sets.after(Duration::from_secs(1), inner).ok().unwrap();
        moves.advance(Duration::from_secs(1));
        outer();
    };
    timers.after(Duration::from_secs(1), Box::new(action)).ok().unwrap();
    manual.advance(Duration::from_secs(1));
    assert_eq!(*lock(&seen), [1, 2]);
    assert_eq!(timers.set.firing(), 0);
}
