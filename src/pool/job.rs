//! A job that the pool runs, and the storage of its outcome.
//!
//! One thread takes a job out of the queue, under the ledger's lock. That thread runs, withdraws or abandons it. The
//! queue holds a job once, so its outcome is decided once.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::clock::{Clock, Deadline};
use crate::outcome::{Panic, Reason, contain, drop_contained, tell_log};
use crate::primitives::{Arc, Condvar, Mutex, MutexGuard, ThreadId, lock, thread};

/// A closure that is run once.
pub type Job = Box<dyn FnOnce() + Send>;

/// A job as the pool stores it. A plain closure implements this itself, so an empty one needs no memory.
pub(crate) trait Work: Send {
    /// Runs the job. A panic of a plain closure is not contained.
    fn run(self: Box<Self>) -> Ran;

    /// Drops the job because it was cancelled. It drops the closure first, and completes the handle afterwards.
    fn cancel(self: Box<Self>) {
        drop_contained(self);
    }

    /// Decides that the job never begins, and wakes the threads that wait for it. Runs no code of the user's.
    fn abandon(&mut self, _why: &Reason) {}

    /// After [`abandon`](Self::abandon): calls what else waits for the job, which is code of the user's. The closure is dropped
    /// with the job.
    fn tell_abandoned(&mut self) {}
}

/// Decides that these jobs never begin. Runs no code of the user's, so all threads that wait for them are woken.
pub(super) fn abandon_all<'a>(jobs: impl IntoIterator<Item = &'a mut Box<dyn Work>>, why: &Reason) {
    jobs.into_iter().for_each(|job| job.abandon(why));
}

/// Calls the wakers of all these jobs, before the first of them is dropped.
pub(super) fn tell_all_abandoned<'a>(jobs: impl IntoIterator<Item = &'a mut Box<dyn Work>>) {
    jobs.into_iter().for_each(|job| job.tell_abandoned());
}

/// The actions that remain when a job has run.
pub(crate) struct Ran {
    pub(super) panic: Option<Panic>,
    pub(super) after: Option<Box<dyn After>>,
}

impl Ran {
    /// No action remains.
    pub(crate) fn nothing() -> Ran {
        Ran { panic: None, after: None }
    }
}

/// An outcome that completes its handle after the worker counts as free. So a thread that waited for the job finds
/// the worker free.
pub(crate) trait After: Send {
    /// Wakes the waiting threads, which runs no user code. Returns the remaining user code: a waker, or the
    /// destructor of a value without a handle.
    fn tell(self: Box<Self>) -> Option<Job>;
}

