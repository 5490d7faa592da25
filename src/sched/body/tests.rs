//! Tests of how a process records its timers.

use std::time::Duration;

use super::Head;
use crate::clock::ManualClock;
use crate::pid::Pid;
use crate::timer::Timers;

#[test]
fn fired_timers_are_forgotten_and_pending_timers_are_kept() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let mut head = Head::new(Pid::FIRST);
    let set = |head: &mut Head, tag: u64, delay: Duration| {
        let key = timers.after(delay, Box::new(|| ())).ok().unwrap();
        head.timers_set(tag, key, || manual.now());
    };
    set(&mut head, 1, Duration::MAX);
    set(&mut head, 2, Duration::from_secs(1_000_000));
    for tag in 3..10_003 {
        set(&mut head, tag, Duration::from_secs(1));
        manual.advance(Duration::from_secs(1));
        let remembered = head.rare().timers.len();
        assert!(remembered <= 16, "{remembered} after {tag}");
    }
    assert_eq!((timers.fired(), timers.pending()), (10_000, 1));
    assert!(head.rare().timers[&1].is_none() && head.rare().timers[&2].is_some());
}

#[test]
fn pending_timers_are_looked_through_no_more_often_than_they_double() {
    let manual = ManualClock::new();
    let timers = Timers::new(manual.clock(), "test-timers");
    let (mut head, mut looks) = (Head::new(Pid::FIRST), 0);
    for tag in 0..10_000 {
        let key = timers.after(Duration::from_secs(1), Box::new(|| ())).ok().unwrap();
        head.timers_set(tag, key, || {
            looks += 1;
            manual.now()
        });
    }
    assert_eq!(head.rare().timers.len(), 10_000);
    assert!(looks <= 12, "{looks} times");
}
