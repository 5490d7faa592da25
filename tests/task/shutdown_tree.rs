//! The scheduler in a shutdown tree.

use std::sync::Arc;
use std::time::Duration;

use procession::pool::{Pool, SHUTDOWN_GRACE};
use procession::shutdown::Phase;
use procession::sync::Latch;
use procession::task::{Status, TaskHandle, TaskOptions, TaskScheduler, TaskSet};
use procession::{CancelToken, Exit, Reason, ShutdownNode, WaitError};

use crate::support::*;

const ZERO: Duration = Duration::ZERO;
const LONG: Duration = LIMIT;

#[test]
fn a_scheduler_told_to_end_closes_when_all_closures_returned() {
    let (manual, pool, tasks) = bounded(2);
    let running = stubborn(&tasks, TaskOptions::new().name("backup"));
    let waiting = tasks.submit_with(TaskOptions::new().after(HOUR), obedient).unwrap();
    let state = tasks.shutdown_node();
    manual.advance(SECOND);
    state.request_shutdown();
    until("all are stopped", || [running.task.status(), waiting.status()] == [Status::Stopped; 2]);
    let error = state.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "tasks: timeout expired (1 closure has not returned: task 1 (backup) for 1s)");
    running.let_go();
    state.shutdown_timeout(LONG).unwrap();
    assert!(running.returned.is_set() && state.err().is_none());
    assert!(pool.run(|| ()).is_ok(), "the pool goes on");
}

#[test]
fn a_scheduler_has_one_shutdown_node_which_includes_its_own_pool() {
    let (_, _pool, shared) = bounded(1);
    assert_eq!(ShutdownNode::merge([shared.shutdown_node(), shared.clone().shutdown_node()]).report().nodes().len(), 2);

    let own = tasks();
    let task = stubborn(&own, TaskOptions::new());
    let state = own.shutdown_node();
    assert_eq!(ShutdownNode::merge([own.shutdown_node(), own.shutdown_node()]).report().nodes().len(), 1 + 3);
    let report = state.report();
    let names: Vec<_> = report.nodes().iter().filter_map(|node| node.name.as_deref()).collect();
    assert_eq!(names, ["procession-task", "tasks"], "the pool closes after the tasks");
    task.let_go();
    state.shutdown_timeout(LONG).unwrap();
    assert_eq!(state.report().count(Phase::Done), 3);
    assert!(state.err().is_none(), "{:?}", state.err());
}

#[test]
fn a_stopped_or_dropped_scheduler_closes_its_shutdown_node() {
    for own in [true, false] {
        let pool = Pool::new(2).unwrap();
        let make = || if own { tasks() } else { TaskScheduler::on(&pool) };
        let one = make();
        let _unwanted = one.submit(obedient).unwrap();
        let state = one.shutdown_node();
        one.stop_and_join(Duration::MAX).unwrap();
        assert!(state.is_closed() && !state.is_shutting_down() && state.err().is_none());

        let two = make();
        let running = stubborn(&two, TaskOptions::new());
        let state = two.shutdown_node();
        drop(two);
        assert!(!state.is_closed(), "a closure still runs");
        running.let_go();
        assert!(state.wait_closed_timeout(LONG).is_ok() && state.err().is_none());

        let three = make();
        wait(three.submit(|_| Ok::<_, String>(1)).unwrap());
        three.stop_and_join(Duration::MAX).unwrap();
        assert!(three.shutdown_node().is_closed(), "it had ended before");
    }
}

#[test]
fn a_tree_does_not_wait_for_closures_beyond_the_limit() {
    quiet_panics();
    for own in [false, true] {
        let manual = procession::clock::ManualClock::new();
        let pool = Pool::builder().max(1).clock(manual.clock()).build().unwrap();
        let builder = TaskScheduler::builder().clock(manual.clock()).shutdown_limit(3 * SECOND);
        let tasks = if own { builder.build() } else { builder.pool(&pool).build() };
        let running = stubborn(&tasks, TaskOptions::new());
        let (store, store_tail) = ShutdownNode::job([tasks.shutdown_node()]);
        store.request_shutdown();
        manual.advance(3 * SECOND - MILLI);
        assert_eq!(store.report().find("tasks").unwrap().phase, Phase::Told);
        manual.advance(MILLI);
        if own {
            // Its pool was told then.
            assert!(!store_tail.end().is_cancelled());
            manual.advance(2 * SHUTDOWN_GRACE);
        }
        wait(store_tail.end());
        store_tail.done();
        let error = store.shutdown_timeout(LONG).unwrap_err();
        assert!(error.only_given_up() && error.open().iter().any(|open| open.names().eq(["tasks"])));
        running.let_go();
        tasks.stop_and_join(Duration::MAX).unwrap();
        store.shutdown_timeout(LONG).unwrap();
    }
}

