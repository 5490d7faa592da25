//! Options of a task, and how long its record is kept.

use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::primitives::Arc;

/// How long the record of an ended task can be looked up.
///
/// A record is always kept until its task has ended and its handle is dropped. The retention applies after both events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// The record is removed at once.
    #[default]
    WithHandle,
    /// The record is kept until [`TaskScheduler::remove`](super::TaskScheduler::remove) removes it.
    UntilRemoved,
    /// The record is kept for this long after the task's end. It can be removed earlier.
    For(Duration),
    /// Up to this number of records with the same retention are kept.
    ///
    /// They are the newest: those to which the retention began to apply last. A record can be removed earlier.
    Newest(usize),
}

/// Options of a task. By default, a task has no timeout, no delay and no name.
///
/// ```
/// use procession::task::{Retention, TaskOptions, TaskScheduler};
/// use std::time::Duration;
///
/// let tasks = TaskScheduler::new();
/// let options = TaskOptions::new().name("backup").timeout(Duration::from_secs(60)).retention(Retention::UntilRemoved);
/// let backup = tasks.submit_with(options, |cancel| {
///     cancel.check()?;
///     Ok::<_, procession::Reason>("backed up")
/// })?;
/// assert_eq!(backup.wait()?.output(), Some(&"backed up"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TaskOptions {
    pub(super) name: Option<Arc<str>>,
    pub(super) timeout: Option<Duration>,
    pub(super) start_by: Option<Instant>,
    pub(super) start_timeout: Option<Duration>,
    pub(super) delay: Option<Duration>,
    pub(super) retention: Option<Retention>,
    pub(super) under: Option<CancelToken>,
}

impl TaskOptions {
    /// Returns the default options.
    pub fn new() -> TaskOptions {
        TaskOptions::default()
    }

    /// Sets the task's name for lists and messages. Several tasks may have the same name.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> TaskOptions {
        self.name = Some(name.into());
        self
    }

    /// Sets how long the closure may run, measured from its call.
    ///
    /// If the closure runs longer, the task is `TimedOut`. With [`Duration::ZERO`] the task times out at once, and its
    /// closure is not called. With [`Duration::MAX`] it never times out.
    pub fn timeout(mut self, limit: Duration) -> TaskOptions {
        self.timeout = Some(limit);
        self
    }

    /// Sets the moment by which the closure must be called, by the scheduler's clock.
    ///
    /// If the closure has not been called by then, the task is `TimedOut`, and the closure is never called.
    pub fn start_by(mut self, moment: Instant) -> TaskOptions {
        self.start_by = Some(moment);
        self
    }

    /// As [`start_by`](Self::start_by), but measured from the submission.
    ///
    /// If both are set, the earlier moment counts.
    pub fn start_timeout(mut self, limit: Duration) -> TaskOptions {
        self.start_timeout = Some(limit);
        self
    }

    /// Sets the delay between the submission and the hand-over to the pool.
    ///
    /// During the delay the task is `Scheduled`, and can be cancelled like any other. With [`Duration::MAX`] the task
    /// never begins.
    pub fn after(mut self, delay: Duration) -> TaskOptions {
        self.delay = Some(delay);
        self
    }

    /// Sets how long the task's record can be looked up. The default is the scheduler's
    /// ([`TaskSchedulerBuilder::retention`](super::TaskSchedulerBuilder::retention)).
    pub fn retention(mut self, retention: Retention) -> TaskOptions {
        self.retention = Some(retention);
        self
    }

    /// Cancels the task when this token is cancelled, with the token's reason.
    ///
    /// So one call can cancel many tasks. A closure can also pass its own token to the tasks that it submits.
    pub fn under(mut self, cancel: &CancelToken) -> TaskOptions {
        self.under = Some(cancel.clone());
        self
    }
}
