//! Jobs: closures that are run once on threads that may block.
//!
//! Threads start on demand up to a maximum, jobs beyond that wait in a queue without bound, and threads that have had
//! nothing to do for a while end. There is no dispatcher thread: whoever submits a job hands it over under one short lock
//! (`pool/ledger.rs`), and an idle pool uses no processor time.

mod line;
mod ledger;
mod thread;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroUsize;
use std::time::Duration;

pub use self::ledger::PoolStatus;
pub use self::thread::{Job, PoolError};

use self::ledger::{Ledger, Placed, Seat};
use self::thread::{Shared, Threads};
use crate::clock::{Clock, Deadline};
use crate::outcome::{Rejected, drop_contained};
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, Mutex, Weak, lock};
use crate::threads;

/// How long a worker may have nothing to do before the pool begins to shrink, where nothing else was said.
pub const DEFAULT_IDLE_PERIOD: Duration = Duration::from_secs(2);

/// An elastic pool of threads. Clones are the same pool; when the last one is dropped the pool stops, without waiting.
///
/// ```
/// use procession::pool::Pool;
/// use std::sync::mpsc;
///
/// let pool = Pool::builder().max(4).build()?;
/// let (sender, receiver) = mpsc::channel();
/// pool.execute(move || sender.send(6 * 7).unwrap())?;
/// assert_eq!(receiver.recv()?, 42);
/// pool.drain(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner>,
}

/// Stops the pool with its last handle. The threads hold the [`Shared`] part only.
struct Owner {
    shared: Arc<Shared>,
}

/// A job that has been handed in. As long as it waits, it can be taken out again.
///
/// It keeps neither the pool nor the job alive, and dropping it changes nothing.
#[allow(dead_code, reason = "the rungs above build on it")]
pub(crate) struct Ticket {
    shared: Weak<Shared>,
    number: u64,
}

#[allow(dead_code, reason = "the rungs above build on it")]
impl Ticket {
    /// Takes the job out of the line, if it still waits there: then it is never run by the pool, is counted as withdrawn and
    /// no more as waiting, and whoever called this has it, to drop it (the pool has dropped nothing, and holds no lock) or
    /// to run it here and now.
    ///
    /// There is nothing to take if the job has begun (also if a thread is only being started for it), has ended, was
    /// withdrawn before, or was abandoned by a stop. Exactly one of all these happens to a job, so of `withdraw` and the
    /// worker only one has it.
    ///
    /// Costs the pool's lock and a binary search, however many jobs wait. May be called from anywhere, also by a job.
    pub(crate) fn withdraw(&self) -> Option<Job> {
        let shared = self.shared.upgrade()?;
        lock(&shared.ledger).withdraw(self.number)
    }
}

/// Options of a [`Pool`].
#[derive(Clone, Debug)]
pub struct PoolBuilder {
    max: usize,
    idle_period: Option<Duration>,
    name: String,
    clock: Clock,
}

/// Counts of a [`Pool`], all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolStats {
    /// The most threads there may be.
    pub max: usize,
    /// Threads there are.
    pub workers: usize,
    /// Those that have nothing to do.
    pub resting: usize,
    /// Jobs that are being run.
    pub running: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// Jobs ever accepted.
    pub submitted: u64,
    /// Jobs that have returned or panicked.
    pub finished: u64,
    /// Those of them that panicked.
    pub panicked: u64,
    /// Jobs that were given back when the pool was stopped.
    pub abandoned: u64,
}

/// An option of a [`PoolBuilder`] that is out of range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadPool {
    /// There would be no thread.
    #[error("a pool needs at least one thread: `max` is {given}")]
    Max {
        /// The maximum that was given.
        given: usize,
    },
    /// The name has a NUL in it, which no name of a thread can have.
    #[error("no thread can be called {given:?}")]
    Name {
        /// The name that was given.
        given: String,
    },
}

/// The limit was over before the last running job had returned. The pool goes on ending by itself.
#[derive(Debug, thiserror::Error)]
#[error("{running} jobs are still running and {waiting} waiting")]
pub struct StillRunning {
    /// Jobs that had not returned.
    pub running: usize,
    /// Jobs that had not begun (of a drain).
    pub waiting: usize,
}

