//! The scheduler: takes tasks, looks them up, ends them all.

use std::fmt::{self, Display};
use std::time::Duration;

use super::error::{RemoveError, StopError, SubmitError, UnknownTaskError};
use super::handle::TaskHandle;
use super::info::{Status, TaskId, TaskInfo, TaskStats};
use super::life::Life;
use super::options::{Retention, StartBy, TaskOptions};
use super::shared::{AnyRecord, GRACE, Shared, Tasks, Whole};
use crate::cancel::CancelToken;
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, why_not_over};
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected, tell_log};
use crate::pool::{Pool, PoolBuilder, PoolError, SHUTDOWN_GRACE};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Mutex, Ordering, lock};

/// A scheduler of tasks. Clones are the same scheduler.
///
/// When the last clone is dropped, the scheduler is stopped as by [`stop`](TaskScheduler::stop). Handles of tasks do not count,
/// and go on working.
#[derive(Clone)]
pub struct TaskScheduler {
    pub(super) owner: Arc<Owner>,
}

/// Stops the scheduler with its last handle.
pub(super) struct Owner {
    pub(super) shared: Arc<Shared>,
    pub(super) owns_pool: bool,
}

/// Options of a [`TaskScheduler`].
#[derive(Clone, Debug, Default)]
pub struct TaskSchedulerBuilder {
    pool: Option<Pool>,
    limit: Option<usize>,
    clock: Option<Clock>,
    retention: Retention,
    shutdown_limit: Option<Duration>,
}

impl TaskScheduler {
    /// A scheduler with a pool of its own, which has as many threads as there are tasks that run at the same time: tasks
    /// do not wait for each other. It takes tasks at once, and starts no thread before there is one.
    ///
    /// Thousands that are submitted in one go may bring thousands of threads, also if they are short. The scheduler logs one
    /// warning when it has 1,000. A program in which that may happen sets a limit: [`with_limit`](Self::with_limit).
    pub fn new() -> TaskScheduler {
        TaskScheduler::builder().build()
    }

