//! The pool's threads: they come with a job, ask the ledger what to do next, and go when it says so.

use std::collections::{HashMap, VecDeque};
use std::io;

use super::ledger::{Ledger, Next, PoolStatus, Seat};
use crate::clock::{Clock, Deadline, Watch};
use crate::outcome::{Rejected, contain, drop_contained, tell_log};
use crate::sync::{Arc, Condvar, Mutex, ThreadId, lock, thread};
use crate::threads;

/// A closure to be run once.
pub type Job = Box<dyn FnOnce() + Send>;

/// Why a pool refused a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// It has been stopped, or drains.
    #[error("the pool takes no more jobs: it is {0:?}")]
    Stopped(PoolStatus),
    /// It had no thread, and the operating system gave it none.
    #[error("the pool cannot start a thread: {0}")]
    NoThread(#[source] io::Error),
}

/// What the handles of a pool and its threads share.
pub(super) struct Shared {
    pub(super) ledger: Mutex<Ledger<Job>>,
    pub(super) threads: Threads,
    pub(super) clock: Clock,
}

/// The threads there are, so that they can be joined, and known from others.
pub(super) struct Threads {
    name: String,
    state: Mutex<State>,
    // Notified when a worker has left.
    left: Condvar,
}

#[derive(Default)]
struct State {
    next: u64,
    living: HashMap<u64, thread::JoinHandle<()>>,
    // Entered by each thread itself before its first job, so that a job never finds its own thread unknown.
    ids: Vec<ThreadId>,
    // Those that have asked for their last job, and are to be joined because the pool ends.
    left: Vec<thread::JoinHandle<()>>,
    // Those that left before their handle could be stored, and whether they are to be joined.
    early: Vec<(u64, bool)>,
}

impl Threads {
    pub(super) fn new(name: String) -> Threads {
        Threads { name, state: Mutex::default(), left: Condvar::new() }
    }

    /// Whether the calling thread is one of these.
    pub(super) fn is_current(&self) -> bool {
        lock(&self.state).ids.contains(&thread::current().id())
    }

    fn spawn(&self, main: impl FnOnce(u64) + Send + 'static) -> io::Result<()> {
        let id = {
            let mut state = lock(&self.state);
            state.next += 1;
            state.next
        };
        let handle = threads::start(format!("{}-{id}", self.name), move || main(id))?;
        let mut state = lock(&self.state);
        match state.early.iter().position(|(early, _)| *early == id) {
            Some(place) => {
                if state.early.swap_remove(place).1 {
                    state.left.push(handle);
                }
            }
            None => {
                state.living.insert(id, handle);
            }
        }
        Ok(())
    }

    fn has_started(&self) {
        lock(&self.state).ids.push(thread::current().id());
    }

    /// A thread that leaves a pool that goes on is not joined by anybody: that could take long, for the destructors of its
    /// thread-locals are the user's.
    fn is_leaving(&self, id: u64, joined: bool) {
        let mut state = lock(&self.state);
        let me = thread::current().id();
        state.ids.retain(|other| *other != me);
        match state.living.remove(&id) {
            Some(handle) if joined => state.left.push(handle),
            Some(_) => {}
            None => state.early.push((id, joined)),
        }
    }

    /// Those who have left a pool that ends, to be joined.
    pub(super) fn take_left(&self) -> Vec<thread::JoinHandle<()>> {
        std::mem::take(&mut lock(&self.state).left)
    }
}

