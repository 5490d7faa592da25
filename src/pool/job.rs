//! A job that the pool runs, and the storage of its outcome.
//!
//! One thread takes a job out of the queue, under the ledger's lock. That thread runs, withdraws or abandons it. The
//! queue holds a job once, so its outcome is decided once.

use std::any::Any;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::clock::{Clock, Deadline};
use crate::latch::{Calls, Latch};
use crate::outcome::{Panic, Reason, contain, drop_contained};
use crate::primitives::{Arc, Mutex, MutexGuard, ThreadId, lock, thread};

/// A closure that is called once.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job as the pool stores it. A plain closure implements this itself, so an empty one needs no memory.
pub(crate) trait Work: Any + Send {
    /// Runs the job. A panic of a plain closure is not contained.
    fn run(self: Box<Self>) -> Ran;

    /// Wakes the threads that wait for the job.
    ///
    /// It is called after [`run`](Self::run), when the worker counts as free. So a thread that waited for the job finds
    /// the worker free. It runs no user code. It returns the remaining user code: a waker, or the destructor of a value
    /// without a handle.
    fn tell(self: Box<Self>) -> Option<Job> {
        None
    }

    /// Decides that the job never begins, and wakes the threads that wait for it. Runs no user code.
    fn abandon(&mut self, _why: &Reason) {}

    /// Calls the wakers and callbacks that wait for the job, which are user code.
    ///
    /// It is called after [`abandon`](Self::abandon). The closure is dropped with the job.
    fn tell_abandoned(&mut self) {}
}

/// Jobs that never begin.
///
/// All threads that wait for them have been woken. User code is left to run: wakers, and the destructors of the
/// closures.
#[must_use = "dropping this drops the jobs before all wakers are called"]
pub(super) struct Abandoned {
    jobs: Vec<Box<dyn Work>>,
}

/// Decides that these jobs never begin. Runs no user code.
pub(super) fn abandon_all(jobs: impl IntoIterator<Item = Box<dyn Work>>, why: &Reason) -> Abandoned {
    let mut jobs: Vec<_> = jobs.into_iter().collect();
    jobs.iter_mut().for_each(|job| job.abandon(why));
    Abandoned { jobs }
}

impl Abandoned {
    /// Calls the wakers of all these jobs, and then drops the jobs. After each drop it calls `dropped`.
    pub(super) fn finish(mut self, dropped: impl Fn()) {
        self.jobs.iter_mut().for_each(|job| job.tell_abandoned());
        for job in self.jobs {
            drop_contained(job);
            dropped();
        }
    }
}

/// The actions that remain when a job has run.
pub(crate) struct Ran {
    pub(super) panic: Option<Panic>,
    /// The job, to be [told](Work::tell) later.
    pub(super) after: Option<Box<dyn Work>>,
}

impl Ran {
    /// No action remains.
    pub(crate) fn nothing() -> Ran {
        Ran { panic: None, after: None }
    }
}

impl<F: FnOnce() + Send + 'static> Work for F {
    fn run(self: Box<Self>) -> Ran {
        self();
        Ran::nothing()
    }
}

/// Runs a job and contains a panic.
pub(super) fn run_contained(work: Box<dyn Work>) -> Ran {
    contain(|| work.run()).unwrap_or_else(|panic| Ran { panic: Some(panic), after: None })
}

/// Turns the job into a closure for the user. When called, it runs as it would have in the pool, and completes its
/// handle.
pub(super) fn into_job(work: Box<dyn Work>) -> Job {
    Box::new(move || {
        if let Some(rest) = work.run().after.and_then(Work::tell) {
            rest();
        }
    })
}

/// The reason why a job has no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job panicked.
    #[error("the job {0}")]
    Panicked(#[source] Panic),
    /// The job was cancelled before it began.
    #[error("the job was cancelled before it began")]
    Cancelled,
    /// The job was abandoned before it began. Its pool or its pacer was stopped, or the pool could not start a thread.
    /// Or [`Pool::abandon`](super::Pool::abandon) returned the job, and the caller dropped it.
    #[error("the job was abandoned before it began")]
    Abandoned,
    /// The caller is a step of a process. The call would have blocked the worker that runs the step. The job goes on,
    /// but its value is lost. To keep the handle, call [`JobHandle::wait_timeout`](super::JobHandle::wait_timeout) with
    /// a limit of zero, or await the handle.
    #[error("a step cannot wait for a job, for it would block its worker: yield it as blocking work")]
    InsideStep,
    /// The caller is the job itself, or its wait might never have ended.
    ///
    /// The second case is this: the job waits at a [`Pacer`](super::Pacer), and the caller is another job of the same
    /// pool. The job itself goes on.
    #[error("a job cannot wait for itself, or for the turn of a paced job of its own pool")]
    Inside,
}

