//! G. Stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{PoolError, PoolStatus};
use procession::sync::Latch;

use crate::support::*;

#[test]
fn stopping_waits_for_what_runs_and_abandons_exactly_what_waits() {
    for (workers, jobs) in [(5, 20), (2, 64)] {
        let pool = pool(workers);
        let held: Vec<Blocker> = (0..jobs).map(|_| submit_held(&pool)).collect();
        held[..workers].iter().for_each(Blocker::wait_begun);
        let still = pool.stop_timeout(Duration::ZERO).unwrap_err();
        assert_eq!((still.running, still.waiting, still.abandoned), (workers, 0, (jobs - workers) as u64));
        let text = format!(
            "the limit was over: {workers} jobs are still running and 0 waiting, {} were abandoned",
            jobs - workers
        );
        assert_eq!(still.to_string(), text);
        let stopper = std::thread::spawn({
            let pool = pool.clone();
            move || (pool.stop().unwrap().abandoned, pool.stats().finished)
        });
        assert_eq!(pool.stats().running, workers);
        drop(held);
        assert_eq!(wait(stopper).unwrap(), ((jobs - workers) as u64, workers as u64));
        ended(&pool);
    }
}

#[test]
fn draining_runs_everything_that_waits() {
    let pool = pool(5);
    let ran = Arc::new(AtomicUsize::new(0));
    submit_counted(&pool, &ran, 20);
    assert_eq!(pool.drain().unwrap().abandoned, 0);
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().workers), (20, 0));
}

#[test]
fn ending_an_unused_pool_returns_and_so_does_ending_one_again() {
    for (drains, again) in [(false, false), (false, true), (true, false), (true, true)] {
        let pool = pool(3);
        for drains in [drains, again, drains] {
            let ended = if drains { pool.drain() } else { pool.stop() };
            assert_eq!(ended.unwrap().abandoned, 0);
            assert_eq!(pool.status(), PoolStatus::Stopped);
        }
    }
}

