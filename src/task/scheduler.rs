//! The scheduler, which accepts tasks, looks them up, and ends them all.

use std::fmt::{self, Display};
use std::time::Duration;

use super::error::{RemoveError, StopError, SubmitError, UnknownTaskError};
use super::handle::TaskHandle;
use super::info::{Status, TaskId, TaskInfo, TaskStats};
use super::life::Body;
use super::options::{Retention, TaskOptions};
use super::shared::{Record, Shared};
use crate::cancel::CancelToken;
use crate::clock::Clock;
use crate::inside::{WaitError, is_step, why_not_over};
use crate::latch::Latch;
use crate::outcome::{Reason, Rejected, tell_log};
use crate::pool::{Pool, PoolBuilder, PoolError, SHUTDOWN_GRACE};
use crate::primitives::{Arc, AtomicBool, AtomicUsize, Ordering, lock};
use crate::threads;

/// Accepts tasks, looks them up and ends them.
///
/// Clones refer to the same scheduler.
///
/// Dropping the last clone stops the scheduler, as [`stop`](TaskScheduler::stop) does. Handles of tasks do not keep the
/// scheduler running. They stay usable after its end.
#[derive(Clone)]
pub struct TaskScheduler {
    pub(super) owner: Arc<Owner>,
}

/// Stops the scheduler when its last handle is dropped.
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
    /// Makes a scheduler with its own pool, which has no limit on its threads.
    ///
    /// Each running task has a thread, so no task waits for another to end. The scheduler starts no thread before the
    /// first task.
    ///
    /// Thousands of tasks submitted at once may start thousands of threads, even if the tasks are short. The
    /// scheduler logs one warning when it has 1,000. If that may happen in your program, set a limit:
    /// [`with_limit`](Self::with_limit).
    pub fn new() -> TaskScheduler {
        TaskScheduler::builder().build()
    }

    /// Makes a scheduler with its own pool of at most `limit` threads.
    ///
    /// So at most `limit` tasks run at once. The other tasks wait, and begin in the order of their submission. A limit
    /// of 0 counts as 1.
    ///
    /// This scheduler suits most programs, because the number of its threads does not depend on the number of tasks.
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

    /// Makes a scheduler on a pool that other code may also use.
    ///
    /// The number of the pool's threads limits how many tasks run at once. The other tasks wait in the pool's queue.
    /// The scheduler uses the pool's clock.
    pub fn on(pool: &Pool) -> TaskScheduler {
        TaskScheduler::builder().pool(pool).build()
    }

    /// Returns a builder with the default options.
    ///
    /// The scheduler has its own pool without a limit, as with [`new`](Self::new), and the system's clock. Its
    /// retention is [`Retention::WithHandle`], and its shutdown has no limit.
    pub fn builder() -> TaskSchedulerBuilder {
        TaskSchedulerBuilder::default()
    }

    /// Submits a task, whose closure a thread of the pool calls once.
    ///
    /// The call does not wait for the task to begin or to end. But if a shared pool has a full queue with
    /// [`QueuePolicy::Block`](crate::pool::QueuePolicy::Block), the call waits for room.
    ///
    /// The closure gets a token, which is cancelled when the task ends for any reason. A closure that does not need
    /// the token takes `|_|`. When this call returns, the task can be looked up.
    ///
    /// # Errors
    /// The scheduler has been stopped, or the pool refuses the task. The closure is handed back.
    pub fn submit<T, E, F>(&self, job: F) -> Result<TaskHandle<T, E>, Rejected<F, SubmitError>>
    where
        T: Send + 'static,
        E: Display + Send + 'static,
        F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
    {
        self.submit_with(TaskOptions::new(), job)
    }

    /// As [`submit`](Self::submit), with options.
    ///
    /// # Errors
    /// As [`submit`](Self::submit). Or the task needs a timer, and no thread can be started for it.
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
        self.submit_body(options, job)
    }

    pub(super) fn submit_body<B: Body>(
        &self,
        options: TaskOptions,
        job: B,
    ) -> Result<TaskHandle<B::Output, B::Error>, Rejected<B, SubmitError>> {
        let shared = &self.owner.shared;
        let delay = options.delay.unwrap_or(Duration::ZERO);
        let has_limit = options.timeout.is_some() || options.start_by.is_some() || options.start_timeout.is_some();
        if (has_limit || !delay.is_zero())
            && let Err(error) = shared.timers.begin()
        {
            return Err(Rejected::new(job, SubmitError::NoThread(error)));
        }
        let task = shared.accept(&options, job).map_err(|job| Rejected::new(job, SubmitError::Stopped))?;
        let handle = TaskHandle::new(task.clone(), shared.clone());
        match task.start(shared, options.under.as_ref(), delay) {
            Ok(()) => Ok(handle),
            Err((job, PoolError::Stopped(_))) if self.is_stopped() => Err(Rejected::new(job, SubmitError::Stopped)),
            Err((job, why)) => Err(Rejected::new(job, SubmitError::Pool(why))),
        }
    }

    /// Returns the stage of a task's life.
    ///
    /// # Errors
    /// The task has no record. There never was one, or it was removed.
    pub fn status(&self, id: TaskId) -> Result<Status, UnknownTaskError> {
        self.record(id).map(|record| record.status())
    }

    /// Returns a snapshot of a task.
    ///
    /// # Errors
    /// The task has no record. There never was one, or it was removed.
    pub fn info(&self, id: TaskId) -> Result<TaskInfo, UnknownTaskError> {
        self.record(id).map(|record| record.info())
    }

    /// Returns snapshots of all tasks with a record, in the order of their submission.
    pub fn list(&self) -> Vec<TaskInfo> {
        let records: Vec<_> = lock(&self.owner.shared.table).records().cloned().collect();
        records.iter().map(|record| record.info()).collect()
    }

    /// As [`list`](Self::list), but only the tasks with this status.
    pub fn list_by(&self, status: Status) -> Vec<TaskInfo> {
        self.list().into_iter().filter(|task| task.status == status).collect()
    }

    /// Cancels a task with [`Reason::Cancelled`]. Returns whether this call ended the task.
    ///
    /// The result is `false` if the task had already ended. See [`TaskHandle::cancel`].
    ///
    /// # Errors
    /// The task has no record. There never was one, or it was removed.
    pub fn cancel(&self, id: TaskId) -> Result<bool, UnknownTaskError> {
        self.cancel_because(id, Reason::Cancelled)
    }

    /// As [`cancel`](Self::cancel), with this reason.
    ///
    /// # Errors
    /// The task has no record. There never was one, or it was removed.
    pub fn cancel_because(&self, id: TaskId, reason: impl Into<Reason>) -> Result<bool, UnknownTaskError> {
        let record = self.record(id)?;
        Ok(record.terminate(&self.owner.shared, Status::Cancelled, reason.into()))
    }

    /// Removes the record of an ended task, whatever its retention.
    ///
    /// A handle of the task stays usable. If the task's closure has not returned, the statistics still count it.
    ///
    /// # Errors
    /// The task has no record, or has not ended. Then nothing changes.
    pub fn remove(&self, id: TaskId) -> Result<(), RemoveError> {
        let shared = &self.owner.shared;
        let removed = lock(&shared.table).remove(id)?;
        if let Some(timer) = removed.timer {
            drop(shared.timers.cancel(timer));
        }
        Ok(())
    }

    /// Stops the scheduler and all tasks that have not ended.
    ///
    /// The scheduler accepts no more tasks. When the call returns, every task that was ever accepted has ended. The
    /// call does not wait for closures. A running closure goes on until it returns, and its token asks it to stop.
    /// Closures that were never called are dropped.
    ///
    /// Wakers, callbacks and destructors run on a helper thread. This call waits for them for at most 250 ms. In a
    /// step or in a job of the scheduler's pool, it does not wait.
    ///
    /// The call may be made several times, and by several threads at once. A task of this scheduler may make the call,
    /// and is then stopped like the others. A shared pool goes on.
    pub fn stop(&self) {
        self.owner.stop();
    }

    /// Stops the scheduler, and waits until all user code of its tasks has finished.
    ///
    /// When the call returns `Ok`, all closures have returned, and all values of the user are dropped. If the scheduler
    /// has its own pool, the pool's threads have ended. There are two exceptions. A step does not wait for these
    /// threads. A task of this scheduler waits neither for them nor for itself.
    ///
    /// Wakers, callbacks and destructors run on a helper thread, which gets 250 ms more than `limit`.
    ///
    /// # Errors
    /// The limit passed before that, by the scheduler's clock. [`Duration::MAX`] never passes. Or the caller must not
    /// wait, and other user code has not finished. Such a caller is a step or a task of this scheduler.
    ///
    /// The error lists the tasks whose closures have not returned, and the task whose waker, callback or destructor
    /// hangs. If such code hangs on a thread of the scheduler's own pool, the error has the pool's error.
    pub fn stop_and_join(&self, limit: Duration) -> Result<(), StopError> {
        let shared = &self.owner.shared;
        let deadline = shared.clock.deadline(limit);
        self.owner.begin_stop();
        let is_inside = shared.is_inside();
        let (tasks, clearing) = shared.wait_until_returned(deadline, !is_inside && !is_step());
        if !(tasks.is_empty() && clearing.is_empty()) {
            let why = if is_inside { WaitError::Inside } else { why_not_over(limit) };
            return Err(StopError { why, tasks, clearing, pool: None });
        }
        let mut pool_end = None;
        if self.owner.owns_pool && !is_inside {
            let rest = deadline.0.map_or(Duration::MAX, |at| at.saturating_duration_since(shared.clock.now()));
            // All closures have returned. Wakers and the destructors of thread-locals may take longer.
            pool_end = shared.pool.stop_timeout(rest).err();
        }
        shared.tell_tree();
        match pool_end {
            Some(pool) if !is_step() => {
                Err(StopError { why: pool.why, tasks: Vec::new(), clearing: Vec::new(), pool: Some(pool) })
            }
            _ => Ok(()),
        }
    }

    /// Whether the scheduler has been stopped, so that it accepts no more tasks.
    pub fn is_stopped(&self) -> bool {
        lock(&self.owner.shared.table).is_stopped
    }

    /// Returns the scheduler's counts, all taken at one moment.
    pub fn stats(&self) -> TaskStats {
        let shared = &self.owner.shared;
        let table = lock(&shared.table);
        let counts = table.counts;
        let running = shared.begun.load(Ordering::Relaxed) - table.over_after_begin;
        TaskStats {
            // A task that begins at this moment may already count as running.
            scheduled: (counts.submitted - counts.over()).saturating_sub(running),
            running,
            abandoned: table.inside.len(),
            records: table.len(),
            timers: shared.timers.pending(),
            ..counts
        }
    }

    fn record(&self, id: TaskId) -> Result<Arc<Record>, UnknownTaskError> {
        lock(&self.owner.shared.table).get(id).cloned().ok_or(UnknownTaskError(id))
    }
}

