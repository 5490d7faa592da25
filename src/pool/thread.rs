//! The pool's threads: they come with a job or for the line's sake, ask the ledger what to do next, and go when it says so.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::crew::Crew;
use super::ledger::Ledger;
use super::seat::{Seat, call_all};
use super::words::{Before, Hands, JobsAbandoned, Next, PoolStatus, Refusal};
use super::work::{After, Left, Ran, Work, run_contained};
use crate::cancel::CancelCallback;
use crate::clock::{Clock, Deadline};
use crate::outcome::{Failure, Panic, Rejected, contain, drop_contained, tell_log};
use crate::shutdown::Part;
use crate::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, ThreadId, lock, thread};

/// How often a worker that has nothing to do looks about before it rests. It gives its processor away each time.
#[cfg(not(loom))]
const LOOKS: usize = 16;
#[cfg(loom)]
const LOOKS: usize = 0;

/// Why a pool refused a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// It has been stopped, or drains.
    #[error("the pool takes no more jobs: it is {0:?}")]
    Stopped(PoolStatus),
    /// As many jobs wait as may (see [`QueuePolicy`](super::QueuePolicy)).
    #[error("the pool's queue is full")]
    Full,
    /// The caller is a step, and the call would have blocked its worker: until there is room, or until the job is over.
    #[error("a step cannot wait for a pool, for it would block its worker: have the process do it as blocking work")]
    InsideStep,
    /// It had no thread, and the operating system gave it none.
    #[error("the pool cannot start a thread: {0}")]
    NoThread(#[source] io::Error),
}

impl From<Refusal> for PoolError {
    fn from(refusal: Refusal) -> PoolError {
        match refusal {
            Refusal::Ended(status) => PoolError::Stopped(status),
            Refusal::Full => PoolError::Full,
        }
    }
}

/// What the handles of a pool and its threads share.
pub(super) struct Shared {
    pub(super) ledger: Mutex<Ledger<Box<dyn Work>>>,
    pub(super) crew: Crew,
    pub(super) clock: Clock,
    pub(super) hooks: Hooks,
    // Whether something has come for the worker that looks about. A hint: it asks the ledger in any case.
    pub(super) hint: AtomicBool,
    // What resumes pauses that last until somebody cancels a token.
    pub(super) tokens: Mutex<HashMap<u64, CancelCallback>>,
    // By thread, what was abandoned and is being dropped.
    pub(super) dropping: Mutex<Vec<(ThreadId, Left)>>,
    // Its place in a shutdown tree, if somebody has asked for it.
    pub(super) part: Part,
}

/// Code of the user's for certain moments in a thread's life.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) start: Option<Observer>,
    pub(super) end: Option<Observer>,
    pub(super) panic: Option<PanicHook>,
}

type Observer = Arc<dyn Fn() + Send + Sync>;
type PanicHook = Arc<dyn Fn(&Panic) + Send + Sync>;

impl Hooks {
    fn call(hook: &Option<Observer>) {
        if let Some(hook) = hook
            && let Err(panic) = contain(|| hook())
        {
            tell_log(|| tracing::error!(%panic, "a hook of the pool panicked"));
        }
    }

