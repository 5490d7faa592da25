//! B. Submitting.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::pool::{PoolError, PoolStatus};
use procession::sync::Latch;

use crate::support::*;

#[test]
fn a_job_goes_to_an_idle_worker_then_to_a_new_one_then_to_the_queue() {
    let pool = pool(2);
    let one = hold(&pool);
    assert_eq!((pool.stats().workers, pool.stats().idle, pool.stats().waiting), (1, 0, 0));
    let two = hold(&pool);
    assert_eq!((pool.stats().workers, pool.stats().waiting), (2, 0));
    let three = submit_held(&pool);
    assert_eq!((pool.stats().workers, pool.stats().waiting), (2, 1));
    assert!(!three.has_begun());
    one.release();
    three.wait_begun();
    two.release();
    until("one is idle", || pool.stats().idle == 1);
    let _four = hold(&pool);
    assert_eq!((pool.stats().workers, pool.stats().waiting), (2, 0), "the idle one has it, and no third");
}

#[test]
fn submitting_does_not_block_however_many_wait() {
    let pool = pool(1);
    let held = hold(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    submit_counted(&pool, &ran, 100_000);
    assert_eq!((pool.stats().waiting, ran.load(Ordering::SeqCst)), (100_000, 0));
    held.release();
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 100_000);
}

#[test]
fn as_many_as_the_maximum_run_at_once_and_never_more() {
    let pool = pool(3);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let held = hold_all(&pool, 3);
    for _ in 0..300 {
        let (now, most) = (now.clone(), most.clone());
        pool.execute(move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            now.fetch_sub(1, Ordering::SeqCst);
        })
        .unwrap();
    }
    drop(held);
    pool.drain_timeout(LIMIT).unwrap();
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)));
}

#[test]
fn jobs_that_need_each_other_all_have_a_worker() {
    // Workers are woken one after the other, and each job holds its worker until the last has begun.
    let pool = pool(8);
    for round in 0..300 {
        let together = Arc::new(Barrier::new(8));
        let jobs: Vec<_> = (0..8)
            .map(|_| {
                let together = together.clone();
                pool.spawn(move || wait(&together)).unwrap()
            })
            .collect();
        for job in jobs {
            assert!(job.wait_timeout(LIMIT).is_ok(), "in round {round}");
        }
        if round % 3 == 0 {
            assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        }
    }
    assert_eq!(pool.stats().workers, 8);
}

#[test]
fn with_one_worker_jobs_run_in_the_order_of_submission() {
    let pool = pool(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = hold(&pool);
    for n in 0..200 {
        let (order, inner) = (order.clone(), pool.clone());
        pool.execute(move || {
            order.lock().unwrap().push(n);
            if n == 0 {
                let order = order.clone();
                inner.execute(move || order.lock().unwrap().push(200)).unwrap();
            }
        })
        .unwrap();
    }
    held.release();
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!(*order.lock().unwrap(), (0..=200).collect::<Vec<_>>());
}

#[test]
fn with_several_workers_jobs_are_begun_in_the_order_of_submission() {
    // Each job holds its worker, so a job that begins says that all before it have begun.
    let pool = pool(4);
    let held: Vec<Blocker> = (0..64).map(|_| submit_held(&pool)).collect();
    for (n, one) in held.iter().enumerate() {
        one.wait_begun();
        assert!(held[n + 1..].iter().filter(|later| later.has_begun()).count() < 4, "{n}");
        one.release();
    }
}

#[test]
fn every_job_is_run_once_before_a_drain_returns() {
    let pool = pool(3);
    let out = Arc::new(Mutex::new(Vec::new()));
    for name in ["anna", "bert", "carl", "dora", "emil"] {
        let out = out.clone();
        pool.execute(move || out.lock().unwrap().push(name)).unwrap();
    }
    pool.drain_timeout(LIMIT).unwrap();
    let mut names = out.lock().unwrap().clone();
    names.sort_unstable();
    assert_eq!(names, ["anna", "bert", "carl", "dora", "emil"]);
}

#[test]
fn a_job_takes_and_returns_values_through_what_it_captures() {
    let pool = pool(1);
    let (words, out) = (vec![String::from("a"), String::from("b")], Latch::new());
    let set = out.clone();
    pool.execute(move || set.set(words.concat()).unwrap()).unwrap();
    assert_eq!(wait(&out), "ab");
}

#[test]
fn a_job_may_submit_others_also_when_all_workers_are_busy() {
    let pool = pool(1);
    let done = Latch::new();
    let (inner, set) = (pool.clone(), done.clone());
    pool.execute(move || {
        let last = inner.clone();
        inner.execute(move || last.execute(move || set.set(()).unwrap()).unwrap()).unwrap();
    })
    .unwrap();
    wait(&done);
}

#[test]
fn submitting_from_many_threads_at_once_loses_nothing() {
    let pool = pool(4);
    let ran = Arc::new(AtomicUsize::new(0));
    together(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                submit_counted(&pool, &ran, 1_000);
            });
        }
    });
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().finished), (8_000, 8_000));
}

