//! The constant part of a node.

use std::fmt;
use std::time::Duration;

use super::key::Stored;
use crate::clock::Clock;
use crate::outcome::contain;
use crate::primitives::Arc;

/// The kind of a node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An empty node.
    Empty,
    /// One node of several others.
    Merge,
    /// A node to which others can be added while it runs.
    Group,
    /// Background work. It is told to end, and reports when it is done.
    Job,
    /// A node with a count. Threads can wait until the count is zero.
    Counted,
    /// A node with a guard that marks it as ready.
    Readiness,
    /// A node with an error, or without one.
    Error,
    /// A node whose error may be set later.
    Errors,
    /// A value under a key.
    Value,
    /// A name for the nodes below.
    Annotation,
    /// A node that closes after the nodes that it depends on.
    Dependency,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// The constant part of a node.
pub(super) struct NodeSpec {
    pub(super) kind: Kind,
    pub(super) name: Option<Arc<str>>,
    pub(super) clock: Clock,
    pub(super) value: Option<Stored>,
    pub(super) cancel_after: Option<Duration>,
    pub(super) give_up_after: Option<Duration>,
    /// Describes what the node waits for, in the user's words.
    pub(super) detail: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
    /// Whether the node waits for the calling thread.
    pub(super) inside: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Whether neither it nor any node below it ever had anything to end.
    pub(super) is_inert: bool,
    /// Whether it or a node below it has a value.
    pub(super) has_value: bool,
    /// Whether it or a node below it is counted, or may come to be.
    pub(super) counts: bool,
}

impl NodeSpec {
    /// Returns what the node waits for. Runs user code.
    pub(super) fn detail(&self) -> Option<String> {
        let detail = self.detail.as_ref()?;
        contain(detail).unwrap_or_else(|panic| Some(panic.to_string()))
    }

    /// Whether the node waits for the calling thread.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.as_ref().is_some_and(|inside| contain(inside).unwrap_or(false))
    }

    /// Whether a group removes the node when it has ended. A value that never had anything to end stays as long as the
    /// group, so that it can be found.
    pub(super) fn leaves_groups(&self) -> bool {
        !(self.is_inert && self.has_value)
    }

    pub(super) fn has_limits(&self) -> bool {
        self.cancel_after.is_some() || self.give_up_after.is_some()
    }
}
