//! Schedulers, and closures that do what a test says.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::Pool;
use procession::sync::Latch;
use procession::task::{TaskHandle, TaskOptions, TaskScheduler};
use procession::{CancelToken, Exit, Reason};

pub(crate) use crate::blocker::*;
pub(crate) use crate::panics::*;
pub(crate) use crate::wait::*;
pub(crate) use crate::waker::*;

pub const HOUR: Duration = Duration::from_secs(3600);
pub const SECOND: Duration = Duration::from_secs(1);
pub const MILLI: Duration = Duration::from_millis(1);

/// A scheduler whose tasks may panic without filling the screen.
pub fn tasks() -> TaskScheduler {
    quiet_panics();
    TaskScheduler::new()
}

/// The same with a clock that is moved by hand.
pub fn manual() -> (ManualClock, TaskScheduler) {
    quiet_panics();
    let manual = ManualClock::new();
    let tasks = TaskScheduler::builder().clock(manual.clock()).build();
    (manual, tasks)
}

/// A scheduler on a pool of so many threads, and a clock for both.
pub fn bounded(threads: usize) -> (ManualClock, Pool, TaskScheduler) {
    quiet_panics();
    let manual = ManualClock::new();
    let pool = Pool::builder().max(threads).name("procession-test").clock(manual.clock()).build().unwrap();
    let tasks = TaskScheduler::on(&pool);
    (manual, pool, tasks)
}

/// A task that has begun, and ignores all requests until it is let go.
pub struct Stubborn {
    pub task: TaskHandle<u32, String>,
    pub blocker: Blocker,
    /// Dropped with the closure, or with what it returned.
    pub returned: Latch<()>,
}

/// Starts one, which returns 7.
pub fn stubborn(tasks: &TaskScheduler, options: TaskOptions) -> Stubborn {
    let (blocker, returned) = (Blocker::new(), Latch::new());
    let (blocked, end) = (blocker.blocked(), returned.clone());
    let task = tasks.submit_with(options, move |_| {
        blocked.wait();
        let _ = end.set(());
        Ok(7)
    });
    let task = task.unwrap();
    blocker.wait_begun();
    Stubborn { task, blocker, returned }
}

impl Stubborn {
    pub fn let_go(&self) {
        self.blocker.release();
    }
}

/// A closure that ends as soon as it is asked to.
pub fn obedient(cancel: &CancelToken) -> Result<u32, Reason> {
    Err(cancel.wait())
}

/// Counts how often a closure was called, and how many of its kind are still there.
#[derive(Clone, Default)]
pub struct Counted {
    calls: Arc<AtomicUsize>,
    alive: Arc<()>,
}

impl Counted {
    pub fn closure(&self) -> impl FnOnce(&CancelToken) -> Result<(), String> + Send + use<> {
        let Counted { calls, alive } = self.clone();
        move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            drop(alive);
            Ok(())
        }
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Closures that have been neither called nor dropped.
    pub fn alive(&self) -> usize {
        Arc::strong_count(&self.alive) - 1
    }
}

/// Whether it ended so.
pub fn was_ended<T, E>(exit: &Exit<T, E>, reason: impl Into<Reason>) -> bool {
    matches!(exit, Exit::Terminated(why) if *why == reason.into())
}

/// Waits for the end of a task; one that does not end is an error.
#[track_caller]
pub fn end<T, E>(task: TaskHandle<T, E>) -> Exit<T, E> {
    wait(task)
}
