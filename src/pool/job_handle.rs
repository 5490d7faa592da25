//! Jobs with a value: their handle, waits for the value, and batches.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::handle::{Patience, Pool, Ticket, WeakPool};
use super::job::{Handled, JobError, JobState, JobStatus, JobTimes, Work, abandon_all};
use super::limits::PoolError;
use crate::clock::Deadline;
use crate::inside::{WaitError, is_step, refuse_step, refuse_step_timeout};
use crate::outcome::{Reason, Rejected, contain};
use crate::primitives::Arc;

/// The handle of a job that was submitted with [`Pool::spawn`].
///
/// A thread or a future can wait for the job's value. The handle can also cancel the job before it begins. If the
/// handle is dropped, the job still runs.
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::new(2)?;
/// let job = pool.spawn(|| 6 * 7)?;
/// assert_eq!(job.wait()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JobHandle<T> {
    state: Arc<JobState<T>>,
    place: Place,
    // The number of the waker, if the handle was polled.
    waker: Option<u64>,
}

/// Where a job waits, so that it can be removed.
pub(super) enum Place {
    Queue(Ticket),
    /// A pacer, where the job waits for its turn. The function removes the job, if it has not begun.
    Pacer(WeakPool, Box<dyn Fn() -> Option<Box<dyn Work>> + Send + Sync>),
}

/// The error of [`Pool::run`]: the job has no value.
#[derive(thiserror::Error)]
pub enum RunError<F> {
    /// The pool refused the job, and hands it back.
    #[error(transparent)]
    Refused(Rejected<F, PoolError>),
    /// The pool accepted the job, but the job has no value.
    #[error(transparent)]
    Job(JobError),
}

impl Pool {
    /// Submits a job as [`execute`](Self::execute) does, and returns a handle to its value.
    ///
    /// When [`JobHandle::wait`] returns, the job's worker is free for the next job. So a thread that waits for each job
    /// before it submits the next needs only one worker. (If a future is awaited instead, the worker is not free while
    /// it calls the future's waker.)
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn spawn<T, F>(&self, job: F) -> Result<JobHandle<T>, Rejected<F, PoolError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_with(job, Patience::Policy)
    }

    /// As [`spawn`](Self::spawn), but limits the wait for room as [`execute_timeout`](Self::execute_timeout) does.
    ///
    /// # Errors
    /// As [`execute_timeout`](Self::execute_timeout).
    pub fn spawn_timeout<T, F>(&self, job: F, limit: Duration) -> Result<JobHandle<T>, Rejected<F, PoolError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_with(job, Patience::Until(self.owner.shared.clock.deadline(limit)))
    }

    fn spawn_with<T, F>(&self, job: F, patience: Patience) -> Result<JobHandle<T>, Rejected<F, PoolError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (work, state) = Handled::new(job, &self.owner.shared.clock);
        match self.place(work, patience) {
            Ok(number) => Ok(JobHandle::new(state, Place::Queue(self.owner.shared.ticket(number)))),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Runs a job on the pool and returns the job's value.
    ///
    /// Jobs begin in the order of submission. If the caller is a job of the same pool, the calling thread runs the new
    /// job at once, even if other jobs wait. To wait for another worker could deadlock.
    ///
    /// # Errors
    /// The pool refused the job, as in [`execute`](Self::execute), or the caller is a step ([`PoolError::InsideStep`]).
    /// In these cases the job is handed back. Or the job panicked, or it was abandoned while it waited.
    pub fn run<T, F>(&self, job: F) -> Result<T, RunError<F>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if is_step() {
            return Err(RunError::Refused(Rejected::new(job, PoolError::InsideStep)));
        }
        if self.is_inside() {
            return self.run_here(job);
        }
        self.spawn(job).map_err(RunError::Refused)?.wait().map_err(RunError::Job)
    }

    /// Runs a job on the calling thread, which is a thread of the pool.
    fn run_here<T, F: FnOnce() -> T>(&self, job: F) -> Result<T, RunError<F>> {
        let shared = &self.owner.shared;
        let begins = shared.lock().nest();
        if let Err(why) = begins {
            return Err(RunError::Refused(Rejected::new(job, why)));
        }
        let outcome = contain(job);
        if let Err(panic) = &outcome {
            shared.hooks.tell_panic(panic);
        }
        shared.change(|ledger| ledger.nested_ended(outcome.is_err()));
        outcome.map_err(|panic| RunError::Job(JobError::Panicked(panic)))
    }

    /// Submits every job of the iterator in order, as [`spawn`](Self::spawn) does.
    ///
    /// If one job is refused, the next jobs are still submitted.
    ///
    /// To submit all jobs of a queue of your own, pass `queue.drain(..)`.
    pub fn spawn_all<T, F, I>(&self, jobs: I) -> Vec<Result<JobHandle<T>, Rejected<F, PoolError>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
    {
        jobs.into_iter().map(|job| self.spawn(job)).collect()
    }

    /// Runs every job of the iterator and returns the results in the same order.
    ///
    /// The jobs are submitted in order, and the call waits for all of them.
    ///
    /// If the caller is a job of the same pool, the calling thread runs some of the jobs itself. It runs each job that
    /// no other worker has begun when the caller would wait for it. It also runs the jobs for which a bounded queue has
    /// no room.
    ///
    /// # Errors
    /// Each result is what [`run`](Self::run) returns for the job.
    pub fn run_all<T, F, I>(&self, jobs: I) -> Vec<Result<T, RunError<F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
    {
        if is_step() {
            let refused = |job| Err(RunError::Refused(Rejected::new(job, PoolError::InsideStep)));
            return jobs.into_iter().map(refused).collect();
        }
        let inside = self.is_inside();
        let begun: Vec<Begun<T, F>> = jobs
            .into_iter()
            .map(|job| {
                self.spawn(job).map_err(|refused| {
                    if inside && matches!(refused.reason(), PoolError::Full) {
                        self.run_here(refused.into_inner())
                    } else {
                        Err(RunError::Refused(refused))
                    }
                })
            })
            .collect();
        let outcome = |handle: JobHandle<T>| handle.wait().map_err(RunError::Job);
        begun.into_iter().map(|begun| begun.map_or_else(|over| over, outcome)).collect()
    }
}

