//! A pacer: things that begin no closer together than a given interval, in a pool or on any thread.
//!
//! **The turn.** Whoever is to be paced waits in a line. There is one *turn*: it is *free*, *timed* (a timer waits until the
//! interval is over), or *handed* (a job has it, and has not begun yet because no worker is free).
//!
//! | | `advance` | the timer fires | the job begins | the job is dropped |
//! |---|---|---|---|---|
//! | free, interval not over | timed | | | |
//! | free, interval over | a thread: begins; free, the interval starts. A job: handed | | | |
//! | timed | | free, `advance` | | |
//! | handed | | | free, the interval starts, `advance` | free, `advance` |
//!
//! The interval starts when something has begun, and not when it was handed over: a job that waits for a worker keeps those
//! behind it back. While something waits here it has no worker. Nothing is lost: whoever frees the turn calls `advance`, and
//! so does whoever joins the line or resumes.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::desk::Handled;
use super::handle::{Elsewhere, JobHandle};
use super::owner::{Patience, Pool, Ticket, WeakPool};
use super::words::PoolStatus;
use super::work::{Ran, Work};
use crate::cancel::Cancel;
use crate::clock::Clock;
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::sync::{Arc, Mutex, MutexGuard, Weak, lock};
use crate::timer::Timers;

/// Paces jobs, and threads: no two begin closer together than its interval. Clones are the same pacer; when the last one is
/// dropped it stops.
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

struct Shared {
    every: Duration,
    clock: Clock,
    timers: Timers,
    state: Mutex<State>,
}

struct State {
    line: VecDeque<(u64, Waits)>,
    next: u64,
    turn: Turn,
    // The earliest moment for the next to begin; none: at once. With the greatest intervals it never comes.
    free_at: FreeAt,
    paused: bool,
    stopped: bool,
    started: u64,
    given_up: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Free,
    Timed,
    Handed,
}

#[derive(Clone, Copy)]
enum FreeAt {
    Once,
    Moment(Instant),
    Never,
}

enum Waits {
    Job { pool: WeakPool, work: Box<dyn Work>, place: Arc<Mutex<Option<Ticket>>> },
    Thread(Latch<Result<(), PacerError>>),
}

/// Why a pacer lets nobody through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacerError {
    /// It has been stopped.
    #[error("the pacer has been stopped")]
    Stopped,
    /// The pool takes no more jobs.
    #[error("the pool takes no more jobs: it is {0:?}")]
    Pool(PoolStatus),
    /// The operating system gave no thread for its timer.
    #[error("the pacer can start no thread for its timer")]
    NoThread,
    /// The wait was cancelled.
    #[error("the wait for the pacer was cancelled ({0})")]
    Cancelled(#[source] Reason),
}

/// Counts of a [`Pacer`], all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacerStats {
    /// Who waits: jobs, and threads in [`Pacer::wait`].
    pub waiting: usize,
    /// Who was let through: jobs that have begun, and threads.
    pub started: u64,
    /// Jobs that were given up before they began: the pacer was stopped, or their pool had been when it was their turn.
    pub given_up: u64,
}

impl Pacer {
    /// A pacer with this interval, by the system's clock. With [`Duration::ZERO`] nobody waits; with [`Duration::MAX`] only
    /// the first one ever begins. It starts a thread for its timer with its first use.
    pub fn new(every: Duration) -> Pacer {
        Pacer::with_clock(every, Clock::system())
    }

    /// The same by another clock.
    pub fn with_clock(every: Duration, clock: Clock) -> Pacer {
        let state = State {
            line: VecDeque::new(),
            next: 0,
            turn: Turn::Free,
            free_at: FreeAt::Once,
            paused: false,
            stopped: false,
            started: 0,
            given_up: 0,
        };
        let timers = Timers::new(clock.clone(), "procession-pacer");
        let shared = Shared { every, clock, timers, state: Mutex::new(state) };
        Pacer { owner: Arc::new(Owner { shared: Arc::new(shared) }) }
    }

