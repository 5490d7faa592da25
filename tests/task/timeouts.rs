//! Timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::Reason;
use procession::sync::Latch;
use procession::task::{Status, TaskOptions, TaskScheduler};

use crate::support::*;

fn timeout(limit: Duration) -> TaskOptions {
    TaskOptions::new().timeout(limit)
}

#[test]
fn without_a_timeout_or_with_the_greatest_none_comes() {
    let (manual, tasks) = manual();
    let free = tasks.submit(obedient).unwrap();
    let greatest = tasks.submit_with(timeout(Duration::MAX), obedient).unwrap();
    let within = tasks.submit_with(TaskOptions::new().start_timeout(Duration::MAX), obedient).unwrap();
    until("all run", || tasks.stats().running == 3);
    assert_eq!(tasks.stats().timers, 0);
    manual.advance(Duration::from_secs(100 * 365 * 24 * 3600));
    assert!([&free, &greatest, &within].iter().all(|task| task.status() == Status::Running));
    tasks.stop();
}

#[test]
fn the_time_runs_from_the_begin_and_not_from_the_submission() {
    let (manual, _pool, tasks) = bounded(1);
    let first = stubborn(&tasks, TaskOptions::new());
    let second = tasks.submit_with(timeout(SECOND), obedient).unwrap();
    manual.advance(10 * SECOND);
    assert_eq!(second.status(), Status::Scheduled);
    first.let_go();
    until("it runs", || second.status() == Status::Running);
    manual.advance(SECOND - MILLI);
    assert_eq!(second.status(), Status::Running);
    manual.advance(MILLI);
    assert_eq!(second.status(), Status::TimedOut);
    assert_eq!((second.info().waited(), second.info().ran()), (Some(10 * SECOND), Some(SECOND)));
}

#[test]
fn when_the_time_is_over_the_closure_is_asked_to_stop() {
    let (manual, tasks) = manual();
    let seen = Latch::new();
    let sees = seen.clone();
    let task = tasks.submit_with(timeout(SECOND), move |cancel| {
        let reason = cancel.wait();
        let _ = sees.set(reason.clone());
        Err::<(), _>(reason)
    });
    let task = task.unwrap();
    until("it runs", || task.status() == Status::Running);
    manual.advance(SECOND);
    assert_eq!((task.status(), wait(&seen)), (Status::TimedOut, Reason::TimedOut));
    assert!(was_ended(&wait(task), Reason::TimedOut));
}

#[test]
fn a_thousand_tasks_time_out_together() {
    let (manual, tasks) = manual();
    let all: Vec<_> =
        (0..1_000).map(|_| tasks.submit_with(timeout(MILLI), |cancel| cancel.sleep(SECOND)).unwrap()).collect();
    until("all run", || tasks.stats().running == 1_000);
    manual.advance(MILLI);
    assert!(all.iter().all(|task| task.status() == Status::TimedOut));
    tasks.stop_and_join(HOUR).unwrap();
    assert_eq!((tasks.stats().timed_out, tasks.stats().timers), (1_000, 0));
}

#[test]
fn with_no_time_at_all_the_closure_is_not_called() {
    let (_, tasks) = manual();
    let counted = Counted::default();
    let none = tasks.submit_with(timeout(Duration::ZERO), counted.closure()).unwrap();
    let late = tasks.submit_with(TaskOptions::new().start_timeout(Duration::ZERO), counted.closure()).unwrap();
    assert_eq!((none.status(), late.status()), (Status::TimedOut, Status::TimedOut));
    assert_eq!((counted.calls(), counted.alive()), (0, 0));
    assert!(was_ended(&wait(none), Reason::TimedOut) && was_ended(&wait(late), Reason::TimedOut));
    tasks.stop_and_join(HOUR).unwrap();
    assert_eq!(counted.calls(), 0);
}

#[test]
fn a_task_that_ended_in_time_stays_completed() {
    let (manual, tasks) = manual();
    let task = tasks.submit_with(timeout(SECOND), |_| Ok::<_, String>(1)).unwrap();
    until("it is over", || task.status().is_finished());
    manual.advance(HOUR);
    assert_eq!(task.status(), Status::Completed);
    assert_eq!(wait(task).output(), Some(&1));
    assert_eq!(tasks.stats().timed_out, 0);
}

