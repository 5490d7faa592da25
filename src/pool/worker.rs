//! The workers of a pool.
//!
//! A worker is started with a job, or for the jobs in the queue. It asks the ledger for each next action, until the
//! ledger tells it to exit.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use super::job::{Ran, Work, abandon_all, run_contained};
use super::ledger::{Before, Ledger, Next, Wanted};
use super::limits::PoolError;
use super::parker::{Parker, unpark_all};
use super::stats::PoolStatus;
use super::threads::PoolThreads;
use crate::cancel::CancelCallback;
use crate::clock::{Clock, Deadline};
use crate::outcome::{Panic, Reason, contain, drop_contained, tell_log};
use crate::primitives::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, lock, thread};
use crate::shutdown::Part;

/// How often a worker yields its processor and checks for a job before it parks.
#[cfg(not(loom))]
const LOOKS: usize = 16;
#[cfg(loom)]
const LOOKS: usize = 0;

/// The state that the handles of a pool share with its workers.
pub(super) struct Shared {
    pub(super) ledger: Mutex<JobLedger>,
    pub(super) threads: PoolThreads,
    pub(super) clock: Clock,
    pub(super) hooks: Hooks,
    // Whether a job has arrived for the spinning worker. This is only a hint: the worker asks the ledger in any case.
    pub(super) hint: AtomicBool,
    // Callbacks that end pauses when a token is cancelled, by the numbers of the pauses.
    pub(super) pause_tokens: Mutex<HashMap<u64, CancelCallback>>,
    pub(super) part: Part,
}

/// User code for certain moments in a thread's life.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) start: Option<Hook>,
    pub(super) end: Option<Hook>,
    pub(super) panic: Option<PanicHook>,
}

type Hook = Arc<dyn Fn() + Send + Sync>;
type PanicHook = Arc<dyn Fn(&Panic) + Send + Sync>;

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

impl Hooks {
    fn call(hook: &Option<Hook>) {
        if let Some(hook) = hook {
            contain_logged("a hook of the pool panicked", || hook());
        }
    }

    /// Calls the panic hook for a panic in a job.
    pub(super) fn tell_panic(&self, panic: &Panic) {
        tell_log(|| tracing::error!(%panic, "a job of the pool panicked"));
        if let Some(hook) = &self.panic {
            contain_logged("a hook of the pool panicked", || hook(panic));
        }
    }
}

fn contain_logged(message: &str, code: impl FnOnce()) {
    if let Err(panic) = contain(code) {
        tell_log(|| tracing::error!(%panic, "{message}"));
    }
}

