//! The wall clock of a run.

use std::time::{Duration, Instant, SystemTime};

use crate::primitives::OnceLock;

/// The wall-clock time in one run. It is read once. From then on it moves with the clock of the runtime. So no timer of
/// the run moves if the system's clock is set.
#[derive(Debug, Default)]
pub(super) struct WallClock {
    /// The first moment, and the time since 1970 then.
    begin: OnceLock<(Instant, Duration)>,
}

impl WallClock {
    /// The time of this moment in milliseconds since 1970. `read` returns the time of the system.
    pub(super) fn millis(&self, now: Instant, read: impl FnOnce() -> SystemTime) -> u64 {
        let first = || (now, read().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
        let (begin, since) = *self.begin.get_or_init(first);
        // Another thread may have been the first, a little later than this moment.
        since.saturating_add(now.saturating_duration_since(begin)).as_millis() as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::Clock;

    #[test]
    fn a_system_clock_that_is_set_moves_no_time_of_a_run() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let (wall, start) = (WallClock::default(), Clock::system().now());
        let system = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_000);
        assert_eq!(wall.millis(start, || system), 1_700_000_000_000);
        for set in [system + HOUR, system - HOUR] {
            for seconds in [0, 1, 7_200] {
                let now = start + Duration::from_secs(seconds);
                assert_eq!(wall.millis(now, || set), 1_700_000_000_000 + 1_000 * seconds);
            }
        }
        // The next run reads it again.
        assert_eq!(WallClock::default().millis(start, || system + HOUR), 1_700_003_600_000);
    }
}
