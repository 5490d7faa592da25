//! Submitting.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::exit::Panic;
use procession::pool::Pool;
use procession::sync::Latch;
use procession::task::{Status, TaskHandle, TaskId, TaskOptions, TaskScheduler};
use procession::{BoxError, CancelToken, Exit, Reason, WaitError};

use crate::support::*;

#[test]
fn a_new_scheduler_takes_tasks_at_once() {
    let tasks = TaskScheduler::new();
    assert_eq!(end(tasks.submit(|_| Ok::<_, String>(1)).unwrap()).output(), Some(&1));
    let tasks = TaskScheduler::on(&Pool::builder().max(1).build().unwrap());
    assert_eq!(end(tasks.submit(|_| Ok::<_, String>(2)).unwrap()).output(), Some(&2));
}

#[test]
fn submitting_waits_neither_for_the_begin_nor_for_the_end() {
    let (_, _pool, tasks) = bounded(1);
    let first = stubborn(&tasks, TaskOptions::new());
    let second = tasks.submit(|_| Ok::<_, String>(2)).unwrap();
    assert_eq!((first.task.status(), second.status()), (Status::Running, Status::Scheduled));
    first.let_go();
    assert_eq!((end(first.task).output(), end(second).output()), (Some(&7), Some(&2)));
}

#[test]
fn a_task_is_known_as_soon_as_submit_has_returned() {
    let tasks = tasks();
    for _ in 0..2_000 {
        let task = tasks.submit(|_| Ok::<_, String>(())).unwrap();
        assert!(tasks.status(task.id()).is_ok() && tasks.info(task.id()).is_ok());
        drop(task);
    }
}

#[test]
fn no_number_is_given_twice() {
    let (_, _pool, tasks) = bounded(2);
    let ids: Vec<TaskId> = std::thread::scope(|scope| {
        let submit = || (0..250).map(|_| tasks.submit(|_| Ok::<_, String>(())).unwrap().id()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(submit)).collect();
        threads.into_iter().flat_map(|thread| wait(thread).unwrap()).collect()
    });
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 1_000);
}

#[test]
fn a_thousand_tasks_do_not_wait_for_each_other() {
    let tasks = tasks();
    let (there, all) = (Arc::new(AtomicUsize::new(0)), Latch::new());
    let together: Vec<_> = (0..1_000)
        .map(|_| {
            let (there, all) = (there.clone(), all.clone());
            // None of them returns before all have begun.
            tasks.submit(move |_| {
                if there.fetch_add(1, Ordering::SeqCst) == 999 {
                    all.set(()).unwrap();
                }
                wait(&all);
                Ok::<_, String>(())
            })
        })
        .collect();
    for task in together {
        assert!(end(task.unwrap()).is_done());
    }
}

#[test]
fn a_closure_gets_its_request_and_may_ignore_it() {
    fn plain(_: &CancelToken) -> Result<u8, String> {
        Ok(1)
    }
    let tasks = tasks();
    assert_eq!(end(tasks.submit(plain).unwrap()).output(), Some(&1));
    assert_eq!(end(tasks.submit(|_| Ok::<_, String>(2)).unwrap()).output(), Some(&2));
    let looks = tasks.submit(|cancel| Ok::<_, String>(cancel.is_cancelled())).unwrap();
    assert_eq!(end(looks).output(), Some(&false));
}

#[test]
fn a_value_is_the_output_and_there_is_no_error() {
    let tasks = tasks();
    let task = tasks.submit_with(TaskOptions::new(), |_| Ok::<_, String>(String::from("done"))).unwrap();
    until("it is over", || task.status().is_finished());
    let info = task.info();
    assert_eq!((info.status, info.error()), (Status::Completed, None));
    assert_eq!(wait(task).into_result().unwrap(), "done");
}

#[test]
fn an_error_comes_as_it_was_returned_and_is_no_status() {
    #[derive(Debug, PartialEq)]
    struct Broken(u8);
    impl std::fmt::Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "broken {}", self.0)
        }
    }
    let tasks = tasks();
    let task = tasks.submit(|_| Err::<(), _>(Broken(3))).unwrap();
    until("it is over", || task.status().is_finished());
    let info = tasks.info(task.id()).unwrap();
    assert_eq!((info.status, info.error().as_deref()), (Status::Completed, Some("broken 3")));
    let exit = wait(task);
    assert!(exit.output().is_none());
    assert!(matches!(exit, Exit::Failed(Broken(3))), "its own type");
    // Any error that `?` takes can be had, too.
    let boxed = tasks.submit(|_| Err::<(), BoxError>("no disk".parse::<u8>().unwrap_err().into())).unwrap();
    assert_eq!(end(boxed).into_result().unwrap_err().to_string(), "it failed: invalid digit found in string");
}

