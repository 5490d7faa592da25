//! Where the outcome of a job lies until its handle comes for it.
//!
//! Who decides is settled elsewhere: a job is run, or withdrawn, or abandoned by whoever takes it out of the line, under the
//! ledger's lock, and it is there once. So the desk is decided once, too.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::work::{After, Job, Ran, Work};
use crate::clock::{Clock, Deadline};
use crate::outcome::{Panic, contain, drop_contained, tell_log};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, ThreadId, lock, thread};

/// Why a job has no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// It panicked.
    #[error("the job {0}")]
    Panicked(#[source] Panic),
    /// It was cancelled before it began.
    #[error("the job was cancelled before it began")]
    Cancelled,
    /// It was given up before it began: the pool was stopped, or could get no thread; or it was given back and dropped.
    #[error("the job was given up before it began")]
    Abandoned,
    /// The caller that waited for it is a step, and would have blocked its worker. The job goes on by itself, and its value is lost:
    /// to keep the handle, call [`JobHandle::wait_timeout`](super::JobHandle::wait_timeout) with a limit of zero, or await it.
    #[error("a step cannot wait for a job, for it would block its worker: have the process do it as blocking work")]
    InsideStep,
    /// Its end might never have come while the calling thread waited for it: it was waited for by itself, or by a job of the
    /// same pool while it waited in a [`Pacer`](super::Pacer). The job goes on by itself.
    #[error("a job cannot wait for itself, or for the turn of a paced job of its own pool")]
    Inside,
}

/// Where a job is in its life. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum JobStatus {
    /// It has not begun.
    Waiting,
    /// It has begun.
    Running,
    /// It has returned.
    Returned,
    /// It has panicked.
    Panicked,
    /// It was cancelled before it began.
    Cancelled,
    /// It was given up before it began.
    Abandoned,
}

impl JobStatus {
    /// Whether it will not change any more.
    pub fn is_finished(self) -> bool {
        self > JobStatus::Running
    }
}

/// When a job was submitted, when it began and when it ended, by the pool's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobTimes {
    /// When it was submitted.
    pub submitted: Instant,
    /// When it began, if it has.
    pub began: Option<Instant>,
    /// When it ended, in whatever way, if it has.
    pub ended: Option<Instant>,
}

/// How often a thread that waits looks before it sleeps. It gives its processor away each time.
#[cfg(not(loom))]
const LOOKS: usize = 64;
#[cfg(loom)]
const LOOKS: usize = 0;

pub(super) struct Desk<T> {
    book: Mutex<Book<T>>,
    decided: Condvar,
    clock: Clock,
}

struct Book<T> {
    status: JobStatus,
    times: JobTimes,
    // Where it runs, if it has begun, or is dropped uncalled.
    runs_on: Option<ThreadId>,
    outcome: Option<Result<T, JobError>>,
    // There is one handle, and so one future.
    waker: Option<Waker>,
    // The handle was dropped: nobody wants the outcome.
    unwanted: bool,
    // Threads that sleep: to wake nobody would be a system call for nothing. There is one handle, but several threads may look
    // at it, one with a limit and one without.
    sleepers: usize,
}

