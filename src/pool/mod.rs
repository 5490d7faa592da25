//! Jobs: closures that are run once on threads that may block.
//!
//! Threads start on demand up to a maximum, jobs beyond that wait in a queue, and threads that have had nothing to do for a
//! while end. There is no dispatcher thread: whoever submits a job hands it over under one short lock
//! (`src/pool/ledger.rs`), and an idle pool uses no processor time.
//!
//! ```
//! use procession::pool::Pool;
//!
//! let pool = Pool::builder().max(2).build()?;
//! pool.execute(|| println!("done by somebody"))?;        // and nothing more
//! let answer = pool.run(|| 6 * 7)?;                      // wait for the value
//! let later = pool.spawn(|| "a value")?;                 // or wait later, as a thread or as a future
//! let squares = pool.run_all((0..3).map(|n| move || n * n));
//! assert_eq!((answer, later.wait()?), (42, "a value"));
//! assert_eq!(squares.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 4]);
//!
//! let pause = pool.pause()?;                             // jobs are kept from here
//! let kept = pool.spawn(|| ())?;
//! assert_eq!(pool.stats().waiting, 1);
//! drop(pause);                                           // to here
//! kept.wait()?;
//! let ended = pool.drain(None)?;
//! assert_eq!(ended.abandoned, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Handing in**: [`Pool::execute`], [`Pool::spawn`] (a [`JobHandle`]), [`Pool::run`], [`Pool::run_all`]; with a bound
//!   ([`QueuePolicy`]) and a limit for the wait for room, [`Pool::execute_timeout`]. A refusal hands the closure back.
//! - **Order**: jobs begin as they were submitted. [`Pool::pause`] keeps those that come; a [`Pacer`] keeps them apart.
//! - **From inside**: a job that waits for another one of its own pool runs it itself, so it never waits for itself.
//! - **Size**: [`PoolBuilder::min`], [`PoolBuilder::max`], [`PoolBuilder::idle_period`], [`Pool::resize`].
//! - **Ending**: [`Pool::drain`] does what waits, [`Pool::stop`] drops it, [`Pool::abandon`] gives it back; [`Pool::shutdown_node`] is
//!   for a [tree](crate::shutdown) in which others end before it and after it.
//! - **Containment**: a panic in a job, a hook, a waker or a destructor ends neither the pool nor its worker.

mod line;
mod seat;
mod pauses;
mod words;
mod ledger;
mod news;
mod work;
mod crew;
mod thread;
mod owner;
mod help;
mod builder;
mod desk;
mod handle;
mod pause;
mod end;
mod tree;
mod turn;
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
pub(crate) use self::help::CountsOnOthers;
pub(crate) use self::owner::Ticket;
pub use self::owner::{Pool, PoolBuildError, PoolStats, QueuePolicy};
pub use self::pacer::{Pacer, PacerStats};
pub use self::pause::{Pause, PauseError};
pub use self::thread::PoolError;
pub use self::tree::SHUTDOWN_GRACE;
pub use self::turn::PacerError;
pub use self::words::{JobsAbandoned, PoolStatus};
pub use self::work::Job;
pub(crate) use self::work::{Ran, Work};
