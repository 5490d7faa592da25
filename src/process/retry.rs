//! The plan by which a failed command is attempted again.

use std::time::Duration;

use super::command::CommandError;

/// When a failed command is attempted again: how often, after which pauses, and for how long.
///
/// It is plain data. Give it to [`StepOutput::retry`](super::StepOutput::retry). By default there are 5 attempts. The
/// first pause is 100 ms. Each pause is twice the one before, up to 30 s. Up to a half of each pause is taken off at
/// random. There is no limit for all attempts together.
///
/// These errors are always final, because another attempt would not change them: [`CommandError::Unknown`],
/// [`CommandError::WrongType`], [`CommandError::InsideStep`] and [`CommandError::Cancelled`].
///
/// ```
/// use procession::command::Retry;
/// use std::time::Duration;
///
/// let retry = Retry::new().first_pause(Duration::from_secs(1)).factor(3.0).cap(Duration::from_secs(5)).attempts(10);
/// let pauses: Vec<_> = (1..=3).map(|failures| retry.pause(failures).as_secs()).collect();
/// assert_eq!(pauses, [1, 3, 5]);
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "this does nothing until something is retried with it"]
pub struct Retry {
    first: Duration,
    factor: f64,
    cap: Duration,
    jitter: f64,
    attempts: u32,
    total_time: Duration,
    is_final: fn(&CommandError) -> bool,
}

impl Retry {
    /// Returns the default: 5 attempts, with pauses from 100 ms to 30 s.
    pub const fn new() -> Retry {
        Retry {
            first: Duration::from_millis(100),
            factor: 2.0,
            cap: Duration::from_secs(30),
            jitter: 0.5,
            attempts: 5,
            total_time: Duration::MAX,
            is_final: |_| false,
        }
    }

    /// Sets the pause after the first failure.
    pub const fn first_pause(mut self, pause: Duration) -> Retry {
        self.first = pause;
        self
    }

    /// Sets the factor between a pause and the next one. With 1, all pauses are the same. A factor below 1 counts as 1.
    pub const fn factor(mut self, factor: f64) -> Retry {
        self.factor = factor.max(1.0);
        self
    }

    /// Sets the longest pause.
    pub const fn cap(mut self, longest: Duration) -> Retry {
        self.cap = longest;
        self
    }

    /// Makes each pause shorter by a random part of it, which is at most `part`: a number from 0 to 1. So processes
    /// that failed together do not try again together. `NaN` counts as 0.
    pub const fn jitter(mut self, part: f64) -> Retry {
        self.jitter = if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) };
        self
    }

    /// Sets the number of attempts, including the first one. [`u32::MAX`] is no limit. 0 counts as 1.
    pub const fn attempts(mut self, attempts: u32) -> Retry {
        self.attempts = attempts;
        self
    }

    /// Sets a limit for all attempts and pauses together, by the runtime's clock. [`Duration::MAX`] is no limit.
    pub const fn total_time(mut self, limit: Duration) -> Retry {
        self.total_time = limit;
        self
    }

    /// Sets which errors are final, in addition to those that always are. After such an error there is no further
    /// attempt. [`CommandError::downcast_ref`] finds the error that a handler or a future has returned.
    pub const fn final_if(mut self, is_final: fn(&CommandError) -> bool) -> Retry {
        self.is_final = is_final;
        self
    }

    /// The pause after this many failures, without jitter.
    pub fn pause(&self, failures: u32) -> Duration {
        let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.first.as_secs_f64() * self.factor.powi(exponent);
        // A pause that no `Duration` can express is the cap. So is zero times infinity, unless it is zero.
        match Duration::try_from_secs_f64(seconds) {
            Ok(pause) => pause.min(self.cap),
            Err(_) if self.first.is_zero() => Duration::ZERO,
            Err(_) => self.cap,
        }
    }

    /// The pause after this many failures, with jitter. `random` decides how much is taken off.
    pub fn jittered_pause(&self, failures: u32, random: u64) -> Duration {
        let full = self.pause(failures);
        // 53 random bits are a number from 0 to 1.
        let random = (random >> 11) as f64 / (1_u64 << 53) as f64;
        // Subtracted from the full pause. A product could overflow if the pause is nearly `Duration::MAX`.
        full.saturating_sub(full.mul_f64(self.jitter * random))
    }

    /// The pause before the next attempt, after the attempt with this number has failed with this error. `random`
    /// decides the jitter. `None` if there is no further attempt.
    pub(crate) fn next_pause(&self, attempt: u32, error: &CommandError, random: u64) -> Option<Duration> {
        let has_ended = attempt >= self.attempts && self.attempts < u32::MAX;
        if has_ended || is_hopeless(error) || (self.is_final)(error) {
            return None;
        }
        Some(self.jittered_pause(attempt, random))
    }

    pub(crate) fn limit(&self) -> Duration {
        self.total_time
    }
}

