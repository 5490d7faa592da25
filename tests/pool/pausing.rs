//! F. Pausing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::CancelToken;
use procession::clock::ManualClock;
use procession::pool::{Pause, PauseError, Pool, PoolStatus};
use procession::sync::Latch;
use procession::timer::Timers;

use crate::support::*;

#[test]
fn a_pause_holds_when_all_jobs_from_before_it_have_been_run() {
    let pool = pool(2);
    let held = hold_all(&pool, 2);
    let ran = Arc::new(AtomicUsize::new(0));
    submit_counted(&pool, &ran, 50);
    let pause = pool.begin_pause().unwrap();
    submit_counted(&pool, &ran, 3);
    assert!(!pause.is_held() && !pool.is_paused());
    drop(held);
    pause.wait_timeout(LIMIT).unwrap();
    assert!(pause.is_held() && pool.is_paused());
    let stats = pool.stats();
    assert_eq!((ran.load(Ordering::SeqCst), stats.running, stats.waiting, stats.pauses), (50, 0, 3, 1));
    pause.resume();
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().pauses, pool.is_paused()), (53, 0, false));
}

#[test]
fn when_a_pause_holds_or_nothing_is_left_the_handles_know_it() {
    for _ in 0..500 {
        let pool = pool(2);
        let jobs: Vec<_> = (0..5).map(|n| pool.spawn(move || n).unwrap()).collect();
        let pause = pool.pause().unwrap();
        assert!(jobs.iter().all(|job| job.status().is_finished()));
        drop(pause);
        let jobs: Vec<_> = (0..5).map(|n| pool.spawn(move || n).unwrap()).collect();
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        assert!(jobs.iter().all(|job| job.status().is_finished()));
    }
}

#[test]
fn in_a_pause_jobs_are_taken_and_kept_and_none_runs() {
    let pool = pool(2);
    rested(&pool, 2);
    let pause = pool.pause().unwrap();
    let ran = Arc::new(AtomicUsize::new(0));
    submit_counted(&pool, &ran, 1);
    assert_eq!(pool.stats().waiting, 1);
    submit_counted(&pool, &ran, 9);
    assert!(pool.wait_idle_timeout(Duration::ZERO).is_err());
    assert_eq!((pool.stats().waiting, pool.stats().running, ran.load(Ordering::SeqCst)), (10, 0, 0));
    drop(pause);
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 10);
}

#[test]
fn a_pause_by_token_lasts_until_the_token_is_cancelled() {
    let pool = pool(1);
    let (token, ran) = (CancelToken::new(), Arc::new(AtomicUsize::new(0)));
    pool.pause_until(&token).unwrap();
    submit_counted(&pool, &ran, 2);
    assert_eq!((pool.is_paused(), pool.stats().waiting), (true, 2));
    token.cancel("go on");
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!((ran.load(Ordering::SeqCst), pool.is_paused()), (2, false));
}

#[test]
fn a_pause_by_token_ends_by_itself_with_a_timer_that_cancels_it() {
    let (pool, manual) = by_hand(1);
    let (token, timers) = (CancelToken::new(), Timers::new(manual.clock(), "test"));
    let ends = token.clone();
    timers.after(SECOND, Box::new(move || assert!(ends.cancel("time is over")))).ok().unwrap();
    pool.pause_until(&token).unwrap();
    let job = pool.spawn(|| 1).unwrap();
    manual.advance(SECOND / 2);
    assert!(pool.is_paused());
    manual.advance(SECOND / 2);
    assert_eq!(wait(job).unwrap(), 1);
}

#[test]
fn a_second_pause_waits_for_the_first_to_end_and_then_takes_hold() {
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let first = pool.pause().unwrap();
    submit_counted(&pool, &ran, 4);
    let second = pool.begin_pause().unwrap();
    submit_counted(&pool, &ran, 5);
    assert!(first.is_held() && !second.is_held());
    assert_eq!(second.wait_timeout(Duration::ZERO).unwrap_err(), PauseError::TimedOut);
    drop(first);
    second.wait_timeout(LIMIT).unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().waiting), (4, 5), "what came between the two was run");
    drop(second);
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!(ran.load(Ordering::SeqCst), 9);
}

