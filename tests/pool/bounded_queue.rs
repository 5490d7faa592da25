//! Queues with a bound (7, and beyond the original).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{Pool, PoolError, QueuePolicy};

use crate::support::*;

fn bounded(max: usize, queue: QueuePolicy) -> Pool {
    builder(max).queue(queue).build().unwrap()
}

fn is_full<F>(refused: Result<(), procession::Rejected<F, PoolError>>) -> bool {
    matches!(refused.unwrap_err().reason(), PoolError::Full)
}

#[test]
fn a_bounded_queue_takes_exactly_as_many_as_its_bound() {
    for bound in [0, 1, 64] {
        let pool = bounded(1, QueuePolicy::Reject(bound));
        let held = hold(&pool);
        let ran = Arc::new(AtomicUsize::new(0));
        submit_counted(&pool, &ran, bound);
        let refused = pool.execute(|| ()).unwrap_err();
        assert_eq!(refused.to_string(), "the pool's queue is full");
        assert!(is_full(pool.execute_timeout(|| (), Duration::ZERO)));
        assert!(pool.run(|| ()).is_err());
        assert_eq!((pool.stats().waiting, pool.stats().submitted), (bound, bound as u64 + 1));
        held.release();
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        assert_eq!(ran.load(Ordering::SeqCst), bound);
        refused.into_inner()();
    }
}

#[test]
fn without_a_queue_a_job_is_handed_to_a_free_worker() {
    let pool = bounded(2, QueuePolicy::Reject(0));
    let one = hold(&pool);
    let two = hold(&pool);
    assert!(is_full(pool.execute(|| ())));
    one.release();
    until("one is free", || pool.stats().running == 1);
    let three = hold(&pool);
    assert!(is_full(pool.execute(|| ())));
    drop((two, three));
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    for n in 0..500 {
        assert_eq!(pool.run(move || n).unwrap(), n);
    }
}

#[test]
fn a_submitter_waits_for_room_where_the_queue_blocks() {
    for bound in [0, 1, 5] {
        let pool = bounded(2, QueuePolicy::Block(bound));
        let ran = Arc::new(AtomicUsize::new(0));
        together(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let ran = ran.clone();
                        pool.execute(move || add(&ran)).unwrap();
                        let stats = pool.stats();
                        assert!(stats.waiting <= bound + stats.idle, "{stats:?}");
                    }
                });
            }
        });
        pool.drain_timeout(LIMIT).unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 2_000);
    }
}

#[test]
fn a_wait_for_room_has_a_limit_and_hands_the_job_back() {
    for queue in [QueuePolicy::Block(1), QueuePolicy::Reject(1)] {
        let manual = procession::clock::ManualClock::new();
        let pool = builder(1).queue(queue).clock(manual.clock()).build().unwrap();
        let held = hold(&pool);
        pool.execute(|| ()).unwrap();
        let waits = std::thread::spawn({
            let pool = pool.clone();
            move || is_full(pool.execute_timeout(|| (), SECOND * 5))
        });
        advance_until("it gives up", &manual, SECOND, || waits.is_finished());
        assert!(wait(waits).unwrap());
        let waits = std::thread::spawn({
            let pool = pool.clone();
            move || pool.spawn_timeout(|| 7, Duration::MAX).unwrap().wait().unwrap()
        });
        held.release();
        assert_eq!(wait(waits).unwrap(), 7);
    }
}

#[test]
fn stopping_refuses_submitters_that_wait_for_room() {
    for drains in [true, false] {
        let pool = bounded(1, QueuePolicy::Block(0));
        let held = hold(&pool);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| pool.execute(|| ()).is_err())).collect();
            if drains {
                pool.close();
            } else {
                let _ = pool.stop_timeout(Duration::ZERO);
            }
            assert!(waiting.into_iter().all(|thread| wait(thread).unwrap()));
        });
        held.release();
        ended(&pool);
    }
}

#[test]
fn a_job_never_waits_for_room_in_its_own_pool() {
    let pool = bounded(1, QueuePolicy::Block(1));
    let inner = pool.clone();
    let (first, second, third, nested, batch) = pool
        .run(move || {
            let first = inner.execute(|| ()).is_ok();
            let second = is_full(inner.execute(|| ()));
            let third = is_full(inner.execute_timeout(|| (), LIMIT));
            let nested = inner.run(|| 5).unwrap();
            let batch: Vec<i32> = inner.run_all((0..4).map(|n| move || n)).into_iter().map(Result::unwrap).collect();
            (first, second, third, nested, batch)
        })
        .unwrap();
    assert!(first && second && third);
    assert_eq!((nested, batch), (5, vec![0, 1, 2, 3]), "what it waits for it runs itself");
}

#[test]
fn room_comes_with_a_cancel_with_more_workers_and_after_a_pause() {
    let pool = bounded(1, QueuePolicy::Block(1));
    let held = hold(&pool);
    let waits = pool.spawn(|| ()).unwrap();
    std::thread::scope(|scope| {
        let stands = scope.spawn(|| pool.execute(|| ()).is_ok());
        assert!(waits.cancel());
        assert!(wait(stands).unwrap());
        let stands = scope.spawn(|| pool.execute(|| ()).is_ok());
        pool.resize(0, 2).unwrap();
        assert!(wait(stands).unwrap());
        held.release();
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        let pause = pool.pause().unwrap();
        pool.execute(|| ()).unwrap();
        assert!(is_full(pool.execute_timeout(|| (), Duration::ZERO)), "in a pause nobody is free for it");
        let stands = scope.spawn(|| pool.execute(|| ()).is_ok());
        drop(pause);
        assert!(wait(stands).unwrap());
    });
    pool.drain_timeout(LIMIT).unwrap();
}

/// A waker that takes its time.
struct Slow;

impl std::task::Wake for Slow {
    fn wake(self: Arc<Self>) {
        (0..2_000).for_each(|_| std::thread::yield_now());
    }
}

#[test]
fn room_that_appears_while_a_waker_runs_is_told() {
    for _ in 0..50 {
        let pool = builder(1).queue(QueuePolicy::Block(0)).idle_period(None).build().unwrap();
        let go = procession::sync::Latch::new();
        let gate = go.clone();
        let mut job = pool.spawn(move || wait(&gate)).unwrap();
        let waker = std::task::Waker::from(Arc::new(Slow));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(std::pin::Pin::new(&mut job).poll(&mut context).is_pending());
        let (done, stander) = (Arc::new(AtomicUsize::new(0)), pool.clone());
        let count = done.clone();
        let stands = std::thread::spawn(move || stander.execute(move || add(&count)).unwrap());
        (0..200).for_each(|_| std::thread::yield_now());
        go.set(()).unwrap();
        until("who stands has had the room", || done.load(Ordering::SeqCst) == 1);
        wait(stands).unwrap();
    }
}
