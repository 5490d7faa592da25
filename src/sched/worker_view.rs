//! A worker, as other threads see it.

use super::counters::Counters;
use crate::primitives::{AtomicBool, AtomicU64};
use crate::process::step_activity::Sight;

/// A worker, as other threads see it.
pub(crate) struct WorkerView {
    pub(crate) counters: Counters,
    /// The PID of the process that it steps, in one word, or 0.
    pub(crate) current: AtomicU64,
    /// When the step began, in nanoseconds since the start of the runtime.
    pub(crate) since: AtomicU64,
    pub(crate) pulse: Pulse,
}

/// Shows the watchdog whether a worker makes progress. Only a watched worker writes it.
pub(crate) struct Pulse {
    /// A number that is odd while a step and its follow-up run, and different for each.
    pub(crate) beat: AtomicU64,
    /// Whether the step with this beat was reported. Then its end is reported, too.
    pub(crate) reported: AtomicBool,
    pub(crate) sight: Sight,
}

impl WorkerView {
    pub(crate) fn new() -> WorkerView {
        let pulse = Pulse { beat: AtomicU64::new(0), reported: AtomicBool::new(false), sight: Sight::new() };
        WorkerView { counters: Counters::default(), current: AtomicU64::new(0), since: AtomicU64::new(0), pulse }
    }
}
