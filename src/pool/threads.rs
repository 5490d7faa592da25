//! The threads of a pool: how they are started, recognised and joined.

use std::cell::Cell;
use std::collections::HashMap;
use std::io;

use crate::primitives::{Mutex, Ordering, StaticCounter, lock, thread, thread_local};
use crate::threads;

/// How many exited threads of a running pool are remembered. The pool's end joins the last ones, too. The others are
/// forgotten when they have finished, so that the list stays short.
#[cfg(not(loom))]
const REMEMBERED: usize = 8;

thread_local! {
    // The number of the pool that the calling thread belongs to, or 0. A worker keeps the number until its thread ends.
    // So a destructor of a thread-local still runs with it. The pool's memory may be freed before that.
    static POOL: Cell<u64> = Cell::default();
}

/// The number of the next pool. No two pools of a program have the same.
static NEXT_POOL: StaticCounter = StaticCounter::new(1);

pub(super) struct PoolThreads {
    /// The number of the pool, for [`is_current`]. It is valid also when the pool is gone.
    pub(super) pool: u64,
    /// The name of the threads, before their numbers.
    pub(super) name: String,
    stack_size: Option<usize>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    working: HashMap<u64, thread::JoinHandle<()>>,
    // Threads that no longer run code of the pool. Destructors of their thread-locals may still run.
    left: Vec<thread::JoinHandle<()>>,
}

impl PoolThreads {
    pub(super) fn new(name: String, stack_size: Option<usize>) -> PoolThreads {
        // Ordering: Relaxed: the numbers differ, and nothing else is read because of them.
        let pool = NEXT_POOL.fetch_add(1, Ordering::Relaxed);
        PoolThreads { pool, name, stack_size, list: Mutex::default() }
    }

    /// Whether the calling thread is one of these.
    pub(super) fn is_current(&self) -> bool {
        is_current(self.pool)
    }

    /// Makes the calling thread one of these.
    pub(super) fn enter(&self) {
        POOL.with(|pool| pool.set(self.pool));
    }

    /// Makes the calling thread one of these until the guard is dropped.
    pub(super) fn enter_for_now(&self) -> EnteredGuard {
        EnteredGuard { before: POOL.with(|pool| pool.replace(self.pool)) }
    }

    /// Starts a thread. Its `main` gets the thread's number.
    pub(super) fn spawn(&self, main: impl FnOnce(u64) + Send + 'static) -> io::Result<()> {
        // The lock is held until the handle is in the list. So a thread that exits at once finds its handle there.
        let mut list = lock(&self.list);
        list.next += 1;
        let number = list.next;
        let handle = threads::start_sized(format!("{}-{number}", self.name), self.stack_size, move || main(number))?;
        list.working.insert(number, handle);
        Ok(())
    }

    /// Notes that a thread exits. When the pool ends, all exiting threads are remembered.
    pub(super) fn leave(&self, number: u64, pool_ends: bool) {
        let mut list = lock(&self.list);
        let handle = list.working.remove(&number);
        list.left.extend(handle);
        #[cfg(not(loom))]
        if !pool_ends {
            let mut later = list.left.len();
            list.left.retain(|handle| {
                later -= 1;
                later < REMEMBERED || !handle.is_finished()
            });
        }
        #[cfg(loom)]
        let _ = pool_ends;
    }

    /// Takes the exited threads, which the caller joins.
    pub(super) fn take_left(&self) -> Vec<thread::JoinHandle<()>> {
        std::mem::take(&mut lock(&self.list).left)
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn is_empty(&self) -> bool {
        let list = lock(&self.list);
        list.working.is_empty() && list.left.is_empty()
    }
}

#[must_use]
pub(super) struct EnteredGuard {
    before: u64,
}

impl Drop for EnteredGuard {
    fn drop(&mut self) {
        let _ = POOL.try_with(|pool| pool.set(self.before));
    }
}

/// Whether the calling thread belongs to the pool with this number.
pub(super) fn is_current(number: u64) -> bool {
    POOL.try_with(Cell::get).is_ok_and(|pool| pool == number)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::{Pool, QueuePolicy};
    use crate::latch::Latch;
    use crate::primitives::lock;
    use crate::threads;
    use crate::wait::wait;

    /// A longer wait is a hang. Only broken code reaches this limit.
    const LIMIT: Duration = Duration::from_secs(120);

    /// Submits jobs that all have a worker at the same time, and releases them.
    fn occupy(pool: &Pool, workers: usize) {
        let ((begun, begins), go) = (mpsc::channel(), Latch::new());
        for _ in 0..workers {
            let (begun, go) = (begun.clone(), go.clone());
            let job = move || {
                begun.send(()).unwrap();
                go.wait();
            };
            pool.execute(job).unwrap();
        }
        (0..workers).for_each(|_| begins.recv_timeout(LIMIT).unwrap());
        go.set(()).unwrap();
    }

    #[test]
    fn a_pool_that_has_ended_keeps_nothing_also_after_want_of_threads() {
        let pool = Pool::builder().max(4).queue(QueuePolicy::Block(100)).idle_period(None).build().unwrap();
        let (begun, go) = (Latch::new(), Latch::new());
        let (begins, waits) = (begun.clone(), go.clone());
        pool.execute(move || {
            begins.set(()).unwrap();
            waits.wait();
        })
        .unwrap();
        wait(&begun);
        threads::refuse(true);
        let accepted = (0..10).filter(|_| pool.execute(|| ()).is_ok()).count();
        let handle = pool.spawn(|| 7);
        threads::refuse(false);
        assert_eq!((accepted, pool.stats().workers, pool.stats().waiting), (10, 1, 11));
        go.set(()).unwrap();
        assert_eq!(wait(handle.unwrap()).unwrap(), 7);
        occupy(&pool, 4);
        assert_eq!(pool.stats().workers, 4);
        // Waiters of several kinds.
        assert!(pool.wait_idle_timeout(LIMIT).is_ok());
        drop(pool.pause().unwrap());
        occupy(&pool, 4);
        pool.drain_timeout(LIMIT).unwrap();
        let stats = pool.stats();
        assert_eq!((stats.submitted, stats.finished, stats.workers), (20, 20, 0));
        let shared = &pool.owner.shared;
        assert!(shared.threads.is_empty() && lock(&shared.pause_tokens).is_empty());
        let ledger = shared.lock();
        assert!(ledger.submitters.is_empty() && ledger.watchers.is_empty() && ledger.parked().is_empty());
    }
}