#[test]
fn no_stop_of_several_returns_while_jobs_run() {
    let pool = pool(2);
    let held = hold_all(&pool, 2);
    let (over, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
    together(|scope| {
        for drains in [false, true, false, true] {
            let (pool, over, returned) = (&pool, &over, &returned);
            scope.spawn(move || {
                let ended = if drains { pool.drain() } else { pool.stop() };
                ended.unwrap();
                assert_eq!(over.load(Ordering::SeqCst), 1, "it has returned while jobs ran");
                add(returned);
            });
        }
        until("all have begun to", || pool.status() != PoolStatus::Running);
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        add(&over);
        drop(held);
    });
    assert_eq!(returned.load(Ordering::SeqCst), 4);
}

#[test]
fn a_stop_cuts_a_drain_short_and_a_drain_does_not_change_a_stop() {
    let pool = pool(1);
    let held = hold(&pool);
    let waiting: Vec<Blocker> = (0..4).map(|_| submit_held(&pool)).collect();
    let still = pool.drain_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((still.running, still.waiting, pool.status()), (1, 4, PoolStatus::Draining));
    pool.stop_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((pool.status(), pool.stats().abandoned), (PoolStatus::Stopped, 4));
    pool.drain_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(pool.status(), PoolStatus::Stopped);
    held.release();
    assert_eq!(pool.drain().unwrap().abandoned, 4);
    assert!(waiting.iter().all(|held| !held.has_begun()));
}

#[test]
fn while_it_drains_new_jobs_are_refused_also_from_running_jobs() {
    let pool = pool(1);
    let (blocker, out) = (Blocker::new(), Latch::new());
    let (inner, blocked, set) = (pool.clone(), blocker.blocked(), out.clone());
    pool.execute(move || {
        blocked.wait();
        let refused = inner.execute(|| ()).unwrap_err();
        set.set(matches!(refused.reason(), PoolError::Stopped(PoolStatus::Draining))).unwrap();
    })
    .unwrap();
    blocker.wait_begun();
    pool.close();
    assert_eq!(pool.status(), PoolStatus::Draining);
    assert!(pool.execute(|| ()).is_err());
    blocker.release();
    assert!(wait(&out));
    pool.drain().unwrap();
}

#[test]
fn closing_and_waiting_are_two_calls() {
    let pool = pool(1);
    let held = hold(&pool);
    let last = pool.spawn(|| 1).unwrap();
    pool.close();
    held.release();
    assert_eq!(wait(last).unwrap(), 1);
    pool.drain_timeout(LIMIT).unwrap();
}

#[test]
fn ending_a_pool_from_one_of_its_jobs_does_not_deadlock() {
    for drains in [false, true] {
        let pool = pool(1);
        let inner = pool.clone();
        let job = pool
            .spawn(move || {
                let ended = if drains { inner.drain() } else { inner.stop() };
                (inner.is_inside(), ended.is_ok(), inner.wait_idle().is_ok())
            })
            .unwrap();
        assert_eq!(wait(job).unwrap(), (true, true, false));
        assert!(!pool.is_inside());
        pool.stop().unwrap();
        assert_eq!(pool.status(), PoolStatus::Stopped);
    }
}

#[test]
fn abandoned_jobs_are_dropped_before_stop_returns() {
    let pool = pool(1);
    let held = hold(&pool);
    let token = Arc::new(());
    for _ in 0..9 {
        let token = token.clone();
        pool.execute(move || drop(token)).unwrap();
    }
    let _ = pool.stop_timeout(Duration::ZERO);
    assert_eq!((Arc::strong_count(&token), pool.stats().waiting, pool.stats().abandoned), (1, 0, 9));
    held.release();
    ended(&pool);
}

#[test]
fn abandoned_jobs_can_be_had_back_in_order_and_run_elsewhere() {
    let pool = pool(1);
    let held = hold(&pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    for n in 0..5 {
        let order = order.clone();
        pool.execute(move || order.lock().unwrap().push(n)).unwrap();
    }
    let handle = pool.spawn(|| 7).unwrap();
    let unwanted = pool.spawn(|| 8).unwrap();
    let mut jobs = pool.abandon();
    assert_eq!((jobs.len(), pool.stats().abandoned, pool.status()), (7, 7, PoolStatus::Stopped));
    assert!(pool.abandon().is_empty());
    drop(jobs.pop());
    jobs.into_iter().for_each(|job| job());
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(wait(handle).unwrap(), 7, "who waits for it is told wherever it is run");
    assert!(wait(unwanted).is_err(), "and that it never will be");
    held.release();
    ended(&pool);
}

#[test]
fn dropping_the_last_handle_stops_the_pool() {
    let first = pool(1);
    let second = first.clone();
    let held = hold(&first);
    let token = Arc::new(());
    let kept = token.clone();
    first.execute(move || drop(kept)).unwrap();
    drop(first);
    assert_eq!(Arc::strong_count(&token), 2);
    let left = Latch::new();
    drop(second);
    assert_eq!(Arc::strong_count(&token), 1, "what waited was dropped");
    held.release();

    // Also by its own job, and the thread ends.
    let set = left.clone();
    let last = builder(1).on_end(move || set.set(()).unwrap()).build().unwrap();
    let inner = last.clone();
    let go = Latch::new();
    let gate = go.clone();
    last.execute(move || {
        wait(&gate);
        drop(inner);
    })
    .unwrap();
    drop(last);
    go.set(()).unwrap();
    wait(&left);
}

#[test]
fn a_limit_by_a_manual_clock_is_over_when_the_clock_says_so() {
    let (pool, manual) = by_hand(1);
    let held = hold(&pool);
    let stopper = std::thread::spawn({
        let pool = pool.clone();
        move || pool.stop_timeout(SECOND * 5).unwrap_err().running
    });
    advance_until("it gives up", &manual, SECOND, || stopper.is_finished());
    assert_eq!(wait(stopper).unwrap(), 1);
    held.release();
    assert!(pool.stop_timeout(Duration::MAX).is_ok(), "the greatest limit is none");
}
