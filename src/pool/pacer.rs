//! A pacer: jobs and threads that begin no closer together than an interval.
//!
//! **The turn.** Jobs and threads wait in a queue. There is one *turn*: it is *free*, *timed* (a timer waits until the interval is
//! over), or *handed* (a job has it, and has not begun yet because no worker is free).
//!
//! | | `advance` | the timer fires | the job begins | the job is dropped, or is found cancelled |
//! |---|---|---|---|---|
//! | free, interval not over | timed | | | |
//! | free, interval over | a thread: begins; free, the interval starts. A job: handed | | | |
//! | timed | | free, `advance` | | |
//! | handed | | | free, the interval starts, `advance` | free, `advance` |
//!
//! The interval starts when a job or thread has begun, and not when it was handed over: a job that waits for a worker keeps back
//! those behind it. While a job waits here it has no worker. Nothing is lost: each step that frees the turn calls `advance`, and so
//! does each that adds to the queue or resumes.
//!
//! **The locker.** Until it begins, a job lies in a *locker* of its own, whether it waits here, is on the way to the pool, or waits
//! in the pool's queue. One thread takes it out: the worker that begins it, the thread that cancels it, or the one that drops it. So
//! a cancellation finds the job also while it is handed over. What the pool has is a *shell*. The shell of a cancelled job is
//! removed from the pool's queue by the canceller, if the ticket is in the locker already, and otherwise by the thread that hands
//! over, when it comes to put the ticket there. (If a worker takes the shell before that, it counts as a job that has returned.)
//!
//! **Inside.** A thread of a pool that waits here holds a worker which the pool's jobs before it may need. If no other worker is
//! free, it would wait for ever. Whether one is free, and stays so, is a matter of chance. So the wait is refused whenever such a
//! job is before it, and this is looked up in the same critical section in which the thread joins the queue. Then this queue has no
//! such deadlock: behind a job that is first there is no thread of its pool but those that came before it. (Two other ways were
//! considered. Running the jobs before it on the thread that waits nests as deep as the queue is long. Letting the thread overtake
//! them starves them if jobs wait again and again.)

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::handle::{Owner as PoolOwner, Patience, Pool, Ticket, WeakPool};
use super::job::{Handled, Ran, Work, abandon_all, tell_all_abandoned};
use super::job_handle::{Elsewhere, JobHandle};
use super::stats::PoolStatus;
use crate::cancel::CancelToken;
use crate::clock::{Clock, Deadline};
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::primitives::{Arc, Mutex, MutexGuard, Weak, lock};
use crate::threads;
use crate::timer::Timers;

/// Lets jobs and threads begin no closer together than an interval.
///
/// Clones are the same pacer. When the last one is dropped, the pacer stops.
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
    /// Jobs that wait, and threads in [`Pacer::wait`].
    pub waiting: usize,
    /// Jobs that have begun, and threads that were let through.
    pub started: u64,
    /// Jobs that never began: they were cancelled, the pacer was stopped, or their pool had been stopped when it was their
    /// turn.
    pub given_up: u64,
}

impl Pacer {
    /// Makes a pacer with this interval, by the system's clock.
    ///
    /// With [`Duration::ZERO`] no job waits; with [`Duration::MAX`] only the first one ever begins. The first use starts a thread
    /// for the pacer's timer.
    pub fn new(every: Duration) -> Pacer {
        Pacer::with_clock(every, Clock::system())
    }

    /// The same by another clock.
    pub fn with_clock(every: Duration, clock: Clock) -> Pacer {
        let shared = Shared::new(every, clock);
        Pacer { owner: Arc::new(Owner { shared: Arc::new(shared) }) }
    }

