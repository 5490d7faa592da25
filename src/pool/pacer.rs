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
//! **Cancellation.** The pool stores a job in a *shell*, which frees the turn when the job begins or is dropped. A
//! thread that hands a job over takes it out of this queue and puts it into the pool's queue. It notes the job's ticket
//! with the turn. It does all this under this pacer's lock. A canceller takes the same lock, so it finds the job here
//! or the ticket. The ticket decides whether the canceller or a worker has the job. (The pool's lock is the inner one.
//! No thread takes the pacer's lock under it, because the pool drops and runs no job there.) A worker that begins the
//! job at once waits for the pacer's lock until the turn is noted.
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

use super::handle::{Pool, Ticket, WeakPool, unboxed};
use super::job::{Handled, Ran, Work, abandon_all};
use super::job_handle::{JobHandle, Place};
use super::ledger::Claim;
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
/// Clones refer to the same pacer. Dropping the last clone stops the pacer.
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
    /// Jobs and threads that wait for their turn.
    pub waiting: usize,
    /// Jobs that have begun, and threads that have had their turn.
    pub started: u64,
    /// Jobs that never began: they were cancelled, or their pacer or pool was stopped.
    pub given_up: u64,
}

impl Pacer {
    /// Makes a pacer with this interval and the system's clock.
    ///
    /// With [`Duration::ZERO`] no job waits for an interval. With [`Duration::MAX`] only the first job or thread ever
    /// gets a turn. The first use starts a thread for the pacer's timer.
    pub fn new(every: Duration) -> Pacer {
        Pacer::with_clock(every, Clock::system())
    }

    /// As [`new`](Self::new), but measures the interval by `clock`.
    pub fn with_clock(every: Duration, clock: Clock) -> Pacer {
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
        let shared = Shared { every, timers, clock, state: Mutex::new(state) };
        Pacer { owner: Arc::new(Owner { shared: Arc::new(shared) }) }
    }

    /// Submits `job`, which the pool runs once when its turn comes.
    ///
    /// Before its turn, the job occupies no worker and no place in the pool's queue, and does not keep the pool alive.
    /// At its turn, the pool accepts the job even if the queue is full. If the pool is stopped before the job's turn,
    /// the job is dropped and counted.
    ///
    /// # Errors
    /// The pacer or the pool has been stopped, or the pacer's timer has no thread. The job is handed back.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, pool: &Pool, job: F) -> Result<(), Rejected<F, PacerError>> {
        self.owner.shared.join(pool, job).map(|_| ())
    }

    /// As [`execute`](Self::execute), but returns a handle to the job's value.
    ///
    /// The handle can also cancel the job before it begins.
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
            Ok(id) => {
                let pacer = shared.clone();
                let place = Place::Pacer(pool.downgrade(), Box::new(move || pacer.withdraw(id)));
                Ok(JobHandle::new(state, place))
            }
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    /// Blocks the calling thread until its turn comes.
    ///
    /// A job must not wait behind paced jobs of its own pool, because they may need its thread. Such a job can submit
    /// the rest of its work with [`execute`](Self::execute) instead. Or it can wait at a pacer that paces no jobs of
    /// its pool.
    ///
    /// # Errors
    /// The token was cancelled, the pacer was stopped, or the pacer's timer has no thread. The call fails at once if
    /// the caller is a job, and jobs of its pool wait here before it ([`PacerError::Inside`]). It also fails at once if
    /// the caller is a step ([`PacerError::InsideStep`]).
    pub fn wait(&self, cancel: &CancelToken) -> Result<(), PacerError> {
        self.owner.shared.wait(cancel)
    }

    /// Pauses the pacer: no job or thread gets a turn until [`resume`](Self::resume).
    ///
    /// A job that already has its turn and waits for a worker still runs.
    pub fn pause(&self) {
        self.owner.shared.lock().paused = true;
    }

    /// Ends a pause.
    ///
    /// The interval also runs during the pause.
    pub fn resume(&self) {
        self.owner.shared.lock().paused = false;
        self.owner.shared.advance();
    }

    /// Whether the pacer is paused.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().paused
    }

    /// Stops the pacer, which cannot be resumed. Returns how many jobs and threads waited.
    ///
    /// The calling thread drops the waiting jobs and completes their handles. Waiting threads get an error. A job that
    /// already has its turn still runs.
    pub fn stop(&self) -> usize {
        self.owner.shared.stop()
    }

    /// Returns the interval.
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
    /// The caller is a job, and jobs of its pool wait before it. They may need the caller's thread.
    #[error("a job cannot wait for its turn behind paced jobs of its own pool")]
    Inside,
    /// The caller is a step of a process. The call would have blocked the worker that runs the step.
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
    /// The job with this number was handed to the pool. It has no ticket if the pool refuses it.
    Handed {
        id: u64,
        pool: WeakPool,
        ticket: Option<Ticket>,
    },
}

