//! How a task is to be done, and how long its record is to be kept.

use std::time::{Duration, Instant};

use crate::cancel::CancelToken;
use crate::primitives::Arc;

/// How long the record of a task can be looked up. It always can as long as the task is not over and as long as its
/// handle lives; this says how it goes on when both are past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Not at all: the handle was the only interest in it.
    #[default]
    WithHandle,
    /// Until it is removed.
    UntilRemoved,
    /// For so long after its end. (It can be removed before.)
    For(Duration),
    /// As one of so many: of those with this same rule, the ones that came to it last are kept. (They can be removed
    /// before.)
    Newest(usize),
}

/// Options of a task, each with its default: no timeout, begun as soon as a thread is free, without a name.
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
    pub(super) start_by: Option<StartBy>,
    pub(super) delay: Option<Duration>,
    pub(super) retention: Option<Retention>,
    pub(super) under: Option<CancelToken>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum StartBy {
    At(Instant),
    Within(Duration),
}

impl TaskOptions {
    /// The defaults.
    pub fn new() -> TaskOptions {
        TaskOptions::default()
    }

    /// A name, for lists and messages. Several tasks may have the same.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> TaskOptions {
        self.name = Some(name.into());
        self
    }

    /// How long the closure may run, from the moment at which it is called: then the task is `TimedOut`. With
    /// [`Duration::ZERO`] it is so at once, and the closure is not called; with [`Duration::MAX`] it never is.
    pub fn timeout(mut self, limit: Duration) -> TaskOptions {
        self.timeout = Some(limit);
        self
    }

    /// By when the closure has to be called, by the scheduler's clock: otherwise the task is `TimedOut`, and the closure
    /// is never called.
    pub fn start_by(mut self, moment: Instant) -> TaskOptions {
        self.start_by = Some(StartBy::At(moment));
        self
    }

    /// As [`start_by`](Self::start_by), from the submission on.
    pub fn start_timeout(mut self, limit: Duration) -> TaskOptions {
        self.start_by = Some(StartBy::Within(limit));
        self
    }

    /// How long after the submission it is given to the pool. Until then it is `Scheduled`, and can be cancelled like any
    /// other. With [`Duration::MAX`] it never is.
    pub fn after(mut self, delay: Duration) -> TaskOptions {
        self.delay = Some(delay);
        self
    }

    /// How long its record can be looked up; without this, as the scheduler was told
    /// ([`TaskSchedulerBuilder::retention`](super::TaskSchedulerBuilder::retention)).
    pub fn retention(mut self, retention: Retention) -> TaskOptions {
        self.retention = Some(retention);
        self
    }

    /// Has the task cancelled when this request is made, with its reason. So many can be cancelled with one call, and a
    /// task can hand its own request down to those that it submits.
    pub fn under(mut self, cancel: &CancelToken) -> TaskOptions {
        self.under = Some(cancel.clone());
        self
    }
}
