//! Errors that come through the tree: with the names on their way, and the original within.

use std::error::Error;
use std::fmt;

use crate::outcome::{BoxError, Failure};
use crate::sync::Arc;

/// The names on the way from where one looks to where something is, outermost first.
pub(super) type Names = Vec<Arc<str>>;

pub(super) fn write_names(f: &mut fmt::Formatter<'_>, names: &[Arc<str>]) -> fmt::Result {
    names.iter().try_for_each(|name| write!(f, "{name}: "))
}

/// An error of a node, as it is seen from the state that was asked. It reads `outer: inner: cause`; the source is the
/// original error, which can also be had in its own type.
#[derive(Clone)]
pub struct StateError {
    names: Names,
    failure: Failure,
}

impl StateError {
    pub(super) fn new(names: Names, failure: Failure) -> StateError {
        StateError { names, failure }
    }

    /// As it is seen from further above.
    pub(super) fn below(mut self, mut names: Names) -> StateError {
        names.append(&mut self.names);
        StateError { names, failure: self.failure }
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

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, &self.names)?;
        fmt::Display::fmt(self.error(), f)
    }
}

impl fmt::Debug for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateError").field("names", &self.names).field("error", &self.failure).finish()
    }
}

impl Error for StateError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.error())
    }
}

/// An error with a sentence before it: `text: cause`. Its source is the cause.
#[derive(Debug)]
pub(super) struct Because {
    pub(super) text: String,
    pub(super) cause: BoxError,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.text, self.cause)
    }
}

impl Error for Because {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}

/// The tail of a job was dropped while its thread was unwinding: the job has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the job panicked")]
pub struct JobPanicked;

/// Why a state was not taken into a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// The group has been closed.
    #[error("the group is closed")]
    Closed,
    /// The group is the state, or is below it: each would wait for the other.
    #[error("the group is below the state, and would close after itself")]
    Cycle,
}