    /// A scheduler with a pool of its own, in which at most `limit` tasks run at the same time. The others wait, and begin in
    /// the order in which they were submitted. A limit of 0 counts as 1.
    ///
    /// This is the scheduler for most programs: it has at most `limit` threads, however many tasks there are.
    ///
    /// ```
    /// use procession::task::TaskScheduler;
    ///
    /// let tasks = TaskScheduler::with_limit(2);
    /// let squares = (0..100_u64).map(|n| tasks.submit(move |_| Ok::<_, String>(n * n)));
    /// let squares = squares.collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(squares.into_iter().last().unwrap().wait()?.into_result()?, 99 * 99);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_limit(limit: usize) -> TaskScheduler {
        TaskScheduler::builder().limit(limit).build()
    }

    /// A scheduler on a pool that others use as well. As many tasks run at the same time as it has threads; the others
    /// wait in its line. Its clock is the scheduler's.
    pub fn on(pool: &Pool) -> TaskScheduler {
        TaskScheduler::builder().pool(pool).build()
    }

    /// Options, each with its default: as [`new`](Self::new), the system's clock, records kept
    /// [with the handle](Retention::WithHandle), no limit for a shutdown.
    pub fn builder() -> TaskSchedulerBuilder {
        TaskSchedulerBuilder::default()
    }

    /// Accepts a task; its closure is called once, on a thread of the pool. Does not wait for it to begin or to end.
    ///
    /// The closure is given a request to stop, which is made when the task is over for whatever reason; one that has no
    /// use for it takes `|_|`. With this call's return the task can be looked up.
    ///
    /// # Errors
    /// The closure comes back if the scheduler has been stopped, or if the pool does not take it.
    pub fn submit<T, E, F>(&self, job: F) -> Result<TaskHandle<T, E>, Rejected<F, SubmitError>>
    where
        T: Send + 'static,
        E: Display + Send + 'static,
        F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
    {
        self.submit_with(TaskOptions::new(), job)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`submit`](Self::submit); also if it needs a timer, and no thread can be had for it.
    pub fn submit_with<T, E, F>(
        &self,
        options: TaskOptions,
        job: F,
    ) -> Result<TaskHandle<T, E>, Rejected<F, SubmitError>>
    where
        T: Send + 'static,
        E: Display + Send + 'static,
        F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
    {
        let shared = &self.owner.shared;
        let now = shared.clock.now();
        let start_by = options.start_by.map_or(Deadline::NEVER, |by| match by {
            StartBy::At(moment) => Deadline(Some(moment)),
            StartBy::Within(limit) => Deadline(now.checked_add(limit)),
        });
        if (options.timeout.is_some() || start_by != Deadline::NEVER || options.delay.is_some())
            && let Err(error) = shared.timers.begin()
        {
            return Err(Rejected::new(job, SubmitError::NoThread(error)));
        }
        let TaskOptions { name, timeout, .. } = options;
        let accepted = shared.accept(options.retention.unwrap_or(shared.retention), job, |id, job| Whole {
            id,
            name,
            submitted: now,
            timeout,
            start_by,
            over: Latch::new(),
            life: Mutex::new(Life::new(job)),
        });
        let task = match accepted {
            Ok(task) => task,
            Err(job) => return Err(Rejected::new(job, SubmitError::Stopped)),
        };
        let handle = TaskHandle::new(task.clone(), shared.clone());
        if let Some(cancel) = &options.under {
            task.put_under(shared, cancel);
        }
        if timeout == Some(Duration::ZERO) {
            task.time_out(shared);
        }
        task.begin_by(shared, now);
        if task.over.is_set() {
            return Ok(handle);
        }
        let given = match options.delay {
            Some(delay) if !delay.is_zero() => {
                task.give_to_pool_after(shared, delay);
                Ok(())
            }
            _ => task.give_to_pool(shared),
        };
        match given {
            Ok(()) => Ok(handle),
            Err((job, PoolError::Stopped(_))) if self.is_stopped() => Err(Rejected::new(job, SubmitError::Stopped)),
            Err((job, why)) => Err(Rejected::new(job, SubmitError::Pool(why))),
        }
    }

    /// Where a task is in its life.
    ///
    /// # Errors
    /// There is no record of it: there never was, or it was removed.
    pub fn status(&self, id: TaskId) -> Result<Status, UnknownTaskError> {
        self.record(id).map(|record| record.status())
    }

    /// A snapshot of a task.
    ///
    /// # Errors
    /// There is no record of it: there never was, or it was removed.
    pub fn info(&self, id: TaskId) -> Result<TaskInfo, UnknownTaskError> {
        self.record(id).map(|record| record.info())
    }

    /// Snapshots of all tasks of which there is a record, in the order of their submission.
    pub fn list(&self) -> Vec<TaskInfo> {
        let records: Vec<_> = lock(&self.owner.shared.table).records().cloned().collect();
        records.iter().map(|record| record.info()).collect()
    }

    /// The same of those with this status.
    pub fn list_by(&self, status: Status) -> Vec<TaskInfo> {
        self.list().into_iter().filter(|task| task.status == status).collect()
    }

    /// Cancels a task, for [`Reason::Cancelled`]. Returns whether this call decided: not if it was over already. See
    /// [`TaskHandle::cancel`].
    ///
    /// # Errors
    /// There is no record of it: there never was, or it was removed.
    pub fn cancel(&self, id: TaskId) -> Result<bool, UnknownTaskError> {
        self.cancel_because(id, Reason::Cancelled)
    }

    /// The same with a reason.
    ///
    /// # Errors
    /// There is no record of it: there never was, or it was removed.
    pub fn cancel_because(&self, id: TaskId, reason: impl Into<Reason>) -> Result<bool, UnknownTaskError> {
        let record = self.record(id)?;
        Ok(record.terminate(&self.owner.shared, Status::Cancelled, reason.into()))
    }

    /// Forgets a task that is over, whatever it was to be kept for. A handle that lives goes on working; a closure that
    /// has not returned is still counted.
    ///
    /// # Errors
    /// There is no record of it, or it is not over, and nothing changes.
    pub fn remove(&self, id: TaskId) -> Result<(), RemoveError> {
        let shared = &self.owner.shared;
        let removed = lock(&shared.table).remove(id)?;
        if let Some(timer) = removed.timer {
            drop(shared.timers.cancel(timer));
        }
        drop(removed.record);
        Ok(())
    }

    /// Takes no more tasks, and stops those that are not over: when this returns, every task that was ever accepted is over.
    /// It does not wait for closures, which go on until they look at their token. Closures that were never called are dropped.
    ///
    /// Wakers, callbacks and destructors run on a helper thread. This call waits for them for at most 250 ms, and not at all in a
    /// step or in a job of the scheduler's pool.
    ///
    /// It may be called several times, by several threads at once, and by a task of this scheduler, which is then stopped like
    /// the others. A pool that is shared goes on.
    pub fn stop(&self) {
        self.owner.stop();
    }

    /// Stops, and waits until all closures have returned and what is the user's is dropped. With a pool of its own, its threads
    /// have then ended.
    ///
    /// Wakers, callbacks and destructors run on a helper thread, which has 250 ms longer than `limit`.
    ///
    /// # Errors
    /// `limit` was over before that, by the scheduler's clock; [`Duration::MAX`] is never over. Or the caller must not wait, and
    /// something is left: it is a step, or a task of this scheduler, which would wait for itself. The error lists the tasks whose
    /// closures have not returned, and the one whose waker, callback or destructor hangs. If such code hangs on a thread of the
    /// scheduler's own pool, the error has the pool's.
    pub fn stop_and_join(&self, limit: Duration) -> Result<(), StopError> {
        let shared = &self.owner.shared;
        let deadline = shared.clock.deadline(limit);
        self.owner.begin_stop();
        let is_inside = shared.is_inside();
        let (running, clearing) = shared.wait_until_returned(deadline, !is_inside && !is_step());
        if !(running.is_empty() && clearing.is_empty()) {
            let why = if is_inside { WaitError::Inside } else { why_not_over(limit) };
            let infos = |tasks: Tasks| tasks.iter().map(|task| task.info()).collect();
            return Err(StopError { why, tasks: infos(running), clearing: infos(clearing), pool: None });
        }
        if self.owner.owns_pool && !is_inside {
            let rest = deadline.0.map_or(Duration::MAX, |at| at.saturating_duration_since(shared.clock.now()));
            // All closures have returned. What may take longer is wakers, and the destructors of the threads' own values.
            if let Err(pool) = shared.pool.stop_timeout(rest)
                && !is_step()
            {
                shared.tell_tree();
                return Err(StopError { why: pool.why, tasks: Vec::new(), clearing: Vec::new(), pool: Some(pool) });
            }
        }
        shared.tell_tree();
        Ok(())
    }

    /// Whether it has been stopped: from the moment at which that begins, it takes no more tasks.
    pub fn is_stopped(&self) -> bool {
        lock(&self.owner.shared.table).is_stopped()
    }

    /// Counts, all of one moment.
    pub fn stats(&self) -> TaskStats {
        let shared = &self.owner.shared;
        let table = lock(&shared.table);
        let counts = table.counts;
        let running = shared.begun() - counts.over_after_begin;
        TaskStats {
            submitted: counts.submitted,
            // One that is being begun at this moment may be counted as running already.
            scheduled: (counts.submitted - counts.over()).saturating_sub(running),
            running,
            completed: counts.completed,
            cancelled: counts.cancelled,
            timed_out: counts.timed_out,
            stopped: counts.stopped,
            abandoned: table.abandoned(),
            records: table.len(),
            timers: shared.timers.pending(),
        }
    }

    fn record(&self, id: TaskId) -> Result<Arc<dyn AnyRecord>, UnknownTaskError> {
        lock(&self.owner.shared.table).get(id).cloned().ok_or(UnknownTaskError(id))
    }
}