/// A ledger of jobs as the pool stores them.
pub(super) type JobLedger = Ledger<Box<dyn Work>>;

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, JobLedger> {
        lock(&self.ledger)
    }

    /// Changes the ledger, and wakes the threads whose condition may have changed.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut JobLedger) -> R) -> R {
        let (result, waiters) = {
            let mut ledger = self.lock();
            (change(&mut ledger), ledger.waiters())
        };
        unpark_all(waiters);
        result
    }

    /// As `change`, but returns the locked ledger. The lock is released only if threads are woken.
    #[inline]
    fn change_and_lock(&self, change: impl FnOnce(&mut JobLedger)) -> MutexGuard<'_, JobLedger> {
        let mut ledger = self.lock();
        change(&mut ledger);
        let waiters = ledger.waiters();
        if waiters.is_empty() {
            return ledger;
        }
        drop(ledger);
        unpark_all(waiters);
        self.lock()
    }

    /// Wakes and starts workers.
    pub(super) fn summon(self: &Arc<Shared>, wanted: Wanted) {
        unpark_all(wanted.wake);
        for _ in 0..wanted.start {
            let _ = self.start(None);
        }
    }

    /// Starts a worker, which begins with the job if there is one.
    ///
    /// If the worker cannot be started, the jobs wait for other workers. If there are none, the job is returned with
    /// the error, and the waiting jobs are abandoned. If the pool has been stopped meanwhile, the job is returned as
    /// any job that a stopped pool refuses.
    pub(super) fn start(
        self: &Arc<Shared>,
        job: Option<(u64, Box<dyn Work>)>,
    ) -> Result<(), (Box<dyn Work>, PoolError)> {
        // If a thread cannot be started, its closure is dropped. The job can be recovered from here.
        let first = Arc::new(Mutex::new(job));
        let (shared, taken) = (self.clone(), first.clone());
        let started = self.threads.spawn(move |thread| {
            let job = lock(&taken).take();
            drop(taken);
            shared.work(thread, job.map(|(_, job)| job));
        });
        let Err(error) = started else { return Ok(()) };
        let job = lock(&first).take();
        let (refused, stranded, wake, is_stopped) = self.change(|ledger| {
            // This is read first, because the last failed start ends a drain.
            let is_stopped = ledger.status == PoolStatus::Stopped;
            let refused = ledger.start_failed(job);
            let stranded = if ledger.counts.workers == 0 { ledger.give_up() } else { VecDeque::new() };
            // Others may be parked because they counted on this worker.
            (refused, stranded, ledger.parked_wanted(), is_stopped)
        });
        unpark_all(wake);
        let stranded = abandon_all(stranded, &Reason::NoThread);
        self.finish();
        // From here on user code runs: a subscriber of the log, and destructors.
        tell_log(|| tracing::warn!(%error, "the pool cannot start another thread"));
        stranded.finish(|| ());
        let Some(job) = refused else { return Ok(()) };
        let why = if is_stopped { PoolError::Stopped(PoolStatus::Stopped) } else { PoolError::NoThread(error) };
        Err((job, why))
    }

    /// Waits until `done` is true of the ledger, or until the deadline by this clock. Returns whether `done` is true.
    pub(super) fn wait_until(&self, clock: &Clock, deadline: Deadline, done: impl Fn(&JobLedger) -> bool) -> bool {
        let mut ledger = self.lock();
        if done(&ledger) {
            return true;
        }
        let parker = Parker::new();
        ledger.watchers.push(parker.clone());
        drop(ledger);
        let _watch = parker.watch(clock);
        loop {
            parker.park(clock, deadline);
            let mut ledger = self.lock();
            let is_done = done(&ledger);
            if is_done || deadline.has_passed(clock) {
                ledger.unwatch(&parker);
                return is_done;
            }
        }
    }

    fn work(self: Arc<Shared>, thread: u64, first: Option<Box<dyn Work>>) {
        self.threads.enter();
        let parker = Parker::new();
        let _watch = parker.watch(&self.clock);
        if self.hooks.start.is_some() && first.is_none() {
            // The hook may take long. So other jobs must not count on this worker. It will run the job that it was
            // started for.
            self.change(|ledger| ledger.away += 1);
            Hooks::call(&self.hooks.start);
            self.change(Ledger::is_back);
        } else {
            Hooks::call(&self.hooks.start);
        }
        if let Some(job) = first {
            drop(self.run(job));
        }
        // If `LOOKS` is zero, a worker does not spin.
        let fresh = if LOOKS > 0 { Before::Job } else { Before::Park };
        let mut before = fresh;
        let mut ledger = self.lock();
        loop {
            match ledger.next(&parker, before, || self.clock.now()) {
                Next::Run(job, wanted) => {
                    drop(ledger);
                    self.summon(wanted);
                    ledger = self.run(job);
                    before = fresh;
                }
                Next::Spin => {
                    drop(ledger);
                    self.spin();
                    before = Before::Spinning;
                    ledger = self.lock();
                }
                Next::Park(deadline, watcher) => {
                    drop(ledger);
                    unpark_all(watcher);
                    parker.park(&self.clock, deadline);
                    before = Before::Park;
                    ledger = self.lock();
                }
                Next::Exit(mut wanted) => {
                    wanted.wake.extend(ledger.waiters());
                    drop(ledger);
                    self.summon(wanted);
                    return self.exit(thread);
                }
            }
        }
    }

    /// Runs a job and wakes the threads that wait for it. The ledger is locked again on return.
    fn run(self: &Arc<Shared>, job: Box<dyn Work>) -> MutexGuard<'_, JobLedger> {
        let (panicked, after) = self.run_job(job);
        let ledger = self.change_and_lock(|ledger| ledger.job_ended(panicked, after.is_some()));
        let Some(after) = after else { return ledger };
        drop(ledger);
        // The worker counts as awake here, so user code must not delay it. It only wakes threads.
        let rest = after.tell();
        let ledger = self.change_and_lock(Ledger::reported);
        let Some(rest) = rest else { return ledger };
        drop(ledger);
        let wanted = self.change(Ledger::goes_away);
        self.summon(wanted);
        contain_logged("a waker or a destructor panicked", rest);
        self.change_and_lock(Ledger::is_back)
    }

    /// Runs a job on the worker of the job that waits for it.
    pub(super) fn run_nested(&self, job: Box<dyn Work>) {
        let (panicked, after) = self.run_job(job);
        self.change(|ledger| ledger.nested_ended(panicked));
        if let Some(rest) = after.and_then(Work::tell) {
            contain_logged("a waker or a destructor panicked", rest);
        }
    }

    #[inline]
    fn run_job(&self, job: Box<dyn Work>) -> (bool, Option<Box<dyn Work>>) {
        let Ran { panic, after } = run_contained(job);
        let panicked = panic.is_some();
        if let Some(panic) = panic {
            self.hooks.tell_panic(&panic);
            drop_contained(panic);
        }
        (panicked, after)
    }

    /// Checks for a short while whether a job arrives.
    ///
    /// Parking and waking cost more than that.
    fn spin(&self) {
        for _ in 0..LOOKS {
            // Ordering: Relaxed. This is a hint; the queue is read under the lock.
            if self.hint.load(Ordering::Relaxed) {
                break;
            }
            thread::yield_now();
        }
        self.hint.store(false, Ordering::Relaxed);
    }

    fn exit(self: &Arc<Shared>, thread: u64) {
        Hooks::call(&self.hooks.end);
        // This must precede the ledger's note that the worker is gone. When the ledger counts no worker, all handles
        // are in the list to be joined.
        let pool_ends = self.lock().status != PoolStatus::Running;
        self.threads.leave(thread, pool_ends);
        let wanted = self.change(Ledger::left);
        self.summon(wanted);
        self.finish();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Pool;
    use crate::latch::Latch;
    use crate::wait::wait;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Submits a job that holds its worker until released. One latch tells that it has begun, the other releases it.
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
    fn a_job_waits_for_a_worker_when_no_thread_can_start() {
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
        pool.drain().unwrap();
        assert_eq!((pool.stats().submitted, pool.stats().finished), (3, 3));
    }

    #[test]
    fn a_bound_holds_when_no_thread_can_start() {
        let pool = Pool::builder().max(4).queue(super::super::QueuePolicy::Reject(2)).build().unwrap();
        let (begun, go) = hold(&pool);
        wait(&begun);
        crate::threads::refuse(true);
        let accepted = (0..100).filter(|_| pool.execute(|| ()).is_ok()).count();
        crate::threads::refuse(false);
        assert_eq!(accepted, 2 + 3, "the bound, and as many as might have come");
        go.set(()).unwrap();
        pool.drain().unwrap();
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
        assert!(matches!(why, super::super::PoolError::NoThread(_)), "{why}");
        assert_eq!((pool.stats().workers, pool.stats().submitted), (0, 0));
    }

    #[test]
    fn a_failed_start_after_a_stop_refuses_the_job_as_stopped() {
        use super::super::{PoolError, PoolStatus, ledger::Claim};
        for is_busy in [true, false] {
            let pool = Pool::builder().max(2).build().unwrap();
            let held = is_busy.then(|| hold(&pool));
            if let Some((begun, _)) = &held {
                wait(begun);
            }
            let shared = &pool.owner.shared;
            // The job is to get a worker of its own. The pool is stopped before the thread is started.
            let submitted = shared.lock().submit(Box::new(|| ()), Claim::New);
            drop(pool.abandon());
            crate::threads::refuse(true);
            let refused = submitted.and_then(|(number, placed)| shared.follow(number, placed));
            crate::threads::refuse(false);
            let (_job, why) = refused.unwrap_err();
            assert!(matches!(why, PoolError::Stopped(PoolStatus::Stopped)), "{why}");
            assert_eq!((pool.stats().submitted, pool.stats().workers), (u64::from(is_busy), usize::from(is_busy)));
            if let Some((_, go)) = held {
                go.set(()).unwrap();
            }
            pool.stop_timeout(std::time::Duration::from_secs(60)).unwrap();
        }
    }

    #[test]
    fn a_job_is_abandoned_when_no_thread_can_start_after_a_pause() {
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
    fn a_pool_ends_when_no_thread_can_start_for_its_end() {
        let pool = Pool::builder().max(1).build().unwrap();
        pool.run(|| crate::threads::refuse(true)).unwrap();
        pool.drain_timeout(std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(pool.stats().workers, 0);
    }

    #[test]
    fn a_withdrawn_job_never_runs_and_is_dropped_by_its_withdrawer() {
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
        pool.drain().unwrap();
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

    /// The subscriber of the log drops the last handle while the pacer submits a job.
    #[test]
    fn a_pacer_contains_the_destructors_of_a_pool_that_ends_while_it_submits() {
        use std::sync::Mutex;
        struct DropsOnEvent(Mutex<Option<Pool>>);
        impl tracing::Subscriber for DropsOnEvent {
            fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
                true
            }
            fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
                tracing::span::Id::from_u64(1)
            }
            fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
            fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
            fn event(&self, _: &tracing::Event<'_>) {
                let pool = self.0.lock().unwrap().take();
                drop(pool);
            }
            fn enter(&self, _: &tracing::span::Id) {}
            fn exit(&self, _: &tracing::span::Id) {}
        }
        struct Panics(Latch<()>);
        impl Drop for Panics {
            fn drop(&mut self) {
                self.0.set(()).unwrap();
                panic!("contained");
            }
        }
        let (dropped, pacer) = (Latch::new(), super::super::Pacer::new(std::time::Duration::ZERO));
        let panics = Panics(dropped.clone());
        let pool = Pool::builder().on_end(move || assert!(!panics.0.is_set())).build().unwrap();
        pacer.pause();
        let job = pacer.spawn(&pool, || ()).unwrap();
        tracing::subscriber::with_default(DropsOnEvent(Mutex::new(Some(pool))), || {
            crate::threads::refuse(true);
            pacer.resume();
            crate::threads::refuse(false);
        });
        assert!(dropped.is_set(), "the pacer had the last reference");
        assert!(matches!(wait(job), Err(super::super::JobError::Abandoned)));
    }
}
