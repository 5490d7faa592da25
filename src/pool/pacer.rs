//! A pacer: at least one interval lies between the starts of its jobs and threads.
//!
//! **The turn.** Jobs and threads wait in a queue. There is one *turn*. It is *free*, *timed* or *handed*. While it
//! is timed, a timer waits until the interval is over. While it is handed, a job has it but has not begun, because no
//! worker is free.
//!
//! | | `advance` | the timer fires | the job begins | the job is dropped, or is found cancelled |
//! |---|---|---|---|---|
//! | free, interval not over | timed | | | |
//! | free, interval over | a thread: begins; free, the interval starts. A job: handed | | | |
//! | timed | | free, `advance` | | |
//! | handed | | | free, the interval starts, `advance` | free, `advance` |
//!
//! The interval starts when a job or thread begins, and not when it was handed over. So a job that waits for a worker
//! holds back those behind it. While a job waits in this queue it occupies no worker. No wake-up is lost: each
//! operation that frees the turn calls `advance`. So does each operation that adds to the queue or resumes.
//!
//! **The locker.** Until a job begins, it lies in a *locker* of its own. It lies there while it waits here, while it
//! is handed to the pool, and while it waits in the pool's queue. One thread takes it out: the worker that begins it,
//! the thread that cancels it, or the thread that drops it. So a cancellation also finds a job that is being handed
//! over. The pool itself stores a *shell*. If the job is cancelled, its shell must be removed from the pool's queue.
//! The canceller does so if the ticket is already in the locker. Otherwise the thread that hands the job over does
//! so, when it would store the ticket. (If a worker takes the shell before that, the shell counts as a job that has
//! returned.)
//!
//! **Inside.** A thread of a pool that waits here holds a worker. Jobs of that pool that wait before it may need this
//! worker. If no other worker is free, the thread would wait forever. Whether another worker is free and stays free
//! depends on timing. So the wait is refused whenever such a job is before the thread. The same critical section
//! makes this check and adds the thread to the queue. So this queue has no such deadlock: behind the first job, the
//! only waiting threads of its pool are those that joined earlier. (Two alternatives were considered. If the waiting
//! thread ran the jobs before it, calls would nest as deep as the queue is long. If the thread overtook those jobs, a
//! stream of waiting jobs would starve them.)

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

/// Spaces the starts of jobs and threads at least one interval apart.
///
/// Clones refer to the same pacer. Dropping the last one stops the pacer.
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

/// Counts of a [`Pacer`], all taken at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacerStats {
    /// Waiting jobs, and threads in [`Pacer::wait`].
    pub waiting: usize,
    /// Jobs that have begun, and threads that have passed.
    pub started: u64,
    /// Jobs that never began. They were cancelled, or the pacer was stopped, or their pool had been stopped before
    /// their turn.
    pub given_up: u64,
}

impl Pacer {
    /// Makes a pacer with this interval and the system's clock.
    ///
    /// With [`Duration::ZERO`] no job waits. With [`Duration::MAX`] only the first job ever begins. The first use
    /// starts a thread for the pacer's timer.
    pub fn new(every: Duration) -> Pacer {
        Pacer::with_clock(every, Clock::system())
    }

    /// As [`new`](Self::new), but measures the interval by `clock`.
    pub fn with_clock(every: Duration, clock: Clock) -> Pacer {
        let shared = Shared::new(every, clock);
        Pacer { owner: Arc::new(Owner { shared: Arc::new(shared) }) }
    }

