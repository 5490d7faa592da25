//! The events of one process, for somebody who looks at it.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use super::cut_text::cut_text;
use crate::clock::Clock;
use crate::primitives::{Brief, enter};

/// The longest trace.
const LONGEST: Duration = Duration::from_secs(60);

/// The most events in a second, and the most that wait.
const MOST: usize = 1_000;

/// So many failures, replacements and ends may be noted beyond that.
const MORE: usize = 100;

/// The most bytes of a text.
const LONGEST_TEXT: usize = 1 << 10;

/// An event of a process that is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessEvent {
    /// The time since the trace began.
    pub at: Duration,
    /// A word: `message`, `answer`, `signal`, `step`, `failed`, `replaced` or `ended`. Of a durable process also
    /// `parked`, `asleep` or `left`: it has left memory and is loaded again.
    pub what: &'static str,
    /// More about it, for people: at most a kilobyte.
    pub text: String,
}

/// The events of a process that is traced. The process adds events, and another thread takes them.
pub(crate) struct TraceSink {
    clock: Clock,
    began: Instant,
    limit: Duration,
    state: Brief<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<ProcessEvent>,
    left_out: u64,
    /// The second of the last event, and the number of events in it.
    second: u64,
    in_second: usize,
    is_over: bool,
}

impl TraceSink {
    pub(crate) fn new(clock: Clock, limit: Duration) -> TraceSink {
        TraceSink { began: clock.now(), clock, limit: limit.min(LONGEST), state: Brief::default() }
    }

    fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.began)
    }

    /// Adds an event, if there is room for it. Only the owner of the body calls it.
    pub(crate) fn note(&self, what: &'static str, text: &impl fmt::Display) {
        let at = self.now();
        if self.admits(at, what) {
            // It may be code of users, so it runs without the lock.
            let text = cut_text(LONGEST_TEXT, text);
            let text = text.unwrap_or_else(|_| String::from("the text of the error panicked"));
            let event = ProcessEvent { at, what, text };
            enter(&self.state).events.push_back(event);
        }
    }

    fn admits(&self, at: Duration, what: &str) -> bool {
        // Somebody who looks at a busy process looks for these.
        let is_plain = matches!(what, "message" | "answer" | "signal" | "step");
        let most = if is_plain { MOST } else { MOST + MORE };
        let state = &mut *enter(&self.state);
        if state.is_over || at >= self.limit {
            return false;
        }
        if state.second != at.as_secs() {
            (state.second, state.in_second) = (at.as_secs(), 0);
        }
        let admits = state.in_second < most && state.events.len() < most;
        (state.in_second, state.left_out) =
            if admits { (state.in_second + 1, state.left_out) } else { (state.in_second, state.left_out + 1) };
        admits
    }

    /// No event follows.
    pub(crate) fn end(&self) {
        enter(&self.state).is_over = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        enter(&self.state).is_over || self.now() >= self.limit
    }

    pub(crate) fn take(&self) -> Vec<ProcessEvent> {
        std::mem::take(&mut enter(&self.state).events).into()
    }

    pub(crate) fn left_out(&self) -> u64 {
        enter(&self.state).left_out
    }
}

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceSink").field("is_over", &self.is_over()).field("left_out", &self.left_out()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn failures_have_room_beyond_the_limit_and_texts_are_cut() {
        let clock = ManualClock::new();
        let sink = TraceSink::new(clock.clock(), LONGEST);
        (0..2 * MOST).for_each(|_| sink.note("message", &""));
        // It is not written whole: it ends when there is enough.
        let endless = fmt::from_fn(|f| {
            loop {
                f.write_str("ü")?;
            }
        });
        (0..2 * MORE).for_each(|_| sink.note("failed", &endless));
        let events = sink.take();
        assert_eq!((events.len(), sink.left_out()), (MOST + MORE, (MOST + MORE) as u64));
        let text = &events[MOST].text;
        assert!(text.len() <= LONGEST_TEXT && text.starts_with("üüü") && text.ends_with("… (cut)"), "{text}");
        let sink = TraceSink::new(clock.clock(), LONGEST);
        sink.note("failed", &fmt::from_fn(|_| panic!("on purpose")));
        sink.note("failed", &fmt::from_fn(|_| Err(fmt::Error)));
        let texts: Vec<_> = sink.take().into_iter().map(|event| event.text).collect();
        assert_eq!(texts, ["the text of the error panicked", "… (it has returned an error)"]);
    }
}
