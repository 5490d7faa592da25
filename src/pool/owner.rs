//! The pool itself: handing in jobs, asking about them, and other numbers of workers.

use std::fmt;
use std::time::Duration;

use super::seat::{Seat, call_all};
use super::thread::{PoolError, Shared};
use super::words::{Claim, Limits, Placed, PoolStatus, Refusal};
use super::work::{Job, Work, into_job};
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, refuse_step_timeout};
use crate::latch::Latch;
use crate::outcome::Rejected;
use crate::sync::{Arc, Ordering, Weak};

/// An elastic pool of threads. Clones are the same pool; when the last one is dropped the pool stops, without waiting.
///
/// The module's page ([`pool`](crate::pool)) has the whole of it; this is the smallest use:
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::new(4)?;
/// let answer = pool.run(|| 6 * 7)?;
/// assert_eq!(answer, 42);
/// pool.drain(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    pub(super) owner: Arc<Owner>,
}

/// Stops the pool with its last handle. The threads hold the [`Shared`] part only.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
}

/// Where jobs wait that no worker is free for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// As many as there are.
    #[default]
    Unbounded,
    /// At most so many; whoever hands in another one waits for room, and gets it in the order of coming. With 0 a job is only
    /// ever handed to a worker that is free, or to a new one.
    ///
    /// A job of the pool never waits for room in its own pool, for the room might be its own to make: it is refused with
    /// [`PoolError::Full`]. A step of a process does not wait either: it is refused with [`PoolError::InsideStep`].
    Block(usize),
    /// At most so many; another one is refused with [`PoolError::Full`].
    Reject(usize),
}

/// Counts of a [`Pool`], all of one moment.
///
/// At all times `submitted` = `finished` + `running` + `nested` + `waiting` + `abandoned` + `withdrawn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The fewest workers that are kept, once there were so many.
    pub min: usize,
    /// The most workers there may be.
    pub max: usize,
    /// Workers there are.
    pub workers: usize,
    /// Those of them that are at no job.
    pub idle: usize,
    /// Jobs that workers are at.
    pub running: usize,
    /// Jobs that are run by a job that waits for them, on its worker.
    pub nested: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// Pauses that were asked for and have not ended.
    pub pauses: usize,
    /// Jobs ever accepted.
    pub submitted: u64,
    /// Jobs that have returned or panicked.
    pub finished: u64,
    /// Those of them that panicked.
    pub panicked: u64,
    /// Jobs that were given up while they waited, because the pool was stopped or could get no thread at all.
    pub abandoned: u64,
    /// Jobs that were cancelled while they waited.
    pub withdrawn: u64,
}

impl PoolStats {
    /// Jobs that are accepted and not over.
    pub fn unfinished(&self) -> usize {
        self.waiting + self.running + self.nested
    }
}

/// An option of a pool that is out of range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolBuildError {
    /// There would be no thread.
    #[error("a pool needs at least one thread: `max` is {given}")]
    Max {
        /// The maximum that was given.
        given: usize,
    },
    /// More are to be kept than there may be.
    #[error("a pool cannot keep more threads than it may have: `min` is {min}, and `max` is {max}")]
    Min {
        /// The minimum that was given.
        min: usize,
        /// The maximum beside it.
        max: usize,
    },
    /// The name has a NUL in it, which no name of a thread can have.
    #[error("no thread can be called {given:?}")]
    Name {
        /// The name that was given.
        given: String,
    },
    /// No memory is so large.
    #[error("no thread can have a stack of {given} bytes")]
    StackSize {
        /// The size that was given.
        given: usize,
    },
}

