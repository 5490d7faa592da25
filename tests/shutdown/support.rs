//! Helpers that the tests share.

use std::thread::JoinHandle;
use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;
use procession::shutdown::{JobGuard, ShutdownTimeout};

pub(crate) use crate::wait::Mutex;
use crate::wait::wait;

/// The limit of calls that may have none.
pub const LIMIT: Duration = crate::wait::LIMIT;

pub const ZERO: Duration = Duration::ZERO;

/// A job without children.
pub fn job() -> (ShutdownNode, JobGuard) {
    ShutdownNode::job([])
}

/// A job with a name.
pub fn named(name: &str) -> (ShutdownNode, JobGuard) {
    ShutdownNode::builder().name(name).job()
}

pub fn is_told(tail: &JobGuard) -> bool {
    tail.end().is_cancelled()
}

/// Which of them have been told.
pub fn told<const N: usize>(tails: [&JobGuard; N]) -> [bool; N] {
    tails.map(is_told)
}

/// Shuts down on another thread; returns when that has told this job, so its limit has begun.
pub fn shutdown(state: &ShutdownNode, limit: Duration, first: &JobGuard) -> JoinHandle<Result<(), ShutdownTimeout>> {
    let shuts = state.clone();
    let thread = std::thread::spawn(move || shuts.shutdown_timeout(limit));
    wait(first.end());
    thread
}

/// A job by a clock that is moved by hand.
pub fn timed(name: &str, clock: &ManualClock) -> (ShutdownNode, JobGuard) {
    ShutdownNode::builder().name(name).clock(clock.clock()).job()
}
