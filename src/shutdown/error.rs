//! Errors that come through the tree: with the names on their way, and the original within.

use std::error::Error;
use std::fmt;

use crate::inside::WaitError;
use crate::outcome::{BoxError, Failure};
use crate::primitives::Arc;

/// The names on the way from the node that was asked to another one, outermost first.
pub(super) type Names = Vec<Arc<str>>;

pub(super) fn write_names(f: &mut fmt::Formatter<'_>, names: &[Arc<str>]) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, "{name}: "))
}

/// An error of a node, as seen from the node that was asked.
///
/// It reads `outer: inner: cause`. The source is the original error, which can also be had in its own type.
#[derive(Clone)]
pub struct NodeError {
    names: Names,
    failure: Failure,
}

impl NodeError {
    pub(super) fn new(names: Names, failure: Failure) -> NodeError {
        NodeError { names, failure }
    }

    /// The same error, as seen from further above.
    pub(super) fn below(mut self, mut names: Names) -> NodeError {
        names.append(&mut self.names);
        NodeError { names, failure: self.failure }
    }

    /// The names (annotations) on the way to the node, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// The error as it was set.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.failure.error()
    }

    /// The error as it was set, in its own type.
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error().downcast_ref()
    }
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, &self.names)?;
        fmt::Display::fmt(self.error(), f)
    }
}

impl fmt::Debug for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeError").field("names", &self.names).field("error", &self.failure).finish()
    }
}

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error())
    }
}

/// An error with a sentence before it: `text: cause`.
#[derive(Debug, thiserror::Error)]
#[error("{text}: {cause}")]
pub(super) struct Because {
    pub(super) text: String,
    #[source]
    pub(super) cause: BoxError,
}

/// The guard of a job was dropped while its thread was unwinding: the job has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job panicked")]
pub struct JobPanicError;

/// Why a node was not taken into a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The group has been closed.
    #[error("the group is closed")]
    Closed,
    /// The group is the node, or is below it: each would wait for the other.
    #[error("the group is below the node, and would close after itself")]
    Cycle,
}

/// Why a node is not ready.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadyError {
    /// The limit was over before.
    #[error("{0}not ready when the limit was over")]
    TimedOut(NotReadyNode),
    /// It was asked to shut down before.
    #[error("shut down before it was ready")]
    ShutDown,
    /// The caller is a step of a process, which does not wait: it would block its worker.
    #[error("{}", WaitError::InsideStep)]
    InsideStep,
    /// There was an error before.
    #[error("failed before it was ready: {0}")]
    Failed(#[source] NodeError),
    /// The guard or the job was dropped before it said that the node is ready.
    #[error("{0}will never be ready")]
    Dropped(NotReadyNode),
}

/// The first node that was not ready, by its names.
#[derive(Clone, Debug)]
pub struct NotReadyNode {
    pub(super) names: Names,
}

impl NotReadyNode {
    /// The names (annotations) on the way to it, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

/// The names, each with a colon behind it.
impl fmt::Display for NotReadyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, &self.names)
    }
}