#[test]
fn a_second_pause_that_is_given_up_first_changes_nothing() {
    let pool = pool(1);
    let first = pool.pause().unwrap();
    let second = pool.begin_pause().unwrap();
    drop(second);
    let job = pool.spawn(|| 1).unwrap();
    assert!(pool.is_paused());
    drop(first);
    assert_eq!(wait(job).unwrap(), 1);
}

#[test]
fn pauses_that_are_asked_for_together_hold_one_after_the_other() {
    let pool = pool(2);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    together(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let pause = pool.pause().unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    assert!(pause.is_held());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(pause);
                    let _ = pool.execute(|| ());
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
    ended(&pool);
}

#[test]
fn draining_ends_all_pauses_and_runs_what_they_have_kept() {
    let pool = pool(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let pauses: Vec<Pause> = (0..3)
        .map(|_| {
            let pause = pool.begin_pause().unwrap();
            submit_counted(&pool, &ran, 10);
            pause
        })
        .collect();
    let token = CancelToken::new();
    let waits = std::thread::spawn({
        let (pool, token) = (pool.clone(), token.clone());
        move || pool.pause_until(&token)
    });
    until("it waits", || pool.stats().pauses == 4);
    pool.drain_timeout(LIMIT).unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().pauses), (30, 0));
    assert!(matches!(wait(waits).unwrap(), Err(PauseError::Stopped(_))));
    assert!(pauses.iter().all(|pause| !pause.is_held()));
    token.cancel("too late");
}

#[test]
fn stopping_ends_all_pauses_and_abandons_what_they_have_kept() {
    let pool = pool(2);
    let (one, two) = (pool.pause().unwrap(), pool.begin_pause().unwrap());
    let job = pool.spawn(|| ()).unwrap();
    let waits = std::thread::spawn(move || two.wait());
    pool.stop_timeout(LIMIT).unwrap();
    assert!(matches!(wait(waits).unwrap(), Err(PauseError::Stopped(PoolStatus::Stopped))));
    assert!(wait(job).is_err());
    assert_eq!((pool.stats().abandoned, one.is_held()), (1, false));
}

#[test]
fn pausing_a_stopped_pool_returns_at_once() {
    let pool = pool(1);
    pool.stop().unwrap();
    let stopped = PauseError::Stopped(PoolStatus::Stopped);
    assert_eq!(pool.pause().unwrap_err(), stopped);
    assert_eq!(pool.begin_pause().unwrap_err(), stopped);
    assert_eq!(pool.pause_timeout(LIMIT).unwrap_err(), stopped);
    assert_eq!(pool.pause_until(&CancelToken::new()).unwrap_err(), stopped);
    assert_eq!(stopped.to_string(), "the pool cannot be paused: it is Stopped");
}

#[test]
fn a_cancelled_token_pauses_nothing() {
    let pool = pool(1);
    let token = CancelToken::new();
    token.cancel("before");
    pool.pause_until(&token).unwrap();
    assert_eq!(pool.stats().pauses, 0);

    let held = hold(&pool);
    let token = CancelToken::new();
    let waits = std::thread::spawn({
        let (pool, token) = (pool.clone(), token.clone());
        move || pool.pause_until(&token)
    });
    until("it is asked for", || pool.stats().pauses == 1);
    token.cancel("meanwhile");
    assert_eq!(wait(waits).unwrap(), Ok(()));
    assert_eq!((pool.stats().pauses, pool.stats().running), (0, 1), "it has not waited for the job");
    drop(held);
    for _ in 0..1_000 {
        let token = CancelToken::new();
        together(|scope| {
            scope.spawn(|| token.cancel("at the same time"));
            pool.pause_until(&token).unwrap();
        });
        assert_eq!(pool.stats().pauses, 0);
    }
}

