//! The end of a pool: draining, stopping, and the pool's node in a shutdown tree.
//!
//! **Stages.** A pool ends in three stages. First, its *jobs* return and the workers exit. Second, the *abandoned*
//! jobs of a stop are dropped. Third, the *threads* are joined, after the destructors of their thread-locals have
//! run. The second and third stages run only user code. Each uses a helper thread
//! ([`on_helper_thread`](crate::threads::on_helper_thread)), so user code that hangs there blocks no caller:
//!
//! - `stop` takes the waiting jobs off the queue and counts them as `dropping`, in one critical section. The helper
//!   notes each drop in the count. So every caller, also of a second stop, reads in the ledger whether the jobs have
//!   been dropped.
//! - When the last worker has exited, the first waiting caller has the threads joined. The latch `joined` is set
//!   afterwards. A worker adds its handle to the list of threads to join before the ledger counts the worker as gone.
//!   So the list is complete.
//!
//! **Waits.** A caller waits for the jobs until its limit. It waits for destructors until its limit and
//! [`SHUTDOWN_GRACE`] longer. The grace is measured by the system's clock, because a manual clock might stand still.
//! Without a limit, the caller waits for destructors for the grace. A thread of the pool (also a helper) and a step
//! do not wait.

use std::collections::VecDeque;
use std::time::Duration;

use super::handle::{Owner, Pool};
use super::job::{Job, Work, into_job};
use super::parker::unpark_all;
use super::worker::Shared;
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, is_step, why_not_over};
use crate::latch::Latch;
use crate::outcome::{Failure, drop_contained, tell_log};
use crate::primitives::thread::JoinHandle;
use crate::primitives::{Arc, lock};
use crate::shutdown::{Role, ShutdownNode};
use crate::threads;

/// How much longer than its limit a pool's end waits for user code.
///
/// A call with a limit waits this much longer for destructors. If the pool's [node](super::Pool::shutdown_node) shuts
/// it down, the pool waits this much longer for jobs that still run at the limit.
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
    /// Threads are ending: a destructor of a thread-local has not returned.
    Threads,
}

/// A pool has not ended within the limit. The pool continues to end.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}: {}, {abandoned} were abandoned", describe(*.stage, *.running, *.waiting, *.dropping))]
#[non_exhaustive]
pub struct PoolEndError {
    /// The reason why the call returned: the limit passed, or the caller is a step, which does not wait.
    pub why: WaitError,
    /// The stage that was not finished.
    pub stage: PoolEndStage,
    /// Jobs that had not returned.
    pub running: usize,
    /// Jobs that had not begun. Only a drain has any.
    pub waiting: usize,
    /// Abandoned jobs that had not been dropped. The destructor of the first of them has not returned.
    pub dropping: usize,
    /// As in [`PoolEnded`].
    pub abandoned: u64,
}

