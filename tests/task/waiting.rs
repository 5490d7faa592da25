//! Waiting, sets, lists, tokens, and abandoned closures.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use procession::sync::Latch;
use procession::task::{Retention, Status, TaskHandle, TaskOptions, TaskSet};
use procession::{CancelToken, Exit, Reason};

use crate::support::*;

#[test]
fn a_handle_waits_with_and_without_limit() {
    let (manual, tasks) = manual();
    let held = stubborn(&tasks, TaskOptions::new());
    let id = held.task.id();
    let task = held.task.wait_timeout(Duration::ZERO).unwrap_err().into_inner();
    let waiter = std::thread::spawn(move || task.wait_timeout(SECOND).unwrap_err().into_inner());
    advance_until("the limit is over", &manual, SECOND, || waiter.is_finished());
    let task = wait(waiter).unwrap();
    assert_eq!(task.id(), id);
    let task = task.try_result().unwrap_err();
    let waiter = std::thread::spawn(move || task.wait_timeout(Duration::MAX));
    held.blocker.release();
    assert_eq!(wait(waiter).unwrap().unwrap().output(), Some(&7));
    let done = tasks.submit(|_| Ok::<_, String>(2)).unwrap();
    until("it is over", || done.status().is_finished());
    assert_eq!(done.try_result().unwrap().output(), Some(&2));
    let done = tasks.submit(|_| Ok::<_, String>(3)).unwrap();
    let waiter = std::thread::spawn(move || done.wait());
    assert_eq!(wait(waiter).unwrap().unwrap().output(), Some(&3));
}

#[test]
fn a_handle_is_a_future_of_the_result() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new());
    let woken = Arc::new(WakeCounter::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    let mut task = pin!(held.task);
    assert!(task.as_mut().poll(&mut cx).is_pending() && task.as_mut().poll(&mut cx).is_pending());
    assert_eq!(woken.times(), 0);
    held.blocker.release();
    until("it is woken", || woken.times() == 1);
    let Poll::Ready(exit) = task.as_mut().poll(&mut cx) else { panic!("it was woken for nothing") };
    assert_eq!(exit.output(), Some(&7));
    // A second poll is told so, and does not wait for ever.
    let Poll::Ready(Exit::Terminated(reason)) = task.as_mut().poll(&mut cx) else { panic!("it is over") };
    assert_eq!(reason.to_string(), "its result was taken before");
    // A future that is given up leaves no waker behind.
    let held = stubborn(&tasks, TaskOptions::new());
    let mut given_up = Box::pin(held.task);
    assert!(given_up.as_mut().poll(&mut cx).is_pending());
    drop(given_up);
    drop(waker);
    // The waker of the first is let go a moment after it was called.
    until("no waker is left", || Arc::strong_count(&woken) == 1);
    held.blocker.release();
}

#[test]
fn a_cancelled_task_wakes_its_waiters_at_once() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new());
    let (id, task) = (held.task.id(), held.task);
    let waiter = std::thread::spawn(move || task.wait());
    assert!(tasks.cancel(id).unwrap());
    assert!(was_ended(&wait(waiter).unwrap().unwrap(), Reason::Cancelled));
    assert!(!held.returned.is_set());
    held.blocker.release();
}

