//! Snapshots of a task and of a scheduler: number, status, times, counts.

use std::fmt;
use std::time::{Duration, Instant};

use crate::outcome::Exit;
use crate::primitives::Arc;

/// Names a task of one [`TaskScheduler`](super::TaskScheduler), which never gives the same number to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(super) u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({})", self.0)
    }
}

/// Where a task is in its life. It goes forward only: from `Scheduled` to `Running` to one of the others, or from
/// `Scheduled` straight to one of the others; and there it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// It is accepted, and its closure has not been called.
    Scheduled,
    /// Its closure has been called.
    Running,
    /// It was not over when the scheduler was stopped.
    Stopped,
    /// It was cancelled.
    Cancelled,
    /// Its closure has returned a value or an error, or has panicked.
    Completed,
    /// Its time was over, for its work or for its beginning.
    TimedOut,
}

impl Status {
    /// Whether it is an end, which never changes: it is `Stopped`, `Cancelled`, `Completed` or `TimedOut`.
    pub fn is_finished(self) -> bool {
        !matches!(self, Status::Scheduled | Status::Running)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Status::Scheduled => "Scheduled",
            Status::Running => "Running",
            Status::Stopped => "Stopped",
            Status::Cancelled => "Cancelled",
            Status::Completed => "Completed",
            Status::TimedOut => "TimedOut",
        })
    }
}

/// A snapshot of a task. Changing it changes nothing of the task, and it does not change by itself.
///
/// Printed with `{}` it is one line with number, status, output and error; with `{:#}` it is several, with times, and
/// with output or error only if the task is over. The output itself is known to the handle alone, which prints it
/// ([`TaskHandle`](super::TaskHandle)); here its type stands for it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// Its number.
    pub id: TaskId,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Where it is in its life.
    pub status: Status,
    /// How it ended, if it is over; the closure's error as its text.
    pub exit: Option<Exit<(), Arc<str>>>,
    /// When it was submitted.
    pub submitted: Instant,
    /// When its closure was called.
    pub started: Option<Instant>,
    /// When it was over.
    pub ended: Option<Instant>,
    /// The type of its output.
    pub output_type: &'static str,
}

impl TaskInfo {
    /// The text of the error with which it ended, if it did: the closure's own error, what its panic said, or why it was
    /// ended.
    pub fn error(&self) -> Option<String> {
        match self.exit.as_ref()? {
            Exit::Done(()) => None,
            Exit::Failed(error) => Some(error.to_string()),
            Exit::Panicked(panic) => Some(panic.to_string()),
            Exit::Terminated(reason) => Some(reason.to_string()),
        }
    }

    /// How long it has waited for its closure to be called, if it was.
    pub fn waited(&self) -> Option<Duration> {
        Some(self.started?.saturating_duration_since(self.submitted))
    }

    /// How long its closure ran until the task was over, if both have happened.
    pub fn ran(&self) -> Option<Duration> {
        Some(self.ended?.saturating_duration_since(self.started?))
    }

    /// The text forms, with this text for an output.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, output: Option<&str>) -> fmt::Result {
        let output = match self.exit {
            Some(Exit::Done(())) => output.map(String::from).or_else(|| Some(format!("<{}>", self.output_type))),
            _ => None,
        };
        if f.alternate() { self.write_long(f, output) } else { self.write_short(f, output) }
    }

    fn write_short(&self, f: &mut fmt::Formatter<'_>, output: Option<String>) -> fmt::Result {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| String::from("none"));
        write!(f, "task {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, " ({name})")?;
        }
        write!(f, ": {}, output: {}, error: {}", self.status, or_none(output), or_none(self.error()))
    }

    fn write_long(&self, f: &mut fmt::Formatter<'_>, output: Option<String>) -> fmt::Result {
        write!(f, "task {}", self.id)?;
        if let Some(name) = &self.name {
            write!(f, "\n  name: {name}")?;
        }
        write!(f, "\n  status: {}", self.status)?;
        if let Some(waited) = self.waited() {
            write!(f, "\n  waited: {waited:?}")?;
        }
        if let Some(ran) = self.ran() {
            write!(f, "\n  ran: {ran:?}")?;
        }
        if let Some(output) = output {
            write!(f, "\n  output: {output}")?;
        }
        match self.error() {
            Some(error) => write!(f, "\n  error: {error}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

/// Counts of a [`TaskScheduler`](super::TaskScheduler), all of one moment.
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
