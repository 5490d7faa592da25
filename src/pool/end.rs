//! How a pool ends: draining, stopping, and what is given back.

use std::collections::VecDeque;
use std::time::Duration;

use super::owner::Pool;
use super::seat::call_all;
use super::thread::Shared;
use super::work::{Job, Left, Work, into_job};
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, deadline_here, why_not_over};
use crate::outcome::drop_contained;
use crate::sync::thread::JoinHandle;
use crate::sync::{Arc, Mutex, lock, thread};

/// A pool has ended: no job runs and no thread of it is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolEnded {
    /// Jobs that were given up in the pool's whole life while they waited: because it was stopped, or could get no thread.
    pub abandoned: u64,
}

/// The limit was over before the last running job had returned. The pool goes on ending by itself.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{why}: {running} jobs are still running and {waiting} waiting, {abandoned} were abandoned")]
#[non_exhaustive]
pub struct StillRunning {
    /// Why the call has returned: the limit was over, or the caller is a step, which does not wait.
    pub why: WaitError,
    /// Jobs that had not returned.
    pub running: usize,
    /// Jobs that had not begun (of a drain).
    pub waiting: usize,
    /// As in [`PoolEnded`].
    pub abandoned: u64,
}

impl Pool {
    /// Takes no more jobs, from now on. Those that wait are done, also those that a pause has kept: all pauses end. Does not
    /// wait for any of it: [`drain`](Self::drain) does, now or later.
    pub fn close(&self) {
        self.owner.shared.drain();
    }

    /// Takes no more jobs, does all that wait, and returns when the last thread has ended. All pauses end.
    ///
    /// Called by a job of this pool it does not wait (it would wait for itself). On a pool that was stopped it waits for what
    /// still runs.
    ///
    /// # Errors
    /// The limit was over before that, or the caller is a step, which does not wait. The draining goes on; a later [`stop`](Self::stop) cuts it short.
    pub fn drain(&self, limit: Option<Duration>) -> Result<PoolEnded, StillRunning> {
        let deadline = self.owner.shared.deadline(limit);
        self.owner.shared.drain();
        self.owner.shared.end(deadline, why_not_over(limit))
    }

    /// Takes no more jobs, drops those that wait, and returns when the last thread has ended. All pauses end. Who waits for
    /// one of the jobs that are dropped is told.
    ///
    /// Called by a job of this pool it does not wait (it would wait for itself). Called again, or by several threads, it
    /// waits for the same end.
    ///
    /// # Errors
    /// The limit was over before the running jobs had returned, or the caller is a step, which does not wait.
    pub fn stop(&self, limit: Option<Duration>) -> Result<PoolEnded, StillRunning> {
        let deadline = self.owner.shared.deadline(limit);
        self.owner.shared.drop_all(self.owner.shared.stop());
        self.owner.shared.end(deadline, why_not_over(limit))
    }

    /// Takes no more jobs and begins none, and gives back those that wait, in the order of their submission; they are
    /// counted as abandoned. Does not wait for those that run: [`stop`](Self::stop) does, now or later.
    ///
    /// A job that is given back can be run somewhere else, and whoever waits for it is told then; dropped, it was abandoned.
    pub fn abandon(&self) -> Vec<Job> {
        self.owner.shared.stop().into_iter().map(into_job).collect()
    }

    /// For a shutdown: takes no more jobs, and does those that wait until the deadline by this clock.
    pub(crate) fn drain_until(&self, clock: &Clock, deadline: Deadline) {
        self.owner.shared.drain();
        self.owner.shared.wait_until(clock, deadline, |ledger| ledger.is_finished());
    }

    /// For a shutdown, after [`abandon`](Self::abandon): waits for the running jobs until the deadline by this clock. How
    /// many there still are, and the threads of the others, to be joined.
    pub(crate) fn leave_until(&self, clock: &Clock, deadline: Deadline) -> (usize, Vec<JoinHandle<()>>) {
        let shared = &self.owner.shared;
        shared.wait_until(clock, deadline, |ledger| ledger.is_finished());
        (shared.lock().running, shared.crew.take_left())
    }
}

impl Shared {
    pub(super) fn drain(self: &Arc<Shared>) {
        self.crew.ends();
        let hands = self.lock().drain();
        self.give(hands);
        self.forget_tokens();
        self.tell_tree();
    }

    pub(super) fn stop(&self) -> VecDeque<Box<dyn Work>> {
        self.crew.ends();
        let (abandoned, seats) = {
            let mut ledger = self.lock();
            (ledger.stop(), ledger.call_everybody())
        };
        call_all(seats);
        self.forget_tokens();
        self.tell_tree();
        abandoned
    }

    /// Drops what was abandoned, on this thread.
    pub(super) fn drop_all(&self, abandoned: VecDeque<Box<dyn Work>>) {
        if abandoned.is_empty() {
            return;
        }
        let left = Arc::new(Mutex::new(abandoned));
        lock(&self.dropping).push((thread::current().id(), left.clone()));
        drop_left(&left);
        lock(&self.dropping).retain(|(_, other)| !Arc::ptr_eq(other, &left));
    }

    /// For whoever waits for a job in a destructor that is called by the above: it may be one that the same thread would drop
    /// next, and so these are dropped now. (The models have no such destructors.)
    #[cfg(not(loom))]
    pub(super) fn drop_what_is_left_here(&self) {
        let me = thread::current().id();
        let mine: Vec<Left> =
            lock(&self.dropping).iter().filter(|(who, _)| *who == me).map(|(_, left)| left.clone()).collect();
        mine.iter().for_each(drop_left);
    }

    /// Waits until all have left.
    fn end(&self, deadline: Deadline, why: WaitError) -> Result<PoolEnded, StillRunning> {
        let inside = self.crew.is_current();
        let deadline = deadline_here(&self.clock, deadline);
        if !inside {
            self.wait_until(&self.clock, deadline, |ledger| ledger.is_finished());
            self.crew.join(&self.clock, deadline);
        }
        self.tell_tree();
        let ledger = self.lock();
        let abandoned = ledger.abandoned;
        if inside || ledger.is_finished() {
            return Ok(PoolEnded { abandoned });
        }
        Err(StillRunning { why, running: ledger.running, waiting: ledger.waiting(), abandoned })
    }
}

fn drop_left(left: &Left) {
    let next = || lock(left).pop_front();
    while let Some(work) = next() {
        drop_contained(work);
    }
}
