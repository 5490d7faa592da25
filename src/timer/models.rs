//! Models of the protocol between the timers' thread and the threads that set timers.

use std::time::Duration;

use super::set::TimerSet;
use crate::clock::Clock;
use crate::primitives::{Arc, thread};

const HOUR: Duration = Duration::from_secs(3600);

/// Two threads set timers while the thread of the timers goes to sleep. It must not sleep longer than until the
/// earliest.
fn sleeps_until_the_earliest(shards: [usize; 2]) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let set = Arc::new(TimerSet::new(Clock::system(), "model", 2, |_: u64| ()));
        set.begin().unwrap();
        let start = Clock::system().now();
        let setter = thread::spawn({
            let set = set.clone();
            move || set.at(shards[0], start + HOUR, 1).unwrap()
        });
        set.at(shards[1], start + 2 * HOUR, 2).unwrap();
        setter.join().unwrap();
        assert!(set.wakes_by(start + HOUR));
        assert_eq!(set.stop(), [1, 2]);
    });
}

#[test]
fn timers_of_one_shard_are_set_while_the_thread_goes_to_sleep() {
    sleeps_until_the_earliest([0, 0]);
}

#[test]
fn timers_of_two_shards_are_set_while_the_thread_goes_to_sleep() {
    sleeps_until_the_earliest([0, 1]);
}

#[test]
fn a_timer_is_set_while_all_are_stopped() {
    loom::model(|| {
        let set = Arc::new(TimerSet::new(Clock::system(), "model", 1, |_: u64| ()));
        set.begin().unwrap();
        let setter = thread::spawn({
            let set = set.clone();
            move || set.after(0, HOUR, 1)
        });
        let (pending, thread) = set.halt();
        thread.into_iter().for_each(|thread| thread.join().unwrap());
        // The value is either among those that are given back, or refused.
        match setter.join().unwrap() {
            Ok(_) => assert_eq!(pending, [1]),
            Err(value) => assert_eq!((value, pending.len()), (1, 0)),
        }
        assert_eq!(set.pending(), 0);
    });
}
