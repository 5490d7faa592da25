//! Handles (beyond the original).

use std::sync::Arc;
use std::time::Duration;

use procession::CancelToken;
use procession::pool::{JobError, JobHandle, JobStatus};
use procession::sync::Latch;

use crate::support::*;

#[test]
fn a_handle_gives_the_value_to_a_thread_and_to_a_future() {
    let pool = pool(2);
    let job = pool.spawn(|| vec![1, 2]).unwrap();
    assert_eq!(wait(std::thread::spawn(|| job.wait())).unwrap().unwrap(), [1, 2]);
    assert_eq!(block_on(pool.spawn(|| "value").unwrap()).unwrap(), "value");
    let error = block_on(pool.spawn(|| -> () { panic!("on purpose") }).unwrap()).unwrap_err();
    assert!(matches!(error, JobError::Panicked(panic) if panic.message() == "on purpose"));
    // A value that no other thread may look at.
    assert_eq!(wait(pool.spawn(|| std::cell::Cell::new(3)).unwrap()).unwrap().get(), 3);
}

#[test]
fn a_future_is_woken_by_its_last_waker() {
    use std::task::{Context, Poll, Waker};
    let (pool, go, ran) = (pool(1), Latch::new(), Latch::new());
    let (gate, set) = (go.clone(), ran.clone());
    let mut job = pool
        .spawn(move || {
            wait(&gate);
            set.set(()).unwrap();
        })
        .unwrap();
    let mut poll = |waker: &Waker| std::pin::Pin::new(&mut job).poll(&mut Context::from_waker(waker));
    struct Never;
    impl std::task::Wake for Never {
        fn wake(self: Arc<Self>) {
            panic!("it was replaced");
        }
    }
    let first = Arc::new(Never);
    assert!(matches!(poll(&Waker::from(first.clone())), Poll::Pending));
    assert!(matches!(poll(Waker::noop()), Poll::Pending));
    assert_eq!(Arc::strong_count(&first), 1, "the old waker is let go");
    assert!(matches!(poll(&Waker::from(first.clone())), Poll::Pending));
    drop(job);
    assert_eq!(Arc::strong_count(&first), 1);
    go.set(()).unwrap();
    wait(&ran);
    ended(&pool);
}

#[test]
fn a_wait_with_a_limit_gives_the_handle_back() {
    let (pool, manual) = by_hand(1);
    let held = hold(&pool);
    let job = pool.spawn(|| 5).unwrap();
    let job = job.wait_timeout(Duration::ZERO).unwrap_err().into_inner();
    assert!(job.wait_finished_timeout(Duration::ZERO).is_err());
    let waits = std::thread::spawn(move || job.wait_timeout(SECOND * 3).unwrap_err().into_inner());
    advance_until("it gives up", &manual, SECOND, || waits.is_finished());
    let job = wait(waits).unwrap();
    held.release();
    assert!(job.wait_finished().is_ok());
    assert_eq!(job.status(), JobStatus::Returned);
    assert_eq!(job.wait_timeout(Duration::ZERO).unwrap().unwrap(), 5, "and the value is still there");
}

#[test]
fn a_waiting_job_is_cancelled_once_and_leaves_the_queue() {
    let pool = pool(1);
    let held = hold(&pool);
    let token = Arc::new(());
    let jobs: Vec<JobHandle<()>> = (0..3)
        .map(|_| {
            let token = token.clone();
            pool.spawn(move || drop(token)).unwrap()
        })
        .collect();
    assert!(jobs[1].cancel());
    assert_eq!((pool.stats().waiting, pool.stats().withdrawn, Arc::strong_count(&token)), (2, 1, 3));
    assert!(!jobs[1].cancel());
    assert_eq!(jobs[1].status(), JobStatus::Cancelled);
    held.release();
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert!(!jobs[0].cancel(), "it is over");
    let errors: Vec<_> = jobs.into_iter().map(|job| wait(job).err().map(|error| error.to_string())).collect();
    assert_eq!(errors, [None, Some(String::from("the job was cancelled before it began")), None]);
}

#[test]
fn cancelling_wakes_a_future() {
    let pool = pool(1);
    let held = hold(&pool);
    let job = pool.spawn(|| ()).unwrap();
    struct Tell(Latch<()>);
    impl std::task::Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.set(());
        }
    }
    let woken = Latch::new();
    let waker = std::task::Waker::from(Arc::new(Tell(woken.clone())));
    let mut job = job;
    let polled = std::pin::Pin::new(&mut job).poll(&mut std::task::Context::from_waker(&waker));
    assert!(polled.is_pending());
    assert!(job.cancel());
    wait(&woken);
    assert!(matches!(block_on(job), Err(JobError::Cancelled)));
    held.release();
}

#[test]
fn a_hundred_thousand_jobs_are_cancelled_out_of_the_middle() {
    let pool = pool(1);
    let held = hold(&pool);
    let jobs: Vec<_> = (0..100_000).map(|n| pool.spawn(move || n).unwrap()).collect();
    assert!(jobs.iter().rev().filter(|job| job.times().began.is_none()).step_by(2).all(JobHandle::cancel));
    assert_eq!(pool.stats().waiting, 50_000);
    held.release();
    let values: Vec<i32> = jobs.into_iter().filter_map(|job| wait(job).ok()).collect();
    assert_eq!(values, (0..100_000).step_by(2).collect::<Vec<_>>());
}

#[test]
fn status_and_times_of_a_job() {
    let (pool, manual) = by_hand(1);
    let first = hold(&pool);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let submitted = manual.now();
    let job = pool.spawn(move || blocked.wait()).unwrap();
    assert_eq!((job.status(), job.status().is_finished()), (JobStatus::Waiting, false));
    assert_eq!((job.times().submitted, job.times().began, job.times().ended), (submitted, None, None));
    manual.advance(SECOND * 2);
    first.release();
    blocker.wait_begun();
    assert_eq!((job.status(), job.status().is_finished()), (JobStatus::Running, false));
    manual.advance(SECOND * 3);
    blocker.release();
    assert!(job.wait_finished_timeout(LIMIT).is_ok());
    assert!(job.status().is_finished());
    let times = job.times();
    assert_eq!(times.began.unwrap() - times.submitted, SECOND * 2, "in the queue");
    assert_eq!(times.ended.unwrap() - times.began.unwrap(), SECOND * 3, "at work");
    assert!(format!("{job:?}").contains("Returned"));
    let panicked = pool.spawn(|| -> () { panic!("on purpose") }).unwrap();
    assert!(panicked.wait_finished_timeout(LIMIT).is_ok());
    assert_eq!(panicked.status(), JobStatus::Panicked);
}

#[test]
fn a_running_job_is_stopped_by_a_token_that_it_shares() {
    let pool = pool(1);
    let token = CancelToken::new();
    let watched = token.clone();
    let job = pool
        .spawn(move || {
            let mut steps = 0_u64;
            while watched.check().is_ok() {
                steps += 1;
            }
            (steps, watched.reason())
        })
        .unwrap();
    until("it runs", || job.status() == JobStatus::Running);
    assert!(!job.cancel(), "it has begun");
    token.cancel("enough");
    assert_eq!(wait(job).unwrap().1, Some(procession::Reason::from("enough")));
}
