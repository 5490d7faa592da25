//! C. Submit and wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{JobError, JobHandle, PoolError, RunError};

use crate::support::*;

#[test]
fn run_returns_after_the_job_and_execute_before_it() {
    let pool = pool(2);
    let ran = Arc::new(AtomicBool::new(false));
    let set = ran.clone();
    pool.run(move || set.store(true, Ordering::Relaxed)).unwrap();
    assert!(ran.load(Ordering::Relaxed));
    // This returns although the job cannot end before it does.
    let held = submit_held(&pool);
    held.release();
}

#[test]
fn run_returns_the_value_or_the_panic() {
    let pool = pool(1);
    assert_eq!(pool.run(|| String::from("value")).unwrap(), "value");
    let error = pool.run(|| -> u8 { panic!("on purpose") }).unwrap_err();
    assert_eq!(error.to_string(), "the job panicked: on purpose");
    let RunError::Job(JobError::Panicked(panic)) = error else { panic!("{error:?}") };
    assert_eq!(*panic.take_payload().unwrap().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(pool.stats().panicked, 1);
}

#[test]
fn a_wait_for_an_abandoned_job_ends_with_an_error() {
    let pool = pool(1);
    let held = hold(&pool);
    let waiter = std::thread::spawn({
        let pool = pool.clone();
        move || pool.run(|| 1)
    });
    until("it waits", || pool.stats().waiting == 1);
    pool.stop_timeout(std::time::Duration::ZERO).unwrap_err();
    // The worker is still held.
    assert!(matches!(wait(waiter).unwrap(), Err(RunError::Job(JobError::Abandoned))));
    held.release();
    ended(&pool);
}

#[test]
fn a_nested_run_does_not_deadlock_at_any_depth() {
    fn down(pool: &procession::pool::Pool, left: u32) -> u32 {
        let inner = pool.clone();
        if left == 0 { 0 } else { 1 + pool.run(move || down(&inner, left - 1)).unwrap() }
    }
    let pool = pool(1);
    assert_eq!(down(&pool, 50), 50);
    let stats = pool.stats();
    assert_eq!((stats.submitted, stats.finished, stats.nested, stats.workers), (50, 50, 0, 1));
}

#[test]
fn a_nested_run_is_counted_while_it_lasts_and_its_panic_is_its_own() {
    let pool = pool(1);
    let inner = pool.clone();
    let (during, error) = pool
        .run(move || {
            let inside = inner.clone();
            let during = inner.run(move || inside.stats()).unwrap();
            (during, inner.run(|| panic!("nested")).unwrap_err().to_string())
        })
        .unwrap();
    assert_eq!((during.running, during.nested, during.waiting, during.submitted), (1, 1, 0, 2));
    assert_eq!(error, "the job panicked: nested");
    let stats = pool.stats();
    assert_eq!((stats.submitted, stats.finished, stats.panicked), (3, 3, 1));
}

#[test]
fn a_wait_from_inside_runs_the_queued_job_on_its_worker() {
    let pool = pool(1);
    let inner = pool.clone();
    let (same, order) = pool
        .run(move || {
            let order = Arc::new(Mutex::new(Vec::new()));
            let jobs: Vec<_> = (0..3)
                .map(|n| {
                    let order = order.clone();
                    inner
                        .spawn(move || {
                            order.lock().unwrap().push(n);
                            std::thread::current().id()
                        })
                        .unwrap()
                })
                .collect();
            let ids: Vec<_> = jobs.into_iter().rev().map(|job| job.wait().unwrap()).collect();
            let order = order.lock().unwrap().clone();
            (ids.iter().all(|id| *id == std::thread::current().id()), order)
        })
        .unwrap();
    assert!(same);
    assert_eq!(order, [2, 1, 0], "as they were waited for");
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!((pool.stats().finished, pool.stats().withdrawn), (4, 0));
}

#[test]
fn a_batch_from_inside_is_shared_with_free_workers() {
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let (inner, count) = (pool.clone(), ran.clone());
    let results = pool
        .run(move || {
            let jobs = (0..100).map(|n| {
                let (count, inner) = (count.clone(), inner.clone());
                // Each runs a batch in its turn.
                move || {
                    add(&count);
                    inner.run_all((0..3).map(|m| move || m * n)).into_iter().map(Result::unwrap).sum::<i32>()
                }
            });
            inner.run_all(jobs).into_iter().map(Result::unwrap).collect::<Vec<_>>()
        })
        .unwrap();
    assert_eq!(results, (0..100).map(|n| 3 * n).collect::<Vec<_>>());
    assert_eq!(ran.load(Ordering::SeqCst), 100);
}

#[test]
fn a_nested_run_is_refused_by_a_pool_that_drains() {
    let pool = pool(1);
    let inner = pool.clone();
    let refused = pool
        .run(move || {
            inner.close();
            match inner.run(|| 1) {
                Err(RunError::Refused(refused)) => matches!(refused.reason(), PoolError::Stopped(_)),
                _ => false,
            }
        })
        .unwrap();
    assert!(refused);
}

#[test]
fn a_wait_from_inside_runs_the_job_unless_it_has_a_limit() {
    let pool = pool(1);
    let inner = pool.clone();
    let same = pool
        .run(move || {
            let id = || std::thread::current().id();
            let over = inner.spawn(id).unwrap();
            assert!(over.wait_finished_timeout(Duration::ZERO).is_err());
            assert!(over.wait_finished().is_ok() && over.wait_finished().is_ok());
            let limited = over.wait_timeout(Duration::ZERO).unwrap().unwrap();
            let unlimited = inner.spawn(id).unwrap().wait_timeout(Duration::ZERO).unwrap_err().into_inner();
            let unlimited = unlimited.wait_timeout(Duration::MAX).unwrap().unwrap();
            let pacer = procession::pool::Pacer::new(Duration::MAX);
            pacer.wait(&procession::CancelToken::new()).unwrap();
            let paced = pacer.spawn(&inner, || ()).unwrap();
            assert!(paced.wait_finished().is_err(), "it cannot be waited for");
            limited == id() && unlimited == id()
        })
        .unwrap();
    assert!(same);
    ended(&pool);
}

#[test]
fn a_job_that_waits_for_itself_has_an_error_and_not_a_hang() {
    let pool = pool(1);
    let inner = pool.clone();
    let (give, own) = std::sync::mpsc::channel::<JobHandle<()>>();
    let (told, answer) = std::sync::mpsc::channel();
    let job = pool
        .spawn(move || {
            let own = wait(&own).unwrap();
            assert!(own.wait_finished().is_err(), "it is not over, and cannot be waited for");
            let own = own.wait_timeout(Duration::ZERO).unwrap_err().into_inner();
            // Nor by a job that it waits for, which runs on top of it.
            told.send(inner.run(move || own.wait()).unwrap()).unwrap();
        })
        .unwrap();
    give.send(job).unwrap();
    assert!(matches!(answer.recv_timeout(LIMIT).unwrap(), Err(JobError::Inside)));
    ended(&pool);
    assert_eq!(pool.stats().panicked, 0);
}
