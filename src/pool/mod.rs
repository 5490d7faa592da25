//! Pools of threads that run jobs, which are closures that may block.
//!
//! A pool starts threads on demand, up to a maximum. Further jobs wait in a queue. A thread without a job for a while
//! ends. There is no dispatcher thread. The submitter hands a job over under one short lock (`src/pool/ledger.rs`).
//! An idle pool uses no processor time.
//!
//! ```
//! use procession::pool::Pool;
//!
//! let pool = Pool::builder().max(2).build()?;
//! pool.execute(|| println!("done by a thread of the pool"))?; // no value
//! let answer = pool.run(|| 6 * 7)?;                           // waits for the value
//! let later = pool.spawn(|| "a value")?;                      // a handle: wait later, as a thread or as a future
//! let squares = pool.run_all((0..3).map(|n| move || n * n));
//! assert_eq!((answer, later.wait()?), (42, "a value"));
//! assert_eq!(squares.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 4]);
//!
//! let pause = pool.pause()?;                                  // jobs wait from here
//! let kept = pool.spawn(|| ())?;
//! assert_eq!(pool.stats().waiting, 1);
//! drop(pause);                                                // to here
//! kept.wait()?;
//! let ended = pool.drain()?;
//! assert_eq!(ended.abandoned, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Submitting**: [`Pool::execute`], [`Pool::spawn`] (returns a [`JobHandle`]), [`Pool::run`], [`Pool::run_all`].
//!   A [`QueuePolicy`] bounds the queue. [`Pool::execute_timeout`] limits the wait for room. A refusal hands the
//!   closure back.
//! - **Order**: jobs begin in the order of submission. [`Pool::pause`] holds the next jobs back. A [`Pacer`] spaces
//!   jobs out.
//! - **From inside**: a job that waits for another job of its own pool runs that job itself. So a pool never waits
//!   for itself.
//! - **Size**: [`PoolBuilder::min`], [`PoolBuilder::max`], [`PoolBuilder::idle_period`], [`Pool::resize`].
//! - **Ending**: [`Pool::drain`] runs the waiting jobs, [`Pool::stop`] drops them, [`Pool::abandon`] gives them back.
//!   [`Pool::shutdown_node`] puts the pool into a [tree](crate::shutdown), in which other parts end before it and
//!   after it.
//! - **Containment**: a panic in a job, a hook, a waker or a destructor ends neither the pool nor its worker. If user
//!   code hangs while the pool ends, no caller waits for it without limit: see [`SHUTDOWN_GRACE`].

mod job_queue;
mod parker;
mod stats;
mod limits;
mod ledger;
mod job;
mod threads;
mod worker;
mod handle;
mod builder;
mod job_handle;
mod pause;
mod shutdown;
mod pacer;
#[cfg(all(test, loom))]
mod models;

pub use self::builder::{DEFAULT_IDLE_PERIOD, DEFAULT_MAX, PoolBuilder};
pub use self::handle::Pool;
pub(crate) use self::handle::{CountsOnOthers, Ticket};
pub use self::job::{Job, JobError, JobStatus, JobTimes};
pub(crate) use self::job::{Ran, Work};
pub use self::job_handle::{JobHandle, RunError};
pub use self::limits::{PoolBuildError, PoolError, QueuePolicy};
pub use self::pacer::{Pacer, PacerError, PacerStats};
pub use self::pause::{Pause, PauseError};
pub use self::shutdown::{AbandonedJobsError, PoolEndError, PoolEndStage, PoolEnded, SHUTDOWN_GRACE};
pub use self::stats::{PoolStats, PoolStatus};
