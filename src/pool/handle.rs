//! The pool's handle: submitting jobs, asking about them, and changing the number of workers.

use std::any::Any;
use std::fmt;
use std::task::Waker;
use std::time::Duration;

use super::job::{Job, Work, into_job};
use super::ledger::{Claim, Placed};
use super::limits::{PoolBuildError, PoolError, QueuePolicy, check_size};
use super::parker::{Parker, unpark_all};
use super::stats::{PoolStats, PoolStatus};
use super::threads::is_current;
use super::worker::Shared;
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, refuse_step_timeout};
use crate::latch::Latch;
use crate::outcome::Rejected;
use crate::primitives::{Arc, Ordering, Weak};

/// A pool of threads that run jobs. Clones refer to the same pool.
///
/// Dropping the last handle stops the pool, as [`stop_timeout`](Self::stop_timeout) with a limit of zero does.
///
/// The [module](crate::pool) page describes pools in full. This is a small example:
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::new(4)?;
/// let answer = pool.run(|| 6 * 7)?;
/// assert_eq!(answer, 42);
/// pool.drain()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(super) owner: Arc<Owner>,
}

/// Stops the pool when the last handle is dropped. The threads hold only the [`Shared`] part.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
}

/// A waiting job's place in the queue, by which the job can be removed.
///
/// A ticket keeps neither the pool nor the job alive. Dropping a ticket does not affect the job.
#[derive(Clone)]
pub(crate) struct Ticket {
    shared: Weak<Shared>,
    number: u64,
}

impl Ticket {
    /// Removes the job from the queue, if it still waits there. Then the pool never runs it, and counts it as
    /// withdrawn. The caller drops the job or runs it. The pool has dropped nothing and holds no lock.
    ///
    /// Returns `None` if the job has begun, has ended, was withdrawn before, or was abandoned by a stop. A job also
    /// counts as begun if a thread is being started for it. Exactly one of these ends happens to each job.
    ///
    /// The call takes the pool's lock and does one binary search, however many jobs wait. Any thread may call it,
    /// also a job.
    pub(crate) fn withdraw(&self) -> Option<Job> {
        self.take().map(into_job)
    }

    /// As [`withdraw`](Self::withdraw), but returns the job as the pool stores it.
    pub(super) fn take(&self) -> Option<Box<dyn Work>> {
        self.shared.upgrade()?.change(|ledger| ledger.withdraw(self.number))
    }

    /// Runs the job on this thread, if this is a thread of the pool.
    ///
    /// If the job has begun, nothing happens.
    pub(crate) fn run_if_inside(&self) {
        let Some(shared) = self.shared.upgrade().filter(|shared| shared.threads.is_current()) else { return };
        if let Some(work) = shared.change(|ledger| ledger.adopt(self.number)) {
            shared.run_nested(work);
        }
    }
}

/// A reference to a pool that does not keep the pool alive.
///
/// If a pool has only such references, it has been stopped.
#[derive(Clone)]
pub(super) struct WeakPool {
    shared: Weak<Shared>,
    number: u64,
}

impl WeakPool {
    pub(super) fn upgrade(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// Whether the calling thread is a thread of the pool. The call takes no lock and drops nothing.
    pub(super) fn is_inside(&self) -> bool {
        is_current(self.number)
    }
}

/// Keeps a task on the list of tasks that count on other workers. Dropping it removes the task.
#[must_use = "dropping this takes the waker back"]
pub(crate) struct CountsOnOthers {
    shared: Weak<Shared>,
    parker: Parker,
}

impl Drop for CountsOnOthers {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.lock().unwatch(&self.parker);
        }
    }
}

/// How long a submitter waits for room in the queue.
#[derive(Clone, Copy)]
pub(super) enum Patience<'a> {
    /// As long as the queue's policy says.
    Policy,
    /// As long as the policy says, but only until this latch is set.
    Unless(&'a Latch<()>),
    Until(Deadline),
    /// The bound does not apply to this job.
    Exempt,
}