#[test]
fn a_panic_is_an_error_that_says_so_and_nothing_else_suffers() {
    let (_, _pool, tasks) = bounded(1);
    let other = tasks.submit(|_| Ok::<_, String>(1)).unwrap();
    let task = tasks.submit(|_| -> Result<u8, String> { panic!("lost {}", std::hint::black_box(3)) }).unwrap();
    let later = tasks.submit(|_| Ok::<_, String>(2)).unwrap();
    assert_eq!((end(other).output(), end(later).output()), (Some(&1), Some(&2)), "also on the thread of the panic");
    until("it is over", || task.status().is_finished());
    let info = task.info();
    assert_eq!((info.status, info.error().as_deref()), (Status::Completed, Some("panicked: lost 3")));
    let exit = wait(task);
    assert!(exit.output().is_none());
    let Exit::Panicked(panic) = exit else { panic!("{exit}") };
    assert_eq!(panic.message(), "lost 3");
}

#[test]
fn the_payload_of_a_panic_can_be_had() {
    fn payload(tasks: &TaskScheduler, what: impl std::any::Any + Send) -> Panic {
        match end(tasks.submit(|_| -> Result<(), String> { std::panic::panic_any(what) }).unwrap()) {
            Exit::Panicked(panic) => panic,
            other => panic!("{other}"),
        }
    }
    let tasks = tasks();
    let reason = payload(&tasks, Reason::from("an error"));
    assert_eq!(*reason.take_payload().unwrap().downcast::<Reason>().unwrap(), Reason::from("an error"));
    assert_eq!(payload(&tasks, "text").message(), "text");
    assert_eq!(payload(&tasks, String::from("string")).message(), "string");
}

#[test]
fn a_task_ends_also_when_its_job_is_dropped_or_a_drop_panics() {
    struct Unspeakable;
    impl std::fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("in an error's text");
        }
    }
    let (_, pool, tasks) = bounded(1);
    let holds = tasks.submit(|_| Ok::<_, String>(Bomb)).unwrap();
    until("it is over", || holds.status().is_finished());
    drop(holds);
    let captures = Bomb;
    let captured = tasks.submit(move |_| {
        let _captured = captures;
        Ok::<_, String>(())
    });
    assert!(matches!(end(captured.unwrap()), Exit::Panicked(panic) if panic.message() == "in a destructor"));
    let odd = tasks.submit(|_| -> Result<(), String> { std::panic::panic_any(Bomb) }).unwrap();
    drop(end(odd));
    let unspeakable = tasks.submit(|_| Err::<(), _>(Unspeakable)).unwrap();
    assert!(matches!(end(unspeakable), Exit::Failed(Unspeakable)));

    // A pool that is stopped drops what waits.
    let first = stubborn(&tasks, TaskOptions::new());
    let counted = Counted::default();
    let waits = tasks.submit(counted.closure()).unwrap();
    let stopper = std::thread::spawn({
        let pool = pool.clone();
        move || pool.stop().is_ok()
    });
    assert!(was_ended(&end(waits), Reason::Shutdown));
    until("its closure is dropped", || counted.alive() == 0);
    assert_eq!(counted.calls(), 0);
    assert_eq!(first.task.status(), Status::Running, "the pool lets it end");
    first.let_go();
    assert!(wait(stopper).unwrap());
    assert_eq!(end(first.task).output(), Some(&7));
    let refused = tasks.submit(|_| Ok::<_, String>(3)).unwrap_err();
    assert_eq!(refused.to_string(), "the pool accepts no more jobs: it is Stopped");
}

#[test]
fn a_task_may_use_its_own_scheduler() {
    for threads in [1, 2] {
        let (_, _pool, tasks) = bounded(threads);
        let inner = tasks.clone();
        let task = tasks.submit(move |_| {
            let child = inner.submit(|_| Ok::<_, String>(())).map_err(|refused| refused.to_string())?;
            let id = child.id();
            let before = inner.status(id).map_err(|unknown| unknown.to_string())?;
            inner.cancel(id).map_err(|unknown| unknown.to_string())?;
            inner.remove(id).map_err(|error| error.to_string())?;
            inner.list();
            inner.stats();
            inner.stop();
            Ok::<_, String>((before, child.status(), inner.status(id).is_err()))
        });
        let task = task.unwrap();
        let id = task.id();
        assert!(was_ended(&end(task), Reason::Shutdown));
        assert!(tasks.is_stopped() && tasks.status(id).is_err());
        tasks.stop_and_join(LIMIT).unwrap();
    }
}

