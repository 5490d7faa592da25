//! What a scheduler counts, and why it says no.

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

/// There is no record of a task with this number (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no task {0}")]
pub struct UnknownTask(pub TaskId);

/// These closures had not returned when the call did. Their tasks are over.
#[derive(Debug, thiserror::Error)]
#[error("{why}: {} closures have not returned: {}", .tasks.len(), names(.tasks))]
pub struct Unreturned {
    /// Why the call has returned: the limit was over, or the caller is a step, which does not wait.
    pub why: WaitError,
    /// The tasks whose closures are still running, in the order of their submission.
    pub tasks: Vec<TaskInfo>,
}

fn names(tasks: &[TaskInfo]) -> String {
    let name = |task: &TaskInfo| match &task.name {
        Some(name) => format!("{} ({name})", task.id),
        None => task.id.to_string(),
    };
    tasks.iter().map(name).collect::<Vec<_>>().join(", ")
}
