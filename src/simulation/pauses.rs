//! The runtimes of a world that are paused.

use std::time::Instant;

/// The runtimes that are paused, by their numbers, and until when.
#[derive(Default)]
pub(super) struct Pauses(Vec<(usize, Instant)>);

impl Pauses {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a pause, and removes those that are over.
    pub(super) fn add(&mut self, runtime: usize, (now, until): (Instant, Instant)) {
        self.0.retain(|(_, until)| *until > now);
        self.0.push((runtime, until));
    }

    /// The end of the pauses of this runtime.
    pub(super) fn until(&self, runtime: usize) -> Option<Instant> {
        self.0.iter().filter(|(paused, _)| *paused == runtime).map(|(_, until)| *until).max()
    }

    /// Takes out the pauses of a runtime, or of all runtimes.
    pub(super) fn take(&mut self, runtime: Option<usize>) -> Vec<(usize, Instant)> {
        self.0.extract_if(.., |(paused, _)| runtime.is_none_or(|runtime| runtime == *paused)).collect()
    }
}