impl Pool {
    /// Options, each with its default: as many threads as processors, but at least 4; ended after
    /// [`DEFAULT_IDLE_PERIOD`]; called `pool-N`; the system's clock.
    pub fn builder() -> PoolBuilder {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        PoolBuilder {
            max: processors.max(4),
            idle_period: Some(DEFAULT_IDLE_PERIOD),
            name: String::from("pool"),
            clock: Clock::system(),
        }
    }

    /// Has `job` run once on a thread of the pool. Does not block, however many jobs wait. Jobs start in the order in
    /// which they were submitted. A panic in a job is contained and counted.
    ///
    /// # Errors
    /// The job comes back if the pool is being stopped, or has no thread and can start none.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, job: F) -> Result<(), Rejected<F, PoolError>> {
        self.place(job).map(|_| ())
    }

    /// As [`execute`](Self::execute), but the job can be taken out again as long as it waits.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    #[allow(dead_code, reason = "the rungs above build on it")]
    pub(crate) fn submit<F: FnOnce() + Send + 'static>(&self, job: F) -> Result<Ticket, Rejected<F, PoolError>> {
        let number = self.place(job)?;
        Ok(Ticket { shared: Arc::downgrade(&self.owner.shared), number })
    }

    /// Finds the job a worker, or a place in line. Its number.
    fn place<F: FnOnce() + Send + 'static>(&self, job: F) -> Result<u64, Rejected<F, PoolError>> {
        let shared = &self.owner.shared;
        let now = shared.clock.now();
        let placed = {
            let mut ledger = lock(&shared.ledger);
            ledger.submit(job, |job| Box::new(job) as Job, now).map_err(|job| (job, ledger.status))
        };
        let (number, placed) = placed.map_err(|(job, status)| Rejected::new(job, PoolError::Stopped(status)))?;
        match placed {
            Placed::Queued => {}
            Placed::Wake(seat) => seat.notify_one(),
            Placed::StartWith(job) => shared.start_with(number, job)?,
            Placed::Start => shared.start(),
        }
        Ok(number)
    }

    /// Takes no more jobs, does all that wait, and returns when the last thread has ended.
    ///
    /// Called by a job of this pool it does not wait (it would wait for itself).
    ///
    /// # Errors
    /// The limit was over before that. The draining goes on; a later [`stop`](Self::stop) cuts it short.
    pub fn drain(&self, limit: Option<Duration>) -> Result<(), StillRunning> {
        self.owner.shared.drain();
        self.owner.shared.end(limit)
    }

    /// Takes no more jobs, drops those that wait, and returns how many those were when the last thread has ended.
    ///
    /// Called by a job of this pool it does not wait (it would wait for itself).
    ///
    /// # Errors
    /// The limit was over before the running jobs had returned.
    pub fn stop(&self, limit: Option<Duration>) -> Result<usize, StillRunning> {
        let abandoned = self.owner.shared.stop();
        let count = abandoned.len();
        abandoned.into_iter().for_each(drop_contained);
        self.owner.shared.end(limit).map(|()| count)
    }

    /// For a shutdown: takes no more jobs, and does those that wait until the deadline by this clock.
    pub(crate) fn drain_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.drain();
        self.owner.shared.wait_until_left(clock, deadline);
    }

    /// For a shutdown: takes no more jobs and begins none, and gives back those that wait. They are the user's: dropping
    /// one may take long.
    pub(crate) fn abandon(&self) -> VecDeque<Job> {
        self.owner.shared.stop()
    }

    /// For a shutdown, after [`abandon`](Self::abandon): waits for the running jobs until the deadline by this clock. How
    /// many there still are, and the threads of the others, to be joined.
    pub(crate) fn leave_until(&self, clock: &Clock, deadline: Deadline) -> (usize, Vec<JoinHandle<()>>) {
        let shared = &self.owner.shared;
        shared.wait_until_left(clock, deadline);
        (lock(&shared.ledger).running, shared.threads.take_left())
    }

    /// Where the pool is in its life.
    pub fn status(&self) -> PoolStatus {
        lock(&self.owner.shared.ledger).status
    }

    /// Counts, all of one moment.
    pub fn stats(&self) -> PoolStats {
        let ledger = lock(&self.owner.shared.ledger);
        PoolStats {
            max: ledger.max,
            workers: ledger.workers,
            resting: ledger.resting(),
            running: ledger.running,
            waiting: ledger.waiting(),
            submitted: ledger.submitted,
            finished: ledger.finished,
            panicked: ledger.panicked,
            abandoned: ledger.abandoned,
        }
    }

    /// By which clock its limits are.
    pub(crate) fn clock(&self) -> &Clock {
        &self.owner.shared.clock
    }

    /// Whether the calling thread is one of this pool's.
    pub fn is_inside(&self) -> bool {
        self.owner.shared.threads.is_current()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.stats()).finish()
    }
}

