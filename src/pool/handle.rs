//! Jobs with a value: a handle to wait for it, and batches.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::desk::{Desk, Handled, JobError, JobStatus, JobTimes};
use super::owner::{Patience, Pool, Ticket};
use super::seat::call_all;
use super::thread::PoolError;
use super::words::Refusal;
use super::work::Work;
use crate::clock::Deadline;
use crate::inside::{WaitError, is_step, refuse_step_timeout};
use crate::outcome::{Rejected, contain};
use crate::sync::Arc;

/// A job that was submitted with [`Pool::spawn`]: to wait for its value, as a thread or as a future, or to cancel it before
/// it begins. Dropped, it leaves the job to itself, which is still run.
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
    desk: Arc<Desk<T>>,
    place: Place,
}

/// Where a job waits, so that it can be taken out.
enum Place {
    Line(Ticket),
    Elsewhere(Box<dyn Elsewhere>),
}

/// A place other than the line of a pool.
pub(super) trait Elsewhere: Send + Sync {
    /// Takes the job out, if it has not begun.
    fn take(&self) -> Option<Box<dyn Work>>;

    /// Whether the calling thread is one of the pool's that the job is for.
    fn is_inside(&self) -> bool;
}

/// Why [`Pool::run`] has no value.
pub enum RunError<F> {
    /// The job was refused; here it is.
    Refused(Rejected<F, PoolError>),
    /// The job was accepted, and came to no value.
    Job(JobError),
}

