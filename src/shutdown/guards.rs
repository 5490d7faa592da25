//! Guards: the handles by which background work reports to its node.
//!
//! A report cannot be forgotten, because dropping a guard makes it.

use std::ops::Deref;

use super::cascade;
use super::error::{AddError, Because, JobPanicError};
use super::node::{Condition, Life, Moves, Node, Ready, ShutdownNode};
use super::walk;
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Failure, Rejected, drop_contained};
use crate::primitives::Arc;

/// A job's handle of its node.
///
/// It has the end signal. The job uses it to report errors, readiness and its end. Clones belong to the same node. They
/// do not keep the node from ending.
#[derive(Clone, Debug)]
pub struct Job {
    node: Arc<Node>,
}

/// A guard that marks a job as done when it is dropped. It has the methods of [`Job`].
///
/// If it is dropped while the thread is unwinding, it first sets the error [`JobPanicError`].
// The other guards of this file share one. It keeps their node from ending by itself.
#[derive(Debug)]
#[must_use = "dropping this says that the job is done"]
pub struct JobGuard {
    job: Job,
}

impl Job {
    /// Returns the end signal, which tells the job to end.
    ///
    /// In a shutdown, the signal is given when all nodes that close before the job are done. It is never taken back.
    /// The job can poll it, wait for it, await it, or register callbacks. Callbacks should be short: the next callback
    /// on the same thread waits until this one has returned.
    pub fn end(&self) -> &CancelToken {
        self.node.end()
    }

    /// Returns the cancel signal, which tells the job to drop unfinished work and end at once.
    ///
    /// The signal is given when the limit of [`cancel_after`](super::ShutdownNodeBuilder::cancel_after) is over.
    pub fn cancel(&self) -> &CancelToken {
        self.node.cancel_token()
    }

    /// Sets the job's error, if it has none. Returns whether it had none. Later errors are dropped.
    pub fn fail(&self, error: impl Into<BoxError>) -> bool {
        cascade::set_error(&self.node, Failure::from(error.into()))
    }

    /// Returns the value of a result, or sets its error as the job's error.
    pub fn fail_on<T>(&self, result: Result<T, impl Into<BoxError>>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// Marks the job as ready.
    ///
    /// Only jobs that begin [unready](super::ShutdownNodeBuilder::unready) need this. A second call does nothing.
    pub fn ready(&self) {
        cascade::after(|moves| self.node.lock().set_ready(Ready::Yes, moves));
    }

    /// Marks the job as done. A second call does nothing.
    ///
    /// A job may be done before it is told to end. A shutdown still closes the nodes that it depends on.
    pub fn done(&self) {
        cascade::after(|moves| self.node.end_own(moves));
    }

    /// Marks a part of the library as done, with an error if there is one.
    pub(crate) fn over(&self, error: Option<Failure>) {
        let mut moves = Moves::default();
        let refused = error.and_then(|error| self.node.set_error(error, &mut moves).err());
        self.node.end_own(&mut moves);
        drop_contained(refused);
        cascade::run(moves);
    }
}

impl JobGuard {
    pub(super) fn new(node: Arc<Node>) -> JobGuard {
        JobGuard { job: Job { node } }
    }

    /// Returns a handle for another part of the same job.
    pub fn job(&self) -> Job {
        self.job.clone()
    }
}

impl Deref for JobGuard {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        if std::thread::panicking() && self.job.node.lock().own.is_unfinished_job() {
            self.job.fail(JobPanicError);
        }
        self.job.done();
    }
}

/// A guard that sets the error of a node. The first error counts. Clones belong to the same node.
#[derive(Clone, Debug)]
pub struct ErrorGuard {
    pub(super) hold: Arc<JobGuard>,
}

impl ErrorGuard {
    /// Sets the error, if there is none. Returns whether there was none. Later errors are dropped.
    pub fn set(&self, error: impl Into<BoxError>) -> bool {
        self.hold.fail(error)
    }

    /// Sets an error that reads `text: cause`, with the cause as its source. Returns whether there was none before.
    pub fn set_because(&self, text: impl Into<String>, cause: impl Into<BoxError>) -> bool {
        self.set(Because { text: text.into(), cause: cause.into() })
    }

    /// Returns the value of a result, or sets its error.
    pub fn set_on<T>(&self, result: Result<T, impl Into<BoxError>>) -> Option<T> {
        self.hold.fail_on(result)
    }
}

/// A guard that marks a readiness node as ready.
///
/// If the last clone is dropped before that, the node never becomes ready. Threads that wait for it get an error.
#[derive(Clone, Debug)]
pub struct ReadyGuard {
    pub(super) hold: Arc<JobGuard>,
}

impl ReadyGuard {
    /// Marks the node as ready. A second call does nothing.
    pub fn ok(&self) {
        self.hold.ready();
    }
}

/// The counter of a [counted](ShutdownNode::counted) node. Clones belong to the same node.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(super) hold: Arc<JobGuard>,
}

/// One piece of counted work. Dropping it lowers the count.
#[derive(Debug)]
#[must_use = "dropping this lowers the count"]
pub struct CountGuard {
    hold: Arc<JobGuard>,
}

impl Counter {
    /// Raises the count by one until the guard is dropped.
    pub fn add(&self) -> CountGuard {
        let mut inner = self.hold.node.lock();
        inner.count += 1;
        inner.raised += 1;
        drop(inner);
        CountGuard { hold: self.hold.clone() }
    }

    /// Returns the count of this node.
    pub fn count(&self) -> usize {
        self.hold.node.lock().count
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        cascade::after(|moves| {
            let mut inner = self.hold.node.lock();
            inner.count -= 1;
            if inner.count == 0 {
                inner.reach(Condition::Zero, moves);
            }
        });
    }
}

/// A guard that adds nodes to a group while the group runs.
///
/// Nodes that are done are removed from the group. So a group does not grow with the number of nodes that were ever
/// added. The group keeps the first error of removed nodes. A node that was given up is removed if it ends later. A
/// node that has only a value, and no work to end, stays: [`ShutdownNode::get`] finds the value.
///
/// Clones belong to the same group. Until all of them are dropped, the group ends only if it is shut down.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) hold: Arc<JobGuard>,
}

impl Group {
    /// Adds a node.
    ///
    /// If the group has been asked to close and is not closed yet, it asks the added node to close at once. It waits
    /// for this node as for the others.
    ///
    /// # Errors
    /// Returns the node if the group is closed, or if the group is the node or below it.
    pub fn add(&self, state: ShutdownNode) -> Result<(), Rejected<ShutdownNode, AddError>> {
        let (group, child) = (&self.hold.node, &state.node);
        let Some(edge) = group.begin_add(child) else { return Err(Rejected::new(state, AddError::Closed)) };
        if walk::is_below(group, child) {
            cascade::after(|moves| group.release(edge, moves));
            return Err(Rejected::new(state, AddError::Cycle));
        }
        cascade::after(|moves| group.attach(child, edge, true, moves));
        Ok(())
    }

    /// Returns the number of nodes that were added and are not done.
    pub fn len(&self) -> usize {
        self.hold.node.lock().taken_in()
    }

    /// Whether all nodes that were added are done.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the group is closed. Then no node can be added.
    pub fn is_closed(&self) -> bool {
        self.hold.node.lock().life == Life::Done
    }
}