    /// A job has panicked.
    pub(super) fn tell_panic(&self, panic: &Panic) {
        tell_log(|| tracing::error!(%panic, "a job of the pool panicked"));
        if let Some(hook) = &self.panic
            && let Err(panic) = contain(|| hook(panic))
        {
            tell_log(|| tracing::error!(%panic, "a hook of the pool panicked"));
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger<Box<dyn Work>>> {
        lock(&self.ledger)
    }

    /// Calls and starts workers.
    pub(super) fn give(self: &Arc<Shared>, hands: Hands) {
        call_all(hands.wake);
        (0..hands.start).for_each(|_| self.start());
    }

    /// Starts a worker, which begins with `job`. If there can be none, the job waits for those there are.
    pub(super) fn start_with<W: Work + 'static>(
        self: &Arc<Shared>,
        number: u64,
        job: Box<W>,
    ) -> Result<(), Rejected<W, PoolError>> {
        // A thread that cannot be started drops its closure; from here the job can be had back.
        let first = Arc::new(Mutex::new(Some(job)));
        let (shared, taken) = (self.clone(), first.clone());
        let started = self.crew.spawn(move |id| {
            let job = lock(&taken).take();
            drop(taken);
            shared.work(id, job.map(|job| job as Box<dyn Work>));
        });
        let Err(error) = started else { return Ok(()) };
        let job = lock(&first).take().map(|job| (number, job));
        match self.start_failed(job, &error) {
            None => Ok(()),
            Some((job, None)) => Err(Rejected::new(*job, PoolError::NoThread(error))),
            Some((job, Some(status))) => Err(Rejected::new(*job, PoolError::Stopped(status))),
        }
    }

    /// Starts a worker for what is in line. If that fails, the workers there are come to it.
    pub(super) fn start(self: &Arc<Shared>) {
        let shared = self.clone();
        if let Err(error) = self.crew.spawn(move |id| shared.work(id, None)) {
            self.start_failed(None::<(u64, Box<fn()>)>, &error);
        }
    }

    /// A worker could not be started, perhaps with a job. That comes back if there is no other worker to come to it, or if
    /// the pool has been stopped meanwhile, with its status then.
    fn start_failed<W: Work + 'static>(
        &self,
        job: Option<(u64, Box<W>)>,
        error: &io::Error,
    ) -> Option<(Box<W>, Option<PoolStatus>)> {
        let with_job = job.is_some();
        let (refused, stranded, wake, news) = {
            let mut ledger = self.lock();
            let alone = ledger.start_failed(with_job);
            let refused = match job {
                Some((_, job)) if alone => Some((job, None)),
                Some((number, job)) => ledger
                    .wait_in_line(number, job, |job| job as Box<dyn Work>)
                    .err()
                    .map(|job| (job, Some(ledger.status))),
                None => None,
            };
            let stranded = if alone { ledger.give_up() } else { VecDeque::new() };
            // Others may rest because it was counted on.
            (refused, stranded, ledger.sleepers(), ledger.news())
        };
        call_all(wake);
        call_all(news);
        self.tell_tree();
        // Code of the user's, after all who have something to hear.
        tell_log(|| tracing::warn!(%error, "the pool cannot start another thread"));
        stranded.into_iter().for_each(Work::strand);
        refused
    }

    /// Wherever the pool may have come to its end: if it has, its state is done.
    pub(super) fn tell_tree(&self) {
        if !self.part.is_wanted() {
            return;
        }
        let (is_finished, count) = {
            let ledger = self.lock();
            (ledger.is_finished(), ledger.abandoned)
        };
        if is_finished {
            self.part.over((count > 0).then(|| Failure::new(JobsAbandoned { count })));
        }
    }

    /// Waits until `done` says so of the ledger, or until the deadline by this clock. Whether it did.
    pub(super) fn wait_until(
        &self,
        clock: &Clock,
        deadline: Deadline,
        done: impl Fn(&Ledger<Box<dyn Work>>) -> bool,
    ) -> bool {
        let mut ledger = self.lock();
        if done(&ledger) {
            return true;
        }
        let seat = Seat::new();
        ledger.watch(&seat);
        drop(ledger);
        let _watch = seat.watch(clock);
        loop {
            seat.wait(clock, deadline);
            let mut ledger = self.lock();
            let is_done = done(&ledger);
            if is_done || deadline.has_passed(clock) {
                ledger.watch_no_more(&seat);
                return is_done;
            }
        }
    }

    fn work(self: Arc<Shared>, id: u64, first: Option<Box<dyn Work>>) {
        self.crew.has_started();
        let seat = Seat::new();
        let _watch = seat.watch(&self.clock);
        if self.hooks.start.is_some() && first.is_none() {
            // It was started for the line, and the hook may take long: whoever hands in a job meanwhile calls others.
            let news = {
                let mut ledger = self.lock();
                ledger.is_held_up();
                ledger.news()
            };
            call_all(news);
            Hooks::call(&self.hooks.start);
            let news = {
                let mut ledger = self.lock();
                ledger.is_back();
                ledger.news()
            };
            call_all(news);
        } else {
            Hooks::call(&self.hooks.start);
        }
        if let Some(job) = first {
            drop(self.run(job));
        }
        let mut ledger = self.lock();
        // Without looks there is no lingering.
        let fresh = if LOOKS > 0 { Before::Job } else { Before::Rest };
        let mut before = fresh;
        loop {
            match ledger.next(&seat, before, || self.clock.now()) {
                Next::Run(job, hands) => {
                    drop(ledger);
                    self.give(hands);
                    ledger = self.run(job);
                    before = fresh;
                }
                Next::Linger => {
                    drop(ledger);
                    self.look_about();
                    before = Before::Lingering;
                    ledger = self.lock();
                }
                Next::Rest(deadline, watcher) => {
                    drop(ledger);
                    call_all(watcher);
                    seat.wait(&self.clock, deadline);
                    before = Before::Rest;
                    ledger = self.lock();
                }
                Next::Leave(mut hands) => {
                    hands.wake.extend(ledger.news());
                    drop(ledger);
                    self.give(hands);
                    return self.leave(id);
                }
            }
        }
    }

