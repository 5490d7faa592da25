//! H. Status and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::PoolStatus;

use crate::support::*;

#[test]
fn the_status_is_right_at_all_times_and_goes_only_forward() {
    for drains in [true, false] {
        let pool = pool(2);
        let held = hold_all(&pool, 2);
        let _waits = submit_held(&pool);
        assert_eq!(pool.status(), PoolStatus::Running);
        let watching = AtomicBool::new(true);
        together(|scope| {
            scope.spawn(|| {
                let mut last = PoolStatus::Running;
                while watching.load(Ordering::SeqCst) {
                    let now = pool.status();
                    assert!(now >= last, "{now:?} after {last:?}");
                    last = now;
                }
            });
            if drains {
                pool.drain_timeout(Duration::ZERO).unwrap_err();
                assert_eq!(pool.status(), PoolStatus::Draining, "as soon as it begins");
            }
            if !drains {
                pool.stop_timeout(Duration::ZERO).unwrap_err();
                assert_eq!(pool.status(), PoolStatus::Stopped);
            }
            drop(held);
            _waits.release();
            pool.drain().unwrap();
            assert_eq!(pool.status(), PoolStatus::Stopped, "when any of them has returned");
            watching.store(false, Ordering::SeqCst);
        });
    }
}

#[test]
fn the_number_of_waiting_jobs_can_be_read_at_any_time() {
    let pool = pool(5);
    let held = hold_all(&pool, 5);
    let (ran, seen) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    together(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let ran = ran.clone();
                    pool.execute(move || add(&ran)).unwrap();
                    let waiting = pool.stats().waiting;
                    assert!((1..=200).contains(&waiting));
                    if waiting < 200 {
                        add(&seen);
                    }
                }
            });
        }
    });
    assert!(seen.load(Ordering::SeqCst) > 0);
    assert_eq!(pool.stats().waiting, 200);
    drop(held);
    pool.drain().unwrap();
    assert_eq!((pool.stats().waiting, ran.load(Ordering::SeqCst)), (0, 200));
}

#[test]
fn the_counts_are_of_one_moment_and_add_up() {
    let pool = pool(3);
    let held = hold_all(&pool, 3);
    let jobs: Vec<_> = (0..9).map(|n| pool.spawn(move || n).unwrap()).collect();
    assert!(jobs[4].cancel() && jobs[7].cancel());
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.idle, stats.running, stats.waiting), (3, 0, 3, 7));
    assert_eq!((stats.unfinished(), stats.withdrawn, stats.submitted), (10, 2, 12));
    let watching = AtomicBool::new(true);
    together(|scope| {
        scope.spawn(|| {
            while watching.load(Ordering::SeqCst) {
                let stats = pool.stats();
                let sum = stats.finished + stats.unfinished() as u64 + stats.abandoned + stats.withdrawn;
                assert_eq!(stats.submitted, sum, "{stats:?}");
                assert!(stats.workers <= 3 && stats.running + stats.idle == stats.workers, "{stats:?}");
            }
        });
        drop(held);
        for _ in 0..2_000 {
            let inner = pool.clone();
            pool.execute(move || drop(inner.run(|| ()))).unwrap();
        }
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        assert_eq!(pool.stats().unfinished(), 0);
        let held = hold_all(&pool, 3);
        let left: Vec<Blocker> = (0..9).map(|_| submit_held(&pool)).collect();
        let _ = pool.stop_timeout(Duration::ZERO);
        assert_eq!((pool.stats().unfinished(), pool.stats().abandoned), (3, 9));
        drop((held, left));
        pool.stop().unwrap();
        watching.store(false, Ordering::SeqCst);
    });
    let stats = pool.stats();
    assert_eq!((stats.unfinished(), stats.workers, stats.idle), (0, 0, 0));
    assert!(format!("{pool:?}").contains("abandoned: 9"));
}

#[test]
fn there_are_never_more_threads_than_the_maximum() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (starts, ends, high) = (now.clone(), now.clone(), most.clone());
    let pool = builder(3)
        .idle_period(Some(Duration::from_nanos(1)))
        .on_start(move || {
            high.fetch_max(starts.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        })
        .on_end(move || {
            ends.fetch_sub(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    together(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..300 {
                    pool.execute(|| ()).unwrap();
                    if n % 10 == 0 {
                        // Time for workers to end, so that new ones are started.
                        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
                        std::thread::yield_now();
                    }
                    assert!(pool.stats().workers <= 3);
                }
            });
        }
    });
    pool.drain().unwrap();
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!((now.load(Ordering::SeqCst), pool.stats().finished), (0, 1_200));
}
