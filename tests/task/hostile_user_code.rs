//! User code that panics, comes back into the scheduler, or stops it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use procession::Reason;
use procession::sync::Latch;
use procession::task::{Retention, Status, TaskOptions, TaskScheduler};

use crate::support::*;

#[test]
fn callbacks_and_wakers_that_panic_are_contained() {
    let (manual, tasks) = manual();
    let registered = Latch::new();
    let registers = registered.clone();
    let mut task = tasks
        .submit_with(TaskOptions::new().timeout(SECOND), move |cancel| {
            let _registration = cancel.on_cancel(|_| panic!("in a callback"));
            let _ = registers.set(());
            Err::<(), _>(cancel.wait())
        })
        .unwrap();
    let waker = Waker::from(Arc::new(PanickingWaker));
    assert!(Pin::new(&mut task).poll(&mut Context::from_waker(&waker)).is_pending());
    wait(&registered);
    let other = tasks.submit_with(TaskOptions::new().timeout(2 * SECOND), obedient).unwrap();
    until("it runs", || other.status() == Status::Running);
    // Both are called by the thread that moves the clock.
    quietly(|| manual.advance(3 * SECOND));
    assert_eq!((task.status(), other.status()), (Status::TimedOut, Status::TimedOut));
    assert!(was_ended(&wait(task), Reason::TimedOut));
}

#[test]
fn closures_whose_destructors_panic_do_not_prevent_a_stop() {
    let (_, _pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let waits: Vec<_> = (0..10)
        .map(|_| {
            let bomb = Bomb;
            tasks.submit(move |_| {
                let _bomb = bomb;
                Ok::<_, String>(())
            })
        })
        .map(Result::unwrap)
        .collect();
    quietly(|| {
        assert!(waits[0].cancel());
        tasks.stop();
    });
    assert!(waits[1..].iter().all(|task| task.status() == Status::Stopped));
    held.let_go();
}

#[test]
fn destructors_and_callbacks_may_use_their_scheduler() {
    /// Asks and tells its scheduler whatever it can when it is dropped.
    struct Meddles(TaskScheduler, Arc<AtomicUsize>);
    impl Drop for Meddles {
        fn drop(&mut self) {
            let (tasks, count) = (&self.0, &self.1);
            for info in tasks.list() {
                let _ = tasks.cancel(info.id);
                let _ = tasks.remove(info.id);
            }
            if let Ok(task) = tasks.submit(|_| Ok::<_, String>(())) {
                task.cancel();
            }
            tasks.stop();
            count.fetch_add(1, Ordering::SeqCst);
        }
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let expected = 4;
    for way in 0..expected {
        let (_, _pool, tasks) = bounded(1);
        let held = stubborn(&tasks, TaskOptions::new());
        let meddles = Meddles(tasks.clone(), drops.clone());
        let task =
            tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), move |_| Ok::<_, String>(meddles));
        let task = task.unwrap();
        match way {
            0 => drop(task.cancel()),
            1 => tasks.stop(),
            2 => {
                held.let_go();
                drop(task);
            }
            _ => {
                held.let_go();
                drop(end(task));
            }
        }
        held.let_go();
        until("it was dropped", || drops.load(Ordering::SeqCst) == way + 1);
        until("it is stopped", || tasks.is_stopped());
    }
}

#[test]
fn outputs_that_cannot_be_dropped_in_peace_hurt_nobody() {
    let tasks = tasks();
    let task =
        tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |_| Ok::<_, String>(Bomb)).unwrap();
    until("it is over", || task.status().is_finished());
    quietly(|| drop(task));
    drop(tasks.submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |_| Ok::<_, String>(Bomb)).unwrap());
    until("both are over", || tasks.stats().completed == 2);
    let after = tasks.submit(|_| Ok::<_, String>(1)).unwrap();
    assert_eq!(end(after).output(), Some(&1));
}

#[test]
fn an_output_whose_text_panics_can_still_be_had() {
    struct Unspeakable;
    impl std::fmt::Debug for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("in an output's text");
        }
    }
    let tasks = tasks();
    let task = tasks.submit(|_| Ok::<_, String>(Unspeakable)).unwrap();
    until("it is over", || task.status().is_finished());
    let text = quietly(|| task.to_string());
    assert_eq!(text, "task 1: Completed, output: an output whose text panics, error: none");
    assert!(wait(task).is_done());
}

#[test]
fn a_callback_may_stop_the_scheduler_that_calls_it() {
    let tasks = tasks();
    let (registered, called) = (Latch::new(), Latch::new());
    let (registers, calls, inner) = (registered.clone(), called.clone(), tasks.clone());
    let task = tasks.submit(move |cancel| {
        let _registration = cancel.on_cancel(move |_| {
            inner.stop();
            let _ = calls.set(inner.stats().running);
        });
        let _ = registers.set(());
        Err::<(), _>(cancel.wait())
    });
    let task = task.unwrap();
    let other = tasks.submit(obedient).unwrap();
    wait(&registered);
    task.cancel();
    assert_eq!(called.get(), Some(0));
    assert_eq!((task.status(), other.status()), (Status::Cancelled, Status::Stopped));
}

/// Panics on the test's own thread are told by the standard library; these are expected.
fn quietly<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| {
        let quiet = std::thread::Builder::new().name("procession-quiet".into()).spawn_scoped(scope, run);
        wait(quiet.unwrap()).unwrap()
    })
}