impl<F: FnOnce() + Send> Work for F {
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
        if let Some(rest) = work.run().after.and_then(After::tell) {
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
    /// The job was abandoned before it began. The pool was stopped or could not start a thread, or the job was given
    /// back and dropped.
    #[error("the job was abandoned before it began")]
    Abandoned,
    /// The caller is a step, and would have blocked its worker. The job goes on, but its value is lost. To keep the
    /// handle, call [`JobHandle::wait_timeout`](super::JobHandle::wait_timeout) with a limit of zero, or await the
    /// handle.
    #[error("a step cannot wait for a job, for it would block its worker: yield it as blocking work")]
    InsideStep,
    /// The caller is the job itself, or a job whose wait for it might never have ended.
    ///
    /// The second case is another job of the same pool, while this one waits in a [`Pacer`](super::Pacer). The job
    /// goes on.
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

/// The times at which a job was submitted, began and ended, by the pool's clock.
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

pub(super) struct JobState<T> {
    progress: Mutex<Progress<T>>,
    decided: Condvar,
    clock: Clock,
}

struct Progress<T> {
    status: JobStatus,
    times: JobTimes,
    // The thread that runs the job, or that drops it without a call.
    runs_on: Option<ThreadId>,
    outcome: Option<Result<T, JobError>>,
    // The waker of the one handle.
    waker: Option<Waker>,
    // Whether the handle was dropped.
    unwanted: bool,
    // The number of threads that sleep. If it is zero, the system call to wake them is skipped. Several threads may
    // wait at one handle.
    sleepers: usize,
}

impl<T> JobState<T> {
    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        lock(&self.progress)
    }

    fn begins(&self) {
        let (now, me) = (self.clock.now(), thread::current().id());
        let mut progress = self.lock();
        progress.status = JobStatus::Running;
        progress.runs_on = Some(me);
        progress.times.began = Some(now);
    }

    /// Sets the outcome and wakes the waiting threads. Returns what belongs to the user: a waker to call, or an
    /// outcome without a handle.
    fn decide(&self, outcome: Result<T, JobError>) -> (Option<Waker>, Option<Result<T, JobError>>) {
        let now = self.clock.now();
        let (has_sleepers, rest) = {
            let mut progress = self.lock();
            progress.status = match &outcome {
                Ok(_) => JobStatus::Returned,
                Err(JobError::Panicked(_)) => JobStatus::Panicked,
                Err(JobError::Cancelled) => JobStatus::Cancelled,
                Err(JobError::Abandoned | JobError::Inside | JobError::InsideStep) => JobStatus::Abandoned,
            };
            progress.times.ended = Some(now);
            let rest = if progress.unwanted {
                (None, Some(outcome))
            } else {
                progress.outcome = Some(outcome);
                (progress.waker.take(), None)
            };
            (progress.sleepers > 0, rest)
        };
        if has_sleepers {
            self.decided.notify_all();
        }
        rest
    }

    pub(super) fn deadline(&self, limit: Duration) -> Deadline {
        self.clock.deadline(limit)
    }

    pub(super) fn status(&self) -> JobStatus {
        self.lock().status
    }

    /// Whether the calling thread runs the job or drops it.
    pub(super) fn runs_here(&self) -> bool {
        let me = thread::current().id();
        let progress = self.lock();
        !progress.status.is_finished() && progress.runs_on == Some(me)
    }

    pub(super) fn times(&self) -> JobTimes {
        self.lock().times
    }

    /// Takes the outcome. Only the first call returns it.
    pub(super) fn take(&self) -> Option<Result<T, JobError>> {
        self.lock().outcome.take()
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, JobError>> {
        // The `clone` and the destructor of a waker are user code.
        let waker = cx.waker().clone();
        let old = {
            let mut progress = self.lock();
            if let Some(outcome) = progress.outcome.take() {
                return Poll::Ready(outcome);
            }
            progress.waker.replace(waker)
        };
        drop_contained(old);
        Poll::Pending
    }

    fn is_unwanted(&self) -> bool {
        self.lock().unwanted
    }

    /// Notes that the handle was dropped. This thread or the worker drops the outcome. Both contain its destructor.
    pub(super) fn handle_is_gone(&self) {
        let left = {
            let mut progress = self.lock();
            progress.unwanted = true;
            (progress.waker.take(), progress.outcome.take())
        };
        let (waker, outcome) = left;
        drop_contained(waker);
        drop_contained(outcome);
    }
}

impl<T: Send + 'static> JobState<T> {
    /// Waits until the job has ended or the deadline has passed. Returns whether the job has ended.
    pub(super) fn wait(self: &Arc<JobState<T>>, deadline: Deadline) -> bool {
        let state = Arc::downgrade(self);
        let _watch = (deadline != Deadline::NEVER).then(|| {
            self.clock.watch(move || {
                if let Some(state) = state.upgrade() {
                    let _progress = state.lock();
                    state.decided.notify_all();
                }
            })
        });
        for _ in 0..LOOKS {
            if self.status().is_finished() {
                return true;
            }
            if deadline.has_passed(&self.clock) {
                return false;
            }
            thread::yield_now();
        }
        let mut progress = self.lock();
        while !progress.status.is_finished() {
            if deadline.has_passed(&self.clock) {
                return false;
            }
            progress.sleepers += 1;
            progress = self.clock.wait(&self.decided, progress, deadline);
            progress.sleepers -= 1;
        }
        true
    }
}

/// A job with a handle.
pub(super) struct Handled<F, T> {
    job: Option<F>,
    outcome: Option<Result<T, JobError>>,
    state: Option<Arc<JobState<T>>>,
}

impl<F, T> Handled<F, T> {
    pub(super) fn new(job: F, clock: &Clock) -> (Handled<F, T>, Arc<JobState<T>>) {
        let times = JobTimes { submitted: clock.now(), began: None, ended: None };
        let progress = Progress {
            status: JobStatus::Waiting,
            times,
            runs_on: None,
            outcome: None,
            waker: None,
            unwanted: false,
            sleepers: 0,
        };
        let state =
            Arc::new(JobState { progress: Mutex::new(progress), decided: Condvar::new(), clock: clock.clone() });
        (Handled { job: Some(job), outcome: None, state: Some(state.clone()) }, state)
    }

