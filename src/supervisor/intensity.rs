//! How often children may be restarted, as a plain function of the time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Exit;

/// The restarts within a sliding window of time.
pub(super) struct RestartWindow {
    most: usize,
    length: Duration,
    restarts: VecDeque<(Instant, Restarted)>,
}

/// The id of a child, and how the child had ended.
type Restarted = (Arc<str>, Exit);

impl RestartWindow {
    pub(super) fn new(most: usize, length: Duration) -> RestartWindow {
        RestartWindow { most, length, restarts: VecDeque::new() }
    }

    /// Whether the window can never contain a restart.
    pub(super) fn is_empty(&self) -> bool {
        self.length.is_zero()
    }

    /// Counts a restart. If there are too many within the window, returns all of them, oldest first.
    ///
    /// The window is half open: it does not contain a restart that is exactly as old as the window is long.
    pub(super) fn count(&mut self, now: Instant, id: &Arc<str>, exit: &Exit) -> Option<Vec<Restarted>> {
        // With this limit there are never too many. Recording them all would take unlimited memory.
        if self.most == usize::MAX {
            return None;
        }
        self.restarts.push_back((now, (id.clone(), exit.clone())));
        let length = self.length;
        while self.restarts.pop_front_if(|(then, _)| now.saturating_duration_since(*then) >= length).is_some() {}
        (self.restarts.len() > self.most).then(|| self.restarts.drain(..).map(|(_, restarted)| restarted).collect())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn count(window: &mut RestartWindow, now: Instant, id: &str) -> Option<Vec<String>> {
        let restarts = window.count(now, &id.into(), &Exit::Done(()))?;
        Some(restarts.iter().map(|(id, _)| id.to_string()).collect())
    }

    #[test]
    fn exactly_as_many_as_may_happen_are_not_too_many_and_one_more_is() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut window = RestartWindow::new(3, 10 * second);
        for (id, then) in [("1", now), ("2", now), ("3", now + 9 * second)] {
            assert_eq!(count(&mut window, then, id), None);
        }
        assert_eq!(count(&mut window, now + 9 * second, "4").unwrap(), ["1", "2", "3", "4"]);
    }

    #[test]
    fn a_rate_that_stays_below_never_is_too_much_however_long_it_goes_on() {
        let (mut now, second) = (Instant::now(), Duration::from_secs(1));
        let mut window = RestartWindow::new(3, 9 * second);
        for _ in 0..100_000 {
            now += 3 * second;
            assert_eq!(count(&mut window, now, "a"), None, "three in nine seconds, for ever");
        }
        assert!(window.restarts.len() <= 3, "and nothing is remembered for longer than the window");
        assert!(count(&mut window, now + second, "a").is_some(), "a little faster is too fast");
    }

    #[test]
    fn where_none_are_too_many_none_are_remembered() {
        let now = Instant::now();
        let mut window = RestartWindow::new(usize::MAX, Duration::MAX);
        assert!((0..1_000).all(|_| count(&mut window, now, "a").is_none()));
        assert!(window.restarts.is_empty());
    }
}
