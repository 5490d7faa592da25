//! The options of the figures by type.

use std::ops::RangeInclusive;

/// The default of [`MetricsOptions::time_one_in`].
const TIME_ONE_IN: usize = 16;

/// The values that [`MetricsOptions::time_one_in`] allows.
pub(super) const TIME_ONE_IN_RANGE: RangeInclusive<usize> = 1..=1 << 20;

/// The default of [`MetricsOptions::wait_one_in`].
const WAIT_ONE_IN: usize = 128;

/// The values that [`MetricsOptions::wait_one_in`] allows.
pub(super) const WAIT_ONE_IN_RANGE: RangeInclusive<usize> = 0..=1 << 20;

/// Options of the figures that a runtime collects by type of process.
///
/// Pass them to [`RuntimeBuilder::metrics`](crate::config::RuntimeBuilder::metrics).
/// [`Runtime::snapshot`](crate::Runtime::snapshot) returns the figures.
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are given to a builder"]
pub struct MetricsOptions {
    pub(super) time_one_in: usize,
    pub(super) wait_one_in: usize,
}

impl MetricsOptions {
    /// The default options.
    pub fn new() -> MetricsOptions {
        MetricsOptions { time_one_in: TIME_ONE_IN, wait_one_in: WAIT_ONE_IN }
    }

    /// Measures the time of one step in this many, on average: 1 to 1,048,576. The default is 16. With 1 each step is
    /// timed, which costs two readings of the clock for each.
    pub fn time_one_in(mut self, steps: usize) -> MetricsOptions {
        self.time_one_in = steps;
        self
    }

    /// Measures how long one message in this many has waited, on average: up to 1,048,576. The default is 128. With 1
    /// each message is measured, which costs two readings of the clock and some allocations for each. With 0 none is.
    pub fn wait_one_in(mut self, messages: usize) -> MetricsOptions {
        self.wait_one_in = messages;
        self
    }
}

impl Default for MetricsOptions {
    fn default() -> MetricsOptions {
        MetricsOptions::new()
    }
}
