//! Helpers that the tests share: jobs that hold their worker, a manual clock, and panics that are expected.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::{Pool, PoolBuilder};
use procession::sync::Latch;

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

/// Panics of jobs are expected here; those of the tests themselves are still told.
pub fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !std::thread::current().name().is_some_and(|name| name.starts_with("pool")) {
                loud(info);
            }
        }));
    });
}

/// A job that holds its worker.
pub struct Held {
    begun: Latch<()>,
    go: Latch<()>,
}

impl Held {
    pub fn has_begun(&self) -> bool {
        self.begun.is_set()
    }

    pub fn begun(&self) {
        wait(&self.begun);
    }

    pub fn let_go(&self) {
        let _ = self.go.set(());
    }
}

/// Let go, whatever becomes of the test, so that a failure is not a hang.
impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Submits a job that says when it has begun, and then holds its worker until it is let go.
pub fn submit_held(pool: &Pool) -> Held {
    let held = Held { begun: Latch::new(), go: Latch::new() };
    let (begun, go) = (held.begun.clone(), held.go.clone());
    pool.execute(move || {
        let _ = begun.set(());
        wait(&go);
    })
    .unwrap();
    held
}

/// The same, and waits until it has begun.
pub fn hold(pool: &Pool) -> Held {
    let held = submit_held(pool);
    held.begun();
    held
}

/// Holds so many workers.
pub fn hold_all(pool: &Pool, workers: usize) -> Vec<Held> {
    let held: Vec<Held> = (0..workers).map(|_| submit_held(pool)).collect();
    held.iter().for_each(Held::begun);
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