    /// Has `job` run once on the pool when its turn comes.
    ///
    /// Until then the job has no worker and no place in the pool's queue, and does not keep the pool alive. Then the queue's bound
    /// does not count for it. If the pool is stopped before the job's turn, the job is dropped and counted.
    ///
    /// # Errors
    /// The pacer or the pool has been stopped, or there is no thread for the pacer's timer. The job is handed back.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, pool: &Pool, job: F) -> Result<(), Rejected<F, PacerError>> {
        self.owner.shared.join(pool, job).map(|_| ())
    }

    /// As [`execute`](Self::execute), with a handle to wait for what the job returns, or to cancel it before it begins.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn spawn<T, F>(&self, pool: &Pool, job: F) -> Result<JobHandle<T>, Rejected<F, PacerError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let shared = &self.owner.shared;
        let (work, state) = Handled::new(job, &shared.clock);
        match shared.join(pool, work) {
            Ok(place) => Ok(JobHandle::elsewhere(state, Box::new(place))),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Blocks the calling thread until its turn comes.
    ///
    /// A job must not wait behind paced jobs of its own pool, for they may need its thread. Such a job submits the rest of its work
    /// with [`execute`](Self::execute), or waits at a pacer that paces no jobs of its pool.
    ///
    /// # Errors
    /// The token was cancelled, the pacer was stopped, or there is no thread for the pacer's timer. At once: the caller is a job
    /// of a pool whose jobs wait before it here ([`PacerError::Inside`]), or a step ([`PacerError::InsideStep`]).
    pub fn wait(&self, cancel: &CancelToken) -> Result<(), PacerError> {
        self.owner.shared.wait(cancel)
    }

    /// Lets no job and no thread begin until [`resume`](Self::resume).
    ///
    /// A job that has its turn already, and only waits for a worker, is not held back.
    pub fn pause(&self) {
        self.owner.shared.lock().paused = true;
    }

    /// Ends a pause. The interval goes on during a pause.
    pub fn resume(&self) {
        self.owner.shared.lock().paused = false;
        self.owner.shared.advance();
    }

    /// Whether the pacer is paused.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().paused
    }

    /// Stops for good, and returns how many jobs and threads waited.
    ///
    /// Waiting jobs are dropped, on this thread, and their handles are told. Waiting threads get an error. A job that has its turn
    /// already is still run.
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
        PacerStats { waiting: state.queue.len(), started: state.started, given_up: state.given_up }
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

/// A pacer has refused a job or a wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacerError {
    /// The pacer has been stopped.
    #[error("the pacer has been stopped")]
    Stopped,
    /// The pool drains or has been stopped.
    #[error("the pool accepts no more jobs: it is {0:?}")]
    Pool(PoolStatus),
    /// The operating system gave no thread for the pacer's timer.
    #[error("the pacer can start no thread for its timer")]
    NoThread,
    /// The wait was cancelled.
    #[error("the wait for the pacer was cancelled ({0})")]
    Cancelled(#[source] Reason),
    /// The caller is a job of a pool, and jobs of that pool, which may need its thread, wait before it.
    #[error("a job cannot wait for its turn behind paced jobs of its own pool")]
    Inside,
    /// The caller is a step, and would have blocked its worker.
    #[error("a step cannot wait for its turn, for it would block its worker")]
    InsideStep,
}

struct Shared {
    every: Duration,
    clock: Clock,
    timers: Timers,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<(u64, Waiter)>,
    next: u64,
    turn: Turn,
    // The earliest moment at which the next may begin.
    free_at: Deadline,
    paused: bool,
    stopped: bool,
    started: u64,
    given_up: u64,
}

enum Turn {
    Free,
    Timed,
    // With the pool that the job was handed to.
    Handed(WeakPool),
}

/// Where a job lies until it begins.
struct Locker {
    work: Option<Box<dyn Work>>,
    // Its place in the pool's queue, when it has one.
    ticket: Option<Ticket>,
}

type Place = Arc<Mutex<Locker>>;

fn take_out(place: &Place) -> Option<Box<dyn Work>> {
    lock(place).work.take()
}

enum Waiter {
    Job { pool: WeakPool, place: Place },
    Thread(Latch<Result<(), PacerError>>),
}

/// What could not be handed over: jobs whose pools refused them, and pools of which the hand-over had the last handle.
#[derive(Default)]
struct Refused {
    jobs: Vec<Box<dyn Work>>,
    pools: Vec<PoolOwner>,
}

