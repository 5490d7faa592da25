//! Resizing, waiting for idleness, and hooks (beyond the original).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::PoolBuildError;

use crate::helpers::*;

#[test]
fn a_greater_maximum_starts_workers_for_what_waits_at_once() {
    let pool = pool(1);
    let first = hold(&pool);
    let held: Vec<Held> = (0..3).map(|_| submit_held(&pool)).collect();
    pool.resize(0, 3).unwrap();
    held[0].begun();
    held[1].begun();
    assert_eq!((pool.stats().max, pool.stats().workers, pool.stats().waiting), (3, 3, 1));
    drop((first, held));
    ended(&pool);
}

#[test]
fn a_smaller_maximum_ends_those_who_rest_at_once_and_those_who_work_after_their_job() {
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
    until("they have gone", || {
        manual.advance(SECOND);
        pool.stats().workers == 0
    });
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
    let held: Vec<Held> = (0..3).map(|_| submit_held(&pool)).collect();
    pool.resize(0, 2).unwrap();
    assert_eq!(pool.stats().workers, 0);
    drop(pause);
    held[1].begun();
    pool.close();
    pool.resize(0, 3).unwrap();
    held[2].begun();
    drop(held);
    pool.drain_timeout(LIMIT).unwrap();

    let pool = self::pool(3);
    let inner = pool.clone();
    pool.run(move || inner.resize(0, 1).unwrap()).unwrap();
    assert_eq!(pool.run(|| 1).unwrap(), 1);
}

#[test]
fn waiting_until_nothing_is_left_does_not_end_the_pool() {
    let (pool, manual) = by_hand(2);
    assert!(pool.wait_idle_timeout(Duration::ZERO).is_ok(), "a new pool is idle");
    let held = hold_all(&pool, 2);
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || pool.wait_idle_timeout(SECOND * 3).is_ok()
    });
    until("it gives up", || {
        manual.advance(SECOND);
        waits.is_finished()
    });
    assert!(!wait(waits).unwrap());
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || (pool.wait_idle().is_ok(), pool.stats().unfinished())
    });
    drop(held);
    assert_eq!(wait(waits).unwrap(), (true, 0));
    assert_eq!(pool.run(|| 1).unwrap(), 1);
}

#[test]
fn each_thread_calls_the_start_hook_before_its_first_job_and_the_end_hook_after_its_last() {
    thread_local!(static STARTED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    let (starts, ends) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (start, end) = (starts.clone(), ends.clone());
    let pool = builder(3)
        .on_start(move || {
            STARTED.set(STARTED.get() + 1);
            add(&start);
        })
        .on_end(move || {
            assert_eq!(STARTED.get(), 1);
            add(&end);
        })
        .build()
        .unwrap();
    let together = Arc::new(Barrier::new(3));
    let results = pool.run_all((0..3).map(|_| {
        let together = together.clone();
        move || {
            wait(&together);
            STARTED.get()
        }
    }));
    assert!(results.into_iter().all(|started| started.unwrap() == 1));
    assert_eq!(ends.load(Ordering::SeqCst), 0);
    pool.stop().unwrap();
    assert_eq!((starts.load(Ordering::SeqCst), ends.load(Ordering::SeqCst)), (3, 3), "before the stop returned");
}

#[test]
fn a_job_that_comes_while_the_last_worker_is_in_its_end_hook_has_another() {
    let (leaving, go) = (procession::Latch::new(), procession::Latch::new());
    let (set, gate) = (leaving.clone(), go.clone());
    let manual = procession::clock::ManualClock::new();
    let pool = builder(1)
        .idle_period(Some(SECOND))
        .clock(manual.clock())
        .on_end(move || {
            let _ = set.set(());
            wait(&gate);
        })
        .build()
        .unwrap();
    pool.run(|| ()).unwrap();
    until("it leaves", || {
        manual.advance(SECOND);
        leaving.is_set()
    });
    let job = pool.spawn(|| 7).unwrap();
    assert_eq!((pool.stats().workers, pool.stats().waiting), (1, 1), "there may not be two");
    go.set(()).unwrap();
    assert_eq!(wait(job).unwrap(), 7);
    assert_eq!(pool.stats().workers, 1);
}

#[test]
fn hooks_may_use_the_pool_that_they_belong_to() {
    let slot: Arc<Mutex<Option<procession::pool::Pool>>> = Arc::default();
    let (from_start, from_panic) = (slot.clone(), slot.clone());
    let pool = builder(1)
        .on_start(move || {
            let pool = from_start.lock().unwrap().clone().unwrap();
            assert!(pool.is_inside());
            pool.execute(|| ()).unwrap();
        })
        .on_panic(move |_| {
            let pool = from_panic.lock().unwrap().clone().unwrap();
            assert_eq!(pool.run(|| 1).unwrap(), 1);
        })
        .build()
        .unwrap();
    *slot.lock().unwrap() = Some(pool.clone());
    pool.execute(|| panic!("on purpose")).unwrap();
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!((pool.stats().finished, pool.stats().panicked), (3, 1));
    slot.lock().unwrap().take();
    ended(&pool);
}
