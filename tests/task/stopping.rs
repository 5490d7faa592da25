//! Stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::pool::PoolEndStage;
use procession::sync::Latch;
use procession::task::{Retention, Status, SubmitError, TaskOptions, TaskScheduler};
use procession::{Reason, WaitError};

use crate::support::*;

#[test]
fn when_stop_returns_every_task_is_over() {
    let (_, pool, tasks) = bounded(2);
    let held = [stubborn(&tasks, TaskOptions::new()), stubborn(&tasks, TaskOptions::new())];
    let counted = Counted::default();
    let waiting: Vec<_> = (0..500).map(|_| tasks.submit(counted.closure()).unwrap()).collect();
    let delayed = tasks.submit_with(TaskOptions::new().after(HOUR), counted.closure()).unwrap();
    // Nobody has their handles.
    (0..10).for_each(|_| drop(tasks.submit(counted.closure()).unwrap()));
    tasks.stop();
    assert!(held.iter().all(|held| held.task.status() == Status::Stopped));
    assert!(waiting.iter().chain([&delayed]).all(|task| task.status() == Status::Stopped));
    let stats = tasks.stats();
    assert_eq!((stats.stopped, stats.scheduled, stats.running), (513, 0, 0));
    assert_eq!((stats.records, stats.abandoned), (503, 2));
    until("the closures are dropped", || (counted.calls(), counted.alive(), pool.stats().waiting) == (0, 0, 0));
    held.iter().for_each(Stubborn::let_go);
}

#[test]
fn stopping_leaves_the_ends_that_there_are() {
    let (manual, tasks) = manual();
    let keep = || TaskOptions::new().retention(Retention::UntilRemoved);
    let completed = tasks.submit_with(keep(), |_| Ok::<_, Reason>(1)).unwrap();
    let cancelled = tasks.submit_with(keep(), obedient).unwrap();
    let timed_out = tasks.submit_with(keep().timeout(SECOND), obedient).unwrap();
    until("one is over", || completed.status().is_finished());
    until("the others run", || tasks.stats().running == 2);
    cancelled.cancel();
    manual.advance(SECOND);
    let all = [&completed, &cancelled, &timed_out].map(|task| task.id());
    let before = all.map(|id| tasks.status(id).unwrap());
    assert_eq!(before, [Status::Completed, Status::Cancelled, Status::TimedOut]);
    tasks.stop();
    assert_eq!(all.map(|id| tasks.status(id).unwrap()), before);
    assert_eq!(tasks.stats().stopped, 0);
}

#[test]
fn stopping_does_not_wait_for_closures_that_ignore_it() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new().name("held"));
    tasks.stop();
    assert!(!held.returned.is_set());
    assert_eq!(tasks.stats().abandoned, 1);
    held.let_go();
    tasks.stop_and_join(LIMIT).unwrap();
    assert!(held.returned.is_set());
}

#[test]
fn a_closure_that_is_asked_to_stop_can_clear_away() {
    let tasks = tasks();
    let cleared = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let cleared = cleared.clone();
        let task = tasks.submit(move |cancel| {
            let reason = cancel.wait();
            cleared.fetch_add(usize::from(reason == Reason::Shutdown), Ordering::SeqCst);
            Err::<(), _>(reason)
        });
        drop(task.unwrap());
    }
    until("all run", || tasks.stats().running == 10);
    tasks.stop_and_join(LIMIT).unwrap();
    assert_eq!((cleared.load(Ordering::SeqCst), tasks.stats().abandoned), (10, 0));
}

#[test]
fn many_may_stop_at_once_and_each_returns_when_all_are_over() {
    for _ in 0..50 {
        let (_, _pool, tasks) = bounded(2);
        let all: Vec<_> = (0..50).map(|_| tasks.submit(obedient).unwrap()).collect();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    wait(&start);
                    tasks.stop();
                    assert!(all.iter().all(|task| task.status() == Status::Stopped));
                });
            }
        });
        tasks.stop();
        assert_eq!(tasks.stats().stopped, 50);
    }
}