    /// Runs a job and tells whoever waits for it. The ledger is locked again when this returns.
    fn run(self: &Arc<Shared>, job: Box<dyn Work>) -> MutexGuard<'_, Ledger<Box<dyn Work>>> {
        let Ran { panic, after } = run_contained(job);
        let panicked = panic.is_some();
        if let Some(panic) = panic {
            self.hooks.tell_panic(&panic);
            drop_contained(panic);
        }
        let mut ledger = self.lock();
        ledger.job_ended(panicked, after.is_some());
        let news = ledger.news();
        if after.is_none() && news.is_empty() {
            return ledger;
        }
        drop(ledger);
        call_all(news);
        let Some(after) = after else { return self.lock() };
        // The worker counts as awake, and no code of the user's may hold it up: here threads are told, and nobody else.
        let rest = after.tell();
        let mut ledger = self.lock();
        ledger.told();
        let news = ledger.news();
        if rest.is_none() && news.is_empty() {
            return ledger;
        }
        let Some(rest) = rest else {
            drop(ledger);
            call_all(news);
            return self.lock();
        };
        let mut hands = ledger.goes_away();
        hands.wake.extend(ledger.news());
        drop(ledger);
        call_all(news);
        self.give(hands);
        if let Err(panic) = contain(rest) {
            tell_log(|| tracing::error!(%panic, "a waker or a destructor panicked"));
        }
        let mut ledger = self.lock();
        ledger.is_back();
        let news = ledger.news();
        if news.is_empty() {
            return ledger;
        }
        drop(ledger);
        call_all(news);
        self.lock()
    }

    /// Runs a job on the thread of the job that waits for it.
    pub(super) fn run_nested(&self, job: Box<dyn Work>) {
        let Ran { panic, after } = run_contained(job);
        let panicked = panic.is_some();
        if let Some(panic) = panic {
            self.hooks.tell_panic(&panic);
            drop_contained(panic);
        }
        let news = {
            let mut ledger = self.lock();
            ledger.nested_ended(panicked);
            ledger.news()
        };
        call_all(news);
        if let Some(rest) = after.and_then(After::tell)
            && let Err(panic) = contain(rest)
        {
            tell_log(|| tracing::error!(%panic, "a waker or a destructor panicked"));
        }
    }

    /// Looks for a moment whether something comes, for to rest and be woken costs more than that.
    fn look_about(&self) {
        for _ in 0..LOOKS {
            // Ordering: Relaxed: a hint. What has come is read under the lock.
            if self.hint.load(Ordering::Relaxed) {
                break;
            }
            thread::yield_now();
        }
        self.hint.store(false, Ordering::Relaxed);
    }

    fn leave(self: &Arc<Shared>, id: u64) {
        Hooks::call(&self.hooks.end);
        // Before the ledger knows, so that whoever waits for the last to leave finds all of them here.
        self.crew.is_leaving(id);
        let (hands, news) = {
            let mut ledger = self.lock();
            (ledger.left(), ledger.news())
        };
        self.give(hands);
        call_all(news);
        self.tell_tree();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Pool;
    use crate::latch::Latch;
    use crate::wait::wait;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A job that holds its worker until it is let go, and says when it has begun.
    fn hold(pool: &Pool) -> (Latch<()>, Latch<()>) {
        let (begun, go) = (Latch::new(), Latch::new());
        let (set, gate) = (begun.clone(), go.clone());
        pool.execute(move || {
            let _ = set.set(());
            wait(&gate);
        })
        .unwrap();
        (begun, go)
    }

    #[test]
    fn a_job_for_which_no_further_thread_can_be_had_waits_for_one_of_those_there_are() {
        let pool = Pool::builder().max(4).build().unwrap();
        let (begun, go) = hold(&pool);
        wait(&begun);
        let done = Latch::new();
        let set = done.clone();
        crate::threads::refuse(true);
        let (accepted, and_another) = (pool.execute(|| ()).is_ok(), pool.execute(move || set.set(()).unwrap()).is_ok());
        crate::threads::refuse(false);
        assert!(accepted && and_another);
        assert_eq!((pool.stats().workers, pool.stats().waiting), (1, 2));
        go.set(()).unwrap();
        wait(&done);
        pool.drain(None).unwrap();
        assert_eq!((pool.stats().submitted, pool.stats().finished), (3, 3));
    }

    #[test]
    fn while_no_further_thread_can_be_had_a_bound_still_bounds() {
        let pool = Pool::builder().max(4).queue(super::super::QueuePolicy::Reject(2)).build().unwrap();
        let (begun, go) = hold(&pool);
        wait(&begun);
        crate::threads::refuse(true);
        let accepted = (0..100).filter(|_| pool.execute(|| ()).is_ok()).count();
        crate::threads::refuse(false);
        assert_eq!(accepted, 2 + 3, "the bound, and as many as might have come");
        go.set(()).unwrap();
        pool.drain(None).unwrap();
    }

    #[test]
    fn a_job_comes_back_when_there_is_no_thread_at_all() {
        let pool = Pool::builder().max(4).build().unwrap();
        crate::threads::refuse(true);
        let (ran, count) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(7));
        let seen = ran.clone();
        let refused = pool.execute(move || seen.store(count.into_inner(), Ordering::Relaxed));
        crate::threads::refuse(false);
        let (job, why) = refused.unwrap_err().into_parts();
        job();
        assert_eq!(ran.load(Ordering::Relaxed), 7);
        assert!(matches!(why, super::PoolError::NoThread(_)), "{why}");
        assert_eq!((pool.stats().workers, pool.stats().submitted), (0, 0));
    }

    #[test]
    fn what_waited_in_a_pause_is_given_up_if_no_thread_can_be_had_in_the_end_and_its_handle_says_so() {
        let pool = Pool::builder().max(2).build().unwrap();
        let pause = pool.pause().unwrap();
        let job = pool.spawn(|| 1).unwrap();
        crate::threads::refuse(true);
        drop(pause);
        crate::threads::refuse(false);
        assert!(matches!(wait(job), Err(super::super::JobError::Abandoned)));
        assert_eq!((pool.stats().workers, pool.stats().abandoned, pool.stats().unfinished()), (0, 1, 0));
        assert_eq!(pool.run(|| 2).unwrap(), 2, "and the pool goes on");
    }

    #[test]
    fn a_withdrawn_job_never_runs_and_is_dropped_by_whoever_withdraws_it() {
        let pool = Pool::builder().max(1).build().unwrap();
        let (begun, go) = hold(&pool);
        wait(&begun);
        let (token, ran) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
        let tickets: Vec<_> = (0..3)
            .map(|_| {
                let (token, ran) = (token.clone(), ran.clone());
                pool.submit_beyond_bound(move || {
                    let _token = token;
                    ran.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap()
            })
            .collect();
        let job = tickets[1].withdraw().unwrap();
        assert!(tickets[1].withdraw().is_none());
        assert_eq!((pool.stats().waiting, Arc::strong_count(&token)), (2, 4), "it is had back, and not dropped");
        drop(job);
        assert_eq!(Arc::strong_count(&token), 3);
        go.set(()).unwrap();
        pool.drain(None).unwrap();
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&token)), (2, 1));
        assert!(tickets[0].withdraw().is_none());
        drop(pool);
        assert!(tickets[2].withdraw().is_none(), "it keeps no pool alive");
    }

    #[test]
    fn a_pacer_without_a_thread_for_its_timer_hands_the_job_back() {
        use super::super::{Pacer, PacerError};
        let (pool, pacer) = (Pool::new(1).unwrap(), Pacer::new(std::time::Duration::from_secs(1)));
        crate::threads::refuse(true);
        let refused = pacer.execute(&pool, || ());
        let waited = pacer.wait(&crate::cancel::CancelToken::new());
        crate::threads::refuse(false);
        assert_eq!(*refused.unwrap_err().reason(), PacerError::NoThread);
        assert_eq!(waited, Err(PacerError::NoThread));
        assert_eq!(pacer.stats().waiting, 0);
    }
}
