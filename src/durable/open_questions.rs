//! The stored questions of a process in memory that wait for an answer, and the timers of their limits.

use std::collections::HashMap;

use crate::primitives::{Mutex, lock};
use crate::timer::TimerKey;

/// The stored questions of a process whose answers no stored step has taken, by the tags of their commands.
#[derive(Default)]
pub(super) struct OpenQuestions(Mutex<HashMap<u64, Option<TimerKey>>>);

impl OpenQuestions {
    pub(super) fn add(&self, tag: u64) {
        lock(&self.0).insert(tag, None);
    }

    pub(super) fn has(&self, tag: u64) -> bool {
        lock(&self.0).contains_key(&tag)
    }

    /// Notes the timer of a question. Returns it if the question is over.
    #[must_use]
    pub(super) fn note_timer(&self, tag: u64, key: TimerKey) -> Option<TimerKey> {
        match lock(&self.0).get_mut(&tag) {
            Some(timer) => {
                *timer = Some(key);
                None
            }
            None => Some(key),
        }
    }

    /// Removes questions. Returns their timers.
    #[must_use]
    pub(super) fn remove<'a>(&self, tags: impl Iterator<Item = &'a u64>) -> Vec<TimerKey> {
        let mut open = lock(&self.0);
        if open.is_empty() {
            return Vec::new();
        }
        tags.filter_map(|tag| open.remove(tag).flatten()).collect()
    }

    /// Takes the timers of all, when the process leaves memory. The questions are still open.
    #[must_use]
    pub(super) fn take_timers(&self) -> Vec<TimerKey> {
        lock(&self.0).values_mut().filter_map(Option::take).collect()
    }
}

/// A stored question that a step asks.
pub(super) struct NewQuestion {
    pub(super) tag: u64,
    /// When its limit is over, in milliseconds since 1970.
    pub(super) deadline: Option<u64>,
}