impl Owner {
    /// Ends all tasks. The latch is set when all that is the user's is called and dropped, if there is anything.
    pub(super) fn begin_stop(&self) -> Option<Latch<()>> {
        let finished = self.shared.stop();
        if self.owns_pool {
            // Only jobs of tasks that are over wait there. They do nothing.
            self.shared.pool.close();
        }
        finished
    }

    /// The same, and waits for user code, but no longer than the [`GRACE`].
    pub(super) fn stop(&self) {
        if let Some(finished) = self.begin_stop()
            && !is_step()
            && !self.shared.pool.is_inside()
        {
            let system = Clock::system();
            finished.wait_until(&system, system.deadline(GRACE));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Default for TaskScheduler {
    fn default() -> TaskScheduler {
        TaskScheduler::new()
    }
}

impl fmt::Debug for TaskScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskScheduler").field(&self.stats()).finish()
    }
}

impl TaskSchedulerBuilder {
    /// The pool to be used, instead of one of its own.
    pub fn pool(mut self, pool: &Pool) -> TaskSchedulerBuilder {
        self.pool = Some(pool.clone());
        self
    }

    /// How many tasks run at the same time in a pool of its own, as for [`with_limit`](TaskScheduler::with_limit). A pool that is
    /// [shared](Self::pool) has its own maximum, and this has no effect.
    pub fn limit(mut self, limit: usize) -> TaskSchedulerBuilder {
        self.limit = Some(limit);
        self
    }

