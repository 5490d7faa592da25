//! A pacer: things that begin no closer together than a given interval, in a pool or on any thread.
//! `turn.rs` has how.

use std::fmt;
use std::time::Duration;

use super::desk::Handled;
use super::handle::JobHandle;
use super::owner::Pool;
use super::turn::{PacerError, Shared};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::outcome::Rejected;
use crate::sync::Arc;

/// Paces jobs, and threads: no two begin closer together than its interval. Clones are the same pacer; when the last one is
/// dropped it stops.
///
/// ```
/// use procession::pool::{Pacer, Pool};
/// use std::time::Duration;
///
/// let (pool, pacer) = (Pool::new(4)?, Pacer::new(Duration::from_millis(5)));
/// let calls: Vec<_> = (0..3).map(|n| pacer.spawn(&pool, move || n)).collect::<Result<_, _>>()?;
/// let answers: Vec<i32> = calls.into_iter().map(|call| call.wait()).collect::<Result<_, _>>()?;
/// assert_eq!(answers, [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pacer {
    owner: Arc<Owner>,
}

struct Owner {
    shared: Arc<Shared>,
}

/// Counts of a [`Pacer`], all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacerStats {
    /// Who waits: jobs, and threads in [`Pacer::wait`].
    pub waiting: usize,
    /// Who was let through: jobs that have begun, and threads.
    pub started: u64,
    /// Jobs that were given up before they began: they were cancelled, the pacer was stopped, or their pool had been when it
    /// was their turn.
    pub given_up: u64,
}

impl Pacer {
    /// A pacer with this interval, by the system's clock. With [`Duration::ZERO`] nobody waits; with [`Duration::MAX`] only
    /// the first one ever begins. It starts a thread for its timer with its first use.
    pub fn new(every: Duration) -> Pacer {
        Pacer::with_clock(every, Clock::system())
    }

    /// The same by another clock.
    pub fn with_clock(every: Duration, clock: Clock) -> Pacer {
        let shared = Shared::new(every, clock);
        Pacer { owner: Arc::new(Owner { shared: Arc::new(shared) }) }
    }

    /// Has `job` run once on the pool when its turn comes, behind all who wait here. Until then it occupies no worker and no
    /// place in the pool's queue, and does not keep the pool alive; then the queue's bound does not count for it.
    ///
    /// # Errors
    /// The job comes back if the pacer or the pool has been stopped, or there is no thread for the pacer's timer. If the pool
    /// is stopped later, before the job's turn, the job is dropped and counted.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, pool: &Pool, job: F) -> Result<(), Rejected<F, PacerError>> {
        self.owner.shared.join(pool, job).map(|_| ())
    }

    /// The same with a handle to wait for what the job returns, or to cancel it before it begins.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn spawn<T, F>(&self, pool: &Pool, job: F) -> Result<JobHandle<T>, Rejected<F, PacerError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let shared = &self.owner.shared;
        let (work, desk) = Handled::new(job, &shared.clock);
        match shared.join(pool, work) {
            Ok(place) => Ok(JobHandle::elsewhere(desk, Box::new(place))),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Blocks the calling thread until its turn comes, behind all who wait here.
    ///
    /// A job of a pool cannot wait behind paced jobs of the same pool, for they may need its very thread, and whether another
    /// one is free would be a matter of chance. Such a job hands what it has to do later to [`execute`](Self::execute), or
    /// waits by a pacer by which its own pool's jobs are not paced.
    ///
    /// # Errors
    /// The token was cancelled or the pacer stopped before that; or there is no thread for the pacer's timer; or the caller is
    /// a job of a pool of which jobs stand before it here ([`PacerError::Inside`], at once), or a step
    /// ([`PacerError::InsideStep`], at once).
    pub fn wait(&self, cancel: &CancelToken) -> Result<(), PacerError> {
        self.owner.shared.wait(cancel)
    }

    /// Lets nobody through until [`resume`](Self::resume). A job that has its turn already, and only waits for a worker, is
    /// not held back.
    pub fn pause(&self) {
        self.owner.shared.lock().paused = true;
    }

    /// Goes on after a pause. The interval has passed meanwhile.
    pub fn resume(&self) {
        self.owner.shared.lock().paused = false;
        self.owner.shared.advance();
    }

    /// Whether it lets nobody through until it is resumed.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().paused
    }

    /// Stops for good: jobs that wait are dropped, which their handles are told, and threads that wait have an error. How
    /// many there were. A job that has its turn already is still run.
    pub fn stop(&self) -> usize {
        self.owner.shared.stop()
    }

    /// The interval.
    pub fn every(&self) -> Duration {
        self.owner.shared.every
    }

    /// Counts, all of one moment.
    pub fn stats(&self) -> PacerStats {
        let state = self.owner.shared.lock();
        PacerStats { waiting: state.line.len(), started: state.started, given_up: state.given_up }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("every", &self.owner.shared.every).field("stats", &self.stats()).finish()
    }
}
