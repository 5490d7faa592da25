//! Jobs with a value: the handle, waiting for the value, and batches.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::handle::{Patience, Pool, Ticket};
use super::job::{Handled, JobError, JobState, JobStatus, JobTimes, Work};
use super::ledger::Refusal;
use super::worker::PoolError;
use crate::clock::Deadline;
use crate::inside::{WaitError, is_step, refuse_step, refuse_step_timeout};
use crate::outcome::{Rejected, contain};
use crate::primitives::Arc;

/// A handle to a job that was submitted with [`Pool::spawn`].
///
/// It waits for the job's value, as a thread or as a future, or cancels the job before it begins. If the handle is dropped,
/// the job is still run.
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
}

/// Where a job waits, so that it can be removed.
enum Place {
    Queue(Ticket),
    Elsewhere(Box<dyn Elsewhere>),
}

/// A place other than the queue of a pool.
pub(super) trait Elsewhere: Send + Sync {
    /// Removes the job, if it has not begun.
    fn take(&self) -> Option<Box<dyn Work>>;

    /// Whether the calling thread is one of the job's pool.
    fn is_inside(&self) -> bool;
}

/// [`Pool::run`] has no value.
#[derive(thiserror::Error)]
pub enum RunError<F> {
    /// The job was refused, and is handed back.
    #[error(transparent)]
    Refused(Rejected<F, PoolError>),
    /// The job was accepted, and came to no value.
    #[error(transparent)]
    Job(JobError),
}

impl Pool {
    /// As [`execute`](Self::execute), with a handle to wait for what the job returns.
    ///
    /// When a thread has waited for a job, the job's worker is free. So jobs that a thread submits one after the other, each
    /// after it has waited for the one before, need one worker. (While a future's waker runs, the worker is not free.)
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

    /// As [`spawn`](Self::spawn), but waits for room as [`execute_timeout`](Self::execute_timeout) does.
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
            Ok(number) => Ok(JobHandle { state, place: Place::Queue(self.ticket(number)) }),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Runs a job on the pool and waits for what it returns.
    ///
    /// Jobs begin in the order of submission. Called by a job of the same pool, it runs the job at once on the calling thread,
    /// whether or not others wait: a wait for another worker might never end.
    ///
    /// # Errors
    /// The job was refused, as in [`execute`](Self::execute), or the caller is a step ([`PoolError::InsideStep`]): it is handed
    /// back. Or it panicked, or was abandoned while it waited.
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

    /// Runs a job on the thread of the job that waits for it.
    fn run_here<T, F: FnOnce() -> T>(&self, job: F) -> Result<T, RunError<F>> {
        let shared = &self.owner.shared;
        let begins = shared.lock().nest();
        if let Err(status) = begins {
            return Err(RunError::Refused(Rejected::new(job, Refusal::Ended(status).into())));
        }
        let outcome = contain(job);
        if let Err(panic) = &outcome {
            shared.hooks.tell_panic(panic);
        }
        shared.change(|ledger| ledger.nested_ended(outcome.is_err()));
        outcome.map_err(|panic| RunError::Job(JobError::Panicked(panic)))
    }

    /// Submits every job of the iterator, in order, as [`spawn`](Self::spawn) does. A refused job does not keep back the
    /// next ones.
    ///
    /// Exactly the jobs that the iterator yields are taken. To run the jobs that are in a queue of yours now, pass
    /// `queue.drain(..)`.
    pub fn spawn_all<T, F, I>(&self, jobs: I) -> Vec<Result<JobHandle<T>, Rejected<F, PoolError>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
    {
        jobs.into_iter().map(|job| self.spawn(job)).collect()
    }

    /// Submits every job of the iterator, in order, waits for all of them, and returns their results in the same order.
    ///
    /// Called by a job of the same pool, the calling thread runs the jobs that no other worker has begun when it comes to wait
    /// for them, and those for which a bounded queue has no room.
    ///
    /// # Errors
    /// For each job as [`run`](Self::run).
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
            .map(|job| match self.spawn(job) {
                Ok(handle) => Begun::Handle(handle),
                Err(refused) if inside && matches!(refused.reason(), PoolError::Full) => {
                    Begun::Over(self.run_here(refused.into_inner()))
                }
                Err(refused) => Begun::Over(Err(RunError::Refused(refused))),
            })
            .collect();
        begun
            .into_iter()
            .map(|begun| match begun {
                Begun::Handle(handle) => handle.wait().map_err(RunError::Job),
                Begun::Over(outcome) => outcome,
            })
            .collect()
    }
}

enum Begun<T, F> {
    Handle(JobHandle<T>),
    Over(Result<T, RunError<F>>),
}