impl Pool {
    /// Makes a pool of at most `max` threads, with the defaults of [`Pool::builder`] otherwise.
    ///
    /// # Errors
    /// `max` is 0.
    pub fn new(max: usize) -> Result<Pool, PoolBuildError> {
        Pool::builder().max(max).build()
    }

    /// Submits `job`, which a thread of the pool runs once.
    ///
    /// Jobs begin in the order of their submission. A panic in a job is contained and counted. The call does not block,
    /// with one exception: under [`QueuePolicy::Block`] it waits without limit for room in a full queue.
    ///
    /// # Errors
    /// The pool drains or is stopped, its queue is full, or it has no thread and cannot start one. The job is handed
    /// back.
    #[inline]
    pub fn execute<F: FnOnce() + Send + 'static>(&self, job: F) -> Result<(), Rejected<F, PoolError>> {
        self.place(job, Patience::Policy).map(|_| ())
    }

    /// As [`execute`](Self::execute), but waits at most `limit` for room in a bounded queue.
    ///
    /// The call also waits under [`QueuePolicy::Reject`]. With [`Duration::ZERO`] it does not wait. With
    /// [`Duration::MAX`] it waits without limit.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); also [`PoolError::Full`] if the limit has passed.
    pub fn execute_timeout<F: FnOnce() + Send + 'static>(
        &self,
        job: F,
        limit: Duration,
    ) -> Result<(), Rejected<F, PoolError>> {
        let deadline = self.owner.shared.clock.deadline(limit);
        self.place(job, Patience::Until(deadline)).map(|_| ())
    }

    /// As [`execute`](Self::execute), but returns a ticket to remove the job. A wait for room ends when the latch is
    /// set.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); also [`PoolError::Full`] if the latch was set before there was room.
    pub(crate) fn submit_unless<W: Work>(&self, over: &Latch<()>, work: W) -> Result<Ticket, Rejected<W, PoolError>> {
        self.place(work, Patience::Unless(over)).map(|number| self.owner.shared.ticket(number))
    }

    /// As `submit_unless`, but ignores the bound of the queue. It serves jobs whose submitter can neither wait nor
    /// take an error.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), except for a full queue.
    pub(crate) fn submit_beyond_bound<W: Work>(&self, work: W) -> Result<Ticket, Rejected<W, PoolError>> {
        self.place(work, Patience::Exempt).map(|number| self.owner.shared.ticket(number))
    }

    /// The clock that measures the pool's limits.
    pub(crate) fn clock(&self) -> &Clock {
        &self.owner.shared.clock
    }

    pub(super) fn downgrade(&self) -> WeakPool {
        WeakPool { shared: Arc::downgrade(&self.owner.shared), number: self.owner.shared.threads.pool }
    }

    /// Gives the job to a worker, or puts it into the queue. Returns the job's number.
    #[inline]
    pub(super) fn place<W: Work>(&self, work: W, patience: Patience<'_>) -> Result<u64, Rejected<W, PoolError>> {
        let shared = &self.owner.shared;
        let claim = if let Patience::Exempt = patience { Claim::Exempt } else { Claim::New };
        let work = Box::new(work);
        let placed = shared.lock().submit(work, claim);
        let placed = match placed {
            Ok((number, placed)) => shared.follow(number, placed),
            Err((work, PoolError::Full)) => self.place_in_full_queue(work, patience),
            Err(refused) => Err(refused),
        };
        placed.map_err(|(work, why)| Rejected::new(unboxed(work), why))
    }

    /// Waits for room for the job, if the submitter may wait.
    #[cold]
    fn place_in_full_queue(&self, work: Box<dyn Work>, patience: Patience<'_>) -> Followed {
        let shared = &self.owner.shared;
        let (deadline, over) = match patience {
            Patience::Until(deadline) => (deadline, None),
            _ if !matches!(shared.lock().limits.queue, QueuePolicy::Block(_)) => return Err((work, PoolError::Full)),
            Patience::Unless(over) => (Deadline::NEVER, Some(over)),
            Patience::Policy | Patience::Exempt => (Deadline::NEVER, None),
        };
        if deadline.has_passed(&shared.clock) {
            Err((work, PoolError::Full))
        } else if is_step() {
            Err((work, PoolError::InsideStep))
        } else if self.is_inside() {
            Err((work, PoolError::Full))
        } else {
            shared.wait_for_room(work, deadline, over)
        }
    }

    /// Changes the minimum and the maximum of the number of workers.
    ///
    /// If jobs wait, the call starts more workers, up to `max`. If there are more than `max` workers, idle workers exit
    /// at once, and busy workers exit when their jobs have ended. Until then the pool has more than `max` workers.
    ///
    /// On a draining pool, the call changes how many workers run the waiting jobs.
    ///
    /// # Errors
    /// `max` is 0 or less than `min`. Then nothing has changed.
    pub fn resize(&self, min: usize, max: usize) -> Result<(), PoolBuildError> {
        check_size(min, max)?;
        let shared = &self.owner.shared;
        let wanted = shared.change(|ledger| ledger.resize(min, max));
        shared.summon(wanted);
        Ok(())
    }

    /// Returns the stage of the pool's life.
    ///
    /// The call does not block, even while a thread waits for a pause or for the end.
    pub fn status(&self) -> PoolStatus {
        self.owner.shared.lock().status
    }

    /// Returns the pool's counts, all taken at one moment.
    ///
    /// The call does not block, even while a thread waits for a pause or for the end.
    pub fn stats(&self) -> PoolStats {
        self.owner.shared.lock().stats()
    }

    /// Waits until no job waits in the queue and none runs.
    ///
    /// The call does not end the pool. Jobs that a pause holds back count as waiting.
    ///
    /// # Errors
    /// The caller is a job of this pool ([`WaitError::Inside`]) or a step ([`WaitError::InsideStep`]). Then the call
    /// returns at once.
    pub fn wait_idle(&self) -> Result<(), WaitError> {
        self.wait_idle_timeout(Duration::MAX)
    }

    /// As [`wait_idle`](Self::wait_idle), but waits at most `limit`.
    ///
    /// # Errors
    /// As [`wait_idle`](Self::wait_idle). Or the limit has passed ([`WaitError::TimedOut`]). A step may make the call
    /// with a limit of zero.
    pub fn wait_idle_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        let deadline = self.owner.shared.clock.deadline(limit);
        refuse_step_timeout(limit)?;
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let shared = &self.owner.shared;
        let in_time = shared.wait_until(&shared.clock, deadline, |ledger| ledger.is_idle());
        if in_time { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// Whether the calling thread is one of this pool's threads.
    pub fn is_inside(&self) -> bool {
        self.owner.shared.threads.is_current()
    }

    /// Whether other workers run all waiting jobs at once. If so, `waker` is woken when that ceases to be true. It
    /// may be woken several times.
    ///
    /// A thread of the pool that waits for one of several jobs runs one itself only if no other worker does. It must
    /// then learn when the pool loses a worker that it counts on. A worker is lost if a `resize` ends it, if no
    /// thread can be started, or if it runs user code. No such moment is missed. One critical section asks the pool
    /// and registers the waker. Every change of the ledger that leaves fewer workers asks for `waiters` afterwards.
    pub(crate) fn others_come(&self, waker: Waker) -> Option<CountsOnOthers> {
        let shared = &self.owner.shared;
        let parker = Parker::with_waker(waker);
        let mut ledger = shared.lock();
        if ledger.has_unattended() {
            return None;
        }
        ledger.watchers.push(parker.clone());
        drop(ledger);
        Some(CountsOnOthers { shared: Arc::downgrade(shared), parker })
    }
}

