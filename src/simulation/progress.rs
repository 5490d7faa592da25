//! The progress of a check: a line a second on a terminal, while it runs.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use super::coverage::Coverage;
use super::report::{counted, grouped};
use crate::clock::Clock;

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows how far a check is. A check that takes less than a second shows nothing.
#[derive(Debug)]
pub(crate) struct Progress {
    name: String,
    total: u64,
    clock: Clock,
    began: Instant,
    next: Instant,
    is_shown: bool,
}

impl Progress {
    /// Begins the check. It is shown if the standard error is a terminal.
    pub(crate) fn new(name: &str, total: u64) -> Progress {
        Progress::with_clock(name, total, Clock::system(), stderr().is_terminal())
    }

    fn with_clock(name: &str, total: u64, clock: Clock, is_shown: bool) -> Progress {
        let began = clock.now();
        Progress { name: name.into(), total, clock, began, next: began + INTERVAL, is_shown }
    }

    /// Shows how far the check is, if the last line is a second old.
    pub(crate) fn show(&mut self, coverage: &Coverage) {
        if let Some(line) = self.line(coverage) {
            // A terminal that is gone is no reason for a test to fail.
            let _ = writeln!(stderr(), "{line}");
        }
    }

    fn line(&mut self, coverage: &Coverage) -> Option<String> {
        if !self.is_shown {
            return None;
        }
        let now = self.clock.now();
        if now < self.next {
            return None;
        }
        self.next = now + INTERVAL;
        let (runs, total) = (grouped(coverage.runs()), grouped(self.total));
        let distinct = counted(coverage.distinct(), "distinct interleaving");
        let seconds = (now - self.began).as_secs();
        Some(format!("simulation `{}`: {runs} of {total} runs, {distinct}, {seconds} s", self.name))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn there_is_at_most_one_line_a_second() {
        let manual = ManualClock::new();
        let mut progress = Progress::with_clock("a", 10_000, manual.clock(), true);
        let mut coverage = Coverage::default();
        let mut lines = Vec::new();
        for run in 0..3_500 {
            coverage.count(run / 2);
            manual.advance(Duration::from_millis(1));
            lines.extend(progress.line(&coverage));
        }
        let expected = [
            "simulation `a`: 1,000 of 10,000 runs, 500 distinct interleavings, 1 s",
            "simulation `a`: 2,000 of 10,000 runs, 1,000 distinct interleavings, 2 s",
            "simulation `a`: 3,000 of 10,000 runs, 1,500 distinct interleavings, 3 s",
        ];
        assert_eq!(lines, expected);
        // After a long run there is one line, not one for each second.
        manual.advance(Duration::from_secs(60));
        assert!(progress.line(&coverage).is_some());
        assert_eq!(progress.line(&coverage), None);
    }

    #[test]
    fn nothing_is_shown_where_nobody_looks() {
        let manual = ManualClock::new();
        let mut progress = Progress::with_clock("a", 10, manual.clock(), false);
        manual.advance(Duration::from_secs(60));
        assert_eq!(progress.line(&Coverage::default()), None);
    }
}