#[test]
fn it_is_stopped_from_the_begin_of_the_stop() {
    let tasks = tasks();
    assert!(!tasks.is_stopped());
    let (seen, other) = (Latch::new(), tasks.clone());
    let sees = seen.clone();
    let registered = Latch::new();
    let registers = registered.clone();
    let task = tasks.submit(move |cancel| {
        // Called while the stop is in progress.
        let _registration = cancel.on_cancel(move |_| {
            let _ = sees.set(other.is_stopped() && other.submit(obedient).is_err());
        });
        let _ = registers.set(());
        Err::<(), _>(cancel.wait())
    });
    wait(&registered);
    tasks.stop();
    assert!(wait(&seen) && tasks.is_stopped());
    drop(task);
}

#[test]
fn a_stopped_scheduler_hands_the_closure_back() {
    let tasks = tasks();
    tasks.stop();
    let counted = Counted::default();
    let options = [TaskOptions::new(), TaskOptions::new().after(SECOND), TaskOptions::new().timeout(SECOND)];
    for (before, options) in options.into_iter().enumerate() {
        let refused = tasks.submit_with(options, counted.closure()).unwrap_err();
        assert!(matches!(refused.reason(), SubmitError::Stopped));
        assert_eq!(refused.to_string(), "the scheduler has been stopped");
        assert_eq!((counted.calls(), counted.alive()), (before, 1));
        refused.into_inner()(&procession::CancelToken::new()).unwrap();
    }
    assert_eq!(counted.calls(), 3, "by the submitter that had it back");
    assert_eq!((tasks.stats().submitted, tasks.stats().records), (0, 0));
}

#[test]
fn submitting_against_stopping_is_refused_or_over() {
    for round in 0..100 {
        let (_, pool, tasks) = bounded(2);
        let tasks = if round % 2 == 0 { TaskScheduler::new() } else { tasks };
        let (start, counted) = (Barrier::new(3), Counted::default());
        let (accepted, refused) = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        wait(&start);
                        let (mut accepted, mut refused) = (Vec::new(), 0);
                        for _ in 0..20 {
                            match tasks.submit(counted.closure()) {
                                Ok(task) => accepted.push(task),
                                Err(_) => refused += 1,
                            }
                        }
                        (accepted, refused)
                    })
                })
                .collect();
            wait(&start);
            tasks.stop();
            let stats = tasks.stats();
            assert_eq!((stats.scheduled, stats.running), (0, 0), "{stats:?}");
            let both = submitters.into_iter().map(|thread| wait(thread).unwrap());
            both.fold((Vec::new(), 0), |(mut all, no), (accepted, refused)| {
                all.extend(accepted);
                (all, no + refused)
            })
        });
        assert_eq!(accepted.len() + refused, 40);
        assert!(accepted.iter().all(|task| task.status().is_finished()));
        assert_eq!(tasks.stats().submitted, accepted.len() as u64);
        tasks.stop_and_join(HOUR).unwrap();
        pool.drain().unwrap();
        let called = accepted.iter().filter(|task| task.info().started.is_some()).count();
        assert_eq!((counted.calls(), counted.alive()), (called, 0));
    }
}

#[test]
fn records_work_as_before_after_a_stop() {
    let tasks = tasks();
    let kept = tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), obedient).unwrap();
    let id = kept.id();
    tasks.stop();
    assert_eq!(tasks.status(id).unwrap(), Status::Stopped);
    assert!(!tasks.cancel(id).unwrap());
    assert_eq!(tasks.list().len(), 1);
    tasks.remove(id).unwrap();
    assert!(tasks.status(id).is_err() && tasks.cancel(id).is_err() && tasks.list().is_empty());
    assert!(was_ended(&wait(kept), Reason::Shutdown), "the handle goes on working");
}