#[test]
fn any_of_several_can_be_waited_for_in_the_order_of_their_ends() {
    let (manual, tasks) = manual();
    let held: Vec<_> = (0..4).map(|n| stubborn(&tasks, TaskOptions::new().name(n.to_string()))).collect();
    let (blockers, handles): (Vec<_>, Vec<_>) = held.into_iter().map(|held| (held.blocker, held.task)).unzip();
    let mut set: TaskSet<_, _> = handles.into_iter().collect();
    assert_eq!((set.len(), set.is_empty()), (4, false));
    let mut order = Vec::new();
    for next in [2, 0, 3] {
        blockers[next].release();
        let (info, exit) = set.wait_next().unwrap().unwrap();
        assert_eq!((info.status, exit.output()), (Status::Completed, Some(&7)));
        order.push(info.name.unwrap().to_string());
    }
    assert_eq!(order, ["2", "0", "3"]);
    // With a limit, by the tasks' clock.
    assert!(set.wait_next_timeout(Duration::ZERO).is_err());
    let waiter = std::thread::spawn(move || (set.wait_next_timeout(SECOND).is_err(), set));
    advance_until("the limit is over", &manual, SECOND, || waiter.is_finished());
    let (nothing, mut set) = wait(waiter).unwrap();
    assert!(nothing && set.len() == 1);
    assert_eq!(set.cancel_all("enough"), 1);
    assert_eq!(set.cancel_all("again"), 0);
    let (info, exit) = set.wait_next_timeout(SECOND).unwrap().unwrap();
    assert_eq!((info.status, was_ended(&exit, "enough")), (Status::Cancelled, true));
    assert!(set.wait_next().unwrap().is_none() && set.is_empty());
    // One that was over before it came, and one of another scheduler with the same number.
    let others = crate::support::tasks();
    let over = others.submit(|_| Ok::<_, String>(1)).unwrap();
    until("it is over", || over.status().is_finished());
    set.push(over);
    set.push(others.submit(|_| Ok(2)).unwrap());
    set.push(tasks.submit(|_| Ok(3)).unwrap());
    let mut outputs: Vec<_> =
        std::iter::from_fn(|| set.wait_next().unwrap()).map(|(_, exit)| *exit.output().unwrap()).collect();
    outputs.sort_unstable();
    assert_eq!(outputs, [1, 2, 3]);
    blockers[1].release();
}

#[test]
fn a_set_can_be_awaited() {
    let tasks = tasks();
    let (one, two) = (stubborn(&tasks, TaskOptions::new()), stubborn(&tasks, TaskOptions::new()));
    let mut set = TaskSet::new();
    set.extend([one.task, two.task]);
    let woken = Arc::new(WakeCounter::default());
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);
    assert!(set.poll_next(&mut cx).is_pending());
    one.blocker.release();
    until("it is woken", || woken.times() == 1);
    assert!(matches!(set.poll_next(&mut cx), Poll::Ready(Some((_, Exit::Done(7))))));
    two.blocker.release();
    until("the other is over", || set.iter().all(|task| task.status().is_finished()));
    until("it can be had", || matches!(set.poll_next(&mut cx), Poll::Ready(Some(_))));
    assert!(matches!(set.poll_next(&mut cx), Poll::Ready(None)));
}

#[test]
fn a_set_polled_with_another_waker_wakes_that_one_only() {
    let tasks = tasks();
    let one = stubborn(&tasks, TaskOptions::new());
    let mut set = TaskSet::from_iter([one.task]);
    let (before, now) = (Arc::new(WakeCounter::default()), Arc::new(WakeCounter::default()));
    for woken in [&before, &now] {
        // It has moved to another task of the executor.
        assert!(set.poll_next(&mut Context::from_waker(&Waker::from(woken.clone()))).is_pending());
    }
    one.blocker.release();
    until("it is woken", || now.times() == 1);
    assert_eq!(before.times(), 0);
    assert!(matches!(set.poll_next(&mut Context::from_waker(Waker::noop())), Poll::Ready(Some(_))));
}

