//! Cancelling.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use procession::sync::Latch;
use procession::task::{Retention, Status, TaskOptions};
use procession::{CancelToken, Reason};

use crate::support::*;

#[test]
fn cancelling_ends_the_task_and_asks_its_closure_to_stop() {
    let tasks = tasks();
    let seen = Latch::new();
    let sees = seen.clone();
    let task = tasks.submit(move |cancel| {
        let reason = cancel.wait();
        let _ = sees.set(reason.clone());
        Err::<(), _>(reason)
    });
    let task = task.unwrap();
    until("it runs", || task.status() == Status::Running);
    assert!(tasks.cancel(task.id()).unwrap());
    assert_eq!(task.status(), Status::Cancelled);
    assert_eq!(wait(&seen), Reason::Cancelled);
    assert!(was_ended(&wait(task), Reason::Cancelled));
}

#[test]
fn cancelling_does_not_wait_for_the_closure() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new());
    assert!(held.task.cancel());
    assert!(!held.returned.is_set());
    assert_eq!((held.task.status(), tasks.stats().abandoned), (Status::Cancelled, 1));
    held.let_go();
    until("it has returned", || tasks.stats().abandoned == 0);
}

#[test]
fn cancelling_twice_or_too_late_changes_nothing() {
    let tasks = tasks();
    let task = tasks.submit(obedient).unwrap();
    assert_eq!((task.cancel(), task.cancel(), tasks.cancel(task.id()).unwrap()), (true, false, false));
    assert!(!task.cancel_because("another reason"));
    assert!(was_ended(&wait(task), Reason::Cancelled), "the first reason stays");
    let done = tasks.submit(|_| Ok::<_, String>(3)).unwrap();
    until("it is over", || done.status().is_finished());
    let before = done.info();
    assert!(!done.cancel() && !tasks.cancel(done.id()).unwrap());
    let after = done.info();
    assert_eq!((after.status, after.ended, after.error()), (before.status, before.ended, None));
    assert_eq!(wait(done).output(), Some(&3));
    assert_eq!((tasks.stats().completed, tasks.stats().cancelled), (1, 1));
}

#[test]
fn cancelling_an_unknown_or_removed_task_is_an_error() {
    let tasks = tasks();
    let task =
        tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |_| Ok::<_, String>(())).unwrap();
    let id = task.id();
    end(task);
    assert!(!tasks.cancel(id).unwrap());
    tasks.remove(id).unwrap();
    assert_eq!(tasks.cancel(id).unwrap_err().0, id);
}

#[test]
fn a_thousand_long_tasks_are_cancelled_one_by_one() {
    let tasks = tasks();
    let all: Vec<_> = (0..1_000).map(|_| tasks.submit(|cancel| cancel.sleep(HOUR)).unwrap()).collect();
    assert!(all.iter().all(|task| tasks.cancel(task.id()).unwrap()));
    assert!(all.iter().all(|task| task.status() == Status::Cancelled));
    tasks.stop_and_join(LIMIT).unwrap();
    assert_eq!(tasks.stats().cancelled, 1_000);
}

/// Counts what is made and dropped of it.
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_late_result_is_dropped_once_by_the_closures_thread() {
    struct Late(Arc<AtomicUsize>, Latch<std::thread::ThreadId>);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            let _ = self.1.set(std::thread::current().id());
            panic!("in a destructor");
        }
    }
    for way in ["cancelled", "timed out", "stopped"] {
        let (manual, tasks) = manual();
        let (drops, begun, go, dropped_by) = (Arc::new(AtomicUsize::new(0)), Latch::new(), Latch::new(), Latch::new());
        let (late, begin, gate) = (Late(drops.clone(), dropped_by.clone()), begun.clone(), go.clone());
        let task = tasks.submit_with(TaskOptions::new().timeout(SECOND), move |_| {
            let _ = begin.set(std::thread::current().id());
            wait(&gate);
            Ok::<_, String>(late)
        });
        let task = task.unwrap();
        let its_thread = wait(&begun);
        match way {
            "cancelled" => assert!(task.cancel()),
            "timed out" => manual.advance(SECOND),
            _ => tasks.stop(),
        }
        let status = task.status();
        assert_eq!(drops.load(Ordering::SeqCst), 0);
        go.set(()).unwrap();
        tasks.stop_and_join(HOUR).unwrap();
        assert_eq!((drops.load(Ordering::SeqCst), wait(&dropped_by)), (1, its_thread), "{way}");
        assert_eq!(task.status(), status);
        drop(wait(task));
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_result_that_nobody_can_have_any_more_is_dropped() {
    let tasks = tasks();
    let drops = Arc::new(AtomicUsize::new(0));
    let dropped = || drops.load(Ordering::SeqCst);
    // The handle goes first; the record is kept.
    let (go, token) = (Latch::new(), Token(drops.clone()));
    let gate = go.clone();
    let task = tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), move |_| {
        wait(&gate);
        Ok::<_, String>(token)
    });
    drop(task.unwrap());
    assert_eq!(dropped(), 0);
    go.set(()).unwrap();
    until("the result is dropped", || dropped() == 1);
    // The end comes first.
    let token = Token(drops.clone());
    let task = tasks
        .submit_with(TaskOptions::new().retention(Retention::UntilRemoved), move |_| Ok::<_, String>(token))
        .unwrap();
    until("it is over", || task.status().is_finished());
    assert_eq!(dropped(), 1);
    drop(task);
    assert_eq!((dropped(), tasks.stats().records), (2, 2));
}

