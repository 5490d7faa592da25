//! Pools of threads that run jobs, which are closures that may block.
//!
//! A pool starts threads on demand, up to a maximum. Further jobs wait in a queue. If no job arrives for a while, the
//! pool ends idle threads. There is no dispatcher thread: the submitting thread hands its job to a worker. An idle pool
//! uses no processor time.
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
//! - **Order**: jobs begin in the order of submission. After [`Pool::pause`], new jobs wait. A [`Pacer`] keeps an
//!   interval between the starts of jobs.
//! - **From inside**: a job may wait for another job of its own pool. If that job has not begun, the waiting thread
//!   runs it. So jobs of one pool do not deadlock when they wait for jobs that they submitted.
//! - **Size**: [`PoolBuilder::min`], [`PoolBuilder::max`], [`PoolBuilder::idle_period`], [`Pool::resize`].
//! - **Ending**: [`Pool::drain`] runs the waiting jobs, [`Pool::stop`] drops them, [`Pool::abandon`] returns them.
//!   [`Pool::shutdown_node`] is the pool's node in a [shutdown tree](crate::shutdown), which ends the parts of a
//!   program in order.
//! - **Containment**: a panic in a job, a hook, a waker or a destructor ends neither the pool nor its worker. If a
//!   hook, a waker or a destructor hangs while the pool ends, no caller waits for it without limit: see
//!   [`SHUTDOWN_GRACE`].

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
#[cfg(any(feature = "cluster", feature = "console"))]
pub(crate) use self::parker::Parker;
pub use self::pause::{Pause, PauseError};
pub use self::shutdown::{AbandonedJobsError, PoolEndError, PoolEndStage, PoolEnded, SHUTDOWN_GRACE};
pub use self::stats::{PoolStats, PoolStatus};
