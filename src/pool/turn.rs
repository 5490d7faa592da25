//! The turn of a pacer: who waits for it, who has it, and how a job with it gets to its pool.
//!
//! **The turn.** Whoever is to be paced waits in a line. There is one *turn*: it is *free*, *timed* (a timer waits until the
//! interval is over), or *handed* (a job has it, and has not begun yet because no worker is free).
//!
//! | | `advance` | the timer fires | the job begins | the job is dropped, or is found cancelled |
//! |---|---|---|---|---|
//! | free, interval not over | timed | | | |
//! | free, interval over | a thread: begins; free, the interval starts. A job: handed | | | |
//! | timed | | free, `advance` | | |
//! | handed | | | free, the interval starts, `advance` | free, `advance` |
//!
//! The interval starts when something has begun, and not when it was handed over: a job that waits for a worker keeps those
//! behind it back. While something waits here it has no worker. Nothing is lost: whoever frees the turn calls `advance`, and
//! so does whoever joins the line or resumes.
//!
//! **Whose the job is.** From joining to its beginning the job lies in a *locker* of its own, wherever its turn is: here, on
//! the way to the pool, or in the pool's line. Whoever takes it out has it, and that is one: the worker that begins it, who
//! cancels it, or who drops it. So a cancellation that comes while it is being handed over finds it, too. What is left in the
//! pool's line then is an empty shell, which is taken out of there by the one who cancels, if the ticket is in the locker
//! already, and otherwise by the one who hands over, when it comes to put the ticket there. (If a worker comes to the shell
//! before that, it counts for the pool as a job that has returned.)
//!
//! **Inside.** A thread of a pool that waits here holds a worker which the pool's jobs before it may need. If it may have to
//! be that worker itself, it would wait for ever. Whether another one is free, and stays so, is a matter of chance; so it is
//! refused whenever such a job is before it, and looked for in the same step in which it joins the line. Then there is no
//! such hang in this line: a job that is first has no thread of its pool behind it but those that came before it. (Tried in
//! thought, and not done: to run the jobs before it on the thread that waits, which nests as deep as the line is long where
//! jobs themselves wait; and to let it overtake them, which starves them where jobs wait again and again.)

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::handle::Elsewhere;
use super::owner::{Patience, Pool, Ticket, WeakPool};
use super::words::PoolStatus;
use super::work::{Ran, Work};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::inside::is_step;
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected, drop_contained};
use crate::sync::{Arc, Mutex, MutexGuard, Weak, lock};
use crate::threads::Reaper;
use crate::timer::Timers;

pub(super) struct Shared {
    pub(super) every: Duration,
    pub(super) clock: Clock,
    timers: Timers,
    state: Mutex<State>,
    /// For jobs whose pool takes none any more, and for pools that end with a job that is handed to them: destructors are the
    /// user's, and whoever gives the turn on may be the timers' thread, or a worker whose own job comes next.
    reaper: Reaper,
}

pub(super) struct State {
    pub(super) line: VecDeque<(u64, Waits)>,
    next: u64,
    turn: Turn,
    // For whom the job with the turn is.
    handed: Option<WeakPool>,
    // The earliest moment for the next to begin; none: at once. With the greatest intervals it never comes.
    free_at: FreeAt,
    pub(super) paused: bool,
    stopped: bool,
    pub(super) started: u64,
    pub(super) given_up: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Free,
    Timed,
    Handed,
}

/// Where a job lies until it begins.
pub(super) struct Locker {
    work: Option<Box<dyn Work>>,
    // Its place in the pool's line, when it has one.
    ticket: Option<Ticket>,
}

pub(super) type Place = Arc<Mutex<Locker>>;

fn take_out(place: &Place) -> Option<Box<dyn Work>> {
    lock(place).work.take()
}

#[derive(Clone, Copy)]
enum FreeAt {
    Once,
    Moment(Instant),
    Never,
}

pub(super) enum Waits {
    Job { pool: WeakPool, place: Place },
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
    /// A job of a pool would have waited behind jobs of the same pool, which may need its thread.
    #[error("a job cannot wait for its turn behind paced jobs of its own pool")]
    Inside,
    /// The caller is a step, and would have blocked its worker.
    #[error("a step cannot wait for its turn, for it would block its worker")]
    InsideStep,
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

    fn turn_is_free(&mut self) {
        self.turn = Turn::Free;
        self.handed = None;
    }

    /// Whether jobs for a pool of which the calling thread is one wait for their turn, or for a worker.
    fn has_jobs_for_this_thread(&self, kept: &mut Vec<Arc<dyn Send + Sync>>) -> bool {
        let mut known: Vec<&WeakPool> = Vec::new();
        let line = self.line.iter().filter_map(|(_, waits)| match waits {
            Waits::Job { pool, .. } => Some(pool),
            Waits::Thread(_) => None,
        });
        for pool in self.handed.iter().chain(line) {
            if known.iter().any(|other| other.is(pool)) {
                continue;
            }
            known.push(pool);
            if pool.is_inside_keeping(kept) {
                return true;
            }
        }
        false
    }
}

impl Shared {
    pub(super) fn new(every: Duration, clock: Clock) -> Shared {
        let state = State {
            line: VecDeque::new(),
            next: 0,
            turn: Turn::Free,
            handed: None,
            free_at: FreeAt::Once,
            paused: false,
            stopped: false,
            started: 0,
            given_up: 0,
        };
        let timers = Timers::new(clock.clone(), "procession-pacer");
        Shared { every, timers, clock, state: Mutex::new(state), reaper: Reaper::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Has a job wait for its turn.
    pub(super) fn join<W: Work + 'static>(
        self: &Arc<Shared>,
        pool: &Pool,
        work: W,
    ) -> Result<Waiting, Rejected<W, PacerError>> {
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
            (state.join(Waits::Job { pool: pool.downgrade(), place: place.clone() }), place)
        };
        self.advance();
        Ok(Waiting { pacer: Arc::downgrade(self), pool: pool.downgrade(), id, place })
    }