#[test]
fn a_task_can_stop_its_own_scheduler_and_does_not_wait() {
    let tasks = tasks();
    let (inner, go) = (tasks.clone(), Latch::new());
    let other = stubborn(&tasks, TaskOptions::new().name("other"));
    let (answer, answers) = (Latch::new(), go.clone());
    let told = answer.clone();
    let task = tasks.submit(move |cancel| {
        wait(&answers);
        inner.stop();
        let is_stopped = cancel.wait() == Reason::Shutdown;
        // It waits for nobody, and names the others.
        let left = inner.stop_and_join(LIMIT).unwrap_err();
        let names: Vec<_> = left.tasks.iter().map(|task| task.name.as_deref().map(String::from)).collect();
        let _ = told.set((is_stopped, names, left.why));
        Ok::<_, String>(())
    });
    let task = task.unwrap();
    go.set(()).unwrap();
    assert_eq!(wait(&answer), (true, vec![Some(String::from("other"))], WaitError::Inside));
    assert_eq!(task.status(), Status::Stopped);
    other.let_go();
    tasks.stop_and_join(LIMIT).unwrap();
    assert!(other.returned.is_set());
}

#[test]
fn tasks_that_join_their_own_scheduler_get_an_error() {
    let tasks = tasks();
    let (start, joined) = (Arc::new(Barrier::new(3)), Arc::new(AtomicUsize::new(0)));
    let held = stubborn(&tasks, TaskOptions::new());
    for _ in 0..3 {
        let (inner, start, joined) = (tasks.clone(), start.clone(), joined.clone());
        let task = tasks.submit(move |_| {
            wait(&start);
            let is_inside =
                inner.stop_and_join(std::time::Duration::MAX).is_err_and(|left| left.why == WaitError::Inside);
            joined.fetch_add(usize::from(is_inside), Ordering::SeqCst);
            Ok::<_, String>(())
        });
        drop(task.unwrap());
    }
    until("each is told so", || joined.load(Ordering::SeqCst) == 3);
    held.let_go();
    tasks.stop_and_join(LIMIT).unwrap();
    assert_eq!(tasks.stats().abandoned, 0);
}

#[test]
fn stopping_a_scheduler_that_never_had_a_task_returns() {
    let tasks = tasks();
    tasks.stop();
    tasks.stop_and_join(std::time::Duration::ZERO).unwrap();
    assert!(tasks.is_stopped());
    TaskScheduler::builder().build().stop_and_join(std::time::Duration::MAX).unwrap();
}