/// A job that has been handed in. As long as it waits, it can be taken out again.
///
/// It keeps neither the pool nor the job alive, and dropping it changes nothing.
#[derive(Clone)]
pub(crate) struct Ticket {
    shared: Weak<Shared>,
    number: u64,
}

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
        self.take().map(into_job)
    }

    /// The same, with the job as the pool has it.
    pub(super) fn take(&self) -> Option<Box<dyn Work>> {
        let shared = self.shared.upgrade()?;
        let (work, news) = {
            let mut ledger = shared.lock();
            (ledger.withdraw(self.number)?, ledger.news())
        };
        call_all(news);
        Some(work)
    }

    /// If the calling thread is one of the pool's, runs the job here and now, unless it has begun already. If it is about to
    /// drop the job, because the pool was stopped, does that now.
    pub(crate) fn run_if_inside(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        #[cfg(not(loom))]
        shared.drop_what_is_left_here();
        if !shared.crew.is_current() {
            return;
        }
        let (work, news) = {
            let mut ledger = shared.lock();
            (ledger.adopt(self.number), ledger.news())
        };
        call_all(news);
        if let Some(work) = work {
            shared.run_nested(work);
        }
    }
}

/// A pool that is not kept alive by this.
#[derive(Clone)]
pub(super) struct WeakPool {
    owner: Weak<Owner>,
    shared: Weak<Shared>,
}

impl WeakPool {
    pub(super) fn upgrade(&self) -> Option<Pool> {
        self.owner.upgrade().map(|owner| Pool { owner })
    }

    pub(super) fn is_inside(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.crew.is_current())
    }

    /// The same under a lock: what might let the last of the pool go here is kept until it is free.
    pub(super) fn is_inside_keeping(&self, kept: &mut Vec<Arc<dyn Send + Sync>>) -> bool {
        self.shared.upgrade().is_some_and(|shared| {
            kept.push(shared.clone());
            shared.crew.is_current()
        })
    }

    pub(super) fn is(&self, other: &WeakPool) -> bool {
        self.shared.ptr_eq(&other.shared)
    }
}

/// How long a submitter waits for room.
#[derive(Clone, Copy)]
pub(super) enum Patience<'a> {
    /// As the queue says.
    AsSaid,
    /// The same, but no longer than until this is set.
    Unless(&'a Latch<()>),
    Until(Deadline),
    /// The bound does not count.
    Exempt,
}

impl Pool {
    /// A pool of at most `max` threads, with the defaults of [`Pool::builder`] for the rest.
    ///
    /// # Errors
    /// `max` is 0.
    pub fn new(max: usize) -> Result<Pool, PoolBuildError> {
        Pool::builder().max(max).build()
    }

