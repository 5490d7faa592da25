//! Code of the user's that hangs while a pool ends holds up no caller.
//!
//! Each test would hang if a caller waited for the destructor: it is let go only after the caller has returned.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Context;
use std::time::Duration;

use procession::WaitError;
use procession::pool::{JobError, JobHandle, Pacer, Pool, PoolEndError, PoolEndStage, PoolStatus};
use procession::sync::Latch;

use crate::support::*;

/// A pool of one busy worker, with a waiting job whose destructor hangs and another job behind it.
fn with_a_hanging_job() -> (Pool, Blocker, Blocker, Arc<()>) {
    let pool = pool(1);
    let held = hold(&pool);
    let (blocker, last) = (Blocker::new(), Arc::new(()));
    let (hangs, behind) = (BlocksInDrop(blocker.blocked()), last.clone());
    pool.execute(move || drop(hangs)).unwrap();
    pool.execute(move || drop(behind)).unwrap();
    (pool, held, blocker, last)
}

fn stage(ended: Result<procession::pool::PoolEnded, PoolEndError>) -> (PoolEndStage, usize, WaitError) {
    let error = ended.unwrap_err();
    (error.stage, error.dropping, error.why)
}

#[test]
fn a_stop_with_a_limit_names_the_abandoned_jobs_that_hang() {
    let (pool, held, blocker, last) = with_a_hanging_job();
    let still = pool.stop_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((still.stage, still.running), (PoolEndStage::Jobs, 1), "a job still runs");
    blocker.wait_begun();
    held.release();
    let limit = Duration::from_millis(1);
    until("the job has returned", || pool.stats().workers == 0);
    let still = pool.stop_timeout(limit).unwrap_err();
    assert_eq!((still.stage, still.dropping, still.why), (PoolEndStage::AbandonedJobs, 2, WaitError::TimedOut));
    let text = "the limit was over: 2 abandoned jobs have not been dropped, 2 were abandoned";
    assert_eq!(still.to_string(), text);
    // A second caller sees the same, and so does a drain.
    assert_eq!(stage(pool.drain_timeout(limit)), (PoolEndStage::AbandonedJobs, 2, WaitError::TimedOut));
    assert_eq!((pool.status(), Arc::strong_count(&last)), (PoolStatus::Stopped, 2), "the job behind it is not dropped");
    blocker.release();
    pool.stop_timeout(LIMIT).unwrap();
    assert_eq!(Arc::strong_count(&last), 1);
}

#[test]
fn a_stop_without_a_limit_does_not_wait_for_destructors_that_hang() {
    let (pool, held, blocker, _last) = with_a_hanging_job();
    let stopper = std::thread::spawn({
        let pool = pool.clone();
        move || (pool.stop().unwrap().abandoned, pool.stats().running)
    });
    blocker.wait_begun();
    assert!(!stopper.is_finished());
    held.release();
    assert_eq!(wait(stopper).unwrap(), (2, 0));
    assert_eq!(pool.drain().unwrap().abandoned, 2);
    blocker.release();
    ended(&pool);
}

#[test]
fn the_last_handle_does_not_wait_for_destructors_that_hang() {
    let (pool, held, blocker, last) = with_a_hanging_job();
    drop(pool);
    blocker.wait_begun();
    held.release();
    blocker.release();
    until("the job behind it is dropped", || Arc::strong_count(&last) == 1);
}

#[test]
fn a_job_that_stops_its_own_pool_does_not_wait_for_destructors() {
    for drops_the_last_handle in [false, true] {
        let pool = pool(1);
        let (held, blocker) = (hold(&pool), Blocker::new());
        let (ended, inner) = (Latch::new(), pool.clone());
        let (set, hangs) = (ended.clone(), BlocksInDrop(blocker.blocked()));
        pool.execute(move || {
            if !drops_the_last_handle {
                inner.stop_timeout(LIMIT).unwrap();
            }
            drop(inner);
            set.set(()).unwrap();
        })
        .unwrap();
        pool.execute(move || drop(hangs)).unwrap();
        if drops_the_last_handle {
            drop(pool);
        }
        held.release();
        wait(&ended);
        blocker.wait_begun();
        blocker.release();
    }
}