#[test]
fn a_task_may_wait_for_its_own_submissions_on_one_thread() {
    fn sum(tasks: &TaskScheduler, from: u64, to: u64) -> Result<u64, String> {
        if to - from == 1 {
            return Ok(from);
        }
        let (inner, middle) = (tasks.clone(), from.midpoint(to));
        let half = tasks.submit(move |_| sum(&inner, from, middle)).map_err(|refused| refused.to_string())?;
        let other = sum(tasks, middle, to)?;
        let half = half.wait().map_err(|error| error.to_string())?.into_result().map_err(|error| error.to_string())?;
        Ok(half + other)
    }
    for threads in [1, 2] {
        let (_, _pool, tasks) = bounded(threads);
        let inner = tasks.clone();
        let all = tasks.submit(move |_| sum(&inner, 0, 64)).unwrap();
        assert_eq!(end(all).output(), Some(&(63 * 64 / 2)));
        assert_eq!((tasks.stats().completed, tasks.stats().records), (64, 0));
    }
    // One that was cancelled meanwhile is not run.
    let (_, _pool, tasks) = bounded(1);
    let (inner, counted) = (tasks.clone(), Counted::default());
    let closure = counted.closure();
    let waits = tasks.submit(move |_| {
        let child = inner.submit(closure).map_err(|refused| refused.to_string())?;
        child.cancel();
        Ok::<_, String>(was_ended(&child.wait().unwrap(), Reason::Cancelled))
    });
    assert_eq!((end(waits.unwrap()).output(), counted.calls()), (Some(&true), 0));
}

#[test]
fn a_task_that_waits_for_itself_is_told_so_and_does_not_hang() {
    let (_, _pool, tasks) = bounded(1);
    let (give, own) = std::sync::mpsc::channel::<TaskHandle<(), String>>();
    let (told, inner) = (Latch::new(), tasks.clone());
    let tell = told.clone();
    let task = tasks.submit(move |_| {
        let refused = wait(&own).unwrap().wait_timeout(Duration::MAX).unwrap_err();
        assert_eq!(*refused.reason(), WaitError::Inside);
        let own = refused.into_inner();
        assert_eq!(own.status(), Status::Running);
        // Nor can a task that it waits for, which runs on top of it.
        let nested = inner.submit(move |_| Ok::<_, String>(own.wait().unwrap_err().to_string())).unwrap();
        let error = nested.wait().unwrap().into_result().unwrap();
        tell.set(error).unwrap();
        Ok(())
    });
    give.send(task.unwrap()).unwrap();
    assert_eq!(wait(&told), "the caller would wait for itself");
    // It returns a moment after it has told, and would be stopped before that.
    until("both are over", || tasks.stats().completed == 2);
    tasks.stop_and_join(Duration::MAX).unwrap();
    assert_eq!(tasks.stats().completed, 2);
}

#[test]
fn every_call_may_come_from_many_threads_at_once() {
    let (_, _pool, tasks) = bounded(2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..300 {
                    let task = tasks.submit(move |_| Ok::<_, String>(n)).unwrap();
                    let id = task.id();
                    let decided = tasks.cancel(id).unwrap();
                    assert!(tasks.info(id).is_ok() && tasks.list().iter().any(|task| task.id == id));
                    let exit = wait(task);
                    assert_eq!(decided, was_ended(&exit, Reason::Cancelled));
                    assert_eq!(!decided, exit.output() == Some(&n));
                    assert!(tasks.remove(id).is_err(), "it went with its handle");
                }
            });
        }
    });
    let stats = tasks.stats();
    assert_eq!((stats.submitted, stats.completed + stats.cancelled, stats.records), (1_200, 1_200, 0));
}

#[test]
fn with_a_limit_tasks_begin_in_the_order_of_submission() {
    for (limit, most) in [(0, 1), (1, 1), (3, 3)] {
        let tasks = TaskScheduler::with_limit(limit);
        let first: Vec<_> = (0..most).map(|_| stubborn(&tasks, TaskOptions::new())).collect();
        let order = Arc::new(Mutex::new(Vec::new()));
        let rest: Vec<_> = (0..20)
            .map(|n| {
                let order = order.clone();
                let body = move |_: &CancelToken| {
                    order.lock().unwrap().push(n);
                    Ok::<_, String>(n)
                };
                tasks.submit(body).unwrap()
            })
            .collect();
        let stats = tasks.stats();
        assert_eq!((stats.running, stats.scheduled), (most, 20));
        // One place is enough for all that wait.
        first[0].let_go();
        for (n, task) in rest.into_iter().enumerate() {
            assert_eq!(end(task).output(), Some(&n));
        }
        assert!(order.lock().unwrap().is_sorted());
        assert_eq!(tasks.stats().running, most - 1);
        first.iter().for_each(Stubborn::let_go);
        tasks.stop_and_join(LIMIT).unwrap();
    }
}

#[test]
fn a_limit_is_for_its_own_pool_and_a_waiting_task_makes_room() {
    let shared = Pool::builder().max(2).build().unwrap();
    let tasks = TaskScheduler::builder().pool(&shared).limit(1).build();
    let both: Vec<_> = (0..2).map(|_| stubborn(&tasks, TaskOptions::new())).collect();
    both.iter().for_each(Stubborn::let_go);
    let tasks = TaskScheduler::with_limit(1);
    let submits = tasks.clone();
    let outer = tasks.submit(move |_| {
        let inner: Vec<_> = (0..5).map(|n| submits.submit(move |_| Ok::<_, String>(n)).unwrap()).collect();
        Ok::<usize, String>(inner.into_iter().map(|task| task.wait().unwrap().into_result().unwrap()).sum())
    });
    assert_eq!(end(outer.unwrap()).output(), Some(&10));
}