impl Owner {
    /// Ends all tasks. Returns a latch if a helper thread still runs user code.
    ///
    /// The latch is set when that code has returned and all values of the user are dropped.
    pub(super) fn begin_stop(&self) -> Option<Latch<()>> {
        let stopped = self.shared.begin_stop();
        let finished = if stopped.is_empty() {
            // This may be a destructor that another stop runs on this thread.
            self.shared.end_stop(None);
            None
        } else {
            let shared = self.shared.clone();
            Some(threads::on_helper_thread("procession-shutdown", move || shared.finish_stop(stopped)))
        };
        if self.owns_pool {
            // Only jobs of ended tasks wait there. They do nothing.
            self.shared.pool.close();
        }
        finished
    }

    /// Ends all tasks, and waits for user code for at most the [`SHUTDOWN_GRACE`].
    pub(super) fn stop(&self) {
        if let Some(finished) = self.begin_stop()
            && !is_step()
            && !self.shared.pool.is_inside()
        {
            let system = Clock::system();
            finished.wait_until(&system, system.deadline(SHUTDOWN_GRACE));
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
    /// Sets the pool to use. By default the scheduler has its own.
    pub fn pool(mut self, pool: &Pool) -> TaskSchedulerBuilder {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets how many tasks the scheduler's own pool runs at once.
    ///
    /// It is the limit of [`with_limit`](TaskScheduler::with_limit). A [shared](Self::pool) pool has its own maximum,
    /// and this option has no effect on it.
    pub fn limit(mut self, limit: usize) -> TaskSchedulerBuilder {
        self.limit = Some(limit);
        self
    }

    /// Sets the clock for delays, limits and times. The default is the pool's clock, or the system's.
    pub fn clock(mut self, clock: Clock) -> TaskSchedulerBuilder {
        self.clock = Some(clock);
        self
    }

    /// Sets how long the records of tasks without their own retention are kept.
    pub fn retention(mut self, retention: Retention) -> TaskSchedulerBuilder {
        self.retention = retention;
        self
    }

    /// Sets how long the scheduler's [node](TaskScheduler::shutdown_node) waits for closures.
    ///
    /// When the limit has passed, the node no longer waits for closures that still run. (If the scheduler has its own
    /// pool, the node waits longer by twice the [`SHUTDOWN_GRACE`].)
    pub fn shutdown_limit(mut self, limit: Duration) -> TaskSchedulerBuilder {
        self.shutdown_limit = Some(limit);
        self
    }

    /// Builds the scheduler, which accepts tasks at once.
    pub fn build(self) -> TaskScheduler {
        let clock = self.clock.or_else(|| self.pool.as_ref().map(|pool| pool.clock().clone())).unwrap_or_default();
        let owns_pool = self.pool.is_none();
        let pool = self.pool.unwrap_or_else(|| own_pool(&clock, self.limit, self.shutdown_limit.is_some()));
        let shared = Arc::new(Shared::new(pool, clock, self.retention, self.shutdown_limit));
        TaskScheduler { owner: Arc::new(Owner { shared, owns_pool }) }
    }
}

/// How long the scheduler's own pool may be idle before it ends threads.
///
/// It ends one thread after each such period. The period is short, because a burst may have started very many threads.
const IDLE_PERIOD: Duration = Duration::from_millis(100);

/// The number of threads at which a scheduler without a limit logs a warning. With the standard library's stack size
/// they reserve 2 GiB of addresses. Systems limit a user's threads to some ten thousand.
const MANY_THREADS: usize = 1_000;

/// Makes a pool that belongs to the scheduler alone.
fn own_pool(clock: &Clock, limit: Option<usize>, hurries: bool) -> Pool {
    let builder = Pool::builder().idle_period(Some(IDLE_PERIOD)).name("procession-task");
    let builder = match limit {
        Some(limit) => builder.max(limit.max(1)),
        None => warn_of_many(builder.max(usize::MAX)),
    };
    // The pool is asked to end when the scheduler's limit has passed. Jobs that wait then do nothing and need no
    // time.
    let builder = if hurries { builder.shutdown_limit(SHUTDOWN_GRACE) } else { builder };
    let pool = builder.clock(clock.clone()).build();
    pool.expect("none of these options is out of range")
}

/// Makes the pool log a warning, once, when it has very many threads.
fn warn_of_many(builder: PoolBuilder) -> PoolBuilder {
    // Ordering: Relaxed. The number is only compared; no other memory depends on it.
    let threads = Arc::new(AtomicUsize::new(0));
    let (starts, ends) = (threads.clone(), threads);
    let is_logged = AtomicBool::new(false);
    let start = move || {
        let threads = starts.fetch_add(1, Ordering::Relaxed) + 1;
        if threads == MANY_THREADS && !is_logged.swap(true, Ordering::Relaxed) {
            tell_log(|| {
                tracing::warn!(
                    threads,
                    "a scheduler of tasks without a limit has very many threads; \
                     `TaskScheduler::with_limit` bounds them"
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
