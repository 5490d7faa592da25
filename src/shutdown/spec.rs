//! What of a node never changes.

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
    /// Nothing at all.
    Empty,
    /// Several in one.
    Merge,
    /// Several in one, which come and go.
    Group,
    /// Background work that is told to end and says when it is done.
    Job,
    /// Work that is counted, and waited for.
    Counted,
    /// A node that says when it is ready.
    Readiness,
    /// An error, or none.
    Error,
    /// A place for errors.
    Errors,
    /// A value under a key.
    Value,
    /// A name for what is below.
    Annotation,
    /// A node that closes after those that it depends on.
    Dependency,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// What of a node never changes.
pub(super) struct NodeSpec {
    pub(super) kind: Kind,
    pub(super) name: Option<Arc<str>>,
    pub(super) clock: Clock,
    pub(super) value: Option<Stored>,
    pub(super) cancel_after: Option<Duration>,
    pub(super) give_up_after: Option<Duration>,
    /// What it waits for, in the user's words.
    pub(super) detail: Option<Box<dyn Fn() -> Option<String> + Send + Sync>>,
    /// Whether the calling thread is one that it waits for.
    pub(super) inside: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Neither it nor any node below it ever had anything to end.
    pub(super) is_inert: bool,
    /// It or a node below it has a value.
    pub(super) has_value: bool,
    /// It or a node below it is counted, or may come to be.
    pub(super) counts: bool,
}

impl NodeSpec {
    /// Runs code of the user's.
    pub(super) fn detail(&self) -> Option<String> {
        let detail = self.detail.as_ref()?;
        contain(detail).unwrap_or_else(|panic| Some(panic.to_string()))
    }

    /// Whether the calling thread is one that it waits for.
    pub(super) fn is_inside(&self) -> bool {
        self.inside.as_ref().is_some_and(|inside| contain(inside).unwrap_or(false))
    }

    pub(super) fn has_limits(&self) -> bool {
        self.cancel_after.is_some() || self.give_up_after.is_some()
    }
}