#[test]
fn a_destructor_of_an_abandoned_job_may_end_its_own_pool() {
    struct Ends(Pool, Latch<(bool, bool)>);
    impl Drop for Ends {
        fn drop(&mut self) {
            let ends = (self.0.stop_timeout(LIMIT).is_ok(), self.0.is_inside());
            self.1.set(ends).unwrap();
        }
    }
    let (pool, told) = (pool(1), Latch::new());
    let held = hold(&pool);
    let ends = Ends(pool.clone(), told.clone());
    pool.execute(move || drop(ends)).unwrap();
    pool.stop_timeout(Duration::ZERO).unwrap_err();
    assert_eq!(wait(&told), (true, true), "it does not wait for itself");
    held.release();
    ended(&pool);
}

#[test]
fn an_end_with_a_limit_names_the_threads_whose_thread_locals_hang() {
    thread_local!(static LAST: RefCell<Option<BlocksInDrop>> = const { RefCell::new(None) });
    let pool = pool(1);
    let blocker = Blocker::new();
    let hangs = BlocksInDrop(blocker.blocked());
    pool.run(move || LAST.with(|last| *last.borrow_mut() = Some(hangs))).unwrap();
    pool.close();
    blocker.wait_begun();
    assert_eq!(pool.drain().unwrap().abandoned, 0, "without a limit it does not wait for destructors");
    let limit = Duration::from_millis(1);
    let still = pool.stop_timeout(limit).unwrap_err();
    assert_eq!((still.stage, still.running, still.dropping), (PoolEndStage::Threads, 0, 0));
    let text = "the limit was over: the thread-locals of its threads have not been dropped, 0 were abandoned";
    assert_eq!(still.to_string(), text);
    assert!(pool.shutdown_node().is_closed(), "all jobs have returned");
    blocker.release();
    ended(&pool);
}

#[test]
fn a_node_that_cuts_jobs_short_is_not_held_up_by_their_destructors() {
    let manual = procession::clock::ManualClock::new();
    let pool = builder(1).clock(manual.clock()).shutdown_limit(SECOND).build().unwrap();
    let (held, blocker) = (hold(&pool), Blocker::new());
    let hangs = BlocksInDrop(blocker.blocked());
    pool.execute(move || drop(hangs)).unwrap();
    let node = pool.shutdown_node();
    node.request_shutdown();
    manual.advance(SECOND);
    blocker.wait_begun();
    held.release();
    assert!(node.wait_closed_timeout(LIMIT).is_ok(), "the last job has returned");
    blocker.release();
}

#[test]
fn a_refused_paced_job_that_hangs_holds_up_no_other() {
    let (gone, other) = (pool(1), pool(1));
    let pacer = procession::pool::Pacer::new(Duration::ZERO);
    let (blocker, count) = (Blocker::new(), Arc::new(AtomicUsize::new(0)));
    pacer.pause();
    let (hangs, counts) = (BlocksInDrop(blocker.blocked()), count.clone());
    pacer.execute(&gone, move || drop(hangs)).unwrap();
    let refused = pacer.spawn(&gone, || ()).unwrap();
    let next = pacer.spawn(&other, move || add(&counts)).unwrap();
    gone.stop().unwrap();
    pacer.resume();
    blocker.wait_begun();
    wait(next).unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert!(matches!(wait(refused), Err(JobError::Abandoned)));
    blocker.release();
}

/// Has the job's waker hang. Returns the waker's blocker, and the handle, which keeps the waker.
fn with_a_hanging_waker(mut job: JobHandle<()>) -> (Blocker, JobHandle<()>) {
    let blocker = Blocker::new();
    assert!(Pin::new(&mut job).poll(&mut Context::from_waker(&blocker.waker())).is_pending());
    (blocker, job)
}