impl<T> Desk<T> {
    fn lock(&self) -> MutexGuard<'_, Book<T>> {
        lock(&self.book)
    }

    fn begins(&self) {
        let (now, me) = (self.clock.now(), thread::current().id());
        let mut book = self.lock();
        book.status = JobStatus::Running;
        book.runs_on = Some(me);
        book.times.began = Some(now);
    }

    /// Decides, and tells threads that wait. What comes back is for the caller, as it is the user's: a waker to be called, or
    /// an outcome that nobody wants any more.
    fn decide(&self, outcome: Result<T, JobError>) -> (Option<Waker>, Option<Result<T, JobError>>) {
        let now = self.clock.now();
        let (has_sleepers, rest) = {
            let mut book = self.lock();
            book.status = match &outcome {
                Ok(_) => JobStatus::Returned,
                Err(JobError::Panicked(_)) => JobStatus::Panicked,
                Err(JobError::Cancelled) => JobStatus::Cancelled,
                Err(JobError::Abandoned | JobError::Inside | JobError::InsideStep) => JobStatus::Abandoned,
            };
            book.times.ended = Some(now);
            let rest = if book.unwanted {
                (None, Some(outcome))
            } else {
                book.outcome = Some(outcome);
                (book.waker.take(), None)
            };
            (book.sleepers > 0, rest)
        };
        if has_sleepers {
            self.decided.notify_all();
        }
        rest
    }

    pub(super) fn deadline(&self, limit: Option<Duration>) -> Deadline {
        limit.map_or(Deadline::NEVER, |limit| self.clock.deadline(limit))
    }

    pub(super) fn status(&self) -> JobStatus {
        self.lock().status
    }

    /// Whether the calling thread runs the job, or drops it, perhaps with others that it has begun since.
    pub(super) fn runs_here(&self) -> bool {
        let me = thread::current().id();
        let book = self.lock();
        !book.status.is_finished() && book.runs_on == Some(me)
    }

    pub(super) fn times(&self) -> JobTimes {
        self.lock().times
    }

    /// The outcome, once.
    pub(super) fn take(&self) -> Option<Result<T, JobError>> {
        self.lock().outcome.take()
    }

    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<T, JobError>> {
        // A waker's `clone` is code of the user's, and so is its end.
        let waker = cx.waker().clone();
        let old = {
            let mut book = self.lock();
            if let Some(outcome) = book.outcome.take() {
                return Poll::Ready(outcome);
            }
            book.waker.replace(waker)
        };
        drop_contained(old);
        Poll::Pending
    }

    fn is_unwanted(&self) -> bool {
        self.lock().unwanted
    }

    /// The handle is gone: nobody is to be woken, and the outcome is dropped by whoever has it. Whether that is this thread
    /// or the worker is a matter of chance, so its destructor is contained here, too.
    pub(super) fn handle_is_gone(&self) {
        let left = {
            let mut book = self.lock();
            book.unwanted = true;
            (book.waker.take(), book.outcome.take())
        };
        let (waker, outcome) = left;
        drop_contained(waker);
        drop_contained(outcome);
    }
}