#[test]
fn a_task_that_waits_for_its_schedulers_end_gets_an_error() {
    for own in [true, false] {
        let pool = Pool::new(2).unwrap();
        let tasks = if own { tasks() } else { TaskScheduler::on(&pool) };
        let (state, told) = (tasks.shutdown_node(), Latch::new());
        let (asks, tell) = (state.clone(), told.clone());
        let _unwanted = tasks
            .submit(move |cancel: &CancelToken| {
                let before = asks.shutdown().unwrap_err().why() == WaitError::Inside;
                cancel.wait();
                // Its task is over now.
                let after = asks.shutdown().unwrap_err().why() == WaitError::Inside;
                let _ = tell.set((before, after, asks.wait_closed().is_ok()));
                Ok::<_, String>(())
            })
            .unwrap();
        assert_eq!(wait(&told), (true, true, false));
        state.shutdown_timeout(LONG).unwrap();
    }
    // Another job of the pool on which the scheduler stands may wait for it.
    let pool = Pool::new(2).unwrap();
    let tasks = TaskScheduler::on(&pool);
    let state = tasks.shutdown_node();
    let _unwanted = tasks.submit(obedient).unwrap();
    pool.run(move || state.shutdown().is_ok()).map(|ended| assert!(ended)).unwrap();
}

#[test]
fn a_tree_does_not_wait_for_user_code_to_tell_the_next_part() {
    let (_manual, _pool, tasks) = bounded(1);
    let running = stubborn(&tasks, TaskOptions::new());
    let blocker = Blocker::new();
    let blocks = BlocksInDrop(blocker.blocked());
    let never_called = tasks.submit(move |_| {
        drop(blocks);
        Ok::<_, String>(())
    });
    let (other, other_tail) = ShutdownNode::job([]);
    let all = ShutdownNode::merge([tasks.shutdown_node(), other]);
    all.request_shutdown();
    assert!(other_tail.end().is_cancelled(), "told by the same call");
    blocker.wait_begun();
    assert_eq!(never_called.unwrap().status(), Status::Stopped);
    blocker.release();
    running.let_go();
    other_tail.done();
    all.shutdown_timeout(LONG).unwrap();
}

#[test]
fn a_destructor_may_wait_for_another_stopped_task() {
    waits_for_the_one_that_is_stopped_next(|next| next.wait().unwrap());
}

#[test]
fn a_destructor_may_wait_for_a_set_of_stopped_tasks() {
    waits_for_the_one_that_is_stopped_next(|next| TaskSet::from_iter([next]).wait_next().unwrap().unwrap().1);
}

/// One of two tasks is dropped by the stop of their scheduler, and waits for the other in a destructor.
fn waits_for_the_one_that_is_stopped_next(wait_for: fn(TaskHandle<(), String>) -> Exit<(), String>) {
    type Place = Arc<Mutex<Option<TaskHandle<(), String>>>>;
    struct Waits(Place, fn(TaskHandle<(), String>) -> Exit<(), String>, Latch<bool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let next = self.0.lock().unwrap().take();
            let exit = next.map(self.1);
            let _ = self.2.set(matches!(exit, Some(Exit::Terminated(Reason::Shutdown))));
        }
    }
    let (_manual, pool, tasks) = bounded(1);
    let (held, next, told) = (submit_held(&pool), Place::default(), Latch::new());
    let waits = Waits(next.clone(), wait_for, told.clone());
    let waits = move |_: &CancelToken| {
        drop(waits);
        Ok::<_, String>(())
    };
    let _first = tasks.submit(waits).unwrap();
    *next.lock().unwrap() = Some(tasks.submit(|_: &CancelToken| Ok::<_, String>(())).unwrap());
    std::thread::spawn(move || tasks.stop());
    assert!(wait(&told));
    held.release();
}

#[test]
fn a_destructor_that_waits_for_its_schedulers_end_gets_an_error() {
    struct Waits(ShutdownNode, Latch<bool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            let told = self.0.shutdown().is_err_and(|error| error.why() == WaitError::Inside);
            let _ = self.1.set(told);
        }
    }
    for by_drop in [true, false] {
        let (_manual, pool, tasks) = bounded(1);
        let held = submit_held(&pool);
        let (state, told) = (tasks.shutdown_node(), Latch::new());
        let waits = Waits(state.clone(), told.clone());
        let waits = move |_: &CancelToken| {
            drop(waits);
            Ok::<_, String>(())
        };
        let _unwanted = (tasks.submit(waits).unwrap(), tasks.submit(obedient).unwrap());
        if by_drop {
            std::thread::spawn(move || drop(tasks));
        } else {
            state.request_shutdown();
        }
        assert!(wait(&told));
        state.shutdown_timeout(LONG).unwrap();
        held.release();
    }
}
