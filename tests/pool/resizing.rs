//! Resizing, and waiting until a pool is idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::PoolBuildError;

use crate::support::*;

#[test]
fn a_greater_maximum_starts_workers_for_what_waits_at_once() {
    let pool = pool(1);
    let first = hold(&pool);
    let held: Vec<Blocker> = (0..3).map(|_| submit_held(&pool)).collect();
    pool.resize(0, 3).unwrap();
    held[0].wait_begun();
    held[1].wait_begun();
    assert_eq!((pool.stats().max, pool.stats().workers, pool.stats().waiting), (3, 3, 1));
    drop((first, held));
    ended(&pool);
}

#[test]
fn a_smaller_maximum_ends_idle_workers_at_once_and_others_later() {
    let (pool, _manual) = by_hand(4);
    rested(&pool, 4);
    pool.resize(0, 2).unwrap();
    until("the surplus has gone", || pool.stats().workers == 2);

    pool.resize(2, 4).unwrap();
    let held = hold_all(&pool, 4);
    pool.resize(1, 1).unwrap();
    assert_eq!((pool.stats().workers, pool.stats().max), (4, 1), "nobody is torn from a job");
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    drop(held);
    until("the surplus has gone", || pool.stats().workers == 1);
    for _ in 0..100 {
        let (now, most) = (now.clone(), most.clone());
        pool.execute(move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            now.fetch_sub(1, Ordering::SeqCst);
        })
        .unwrap();
    }
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn a_smaller_minimum_lets_the_idle_ones_age() {
    let manual = procession::clock::ManualClock::new();
    let pool = builder(3).min(3).idle_period(Some(SECOND)).clock(manual.clock()).build().unwrap();
    rested(&pool, 3);
    for _ in 0..100 {
        manual.advance(SECOND);
        std::thread::yield_now();
    }
    assert_eq!(pool.stats().workers, 3);
    pool.resize(0, 3).unwrap();
    advance_until("they have gone", &manual, SECOND, || pool.stats().workers == 0);
}

#[test]
fn a_size_that_makes_no_sense_is_refused_and_changes_nothing() {
    let pool = builder(3).min(1).build().unwrap();
    assert_eq!(pool.resize(0, 0).unwrap_err(), PoolBuildError::Max { given: 0 });
    assert_eq!(pool.resize(4, 3).unwrap_err(), PoolBuildError::Min { min: 4, max: 3 });
    assert_eq!((pool.stats().min, pool.stats().max), (1, 3));
    pool.resize(usize::MAX, usize::MAX).unwrap();
    assert_eq!(pool.run(|| 1).unwrap(), 1);
    pool.stop().unwrap();
    pool.resize(0, 7).unwrap();
    assert_eq!(pool.stats().max, 7, "of a stopped pool it is a number and nothing else");
}

#[test]
fn a_pool_is_resized_in_a_pause_in_a_drain_and_by_its_own_jobs() {
    let pool = pool(1);
    let pause = pool.pause().unwrap();
    let held: Vec<Blocker> = (0..3).map(|_| submit_held(&pool)).collect();
    pool.resize(0, 2).unwrap();
    assert_eq!(pool.stats().workers, 0);
    drop(pause);
    held[1].wait_begun();
    pool.close();
    pool.resize(0, 3).unwrap();
    held[2].wait_begun();
    drop(held);
    pool.drain_timeout(LIMIT).unwrap();

    let pool = self::pool(3);
    let inner = pool.clone();
    pool.run(move || inner.resize(0, 1).unwrap()).unwrap();
    assert_eq!(pool.run(|| 1).unwrap(), 1);
}

#[test]
fn waiting_for_an_idle_pool_does_not_end_it() {
    let (pool, manual) = by_hand(2);
    assert!(pool.wait_idle_timeout(Duration::ZERO).is_ok(), "a new pool is idle");
    let held = hold_all(&pool, 2);
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || pool.wait_idle_timeout(SECOND * 3).is_ok()
    });
    advance_until("it gives up", &manual, SECOND, || waits.is_finished());
    assert!(!wait(waits).unwrap());
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || (pool.wait_idle().is_ok(), pool.stats().unfinished())
    });
    drop(held);
    assert_eq!(wait(waits).unwrap(), (true, 0));
    assert_eq!(pool.run(|| 1).unwrap(), 1);
}