impl<T: Send + 'static> JobHandle<T> {
    /// A handle to a job that waits somewhere else than in a pool's queue.
    pub(super) fn elsewhere(state: Arc<JobState<T>>, place: Box<dyn Elsewhere>) -> JobHandle<T> {
        JobHandle { state, place: Place::Elsewhere(place) }
    }

    /// Waits for what the job returns.
    ///
    /// Called by a job of the same pool, it runs the job at once on the calling thread if the job has not begun. (A paced job
    /// is not run before its turn, and a job cannot wait for itself: see [`JobError::Inside`].)
    ///
    /// # Errors
    /// The job panicked, or was cancelled or abandoned before it began; or the caller is a step ([`JobError::InsideStep`]).
    pub fn wait(self) -> Result<T, JobError> {
        if is_step() {
            return Err(JobError::InsideStep);
        }
        if !self.help() {
            return Err(JobError::Inside);
        }
        self.state.wait(Deadline::NEVER);
        // Only a future that was polled to its end can have taken it before.
        self.state.take().unwrap_or(Err(JobError::Abandoned))
    }

    /// As [`wait`](Self::wait), but waits at most so long by the pool's clock.
    ///
    /// The job goes on either way. The calling thread never runs it, for that might take longer. With [`Duration::MAX`] the
    /// call is as [`wait`](Self::wait).
    ///
    /// # Errors
    /// The limit was over ([`WaitError::TimedOut`]), or the caller is a step ([`WaitError::InsideStep`]). The handle is given
    /// back.
    pub fn wait_timeout(self, limit: Duration) -> Result<Result<T, JobError>, Rejected<JobHandle<T>, WaitError>> {
        if let Err(error) = refuse_step_timeout(Some(limit)) {
            return Err(Rejected::new(self, error));
        }
        let deadline = self.state.deadline(limit);
        if deadline == Deadline::NEVER {
            return Ok(self.wait());
        }
        if self.state.wait(deadline) {
            return Ok(self.state.take().unwrap_or(Err(JobError::Abandoned)));
        }
        Err(Rejected::new(self, WaitError::TimedOut))
    }

    /// Waits until the job has ended, without taking what it has returned.
    ///
    /// Called by a job of the same pool, it runs the job as [`wait`](Self::wait) does.
    ///
    /// # Errors
    /// At once: the caller is a step, or is the job itself.
    pub fn wait_finished(&self) -> Result<(), WaitError> {
        refuse_step()?;
        if !self.help() {
            return Err(WaitError::Inside);
        }
        self.state.wait(Deadline::NEVER);
        Ok(())
    }

    /// As [`wait_finished`](Self::wait_finished), but waits at most so long by the pool's clock. The calling thread never runs
    /// the job. With [`Duration::MAX`] the call is as [`wait_finished`](Self::wait_finished).
    ///
    /// # Errors
    /// The limit was over, or the caller is a step.
    pub fn wait_finished_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        refuse_step_timeout(limit)?;
        let deadline = self.state.deadline(limit);
        if deadline == Deadline::NEVER {
            return self.wait_finished();
        }
        if self.state.wait(deadline) { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// Runs the job, if the calling thread is one of the pool's and no other has begun it. Returns whether the caller may
    /// wait for the job then.
    fn help(&self) -> bool {
        if self.state.runs_here() {
            return false;
        }
        match &self.place {
            Place::Queue(ticket) => ticket.run_if_inside(),
            Place::Elsewhere(place) => return self.state.status() != JobStatus::Waiting || !place.is_inside(),
        }
        true
    }

    /// The stage of the job's life.
    pub fn status(&self) -> JobStatus {
        self.state.status()
    }

    /// When the job was submitted, began and ended.
    pub fn times(&self) -> JobTimes {
        self.state.times()
    }

    /// Cancels the job if it has not begun. Returns whether this call has cancelled it.
    ///
    /// A cancelled job leaves the queue, and this thread drops it before the call returns. A job that has begun goes on. To
    /// stop one, share a [`CancelToken`](crate::CancelToken) with it.
    pub fn cancel(&self) -> bool {
        let work = match &self.place {
            Place::Queue(ticket) => ticket.take(),
            Place::Elsewhere(place) => place.take(),
        };
        work.map(|work| work.cancel()).is_some()
    }
}

/// The future of what [`JobHandle::wait`] returns. It must not be polled again after it was ready.
impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, JobError>> {
        self.state.poll(cx)
    }
}

impl<T> Drop for JobHandle<T> {
    fn drop(&mut self) {
        self.state.handle_is_gone();
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("status", &self.state.status()).finish()
    }
}

impl<F> RunError<F> {
    /// The job, if it was refused.
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
