//! The end of a pool: draining, stopping, and the pool's node in a shutdown tree.
//!
//! **Stages.** A pool ends in stages ([`PoolEndStage`]). Its *jobs* return. The *abandoned jobs* of a stop are dropped.
//! The *workers* exit. The *node* is closed. The *threads* are joined when the destructors of their thread-locals have
//! run. After the first stage, only user code that is not a job can hang: a waker, a hook, a destructor, or a callback
//! of the node. Such code runs on a worker or on a helper thread
//! ([`on_helper_thread`](crate::threads::on_helper_thread)). So it blocks no caller. The ledger knows the stage, so
//! every caller reads it there:
//!
//! - `stop` takes the waiting jobs off the queue and counts them as `dropping`, in one critical section. A helper
//!   thread drops them, and lowers the count after each drop.
//! - `finish` is called after every change that may leave an ending pool without workers and jobs. The first call that
//!   finds it so takes the end (`begins_end`). Its helper thread closes the node, and then joins the threads. A worker
//!   adds its handle to the list of threads to join. The ledger counts the worker as gone after that, so the list is
//!   complete.
//!
//! **Waits.** A caller waits for the jobs until its limit. For the other stages it waits until its limit, and then
//! [`SHUTDOWN_GRACE`] longer. The grace is measured by the system's clock, because a test may not move a manual clock
//! again. A caller without a limit waits for the other stages only as long as the grace. Each change of the stage wakes
//! the waiting callers, and they read the stage again. A thread of the pool (also a helper) and a step do not wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::handle::{Owner, Pool};
use super::job::{Job, Work, abandon_all, into_job};
use super::ledger::{End, Ledger};
use super::parker::unpark_all;
use super::worker::Shared;
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, why_not_over};
use crate::outcome::{Failure, Reason, tell_log};
use crate::primitives::{Arc, lock, thread};
use crate::shutdown::{Role, ShutdownNode};
use crate::threads;

/// How long a call that ends a pool waits for user code after its limit.
///
/// After its limit, a call waits this long for workers that exit, and for wakers, hooks and destructors. A pool's
/// [node](super::Pool::shutdown_node) waits this long for jobs that still run when the node's limit has passed. The end
/// of a task scheduler waits this long for wakers, callbacks and destructors.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// The result of a pool's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolEnded {
    /// All jobs of this pool that never began. The pool was stopped or could not start a thread.
    pub abandoned: u64,
}

/// The stage that a pool's end had reached at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolEndStage {
    /// Jobs still run or wait.
    Jobs,
    /// Abandoned jobs are being dropped: the destructor of one has not returned.
    AbandonedJobs,
    /// No job runs, but workers have not exited.
    ///
    /// A waker, a hook or a destructor on one of them has not returned.
    Workers,
    /// The workers have exited. A callback or a waker of the pool's [node](super::Pool::shutdown_node) has not
    /// returned.
    Node,
    /// The threads are being joined: a destructor of a thread-local has not returned.
    Threads,
}

/// A pool has not ended within the limit. The pool continues to end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}: {}, {abandoned} were abandoned", describe(*.stage, *.running, *.waiting, *.dropping, *.workers))]
#[non_exhaustive]
pub struct PoolEndError {
    /// The reason why the call returned.
    ///
    /// The limit passed, or the caller is a step, which does not wait.
    pub why: WaitError,
    /// The stage that was not finished.
    pub stage: PoolEndStage,
    /// Jobs that had not returned, or whose handles were not completed.
    pub running: usize,
    /// Jobs that had not begun. After a stop there are none.
    pub waiting: usize,
    /// Abandoned jobs that had not been dropped. The destructor of the first of them has not returned.
    pub dropping: usize,
    /// Workers that had not exited.
    pub workers: usize,
    /// All jobs of this pool that never began, as in [`PoolEnded`].
    pub abandoned: u64,
}

fn describe(stage: PoolEndStage, running: usize, waiting: usize, dropping: usize, workers: usize) -> String {
    match stage {
        PoolEndStage::Jobs => format!("{running} jobs are still running and {waiting} waiting"),
        PoolEndStage::AbandonedJobs => format!("{dropping} abandoned jobs have not been dropped"),
        PoolEndStage::Workers => format!(
            "no job runs, but {workers} workers have not exited (a waker, a hook or a destructor has not returned)"
        ),
        PoolEndStage::Node => String::from("a callback or a waker of its shutdown node has not returned"),
        PoolEndStage::Threads => String::from("the thread-locals of its threads have not been dropped"),
    }
}

