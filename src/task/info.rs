//! Snapshots of a task and of a scheduler: number, status, times and counts.

use std::fmt;
use std::time::{Duration, Instant};

use crate::outcome::Exit;
use crate::primitives::Arc;

/// The number of a task. A [`TaskScheduler`](super::TaskScheduler) never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub(super) u64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The stage of a task's life. A task never goes back to an earlier stage.
///
/// A task is first `Scheduled`. If its closure is called, it is then `Running`. Its last stage is one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The task is accepted. Its closure has not been called.
    Scheduled,
    /// The task's closure has been called.
    Running,
    /// The task had not ended when the scheduler was stopped.
    Stopped,
    /// The task was cancelled.
    Cancelled,
    /// The task's closure has returned a value or an error, or has panicked.
    Completed,
    /// The closure ran longer than the task's timeout, or was not called in time.
    TimedOut,
}

impl Status {
    /// Whether the status is final: `Stopped`, `Cancelled`, `Completed` or `TimedOut`.
    pub fn is_finished(self) -> bool {
        !matches!(self, Status::Scheduled | Status::Running)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// A snapshot of a task. It does not change when the task does.
///
/// `{}` prints one line with the task's number, name, status, output and error. `{:#}` prints several lines, also with
/// the times, and leaves out the parts that the task does not have. The snapshot does not hold the output, so it prints
/// the output's type instead. A [`TaskHandle`](super::TaskHandle) prints the output itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskInfo {
    /// The task's number.
    pub id: TaskId,
    /// The task's name, if it has one.
    pub name: Option<Arc<str>>,
    /// The stage of the task's life.
    pub status: Status,
    /// The task's exit, if it has ended. The closure's error is given as text.
    pub exit: Option<Exit<(), Arc<str>>>,
    /// When the task was submitted.
    pub submitted: Instant,
    /// When the task's closure was called.
    pub started: Option<Instant>,
    /// When the task ended.
    pub ended: Option<Instant>,
    /// The type of the task's output.
    pub output_type: &'static str,
}

impl TaskInfo {
    /// The snapshot of a task that is accepted now.
    pub(super) fn scheduled(id: TaskId, name: Option<Arc<str>>, now: Instant, output_type: &'static str) -> TaskInfo {
        let status = Status::Scheduled;
        TaskInfo { id, name, status, exit: None, submitted: now, started: None, ended: None, output_type }
    }

    /// The text of the task's error, if it ended with one. This is the closure's own error, the message of its panic,
    /// or the reason why the task was ended.
    pub fn error(&self) -> Option<String> {
        match self.exit.as_ref()? {
            Exit::Done(()) => None,
            Exit::Failed(error) => Some(error.to_string()),
            Exit::Panicked(panic) => Some(panic.to_string()),
            Exit::Terminated(reason) => Some(reason.to_string()),
        }
    }

    /// How long the task waited until its closure was called. `None` if the closure was not called.
    pub fn waited(&self) -> Option<Duration> {
        Some(self.started?.saturating_duration_since(self.submitted))
    }

    /// The time between the call of the closure and the end of the task. `None` unless both have happened.
    pub fn ran(&self) -> Option<Duration> {
        Some(self.ended?.saturating_duration_since(self.started?))
    }

    /// The number, and the name if there is one.
    pub(super) fn label(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name})"));
        format!("{}{}", self.id, name.unwrap_or_default())
    }

    /// Writes the text forms, with `output` as the text of the output.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>, output: Option<&str>) -> fmt::Result {
        let output = match self.exit {
            Some(Exit::Done(())) => output.map(String::from).or_else(|| Some(format!("<{}>", self.output_type))),
            _ => None,
        };
        if !f.alternate() {
            let or_none = |text: Option<String>| text.unwrap_or_else(|| String::from("none"));
            let (output, error) = (or_none(output), or_none(self.error()));
            return write!(f, "task {}: {}, output: {output}, error: {error}", self.label(), self.status);
        }
        let time = |time: Option<Duration>| time.map(|time| format!("{time:?}"));
        let lines = [
            ("name", self.name.as_deref().map(String::from)),
            ("status", Some(self.status.to_string())),
            ("waited", time(self.waited())),
            ("ran", time(self.ran())),
            ("output", output),
            ("error", self.error()),
        ];
        write!(f, "task {}", self.id)?;
        for (label, text) in lines {
            if let Some(text) = text {
                write!(f, "\n  {label}: {text}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for TaskInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, None)
    }
}

/// Counts of a [`TaskScheduler`](super::TaskScheduler), all taken at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct TaskStats {
    /// All tasks that were ever accepted: the sum of the next six counts.
    pub submitted: u64,
    /// Tasks whose closure has not been called yet.
    pub scheduled: u64,
    /// Tasks whose closure has been called and that have not ended.
    pub running: u64,
    /// Tasks whose closure has returned or panicked.
    pub completed: u64,
    /// Tasks that were cancelled.
    pub cancelled: u64,
    /// Tasks that timed out.
    pub timed_out: u64,
    /// Tasks that were stopped with the scheduler.
    pub stopped: u64,
    /// Closures that still run although their tasks have ended. Each occupies a thread of the pool.
    pub abandoned: usize,
    /// Records that can be looked up.
    pub records: usize,
    /// Pending timers: for delays, for limits, and for records that are kept for a time.
    pub timers: usize,
}

impl TaskStats {
    /// The tasks that have ended.
    pub(super) fn over(&self) -> u64 {
        self.completed + self.cancelled + self.timed_out + self.stopped
    }
}
