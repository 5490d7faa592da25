//! The last steps of a process, for its operators.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How many steps a trail has.
const STEPS: usize = 16;

/// The last steps of a process, in order. Times are differences, which take few bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Trail {
    /// The time of the last step, in milliseconds since 1970.
    last: u64,
    steps: VecDeque<Trace>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Trace {
    /// Milliseconds since the step before.
    since: u64,
    what: Traced,
    messages: u32,
    answers: u32,
}

/// The change that a record has made to its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Traced {
    /// It was begun.
    Begun,
    /// A step said `Idle`.
    Idle,
    /// A step said `Wait`.
    Wait,
    /// A step said `Continue`.
    Continue,
    /// A step said `Blocking`.
    Blocking,
    /// It has ended.
    Ended,
    /// It was parked.
    Parked,
    /// An operator has let it try again.
    Retried,
    /// An operator has let it go on without an event.
    Skipped,
    /// An operator has replaced its state.
    Replaced,
    /// An operator has sent it a dead letter again.
    Resent,
    /// The step that comes next in the trail took a request to stop.
    Cancelled,
}

/// One of the last steps of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TrailStep {
    /// When it was, in milliseconds since 1970.
    pub at: u64,
    /// The result of the step, or another change.
    pub what: Traced,
    /// The number of stored messages that the step took.
    pub messages: u32,
    /// The number of answers that the step took.
    pub answers: u32,
}

impl Trail {
    /// Adds a step. Forgets the oldest one if there are too many.
    pub(super) fn note(&mut self, now: u64, what: Traced, (messages, answers): (usize, usize)) {
        if self.steps.len() == STEPS {
            self.steps.pop_front();
        }
        let since = if self.steps.is_empty() { 0 } else { now.saturating_sub(self.last) };
        // If the clock was set back, the steps have the same time.
        self.last = now.max(self.last);
        self.steps.push_back(Trace { since, what, messages: messages as u32, answers: answers as u32 });
    }

    /// The steps, the oldest first.
    pub(super) fn steps(&self) -> Vec<TrailStep> {
        let mut at = self.last;
        let mut steps: Vec<TrailStep> = Vec::with_capacity(self.steps.len());
        for Trace { since, what, messages, answers } in self.steps.iter().rev() {
            steps.push(TrailStep { at, what: *what, messages: *messages, answers: *answers });
            at = at.saturating_sub(*since);
        }
        steps.reverse();
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_has_the_last_steps_with_their_times() {
        let mut trail = Trail::default();
        for step in 0..20_u64 {
            trail.note(1_000 + step * step, Traced::Idle, (step as usize, 1));
        }
        let steps = trail.steps();
        assert_eq!(steps.len(), STEPS);
        let expected: Vec<(u64, u32)> = (4..20).map(|step| (1_000 + step * step, step as u32)).collect();
        assert_eq!(steps.iter().map(|step| (step.at, step.messages)).collect::<Vec<_>>(), expected);
        trail.note(5, Traced::Ended, (0, 0));
        assert_eq!(trail.steps().last().map(|step| (step.at, step.what)), Some((1_361, Traced::Ended)));
    }

    #[test]
    fn a_trail_is_small() {
        let mut trail = Trail::default();
        (0..16).for_each(|step| trail.note(1_700_000_000_000 + step * 10_000, Traced::Wait, (1, 1)));
        let size = postcard::to_stdvec(&trail).unwrap().len();
        assert!(size <= 16 * 5 + 10, "{size} bytes");
    }
}