    /// Submits `job`, which the pool runs once when its turn comes.
    ///
    /// Before its turn, the job has no worker and no place in the pool's queue, and does not keep the pool alive. At
    /// its turn, the queue's bound does not apply to it. If the pool is stopped before the job's turn, the job is
    /// dropped and counted.
    ///
    /// # Errors
    /// The pacer or the pool has been stopped, or the pacer's timer has no thread. The job is handed back.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, pool: &Pool, job: F) -> Result<(), Rejected<F, PacerError>> {
        self.owner.shared.join(pool, job).map(|_| ())
    }

    /// As [`execute`](Self::execute), but returns a handle. The handle waits for the job's value, or cancels the job
    /// before it begins.
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
    /// A job must not wait behind paced jobs of its own pool, because they may need its thread. Such a job has two
    /// choices. It can submit the rest of its work with [`execute`](Self::execute). Or it can wait at a pacer that
    /// paces no jobs of its pool.
    ///
    /// # Errors
    /// The token was cancelled, the pacer was stopped, or the pacer's timer has no thread. The call is refused at
    /// once if the caller is a job of a pool whose jobs wait before it here ([`PacerError::Inside`]). It is also
    /// refused at once if the caller is a step ([`PacerError::InsideStep`]).
    pub fn wait(&self, cancel: &CancelToken) -> Result<(), PacerError> {
        self.owner.shared.wait(cancel)
    }

    /// Holds back all jobs and threads until [`resume`](Self::resume).
    ///
    /// A job that already has its turn, and only waits for a worker, is not held back.
    pub fn pause(&self) {
        self.owner.shared.lock().paused = true;
    }

    /// Ends a pause. The interval keeps running during a pause.
    pub fn resume(&self) {
        self.owner.shared.lock().paused = false;
        self.owner.shared.advance();
    }

    /// Whether the pacer is paused.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().paused
    }

    /// Stops the pacer for good. Returns the number of jobs and threads that waited.
    ///
    /// This thread drops the waiting jobs and completes their handles. Waiting threads get an error. A job that
    /// already has its turn still runs.
    pub fn stop(&self) -> usize {
        self.owner.shared.stop()
    }

    /// The interval.
    pub fn every(&self) -> Duration {
        self.owner.shared.every
    }

    /// Counts, all taken at one moment.
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

/// The reason why a pacer refused a job or a wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacerError {
    /// The pacer has been stopped.
    #[error("the pacer has been stopped")]
    Stopped,
    /// The pool drains or has been stopped.
    #[error("the pool accepts no more jobs: it is {0:?}")]
    Pool(PoolStatus),
    /// The operating system provided no thread for the pacer's timer.
    #[error("the pacer can start no thread for its timer")]
    NoThread,
    /// The wait was cancelled.
    #[error("the wait for the pacer was cancelled ({0})")]
    Cancelled(#[source] Reason),
    /// The caller is a job of a pool, and jobs of that pool wait before it. They may need the caller's thread.
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
    // The earliest moment at which the next waiter may begin.
    free_at: Deadline,
    paused: bool,
    stopped: bool,
    started: u64,
    given_up: u64,
}

enum Turn {
    Free,
    Timed,
    // Holds the pool to which the job was handed.
    Handed(WeakPool),
}

/// The storage of a job until it begins.
struct Locker {
    work: Option<Box<dyn Work>>,
    // The job's ticket in the pool's queue, once it has one.
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

    /// Whether the queue has jobs for the calling thread's pool. A job that has the turn but no worker counts, too.
    fn has_jobs_for_this_thread(&self) -> bool {
        let handed = matches!(&self.turn, Turn::Handed(pool) if pool.is_inside());
        handed || self.queue.iter().any(|(_, waiter)| matches!(waiter, Waiter::Job { pool, .. } if pool.is_inside()))
    }

    fn begins(&mut self, every: Duration, now: Instant) {
        self.started += 1;
        // If the interval is too long to add, the moment never comes.
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

    /// Adds a job to the queue, where it waits for its turn.
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

    /// Blocks the calling thread until its turn.
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
            // If the thread got its turn at the same moment, it keeps the turn.
            if gone.is_some() {
                let _ = told.set(Err(PacerError::Cancelled(reason.clone())));
            }
        });
        self.advance();
        through.wait()
    }

    /// Gives the turn to the next waiters, while the turn is free and the interval is over.
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
                // The timer refuses only if it has been stopped.
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
                // This may be the last handle by now. Its destructor waits.
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

    /// Drops the waiting jobs and gives an error to the waiting threads. Returns how many there were.
    fn stop(&self) -> usize {
        let queue = {
            let mut state = self.lock();
            state.stopped = true;
            let queue = std::mem::take(&mut state.queue);
            state.given_up += queue.iter().filter(|(_, waits)| matches!(waits, Waiter::Job { .. })).count() as u64;
            queue
        };
        // The timer's actions are short, so there is no need to wait for its thread.
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

/// The job with the turn, as the pool stores it. When the shell begins or is dropped, the turn becomes free.
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
        // The job was cancelled. Dropping the shell frees the turn.
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

/// The place where a job waits: in the pacer, and later in the pool's queue.
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
            // The pool's queue may hold the shell.
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
        // The same as `advance` does, with a cancellation in between.
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