    /// Has the calling thread wait for its turn.
    pub(super) fn wait(self: &Arc<Shared>, cancel: &CancelToken) -> Result<(), PacerError> {
        if is_step() {
            return Err(PacerError::InsideStep);
        }
        cancel.check().map_err(PacerError::Cancelled)?;
        self.timers.begin().map_err(|_| PacerError::NoThread)?;
        let through = Latch::new();
        // What keeps a pool for a moment lets go of it when the lock is free.
        let mut kept = Vec::new();
        let id = {
            let mut state = self.lock();
            if state.stopped {
                return Err(PacerError::Stopped);
            }
            if state.has_jobs_for_this_thread(&mut kept) {
                return Err(PacerError::Inside);
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
    pub(super) fn advance(self: &Arc<Shared>) {
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
                Some((_, Waits::Job { pool, place })) => {
                    state.turn = Turn::Handed;
                    state.handed = Some(pool.clone());
                    drop(state);
                    if self.hand_over(&pool, place) {
                        return;
                    }
                }
                None => return,
            }
        }
    }

    /// Hands a job to its pool. If that does not take it, the turn is free again.
    fn hand_over(self: &Arc<Shared>, pool: &WeakPool, place: Place) -> bool {
        let shell = Shell { place: place.clone(), turn: Some(Arc::downgrade(self)) };
        let handed = match pool.upgrade() {
            Some(pool) => {
                let number = pool.place(shell, Patience::Exempt).map_err(Rejected::into_inner);
                let ticket = number.map(|number| pool.ticket(number));
                if let Some(last) = Arc::into_inner(pool.owner) {
                    self.reaper.take(last);
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
                    // Or it has begun, and then the shell is not in line.
                    drop(ticket.take());
                }
                true
            }
            Err(mut shell) => {
                shell.turn = None;
                {
                    let mut state = self.lock();
                    state.turn_is_free();
                    state.given_up += 1;
                }
                self.reaper.take(shell);
                false
            }
        }
    }

    fn timer_fired(self: &Arc<Shared>) {
        self.lock().turn_is_free();
        self.advance();
    }

    fn job_begins(self: &Arc<Shared>) {
        let now = self.clock.now();
        {
            let mut state = self.lock();
            state.turn_is_free();
            state.begins(self.every, now);
        }
        self.advance();
    }

    fn job_dropped(self: &Arc<Shared>) {
        {
            let mut state = self.lock();
            state.turn_is_free();
            state.given_up += 1;
        }
        self.advance();
    }

    /// Drops the jobs that wait, and lets threads go with an error. How many there were.
    pub(super) fn stop(&self) -> usize {
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
                Waits::Job { place, .. } => drop_contained(take_out(&place)),
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

/// What the pool has of a job with the turn. Begun or dropped, it gives that up.
struct Shell {
    place: Place,
    turn: Option<Weak<Shared>>,
}

impl Work for Shell {
    fn run(mut self: Box<Self>) -> Ran {
        // Cancelled, it was never there, and its drop passes the turn on.
        let Some(work) = take_out(&self.place) else { return Ran::nothing() };
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_begins();
        }
        work.run()
    }

    fn strand(self: Box<Self>) {
        if let Some(work) = take_out(&self.place) {
            work.strand();
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop_contained(take_out(&self.place));
        if let Some(pacer) = self.turn.take().and_then(|turn| turn.upgrade()) {
            pacer.job_dropped();
        }
    }
}

/// Where a job waits: here, and after that in the pool's line.
pub(super) struct Waiting {
    pacer: Weak<Shared>,
    pool: WeakPool,
    id: u64,
    place: Place,
}

impl Elsewhere for Waiting {
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
            // In the pool's line there is a shell left, perhaps.
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
    use super::super::desk::{Handled, JobError};
    use super::super::handle::JobHandle;
    use super::*;
    use crate::clock::ManualClock;
    use crate::wait::wait;

    #[test]
    fn a_job_that_is_cancelled_on_its_way_to_the_pool_is_cancelled_and_leaves_no_shell_in_line() {
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
        let (work, desk) = Handled::new(|| 1, &clock);
        let place = shared.join(&pool, work).ok().unwrap();
        let handle = JobHandle::elsewhere(desk, Box::new(place));
        let next = shared.join(&pool, move || run.set(()).unwrap()).ok().unwrap();
        // As `advance` does it, with a cancellation in between.
        let handed = {
            let mut state = shared.lock();
            (state.turn, state.paused) = (Turn::Handed, false);
            state.line.pop_front()
        };
        let Some((_, Waits::Job { pool: to, place })) = handed else { panic!("a job is first") };
        assert!(handle.cancel() && !handle.cancel());
        assert!(shared.hand_over(&to, place));
        assert!(matches!(wait(handle), Err(JobError::Cancelled)));
        assert_eq!((pool.stats().waiting, shared.lock().given_up), (1, 1), "the next one has the turn");
        go.set(()).unwrap();
        wait(&ran);
        assert!(next.take().is_none(), "it has begun");
        pool.drain(None).unwrap();
        let stats = pool.stats();
        assert_eq!((stats.submitted, stats.finished, stats.withdrawn), (3, 2, 1));
        let state = shared.lock();
        assert_eq!((state.started, state.given_up), (1, 1));
    }
}
