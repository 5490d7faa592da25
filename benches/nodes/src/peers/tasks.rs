//! The parts that the peers with async tasks share.

use std::time::{Duration, Instant};

use crate::load::Outcome;

/// A runtime with two workers, as all peers have.
pub(super) fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

/// Times questions that are asked one after the other.
pub(super) struct Watch {
    begun: Instant,
    pub(super) times: Vec<Duration>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch { begun: Instant::now(), times: Vec::new() }
    }
}

impl Watch {
    pub(super) fn begin(&mut self) {
        self.begun = Instant::now();
    }

    pub(super) fn end(&mut self) {
        self.times.push(self.begun.elapsed());
    }
}