impl State {
    fn join(&mut self, waits: Waiter) -> u64 {
        self.next += 1;
        self.queue.push_back((self.next, waits));
        self.next
    }

    fn take(&mut self, id: u64) -> Option<Waiter> {
        let place = self.queue.binary_search_by_key(&id, |(other, _)| *other).ok()?;
        self.queue.remove(place).map(|(_, waits)| waits)
    }

    /// Whether jobs for the pool of the calling thread wait for their turn, or for a worker.
    fn has_jobs_for_this_thread(&self) -> bool {
        let handed = matches!(&self.turn, Turn::Handed(pool) if pool.is_inside());
        handed || self.queue.iter().any(|(_, waiter)| matches!(waiter, Waiter::Job { pool, .. } if pool.is_inside()))
    }

    fn begins(&mut self, every: Duration, now: Instant) {
        self.started += 1;
        // With the greatest intervals the moment never comes.
        self.free_at = Deadline(now.checked_add(every));
    }
}

impl Shared {
    fn new(every: Duration, clock: Clock) -> Shared {
        let state = State {
            queue: VecDeque::new(),
            next: 0,
            turn: Turn::Free,
            free_at: clock.deadline(Duration::ZERO),
            paused: false,
            stopped: false,
            started: 0,
            given_up: 0,
        };
        let timers = Timers::new(clock.clone(), "procession-pacer");
        Shared { every, timers, clock, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has a job wait for its turn.
    fn join<W: Work + 'static>(
        self: &Arc<Shared>,
        pool: &Pool,
        work: W,
    ) -> Result<PacedPlace, Rejected<W, PacerError>> {
        let status = pool.status();
        if status != PoolStatus::Running {
            return Err(Rejected::new(work, PacerError::Pool(status)));
        }
        if self.timers.begin().is_err() {
            return Err(Rejected::new(work, PacerError::NoThread));
        }
        let (id, place) = {
            let mut state = self.lock();
            if state.stopped {
                drop(state);
                return Err(Rejected::new(work, PacerError::Stopped));
            }
            let place = Arc::new(Mutex::new(Locker { work: Some(Box::new(work)), ticket: None }));
            (state.join(Waiter::Job { pool: pool.downgrade(), place: place.clone() }), place)
        };
        self.advance();
        Ok(PacedPlace { pacer: Arc::downgrade(self), pool: pool.downgrade(), id, place })
    }

    /// Has the calling thread wait for its turn.
    fn wait(self: &Arc<Shared>, cancel: &CancelToken) -> Result<(), PacerError> {
        if is_step() {
            return Err(PacerError::InsideStep);
        }
        cancel.check().map_err(PacerError::Cancelled)?;
        self.timers.begin().map_err(|_| PacerError::NoThread)?;
        let through = Latch::new();
        let id = {
            let mut state = self.lock();
            if state.stopped {
                return Err(PacerError::Stopped);
            }
            if state.has_jobs_for_this_thread() {
                return Err(PacerError::Inside);
            }
            state.join(Waiter::Thread(through.clone()))
        };
        let (pacer, told) = (Arc::downgrade(self), through.clone());
        let _registration = cancel.on_cancel(move |reason| {
            let gone = pacer.upgrade().and_then(|pacer| pacer.lock().take(id));
            // A thread that had its turn at the same moment keeps it.
            if gone.is_some() {
                let _ = told.set(Err(PacerError::Cancelled(reason.clone())));
            }
        });
        self.advance();
        through.wait()
    }

    /// Gives the turn to the next waiter, as long as the turn is free and the interval is over.
    fn advance(self: &Arc<Shared>) {
        let mut refused = Refused::default();
        while self.advance_once(&mut refused) {}
        let Refused { mut jobs, pools } = refused;
        if jobs.is_empty() && pools.is_empty() {
            return;
        }
        abandon_all(&mut jobs, &Reason::Shutdown);
        // The destructors are the user's, and this may be the thread of the timer, or a worker that has a job to run.
        threads::on_helper_thread("procession-pacer-end", move || {
            tell_all_abandoned(&mut jobs);
            jobs.into_iter().for_each(drop_contained);
            pools.into_iter().for_each(drop_contained);
        });
    }

    /// Gives the turn to the next waiter. Returns whether to go on. What is to be dropped goes to `refused`.
    fn advance_once(self: &Arc<Shared>, refused: &mut Refused) -> bool {
        let mut state = self.lock();
        if state.stopped || state.paused || !matches!(state.turn, Turn::Free) || state.queue.is_empty() {
            return false;
        }
        let now = self.clock.now();
        match state.free_at {
            Deadline(Some(at)) if at > now => {
                state.turn = Turn::Timed;
                drop(state);
                let weak = Arc::downgrade(self);
                // Refused only when it has been stopped.
                let _ = self.timers.at(at, Box::new(move || weak.upgrade().iter().for_each(Shared::timer_fired)));
                return false;
            }
            Deadline(Some(_)) => {}
            Deadline(None) => return false,
        }
        match state.queue.pop_front() {
            Some((_, Waiter::Thread(through))) => {
                state.begins(self.every, now);
                drop(state);
                let _ = through.set(Ok(()));
                true
            }
            Some((_, Waiter::Job { pool, place })) => {
                state.turn = Turn::Handed(pool.clone());
                drop(state);
                self.hand_over(&pool, place, refused)
            }
            None => false,
        }
    }

    /// Hands a job to its pool. Returns whether the turn is free again, because the pool has refused the job.
    fn hand_over(self: &Arc<Shared>, pool: &WeakPool, place: Place, refused: &mut Refused) -> bool {
        let shell = Shell { place: place.clone(), turn: Some(Arc::downgrade(self)), abandoned: None };
        let handed = match pool.upgrade() {
            Some(pool) => {
                let number = pool.place(shell, Patience::Exempt).map_err(Rejected::into_inner);
                let ticket = number.map(|number| pool.ticket(number));
                // It may be the last handle by now, whose destructor waits.
                if let Some(last) = Arc::into_inner(pool.owner) {
                    refused.pools.push(last);
                }
                ticket
            }
            None => Err(shell),
        };
        match handed {
            Ok(ticket) => {
                let is_cancelled = {
                    let mut locker = lock(&place);
                    locker.ticket = Some(ticket.clone());
                    locker.work.is_none()
                };
                if is_cancelled {
                    // If the job has begun instead, its shell is not in the queue.
                    drop(ticket.take());
                }
                false
            }
            Err(mut shell) => {
                shell.turn = None;
                let mut state = self.lock();
                state.turn = Turn::Free;
                state.given_up += 1;
                drop(state);
                refused.jobs.push(Box::new(shell));
                true
            }
        }
    }

    fn timer_fired(self: &Arc<Shared>) {
        self.lock().turn = Turn::Free;
        self.advance();
    }

    fn job_begins(self: &Arc<Shared>) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.turn = Turn::Free;
        state.begins(self.every, now);
        drop(state);
        self.advance();
    }