impl Default for Retry {
    fn default() -> Retry {
        Retry::new()
    }
}

/// Whether no further attempt can change this error.
fn is_hopeless(error: &CommandError) -> bool {
    matches!(
        error,
        CommandError::Unknown { .. }
            | CommandError::WrongType { .. }
            | CommandError::InsideStep
            | CommandError::Cancelled(_)
    )
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::outcome::Reason;

    #[test]
    fn pauses_grow_up_to_the_cap_and_end_with_the_attempts() {
        let retry = Retry::new().first_pause(Duration::from_millis(10)).jitter(0.0).attempts(4).cap(Duration::MAX);
        let pauses = |retry: &Retry| {
            let next = |attempt| retry.next_pause(attempt, &CommandError::TimedOut, 0).map(|pause| pause.as_millis());
            (1..=5).map(next).collect::<Vec<_>>()
        };
        assert_eq!(pauses(&retry), [Some(10), Some(20), Some(40), None, None]);
        assert_eq!(pauses(&retry.factor(0.0).attempts(3)), [Some(10), Some(10), None, None, None]);
        assert_eq!(pauses(&retry.cap(Duration::from_millis(15)).attempts(3))[..2], [Some(10), Some(15)]);
        let endless = retry.attempts(u32::MAX).cap(Duration::from_secs(9));
        assert_eq!(endless.next_pause(u32::MAX, &CommandError::Dropped, 0), Some(Duration::from_secs(9)));
        assert_eq!(pauses(&retry.attempts(0)), [None; 5]);
        let zero = Retry::new().first_pause(Duration::ZERO).attempts(u32::MAX);
        assert_eq!((zero.pause(3), zero.pause(u32::MAX)), (Duration::ZERO, Duration::ZERO));
    }

    #[test]
    fn jitter_takes_at_most_its_part_off() {
        let retry = Retry::new().first_pause(Duration::from_secs(10)).jitter(0.5);
        let pause = |random| retry.next_pause(1, &CommandError::TimedOut, random).unwrap();
        assert_eq!(pause(0), Duration::from_secs(10));
        let shortest = pause(u64::MAX);
        assert!(shortest >= Duration::from_secs(5) && shortest < Duration::from_millis(5_001), "{shortest:?}");
        assert_eq!(retry.jitter(9.0).jitter, 1.0);
        assert_eq!(retry.jitter(f64::NAN).jittered_pause(1, 1 << 63), Duration::from_secs(10));
    }

    #[test]
    fn final_errors_have_no_further_attempt() {
        let retry = Retry::new();
        let has_next = |retry: &Retry, error| retry.next_pause(1, &error, 0).is_some();
        assert!(has_next(&retry, CommandError::failed("busy")) && has_next(&retry, CommandError::Dropped));
        assert!(!has_next(&retry, CommandError::Cancelled(Reason::Shutdown)));
        assert!(!has_next(&retry, CommandError::Unknown { name: "Fetch" }));
        let other = retry.final_if(|error| matches!(error, CommandError::Failed(_)));
        assert!(!has_next(&other, CommandError::failed("no")) && has_next(&other, CommandError::Dropped));
        assert!(!has_next(&other, CommandError::InsideStep), "an error that no attempt can change stays final");
    }
}