    /// The clock for delays, limits and times; without this that of the pool, or the system's.
    pub fn clock(mut self, clock: Clock) -> TaskSchedulerBuilder {
        self.clock = Some(clock);
        self
    }

    /// How long the records of tasks can be looked up that do not say so themselves.
    pub fn retention(mut self, retention: Retention) -> TaskSchedulerBuilder {
        self.retention = retention;
        self
    }

    /// How long closures have to return when the scheduler is shut down through its [state](TaskScheduler::shutdown_node): those that have not
    /// by then are not waited for any longer. (With a pool of its own,
    /// twice the [`SHUTDOWN_GRACE`] comes on top.)
    pub fn shutdown_limit(mut self, limit: Duration) -> TaskSchedulerBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Makes the scheduler. It takes tasks at once.
    pub fn build(self) -> TaskScheduler {
        let (pool, clock, owns_pool) = match self.pool {
            Some(pool) => {
                let clock = self.clock.unwrap_or_else(|| pool.clock().clone());
                (pool, clock, false)
            }
            None => {
                let clock = self.clock.unwrap_or_default();
                (own_pool(&clock, self.limit, self.shutdown_limit.is_some()), clock, true)
            }
        };
        let shared = Arc::new(Shared::new(pool, clock, self.retention, self.shutdown_limit));
        TaskScheduler { owner: Arc::new(Owner { shared, owns_pool }) }
    }
}

/// How long nothing may happen before a pool of its own begins to give up its threads, one after each such period. Short,
/// for a burst may have brought it very many.
const IDLE_PERIOD: Duration = Duration::from_millis(100);

/// A scheduler without a limit logs a warning when it has so many threads: with the stacks of the standard library they
/// reserve 2 GiB of addresses, and systems limit the threads of a user to some ten thousands.
const MANY_THREADS: usize = 1_000;

/// A pool of the scheduler's own.
fn own_pool(clock: &Clock, limit: Option<usize>, hurries: bool) -> Pool {
    let builder = Pool::builder().idle_period(Some(IDLE_PERIOD)).name("procession-task");
    let builder = match limit {
        Some(limit) => builder.max(limit.max(1)),
        None => warn_of_many(builder.max(usize::MAX)),
    };
    // The pool is told to end when the scheduler's limit is over. Jobs that wait then do nothing, and need no time.
    let builder = if hurries { builder.shutdown_limit(SHUTDOWN_GRACE) } else { builder };
    let pool = builder.clock(clock.clone()).build();
    pool.expect("none of these options is out of range")
}

/// Has the pool log a warning, once, when it has very many threads.
fn warn_of_many(builder: PoolBuilder) -> PoolBuilder {
    // Ordering: Relaxed: a number to look at; nothing is read because of it.
    let threads = Arc::new(AtomicUsize::new(0));
    let (starts, ends) = (threads.clone(), threads);
    let is_logged = AtomicBool::new(false);
    let start = move || {
        let threads = starts.fetch_add(1, Ordering::Relaxed) + 1;
        if threads == MANY_THREADS && !is_logged.swap(true, Ordering::Relaxed) {
            tell_log(|| {
                tracing::warn!(
                    threads,
                    "a scheduler of tasks without a limit has very many threads; `TaskScheduler::with_limit` bounds them"
                );
            });
        }
    };
    builder.on_start(start).on_end(move || {
        ends.fetch_sub(1, Ordering::Relaxed);
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::set::TaskSet;
    use super::*;
    use crate::clock::ManualClock;
    use crate::threads;
    use crate::wait::wait;

    #[test]
    fn without_a_thread_the_closure_comes_back() {
        let body = || |_: &CancelToken| Ok::<_, String>(7);
        let tasks = TaskScheduler::new();
        threads::refuse(true);
        let refused = [
            tasks.submit(body()).unwrap_err(),
            tasks.submit_with(TaskOptions::new().timeout(Duration::MAX), body()).unwrap_err(),
        ];
        threads::refuse(false);
        assert!(matches!(refused[0].reason(), SubmitError::Pool(PoolError::NoThread(_))));
        assert!(matches!(refused[1].reason(), SubmitError::NoThread(_)));
        for refused in refused {
            assert_eq!(refused.into_inner()(&CancelToken::new()), Ok(7));
        }
        assert_eq!((tasks.stats().submitted, tasks.stats().records, tasks.stats().timers), (0, 0, 0));

        let manual = ManualClock::new();
        let tasks = TaskScheduler::builder().clock(manual.clock()).build();
        let delayed = tasks.submit_with(TaskOptions::new().after(Duration::from_secs(1)), body()).unwrap();
        threads::refuse(true);
        manual.advance(Duration::from_secs(1));
        threads::refuse(false);
        assert_eq!(delayed.status(), Status::Stopped);
        assert!(matches!(wait(delayed), crate::outcome::Exit::Terminated(Reason::NoThread)));
    }

    #[test]
    fn tasks_without_a_thread_end_with_the_reason_no_thread() {
        let pool = Pool::builder().max(2).build().unwrap();
        let tasks = TaskScheduler::on(&pool);
        let pause = pool.pause().unwrap();
        let all: Vec<_> = (0..3).map(|n| tasks.submit(move |_| Ok::<_, String>(n)).unwrap()).collect();
        threads::refuse(true);
        drop(pause);
        threads::refuse(false);
        for task in all {
            assert_eq!(task.status(), Status::Stopped);
            assert!(matches!(wait(task), crate::outcome::Exit::Terminated(Reason::NoThread)));
        }
        assert_eq!((pool.stats().abandoned, tasks.stats().stopped, tasks.stats().records), (3, 3, 0));
        assert!(wait(tasks.submit(|_| Ok::<_, String>(7)).unwrap()).is_done(), "and it goes on");
    }

    #[test]
    fn a_wait_for_a_set_runs_tasks_when_no_thread_can_be_started() {
        let tasks = TaskScheduler::new();
        let submits = tasks.clone();
        let outer = tasks.submit(move |_| {
            let mut set = TaskSet::new();
            threads::refuse(true);
            (0..3).for_each(|n| set.push(submits.submit(move |_| Ok::<_, String>(n)).unwrap()));
            let sum = (0..3).map(|_| *set.wait_next().unwrap().unwrap().1.output().unwrap()).sum();
            threads::refuse(false);
            Ok::<u32, String>(sum)
        });
        assert_eq!(wait(outer.unwrap()).output(), Some(&3));
    }

    #[test]
    fn a_task_that_is_over_leaves_the_children_of_its_token() {
        let (tasks, group) = (TaskScheduler::new(), CancelToken::new());
        let under = |tasks: &TaskScheduler| {
            tasks.submit_with(TaskOptions::new().under(&group), |cancel| Err::<(), _>(cancel.wait()))
        };
        let all: Vec<_> = (0..10).map(|_| under(&tasks).unwrap()).collect();
        assert_eq!(group.children(), 10);
        assert!(all[0].cancel());
        assert_eq!(group.children(), 9);
        tasks.stop();
        assert_eq!(group.children(), 0);
        assert!(under(&tasks).is_err());
        assert_eq!(group.children(), 0);
    }
}
