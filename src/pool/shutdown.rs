//! The end of a pool: draining, stopping, and the pool's node in a shutdown tree.
//!
//! **Stages.** A pool ends in four stages: its *jobs* return; the *abandoned* jobs of a stop are dropped; the *workers* exit; the
//! *threads* are joined, when the destructors of their thread-locals have run. After the first stage only code of the user's that
//! is no job can hang: a waker, a hook, a destructor. Jobs are dropped, and threads joined, on a helper thread
//! ([`on_helper_thread`](crate::threads::on_helper_thread)), so that code that hangs there holds up no caller:
//!
//! - `stop` takes the waiting jobs off the queue and counts them as `dropping`, in one critical section. The helper
//!   notes each drop in the count. So every caller, also of a second stop, reads in the ledger whether the jobs have
//!   been dropped.
//! - When the last worker has exited, the first waiting caller has the threads joined. The latch `joined` is set
//!   afterwards. A worker adds its handle to the list of threads to join before the ledger counts the worker as gone.
//!   So the list is complete.
//!
//! **Waits.** A caller waits for the jobs until its limit. For the other stages it waits until its limit, and [`SHUTDOWN_GRACE`]
//! more by the system's clock (a manual one might not be moved any more). Without a limit it waits for the other stages as long
//! as the grace.
//! A thread of the pool (also a helper) and a step do not wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::handle::{Owner, Pool};
use super::job::{Job, Work, abandon_all, into_job, tell_all_abandoned};
use super::parker::unpark_all;
use super::worker::Shared;
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, why_not_over};
use crate::latch::Latch;
use crate::outcome::{Failure, Reason, drop_contained, tell_log};
use crate::primitives::thread::JoinHandle;
use crate::primitives::{Arc, lock};
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
    /// Threads end: a destructor of a thread-local has not returned.
    Threads,
    /// The threads have ended, but a callback or a waker of the pool's [node](super::Pool::shutdown_node) has not returned.
    Node,
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
        self.owner.shared.report_shortly();
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
        self.owner.shared.drain();
        self.owner.shared.end(None)
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
        let limit = Some((limit, shared.clock.deadline(limit)));
        shared.drain();
        shared.end(limit)
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
        self.owner.shared.stop_and_drop();
        self.owner.shared.end(None)
    }

    /// As [`stop`](Self::stop), but waits at most `limit`.
    ///
    /// If no job runs at the limit, but wakers, hooks or destructors have not returned, the call waits [`SHUTDOWN_GRACE`] longer.
    ///
    /// # Errors
    /// The pool has not ended, or the caller is a step, which does not wait.
    pub fn stop_timeout(&self, limit: Duration) -> Result<PoolEnded, PoolEndError> {
        let shared = &self.owner.shared;
        let limit = Some((limit, shared.clock.deadline(limit)));
        shared.stop_and_drop();
        shared.end(limit)
    }

    /// Stops the pool and returns its waiting jobs, in the order of their submission.
    ///
    /// The pool accepts no more jobs and begins none.
    ///
    /// The returned jobs count as abandoned. The caller can run a returned job elsewhere, which completes its handle.
    /// The call does not wait for running jobs. To wait, call [`stop`](Self::stop) now or later.
    pub fn abandon(&self) -> Vec<Job> {
        let jobs = self.owner.shared.stop(false);
        self.owner.shared.report_shortly();
        jobs.into_iter().map(into_job).collect()
    }

    /// Serves a shutdown: accepts no more jobs, and waits for the waiting jobs until the deadline by this clock.
    pub(crate) fn drain_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.drain();
        self.owner.shared.wait_until(clock, deadline, |ledger| ledger.is_finished());
    }

    /// Serves a shutdown, after [`abandon`](Self::abandon): waits for the running jobs until the deadline by this
    /// clock. Returns how many still run, and the exited threads, which the caller joins.
    pub(crate) fn leave_until(&self, clock: &Clock, deadline: Deadline) -> (usize, Vec<JoinHandle<()>>) {
        let shared = &self.owner.shared;
        shared.wait_until(clock, deadline, |ledger| ledger.is_finished());
        (shared.lock().running, shared.threads.take_left())
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
    let (ends, stops) = (Arc::downgrade(shared), Arc::downgrade(shared));
    Role {
        name: shared.threads.name(),
        clock: &shared.clock,
        detail: Box::new(move || looks.upgrade()?.unfinished()),
        inside: Box::new(move || knows.upgrade().is_some_and(|shared| shared.threads.is_current())),
        end: Box::new(move || {
            if let Some(shared) = ends.upgrade() {
                shared.drain();
                shared.report_end();
            }
        }),
        cancel: Some((
            Box::new(move || {
                if let Some(shared) = stops.upgrade() {
                    shared.stop_and_drop();
                    shared.report_end();
                }
            }),
            SHUTDOWN_GRACE,
        )),
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
        let mut abandoned = self.stop(true);
        if abandoned.is_empty() {
            return;
        }
        abandon_all(&mut abandoned, &Reason::Shutdown);
        let shared = self.clone();
        threads::on_helper_thread("procession-pool-end", move || {
            // A destructor may ask this pool to end.
            let _inside = shared.threads.enter_for_now();
            tell_all_abandoned(&mut abandoned);
            for job in abandoned {
                drop_contained(job);
                let watchers = {
                    let mut ledger = shared.lock();
                    ledger.dropping -= 1;
                    if ledger.dropping == 0 { ledger.watchers.clone() } else { Vec::new() }
                };
                unpark_all(watchers);
            }
        });
    }

    /// All pauses have ended.
    fn after_end_began(&self) {
        let callbacks = std::mem::take(&mut *lock(&self.pause_tokens));
        drop(callbacks);
    }

    /// Informs the shutdown tree if the pool has ended. It is called wherever the pool may have ended.
    pub(super) fn report_end(&self) {
        if let Some(error) = self.error_of_end() {
            self.part.over(error);
        }
    }

    /// The same, but callbacks and wakers of the node are called on a helper thread. The latch is set when these have returned.
    fn report_apart(self: &Arc<Shared>) -> Option<Latch<()>> {
        let calls = self.part.over_apart(self.error_of_end()?);
        if let Some(calls) = calls {
            let (shared, reported) = (self.clone(), Latch::new());
            *lock(&self.reported) = Some(reported.clone());
            threads::on_helper_thread("procession-pool-end", move || {
                // A callback may ask this pool for its end.
                let _inside = shared.threads.enter_for_now();
                calls();
                let _ = reported.set(());
            });
        }
        lock(&self.reported).clone()
    }

    /// The same for a call without a limit that does not wait for the end: it waits for callbacks as long as the grace.
    fn report_shortly(self: &Arc<Shared>) {
        let may_wait = !is_step() && !self.threads.is_current();
        if let Some(reported) = self.report_apart().filter(|_| may_wait) {
            let system = Clock::system();
            reported.wait_until(&system, system.deadline(SHUTDOWN_GRACE));
        }
    }

    /// The error that the node has, if there is a node and the pool has ended.
    fn error_of_end(&self) -> Option<Option<Failure>> {
        if !self.part.is_wanted() {
            return None;
        }
        let ledger = self.lock();
        let (is_finished, count) = (ledger.is_finished(), ledger.abandoned);
        drop(ledger);
        is_finished.then(|| (count > 0).then(|| Failure::new(AbandonedJobsError { count })))
    }

    fn unfinished(&self) -> Option<String> {
        let stats = self.lock().stats();
        let running = stats.running + stats.nested;
        (stats.unfinished() > 0).then(|| format!("jobs: {running} running, {} waiting", stats.waiting))
    }

    /// Waits for the end, at most until the limit.
    fn end(self: &Arc<Shared>, limit: Option<(Duration, Deadline)>) -> Result<PoolEnded, PoolEndError> {
        // The greatest limit is none.
        let limit = limit.filter(|(_, deadline)| *deadline != Deadline::NEVER);
        let inside = self.threads.is_current();
        let stage = if inside { None } else { self.wait_for_end(limit.map(|(_, deadline)| deadline)) };
        if inside {
            self.report_apart();
        }
        let ledger = self.lock();
        let (running, waiting, dropping, workers, abandoned) =
            (ledger.active(), ledger.waiting(), ledger.dropping, ledger.workers, ledger.abandoned);
        drop(ledger);
        let Some(stage) = stage else { return Ok(PoolEnded { abandoned }) };
        let is_told = match stage {
            PoolEndStage::Jobs => true,
            // A step has not waited for parked workers.
            PoolEndStage::Workers => limit.is_some() || is_step(),
            _ => limit.is_some(),
        };
        if is_told {
            let why = why_not_over(limit.map(|(limit, _)| limit));
            return Err(PoolEndError { why, stage, running, waiting, dropping, workers, abandoned });
        }
        tell_log(|| {
            tracing::warn!(?stage, dropping, workers, "a pool has ended, but code of the user's has not returned")
        });
        Ok(PoolEnded { abandoned })
    }

    /// Waits until no job runs, the abandoned jobs were dropped, the workers have exited and their threads were joined. Returns
    /// the stage that is not over.
    fn wait_for_end(self: &Arc<Shared>, limit: Option<Deadline>) -> Option<PoolEndStage> {
        let (system, may_wait) = (Clock::system(), !is_step());
        if may_wait {
            self.wait_until(&self.clock, limit.unwrap_or(Deadline::NEVER), |ledger| ledger.is_idle());
        }
        let limit = limit.filter(|_| may_wait);
        // The grace begins when the limit is over, and all stages share it.
        let mut grace_ends = None;
        let mut wait = |done: &dyn Fn(&Clock, Deadline) -> bool| {
            let in_time = limit.is_some_and(|deadline| done(&self.clock, deadline));
            let grace = if may_wait { SHUTDOWN_GRACE } else { Duration::ZERO };
            in_time || done(&system, *grace_ends.get_or_insert_with(|| system.deadline(grace)))
        };
        let dropped = wait(&|clock, deadline| self.wait_until(clock, deadline, |ledger| ledger.dropping == 0));
        if !self.lock().is_idle() {
            return Some(PoolEndStage::Jobs);
        }
        let exited = wait(&|clock, deadline| self.wait_until(clock, deadline, |ledger| ledger.is_finished()));
        // Both at the same time, so that threads that hang keep no callback back.
        let (reported, joined) = (self.report_apart().filter(|_| may_wait), exited.then(|| self.join_threads()));
        let mut is_set = |latch: &Latch<()>| wait(&|clock, deadline| latch.wait_until(clock, deadline));
        let (joined, reported) = (joined.as_ref().is_none_or(&mut is_set), reported.as_ref().is_none_or(&mut is_set));
        match () {
            () if !dropped => Some(PoolEndStage::AbandonedJobs),
            () if !exited => Some(PoolEndStage::Workers),
            () if !joined => Some(PoolEndStage::Threads),
            () if !reported => Some(PoolEndStage::Node),
            () => None,
        }
    }

    /// Has a helper thread join the exited threads, once. The latch is set afterwards.
    fn join_threads(&self) -> Latch<()> {
        let joined = Latch::new();
        let left = match &mut *lock(&self.joined) {
            Some(joined) => return joined.clone(),
            none => {
                *none = Some(joined.clone());
                self.threads.take_left()
            }
        };
        if left.is_empty() {
            let _ = joined.set(());
            return joined;
        }
        let set = joined.clone();
        let join = move || {
            for thread in left {
                // User code is contained, so no thread has panicked.
                let _ = thread.join();
            }
            let _ = set.set(());
        };
        threads::on_helper_thread("procession-pool-end", join);
        joined
    }
}

/// Runs when the last handle is dropped.
impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.stop_and_drop();
        let now = self.shared.clock.deadline(Duration::ZERO);
        let _ = self.shared.end(Some((Duration::ZERO, now)));
    }
}