/// A pool has ended without beginning all jobs. It was stopped or could not start a thread.
///
/// The pool's [node](super::Pool::shutdown_node) reports this as its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jobs that were never begun: {count}")]
#[non_exhaustive]
pub struct AbandonedJobsError {
    /// The number of abandoned jobs.
    pub count: u64,
}

impl Pool {
    /// Begins to drain: the pool accepts no more jobs and runs the waiting ones. All pauses end.
    ///
    /// The call does not wait. To wait, call [`drain`](Self::drain) now or later.
    pub fn close(&self) {
        self.owner.shared.drain();
        self.owner.shared.finish_shortly();
    }

    /// Drains the pool and returns when the last thread has ended.
    ///
    /// When the last job has returned, the call waits at most [`SHUTDOWN_GRACE`] for the threads to end. A waker, a
    /// hook or a destructor of a thread-local may hang on them. On a stopped pool, the call waits for the running jobs.
    /// In a job of this pool, the call does not wait, because the job would wait for itself.
    ///
    /// # Errors
    /// The caller is a step, which does not wait. The drain goes on.
    pub fn drain(&self) -> Result<PoolEnded, PoolEndError> {
        self.drain_timeout(Duration::MAX)
    }

    /// As [`drain`](Self::drain), but waits at most `limit`.
    ///
    /// If only wakers, hooks or destructors have not returned at the limit, the call waits [`SHUTDOWN_GRACE`] longer.
    ///
    /// # Errors
    /// The pool has not ended, or the caller is a step, which does not wait. The drain goes on. A later
    /// [`stop`](Self::stop) cuts it short.
    pub fn drain_timeout(&self, limit: Duration) -> Result<PoolEnded, PoolEndError> {
        let shared = &self.owner.shared;
        let deadline = shared.clock.deadline(limit);
        shared.drain();
        shared.end(limit, deadline)
    }

    /// Stops the pool and returns when the last thread has ended.
    ///
    /// The pool accepts no more jobs. Running jobs go on until they return. Waiting jobs are dropped, and threads that
    /// wait for one of them get an error.
    ///
    /// When the last job has returned, the call waits at most [`SHUTDOWN_GRACE`] for the threads to end and for the
    /// waiting jobs to be dropped. A waker, a hook or a destructor may hang there. In a job of this pool, the call does
    /// not wait, because the job would wait for itself. Several calls wait for the same end.
    ///
    /// # Errors
    /// The caller is a step, which does not wait.
    pub fn stop(&self) -> Result<PoolEnded, PoolEndError> {
        self.stop_timeout(Duration::MAX)
    }

    /// As [`stop`](Self::stop), but waits at most `limit`.
    ///
    /// If only wakers, hooks or destructors have not returned at the limit, the call waits [`SHUTDOWN_GRACE`] longer.
    ///
    /// # Errors
    /// The pool has not ended, or the caller is a step, which does not wait.
    pub fn stop_timeout(&self, limit: Duration) -> Result<PoolEnded, PoolEndError> {
        let shared = &self.owner.shared;
        let deadline = shared.clock.deadline(limit);
        shared.stop_and_drop();
        shared.end(limit, deadline)
    }

    /// Stops the pool and returns its waiting jobs, in the order of their submission.
    ///
    /// The pool accepts no more jobs and begins none.
    ///
    /// The returned jobs count as abandoned. The caller can run a returned job elsewhere, which completes its handle.
    /// The call does not wait for running jobs. To wait, call [`stop`](Self::stop) now or later.
    pub fn abandon(&self) -> Vec<Job> {
        let jobs = self.owner.shared.stop(false);
        self.owner.shared.finish_shortly();
        jobs.into_iter().map(into_job).collect()
    }