/// The number of a job that the pool has accepted. Or the job, and why the pool has refused it.
pub(super) type Followed = Result<u64, (Box<dyn Work>, PoolError)>;

/// Returns a job that the pool has refused as the submitter gave it.
pub(super) fn unboxed<W: Work>(work: Box<dyn Work>) -> W {
    match (work as Box<dyn Any>).downcast() {
        Ok(work) => *work,
        Err(_) => unreachable!("the pool hands back the job that it was given"),
    }
}

impl Shared {
    pub(super) fn ticket(self: &Arc<Shared>, number: u64) -> Ticket {
        Ticket { shared: Arc::downgrade(self), number }
    }

    /// Carries out the ledger's decision about a job.
    #[inline]
    pub(super) fn follow(self: &Arc<Shared>, number: u64, placed: Placed<Box<dyn Work>>) -> Followed {
        match placed {
            // Ordering: Relaxed. See `spin`.
            Placed::Queued { spin: true } => self.hint.store(true, Ordering::Relaxed),
            Placed::Queued { spin: false } => {}
            Placed::Wake(parker) => parker.unpark(),
            Placed::Start(work) => self.start(work.map(|work| (number, work)))?,
        }
        Ok(number)
    }

    /// Waits for room until the deadline or until the latch is set.
    ///
    /// Earlier submitters get room first.
    fn wait_for_room(
        self: &Arc<Shared>,
        mut work: Box<dyn Work>,
        deadline: Deadline,
        over: Option<&Latch<()>>,
    ) -> Followed {
        let parker = Parker::new();
        let _watch = parker.watch(&self.clock);
        let waiter = parker.clone();
        // If the latch is set after this check, the callback unparks the thread. `unpark` is never lost.
        let callback = over.map(|over| over.on_set(move |()| waiter.unpark()));
        self.lock().submitters.push_back(parker.clone());
        let (placed, waiters) = loop {
            let gives_up = over.is_some_and(Latch::is_set) || deadline.has_passed(&self.clock);
            let mut ledger = self.lock();
            match ledger.submit(work, Claim::Waited(&parker)) {
                Err((back, PoolError::Full)) if !gives_up => {
                    drop(ledger);
                    work = back;
                    parker.park(&self.clock, deadline);
                }
                placed => {
                    ledger.submitters.retain(|other| !other.is(&parker));
                    break (placed, ledger.waiters());
                }
            }
        };
        unpark_all(waiters);
        drop(callback);
        placed.and_then(|(number, placed)| self.follow(number, placed))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.stats()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Pool, QueuePolicy};
    use crate::latch::Latch;
    use crate::primitives::{Arc, Mutex, lock, thread};
    use crate::wait::{until, wait};