#[test]
fn the_last_handle_stops_the_scheduler_without_waiting() {
    let (_, pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let counted = Counted::default();
    let waits = tasks.submit(counted.closure()).unwrap();
    let clone = tasks.clone();
    drop(tasks);
    assert_eq!((held.task.status(), waits.status()), (Status::Running, Status::Scheduled));
    drop(clone);
    assert_eq!((held.task.status(), waits.status()), (Status::Stopped, Status::Stopped));
    until("its closure is dropped", || (counted.calls(), counted.alive(), pool.stats().waiting) == (0, 0, 0));
    assert!(was_ended(&wait(waits), Reason::Shutdown));
    // The pool was not its own.
    held.let_go();
    let ran = Latch::new();
    let set = ran.clone();
    pool.execute(move || set.set(()).unwrap()).unwrap();
    wait(&ran);
    assert!(was_ended(&wait(held.task), Reason::Shutdown));
}

#[test]
fn the_last_handle_may_be_dropped_by_a_task_of_its_own() {
    let tasks = tasks();
    let (inner, dropped, go) = (tasks.clone(), Latch::new(), Latch::new());
    let (drops, gate) = (dropped.clone(), go.clone());
    let task = tasks.submit(move |cancel| {
        wait(&gate);
        drop(inner);
        let _ = drops.set(cancel.wait());
        Ok::<_, String>(())
    });
    let task = task.unwrap();
    drop(tasks);
    go.set(()).unwrap();
    assert_eq!(wait(&dropped), Reason::Shutdown);
    assert!(was_ended(&end(task), Reason::Shutdown));
}

#[test]
fn a_hanging_destructor_delays_a_stop_by_the_grace_and_is_named() {
    let (_, _pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let blocker = Blocker::new();
    let hangs = BlocksInDrop(blocker.blocked());
    let first = tasks.submit_with(TaskOptions::new().name("hangs"), move |_| {
        drop(hangs);
        Ok::<_, String>(())
    });
    let (first, second) = (first.unwrap(), tasks.submit(obedient).unwrap());
    tasks.stop();
    assert_eq!([held.task.status(), first.status(), second.status()], [Status::Stopped; 3]);
    blocker.wait_begun();
    let left = tasks.stop_and_join(std::time::Duration::ZERO).unwrap_err();
    assert_eq!((left.why, left.tasks.len(), left.clearing.len()), (WaitError::TimedOut, 1, 1));
    assert_eq!(left.clearing[0].name.as_deref(), Some("hangs"));
    held.let_go();
    until("the closure has returned", || tasks.stats().abandoned == 0);
    let left = tasks.stop_and_join(std::time::Duration::ZERO).unwrap_err();
    let expected = "the limit was over: a waker, a callback or a destructor of task 2 (hangs) has not returned";
    assert_eq!(left.to_string(), expected);
    assert!(was_ended(&wait(first), Reason::Shutdown));
    blocker.release();
    tasks.stop_and_join(LIMIT).unwrap();
}

#[test]
fn a_hanging_destructor_delays_the_last_drop_by_the_grace() {
    let (_, pool, tasks) = bounded(1);
    let pause = pool.pause().unwrap();
    let blocker = Blocker::new();
    let hangs = BlocksInDrop(blocker.blocked());
    let task = tasks.submit(move |_| {
        drop(hangs);
        Ok::<_, String>(())
    });
    drop(tasks);
    blocker.wait_begun();
    assert_eq!(task.unwrap().status(), Status::Stopped);
    blocker.release();
    drop(pause);
}

#[test]
fn three_long_tasks_and_a_stop() {
    let tasks = tasks();
    let long = |_| {
        tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |cancel| cancel.sleep(HOUR)).unwrap()
    };
    let three: Vec<_> = (0..3).map(long).collect();
    until("all run", || tasks.stats().running == 3);
    tasks.stop();
    for task in &three {
        assert!(task.status().is_finished());
        assert_eq!(task.status().to_string(), "Stopped");
        assert!(tasks.info(task.id()).unwrap().to_string().contains("Stopped"));
    }
    tasks.stop_and_join(LIMIT).unwrap();
}

#[test]
fn a_task_that_is_cancelled_at_once_says_so() {
    let (manual, tasks) = manual();
    let task = tasks.submit(|cancel| cancel.sleep(SECOND)).unwrap();
    tasks.cancel(task.id()).unwrap();
    manual.advance(100 * MILLI);
    assert_eq!(task.status(), Status::Cancelled);
    assert_eq!(task.to_string(), format!("task {}: Cancelled, output: none, error: cancelled", task.id()));
    assert!(tasks.info(task.id()).unwrap().to_string().contains("Cancelled"));
}

#[test]
fn tasks_that_their_pool_abandons_are_over_though_a_destructor_hangs() {
    let (_, pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let blocker = Blocker::new();
    let hangs = BlocksInDrop(blocker.blocked());
    let first = tasks.submit(move |_| {
        drop(hangs);
        Ok::<_, String>(())
    });
    let behind = tasks.submit(obedient).unwrap();
    pool.stop_timeout(std::time::Duration::ZERO).unwrap_err();
    blocker.wait_begun();
    assert!(was_ended(&end(first.unwrap()), Reason::Shutdown));
    assert!(was_ended(&end(behind), Reason::Shutdown));
    blocker.release();
    held.let_go();
    pool.stop_timeout(LIMIT).unwrap();
}

#[test]
fn a_waker_that_hangs_on_the_own_pool_is_an_error_of_the_join() {
    let tasks = tasks();
    let mut held = stubborn(&tasks, TaskOptions::new());
    let blocker = Blocker::new();
    let waker = blocker.waker();
    let mut context = std::task::Context::from_waker(&waker);
    assert!(std::future::Future::poll(std::pin::Pin::new(&mut held.task), &mut context).is_pending());
    held.let_go();
    blocker.wait_begun();
    let left = tasks.stop_and_join(std::time::Duration::from_millis(1)).unwrap_err();
    let pool = left.pool.as_ref().unwrap();
    // A task's waker is called by the job that has run the closure.
    assert_eq!((left.why, pool.stage, pool.running), (WaitError::TimedOut, PoolEndStage::Jobs, 1));
    assert!(left.to_string().contains(&format!("the scheduler's pool has not ended: {pool}")), "{left}");
    blocker.release();
    tasks.stop_and_join(LIMIT).unwrap();
}