#[test]
fn a_timer_goes_with_its_task_however_that_ends() {
    let (_, pool, tasks) = bounded(2);
    let long = || timeout(HOUR).start_timeout(HOUR);
    let held = [stubborn(&tasks, long()), stubborn(&tasks, long())];
    assert_eq!(tasks.stats().timers, 2, "of the running ones those of their timeouts are left");
    let waiting: Vec<_> = (0..100).map(|_| tasks.submit_with(long(), obedient).unwrap()).collect();
    let delayed = tasks.submit_with(long().after(SECOND), obedient).unwrap();
    assert_eq!(tasks.stats().timers, 2 + 100 + 2);
    delayed.cancel();
    waiting[..50].iter().for_each(|task| assert!(task.cancel()));
    assert_eq!(tasks.stats().timers, 2 + 50);
    held[0].task.cancel();
    held[1].let_go();
    until("it is over, and its timer is gone", || tasks.stats().timers == 50);
    assert!(held[1].task.status().is_finished());
    held[0].let_go();
    waiting[50..].iter().for_each(|task| assert!(task.cancel()));
    // Two of them may be about to begin, make a timer for that, and see only then that they are over.
    until("the pool has nothing left", || pool.stats().unfinished() == 0);
    until("all timers are gone", || tasks.stats().timers == 0);
    let stopped = stubborn(&tasks, long());
    tasks.stop();
    assert_eq!(tasks.stats().timers, 0);
    stopped.let_go();
}

#[test]
fn ten_thousand_tasks_with_timeouts_need_no_thread_each() {
    let (manual, pool, tasks) = bounded(4);
    let options = || timeout(HOUR).start_timeout(SECOND);
    let counted = Counted::default();
    let held: Vec<_> = (0..4).map(|_| stubborn(&tasks, TaskOptions::new())).collect();
    let all: Vec<_> = (0..10_000).map(|_| tasks.submit_with(options(), counted.closure()).unwrap()).collect();
    assert_eq!((tasks.stats().timers, pool.stats().workers), (10_000, 4));
    manual.advance(SECOND);
    assert!(all.iter().all(|task| task.status() == Status::TimedOut));
    assert_eq!((tasks.stats().timers, pool.stats().waiting, counted.alive()), (0, 0, 0));
    held.iter().for_each(Stubborn::let_go);
}

#[test]
fn a_timeout_by_the_systems_clock_comes_too() {
    let tasks = tasks();
    let task = tasks.submit_with(timeout(MILLI), obedient).unwrap();
    assert!(was_ended(&end(task), Reason::TimedOut));
    let late = tasks.submit_with(timeout(MILLI), |_| Ok::<_, String>(1)).unwrap();
    drop(end(late));
}

#[test]
fn of_two_limits_for_the_begin_the_earlier_one_counts() {
    let (manual, _, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let counted = Counted::default();
    for (moment, limit) in [(SECOND, HOUR), (HOUR, SECOND)] {
        let options = TaskOptions::new().start_by(manual.now() + moment).start_timeout(limit);
        let task = tasks.submit_with(options, counted.closure()).unwrap();
        assert_eq!(task.status(), Status::Scheduled);
        manual.advance(SECOND);
        assert_eq!(task.status(), Status::TimedOut);
    }
    held.let_go();
    assert_eq!((counted.calls(), counted.alive()), (0, 0));
}

#[test]
fn the_start_limit_is_checked_again_when_a_task_begins() {
    // By the system's clock the timer may come later than the thread.
    let clock = procession::clock::Clock::system();
    let tasks = TaskScheduler::builder().clock(clock.clone()).build();
    let calls = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let (moment, count, clock) = (clock.now() + Duration::from_micros(20), calls.clone(), clock.clone());
        let task = tasks.submit_with(TaskOptions::new().start_by(moment), move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, String>(clock.now())
        });
        let task = task.unwrap();
        until("it is over", || task.status().is_finished());
        let started = task.info().started;
        assert!(started.is_none_or(|started| started < moment));
        assert_eq!(started.is_some(), task.status() == Status::Completed);
    }
    assert_eq!(calls.load(Ordering::SeqCst) as u64, tasks.stats().completed);
}