#[test]
fn one_of_those_who_want_to_end_a_task_decides_and_knows_it() {
    let (mut returned, mut cancelled) = (0, 0);
    for round in 0..600 {
        let (manual, pool, tasks) = bounded(1);
        let go = Latch::new();
        let gate = go.clone();
        let options = TaskOptions::new().timeout(SECOND).retention(Retention::UntilRemoved);
        let task = tasks.submit_with(options, move |_| {
            wait(&gate);
            Ok::<_, String>(1)
        });
        let task = task.unwrap();
        if round % 3 > 0 {
            until("it runs", || task.status() == Status::Running);
        }
        let start = Barrier::new(4);
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| {
                wait(&start);
                task.cancel()
            });
            let two = scope.spawn(|| {
                wait(&start);
                tasks.cancel(task.id()).unwrap()
            });
            scope.spawn(|| {
                wait(&start);
                if round % 2 == 0 { manual.advance(SECOND) } else { tasks.stop() }
            });
            wait(&start);
            let _ = go.set(());
            (wait(one).unwrap(), wait(two).unwrap())
        });
        until("it is over", || task.status().is_finished());
        let status = task.status();
        assert!(!(one && two), "one decides");
        assert_eq!(one || two, status == Status::Cancelled, "and knows it");
        assert_eq!(task.info().exit.unwrap().is_done(), status == Status::Completed);
        let stats = tasks.stats();
        assert_eq!(stats.completed + stats.cancelled + stats.timed_out + stats.stopped, 1);
        assert_eq!(wait(task).is_done(), status == Status::Completed);
        pool.drain().unwrap();
        returned += usize::from(status == Status::Completed);
        cancelled += usize::from(status == Status::Cancelled);
    }
    assert!(returned + cancelled > 0, "{returned} returned, {cancelled} cancelled");
}

#[test]
fn when_a_task_is_over_so_is_whatever_stands_under_its_request() {
    let (manual, tasks) = manual();
    for (way, reason) in [
        ("returned", Reason::Ended),
        ("failed", Reason::Ended),
        ("panicked", Reason::Ended),
        ("cancelled", Reason::Cancelled),
        ("timed out", Reason::TimedOut),
        ("stopped", Reason::Shutdown),
    ] {
        let (handed_out, go) = (Latch::new(), Latch::new());
        let (hands, gate) = (handed_out.clone(), go.clone());
        let task = tasks.submit_with(TaskOptions::new().timeout(SECOND), move |cancel| {
            let _ = hands.set((cancel.clone(), cancel.child()));
            wait(&gate);
            match way {
                "failed" => Err("failed"),
                "panicked" => panic!("panicked"),
                _ => Ok(()),
            }
        });
        let task = task.unwrap();
        let (its, helpers): (CancelToken, CancelToken) = wait(&handed_out);
        assert!(!its.is_cancelled() && !helpers.is_cancelled());
        match way {
            "cancelled" => assert!(task.cancel()),
            "timed out" => manual.advance(SECOND),
            "stopped" => tasks.stop(),
            _ => go.set(()).unwrap(),
        }
        until(way, || its.is_cancelled() && helpers.is_cancelled());
        assert_eq!((its.reason(), helpers.reason()), (Some(reason.clone()), Some(reason)));
        let _ = go.set(());
    }
}

#[test]
fn one_that_kept_no_token_but_a_callback_or_a_future_is_told_of_the_end() {
    let (_, tasks) = manual();
    let called = Latch::new();
    let (calls, (keeps, kept)) = (called.clone(), mpsc::channel());
    let task = tasks.submit(move |cancel| keeps.send(cancel.on_cancel(move |reason| drop(calls.set(reason.clone())))));
    assert!(wait(task.unwrap()).is_done());
    assert_eq!(wait(&called), Reason::Ended);
    drop(kept);
    let (keeps, kept) = mpsc::channel();
    let task = tasks.submit(move |cancel| keeps.send(cancel.cancelled()).map_err(|_| "gone"));
    assert!(wait(task.unwrap()).is_done());
    assert_eq!(block_on(kept.try_recv().unwrap()), Reason::Ended);
}

#[test]
fn a_closure_that_returns_its_cancel_reason_has_not_failed() {
    let (manual, tasks) = manual();
    let answer = |cancel: &CancelToken| cancel.sleep(HOUR);
    let cancelled = tasks.submit(answer).unwrap();
    let timed_out = tasks.submit_with(TaskOptions::new().timeout(SECOND), answer).unwrap();
    let stopped = tasks.submit(answer).unwrap();
    until("all run", || tasks.stats().running == 3);
    cancelled.cancel();
    manual.advance(SECOND);
    tasks.stop_and_join(HOUR).unwrap();
    let statuses = [&cancelled, &timed_out, &stopped].map(|task| task.status());
    assert_eq!(statuses, [Status::Cancelled, Status::TimedOut, Status::Stopped]);
    assert!(was_ended(&wait(cancelled), Reason::Cancelled));
    assert!(was_ended(&wait(timed_out), Reason::TimedOut));
    assert!(was_ended(&wait(stopped), Reason::Shutdown));
    assert_eq!(tasks.stats().completed, 0);
}