/// A job of a batch: its handle, or its outcome if it is over.
type Begun<T, F> = Result<JobHandle<T>, Result<T, RunError<F>>>;

impl<T: Send + 'static> JobHandle<T> {
    pub(super) fn new(state: Arc<JobState<T>>, place: Place) -> JobHandle<T> {
        JobHandle { state, place, waker: None }
    }

    /// Waits for the job's value and returns it.
    ///
    /// If the caller is a job of the same pool and this job has not begun, the calling thread runs it at once. It does
    /// not run a paced job before its turn: see [`JobError::Inside`].
    ///
    /// # Errors
    /// The job panicked, or was cancelled or abandoned before it began. Or the caller must not wait, because it is a
    /// step ([`JobError::InsideStep`]) or would wait for itself ([`JobError::Inside`]).
    pub fn wait(self) -> Result<T, JobError> {
        match self.wait_finished() {
            Ok(()) => self.state.take(),
            Err(WaitError::InsideStep) => Err(JobError::InsideStep),
            Err(_) => Err(JobError::Inside),
        }
    }

    /// As [`wait`](Self::wait), but waits at most `limit`.
    ///
    /// The limit is measured by the pool's clock, or for a paced job by the pacer's. If the limit passes, the job goes
    /// on. The calling thread never runs the job, because that might take longer than the limit. With [`Duration::MAX`]
    /// the call is the same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// The limit has passed ([`WaitError::TimedOut`]), or the caller is a step ([`WaitError::InsideStep`]). The handle
    /// is given back. A step may make the call with a limit of zero.
    pub fn wait_timeout(self, limit: Duration) -> Result<Result<T, JobError>, Rejected<JobHandle<T>, WaitError>> {
        match self.wait_finished_timeout(limit) {
            Ok(()) => Ok(self.state.take()),
            Err(WaitError::Inside) => Ok(Err(JobError::Inside)),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    /// Waits until the job has ended, without taking its value.
    ///
    /// If the caller is a job of the same pool, it runs the job as [`wait`](Self::wait) does.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]), or it would wait for itself ([`WaitError::Inside`]: see
    /// [`JobError::Inside`]). In both cases the call returns at once.
    pub fn wait_finished(&self) -> Result<(), WaitError> {
        refuse_step()?;
        if !self.help() {
            return Err(WaitError::Inside);
        }
        self.state.wait(Deadline::NEVER);
        Ok(())
    }

    /// As [`wait_finished`](Self::wait_finished), but waits at most `limit`.
    ///
    /// The calling thread never runs the job. With [`Duration::MAX`] the call is the same as
    /// [`wait_finished`](Self::wait_finished).
    ///
    /// # Errors
    /// The limit has passed, or the caller is a step. A step may make the call with a limit of zero.
    pub fn wait_finished_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        refuse_step_timeout(limit)?;
        let deadline = self.state.clock.deadline(limit);
        if deadline == Deadline::NEVER {
            return self.wait_finished();
        }
        if self.state.wait(deadline) { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// Runs the job, if it waits and this is a thread of its pool.
    ///
    /// Returns whether the caller may then wait for the job.
    fn help(&self) -> bool {
        if self.state.runs_here() {
            return false;
        }
        match &self.place {
            Place::Queue(ticket) => ticket.run_if_inside(),
            Place::Pacer(pool, _) => return self.state.status() != JobStatus::Waiting || !pool.is_inside(),
        }
        true
    }

    /// The stage of the job's life.
    pub fn status(&self) -> JobStatus {
        self.state.status()
    }

    /// The times at which the job was submitted, began and ended.
    pub fn times(&self) -> JobTimes {
        self.state.times()
    }

    /// Cancels the job if it has not begun. Returns whether this call cancelled it.
    ///
    /// The cancelled job is removed from the queue. The calling thread drops its closure before the call returns. When
    /// a wait for the job returns on another thread, the closure may not have been dropped yet. A job that has begun
    /// goes on. To ask a running job to stop, share a [`CancelToken`](crate::CancelToken) with it.
    pub fn cancel(&self) -> bool {
        let work = match &self.place {
            Place::Queue(ticket) => ticket.take(),
            Place::Pacer(_, take) => take(),
        };
        work.map(|work| abandon_all([work], &Reason::Cancelled).finish(|| ())).is_some()
    }
}

/// Resolves to the job's result, like [`JobHandle::wait`]. It must not be polled again after it was ready.
impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, JobError>> {
        let JobHandle { state, waker, .. } = &mut *self;
        state.poll(cx, waker)
    }
}

impl<T> Drop for JobHandle<T> {
    fn drop(&mut self) {
        self.state.handle_is_gone(self.waker.take());
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("status", &self.state.status()).finish()
    }
}

impl<F> RunError<F> {
    /// Returns the job, if the pool refused it.
    pub fn into_refused(self) -> Option<F> {
        match self {
            RunError::Refused(refused) => Some(refused.into_inner()),
            RunError::Job(_) => None,
        }
    }
}

impl<F> fmt::Debug for RunError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            RunError::Job(error) => f.debug_tuple("Job").field(error).finish(),
        }
    }
}