    /// Has `job` run once on a thread of the pool. Jobs begin in the order in which they were submitted. A panic in a job is
    /// contained and counted.
    ///
    /// It does not block, however many jobs wait; only with [`QueuePolicy::Block`] it waits for room, without limit.
    ///
    /// # Errors
    /// The job comes back if the pool drains or is stopped, if its queue is full, or if it has no thread and can start none.
    #[inline]
    pub fn execute<F: FnOnce() + Send + 'static>(&self, job: F) -> Result<(), Rejected<F, PoolError>> {
        self.place(job, Patience::AsSaid).map(|_| ())
    }

    /// As [`execute`](Self::execute), but waits at most so long for room in a queue with a bound, whether that is one that
    /// blocks or one that rejects. With [`Duration::ZERO`] it does not wait; with [`Duration::MAX`] it waits for ever.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); [`PoolError::Full`] if the limit was over.
    pub fn execute_timeout<F: FnOnce() + Send + 'static>(
        &self,
        job: F,
        limit: Duration,
    ) -> Result<(), Rejected<F, PoolError>> {
        let deadline = self.owner.shared.clock.deadline(limit);
        self.place(job, Patience::Until(deadline)).map(|_| ())
    }

    /// As [`execute`](Self::execute), but the job can be taken out again as long as it waits; and where it has to wait for
    /// room, it does so only until the latch is set.
    ///
    /// # Errors
    /// As [`execute`](Self::execute); [`PoolError::Full`] if the latch was set before there was room.
    pub(crate) fn submit_unless<W: Work + 'static>(
        &self,
        over: &Latch<()>,
        work: W,
    ) -> Result<Ticket, Rejected<W, PoolError>> {
        self.place(work, Patience::Unless(over)).map(|number| self.ticket(number))
    }

    /// The same, but the bound of the queue does not count: for what comes when nobody can be made to wait, or told.
    ///
    /// # Errors
    /// As [`execute`](Self::execute), but for a full queue.
    pub(crate) fn submit_beyond_bound<W: Work + 'static>(&self, work: W) -> Result<Ticket, Rejected<W, PoolError>> {
        self.place(work, Patience::Exempt).map(|number| self.ticket(number))
    }

    /// By which clock its limits are.
    pub(crate) fn clock(&self) -> &Clock {
        &self.owner.shared.clock
    }

    pub(super) fn downgrade(&self) -> WeakPool {
        WeakPool { owner: Arc::downgrade(&self.owner), shared: Arc::downgrade(&self.owner.shared) }
    }

    pub(super) fn ticket(&self, number: u64) -> Ticket {
        Ticket { shared: Arc::downgrade(&self.owner.shared), number }
    }

    /// Finds the job a worker, or a place in line. Its number.
    #[inline]
    pub(super) fn place<W: Work + 'static>(
        &self,
        work: W,
        patience: Patience<'_>,
    ) -> Result<u64, Rejected<W, PoolError>> {
        let shared = &self.owner.shared;
        let work = Box::new(work);
        let placed = shared.lock().submit(work, |work| work as Box<dyn Work>, Claim::Comes);
        match placed {
            Ok((number, Placed::Queued { linger: false })) => Ok(number),
            Ok((number, placed)) => shared.follow(number, placed),
            Err((work, Refusal::Full)) => self.stand(work, patience),
            Err((work, refusal)) => Err(Rejected::new(*work, refusal.into())),
        }
    }

    /// There is no room for the job. Waits for some, if it may.
    #[cold]
    fn stand<W: Work + 'static>(&self, work: Box<W>, patience: Patience<'_>) -> Result<u64, Rejected<W, PoolError>> {
        let shared = &self.owner.shared;
        let blocks = shared.lock().limits.blocks;
        let deadline = match patience {
            Patience::Until(deadline) => Some(deadline),
            Patience::AsSaid | Patience::Unless(_) => blocks.then_some(Deadline::NEVER),
            Patience::Exempt => {
                let placed = shared.lock().submit(work, |work| work as Box<dyn Work>, Claim::Exempt);
                return match placed {
                    Ok((number, placed)) => shared.follow(number, placed),
                    Err((work, refusal)) => Err(Rejected::new(*work, refusal.into())),
                };
            }
        };
        match deadline {
            Some(deadline) if !deadline.has_passed(&shared.clock) && is_step() => {
                Err(Rejected::new(*work, PoolError::InsideStep))
            }
            Some(deadline) if !deadline.has_passed(&shared.clock) && !self.is_inside() => {
                let over = if let Patience::Unless(over) = patience { Some(over) } else { None };
                shared.stand_until(work, deadline, over)
            }
            _ => Err(Rejected::new(*work, PoolError::Full)),
        }
    }

    /// Has other numbers of workers from now on: at least `min` are kept, and there are at most `max`.
    ///
    /// More are started at once for what waits. If there are too many now, those that rest end at once, and the others when
    /// the jobs that they are at have ended: until then there are more than `max`.
    ///
    /// On a pool that ends, it still changes how many do what waits.
    ///
    /// # Errors
    /// `max` is 0, or less than `min`. Nothing has changed then.
    pub fn resize(&self, min: usize, max: usize) -> Result<(), PoolBuildError> {
        check_size(min, max)?;
        let shared = &self.owner.shared;
        let (hands, news) = {
            let mut ledger = shared.lock();
            (ledger.resize(min, max), ledger.news())
        };
        shared.give(hands);
        call_all(news);
        Ok(())
    }

    /// Where the pool is in its life. Does not block, also while somebody waits for a pause or for the end.
    pub fn status(&self) -> PoolStatus {
        self.owner.shared.lock().status
    }

    /// Counts, all of one moment. Does not block, also while somebody waits for a pause or for the end.
    pub fn stats(&self) -> PoolStats {
        let ledger = self.owner.shared.lock();
        let Limits { min, max, .. } = ledger.limits;
        PoolStats {
            min,
            max,
            workers: ledger.workers,
            idle: ledger.workers - ledger.running,
            running: ledger.running,
            nested: ledger.nested,
            waiting: ledger.waiting(),
            pauses: ledger.pauses.len(),
            submitted: ledger.submitted,
            finished: ledger.finished,
            panicked: ledger.panicked,
            abandoned: ledger.abandoned,
            withdrawn: ledger.withdrawn,
        }
    }

    /// Waits until no job waits and none runs, without ending the pool. Jobs that are kept back by a pause wait.
    ///
    /// # Errors
    /// The limit was over before; or, at once, the caller is a job of this pool ([`WaitError::Inside`]) or a step
    /// ([`WaitError::InsideStep`]).
    pub fn wait_idle(&self, limit: Option<Duration>) -> Result<(), WaitError> {
        let shared = &self.owner.shared;
        let deadline = shared.deadline(limit);
        refuse_step_timeout(limit)?;
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let in_time = shared.wait_until(&shared.clock, deadline, |ledger| ledger.is_idle());
        if in_time { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// Whether the calling thread is one of this pool's.
    pub fn is_inside(&self) -> bool {
        self.owner.shared.crew.is_current()
    }
}

pub(super) fn check_size(min: usize, max: usize) -> Result<(), PoolBuildError> {
    match (min, max) {
        (_, 0) => Err(PoolBuildError::Max { given: 0 }),
        (min, max) if min > max => Err(PoolBuildError::Min { min, max }),
        _ => Ok(()),
    }
}

impl Shared {
    pub(super) fn deadline(&self, limit: Option<Duration>) -> Deadline {
        limit.map_or(Deadline::NEVER, |limit| self.clock.deadline(limit))
    }

    /// Does what the ledger has said about a job.
    fn follow<W: Work + 'static>(
        self: &Arc<Shared>,
        number: u64,
        placed: Placed<Box<W>>,
    ) -> Result<u64, Rejected<W, PoolError>> {
        match placed {
            // Ordering: Relaxed: see `look_about`.
            Placed::Queued { linger: true } => self.hint.store(true, Ordering::Relaxed),
            Placed::Queued { linger: false } => {}
            Placed::Wake(seat) => seat.call(),
            Placed::StartWith(work) => self.start_with(number, work)?,
            Placed::Start => self.start(),
        }
        Ok(number)
    }

    /// Waits for room, behind all who do already, until the deadline or until the latch is set.
    fn stand_until<W: Work + 'static>(
        self: &Arc<Shared>,
        mut work: Box<W>,
        deadline: Deadline,
        over: Option<&Latch<()>>,
    ) -> Result<u64, Rejected<W, PoolError>> {
        let seat = Seat::new();
        let _watch = seat.watch(&self.clock);
        let called = seat.clone();
        // A latch that is set after it was looked at calls the seat, and no call is lost.
        let callback = over.and_then(|over| over.on_set(move |()| called.call()));
        self.lock().stand(&seat);
        let (placed, news) = loop {
            let gives_up = over.is_some_and(Latch::is_set) || deadline.has_passed(&self.clock);
            let mut ledger = self.lock();
            match ledger.submit(work, |work| work as Box<dyn Work>, Claim::Stands(&seat)) {
                Err((back, Refusal::Full)) if !gives_up => {
                    drop(ledger);
                    work = back;
                    seat.wait(&self.clock, deadline);
                }
                placed => {
                    ledger.stand_no_more(&seat);
                    break (placed, ledger.news());
                }
            }
        };
        call_all(news);
        if let (Some(over), Some(callback)) = (over, callback) {
            over.forget(callback);
        }
        match placed {
            Ok((number, placed)) => self.follow(number, placed),
            Err((work, refusal)) => Err(Rejected::new(*work, refusal.into())),
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.stats()).finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.drop_all(self.shared.stop());
    }
}
