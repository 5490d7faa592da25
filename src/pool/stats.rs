//! What a pool tells of itself: its status and its counts.

/// The stage of a pool's life. It only goes forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolStatus {
    /// The pool accepts jobs. A paused pool is running, too: see [`Pool::is_paused`](super::Pool::is_paused).
    Running,
    /// The pool accepts no jobs, and runs those that wait.
    Draining,
    /// The pool accepts no jobs, and begins none.
    Stopped,
}

/// Counts of a [`Pool`](super::Pool), all of one moment.
///
/// At all times `submitted` = `finished` + `running` + `nested` + `waiting` + `abandoned` + `withdrawn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// The fewest workers that are kept, once so many have been started.
    pub min: usize,
    /// The most workers there may be.
    pub max: usize,
    /// Workers that exist.
    pub workers: usize,
    /// Workers that run no job.
    pub idle: usize,
    /// Jobs that a worker runs.
    pub running: usize,
    /// Jobs that are run on the worker of another job, which waits for them.
    pub nested: usize,
    /// Jobs that wait.
    pub waiting: usize,
    /// Pauses that were asked for and have not ended.
    pub pauses: usize,
    /// Jobs ever accepted.
    pub submitted: u64,
    /// Jobs that have returned or panicked.
    pub finished: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that never began, because the pool was stopped or could get no thread.
    pub abandoned: u64,
    /// Jobs that were cancelled while they waited.
    pub withdrawn: u64,
}

impl PoolStats {
    /// Jobs that were accepted and have not ended.
    pub fn unfinished(&self) -> usize {
        self.waiting + self.running + self.nested
    }
}