impl Shared {
    fn drain(&self) {
        let seats = {
            let mut ledger = lock(&self.ledger);
            ledger.drain();
            ledger.wake_all()
        };
        wake(seats);
    }

    fn stop(&self) -> VecDeque<Job> {
        let (abandoned, seats) = {
            let mut ledger = lock(&self.ledger);
            (ledger.stop(), ledger.wake_all())
        };
        wake(seats);
        abandoned
    }

    /// Waits until all have left.
    fn end(self: &Arc<Shared>, limit: Option<Duration>) -> Result<(), StillRunning> {
        if self.threads.is_current() {
            return Ok(());
        }
        let deadline = limit.map_or(Deadline::NEVER, |limit| self.clock.deadline(limit));
        self.wait_until_left(&self.clock, deadline);
        let left = self.threads.take_left();
        if !left.is_empty() {
            threads::join_all(left).wait_until(&self.clock, deadline);
        }
        let ledger = lock(&self.ledger);
        if ledger.is_over() {
            return Ok(());
        }
        Err(StillRunning { running: ledger.running, waiting: ledger.waiting() })
    }
}

fn wake(seats: Vec<Seat>) {
    for seat in seats {
        seat.notify_one();
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop().into_iter().for_each(drop_contained);
    }
}

impl PoolBuilder {
    /// The most threads there may be.
    pub fn max(mut self, threads: usize) -> PoolBuilder {
        self.max = threads;
        self
    }

    /// How long nothing may happen before the pool begins to shrink; `None`: it never does.
    pub fn idle_period(mut self, period: Option<Duration>) -> PoolBuilder {
        self.idle_period = period;
        self
    }

    /// What the threads are called, followed by a number.
    pub fn name(mut self, name: impl Into<String>) -> PoolBuilder {
        self.name = name.into();
        self
    }

    /// The clock for idle periods and limits.
    pub fn clock(mut self, clock: Clock) -> PoolBuilder {
        self.clock = clock;
        self
    }

    /// Makes the pool. No thread is started before there is a job.
    ///
    /// # Errors
    /// The maximum is zero, or the name has a NUL in it.
    pub fn build(self) -> Result<Pool, BadPool> {
        if self.max == 0 {
            return Err(BadPool::Max { given: self.max });
        }
        if !threads::is_name(&self.name) {
            return Err(BadPool::Name { given: self.name });
        }
        let ledger = Mutex::new(Ledger::new(self.max, self.idle_period, self.clock.now()));
        let shared = Arc::new(Shared { ledger, threads: Threads::new(self.name), clock: self.clock });
        Ok(Pool { owner: Arc::new(Owner { shared }) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::latch::Latch;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_withdrawn_job_never_runs_and_is_dropped_by_whoever_withdraws_it() {
        let pool = Pool::builder().max(1).build().unwrap();
        let (begun, go) = (Latch::new(), Latch::new());
        let (set, wait) = (begun.clone(), go.clone());
        pool.execute(move || {
            set.set(()).unwrap();
            wait.wait();
        })
        .unwrap();
        begun.wait();
        let (token, ran) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
        let tickets: Vec<_> = (0..3)
            .map(|_| {
                let (token, ran) = (token.clone(), ran.clone());
                pool.submit(move || {
                    let _token = token;
                    ran.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap()
            })
            .collect();
        let job = tickets[1].withdraw().unwrap();
        assert!(tickets[1].withdraw().is_none());
        assert_eq!((pool.stats().waiting, Arc::strong_count(&token)), (2, 4), "it is had back, and not dropped");
        drop(job);
        assert_eq!(Arc::strong_count(&token), 3);
        go.set(()).unwrap();
        pool.drain(None).unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&token)), (2, 1));
        assert!(tickets[0].withdraw().is_none());
        drop(pool);
        assert!(tickets[2].withdraw().is_none(), "it keeps no pool alive");
    }
}