    fn job_dropped(self: &Arc<Shared>) {
        let mut state = self.lock();
        state.turn = Turn::Free;
        state.given_up += 1;
        drop(state);
        self.advance();
    }

    /// Drops the jobs that wait, and gives an error to the threads. Returns how many there were.
    fn stop(&self) -> usize {
        let queue = {
            let mut state = self.lock();
            state.stopped = true;
            let queue = std::mem::take(&mut state.queue);
            state.given_up += queue.iter().filter(|(_, waits)| matches!(waits, Waiter::Job { .. })).count() as u64;
            queue
        };
        // The timer's actions are short, so its thread is not waited for.
        let (pending, _thread) = self.timers.halt();
        drop(pending);
        let released = queue.len();
        let mut jobs = Vec::new();
        for (_, waits) in queue {
            match waits {
                Waiter::Thread(through) => drop(through.set(Err(PacerError::Stopped))),
                Waiter::Job { place, .. } => jobs.extend(take_out(&place)),
            }
        }
        abandon_all(&mut jobs, &Reason::Shutdown);
        tell_all_abandoned(&mut jobs);
        jobs.into_iter().for_each(drop_contained);
        released
    }
}

/// What the pool has of a job with the turn. When it begins or is dropped, the turn is free.
struct Shell {
    place: Place,
    turn: Option<Weak<Shared>>,
    // The job, when it was abandoned with the pool.
    abandoned: Option<Box<dyn Work>>,
}