    /// Returns the closure of a refused job.
    pub(super) fn into_job(mut self) -> F {
        self.job.take().expect("it was not run")
    }

    /// Drops the closure, then completes the handle with the reason.
    fn give_up(&mut self, why: JobError) {
        let Some(job) = self.job.take() else { return };
        let Some(state) = self.state.take() else { return drop_contained(job) };
        state.lock().runs_on = Some(thread::current().id());
        drop_contained(job);
        let (waker, _) = state.decide(Err(why));
        call(waker);
    }
}

fn call(waker: Option<Waker>) {
    if let Some(waker) = waker
        && let Err(panic) = contain(|| waker.wake())
    {
        tell_log(|| tracing::error!(%panic, "a waker panicked"));
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Work for Handled<F, T> {
    fn run(mut self: Box<Self>) -> Ran {
        let (Some(job), Some(state)) = (self.job.take(), self.state.as_ref()) else {
            return Ran::nothing();
        };
        state.begins();
        let outcome = contain(job);
        let panic = outcome.as_ref().err().cloned();
        if state.is_unwanted() {
            // The destructor of the outcome is part of the job.
            drop_contained(outcome);
            return Ran { panic, after: None };
        }
        self.outcome = Some(outcome.map_err(JobError::Panicked));
        Ran { panic, after: Some(self) }
    }

    fn cancel(mut self: Box<Self>) {
        self.give_up(JobError::Cancelled);
    }

    fn abandon(&mut self, _why: &Reason) {
        if let (Some(_), Some(state)) = (&self.job, &self.state) {
            let (waker, _) = state.decide(Err(JobError::Abandoned));
            // The handle puts no other waker there, because the outcome is there.
            state.lock().waker = waker;
        }
    }

    fn tell_abandoned(&mut self) {
        if let Some(state) = self.state.take() {
            let waker = state.lock().waker.take();
            call(waker);
        }
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> After for Handled<F, T> {
    fn tell(mut self: Box<Self>) -> Option<Job> {
        let (Some(outcome), Some(state)) = (self.outcome.take(), self.state.take()) else { return None };
        let (waker, unwanted) = state.decide(outcome);
        if waker.is_none() && unwanted.is_none() {
            return None;
        }
        Some(Box::new(move || {
            drop_contained(unwanted);
            if let Some(waker) = waker {
                waker.wake();
            }
        }))
    }
}

impl<F, T> Drop for Handled<F, T> {
    fn drop(&mut self) {
        self.give_up(JobError::Abandoned);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{JobHandle, Pool};
    use super::*;
    use crate::clock::ManualClock;
    use crate::latch::Latch;
    use crate::wait::{until, wait};

    #[test]
    fn a_wait_without_a_limit_outlasts_one_with_a_limit() {
        let manual = ManualClock::new();
        let (handled, state) = Handled::new(|| 7, &manual.clock());
        let waiter = |deadline| {
            let state = state.clone();
            std::thread::spawn(move || state.wait(deadline))
        };
        let until_there_are = |sleepers| until("so many sleep", || state.lock().sleepers == sleepers);
        let for_ever = waiter(Deadline::NEVER);
        until_there_are(1);
        let limited = waiter(state.deadline(Duration::from_secs(1)));
        until_there_are(2);
        manual.advance(Duration::from_secs(1));
        assert!(!wait(limited).unwrap());
        until_there_are(1);
        drop(Box::new(handled).run().after.and_then(After::tell));
        assert!(wait(for_ever).unwrap());
        assert_eq!(state.take().unwrap().unwrap(), 7);
    }

    #[test]
    fn a_dropped_closure_that_waits_for_its_own_handle_is_refused() {
        struct Waits(Arc<Mutex<Option<JobHandle<()>>>>, Latch<bool>);
        impl Drop for Waits {
            fn drop(&mut self) {
                let own = lock(&self.0).take();
                let told = own.map(JobHandle::wait);
                let _ = self.1.set(matches!(told, Some(Err(JobError::Inside))));
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