#[test]
fn an_abandoned_closure_keeps_its_pool_thread() {
    let (_, pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    held.task.cancel();
    let next = tasks.submit(|_| Ok::<_, String>(1)).unwrap();
    let stats = tasks.stats();
    assert_eq!((stats.abandoned, stats.running, stats.scheduled), (1, 0, 1));
    assert_eq!((pool.stats().running, pool.stats().workers), (1, 1), "so what is abandoned is bounded by the pool");
    held.let_go();
    assert_eq!(end(next).output(), Some(&1));
    assert_eq!(tasks.stats().abandoned, 0);
}

#[test]
fn stop_and_join_names_the_closures_that_are_left() {
    let (manual, tasks) = manual();
    let kept = stubborn(&tasks, TaskOptions::new().name("kept"));
    let other = stubborn(&tasks, TaskOptions::new());
    let over = tasks.submit(obedient).unwrap();
    let left = tasks.stop_and_join(Duration::ZERO).unwrap_err();
    let (one, two) = (kept.task.id(), other.task.id());
    assert!(left.tasks.iter().map(|task| task.id).collect::<Vec<_>>().starts_with(&[one, two]));
    assert!(left.tasks.iter().all(|task| task.status == Status::Stopped));
    until("the obedient one has returned", || tasks.stats().abandoned == 2);
    let left = tasks.stop_and_join(Duration::ZERO).unwrap_err();
    assert_eq!(left.to_string(), format!("the limit was over: 2 closures have not returned: {one} (kept), {two}"));
    drop(over);
    other.let_go();
    let joiner = std::thread::spawn({
        let tasks = tasks.clone();
        move || tasks.stop_and_join(SECOND).unwrap_err().tasks.len()
    });
    until("the other has returned", || tasks.stats().abandoned == 1);
    advance_until("the limit is over", &manual, SECOND, || joiner.is_finished());
    assert_eq!(wait(joiner).unwrap(), 1);
    kept.let_go();
    tasks.stop_and_join(Duration::MAX).unwrap();
}

#[test]
fn tasks_can_be_listed_and_counted() {
    let (_, _pool, tasks) = bounded(2);
    let keep = |name: &str| TaskOptions::new().name(name).retention(Retention::UntilRemoved);
    let done = tasks.submit_with(keep("done"), |_| Ok::<_, String>(())).unwrap();
    until("it is over", || done.status().is_finished());
    let held = [stubborn(&tasks, keep("held")), stubborn(&tasks, keep("held"))];
    let waits = tasks.submit_with(keep("waits"), obedient).unwrap();
    let cancelled = tasks.submit_with(keep("cancelled"), obedient).unwrap();
    cancelled.cancel();
    let late = tasks.submit_with(keep("late").start_timeout(Duration::ZERO), obedient).unwrap();
    let names = |list: Vec<procession::task::TaskInfo>| -> Vec<String> {
        list.into_iter().map(|task| task.name.unwrap().to_string()).collect()
    };
    assert_eq!(names(tasks.list()), ["done", "held", "held", "waits", "cancelled", "late"]);
    for (status, expected) in [
        (Status::Completed, &["done"][..]),
        (Status::Running, &["held", "held"]),
        (Status::Scheduled, &["waits"]),
        (Status::Cancelled, &["cancelled"]),
        (Status::TimedOut, &["late"]),
        (Status::Stopped, &[]),
    ] {
        assert_eq!(names(tasks.list_by(status)), expected);
    }
    let stats = tasks.stats();
    let by_status = [stats.scheduled, stats.running, stats.completed, stats.cancelled, stats.timed_out, stats.stopped];
    assert_eq!((by_status, stats.submitted, stats.records), ([1, 2, 1, 1, 1, 0], 6, 6));
    drop((done, waits, late));
    held.iter().for_each(Stubborn::let_go);
    tasks.stop();
    assert_eq!(tasks.list().len(), 6);
}

#[test]
fn times_are_those_of_the_schedulers_clock() {
    let (manual, _pool, tasks) = bounded(1);
    let start = manual.now();
    let first = stubborn(&tasks, TaskOptions::new());
    let second = stubborn_later(&tasks);
    manual.advance(SECOND);
    first.let_go();
    second.1.wait_begun();
    manual.advance(2 * SECOND);
    second.1.release();
    until("it is over", || second.0.status().is_finished());
    let info = second.0.info();
    let times = (info.submitted, info.started, info.ended);
    assert_eq!(times, (start, Some(start + SECOND), Some(start + 3 * SECOND)));
}

fn stubborn_later(tasks: &procession::task::TaskScheduler) -> (TaskHandle<(), String>, Blocker) {
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let task = tasks.submit(move |_| {
        blocked.wait();
        Ok(())
    });
    (task.unwrap(), blocker)
}

#[test]
fn a_task_stands_under_a_request_of_the_users() {
    let (_, _pool, tasks) = bounded(2);
    let group = CancelToken::new();
    let under = || TaskOptions::new().under(&group);
    // It keeps its thread, so that none of the others can run.
    let runs = stubborn(&tasks, under());
    let done = tasks.submit_with(under(), |_| Ok::<_, String>(1)).unwrap();
    until("it is over", || done.status().is_finished());
    let other = stubborn(&tasks, TaskOptions::new());
    let counted = Counted::default();
    let waits = tasks.submit_with(under(), counted.closure()).unwrap();
    let delayed = tasks.submit_with(under().after(SECOND), counted.closure()).unwrap();
    group.cancel("the shop is closed");
    assert_eq!([runs.task.status(), waits.status(), delayed.status()], [Status::Cancelled; 3]);
    assert_eq!((done.status(), other.task.status()), (Status::Completed, Status::Running));
    runs.let_go();
    assert!(was_ended(&wait(runs.task), "the shop is closed"));
    let late = tasks.submit_with(under(), counted.closure()).unwrap();
    assert_eq!(late.status(), Status::Cancelled);
    assert_eq!((counted.calls(), counted.alive(), tasks.stats().timers), (0, 0, 0));
    other.let_go();
    // A task can put others under its own request.
    let (inner, child) = (tasks.clone(), Latch::new());
    let gives = child.clone();
    let parent = tasks.submit(move |cancel| {
        let task = inner.submit_with(TaskOptions::new().under(cancel).retention(Retention::UntilRemoved), obedient);
        let _ = gives.set(task.map_err(|refused| refused.to_string())?.id());
        Err::<(), _>(cancel.wait().to_string())
    });
    let parent = parent.unwrap();
    let child = wait(&child);
    parent.cancel_because("the parent's reason");
    assert_eq!(tasks.info(child).unwrap().error().as_deref(), Some("the parent's reason"));
}

#[test]
fn a_task_that_is_over_leaves_nothing_at_its_parent_token() {
    struct Token;
    let tasks = tasks();
    let (group, token) = (CancelToken::new(), Arc::new(Token));
    for _ in 0..100 {
        let held = token.clone();
        let task = tasks.submit_with(TaskOptions::new().under(&group), move |_| Ok::<_, String>(held));
        drop(end(task.unwrap()));
    }
    assert_eq!(Arc::strong_count(&token), 1);
    group.cancel(Reason::Cancelled);
    assert_eq!((tasks.stats().cancelled, tasks.stats().completed), (0, 100));
}

#[test]
fn sleep_and_check_hear_the_request() {
    let (manual, tasks) = manual();
    let task = tasks.submit(|cancel| {
        let slept = cancel.sleep(Duration::ZERO);
        let checked = cancel.check();
        cancel.sleep(HOUR)?;
        Ok::<_, Reason>((slept, checked))
    });
    let task = task.unwrap();
    advance_until("the task is over", &manual, HOUR, || task.status().is_finished());
    assert_eq!(wait(task).output(), Some(&(Ok(()), Ok(()))));
    let (told, tells) = (Latch::new(), Latch::new());
    let (tell, registered) = (told.clone(), tells.clone());
    let task = tasks.submit(move |cancel| {
        let _registration = cancel.on_cancel(move |reason| {
            let _ = tell.set(reason.clone());
        });
        let _ = registered.set(());
        cancel.sleep(HOUR)?;
        cancel.check()
    });
    let task = task.unwrap();
    wait(&tells);
    task.cancel_because("wake up");
    assert_eq!(told.get(), Some(Reason::from("wake up")), "callbacks have been called when the call returns");
}
