//! Helpers that the tests share: pools by a manual clock, and pools whose workers are all held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::{Pool, PoolBuilder};

pub(crate) use crate::blocker::*;
pub(crate) use crate::panics::*;
pub(crate) use crate::wait::*;

pub const SECOND: Duration = Duration::from_secs(1);

/// A pool of so many workers, whose jobs may panic without filling the screen.
pub fn pool(max: usize) -> Pool {
    builder(max).build().unwrap()
}

/// A pool whose workers end only where a test says so. By the default, and the system's clock, they would also end on
/// a machine that stands still for a while.
pub fn builder(max: usize) -> PoolBuilder {
    quiet_panics();
    Pool::builder().max(max).idle_period(None)
}

/// A pool by a clock that is moved by hand.
pub fn by_hand(max: usize) -> (Pool, ManualClock) {
    let manual = ManualClock::new();
    let pool = builder(max).idle_period(Some(SECOND)).clock(manual.clock()).build().unwrap();
    (pool, manual)
}

/// Holds so many workers.
pub fn hold_all(pool: &Pool, workers: usize) -> Vec<Blocker> {
    let held: Vec<Blocker> = (0..workers).map(|_| submit_held(pool)).collect();
    held.iter().for_each(Blocker::wait_begun);
    held
}

/// Has so many workers come to be, and to rest.
pub fn rested(pool: &Pool, workers: usize) {
    drop(hold_all(pool, workers));
    assert!(pool.wait_idle_timeout(LIMIT).is_ok());
}

pub fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::SeqCst);
}

/// Submits so many jobs that add to a count.
pub fn submit_counted(pool: &Pool, count: &Arc<AtomicUsize>, jobs: usize) {
    for _ in 0..jobs {
        let count = count.clone();
        pool.execute(move || add(&count)).unwrap();
    }
}

/// Stops the pool as a check at the end: everything accepted is accounted for, and nothing is left.
pub fn ended(pool: &Pool) {
    pool.stop_timeout(LIMIT).unwrap();
    let stats = pool.stats();
    assert_eq!((stats.workers, stats.unfinished()), (0, 0), "{stats:?}");
    assert_eq!(stats.submitted, stats.finished + stats.abandoned + stats.withdrawn, "{stats:?}");
}

/// Threads that are joined one by one before the scope ends. (The thread sanitizer does not see the order that the
/// end of a scope makes, because the standard library was not compiled with it.)
pub struct Together<'scope, 'env: 'scope> {
    scope: &'scope std::thread::Scope<'scope, 'env>,
    threads: std::cell::RefCell<Vec<std::thread::ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope> Together<'scope, '_> {
    pub fn spawn<R>(&self, run: impl FnOnce() -> R + Send + 'scope) {
        self.threads.borrow_mut().push(self.scope.spawn(move || drop(std::hint::black_box(run()))));
    }
}

pub fn together<'env, R>(run: impl for<'scope> FnOnce(&Together<'scope, 'env>) -> R) -> R {
    std::thread::scope(|scope| {
        let together = Together { scope, threads: std::cell::RefCell::default() };
        let result = run(&together);
        for thread in together.threads.take() {
            wait(thread).unwrap();
        }
        result
    })
}