impl<T: Send + 'static> Desk<T> {
    /// Waits until it is decided, or until the deadline. Whether it is.
    pub(super) fn wait(self: &Arc<Desk<T>>, deadline: Deadline) -> bool {
        let desk = Arc::downgrade(self);
        let _watch = (deadline != Deadline::NEVER).then(|| {
            self.clock.watch(move || {
                if let Some(desk) = desk.upgrade() {
                    let _book = desk.lock();
                    desk.decided.notify_all();
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
        let mut book = self.lock();
        while !book.status.is_finished() {
            if deadline.has_passed(&self.clock) {
                return false;
            }
            book.sleepers += 1;
            book = self.clock.wait(&self.decided, book, deadline);
            book.sleepers -= 1;
        }
        true
    }
}

/// A job whose outcome goes to a desk.
pub(super) struct Handled<F, T> {
    job: Option<F>,
    outcome: Option<Result<T, JobError>>,
    desk: Option<Arc<Desk<T>>>,
}

impl<F, T> Handled<F, T> {
    pub(super) fn new(job: F, clock: &Clock) -> (Handled<F, T>, Arc<Desk<T>>) {
        let times = JobTimes { submitted: clock.now(), began: None, ended: None };
        let book = Book {
            status: JobStatus::Waiting,
            times,
            runs_on: None,
            outcome: None,
            waker: None,
            unwanted: false,
            sleepers: 0,
        };
        let desk = Arc::new(Desk { book: Mutex::new(book), decided: Condvar::new(), clock: clock.clone() });
        (Handled { job: Some(job), outcome: None, desk: Some(desk.clone()) }, desk)
    }

    /// The closure back, of a job that was refused.
    pub(super) fn into_job(mut self) -> F {
        self.job.take().expect("it was not run")
    }

    /// Drops the closure, then tells whoever waits why.
    fn give_up(&mut self, why: JobError) {
        let Some(job) = self.job.take() else { return };
        let Some(desk) = self.desk.take() else { return drop_contained(job) };
        desk.lock().runs_on = Some(thread::current().id());
        drop_contained(job);
        if let (Some(waker), _) = desk.decide(Err(why))
            && let Err(panic) = contain(|| waker.wake())
        {
            tell_log(|| tracing::error!(%panic, "a waker panicked"));
        }
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> Work for Handled<F, T> {
    fn run(mut self: Box<Self>) -> Ran {
        let (Some(job), Some(desk)) = (self.job.take(), self.desk.as_ref()) else {
            return Ran::nothing();
        };
        desk.begins();
        let outcome = contain(job);
        let panic = outcome.as_ref().err().cloned();
        if desk.is_unwanted() {
            // Its destructor is part of the job.
            drop_contained(outcome);
            return Ran { panic, after: None };
        }
        self.outcome = Some(outcome.map_err(JobError::Panicked));
        Ran { panic, after: Some(self) }
    }

    fn cancel(mut self: Box<Self>) {
        self.give_up(JobError::Cancelled);
    }
}

impl<T: Send + 'static, F: FnOnce() -> T + Send + 'static> After for Handled<F, T> {
    fn tell(mut self: Box<Self>) -> Option<Job> {
        let (Some(outcome), Some(desk)) = (self.outcome.take(), self.desk.take()) else { return None };
        let (waker, unwanted) = desk.decide(outcome);
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
    fn who_waits_without_a_limit_is_woken_also_when_one_with_a_limit_has_gone() {
        let manual = ManualClock::new();
        let (handled, desk) = Handled::new(|| 7, &manual.clock());
        let waiter = |deadline| {
            let desk = desk.clone();
            std::thread::spawn(move || desk.wait(deadline))
        };
        let until_there_are = |sleepers| until("so many sleep", || desk.lock().sleepers == sleepers);
        let for_ever = waiter(Deadline::NEVER);
        until_there_are(1);
        let limited = waiter(desk.deadline(Some(Duration::from_secs(1))));
        until_there_are(2);
        manual.advance(Duration::from_secs(1));
        assert!(!wait(limited).unwrap());
        until_there_are(1);
        drop(Box::new(handled).run().after.and_then(After::tell));
        assert!(wait(for_ever).unwrap());
        assert_eq!(desk.take().unwrap().unwrap(), 7);
    }

    #[test]
    fn a_closure_that_waits_for_its_own_handle_when_it_is_dropped_is_told_so() {
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

    #[test]
    fn a_closure_that_waits_when_it_is_dropped_for_a_job_that_is_dropped_next_is_told_so() {
        struct Waits(Arc<Mutex<Option<JobHandle<()>>>>, Latch<bool>);
        impl Drop for Waits {
            fn drop(&mut self) {
                let next = lock(&self.0).take();
                let told = next.map(JobHandle::wait);
                let _ = self.1.set(matches!(told, Some(Err(JobError::Abandoned))));
            }
        }
        let (pool, gate) = (Pool::new(1).unwrap(), Latch::new());
        let opens = gate.clone();
        pool.execute(move || wait(&opens)).unwrap();
        let (next, told) = (Arc::default(), Latch::new());
        let waits = Waits(Arc::clone(&next), told.clone());
        let _first = pool.spawn(move || drop(waits)).unwrap();
        *lock(&next) = Some(pool.spawn(|| ()).unwrap());
        let stops = pool.clone();
        thread::spawn(move || stops.stop(Some(Duration::ZERO)));
        let clock = Clock::system();
        assert!(told.wait_until(&clock, clock.deadline(Duration::from_secs(60))) && wait(&told));
        gate.set(()).unwrap();
    }
}
