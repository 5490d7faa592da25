//! Why a scheduler refuses or cannot do something.

use std::fmt;

use super::info::{TaskId, TaskInfo};
use crate::inside::WaitError;
use crate::pool::{PoolEndError, PoolError};

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

/// Why a record was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// There is no record of a task with this number: there never was, or it was removed.
    #[error("there is no task {0}")]
    Unknown(TaskId),
    /// The task is scheduled or running.
    #[error("task {0} is not over")]
    NotFinished(TaskId),
}

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
    /// The end of the scheduler's own pool was not over, although all closures have returned: a waker or a destructor on one of
    /// its threads has not returned.
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
    let name = |task: &TaskInfo| match &task.name {
        Some(name) => format!("{} ({name})", task.id),
        None => task.id.to_string(),
    };
    tasks.iter().map(name).collect::<Vec<_>>().join(", ")
}
