//! Tasks: closures that can be asked about. Submit one, ask for its status, wait for its result, cancel it, give it a
//! timeout, stop them all.
//!
//! A task is a [job](crate::pool) with an outcome that is decided once: its closure *returned* (a value, an error, or a
//! panic), or it was *cancelled*, *timed out* or *stopped*. The first of these to happen decides, in one step, and the
//! others change nothing any more. A closure cannot be ended from outside; it is asked to stop, by the
//! [`CancelToken`](crate::CancelToken) that it is given, and what it returns after its task was over is dropped.
//!
//! ```
//! use procession::task::{Status, TaskOptions, TaskScheduler};
//! use procession::{Exit, Reason};
//! use std::time::Duration;
//!
//! let tasks = TaskScheduler::with_limit(8);
//! let answer = tasks.submit(|_| Ok::<_, String>(6 * 7))?;
//! assert_eq!(answer.wait()?.into_result()?, 42);
//!
//! let slow = tasks.submit_with(TaskOptions::new().name("slow").timeout(Duration::from_millis(5)), |cancel| {
//!     cancel.sleep(Duration::from_secs(3600))
//! })?;
//! assert!(matches!(slow.wait()?, Exit::Terminated(Reason::TimedOut)));
//!
//! let id = tasks.submit(|cancel| cancel.sleep(Duration::from_secs(3600)))?.id();
//! let other = tasks.submit(|cancel| cancel.sleep(Duration::from_secs(3600)))?;
//! tasks.stop();
//! assert_eq!(other.status(), Status::Stopped);
//! assert!(tasks.status(id).is_err(), "nobody kept its handle");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The result
//!
//! It is an [`Exit`](crate::Exit), as that of a process is, and not a type of its own: both are done, have failed, have panicked or were
//! terminated, and one word for it is enough. A task's exit has the closure's own types (`Exit<T, E>`): `Failed(E)` is
//! the error as it was returned, and [`into_result`](crate::Exit::into_result) makes any of the ends an error that `?` takes.
//! A status says which of the ends it was where the types do not matter: `Completed` for `Done`, `Failed` and `Panicked`,
//! `Cancelled`, `TimedOut` and `Stopped` for `Terminated`, whose reason says why.
//!
//! # A task is no process
//!
//! It could be one, whose first step runs its closure on the pool. It is not, for a task needs no mailbox, no worker and no
//! second turn: it would pay for a PID, a cell and two hand-overs between threads, and whoever wants tasks only would have
//! to start a runtime.
//!
//! # Whose thread
//!
//! Wakers and callbacks of [`CancelToken::on_cancel`](crate::CancelToken::on_cancel) run on the thread that ends the task: the closure's own, the one that
//! cancels or stops, or the timers' (or the one that moves a manual clock). There is one thread for the timers of a
//! scheduler, so callbacks should be short. Closures that were never called are dropped there, too, but for the timers'
//! thread: what it has ended is dropped on a thread that is started for it.

mod info;
mod error;
mod options;
mod life;
mod table;
mod shared;
mod job;
mod handle;
mod set;
mod scheduler;
mod repeat;
mod shutdown_node;
#[cfg(all(test, loom))]
mod models;

pub use self::error::{RemoveError, StopError, SubmitError, UnknownTaskError};
pub use self::handle::TaskHandle;
pub use self::info::{Status, TaskId, TaskInfo, TaskStats};
pub use self::options::{Retention, TaskOptions};
pub use self::repeat::Repeat;
pub use self::scheduler::{TaskScheduler, TaskSchedulerBuilder};
pub use self::set::{Finished, TaskSet};