    /// Serves a shutdown: drains the pool, and waits until the deadline by this clock.
    pub(crate) fn drain_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.drain();
        self.owner.shared.finish();
        self.leave_until(clock, deadline);
    }

    /// Serves a shutdown: waits for the running jobs until the deadline by this clock.
    ///
    /// It is called after [`abandon`](Self::abandon).
    pub(crate) fn leave_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.wait_until(clock, deadline, Ledger::is_finished);
    }

    /// Serves a shutdown: if all workers have exited, waits until their threads have ended.
    pub(crate) fn join_threads(&self) {
        let has_ended = |ledger: &Ledger<_>| !ledger.is_finished() || ledger.end == End::Joined;
        self.owner.shared.wait_until(&Clock::system(), Deadline::NEVER, has_ended);
    }

    /// The number of threads that the end has joined.
    pub(crate) fn joined(&self) -> usize {
        self.owner.shared.lock().joined
    }

    /// The pool's node in a [shutdown tree](crate::shutdown). It is always the same node.
    ///
    /// [`ShutdownNode::depends_on`] sets the order in which nodes close. When asked to close, the pool drains, as by
    /// [`close`](Self::close). The node is closed when the last thread has exited. With
    /// [`shutdown_limit`](super::PoolBuilder::shutdown_limit), the node waits only for that limit. If the pool ends
    /// in another way, the node closes, too. If jobs were abandoned, the node's error is [`AbandonedJobsError`].
    ///
    /// The node has the name of the pool's threads. While jobs delay the end, the error of the tree's shutdown gives
    /// their number.
    ///
    /// ```
    /// use procession::ShutdownNode;
    /// use procession::pool::Pool;
    ///
    /// let pool = Pool::new(2)?;
    /// // The server submits jobs, so it ends before the pool.
    /// let jobs = pool.clone();
    /// let server = ShutdownNode::thread("server", move |job| {
    ///     job.end().wait();
    ///     jobs.execute(|| println!("the last one"))?;
    ///     Ok(())
    /// })?;
    /// let all = pool.shutdown_node().depends_on([server]);
    /// all.shutdown()?;
    /// assert_eq!(pool.stats().finished, 1);
    /// assert!(all.err().is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_node(&self) -> ShutdownNode {
        let shared = &self.owner.shared;
        let node = shared.part.state(|| role(shared));
        shared.report_end();
        node
    }

    /// Describes in a few words the jobs that delay the pool's end.
    pub(crate) fn describe_jobs(&self) -> Option<String> {
        self.owner.shared.unfinished()
    }
}

fn role(shared: &Arc<Shared>) -> Role<'_> {
    let (looks, knows) = (Arc::downgrade(shared), Arc::downgrade(shared));
    // The thread that asks the tree to close also closes the node of a pool that ends at once.
    let ends = |change: fn(&Arc<Shared>)| {
        let weak = Arc::downgrade(shared);
        Box::new(move || {
            if let Some(shared) = weak.upgrade() {
                change(&shared);
                shared.report_end();
                shared.finish();
            }
        })
    };
    Role {
        name: &shared.threads.name,
        clock: &shared.clock,
        detail: Box::new(move || looks.upgrade()?.unfinished()),
        inside: Box::new(move || knows.upgrade().is_some_and(|shared| shared.threads.is_current())),
        end: ends(Shared::drain),
        cancel: Some((ends(Shared::stop_and_drop), SHUTDOWN_GRACE)),
        on: None,
    }
}

impl Shared {
    fn drain(self: &Arc<Shared>) {
        let wanted = self.lock().drain();
        self.summon(wanted);
        self.after_end_began();
    }

    /// Stops the pool and returns the waiting jobs. If they are to be dropped, the ledger counts them as such.
    fn stop(&self, drops: bool) -> VecDeque<Box<dyn Work>> {
        let (abandoned, parkers) = {
            let mut ledger = self.lock();
            let abandoned = ledger.stop();
            ledger.dropping += if drops { abandoned.len() } else { 0 };
            (abandoned, ledger.everybody())
        };
        unpark_all(parkers);
        self.after_end_began();
        abandoned
    }

    /// Stops the pool. A helper thread drops the waiting jobs.
    ///
    /// First all threads that wait for these jobs are woken, and all wakers are called. So no waiter depends on a
    /// destructor that hangs.
    fn stop_and_drop(self: &Arc<Shared>) {
        let abandoned = self.stop(true);
        if abandoned.is_empty() {
            return;
        }
        let abandoned = abandon_all(abandoned, &Reason::Shutdown);
        let shared = self.clone();
        threads::on_helper_thread("procession-pool-end", move || {
            // A destructor may ask this pool to end.
            let _inside = shared.threads.enter_for_now();
            abandoned.finish(|| shared.change(|ledger| ledger.dropping -= 1));
        });
    }

    /// All pauses have ended.
    fn after_end_began(&self) {
        let callbacks = std::mem::take(&mut *lock(&self.pause_tokens));
        drop(callbacks);
    }

    /// Informs the shutdown tree if the pool has ended. This thread calls the callbacks of the node.
    fn report_end(&self) {
        let ledger = self.lock();
        let (is_finished, count) = (ledger.is_finished(), ledger.counts.abandoned);
        drop(ledger);
        if is_finished {
            self.part.over((count > 0).then(|| Failure::new(AbandonedJobsError { count })));
        }
    }