/// The stage of a job's life. Stages only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JobStatus {
    /// The job has not begun.
    Waiting,
    /// The job has begun.
    Running,
    /// The job has returned.
    Returned,
    /// The job has panicked.
    Panicked,
    /// The job was cancelled before it began.
    Cancelled,
    /// The job was abandoned before it began.
    Abandoned,
}

impl JobStatus {
    /// Whether the job has ended, for any reason.
    pub fn is_finished(self) -> bool {
        self > JobStatus::Running
    }
}

/// The times at which a job was submitted, began and ended.
///
/// They are measured by the pool's clock. For a paced job, they are measured by the pacer's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobTimes {
    /// When the job was submitted.
    pub submitted: Instant,
    /// When the job began, or `None` if it has not.
    pub began: Option<Instant>,
    /// When the job ended for any reason, or `None` if it has not.
    pub ended: Option<Instant>,
}

/// How often a waiting thread yields its processor and checks the job before it sleeps.
#[cfg(not(loom))]
const LOOKS: usize = 64;
#[cfg(loom)]
const LOOKS: usize = 0;

/// The progress of a job with a handle. It is shared by the handle and the job.
pub(super) struct JobState<T> {
    progress: Mutex<Progress<T>>,
    // Set when the job has ended.
    over: Latch<()>,
    pub(super) clock: Clock,
}

struct Progress<T> {
    status: JobStatus,
    times: JobTimes,
    // The thread that runs the job.
    runs_on: Option<ThreadId>,
    outcome: Option<Result<T, JobError>>,
    // Whether the handle was dropped.
    unwanted: bool,
}

impl<T> JobState<T> {
    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        lock(&self.progress)
    }

    fn begins(&self) {
        let (now, me) = (self.clock.now(), thread::current().id());
        let mut progress = self.lock();
        (progress.status, progress.runs_on, progress.times.began) = (JobStatus::Running, Some(me), Some(now));
    }

    /// Sets the outcome and wakes the waiting threads.
    ///
    /// Returns the remaining user code: a waker to call, or an outcome without a handle.
    fn decide(&self, outcome: Result<T, JobError>) -> (Option<Calls<()>>, Option<Result<T, JobError>>) {
        let now = self.clock.now();
        let mut progress = self.lock();
        progress.status = match &outcome {
            Ok(_) => JobStatus::Returned,
            Err(JobError::Panicked(_)) => JobStatus::Panicked,
            Err(JobError::Cancelled) => JobStatus::Cancelled,
            Err(JobError::Abandoned | JobError::Inside | JobError::InsideStep) => JobStatus::Abandoned,
        };
        progress.times.ended = Some(now);
        let mut unwanted = Some(outcome);
        if !progress.unwanted {
            progress.outcome = unwanted.take();
        }
        let calls = self.over.decide(()).ok().filter(|calls| !calls.is_empty());
        (calls, unwanted)
    }

    pub(super) fn status(&self) -> JobStatus {
        self.lock().status
    }

    /// Whether the calling thread runs the job.
    pub(super) fn runs_here(&self) -> bool {
        let me = thread::current().id();
        let progress = self.lock();
        progress.status == JobStatus::Running && progress.runs_on == Some(me)
    }

    pub(super) fn times(&self) -> JobTimes {
        self.lock().times
    }

    /// Takes the outcome of a job that has ended.
    pub(super) fn take(&self) -> Result<T, JobError> {
        // It is missing only if the handle was polled as a future until it was ready.
        self.lock().outcome.take().unwrap_or(Err(JobError::Abandoned))
    }

    /// Polls for the outcome. `place` holds the number of the handle's waker.
    pub(super) fn poll(&self, cx: &mut Context<'_>, place: &mut Option<u64>) -> Poll<Result<T, JobError>> {
        self.over.poll_take(cx, place).map(|()| self.take())
    }

    /// Notes that the handle was dropped. This thread or the worker drops the outcome. Both contain its destructor.
    pub(super) fn handle_is_gone(&self, waker: Option<u64>) {
        let outcome = {
            let mut progress = self.lock();
            progress.unwanted = true;
            progress.outcome.take()
        };
        self.over.forget_waker(waker);
        drop_contained(outcome);
    }

    /// Waits until the job has ended or the deadline has passed. Returns whether the job has ended.
    pub(super) fn wait(&self, deadline: Deadline) -> bool {
        for _ in 0..LOOKS {
            if self.over.is_set() {
                return true;
            }
            if deadline.has_passed(&self.clock) {
                return false;
            }
            thread::yield_now();
        }
        self.over.wait_until(&self.clock, deadline)
    }
}

/// A job with a handle.
pub(super) struct Handled<F, T> {
    // It is there until the job runs or is dropped.
    job: Option<F>,
    outcome: Option<Result<T, JobError>>,
    // The handle's waker, if the job was abandoned.
    calls: Option<Calls<()>>,
    state: Arc<JobState<T>>,
}