impl Shell {
    /// Frees the turn, of a job that will not begin.
    fn free_turn(&mut self) {
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_dropped();
        }
    }
}

impl Work for Shell {
    fn run(mut self: Box<Self>) -> Ran {
        // The job was cancelled. The drop of the shell frees the turn.
        let Some(work) = take_out(&self.place) else { return Ran::nothing() };
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_begins();
        }
        work.run()
    }

    fn abandon(&mut self, why: &Reason) {
        self.abandoned = take_out(&self.place);
        abandon_all(&mut self.abandoned, why);
        self.free_turn();
    }

    fn tell_abandoned(&mut self) {
        tell_all_abandoned(&mut self.abandoned);
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop_contained(self.abandoned.take());
        drop_contained(take_out(&self.place));
        self.free_turn();
    }
}

/// Where a job waits: here, and after that in the pool's queue.
struct PacedPlace {
    pacer: Weak<Shared>,
    pool: WeakPool,
    id: u64,
    place: Place,
}

impl Elsewhere for PacedPlace {
    fn take(&self) -> Option<Box<dyn Work>> {
        let (work, ticket) = {
            let mut locker = lock(&self.place);
            (locker.work.take()?, locker.ticket.clone())
        };
        let pacer = self.pacer.upgrade();
        let was_here = pacer.is_some_and(|pacer| {
            let mut state = pacer.lock();
            let gone = state.take(self.id);
            state.given_up += u64::from(gone.is_some());
            drop(state);
            gone.is_some()
        });
        if !was_here {
            // The pool's queue may have the shell.
            drop(ticket.and_then(|ticket| ticket.take()));
        }
        Some(work)
    }

    fn is_inside(&self) -> bool {
        self.pool.is_inside()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::job::JobError;
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;

    #[test]
    fn a_job_cancelled_on_its_way_to_the_pool_leaves_no_shell() {
        let pool = Pool::new(1).unwrap();
        let (begun, go, ran) = (Latch::new(), Latch::new(), Latch::new());
        let (begin, gate, run) = (begun.clone(), go.clone(), ran.clone());
        pool.execute(move || {
            begin.set(()).unwrap();
            wait(&gate);
        })
        .unwrap();
        wait(&begun);
        let clock = ManualClock::new().clock();
        let shared = Arc::new(Shared::new(Duration::ZERO, clock.clone()));
        shared.lock().paused = true;
        let (work, state) = Handled::new(|| 1, &clock);
        let place = shared.join(&pool, work).ok().unwrap();
        let handle = JobHandle::elsewhere(state, Box::new(place));
        let next = shared.join(&pool, move || run.set(()).unwrap()).ok().unwrap();
        // As `advance` does it, with a cancellation in between.
        let handed = {
            let mut state = shared.lock();
            (state.turn, state.paused) = (Turn::Handed(pool.downgrade()), false);
            state.queue.pop_front()
        };
        let Some((_, Waiter::Job { pool: to, place })) = handed else { panic!("a job is first") };
        assert!(handle.cancel() && !handle.cancel());
        assert!(!shared.hand_over(&to, place, &mut Refused::default()));
        assert!(matches!(wait(handle), Err(JobError::Cancelled)));
        assert_eq!((pool.stats().waiting, shared.lock().given_up), (1, 1), "the next one has the turn");
        go.set(()).unwrap();
        wait(&ran);
        assert!(next.take().is_none(), "it has begun");
        pool.drain().unwrap();
        let stats = pool.stats();
        assert_eq!((stats.submitted, stats.finished, stats.withdrawn), (3, 2, 1));
        let state = shared.lock();
        assert_eq!((state.started, state.given_up), (1, 1));
    }
}
