//! The words in which the ledger and those who ask it speak.

use std::time::{Duration, Instant};

use super::seat::Seat;
use crate::clock::Deadline;

/// Where a pool is in its life. It only ever goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolStatus {
    /// It takes jobs. (Whether it is paused is a question of its own: that ends again.)
    Running,
    /// It takes none, and does those that wait.
    Draining,
    /// It takes none and begins none.
    Stopped,
}

/// A pool has ended, and jobs that waited were never begun: it was stopped, or could get no thread. It is the error of the
/// [state](super::Pool::shutdown_node) of that pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("jobs that were never begun: {count}")]
#[non_exhaustive]
pub struct JobsAbandoned {
    /// How many.
    pub count: u64,
}

/// What a pool was told to keep to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) min: usize,
    pub(super) max: usize,
    /// The most jobs that wait and nobody is free for.
    pub(super) bound: Option<usize>,
    /// Whether submitters stand for room.
    pub(super) blocks: bool,
    pub(super) idle_period: Option<Duration>,
}

/// What becomes of a job that was accepted.
pub(super) enum Placed<J> {
    /// It waits, and this worker must be called for it.
    Wake(Seat),
    /// A worker must be started with this job.
    StartWith(J),
    /// It waits, and another worker must be started for the line's sake.
    Start,
    /// It waits; somebody who is awake or busy will come to it.
    Queued {
        /// One who lingers should be told.
        linger: bool,
    },
}

/// On what grounds a submitter has room in a pool with a bound.
#[derive(Clone, Copy)]
pub(super) enum Claim<'a> {
    /// It comes, and nobody stands before it.
    Comes,
    /// It has stood for room on this seat, and is the first.
    Stands(&'a Seat),
    /// The bound does not count for it.
    Exempt,
}

/// Why a job was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Ended(PoolStatus),
    Full,
}

/// What a worker has done before it asks what to do next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// A job, or nothing yet: it may linger.
    Job,
    /// It has looked about for a moment.
    Lingering,
    /// It has rested, or may not linger.
    Rest,
}

/// What a worker does next.
pub(super) enum Next<J> {
    /// Run it, and first have somebody come for the next.
    Run(J, Hands),
    /// Look about for a moment without the lock, then ask again.
    Linger,
    /// Rest until called or until the deadline, then ask again. If somebody else is to watch the time, it must be called.
    Rest(Deadline, Option<Seat>),
    /// Do what is to be done in the end, then say that it has `left`. Until then it is away, and these are
    /// there for it.
    Leave(Hands),
}

/// Workers to be called and to be started, so that what may begin has somebody who comes to it.
#[derive(Default)]
#[must_use]
pub(super) struct Hands {
    pub(super) wake: Vec<Seat>,
    pub(super) start: usize,
}

/// Since when no job has come, and whether a whole period of that has been seen already.
pub(super) struct Quiet {
    pub(super) since: Instant,
    // A job has come, and nobody has looked at the time yet.
    pub(super) broken: bool,
    pub(super) marked: bool,
    // Whether the one at the bottom has been told until when to rest.
    pub(super) watched: bool,
}
