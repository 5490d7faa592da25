//! The errors of a scheduler.

use std::fmt;

use super::info::{TaskId, TaskInfo};
use crate::inside::WaitError;
use crate::pool::{PoolEndError, PoolError};

/// The reason why a task was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The scheduler has been stopped.
    #[error("the scheduler has been stopped")]
    Stopped,
    /// The pool refused the task.
    #[error(transparent)]
    Pool(PoolError),
    /// The task needs a timer, and the timers' thread could not be started.
    #[error("the timers' thread cannot be started: {0}")]
    NoThread(#[source] std::io::Error),
}

/// No task with this number has a record. There never was one, or it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no task {0}")]
pub struct UnknownTaskError(pub TaskId);

/// The reason why a record was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// No task with this number has a record. There never was one, or it was removed.
    #[error("there is no task {0}")]
    Unknown(TaskId),
    /// The task is scheduled or running.
    #[error("task {0} is not over")]
    NotFinished(TaskId),
}

/// The scheduler is stopped, but user code of its tasks has not returned.
///
/// All tasks have ended.
#[derive(Debug)]
pub struct StopError {
    /// The reason why the call returned: the limit passed, or the caller must not wait.
    pub why: WaitError,
    /// The tasks whose closures still run, in the order of their submission.
    pub tasks: Vec<TaskInfo>,
    /// The tasks of which a waker, a callback or a destructor has not returned.
    ///
    /// Each call that stopped the scheduler adds at most one task. User code that was to run after it may not have run
    /// yet.
    pub clearing: Vec<TaskInfo>,
    /// The error of the scheduler's own pool, if only the pool has not ended.
    ///
    /// All closures have returned, but a waker or a destructor on one of the pool's threads has not.
    pub pool: Option<PoolEndError>,
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
        if let Some(pool) = &self.pool {
            write!(f, ": the scheduler's pool has not ended: {pool}")?;
        }
        Ok(())
    }
}

fn names(tasks: &[TaskInfo]) -> String {
    tasks.iter().map(TaskInfo::label).collect::<Vec<_>>().join(", ")
}
