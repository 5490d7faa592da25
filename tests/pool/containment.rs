//! J. Dangers that the originals show.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::pool::JobStatus;
use procession::sync::Latch;

use crate::support::*;

#[test]
fn a_panicking_job_ends_neither_the_pool_nor_its_worker() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = seen.clone();
    let pool =
        builder(1).on_panic(move |panic| hook.lock().unwrap().push(panic.message().to_string())).build().unwrap();
    let thread = pool.run(|| std::thread::current().id()).unwrap();
    let job = pool.spawn(|| -> u8 { panic!("one") }).unwrap();
    assert_eq!(wait(job).unwrap_err().to_string(), "the job panicked: one");
    pool.execute(|| panic!("two")).unwrap();
    assert_eq!(pool.run(|| std::thread::current().id()).unwrap(), thread, "the same worker goes on");
    assert_eq!((pool.stats().panicked, pool.stats().finished, pool.stats().workers), (2, 4, 1));
    assert_eq!(*seen.lock().unwrap(), ["one", "two"]);
}

#[test]
fn panicking_hooks_are_contained() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = || {
        let calls = calls.clone();
        move || {
            add(&calls);
            panic!("in a hook")
        }
    };
    let (start, end, panics) = (count(), count(), count());
    let pool = builder(1).on_start(start).on_end(end).on_panic(move |_| panics()).build().unwrap();
    pool.execute(|| panic!("in a job")).unwrap();
    assert_eq!(pool.run(|| 1).unwrap(), 1);
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!((calls.load(Ordering::SeqCst), pool.stats().finished), (3, 2));
}

struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        add(&self.0);
        panic!("in a destructor");
    }
}

#[test]
fn panicking_destructors_of_closures_and_values_are_contained() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let bomb = || Bomb(dropped.clone());
    let pool = pool(1);
    // A value that nobody wants, a payload of a panic, and what a closure captures.
    let (value, payload, captured) = (bomb(), bomb(), bomb());
    drop(pool.spawn(move || value).unwrap());
    pool.execute(move || std::panic::panic_any(payload)).unwrap();
    pool.execute(move || {
        let _captured = captured;
    })
    .unwrap();
    assert_eq!(pool.run(|| 1).unwrap(), 1);
    assert_eq!(dropped.load(Ordering::SeqCst), 3);

    // Closures that are never called: cancelled, abandoned, given back.
    let held = hold(&pool);
    let jobs: Vec<_> = (0..3)
        .map(|_| {
            let bomb = bomb();
            pool.spawn(move || drop(bomb)).unwrap()
        })
        .collect();
    assert!(jobs[1].cancel());
    let _ = pool.stop_timeout(std::time::Duration::ZERO);
    let statuses: Vec<_> = jobs.iter().map(|job| job.status()).collect();
    assert_eq!(statuses, [JobStatus::Abandoned, JobStatus::Cancelled, JobStatus::Abandoned]);
    assert_eq!(dropped.load(Ordering::SeqCst), 6);
    held.release();
    ended(&pool);
}

#[test]
fn two_hundred_rounds_of_five_instant_jobs_and_a_drain_lose_none() {
    for _ in 0..200 {
        let pool = pool(2);
        let ran = Arc::new(AtomicUsize::new(0));
        submit_counted(&pool, &ran, 5);
        pool.drain().unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 5);
        assert_eq!((pool.stats().finished, pool.stats().workers), (5, 0));
    }
}

#[test]
fn accepted_means_run_or_reported() {
    // There is no function without a pool; and a pool whose only thread is gone says so or runs the job.
    let pool = pool(1);
    let ran = Latch::new();
    let set = ran.clone();
    assert!(pool.execute(move || set.set(()).unwrap()).is_ok());
    wait(&ran);
    let held = hold(&pool);
    let token = Arc::new(());
    let kept = token.clone();
    let job = pool.spawn(move || drop(kept)).unwrap();
    drop(pool);
    assert_eq!((job.status(), Arc::strong_count(&token)), (JobStatus::Abandoned, 1));
    held.release();
}

#[test]
fn a_value_without_a_handle_is_dropped_once_by_the_worker() {
    struct Last(Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            add(&self.0);
        }
    }
    let pool = pool(2);
    let dropped = Arc::new(AtomicUsize::new(0));
    for _ in 0..2_000 {
        let last = Last(dropped.clone());
        // Dropped before, while and after the job ends.
        drop(pool.spawn(move || last).unwrap());
    }
    pool.drain().unwrap();
    assert_eq!(dropped.load(Ordering::SeqCst), 2_000);
}

#[test]
fn a_waker_that_hangs_costs_its_worker_and_holds_up_no_job() {
    let pool = pool(2);
    let (blocker, begin) = (Blocker::new(), Latch::new());
    let gate = begin.clone();
    let mut job = pool.spawn(move || wait(&gate)).unwrap();
    let pinned = std::pin::Pin::new(&mut job);
    assert!(pinned.poll(&mut std::task::Context::from_waker(&blocker.waker())).is_pending());
    let _ = begin.set(());
    // Its worker is counted as free for a moment, and is then in the waker. Whatever comes at any time is run.
    for n in 0..100 {
        assert_eq!(pool.run(move || n).unwrap(), n);
    }
    blocker.release();
    assert!(block_on(job).is_ok());
    ended(&pool);
}
