//! How large a pool and its queue may be.

use std::time::Duration;

use crate::threads;

/// How many jobs may wait, and what happens to one more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// Any number of jobs may wait.
    #[default]
    Unbounded,
    /// At most so many jobs wait. The submitter of one more waits for room; submitters get room in the order in which they
    /// came. With 0 a job is only ever given to an idle worker, or to a new one.
    ///
    /// A job of the pool never waits for room in its own pool, for the room might be its own to make: it is refused with
    /// [`PoolError::Full`](super::PoolError::Full). A step of a process does not wait either: it is refused with
    /// [`PoolError::InsideStep`](super::PoolError::InsideStep).
    Block(usize),
    /// At most so many jobs wait. One more is refused with [`PoolError::Full`](super::PoolError::Full).
    Reject(usize),
}

impl QueuePolicy {
    /// The most jobs that may wait beyond those that a worker is free for.
    pub(super) fn bound(self) -> Option<usize> {
        match self {
            QueuePolicy::Unbounded => None,
            QueuePolicy::Block(bound) | QueuePolicy::Reject(bound) => Some(bound),
        }
    }
}

/// An option of a pool is out of range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolBuildError {
    /// There would be no thread.
    #[error("a pool needs at least one thread: `max` is {given}")]
    Max {
        /// The maximum that was given.
        given: usize,
    },
    /// The minimum is above the maximum.
    #[error("a pool cannot keep more threads than it may have: `min` is {min}, and `max` is {max}")]
    Min {
        /// The minimum that was given.
        min: usize,
        /// The maximum beside it.
        max: usize,
    },
    /// The name has a NUL in it, which no name of a thread can have.
    #[error("no thread can be called {given:?}")]
    Name {
        /// The name that was given.
        given: String,
    },
    /// No memory is so large.
    #[error("no thread can have a stack of {given} bytes")]
    StackSize {
        /// The size that was given.
        given: usize,
    },
}

/// The limits that the ledger keeps to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) queue: QueuePolicy,
    /// Without one the pool never shrinks.
    pub(super) idle_period: Option<Duration>,
}

pub(super) fn check_size(min: usize, max: usize) -> Result<(), PoolBuildError> {
    match (min, max) {
        (_, 0) => Err(PoolBuildError::Max { given: 0 }),
        (min, max) if min > max => Err(PoolBuildError::Min { min, max }),
        _ => Ok(()),
    }
}

pub(super) fn check_thread(name: &str, stack_size: Option<usize>) -> Result<(), PoolBuildError> {
    if !threads::is_name(name) {
        return Err(PoolBuildError::Name { given: name.to_owned() });
    }
    // The operating system rounds the size up to whole pages, and the result must still be a size.
    match stack_size {
        Some(given) if given > isize::MAX as usize => Err(PoolBuildError::StackSize { given }),
        _ => Ok(()),
    }
}