    /// Ends a pool that has no worker and no job left.
    ///
    /// It closes the node and joins the threads. It is called after every change that may leave an ending pool so.
    pub(super) fn finish(self: &Arc<Shared>) {
        if !self.lock().begins_end() {
            return;
        }
        let (shared, left) = (self.clone(), self.threads.take_left());
        // The pool has finished. A thread that requests the node after the next line finds that, and reports the end.
        let has_user_code = !left.is_empty() || self.part.is_wanted();
        if !has_user_code {
            self.change(|ledger| ledger.end = End::Joined);
            return;
        }
        let end = move || {
            // A callback of the node may ask this pool to end.
            let _inside = shared.threads.enter_for_now();
            shared.report_end();
            shared.change(|ledger| ledger.end = End::Reported);
            // If no helper thread can be started, this may be the last worker. It does not join itself, and counts as
            // joined.
            let me = thread::current().id();
            for thread in left.into_iter().filter(|thread| thread.thread().id() != me) {
                // User code is contained, so no thread has panicked.
                let _ = thread.join();
                shared.change(|ledger| ledger.joined += 1);
            }
            shared.change(|ledger| ledger.end = End::Joined);
        };
        threads::on_helper_thread("procession-pool-end", end);
    }

    /// As `finish`, for a call that does not wait for the end.
    ///
    /// It waits for callbacks of the node only as long as the grace.
    fn finish_shortly(self: &Arc<Shared>) {
        self.finish();
        if !is_step() && !self.threads.is_current() {
            let system = Clock::system();
            let is_reported = |ledger: &Ledger<_>| !ledger.is_finished() || ledger.end >= End::Reported;
            self.wait_until(&system, system.deadline(SHUTDOWN_GRACE), is_reported);
        }
    }

    fn unfinished(&self) -> Option<String> {
        let stats = self.lock().stats();
        let running = stats.running + stats.nested;
        (stats.unfinished() > 0).then(|| format!("jobs: {running} running, {} waiting", stats.waiting))
    }

    /// Waits for the end, at most until the limit.
    fn end(self: &Arc<Shared>, limit: Duration, deadline: Deadline) -> Result<PoolEnded, PoolEndError> {
        self.finish();
        let inside = self.threads.is_current();
        if !inside && !is_step() {
            self.wait_for_end(deadline);
        }
        let ledger = self.lock();
        let abandoned = ledger.counts.abandoned;
        let Some(stage) = end_stage(&ledger).filter(|_| !inside) else { return Ok(PoolEnded { abandoned }) };
        let error = PoolEndError {
            why: why_not_over(limit),
            stage,
            running: ledger.active(),
            waiting: ledger.waiting(),
            dropping: ledger.dropping,
            workers: ledger.counts.workers,
            abandoned,
        };
        drop(ledger);
        if deadline != Deadline::NEVER || is_step() || stage == PoolEndStage::Jobs {
            return Err(error);
        }
        let PoolEndError { dropping, workers, .. } = error;
        tell_log(|| {
            tracing::warn!(?stage, dropping, workers, "a pool has ended, but code of the user's has not returned")
        });
        Ok(PoolEnded { abandoned })
    }

    /// Waits for all stages of the end.
    fn wait_for_end(&self, deadline: Deadline) {
        self.wait_until(&self.clock, deadline, Ledger::is_idle);
        let is_over = |ledger: &Ledger<_>| end_stage(ledger).is_none();
        if deadline != Deadline::NEVER && self.wait_until(&self.clock, deadline, is_over) {
            return;
        }
        let system = Clock::system();
        self.wait_until(&system, system.deadline(SHUTDOWN_GRACE), |ledger| match end_stage(ledger) {
            // The grace is not for jobs.
            Some(PoolEndStage::Jobs) => ledger.dropping == 0,
            stage => stage.is_none(),
        });
    }
}

/// The stage that the pool's end has reached, or `None` if it is over.
fn end_stage<J>(ledger: &Ledger<J>) -> Option<PoolEndStage> {
    match ledger.end {
        _ if !ledger.is_idle() => Some(PoolEndStage::Jobs),
        _ if ledger.dropping > 0 => Some(PoolEndStage::AbandonedJobs),
        _ if !ledger.is_finished() => Some(PoolEndStage::Workers),
        End::NotBegun | End::Begun => Some(PoolEndStage::Node),
        End::Reported => Some(PoolEndStage::Threads),
        End::Joined => None,
    }
}

/// Runs when the last handle is dropped.
impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop_and_drop();
        let _ = self.shared.end(Duration::ZERO, self.shared.clock.deadline(Duration::ZERO));
    }
}