#[test]
fn waiters_of_abandoned_jobs_are_told_though_a_destructor_hangs() {
    let (pool, held, blocker, _last) = with_a_hanging_job();
    let (own, waits, polled) = (pool.spawn(|| ()).unwrap(), pool.spawn(|| ()).unwrap(), pool.spawn(|| ()).unwrap());
    let (waker, _polled) = with_a_hanging_waker(polled);
    let pacer = Pacer::new(Duration::ZERO);
    let paced = pacer.spawn(&pool, || ()).unwrap();
    let other = self::pool(1);
    let next = pacer.spawn(&other, || 7).unwrap();
    pool.stop_timeout(Duration::ZERO).unwrap_err();
    for told in [own, waits, paced] {
        assert!(matches!(wait(told), Err(JobError::Abandoned)));
    }
    assert_eq!(wait(next).unwrap(), 7, "the turn is free again");
    // A waker that hangs keeps no thread waiting either.
    waker.wait_begun();
    assert!(!blocker.has_begun(), "wakers are called before closures are dropped");
    waker.release();
    blocker.wait_begun();
    blocker.release();
    held.release();
    ended(&pool);
}

#[test]
fn waiters_of_jobs_in_a_stopped_pacer_are_told_though_a_destructor_hangs() {
    let pool = pool(1);
    let blocker = Blocker::new();
    let hangs = BlocksInDrop(blocker.blocked());
    let pacer = Pacer::new(Duration::MAX);
    pacer.execute(&pool, || ()).unwrap();
    pacer.execute(&pool, move || drop(hangs)).unwrap();
    let behind = pacer.spawn(&pool, || ()).unwrap();
    let stopper = std::thread::spawn(move || pacer.stop());
    blocker.wait_begun();
    assert!(matches!(wait(behind), Err(JobError::Abandoned)));
    blocker.release();
    assert_eq!(wait(stopper).unwrap(), 2);
    ended(&pool);
}

#[test]
fn an_idle_pool_ends_within_a_limit_of_zero_and_never_says_that_jobs_run() {
    for _ in 0..50 {
        let pool = pool(4);
        rested(&pool, 4);
        if let Err(still) = pool.stop_timeout(Duration::ZERO) {
            // The machine has not let its workers exit in the grace.
            assert!(matches!(still.stage, PoolEndStage::Workers | PoolEndStage::Threads), "{still}");
        }
    }
}

#[test]
fn a_waker_that_hangs_on_a_worker_holds_up_no_end() {
    let pool = pool(1);
    let held = hold(&pool);
    let (blocker, _job) = with_a_hanging_waker(pool.spawn(|| ()).unwrap());
    held.release();
    blocker.wait_begun();
    assert_eq!(pool.stop().unwrap().abandoned, 0, "without a limit it does not wait for wakers");
    let still = pool.stop_timeout(Duration::from_millis(1)).unwrap_err();
    assert_eq!((still.stage, still.running, still.workers), (PoolEndStage::Workers, 0, 1));
    let text = "the limit was over: no job runs, but 1 workers have not exited (a waker, a hook or a destructor has \
                not returned), 0 were abandoned";
    assert_eq!(still.to_string(), text);
    blocker.release();
    ended(&pool);
}

#[test]
fn an_end_hook_that_hangs_holds_up_no_end() {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let pool = builder(1).on_end(move || blocked.wait()).build().unwrap();
    pool.run(|| ()).unwrap();
    assert_eq!(pool.drain().unwrap().abandoned, 0);
    blocker.wait_begun();
    let still = pool.drain_timeout(Duration::ZERO).unwrap_err();
    assert_eq!((still.stage, still.workers), (PoolEndStage::Workers, 1));
    blocker.release();
    ended(&pool);
}

#[test]
fn a_waker_of_the_node_that_hangs_holds_up_no_end() {
    for workers in [0, 2] {
        let pool = pool(2);
        rested(&pool, workers);
        let blocker = Blocker::new();
        let node = pool.shutdown_node();
        let mut closed = Box::pin(node.closed());
        assert!(closed.as_mut().poll(&mut Context::from_waker(&blocker.waker())).is_pending());
        let still = pool.stop_timeout(Duration::from_millis(1)).unwrap_err();
        // The last worker may call the waker as well.
        assert!(matches!(still.stage, PoolEndStage::Node | PoolEndStage::Threads | PoolEndStage::Workers), "{still}");
        assert!(workers > 0 || still.stage == PoolEndStage::Node, "{still}");
        blocker.wait_begun();
        assert!(node.is_closed(), "the pool has ended");
        blocker.release();
        ended(&pool);
    }
}