impl<F, T> Handled<F, T> {
    pub(super) fn new(job: F, clock: &Clock) -> (Handled<F, T>, Arc<JobState<T>>) {
        let times = JobTimes { submitted: clock.now(), began: None, ended: None };
        let progress = Progress { status: JobStatus::Waiting, times, runs_on: None, outcome: None, unwanted: false };
        let state = JobState { progress: Mutex::new(progress), over: Latch::new(), clock: clock.clone() };
        let state = Arc::new(state);
        (Handled { job: Some(job), outcome: None, calls: None, state: state.clone() }, state)
    }

    /// Returns the closure of a refused job.
    pub(super) fn into_job(mut self) -> F {
        self.job.take().expect("it was not run")
    }

    fn give_up(&mut self, why: JobError) {
        if self.job.is_some() && !self.state.over.is_set() {
            self.calls = self.state.decide(Err(why)).0;
        }
    }

    fn call(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.make();
        }
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Work for Handled<F, T> {
    fn run(mut self: Box<Self>) -> Ran {
        let Some(job) = self.job.take() else { return Ran::nothing() };
        self.state.begins();
        let outcome = contain(job);
        let panic = outcome.as_ref().err().cloned();
        if self.state.lock().unwanted {
            // The destructor of the outcome is part of the job.
            drop_contained(outcome);
            return Ran { panic, after: None };
        }
        self.outcome = Some(outcome.map_err(JobError::Panicked));
        Ran { panic, after: Some(self) }
    }

    fn tell(mut self: Box<Self>) -> Option<Job> {
        let (calls, unwanted) = self.state.decide(self.outcome.take()?);
        if calls.is_none() && unwanted.is_none() {
            return None;
        }
        Some(Box::new(move || {
            drop_contained(unwanted);
            if let Some(calls) = calls {
                calls.make();
            }
        }))
    }

    fn abandon(&mut self, why: &Reason) {
        self.give_up(if *why == Reason::Cancelled { JobError::Cancelled } else { JobError::Abandoned });
    }

    fn tell_abandoned(&mut self) {
        self.call();
    }
}

/// A job that is dropped before it began is abandoned. Its handle is completed before the closure is dropped, so a
/// destructor that waits for the handle does not wait for itself.
impl<F, T> Drop for Handled<F, T> {
    fn drop(&mut self) {
        self.give_up(JobError::Abandoned);
        self.call();
        drop_contained(self.job.take());
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{JobHandle, Pool};
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::{until, wait};
    use std::time::Duration;

    #[test]
    fn a_wait_without_a_limit_outlasts_one_with_a_limit() {
        let manual = ManualClock::new();
        let (handled, state) = Handled::new(|| 7, &manual.clock());
        let waiter = |deadline| {
            let state = state.clone();
            std::thread::spawn(move || state.wait(deadline))
        };
        let for_ever = waiter(Deadline::NEVER);
        let limited = waiter(state.clock.deadline(Duration::from_secs(1)));
        until("both sleep", || state.over.sleepers() == 2);
        manual.advance(Duration::from_secs(1));
        assert!(!wait(limited).unwrap());
        until("the other sleeps again", || state.over.sleepers() == 1);
        assert!(!for_ever.is_finished());
        drop(Box::new(handled).run().after.and_then(Work::tell));
        assert!(wait(for_ever).unwrap());
        assert_eq!(state.take().unwrap(), 7);
    }

    #[test]
    fn a_value_that_loses_its_handle_is_dropped_by_the_worker() {
        let value = Arc::new(());
        let returned = value.clone();
        let (handled, state) = Handled::new(move || returned, &Clock::system());
        let after = Box::new(handled).run().after.unwrap();
        state.handle_is_gone(None);
        let rest = after.tell().unwrap();
        assert_eq!(Arc::strong_count(&value), 2, "it is dropped when the worker counts as away");
        rest();
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_dropped_closure_that_waits_for_its_own_handle_has_an_answer() {
        struct Waits(Arc<Mutex<Option<JobHandle<()>>>>, Latch<bool>);
        impl Drop for Waits {
            fn drop(&mut self) {
                let own = lock(&self.0).take();
                let told = own.map(JobHandle::wait);
                let _ = self.1.set(matches!(told, Some(Err(JobError::Abandoned))));
            }
        }
        let (pool, gate) = (Pool::new(1).unwrap(), Latch::new());
        let opens = gate.clone();
        pool.execute(move || wait(&opens)).unwrap();
        let (own, told) = (Arc::default(), Latch::new());
        let waits = Waits(Arc::clone(&own), told.clone());
        let job = pool.spawn(move || drop(waits)).unwrap();
        *lock(&own) = Some(job);
        let dropper = pool.clone();
        thread::spawn(move || drop(dropper.abandon()));
        let clock = Clock::system();
        assert!(told.wait_until(&clock, clock.deadline(Duration::from_secs(60))) && wait(&told));
        gate.set(()).unwrap();
    }
}
