//! The end of a pool: draining, stopping, and the pool's node in a shutdown tree.
//!
//! **Stages.** A pool ends in stages ([`PoolEndStage`]): its *jobs* return; the *abandoned jobs* of a stop are dropped; the
//! *workers* exit; the *node* is closed; the *threads* are joined, when the destructors of their thread-locals have run.
//! After the first stage only code of the user's that is no job can hang: a waker, a hook, a destructor, a callback of the
//! node. Such code runs on a worker or on a helper thread ([`on_helper_thread`](crate::threads::on_helper_thread)), so that
//! it holds up no caller. The ledger knows the stage, so every caller reads it there:
//!
//! - `stop` takes the waiting jobs off the queue and counts them as `dropping`, in one critical section. A helper thread
//!   notes each drop in the count.
//! - `finish` is called after every change that may leave an ending pool without workers and jobs. The first call that
//!   finds it so takes the end (`begins_end`). Its helper thread closes the node, and then joins the threads. A worker
//!   adds its handle to the list of threads to join before the ledger counts the worker as gone. So the list is complete.
//!
//! **Waits.** A caller waits for the jobs until its limit. For the other stages it waits until its limit, and [`SHUTDOWN_GRACE`]
//! more by the system's clock (a manual one might not be moved any more). Without a limit it waits for the other stages as long
//! as the grace. Each change of the stage wakes the waiting callers, which read the stage again.
//! A thread of the pool (also a helper) and a step do not wait.

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

/// How much longer than its limit a pool's end waits for user code.
///
/// A call with a limit waits so much longer for workers that exit, and for wakers, hooks and destructors. A pool that is shut down through its
/// [node](super::Pool::shutdown_node) waits so long for jobs that still run when the limit is over.
pub const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// The result of a pool's end: no job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolEnded {
    /// Jobs that never began in the pool's whole life. The pool was stopped or could not start a thread.
    pub abandoned: u64,
}

/// The stage that a pool's end had reached at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolEndStage {
    /// Jobs run or wait.
    Jobs,
    /// Abandoned jobs are being dropped: the destructor of one has not returned.
    AbandonedJobs,
    /// No job runs, but workers have not exited: a waker, a hook or a destructor on one has not returned.
    Workers,
    /// The workers have exited, but a callback or a waker of the pool's [node](super::Pool::shutdown_node) has not returned.
    Node,
    /// Threads end: a destructor of a thread-local has not returned.
    Threads,
}

/// A pool has not ended within the limit. The pool continues to end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}: {}, {abandoned} were abandoned", describe(*.stage, *.running, *.waiting, *.dropping, *.workers))]
#[non_exhaustive]
pub struct PoolEndError {
    /// The reason why the call returned: the limit passed, or the caller is a step, which does not wait.
    pub why: WaitError,
    /// The stage that was not finished.
    pub stage: PoolEndStage,
    /// Jobs that had not returned, or had not told their handles.
    pub running: usize,
    /// Jobs that had not begun. Only a drain has any.
    pub waiting: usize,
    /// Abandoned jobs that had not been dropped. The destructor of the first of them has not returned.
    pub dropping: usize,
    /// Workers that had not exited.
    pub workers: usize,
    /// As in [`PoolEnded`].
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
    /// When the last job has returned, it waits at most [`SHUTDOWN_GRACE`] for the threads to end: a waker, a hook or a
    /// destructor of a thread-local may hang there. A job of this pool that calls this does not
    /// wait, for it would wait for itself. On a pool that was stopped the call waits for the jobs that run.
    ///
    /// # Errors
    /// The caller is a step, which does not wait. The drain goes on.
    pub fn drain(&self) -> Result<PoolEnded, PoolEndError> {
        self.drain_timeout(Duration::MAX)
    }

    /// As [`drain`](Self::drain), but waits at most `limit`.
    ///
    /// If no job runs at the limit, but wakers, hooks or destructors have not returned, the call waits [`SHUTDOWN_GRACE`] longer.
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
    /// Threads that wait for one of the dropped jobs are told. When the last job has returned, it waits at most
    /// [`SHUTDOWN_GRACE`] for the threads to end and the jobs to be dropped: a waker, a hook or a destructor may hang there. A
    /// job of this pool that calls this does not wait, for it would wait for itself. Several calls wait
    /// for the same end.
    ///
    /// # Errors
    /// The caller is a step, which does not wait.
    pub fn stop(&self) -> Result<PoolEnded, PoolEndError> {
        self.stop_timeout(Duration::MAX)
    }

    /// As [`stop`](Self::stop), but waits at most `limit`.
    ///
    /// If no job runs at the limit, but wakers, hooks or destructors have not returned, the call waits [`SHUTDOWN_GRACE`] longer.
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

    /// Serves a shutdown: accepts no more jobs, and waits for the waiting jobs until the deadline by this clock.
    pub(crate) fn drain_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.drain();
        self.owner.shared.finish();
        self.leave_until(clock, deadline);
    }

    /// Serves a shutdown, after [`abandon`](Self::abandon): waits for the running jobs until the deadline by this
    /// clock.
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
    pub(crate) fn who_is_left(&self) -> Option<String> {
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

    /// Stops, and has a helper thread drop the waiting jobs. First all threads that wait for these jobs are woken, then all
    /// wakers are called, so that a destructor that hangs keeps no waiter from its answer.
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

    /// Carries out what remains when an ending pool has no worker and no job. It is called wherever that may be so.
    pub(super) fn finish(self: &Arc<Shared>) {
        if !self.lock().begins_end() {
            return;
        }
        let (shared, left) = (self.clone(), self.threads.take_left());
        let has_user_code = !left.is_empty() || self.part.is_wanted();
        let end = move || {
            // A callback of the node may ask this pool to end.
            let _inside = shared.threads.enter_for_now();
            shared.report_end();
            shared.change(|ledger| ledger.end = End::Reported);
            let me = thread::current().id();
            for thread in left.into_iter().filter(|thread| thread.thread().id() != me) {
                // User code is contained, so no thread has panicked.
                let _ = thread.join();
                shared.change(|ledger| ledger.joined += 1);
            }
            shared.change(|ledger| ledger.end = End::Joined);
        };
        if has_user_code {
            threads::on_helper_thread("procession-pool-end", end);
        } else {
            end();
        }
    }

    /// The same for a call that does not wait for the end: it waits for callbacks of the node as long as the grace.
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

/// The stage that the end of the pool has reached, or `None` if it is over.
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
