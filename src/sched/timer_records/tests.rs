//! Tests of how a process records its timers.

use std::time::Duration;

use super::{FEW, TimerRecords};
use crate::clock::ManualClock;
use crate::timer::{TimerKey, Timers};

fn setter(manual: &ManualClock) -> (Timers, impl Fn(Duration) -> Option<TimerKey>) {
    let timers = Timers::new(manual.clock(), "test-timers");
    let sets = timers.clone();
    (timers, move |delay| sets.after(delay, Box::new(|| ())).ok().unwrap())
}

#[test]
fn fired_timers_are_forgotten_and_pending_timers_are_kept() {
    let manual = ManualClock::new();
    let (timers, set) = setter(&manual);
    let mut records = TimerRecords::default();
    records.note(1, set(Duration::MAX), || manual.now());
    let kept = set(Duration::from_secs(1_000_000));
    records.note(2, kept, || manual.now());
    for tag in 3..10_003 {
        records.note(tag, set(Duration::from_secs(1)), || manual.now());
        manual.advance(Duration::from_secs(1));
        let remembered = records.all.len();
        assert!(remembered <= FEW, "{remembered} after {tag}");
    }
    assert_eq!((timers.fired(), timers.pending()), (10_000, 1));
    assert_eq!((records.remove(1), records.remove(2), records.remove(2)), (Some(None), Some(kept), None));
}

#[test]
fn pending_timers_are_looked_through_no_more_often_than_they_double() {
    let manual = ManualClock::new();
    let (_timers, set) = setter(&manual);
    let (mut records, mut looks) = (TimerRecords::default(), 0);
    for tag in 0..10_000 {
        records.note(tag, set(Duration::from_secs(1)), || {
            looks += 1;
            manual.now()
        });
    }
    assert_eq!(records.all.len(), 10_000);
    assert!(looks <= 12, "{looks} times");
    assert_eq!(records.take().count(), 10_000);
    assert_eq!(records.take().count(), 0);
}

#[test]
fn cancelled_timers_are_forgotten_in_any_order() {
    let manual = ManualClock::new();
    let (_timers, set) = setter(&manual);
    let mut records = TimerRecords::default();
    let keys: Vec<_> = (0..1_000).map(|_| set(Duration::from_secs(1))).collect();
    (0..).zip(&keys).for_each(|(tag, key)| records.note(tag, *key, || manual.now()));
    // The oldest first, and then the newest.
    for tag in (0..500).chain((501..1_000).rev()) {
        assert_eq!(records.remove(tag), Some(keys[tag as usize]));
        assert_eq!(records.remove(tag), None);
    }
    assert_eq!(records.all.len(), 501);
    (1_000..2_000).for_each(|tag| records.note(tag, keys[0], || manual.now()));
    assert_eq!(records.all.len(), 1_001);
    assert_eq!(
        records.take().collect::<Vec<_>>(),
        [&keys[500..501], &vec![keys[0]; 1_000]].concat().iter().map(|key| key.unwrap()).collect::<Vec<_>>()
    );
    records.note(2_000, None, || manual.now());
    assert!(records.all.capacity() <= 16, "the memory of many is returned");
}
