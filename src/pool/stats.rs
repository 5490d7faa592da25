//! The status and the counts of a pool.

/// The stage of a pool's life. Stages only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolStatus {
    /// The pool accepts jobs. A paused pool is also running: see [`Pool::is_paused`](super::Pool::is_paused).
    Running,
    /// The pool accepts no jobs, and runs the waiting ones.
    Draining,
    /// The pool accepts no jobs and begins none.
    Stopped,
}

/// Counts of a [`Pool`](super::Pool), all taken at one moment.
///
/// At all times `submitted` = `finished` + `running` + `nested` + `waiting` + `abandoned` + `withdrawn`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct PoolStats {
    /// The number of workers below which the pool does not shrink.
    pub min: usize,
    /// The most workers that the pool may have.
    pub max: usize,
    /// Workers that have started and not exited.
    pub workers: usize,
    /// Workers that run no job.
    pub idle: usize,
    /// Jobs that run on a worker of their own.
    pub running: usize,
    /// Jobs that run on the thread of another job, which waits for them.
    pub nested: usize,
    /// Jobs that wait in the queue.
    pub waiting: usize,
    /// Pauses that were requested and have not ended.
    pub pauses: usize,
    /// All jobs that were ever accepted.
    pub submitted: u64,
    /// Jobs that have returned or panicked.
    pub finished: u64,
    /// Jobs that have panicked.
    pub panicked: u64,
    /// Jobs that never began, because the pool was stopped or could not start a thread.
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