    /// Has `job` run once on the pool when its turn comes, behind all who wait here. Until then it occupies no worker and no
    /// place in the pool's queue, and does not keep the pool alive; then the queue's bound does not count for it.
    ///
    /// # Errors
    /// The job comes back if the pacer or the pool has been stopped, or there is no thread for the pacer's timer. If the pool
    /// is stopped later, before the job's turn, the job is dropped and counted.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, pool: &Pool, job: F) -> Result<(), Rejected<F, PacerError>> {
        self.join(pool, job).map(|_| ())
    }

    /// The same with a handle to wait for what the job returns, or to cancel it before it begins.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn spawn<T, F>(&self, pool: &Pool, job: F) -> Result<JobHandle<T>, Rejected<F, PacerError>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (work, desk) = Handled::new(job, &self.owner.shared.clock);
        match self.join(pool, work) {
            Ok(place) => Ok(JobHandle::elsewhere(desk, Box::new(place))),
            Err(refused) => {
                let (work, why) = refused.into_parts();
                Err(Rejected::new(work.into_job(), why))
            }
        }
    }

    fn join<W: Work + 'static>(&self, pool: &Pool, work: W) -> Result<Waiting, Rejected<W, PacerError>> {
        let shared = &self.owner.shared;
        let status = pool.status();
        if status != PoolStatus::Running {
            return Err(Rejected::new(work, PacerError::Pool(status)));
        }
        if shared.timers.begin().is_err() {
            return Err(Rejected::new(work, PacerError::NoThread));
        }
        let place = Arc::new(Mutex::new(None));
        let id = {
            let mut state = shared.lock();
            if state.stopped {
                drop(state);
                return Err(Rejected::new(work, PacerError::Stopped));
            }
            let job = Waits::Job { pool: pool.downgrade(), work: Box::new(work), place: place.clone() };
            state.join(job)
        };
        shared.advance();
        Ok(Waiting { pacer: Arc::downgrade(shared), pool: pool.downgrade(), id, place })
    }

    /// Blocks the calling thread until its turn comes, behind all who wait here.
    ///
    /// Not for a job of a pool whose paced jobs stand before it, unless the pool has another thread for them: it would wait for
    /// a turn that they cannot take. Such a job submits what is to come later with [`execute`](Self::execute).
    ///
    /// # Errors
    /// The token was cancelled or the pacer stopped before that; or there is no thread for the pacer's timer.
    pub fn wait(&self, cancel: &Cancel) -> Result<(), PacerError> {
        self.owner.shared.wait(cancel)
    }

    /// Lets nobody through until [`resume`](Self::resume). A job that has its turn already, and only waits for a worker, is
    /// not held back.
    pub fn pause(&self) {
        self.owner.shared.lock().paused = true;
    }

    /// Goes on after a pause. The interval has passed meanwhile.
    pub fn resume(&self) {
        self.owner.shared.lock().paused = false;
        self.owner.shared.advance();
    }

    /// Whether it lets nobody through until it is resumed.
    pub fn is_paused(&self) -> bool {
        self.owner.shared.lock().paused
    }

    /// Stops for good: jobs that wait are dropped, which their handles are told, and threads that wait have an error. How
    /// many there were. A job that has its turn already is still run.
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
        PacerStats { waiting: state.line.len(), started: state.started, given_up: state.given_up }
    }
}

impl State {
    fn join(&mut self, waits: Waits) -> u64 {
        self.next += 1;
        self.line.push_back((self.next, waits));
        self.next
    }