impl Pool {
    /// As [`execute`](Self::execute), with a handle to wait for what the job returns.
    ///
    /// Submitted one after the other, each when a thread has waited for the one before, jobs need one worker: who waits for a
    /// job finds its worker free. (A future's waker is code of its user's, and while that runs the worker is not free.)
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn spawn<T, F>(&self, job: F) -> Result<JobHandle<T>, Rejected<F, PoolError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.spawn_with(job, Patience::AsSaid)
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
        let (work, desk) = Handled::new(job, &self.owner.shared.clock);
        match self.place(work, patience) {
            Ok(number) => Ok(JobHandle { desk, place: Place::Line(self.ticket(number)) }),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Runs a job on the pool and waits for what it returns. The order is that of submission, as ever.
    ///
    /// Called by a job of the same pool, it runs the job at once on the calling thread, whether or not others wait: to wait
    /// for another worker could be to wait for ever.
    ///
    /// # Errors
    /// The job comes back if it was refused, as in [`execute`](Self::execute), or if the caller is a step
    /// ([`PoolError::InsideStep`]); otherwise it panicked, or was given up while it waited.
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

    /// Runs a job on the thread of the one that waits for it.
    fn run_here<T, F: FnOnce() -> T>(&self, job: F) -> Result<T, RunError<F>> {
        let shared = &self.owner.shared;
        let begins = shared.lock().nest();
        if let Err(status) = begins {
            return Err(RunError::Refused(Rejected::new(job, PoolError::from(Refusal::Ended(status)))));
        }
        let outcome = contain(job);
        if let Err(panic) = &outcome {
            shared.hooks.tell_panic(panic);
        }
        let news = {
            let mut ledger = shared.lock();
            ledger.nested_ended(outcome.is_err());
            ledger.news()
        };
        call_all(news);
        outcome.map_err(|panic| RunError::Job(JobError::Panicked(panic)))
    }

    /// Submits every job of the iterator, in order, as [`spawn`](Self::spawn) does. One that is refused does not keep back
    /// those behind it.
    ///
    /// Exactly what the iterator yields is taken: to run what is in a queue of yours and to leave what comes later, give it
    /// `queue.drain(..)`.
    pub fn spawn_all<T, F, I>(&self, jobs: I) -> Vec<Result<JobHandle<T>, Rejected<F, PoolError>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
    {
        jobs.into_iter().map(|job| self.spawn(job)).collect()
    }

    /// Submits every job of the iterator, in order, waits for all of them, and returns what came of each, in the same order.
    ///
    /// Called by a job of the same pool, the calling thread runs those that no other worker has begun when their turn to be
    /// waited for comes, and those for which a bounded queue has no room.
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
    /// For a job that waits somewhere else than in a pool's line.
    pub(super) fn elsewhere(desk: Arc<Desk<T>>, place: Box<dyn Elsewhere>) -> JobHandle<T> {
        JobHandle { desk, place: Place::Elsewhere(place) }
    }

    /// Waits for what the job returns.
    ///
    /// Called by a job of the same pool, it runs the job at once on the calling thread if it has not begun yet. (A paced job
    /// is not run before its turn, and a job that has its own handle cannot wait for itself: see [`JobError::Inside`].)
    ///
    /// # Errors
    /// The job panicked, or was cancelled or given up before it began; or the caller is a step ([`JobError::InsideStep`]).
    pub fn wait(self) -> Result<T, JobError> {
        if is_step() {
            return Err(JobError::InsideStep);
        }
        if !self.help() {
            return Err(JobError::Inside);
        }
        self.desk.wait(Deadline::NEVER);
        // Only a future that was polled to its end has taken it before, and that has the handle.
        self.desk.take().unwrap_or(Err(JobError::Abandoned))
    }

    /// The same, at most so long by the pool's clock. The job goes on either way, and is not run by the calling thread, for
    /// that might take longer. With [`Duration::MAX`] it is as [`wait`](Self::wait).
    ///
    /// # Errors
    /// The handle comes back: the limit was over ([`WaitError::TimedOut`]), or the caller is a step
    /// ([`WaitError::InsideStep`]).
    pub fn wait_timeout(self, limit: Duration) -> Result<Result<T, JobError>, Rejected<JobHandle<T>, WaitError>> {
        if let Err(error) = refuse_step_timeout(Some(limit)) {
            return Err(Rejected::new(self, error));
        }
        let deadline = self.desk.deadline(Some(limit));
        if deadline == Deadline::NEVER {
            return Ok(self.wait());
        }
        if self.desk.wait(deadline) {
            return Ok(self.desk.take().unwrap_or(Err(JobError::Abandoned)));
        }
        Err(Rejected::new(self, WaitError::TimedOut))
    }

    /// Waits until the job is over, without taking what it has returned. Without a limit, and called by a job of the same
    /// pool, it runs the job as [`wait`](Self::wait) does.
    ///
    /// # Errors
    /// The limit was over before; or, at once, the caller is a step, or is the job itself.
    pub fn wait_over(&self, limit: Option<Duration>) -> Result<(), WaitError> {
        refuse_step_timeout(limit)?;
        let deadline = self.desk.deadline(limit);
        if deadline == Deadline::NEVER && !self.help() {
            return Err(WaitError::Inside);
        }
        if self.desk.wait(deadline) { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// What a thread of the pool does for a job before it waits for it: runs it, if no other has begun to. Whether it may
    /// wait then.
    fn help(&self) -> bool {
        if self.desk.runs_here() {
            return false;
        }
        match &self.place {
            Place::Line(ticket) => ticket.run_if_inside(),
            Place::Elsewhere(place) => return self.desk.status() != JobStatus::Waiting || !place.is_inside(),
        }
        true
    }

    /// Where the job is in its life.
    pub fn status(&self) -> JobStatus {
        self.desk.status()
    }

    /// When it was submitted, began and ended.
    pub fn times(&self) -> JobTimes {
        self.desk.times()
    }

    /// Cancels the job if it has not begun: it leaves the queue and is dropped, by this thread, before this returns. Whether
    /// this call did it. A job that has begun goes on; to stop one, share a [`CancelToken`](crate::CancelToken) with it.
    pub fn cancel(&self) -> bool {
        let work = match &self.place {
            Place::Line(ticket) => ticket.take(),
            Place::Elsewhere(place) => place.take(),
        };
        work.map(|work| work.cancel()).is_some()
    }
}

/// What [`JobHandle::wait`] returns. Not to be polled again when it was ready once.
impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, JobError>> {
        self.desk.poll(cx)
    }
}

impl<T> Drop for JobHandle<T> {
    fn drop(&mut self) {
        self.desk.handle_is_gone();
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("status", &self.desk.status()).finish()
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

impl<F> fmt::Display for RunError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Refused(refused) => refused.fmt(f),
            RunError::Job(error) => error.fmt(f),
        }
    }
}

impl<F> std::error::Error for RunError<F> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Refused(refused) => std::error::Error::source(refused.reason()),
            RunError::Job(error) => std::error::Error::source(error),
        }
    }
}
