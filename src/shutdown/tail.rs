//! Tails: what background work keeps of its node. None of them can be forgotten: dropping one says what there is to say.

use std::fmt;
use std::ops::Deref;

use super::drive;
use super::error::{AddError, Because, JobPanicked};
use super::face::Signals;
use super::handle::ShutdownNode;
use super::node::{Moves, Node};
use super::parts::{Bell, Life, Own, Ready};
use super::walk;
use crate::cancel::CancelToken;
use crate::outcome::{BoxError, Failure, Rejected};
use crate::sync::Arc;

/// What a job does with its node: hears that it should end, sets an error, says that it is ready, says that it is done.
/// Clones are of the same node; they do not keep it from ending.
#[derive(Clone)]
pub struct Job {
    node: Arc<Node>,
    signals: Arc<Signals>,
}

/// The end of a job's node that its background work keeps. Dropping it says done; dropping it while the thread is
/// unwinding sets the error [`JobPanicked`] first. It is a [`Job`], too.
#[must_use = "dropping this says that the job is done"]
pub struct JobGuard {
    job: Job,
}

impl Job {
    /// Please end: given when all that the job depends on is done. Once given it stays given. It can be polled, waited
    /// for, awaited, and have callbacks, which should be short: those told by the same thread afterwards wait for them.
    pub fn end(&self) -> &CancelToken {
        &self.signals.end
    }

    /// Please end at once, and leave what is not finished: given when the limit of
    /// [`cancel_after`](super::ShutdownNodeBuilder::cancel_after) is over.
    pub fn cancel(&self) -> &CancelToken {
        self.signals.cancel(&self.node.face.clock)
    }

    /// Sets the job's error. Whether it was the first: later ones are dropped.
    pub fn fail(&self, error: impl Into<BoxError>) -> bool {
        drive::set_error(&self.node, Failure::from(error.into()))
    }

    /// The value of a result; an error is set as the job's.
    pub fn fail_on<T>(&self, result: Result<T, impl Into<BoxError>>) -> Option<T> {
        result.map_err(|error| self.fail(error)).ok()
    }

    /// Says that the job is ready. Only asked for of jobs that begin [unready](super::ShutdownNodeBuilder::unready); saying it
    /// again does nothing.
    pub fn ready(&self) {
        say_ready(&self.node, Ready::Yes);
    }

    /// Says that the job is done. Saying it again does nothing.
    ///
    /// A job may be done before it is told to end. What it depends on is closed by a shutdown all the same.
    pub fn done(&self) {
        drive::end_own(&self.node);
        say_ready(&self.node, Ready::Never);
    }
}

impl Job {
    /// Says that a part of the library is done, with an error if there is one.
    pub(crate) fn over(&self, error: Option<Failure>) {
        if let Some(error) = error {
            drive::set_error(&self.node, error);
        }
        self.done();
    }
}

impl JobGuard {
    pub(super) fn new(node: Arc<Node>, signals: Arc<Signals>) -> JobGuard {
        JobGuard { job: Job { node, signals } }
    }

    /// A handle for somebody else who works on the same job.
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
            self.job.fail(JobPanicked);
        }
        self.job.done();
    }
}

fn say_ready(node: &Arc<Node>, ready: Ready) {
    drive::after(|moves| {
        let mut inner = node.lock();
        if inner.ready == Ready::NotYet {
            inner.ready = ready;
            inner.ring(Bell::Ready, moves);
        }
    });
}

/// Keeps a node from ending by itself.
struct Hold {
    node: Arc<Node>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        drive::end_own(&self.node);
    }
}

/// A place for errors: the first one that is set counts. Clones are of the same node.
#[derive(Clone)]
pub struct ErrorGuard {
    hold: Arc<Hold>,
}

impl ErrorGuard {
    pub(super) fn new(node: Arc<Node>) -> ErrorGuard {
        ErrorGuard { hold: Arc::new(Hold { node }) }
    }

    /// Sets the error. Whether it was the first: later ones are dropped.
    pub fn set(&self, error: impl Into<BoxError>) -> bool {
        drive::set_error(&self.hold.node, Failure::from(error.into()))
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

/// Says when a readiness node is ready. If it is dropped (the last clone, that is) without a word, the node will never be
/// ready, and whoever waits for it is told so.
#[derive(Clone)]
pub struct ReadyGuard {
    end: Arc<ReadyEnd>,
}

struct ReadyEnd {
    hold: Hold,
}

impl ReadyGuard {
    pub(super) fn new(node: Arc<Node>) -> ReadyGuard {
        ReadyGuard { end: Arc::new(ReadyEnd { hold: Hold { node } }) }
    }

    /// It is ready. Saying it again does nothing.
    pub fn ok(&self) {
        say_ready(&self.end.hold.node, Ready::Yes);
    }
}

impl Drop for ReadyEnd {
    fn drop(&mut self) {
        say_ready(&self.hold.node, Ready::Never);
    }
}

/// Counts what a node waits for. Clones count for the same node.
#[derive(Clone)]
pub struct Counter {
    hold: Arc<Hold>,
}

/// One that is counted; dropping it lowers the count.
#[must_use = "dropping this lowers the count"]
pub struct CountGuard {
    hold: Arc<Hold>,
}

impl Counter {
    pub(super) fn new(node: Arc<Node>) -> Counter {
        Counter { hold: Arc::new(Hold { node }) }
    }

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
        drive::after(|moves| {
            let mut inner = self.hold.node.lock();
            inner.count -= 1;
            if inner.count == 0 {
                inner.ring(Bell::Zero, moves);
            }
        });
    }
}

/// Takes states into a group while it runs. Those that are done leave it, so a group through which much passes does not
/// grow; the first error of those that have left is kept. What was given up leaves when it ends after all. A value that never
/// had anything to end stays, to be found. Clones are of the same group.
///
/// A group does not end as long as there is one of these, unless it is shut down.
#[derive(Clone)]
pub struct Group {
    hold: Arc<Hold>,
}

impl Group {
    pub(super) fn new(node: Arc<Node>) -> Group {
        Group { hold: Arc::new(Hold { node }) }
    }

    /// Takes a state in. While the group is being closed, a state that is taken in is told to end at once, and the group
    /// waits for it like for the others.
    ///
    /// # Errors
    /// The state comes back if the group is closed, or if the group is below it.
    pub fn add(&self, state: ShutdownNode) -> Result<(), Rejected<ShutdownNode, AddError>> {
        let (group, child) = (&self.hold.node, state.node());
        let Some(edge) = group.begin_add(child) else { return Err(Rejected::new(state, AddError::Closed)) };
        if walk::is_below(group, child) {
            drive::after(|moves| group.release(edge, moves));
            return Err(Rejected::new(state, AddError::Cycle));
        }
        drive::after(|moves: &mut Moves| group.finish_add(child, edge, moves));
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

macro_rules! debug_as_name {
    ($($tail:ident: $node:expr;)*) => {$(
        impl fmt::Debug for $tail {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let node: fn(&$tail) -> &Arc<Node> = $node;
                f.debug_struct(stringify!($tail)).field("name", &node(self).face.name).finish_non_exhaustive()
            }
        }
    )*};
}

debug_as_name! {
    Job: |tail| &tail.node;
    JobGuard: |tail| &tail.job.node;
    ErrorGuard: |tail| &tail.hold.node;
    ReadyGuard: |tail| &tail.end.hold.node;
    Counter: |tail| &tail.hold.node;
    CountGuard: |tail| &tail.hold.node;
    Group: |tail| &tail.hold.node;
}
