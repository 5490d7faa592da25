//! Options of a durable process that is begun.

use std::time::Duration;

/// Options for [`Store::begin_with`](super::Store::begin_with).
///
/// ```
/// use std::time::Duration;
/// use procession::durable::BeginOptions;
///
/// let options = BeginOptions::new().deadline(Duration::from_secs(30 * 24 * 60 * 60));
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until something is begun with them"]
pub struct BeginOptions {
    pub(super) deadline: Option<Duration>,
}

impl BeginOptions {
    /// The default options.
    pub fn new() -> BeginOptions {
        BeginOptions::default()
    }

    /// Asks the process to stop when this time has passed. The process gets one `Event::Cancel` with
    /// [`Reason::TimedOut`](crate::Reason::TimedOut). The deadline is stored. Between runs, the time is measured by the
    /// wall clock.
    pub fn deadline(mut self, limit: Duration) -> BeginOptions {
        self.deadline = Some(limit);
        self
    }
}
