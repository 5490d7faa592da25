//! Jobs: closures that are run once on threads that may block.
//!
//! Threads start on demand up to a maximum, and jobs beyond that wait in a queue. Threads that have had no job for a while end.
//! There is no dispatcher thread: a submitter hands a job over under one short lock (`src/pool/ledger.rs`), and an idle pool uses
//! no processor time.
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
//! - **Submitting**: [`Pool::execute`], [`Pool::spawn`] (a [`JobHandle`]), [`Pool::run`], [`Pool::run_all`]. With a bound
//!   ([`QueuePolicy`]) and a limit for the wait for room, [`Pool::execute_timeout`]. A refusal hands the closure back.
//! - **Order**: jobs begin as they were submitted. [`Pool::pause`] keeps back the next ones. A [`Pacer`] keeps them apart.
//! - **From inside**: a job that waits for another job of its own pool runs it itself, so it never waits for itself.
//! - **Size**: [`PoolBuilder::min`], [`PoolBuilder::max`], [`PoolBuilder::idle_period`], [`Pool::resize`].
//! - **Ending**: [`Pool::drain`] runs the waiting jobs, [`Pool::stop`] drops them, [`Pool::abandon`] gives them back.
//!   [`Pool::shutdown_node`] is for a [tree](crate::shutdown) in which other parts end before the pool and after it.
//! - **Containment**: a panic in a job, a hook, a waker or a destructor ends neither the pool nor its worker. Code of the user's
//!   that hangs while the pool ends holds up no caller: see [`SHUTDOWN_GRACE`].

mod job_queue;
mod parker;
mod pause_queue;
mod limits;
mod stats;
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
pub use self::limits::{PoolBuildError, QueuePolicy};
pub use self::pacer::{Pacer, PacerError, PacerStats};
pub use self::pause::{Pause, PauseError};
pub use self::shutdown::{AbandonedJobsError, PoolEndError, PoolEndStage, PoolEnded, SHUTDOWN_GRACE};
pub use self::stats::{PoolStats, PoolStatus};
pub use self::worker::PoolError;
