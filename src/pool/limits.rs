//! Limits of a pool and of its queue, and the errors of a pool.

use std::io;
use std::time::Duration;

use super::stats::PoolStatus;
use crate::threads;

/// How many jobs may wait in a queue, and what happens when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueuePolicy {
    /// Any number of jobs may wait.
    #[default]
    Unbounded,
    /// At most this many jobs wait. If the queue is full, a submitter waits for room. Submitters get room in the order
    /// of their calls. With 0, the pool accepts a job only if an idle worker or a new one can run it at once.
    ///
    /// A job never waits for room in its own pool, because that room might exist only after the job has ended. Its
    /// submission is refused with [`PoolError::Full`]. A step of a process does not wait either. Its submission is
    /// refused with [`PoolError::InsideStep`].
    Block(usize),
    /// At most this many jobs wait. If the queue is full, a submission is refused with [`PoolError::Full`].
    Reject(usize),
}

impl QueuePolicy {
    /// The most jobs that may wait in excess of free workers.
    pub(super) fn bound(self) -> Option<usize> {
        match self {
            QueuePolicy::Unbounded => None,
            QueuePolicy::Block(bound) | QueuePolicy::Reject(bound) => Some(bound),
        }
    }
}

/// The reason why a pool refused a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The pool drains or has been stopped.
    #[error("the pool accepts no more jobs: it is {0:?}")]
    Stopped(PoolStatus),
    /// The queue is full: see [`QueuePolicy`].
    #[error("the pool's queue is full")]
    Full,
    /// The caller is a step of a process. The call would have blocked the worker that runs the step.
    #[error("a step cannot wait for a pool, for it would block its worker: yield the job as blocking work")]
    InsideStep,
    /// The pool had no thread, and the operating system provided none.
    #[error("the pool cannot start a thread: {0}")]
    NoThread(#[source] io::Error),
}

/// A pool option is out of range.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolBuildError {
    /// The maximum is zero.
    #[error("a pool needs at least one thread: `max` is {given}")]
    Max {
        /// The given maximum.
        given: usize,
    },
    /// The minimum is above the maximum.
    #[error("a pool cannot keep more threads than it may have: `min` is {min}, and `max` is {max}")]
    Min {
        /// The given minimum.
        min: usize,
        /// The given maximum.
        max: usize,
    },
    /// The name contains a NUL, which a thread's name cannot have.
    #[error("no thread can be called {given:?}")]
    Name {
        /// The given name.
        given: String,
    },
    /// The stack size exceeds `isize::MAX` bytes.
    #[error("no thread can have a stack of {given} bytes")]
    StackSize {
        /// The given size in bytes.
        given: usize,
    },
}

/// The limits that the ledger enforces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) queue: QueuePolicy,
    /// With `None` the pool never shrinks.
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
    // The operating system rounds the size up to whole pages. The result must still be a `usize`.
    match stack_size {
        Some(given) if given > isize::MAX as usize => Err(PoolBuildError::StackSize { given }),
        _ => Ok(()),
    }
}
