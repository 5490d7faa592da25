//! The store against a simple model, and its memory.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::{FEW, TimerStore};
use crate::clock::Clock;

#[derive(Clone, Debug)]
enum Doing {
    Set(u64),
    SetNever,
    /// Cancels the timer that was set as that many-th, if it was. It may have gone.
    Cancel(usize),
    /// Fires what is due, up to so many, when so much time has passed.
    Fire(u64, usize),
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        6 => (0..50_u64).prop_map(Doing::Set),
        1 => Just(Doing::SetNever),
        4 => (0..400_usize).prop_map(Doing::Cancel),
        1 => (0..20_u64, 0..20_usize).prop_map(|(by, most)| Doing::Fire(by, most)),
    ]
}

proptest! {
    #[test]
    fn it_does_what_a_sorted_map_does(all in prop::collection::vec(doing(), 0..600)) {
        let start = Clock::system().now();
        let at = |tick: u64| start + Duration::from_millis(tick);
        let mut store = TimerStore::new(1_000);
        let (mut model, mut nevers) = (BTreeMap::new(), BTreeMap::new());
        let (mut set, mut now) = (Vec::new(), 0);
        for (number, one) in all.into_iter().enumerate() {
            match one {
                Doing::Set(delay) => {
                    set.push((store.set(Some(at(now + delay)), number), Some(now + delay)));
                    model.insert((now + delay, set.len() - 1), number);
                }
                Doing::SetNever => {
                    set.push((store.set(None, number), None));
                    nevers.insert(set.len() - 1, number);
                }
                Doing::Cancel(which) => {
                    if let Some(&((order, slot), moment)) = set.get(which) {
                        let known = match moment {
                            Some(tick) => model.remove(&(tick, which)),
                            None => nevers.remove(&which),
                        };
                        prop_assert_eq!(store.remove(order, slot), known);
                    }
                }
                Doing::Fire(by, most) => {
                    now += by;
                    for _ in 0..most {
                        let due = model.first_entry().filter(|first| first.key().0 <= now).map(|first| first.remove());
                        prop_assert_eq!(store.pop_due(at(now)), due);
                    }
                }
            }
            prop_assert_eq!(store.pending(), model.len());
            prop_assert_eq!(store.earliest(), model.first_key_value().map(|((tick, _), _)| at(*tick)));
        }
        let mut rest = store.take_all();
        rest.sort_by_key(|(at, order, _)| (at.is_none(), *at, *order));
        let rest: Vec<_> = rest.into_iter().map(|(_, _, number)| number).collect();
        let known: Vec<_> = model.into_values().chain(nevers.into_values()).collect();
        prop_assert_eq!(rest, known);
        prop_assert!(store.earliest().is_none() && store.pending() == 0);
    }
}

const MANY: u64 = 100_000;

#[test]
fn timers_that_are_set_and_cancelled_need_no_more_memory() {
    let (start, mut store) = (Clock::system().now(), TimerStore::new(0));
    let at = |n: u64| Some(start + Duration::from_millis(n));
    let stays: Vec<_> = (0..10).map(|n| store.set(at(MANY + n), n)).collect();
    for n in 0..MANY {
        let (order, slot) = store.set(at(n * 7 % MANY), n);
        assert_eq!(store.remove(order, slot), Some(n));
    }
    let (slots, moments) = store.capacity();
    assert!(slots <= 2 * FEW && moments <= 4 * FEW, "{slots} slots, {moments} moments");
    assert!(stays.into_iter().zip(0..).all(|((order, slot), n)| store.remove(order, slot) == Some(n)));
}

/// Otherwise the buffers would be allocated anew each time the store is tidied up.
#[test]
fn buffers_keep_their_sizes_while_timers_are_set_and_cancelled() {
    for stay in [0, 1, 31, 33, 1_000] {
        let (start, mut store) = (Clock::system().now(), TimerStore::new(0));
        let at = |n: u64| Some(start + Duration::from_millis(n));
        (0..stay).for_each(|n| _ = store.set(at(n), n));
        let mut last = store.set(at(MANY), MANY);
        let mut sizes = None;
        for round in 0..20_000 {
            let next = store.set(at(MANY), MANY);
            assert_eq!(store.remove(last.0, last.1), Some(MANY));
            last = next;
            if round > 5_000 {
                assert_eq!(*sizes.get_or_insert(store.capacity()), store.capacity(), "{stay} stay, round {round}");
            }
        }
    }
}

#[test]
fn memory_of_many_timers_is_returned_when_they_have_gone() {
    let (start, mut store) = (Clock::system().now(), TimerStore::new(0));
    for fired in [false, true] {
        let keys: Vec<_> = (0..MANY).map(|n| store.set(Some(start + Duration::from_millis(n)), n)).collect();
        assert!(store.capacity().0 >= MANY as usize);
        for (n, (order, slot)) in (0..).zip(keys) {
            let gone = if fired { store.pop_due(start + Duration::from_secs(3600)) } else { store.remove(order, slot) };
            assert_eq!(gone, Some(n));
        }
        assert_eq!(store.capacity(), (FEW, 2 * FEW));
    }
}

/// Otherwise one timer that is always pending would keep the memory of the busiest time.
#[test]
fn a_timer_that_stays_does_not_keep_the_memory_of_all() {
    let (start, mut store) = (Clock::system().now(), TimerStore::new(0));
    let at = |n: u64| Some(start + Duration::from_millis(n));
    let keys: Vec<_> = (0..MANY).map(|n| store.set(at(n), n)).collect();
    let mut last = store.set(at(MANY), MANY);
    assert!(keys.into_iter().zip(0..).all(|((order, slot), n)| store.remove(order, slot) == Some(n)));
    // It is set again now and then, as the look of a watchdog is.
    for _ in 0..3 * MANY {
        let next = store.set(at(MANY), MANY);
        assert_eq!(store.remove(last.0, last.1), Some(MANY));
        last = next;
    }
    let (slots, moments) = store.capacity();
    assert!(slots <= 2 * FEW && moments <= 4 * FEW, "{slots} slots, {moments} moments");
}

/// Otherwise many threads that wait without a limit would cost each other more the more they are.
#[test]
fn timers_that_are_never_due_are_not_looked_through_one_by_one() {
    let mut store = TimerStore::new(0);
    let keys: Vec<_> = (0..MANY).map(|n| store.set(None, n)).collect();
    for (gone, (order, slot)) in (1..MANY as usize).zip(keys) {
        assert!(store.remove(order, slot).is_some());
        assert_eq!(store.gone, gone);
    }
}