enum Waiter {
    Job { pool: WeakPool, work: Box<dyn Work> },
    Thread(Latch<Result<(), PacerError>>),
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
        let handed = matches!(&self.turn, Turn::Handed { pool, .. } if pool.is_inside());
        handed || self.queue.iter().any(|(_, waiter)| matches!(waiter, Waiter::Job { pool, .. } if pool.is_inside()))
    }

    fn begins(&mut self, every: Duration, now: Instant) {
        self.started += 1;
        // If the interval is too long to add, the moment never comes.
        self.free_at = Deadline(now.checked_add(every));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Adds a job to the queue, where it waits for its turn. Returns its number.
    fn join<W: Work>(self: &Arc<Shared>, pool: &Pool, work: W) -> Result<u64, Rejected<W, PacerError>> {
        let status = pool.status();
        if status != PoolStatus::Running {
            return Err(Rejected::new(work, PacerError::Pool(status)));
        }
        if self.timers.begin().is_err() {
            return Err(Rejected::new(work, PacerError::NoThread));
        }
        let id = {
            let mut state = self.lock();
            if state.stopped {
                return Err(Rejected::new(work, PacerError::Stopped));
            }
            state.join(Waiter::Job { pool: pool.downgrade(), work: Box::new(work) })
        };
        self.advance();
        Ok(id)
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

    /// Gives the turn to the next waiters, as often as it is due.
    fn advance(self: &Arc<Shared>) {
        let mut refused = Vec::new();
        while self.advance_once(&mut refused) {}
        if refused.is_empty() {
            return;
        }
        let refused = abandon_all(refused, &Reason::Shutdown);
        // The destructors are the user's, and this may be the thread of the timer, or a worker that has a job to run.
        threads::on_helper_thread("procession-pacer-end", move || refused.finish(|| ()));
    }

    /// Gives the turn to the next waiter. Returns whether to go on. A job that its pool refuses goes to `refused`.
    fn advance_once(self: &Arc<Shared>, refused: &mut Vec<Box<dyn Work>>) -> bool {
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
            Some((id, Waiter::Job { pool, work })) => {
                let Some(to) = pool.upgrade() else {
                    state.given_up += 1;
                    refused.push(work);
                    return true;
                };
                let shell = Shell { work: Some(work), turn: Arc::downgrade(self) };
                let submitted = to.lock().submit(Box::new(shell), Claim::Exempt);
                let ticket = submitted.as_ref().ok().map(|(number, _)| to.ticket(*number));
                state.turn = Turn::Handed { id, pool, ticket };
                drop(state);
                let refusal = submitted.and_then(|(number, placed)| to.follow(number, placed)).err();
                let is_refused = refusal.is_some();
                if let Some((shell, _)) = refusal {
                    let mut shell: Shell = unboxed(shell);
                    shell.turn = Weak::new();
                    refused.extend(shell.work.take());
                    self.free_turn(false);
                }
                // This may be the last reference to the pool. Then the hooks are dropped here.
                drop_contained(to);
                is_refused
            }
            None => false,
        }
    }

    /// Frees the turn of a job, which begins or never will.
    fn free_turn(&self, begins: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.turn = Turn::Free;
        if begins {
            state.begins(self.every, now);
        } else {
            state.given_up += 1;
        }
    }

    fn timer_fired(self: &Arc<Shared>) {
        self.lock().turn = Turn::Free;
        self.advance();
    }

    /// Removes a job that has not begun, from this queue or from its pool's.
    fn withdraw(&self, id: u64) -> Option<Box<dyn Work>> {
        let mut state = self.lock();
        if let Some(Waiter::Job { work, .. }) = state.take(id) {
            state.given_up += 1;
            return Some(work);
        }
        let ticket = match &state.turn {
            Turn::Handed { id: handed, ticket, .. } if *handed == id => ticket.clone()?,
            _ => return None,
        };
        drop(state);
        ticket.take()
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
                Waiter::Job { work, .. } => jobs.push(work),
            }
        }
        abandon_all(jobs, &Reason::Shutdown).finish(|| ());
        released
    }
}

/// The job with the turn, as the pool stores it. When the job begins or is dropped, the turn becomes free.
struct Shell {
    work: Option<Box<dyn Work>>,
    // Empty when the turn is free.
    turn: Weak<Shared>,
}

impl Shell {
    fn free_turn(&mut self, begins: bool) {
        if let Some(pacer) = std::mem::take(&mut self.turn).upgrade() {
            pacer.free_turn(begins);
            pacer.advance();
        }
    }
}

impl Work for Shell {
    fn run(mut self: Box<Self>) -> Ran {
        self.free_turn(true);
        self.work.take().map_or_else(Ran::nothing, Work::run)
    }

    fn abandon(&mut self, why: &Reason) {
        self.work.iter_mut().for_each(|work| work.abandon(why));
        self.free_turn(false);
    }

    fn tell_abandoned(&mut self) {
        self.work.iter_mut().for_each(|work| work.tell_abandoned());
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.free_turn(false);
        drop_contained(self.work.take());
    }
}