impl Shared {
    /// Starts a worker, which begins with `job`. If there can be none, the job waits for those there are.
    pub(super) fn start_with<F: FnOnce() + Send + 'static>(
        self: &Arc<Shared>,
        number: u64,
        job: F,
    ) -> Result<(), Rejected<F, PoolError>> {
        // A thread that cannot be started drops its closure; from here the job can be had back.
        let first = Arc::new(Mutex::new(Some(job)));
        let (shared, taken) = (self.clone(), first.clone());
        let started = self.threads.spawn(move |id| {
            let job = lock(&taken).take();
            drop(taken);
            shared.work(id, job.map(|job| Box::new(job) as Job));
        });
        let Err(error) = started else { return Ok(()) };
        let job = lock(&first).take().map(|job| (number, job));
        match self.start_failed(job, &error) {
            None => Ok(()),
            Some((job, None)) => Err(Rejected::new(job, PoolError::NoThread(error))),
            Some((job, Some(status))) => Err(Rejected::new(job, PoolError::Stopped(status))),
        }
    }

    /// Starts a worker for what is in the queue. If that fails, the workers there are come to it.
    pub(super) fn start(self: &Arc<Shared>) {
        let shared = self.clone();
        if let Err(error) = self.threads.spawn(move |id| shared.work(id, None)) {
            self.start_failed(None::<(u64, fn())>, &error);
        }
    }

    /// A worker could not be started, perhaps with a job. That comes back if there is no other worker to come to it, or if
    /// the pool has been stopped meanwhile, with its status then.
    fn start_failed<F: FnOnce() + Send + 'static>(
        &self,
        job: Option<(u64, F)>,
        error: &io::Error,
    ) -> Option<(F, Option<PoolStatus>)> {
        tell_log(|| tracing::warn!(%error, "the pool cannot start another thread"));
        let with_job = job.is_some();
        let (placed, stranded) = {
            let mut ledger = lock(&self.ledger);
            let alone = ledger.start_failed(with_job);
            let placed = match job {
                Some((_, job)) if alone => Err((job, None)),
                Some((number, job)) => ledger
                    .wait_in_line(number, job, |job| Box::new(job) as Job)
                    .map_err(|job| (job, Some(ledger.status))),
                None => Ok(None),
            };
            (placed, if alone { ledger.give_up() } else { VecDeque::new() })
        };
        stranded.into_iter().for_each(drop_contained);
        match placed {
            Ok(seat) => {
                seat.into_iter().for_each(|seat| seat.notify_one());
                None
            }
            Err(refused) => {
                // It may have been the last one that a drain or stop waited for.
                self.threads.left.notify_all();
                Some(refused)
            }
        }
    }

    /// Waits until everybody has left, or until the deadline by this clock.
    pub(super) fn wait_until_left(self: &Arc<Shared>, clock: &Clock, deadline: Deadline) {
        let shared = Arc::downgrade(self);
        let _watch = clock.watch(move || {
            if let Some(shared) = shared.upgrade() {
                let _ledger = lock(&shared.ledger);
                shared.threads.left.notify_all();
            }
        });
        let mut ledger = lock(&self.ledger);
        while !ledger.is_over() && !deadline.has_passed(clock) {
            ledger = clock.wait(&self.threads.left, ledger, deadline);
        }
    }

    fn work(self: Arc<Shared>, id: u64, first: Option<Job>) {
        self.threads.has_started();
        let seat: Seat = Arc::new(Condvar::new());
        let _watch = self.watch_clock(&seat);
        if let Some(job) = first {
            self.run(job);
        }
        let mut ledger = lock(&self.ledger);
        loop {
            match ledger.next(id, &seat, self.clock.now()) {
                Next::Run(job) => {
                    drop(ledger);
                    self.run(job);
                    ledger = lock(&self.ledger);
                }
                Next::Rest(deadline) => ledger = self.clock.wait(&seat, ledger, deadline),
                Next::Leave(next_watcher) => {
                    self.threads.is_leaving(id, ledger.status != PoolStatus::Running);
                    drop(ledger);
                    self.threads.left.notify_all();
                    if let Some(seat) = next_watcher {
                        seat.notify_one();
                    }
                    return;
                }
            }
        }
    }

    fn run(&self, job: Job) {
        let outcome = contain(job);
        if let Err(panic) = &outcome {
            tell_log(|| tracing::error!(%panic, "a job of the pool panicked"));
        }
        lock(&self.ledger).job_ended(outcome.is_err());
    }

    /// With a manual clock, a resting worker is woken when the clock moves.
    fn watch_clock(self: &Arc<Shared>, seat: &Seat) -> Watch {
        let (shared, seat) = (Arc::downgrade(self), seat.clone());
        self.clock.watch(move || {
            if let Some(shared) = shared.upgrade() {
                let _ledger = lock(&shared.ledger);
                seat.notify_all();
            }
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Pool, PoolStatus};
    use crate::clock::ManualClock;
    use crate::latch::Latch;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// A job that holds its worker until it is let go, and says when it has begun.
    fn hold(pool: &Pool) -> (Latch<()>, Latch<()>) {
        let (begun, go) = (Latch::new(), Latch::new());
        let (set, wait) = (begun.clone(), go.clone());
        pool.execute(move || {
            let _ = set.set(());
            wait.wait();
        })
        .unwrap();
        (begun, go)
    }

    #[test]
    fn a_new_pool_has_no_thread_and_starts_them_on_demand_up_to_the_maximum() {
        let pool = Pool::builder().max(2).build().unwrap();
        assert_eq!(pool.stats().workers, 0);
        let held: Vec<_> = (0..3).map(|_| hold(&pool)).collect();
        held[0].0.wait();
        held[1].0.wait();
        assert_eq!((pool.stats().workers, pool.stats().running, pool.stats().waiting), (2, 2, 1));
        held.iter().for_each(|(_, go)| {
            go.set(()).ok();
        });
        pool.drain(None).unwrap();
        assert_eq!((pool.stats().finished, pool.stats().workers), (3, 0));
    }

    #[test]
    fn with_one_worker_jobs_run_in_the_order_of_submission_also_those_of_jobs() {
        let pool = Pool::builder().max(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let (_, go) = hold(&pool);
        for n in 0..200 {
            let (sender, inner) = (sender.clone(), pool.clone());
            pool.execute(move || {
                sender.send(n).unwrap();
                if n == 0 {
                    let late = sender.clone();
                    inner.execute(move || late.send(200).unwrap()).unwrap();
                }
            })
            .unwrap();
        }
        go.set(()).unwrap();
        drop(sender);
        assert_eq!(receiver.into_iter().collect::<Vec<_>>(), (0..=200).collect::<Vec<_>>());
    }

    #[test]
    fn a_panicking_job_ends_neither_the_pool_nor_its_worker() {
        let pool = Pool::builder().max(1).build().unwrap();
        pool.execute(|| panic!("in a job")).unwrap();
        let done = Latch::new();
        let set = done.clone();
        pool.execute(move || {
            set.set(()).ok();
        })
        .unwrap();
        done.wait();
        pool.drain(None).unwrap();
        assert_eq!((pool.stats().panicked, pool.stats().finished), (1, 2));
    }

    #[test]
    fn stopping_drops_what_waits_and_waits_for_what_runs() {
        let pool = Pool::builder().max(2).build().unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let held = [hold(&pool), hold(&pool)];
        held.iter().for_each(|(begun, _)| begun.wait());
        for _ in 0..62 {
            let ran = ran.clone();
            pool.execute(move || {
                ran.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        }
        let still = pool.stop(Some(Duration::ZERO)).unwrap_err();
        assert_eq!((still.running, still.waiting), (2, 0));
        assert_eq!(pool.stats().abandoned, 62);
        assert_eq!(Arc::strong_count(&ran), 1, "the abandoned jobs have been dropped");
        let refused = pool.execute(|| ()).unwrap_err();
        assert_eq!(refused.to_string(), "the pool takes no more jobs: it is Stopped");
        held.iter().for_each(|(_, go)| {
            go.set(()).ok();
        });
        assert_eq!(pool.stop(None).unwrap(), 0);
        assert_eq!((ran.load(Ordering::Relaxed), pool.stats().workers), (0, 0));
    }

    #[test]
    fn stopping_from_inside_does_not_deadlock() {
        let pool = Pool::builder().max(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let inner = pool.clone();
        pool.execute(move || sender.send((inner.is_inside(), inner.stop(None).is_ok())).unwrap()).unwrap();
        assert_eq!(receiver.recv().unwrap(), (true, true));
        assert!(!pool.is_inside());
        pool.stop(None).unwrap();
        assert_eq!(pool.status(), PoolStatus::Stopped);
    }

    #[test]
    fn dropping_the_last_handle_stops_the_pool() {
        let pool = Pool::builder().max(1).build().unwrap();
        let (begun, go) = hold(&pool);
        begun.wait();
        let token = Arc::new(());
        let waiting = token.clone();
        pool.execute(move || drop(waiting)).unwrap();
        drop(pool);
        assert_eq!(Arc::strong_count(&token), 1, "the waiting job was dropped");
        go.set(()).unwrap();
    }

    #[test]
    fn idle_threads_end_by_the_clock_and_the_next_job_starts_one() {
        let manual = ManualClock::new();
        let pool =
            Pool::builder().max(3).idle_period(Some(Duration::from_secs(1))).clock(manual.clock()).build().unwrap();
        let held: Vec<_> = (0..3).map(|_| hold(&pool)).collect();
        held.iter().for_each(|(_, go)| {
            go.set(()).ok();
        });
        while pool.stats().resting < 3 {
            std::thread::yield_now();
        }
        while pool.stats().workers > 0 {
            manual.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
        let done = Latch::new();
        let set = done.clone();
        pool.execute(move || {
            set.set(()).ok();
        })
        .unwrap();
        done.wait();
        assert_eq!(pool.stats().submitted, 4);
    }

    #[test]
    fn a_job_for_which_no_further_thread_can_be_had_waits_for_one_of_those_there_are() {
        let pool = Pool::builder().max(4).build().unwrap();
        let (begun, go) = hold(&pool);
        begun.wait();
        let done = Latch::new();
        let set = done.clone();
        crate::threads::refuse(true);
        let (accepted, and_another) = (pool.execute(|| ()).is_ok(), pool.execute(move || set.set(()).unwrap()).is_ok());
        crate::threads::refuse(false);
        assert!(accepted && and_another);
        assert_eq!((pool.stats().workers, pool.stats().waiting), (1, 2));
        go.set(()).unwrap();
        done.wait();
        pool.drain(None).unwrap();
        assert_eq!((pool.stats().submitted, pool.stats().finished), (3, 3));
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
    fn a_limit_by_a_manual_clock_is_over_when_the_clock_says_so() {
        let manual = ManualClock::new();
        let pool = Pool::builder().max(1).clock(manual.clock()).build().unwrap();
        let (begun, go) = hold(&pool);
        begun.wait();
        let stopper = std::thread::spawn({
            let pool = pool.clone();
            move || pool.stop(Some(Duration::from_secs(5))).unwrap_err().running
        });
        while !stopper.is_finished() {
            manual.advance(Duration::from_secs(1));
            std::thread::yield_now();
        }
        assert_eq!(stopper.join().unwrap(), 1);
        go.set(()).unwrap();
    }

    #[test]
    fn a_pool_without_threads_is_refused() {
        let error = Pool::builder().max(0).build().unwrap_err();
        assert_eq!(error.to_string(), "a pool needs at least one thread: `max` is 0");
    }

    #[test]
    fn submitting_races_with_stopping_and_each_job_is_run_or_given_back_or_dropped() {
        for _ in 0..200 {
            let pool = Pool::builder().max(2).build().unwrap();
            let (ran, token) = (Arc::new(AtomicUsize::new(0)), Arc::new(()));
            let submitters: Vec<_> = (0..2)
                .map(|_| {
                    let (pool, ran, token) = (pool.clone(), ran.clone(), token.clone());
                    std::thread::spawn(move || {
                        let job = || {
                            let (ran, token) = (ran.clone(), token.clone());
                            move || {
                                ran.fetch_add(1, Ordering::Relaxed);
                                drop(token);
                            }
                        };
                        (0..20).filter(|_| pool.execute(job()).is_ok()).count()
                    })
                })
                .collect();
            let _ = pool.stop(None);
            let accepted: usize = submitters.into_iter().map(|thread| thread.join().unwrap()).sum();
            let stats = pool.stats();
            assert_eq!(accepted as u64, stats.submitted);
            assert_eq!(stats.submitted, stats.finished + stats.abandoned);
            assert_eq!(stats.finished as usize, ran.load(Ordering::Relaxed));
            assert_eq!(Arc::strong_count(&token), 1);
        }
    }
}