    fn take(&mut self, id: u64) -> Option<Waits> {
        let place = self.line.binary_search_by_key(&id, |(other, _)| *other).ok()?;
        self.line.remove(place).map(|(_, waits)| waits)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn wait(self: &Arc<Shared>, cancel: &Cancel) -> Result<(), PacerError> {
        cancel.check().map_err(PacerError::Cancelled)?;
        self.timers.begin().map_err(|_| PacerError::NoThread)?;
        let through = Latch::new();
        let id = {
            let mut state = self.lock();
            if state.stopped {
                return Err(PacerError::Stopped);
            }
            state.join(Waits::Thread(through.clone()))
        };
        let (pacer, told) = (Arc::downgrade(self), through.clone());
        let _registration = cancel.on_cancel(move |reason| {
            let gone = pacer.upgrade().and_then(|pacer| pacer.lock().take(id));
            // Who has had its turn at the same moment, has it.
            if gone.is_some() {
                let _ = told.set(Err(PacerError::Cancelled(reason.clone())));
            }
        });
        self.advance();
        through.wait()
    }

    /// Gives the turn to the next, as long as it is free and it is time.
    fn advance(self: &Arc<Shared>) {
        loop {
            let mut state = self.lock();
            if state.stopped || state.paused || state.turn != Turn::Free || state.line.is_empty() {
                return;
            }
            let now = self.clock.now();
            match state.free_at {
                FreeAt::Moment(at) if at > now => {
                    state.turn = Turn::Timed;
                    drop(state);
                    let weak = Arc::downgrade(self);
                    // Refused only when it has been stopped.
                    let _ = self.timers.at(at, Box::new(move || weak.upgrade().iter().for_each(Shared::timer_fired)));
                    return;
                }
                FreeAt::Never => return,
                FreeAt::Once | FreeAt::Moment(_) => {}
            }
            match state.line.pop_front() {
                Some((_, Waits::Thread(through))) => {
                    state.begins(self.every, now);
                    drop(state);
                    let _ = through.set(Ok(()));
                }
                Some((_, Waits::Job { pool, work, place })) => {
                    state.turn = Turn::Handed;
                    drop(state);
                    if self.hand_over(&pool, work, &place) {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    /// Hands a job to its pool. If that does not take it, the turn is free again.
    fn hand_over(self: &Arc<Shared>, pool: &WeakPool, work: Box<dyn Work>, place: &Mutex<Option<Ticket>>) -> bool {
        let paced = Paced { work: Some(work), turn: Some(Arc::downgrade(self)) };
        let handed = match pool.upgrade() {
            Some(pool) => {
                let number = pool.place(paced, Patience::Exempt).map_err(Rejected::into_inner);
                number.map(|number| pool.ticket(number))
            }
            None => Err(paced),
        };
        match handed {
            Ok(ticket) => {
                *lock(place) = Some(ticket);
                true
            }
            Err(mut paced) => {
                paced.turn = None;
                drop_contained(paced);
                let mut state = self.lock();
                state.turn = Turn::Free;
                state.given_up += 1;
                false
            }
        }
    }

    fn timer_fired(self: &Arc<Shared>) {
        self.lock().turn = Turn::Free;
        self.advance();
    }

    fn job_begins(self: &Arc<Shared>) {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            state.turn = Turn::Free;
            state.begins(self.every, now);
        }
        self.advance();
    }

    fn job_dropped(self: &Arc<Shared>) {
        {
            let mut state = self.lock();
            state.turn = Turn::Free;
            state.given_up += 1;
        }
        self.advance();
    }

    fn stop(&self) -> usize {
        let line = {
            let mut state = self.lock();
            state.stopped = true;
            let line = std::mem::take(&mut state.line);
            state.given_up += line.iter().filter(|(_, waits)| matches!(waits, Waits::Job { .. })).count() as u64;
            line
        };
        // Its actions are short, and nobody need wait for its thread.
        let (pending, _thread) = self.timers.halt();
        drop(pending);
        let released = line.len();
        for (_, waits) in line {
            match waits {
                Waits::Thread(through) => drop(through.set(Err(PacerError::Stopped))),
                Waits::Job { work, .. } => drop_contained(work),
            }
        }
        released
    }
}

impl State {
    fn begins(&mut self, every: Duration, now: Instant) {
        self.started += 1;
        self.free_at = now.checked_add(every).map_or(FreeAt::Never, FreeAt::Moment);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// A job with the turn. Begun or dropped, it gives it up.
struct Paced {
    work: Option<Box<dyn Work>>,
    turn: Option<Weak<Shared>>,
}

impl Work for Paced {
    fn run(mut self: Box<Self>) -> Ran {
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_begins();
        }
        match self.work.take() {
            Some(work) => work.run(),
            None => Ran { panic: None, after: None },
        }
    }

    fn cancel(mut self: Box<Self>) {
        if let Some(work) = self.work.take() {
            work.cancel();
        }
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        drop_contained(self.work.take());
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_dropped();
        }
    }
}

/// Where a job waits: here, and after that in the pool's line.
struct Waiting {
    pacer: Weak<Shared>,
    pool: WeakPool,
    id: u64,
    place: Arc<Mutex<Option<Ticket>>>,
}

impl Elsewhere for Waiting {
    fn take(&self) -> Option<Box<dyn Work>> {
        let waits = self.pacer.upgrade().and_then(|pacer| {
            let mut state = pacer.lock();
            let waits = state.take(self.id)?;
            state.given_up += 1;
            Some(waits)
        });
        if let Some(Waits::Job { work, .. }) = waits {
            return Some(work);
        }
        let ticket = lock(&self.place).clone();
        ticket?.take()
    }

    fn is_inside(&self) -> bool {
        self.pool.is_inside()
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("every", &self.owner.shared.every).field("stats", &self.stats()).finish()
    }
}
