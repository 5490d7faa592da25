//! Errors that pass through the tree, with the names on their way and the original error.

use std::error::Error;
use std::fmt;

use crate::inside::WaitError;
use crate::outcome::{BoxError, Failure};
use crate::primitives::Arc;

/// The names on the way from the root of the call to a node, outermost first.
pub(super) type Names = Vec<Arc<str>>;

pub(super) fn write_names(f: &mut fmt::Formatter<'_>, names: &[Arc<str>]) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, "{name}: "))
}

/// An error of a node, with the names on the way to that node.
///
/// The way begins at the node whose method returned this. The error reads `outer: inner: cause`. Its source is the
/// original error, which can be downcast.
#[derive(Clone, Debug)]
pub struct NodeError {
    names: Names,
    failure: Failure,
}

impl NodeError {
    pub(super) fn new(names: Names, failure: Failure) -> NodeError {
        NodeError { names, failure }
    }

    /// Returns the same error as seen from further above.
    pub(super) fn below(mut self, mut names: Names) -> NodeError {
        names.append(&mut self.names);
        NodeError { names, failure: self.failure }
    }

    /// Returns the names (annotations) on the way to the node, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }

    /// Returns the error as it was set.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.failure.error()
    }

    /// Returns the error as it was set, if it has this type.
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

impl Error for NodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error())
    }
}

/// An error with a text before it: `text: cause`.
#[derive(Debug, thiserror::Error)]
#[error("{text}: {cause}")]
pub(super) struct Because {
    pub(super) text: String,
    #[source]
    pub(super) cause: BoxError,
}

/// The job has panicked: its guard was dropped while its thread was unwinding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job panicked")]
pub struct JobPanicError;

/// Why a node was not added to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The group has been closed.
    #[error("the group is closed")]
    Closed,
    /// The group is the node itself, or is below it. The group and the node would wait for each other.
    #[error("the group is below the node, and would close after itself")]
    Cycle,
}

/// Why a node is not ready.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadyError {
    /// The limit was over before the node was ready.
    #[error("{0}not ready when the limit was over")]
    TimedOut(NotReadyNode),
    /// The node was asked to shut down before it was ready.
    #[error("shut down before it was ready")]
    ShutDown,
    /// The caller is a step of a process. A step must not wait, because it would block its worker.
    #[error("{}", WaitError::InsideStep)]
    InsideStep,
    /// An error was set before the node was ready.
    #[error("failed before it was ready: {0}")]
    Failed(#[source] NodeError),
    /// The guard was dropped before it reported that the node is ready.
    #[error("{0}will never be ready")]
    Dropped(NotReadyNode),
}

/// The first node that was not ready, with its names.
#[derive(Clone, Debug)]
pub struct NotReadyNode {
    pub(super) names: Names,
}

impl NotReadyNode {
    /// Returns the names (annotations) on the way to the node, outermost first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &**name)
    }
}

/// Prints the names, each followed by a colon.
impl fmt::Display for NotReadyNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, &self.names)
    }
}
