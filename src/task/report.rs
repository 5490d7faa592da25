//! What a scheduler counts, and why it says no.

use std::fmt;

use super::status::{TaskId, TaskInfo};
use crate::inside::WaitError;
use crate::pool::PoolError;

/// Counts of a [`TaskScheduler`](super::Tasks), all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskStats {
    /// Tasks ever accepted: those of the next six together.
    pub submitted: u64,
    /// Tasks whose closure has not been called yet.
    pub scheduled: u64,
    /// Tasks whose closure has been called, and that are not over.
    pub running: u64,
    /// Tasks whose closure has returned or panicked.
    pub completed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Tasks whose time was over.
    pub timed_out: u64,
    /// Tasks that were stopped with the scheduler.
    pub stopped: u64,
    /// Closures that have not returned though their tasks are over. Each still has its thread of the pool.
    pub abandoned: usize,
    /// Records that can be looked up.
    pub records: usize,
    /// Timers that are pending: for delays, for limits, and for records that are kept for a time.
    pub timers: usize,
}

/// Why a task was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The scheduler has been stopped.
    #[error("the scheduler has been stopped")]
    Stopped,
    /// The pool did not take it.
    #[error(transparent)]
    Pool(PoolError),
    /// It needs a timer, and there is no thread for it.
    #[error("the timers' thread cannot be started: {0}")]
    NoThread(#[source] std::io::Error),
}

/// There is no record of a task with this number: there never was, or it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no task {0}")]
pub struct UnknownTaskError(pub TaskId);

/// A scheduler has been stopped, and user code of its tasks had not returned when the call did. The tasks are over.
#[derive(Debug)]
pub struct StopError {
    /// Why the call has returned: the limit was over, or the caller must not wait.
    pub why: WaitError,
    /// The tasks whose closures are still running, in the order of their submission.
    pub tasks: Vec<TaskInfo>,
    /// The tasks of which a waker, a callback or a destructor has not returned. There is one for each call that has stopped the
    /// scheduler. What comes after it may not have been called or dropped.
    pub clearing: Vec<TaskInfo>,
}

impl std::error::Error for StopError {}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        if !self.tasks.is_empty() {
            write!(f, ": {} closures have not returned: {}", self.tasks.len(), names(&self.tasks))?;
        }
        if !self.clearing.is_empty() {
            write!(f, ": a waker, a callback or a destructor of task {} has not returned", names(&self.clearing))?;
        }
        Ok(())
    }
}

fn names(tasks: &[TaskInfo]) -> String {
    let name = |task: &TaskInfo| match &task.name {
        Some(name) => format!("{} ({name})", task.id),
        None => task.id.to_string(),
    };
    tasks.iter().map(name).collect::<Vec<_>>().join(", ")
}