    #[test]
    fn room_goes_to_the_submitter_that_has_waited_longest() {
        let pool = Pool::builder().max(1).queue(QueuePolicy::Block(0)).build().unwrap();
        let (go, order) = (Latch::new(), Arc::new(Mutex::new(Vec::new())));
        let gate = go.clone();
        pool.execute(move || wait(&gate)).unwrap();
        let submitters: Vec<_> = (0..4)
            .map(|n| {
                let (submits, order) = (pool.clone(), order.clone());
                let submitter = thread::spawn(move || submits.execute(move || lock(&order).push(n)).unwrap());
                until("the submitter waits", || pool.owner.shared.lock().submitters.len() > n);
                submitter
            })
            .collect();
        go.set(()).unwrap();
        submitters.into_iter().for_each(|submitter| wait(submitter).unwrap());
        pool.drain().unwrap();
        assert_eq!(*lock(&order), [0, 1, 2, 3]);
    }

    #[test]
    fn a_wait_for_an_idle_pool_does_not_wait_for_destructors() {
        struct Blocks(Latch<()>, Latch<()>);
        impl Drop for Blocks {
            fn drop(&mut self) {
                self.0.set(()).unwrap();
                wait(&self.1);
            }
        }
        let pool = Pool::builder().max(2).build().unwrap();
        let (dropping, gate) = (Latch::new(), Latch::new());
        let (pause, blocks) = (pool.pause().unwrap(), Blocks(dropping.clone(), gate.clone()));
        pool.execute(move || drop(blocks)).unwrap();
        let waits = pool.clone();
        let waiter = thread::spawn(move || waits.wait_idle().is_ok());
        until("the other one waits", || !pool.owner.shared.lock().watchers.is_empty());
        let resumer = thread::spawn(move || {
            crate::threads::refuse(true);
            drop(pause);
        });
        wait(&dropping);
        assert!(wait(waiter).unwrap());
        gate.set(()).unwrap();
        wait(resumer).unwrap();
        assert_eq!((pool.stats().abandoned, pool.stats().unfinished()), (1, 0));
    }
}