#[test]
fn a_stopped_pool_hands_every_job_back_and_does_not_panic() {
    let ran = Arc::new(AtomicUsize::new(0));
    let job = || {
        let ran = ran.clone();
        move || add(&ran)
    };
    let stopped = pool(1);
    stopped.stop().unwrap();
    let refused = stopped.execute(job()).unwrap_err();
    assert_eq!(refused.to_string(), "the pool accepts no more jobs: it is Stopped");
    assert!(matches!(refused.reason(), PoolError::Stopped(PoolStatus::Stopped)));
    stopped.spawn(job()).unwrap_err().into_inner()();
    stopped.execute_timeout(job(), LIMIT).unwrap_err().into_inner()();
    stopped.spawn_timeout(job(), LIMIT).unwrap_err().into_inner()();
    stopped.run(job()).unwrap_err().into_refused().unwrap()();
    for refused in stopped.run_all([job(), job()]) {
        refused.unwrap_err().into_refused().unwrap()();
    }
    for refused in stopped.spawn_all([job(), job()]) {
        refused.unwrap_err().into_inner()();
    }
    refused.into_inner()();
    assert_eq!(ran.load(Ordering::SeqCst), 9, "each came back, and none was run by the pool");
    assert_eq!(stopped.stats().submitted, 0);

    // Decided before the job is looked at: nothing of it is dropped or run in the attempt.
    let token = Arc::new(());
    let kept = token.clone();
    let back = stopped.execute(move || drop(kept)).unwrap_err();
    assert_eq!(Arc::strong_count(&token), 2);
    drop(back);
}

#[test]
fn a_job_that_races_with_a_stop_is_run_returned_or_abandoned() {
    for round in 0..200 {
        let pool = pool(2);
        let (ran, token) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
        let accepted: usize = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let job = || {
                            let (ran, token) = (ran.clone(), token.clone());
                            move || {
                                add(&ran);
                                drop(token);
                            }
                        };
                        (0..20).filter(|_| pool.execute(job()).is_ok()).count()
                    })
                })
                .collect();
            if round % 2 == 0 {
                pool.stop_timeout(LIMIT).unwrap();
            } else {
                pool.drain_timeout(LIMIT).unwrap();
            }
            submitters.into_iter().map(|thread| wait(thread).unwrap()).sum()
        });
        let stats = pool.stats();
        assert_eq!(accepted as u64, stats.submitted);
        assert_eq!(stats.submitted, stats.finished + stats.abandoned);
        assert_eq!(stats.finished as usize, ran.load(Ordering::SeqCst));
        assert!(round % 2 == 0 || stats.abandoned == 0);
        assert_eq!(Arc::strong_count(&token), 1);
    }
}