#[test]
fn a_pause_starts_no_worker() {
    let started = Arc::new(AtomicUsize::new(0));
    let count = started.clone();
    let pool = builder(64).on_start(move || add(&count)).build().unwrap();
    let pause = pool.pause().unwrap();
    submit_counted(&pool, &started, 0);
    pool.execute(|| ()).unwrap();
    assert_eq!((pool.stats().workers, started.load(Ordering::SeqCst)), (0, 0));
    drop(pause);
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
    assert_eq!(started.load(Ordering::SeqCst), 1, "one job, one worker");
}

#[test]
fn after_a_pause_as_many_workers_come_as_there_are_jobs_for() {
    let pool = pool(3);
    let pause = pool.pause().unwrap();
    let held: Vec<Blocker> = (0..5).map(|_| submit_held(&pool)).collect();
    assert_eq!(pool.stats().workers, 0);
    drop(pause);
    held[..3].iter().for_each(Blocker::wait_begun);
    assert_eq!((pool.stats().workers, pool.stats().waiting), (3, 2));
}

#[test]
fn questions_are_answered_while_a_pause_waits_to_take_hold() {
    let pool = pool(1);
    let held = hold(&pool);
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || pool.pause().map(drop)
    });
    until("it waits", || pool.stats().pauses == 1);
    assert_eq!((pool.status(), pool.stats().waiting, pool.is_paused()), (PoolStatus::Running, 0, false));
    assert!(!pool.is_inside());
    held.release();
    wait(waits).unwrap().unwrap();
}

#[test]
fn a_job_may_ask_for_a_pause_of_its_own_pool_and_not_wait_for_it() {
    let pool = pool(2);
    let (inner, out) = (pool.clone(), Latch::new());
    let set = out.clone();
    pool.execute(move || {
        let one = inner.pause().map(drop);
        let two = inner.pause_timeout(LIMIT).map(drop);
        let three = inner.pause_until(&CancelToken::new());
        let asked = inner.begin_pause().unwrap();
        let four = asked.wait();
        let _ = set.set(([one, two, three, four], Arc::new(Mutex::new(Some(asked)))));
    })
    .unwrap();
    let (errors, asked) = wait(&out);
    assert_eq!(errors, [Err(PauseError::Inside); 4]);
    let asked = asked.lock().unwrap().take().unwrap();
    asked.wait_timeout(LIMIT).unwrap();
    drop(asked);
    assert_eq!(pool.run(|| 1).unwrap(), 1);
}

#[test]
fn a_pause_with_a_limit_that_is_over_is_none() {
    let (pool, manual): (Pool, ManualClock) = by_hand(1);
    let held = hold(&pool);
    assert_eq!(pool.pause_timeout(Duration::ZERO).unwrap_err(), PauseError::TimedOut);
    let waits = std::thread::spawn({
        let pool = pool.clone();
        move || pool.pause_timeout(SECOND * 5).map(drop)
    });
    advance_until("it gives up", &manual, SECOND, || waits.is_finished());
    assert_eq!(wait(waits).unwrap(), Err(PauseError::TimedOut));
    assert_eq!(pool.stats().pauses, 0);
    drop(held);
    assert!(pool.pause_timeout(Duration::MAX).unwrap().is_held());
}

#[test]
fn a_job_that_is_nested_in_one_from_before_the_pause_is_part_of_it() {
    let pool = pool(1);
    let (inner, asked) = (pool.clone(), Latch::new());
    let gate = asked.clone();
    let job = pool
        .spawn(move || {
            wait(&gate);
            let queued = inner.spawn(|| 2).unwrap();
            inner.run(|| 1).unwrap() + queued.wait().unwrap()
        })
        .unwrap();
    let pause = pool.begin_pause().unwrap();
    asked.set(()).unwrap();
    assert_eq!(wait(job).unwrap(), 3);
    pause.wait_timeout(LIMIT).unwrap();
    assert_eq!(pool.stats().waiting, 0);
}

#[test]
fn a_forgotten_pause_neither_keeps_the_pool_alive_nor_outlives_it() {
    let token = CancelToken::new();
    let pool = pool(1);
    pool.pause_until(&token).unwrap();
    let job = pool.spawn(|| ()).unwrap();
    drop(pool);
    assert!(wait(job).is_err());
    token.cancel("nobody is there");
}