fn describe(stage: PoolEndStage, running: usize, waiting: usize, dropping: usize) -> String {
    match stage {
        PoolEndStage::Jobs => format!("{running} jobs are still running and {waiting} waiting"),
        PoolEndStage::AbandonedJobs => format!("{dropping} abandoned jobs have not been dropped"),
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
    }

    /// Drains the pool and returns when the last thread has ended.
    ///
    /// The pool accepts no more jobs and runs the waiting ones. All pauses end.
    ///
    /// The call waits for destructors of thread-locals for at most [`SHUTDOWN_GRACE`]. If a job of this pool calls
    /// it, the call does not wait, because the job would wait for itself. On a stopped pool, the call waits for the
    /// running jobs.
    ///
    /// # Errors
    /// The caller is a step, which does not wait. The drain goes on.
    pub fn drain(&self) -> Result<PoolEnded, PoolEndError> {
        self.owner.shared.drain();
        self.owner.shared.end(None)
    }

    /// As [`drain`](Self::drain), but waits at most `limit`.
    ///
    /// If destructors do not return, the call waits [`SHUTDOWN_GRACE`] longer.
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
    /// The pool accepts no more jobs and drops the waiting ones. All pauses end.
    ///
    /// Threads that wait for a dropped job are woken. The call waits for destructors of jobs and of thread-locals for
    /// at most [`SHUTDOWN_GRACE`]. If a job of this pool calls it, the call does not wait, because the job would wait
    /// for itself. Several calls wait for the same end.
    ///
    /// # Errors
    /// The caller is a step, which does not wait.
    pub fn stop(&self) -> Result<PoolEnded, PoolEndError> {
        self.owner.shared.stop_and_drop();
        self.owner.shared.end(None)
    }

    /// As [`stop`](Self::stop), but waits at most `limit`.
    ///
    /// If destructors do not return, the call waits [`SHUTDOWN_GRACE`] longer.
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
        self.owner.shared.stop(false).into_iter().map(into_job).collect()
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
            }
        }),
        cancel: Some((
            Box::new(move || {
                if let Some(shared) = stops.upgrade() {
                    shared.stop_and_drop();
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

    /// Stops the pool. A helper thread drops the waiting jobs.
    fn stop_and_drop(self: &Arc<Shared>) {
        let abandoned = self.stop(true);
        if abandoned.is_empty() {
            return;
        }
        let shared = self.clone();
        threads::on_helper_thread("procession-pool-end", move || {
            // A destructor may ask this pool to end.
            let _inside = shared.threads.enter_for_now();
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
        self.report_end();
    }

    /// Informs the shutdown tree if the pool has ended. It is called wherever the pool may have ended.
    pub(super) fn report_end(&self) {
        if !self.part.is_wanted() {
            return;
        }
        let (is_finished, count) = {
            let ledger = self.lock();
            (ledger.is_finished(), ledger.abandoned)
        };
        if is_finished {
            self.part.over((count > 0).then(|| Failure::new(AbandonedJobsError { count })));
        }
    }

    fn unfinished(&self) -> Option<String> {
        let stats = self.lock().stats();
        let running = stats.running + stats.nested;
        (stats.unfinished() > 0).then(|| format!("jobs: {running} running, {} waiting", stats.waiting))
    }

    /// Waits for the end, at most until the limit.
    fn end(&self, limit: Option<(Duration, Deadline)>) -> Result<PoolEnded, PoolEndError> {
        let inside = self.threads.is_current();
        // The greatest limit means no limit.
        let limit = limit.filter(|(_, deadline)| *deadline != Deadline::NEVER);
        let deadline = limit.map_or(Deadline::NEVER, |(_, deadline)| deadline);
        if !inside && !is_step() {
            self.wait_until(&self.clock, deadline, |ledger| ledger.is_finished());
        }
        let threads_left = !inside && self.wait_for_destructors(deadline);
        self.report_end();
        let ledger = self.lock();
        let (running, waiting, dropping, abandoned) =
            (ledger.running, ledger.waiting(), ledger.dropping, ledger.abandoned);
        let stage = match () {
            () if inside => None,
            () if !ledger.is_finished() => Some(PoolEndStage::Jobs),
            () if dropping > 0 => Some(PoolEndStage::AbandonedJobs),
            () if threads_left => Some(PoolEndStage::Threads),
            () => None,
        };
        drop(ledger);
        match stage {
            Some(stage) if limit.is_some() || stage == PoolEndStage::Jobs => {
                let why = why_not_over(limit.map(|(limit, _)| limit));
                Err(PoolEndError { why, stage, running, waiting, dropping, abandoned })
            }
            Some(stage) => {
                tell_log(|| tracing::warn!(?stage, dropping, "a pool has ended, but destructors have not returned"));
                Ok(PoolEnded { abandoned })
            }
            None => Ok(PoolEnded { abandoned }),
        }
    }

    /// Waits until the abandoned jobs were dropped and, if no worker is left, until the threads were joined. Returns
    /// whether some threads were not joined.
    fn wait_for_destructors(&self, deadline: Deadline) -> bool {
        let (system, may_wait) = (Clock::system(), !is_step());
        let limit = Some(deadline).filter(|deadline| *deadline != Deadline::NEVER && may_wait);
        // The grace begins at the limit. Both stages share it.
        let mut grace_ends = None;
        let mut wait = |done: &dyn Fn(&Clock, Deadline) -> bool| {
            let in_time = limit.is_some_and(|deadline| done(&self.clock, deadline));
            let grace = if may_wait { SHUTDOWN_GRACE } else { Duration::ZERO };
            in_time || done(&system, *grace_ends.get_or_insert_with(|| system.deadline(grace)))
        };
        wait(&|clock, deadline| self.wait_until(clock, deadline, |ledger| ledger.dropping == 0));
        if !self.lock().is_finished() {
            return false;
        }
        let joined = self.join_threads();
        !wait(&|clock, deadline| joined.wait_until(clock, deadline))
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
