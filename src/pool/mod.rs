//! Jobs: closures that are run once on threads that may block.
//!
//! Threads start on demand up to a maximum, jobs beyond that wait in a queue, and threads that have had nothing to do for a
//! while end. There is no dispatcher thread: whoever submits a job hands it over under one short lock
//! (`src/pool/ledger.rs`), and an idle pool uses no processor time.

mod line;
mod seat;
mod pauses;
mod words;
mod ledger;
mod work;
mod crew;
mod thread;
mod owner;
mod builder;
mod desk;
mod handle;
mod pause;
mod end;
mod pacer;
#[cfg(all(test, not(loom)))]
mod rules;
#[cfg(all(test, not(loom)))]
mod chance;
#[cfg(all(test, loom))]
mod models;

pub use self::builder::{DEFAULT_IDLE_PERIOD, DEFAULT_MAX, PoolBuilder};
pub use self::desk::{JobError, JobStatus, JobTimes};
pub use self::end::{PoolEnded, StillRunning};
pub use self::handle::{JobHandle, RunError};
#[allow(unused_imports, reason = "the rungs above build on it")]
pub(crate) use self::owner::Ticket;
pub use self::owner::{BadPool, Pool, PoolStats, Queue};
pub use self::pacer::{Pacer, PacerError, PacerStats};
pub use self::pause::{Pause, PauseError};
pub use self::thread::PoolError;
pub use self::words::PoolStatus;
pub use self::work::Job;
