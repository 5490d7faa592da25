//! Guards: what background work keeps of its node. None of them can be forgotten, because dropping one says what
//! there is to say.

use std::ops::Deref;

use super::cascade;
use super::error::{AddError, Because, JobPanicError};
use super::node::{Condition, Life, Node, Own, Ready, ShutdownNode};
use super::walk;
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Failure, Rejected};
use crate::primitives::Arc;

/// A job's handle of its node: it has the end signal, sets an error, says that the job is ready, says that it is done.
///
/// Clones are of the same node; they do not keep it from ending.
#[derive(Clone, Debug)]
pub struct Job {
    node: Arc<Node>,
}

/// Says that a job is done when it is dropped. It is a [`Job`], too.
///
/// If it is dropped while the thread is unwinding, it sets the error [`JobPanicError`] first.
#[derive(Debug)]
#[must_use = "dropping this says that the job is done"]
pub struct JobGuard {
    job: Job,
}

impl Job {
    /// Please end: given when all that the job depends on is done. Once given it stays given. It can be polled, waited
    /// for, awaited, and have callbacks, which should be short: those told by the same thread afterwards wait for them.
    pub fn end(&self) -> &CancelToken {
        self.node.end()
    }

    /// Please end at once, and leave what is not finished: given when the limit of
    /// [`cancel_after`](super::ShutdownNodeBuilder::cancel_after) is over.
    pub fn cancel(&self) -> &CancelToken {
        self.node.cancel_token()
    }

    /// Sets the job's error. Whether it was the first: later ones are dropped.
    pub fn fail(&self, error: impl Into<BoxError>) -> bool {
        cascade::set_error(&self.node, Failure::from(error.into()))
    }

    /// The value of a result; an error is set as the job's.
    pub fn fail_on<T>(&self, result: Result<T, impl Into<BoxError>>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// Says that the job is ready. Only asked for of jobs that begin [unready](super::ShutdownNodeBuilder::unready);
    /// saying it again does nothing.
    pub fn ready(&self) {
        say_ready(&self.node, Ready::Yes);
    }

    /// Says that the job is done. Saying it again does nothing.
    ///
    /// A job may be done before it is told to end. What it depends on is closed by a shutdown all the same.
    pub fn done(&self) {
        finish(&self.node);
    }
}

impl Job {
    /// Says that a part of the library is done, with an error if there is one.
    pub(crate) fn over(&self, error: Option<Failure>) {
        if let Some(error) = error {
            cascade::set_error(&self.node, error);
        }
        self.done();
    }
}

impl JobGuard {
    pub(super) fn new(node: Arc<Node>) -> JobGuard {
        JobGuard { job: Job { node } }
    }

    /// A handle for another part of the same job.
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
        if std::thread::panicking() && self.job.node.lock().own != Own::Ended {
            self.job.fail(JobPanicError);
        }
        self.job.done();
    }
}

fn say_ready(node: &Arc<Node>, ready: Ready) {
    cascade::after(|moves| {
        let mut inner = node.lock();
        if inner.ready == Ready::NotYet {
            inner.ready = ready;
            inner.reach(Condition::Ready, moves);
        }
    });
}

/// The own work of a node has ended, and what was not ready will never be.
fn finish(node: &Arc<Node>) {
    cascade::end_own(node);
    say_ready(node, Ready::Never);
}

/// Keeps a node from ending by itself.
#[derive(Debug)]
pub(super) struct Hold {
    node: Arc<Node>,
}

impl Hold {
    pub(super) fn new(node: &Arc<Node>) -> Arc<Hold> {
        Arc::new(Hold { node: node.clone() })
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        finish(&self.node);
    }
}

/// A place for errors: the first one that is set counts. Clones are of the same node.
#[derive(Clone, Debug)]
pub struct ErrorGuard {
    pub(super) hold: Arc<Hold>,
}

impl ErrorGuard {
    /// Sets the error. Whether it was the first: later ones are dropped.
    pub fn set(&self, error: impl Into<BoxError>) -> bool {
        cascade::set_error(&self.hold.node, Failure::from(error.into()))
    }

    /// Sets an error that reads `text: cause`, and has the cause as its source. Whether it was the first.
    pub fn set_because(&self, text: impl Into<String>, cause: impl Into<BoxError>) -> bool {
        self.set(Because { text: text.into(), cause: cause.into() })
    }

    /// The value of a result; an error is set.
    pub fn set_on<T>(&self, result: Result<T, impl Into<BoxError>>) -> Option<T> {
        result.map_err(|error| self.set(error)).ok()
    }
}

/// Says when a readiness node is ready.
///
/// If the last clone is dropped before it has said so, the node will never be ready, and a thread that waits for it
/// is told so.
#[derive(Clone, Debug)]
pub struct ReadyGuard {
    pub(super) hold: Arc<Hold>,
}

impl ReadyGuard {
    /// It is ready. Saying it again does nothing.
    pub fn ok(&self) {
        say_ready(&self.hold.node, Ready::Yes);
    }
}

/// Counts what a node waits for. Clones count for the same node.
#[derive(Clone, Debug)]
pub struct Counter {
    pub(super) hold: Arc<Hold>,
}

/// One that is counted; dropping it lowers the count.
#[derive(Debug)]
#[must_use = "dropping this lowers the count"]
pub struct CountGuard {
    hold: Arc<Hold>,
}

impl Counter {
    /// Raises the count by one, until the guard is dropped.
    pub fn add(&self) -> CountGuard {
        let mut inner = self.hold.node.lock();
        inner.count += 1;
        inner.raised += 1;
        drop(inner);
        CountGuard { hold: self.hold.clone() }
    }

    /// The count of this node.
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

/// Takes nodes into a group while it runs. Nodes that are done leave it, so a group does not grow with what has
/// passed through it; the first error of those that have left is kept. What was given up leaves when it ends after
/// all. A value that never had anything to end stays, to be found. Clones are of the same group.
///
/// A group does not end as long as there is one of these, unless it is shut down.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) hold: Arc<Hold>,
}

impl Group {
    /// Takes a state in. While the group is being closed, a state that is taken in is told to end at once, and the
    /// group waits for it like for the others.
    ///
    /// # Errors
    /// The state comes back if the group is closed, or if the group is below it.
    pub fn add(&self, state: ShutdownNode) -> Result<(), Rejected<ShutdownNode, AddError>> {
        let (group, child) = (&self.hold.node, state.node());
        let Some(edge) = group.begin_add(child) else { return Err(Rejected::new(state, AddError::Closed)) };
        if walk::is_below(group, child) {
            cascade::after(|moves| group.release(edge, moves));
            return Err(Rejected::new(state, AddError::Cycle));
        }
        cascade::after(|moves| group.attach(child, edge, true, moves));
        Ok(())
    }

    /// How many states have been taken in and are not done.
    pub fn len(&self) -> usize {
        self.hold.node.lock().taken_in()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nothing is taken in any more.
    pub fn is_closed(&self) -> bool {
        self.hold.node.lock().life == Life::Done
    }
}
