//! Tasks: closures that can be asked about. Submit one, ask for its status, wait for its result, cancel it, give it a
//! timeout, stop them all.
//!
//! A task is a [job](crate::pool) with an outcome that is decided once: its closure *returned* (a value, an error, or a
//! panic), or it was *cancelled*, *timed out* or *stopped*. The first of these to happen decides, in one step. Later ones
//! change nothing. A closure cannot be ended from outside. It is asked to stop by its [`CancelToken`](crate::CancelToken). If it
//! returns after its task was over, its result is dropped.
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
//! It could be one, whose first step runs its closure on the pool. It is not, because a task needs no mailbox, no worker and no
//! second turn. It would pay for a PID, a cell and two hand-overs between threads, and a program with tasks only would have to
//! start a runtime.
//!
//! # Whose thread
//!
//! Wakers and callbacks of [`CancelToken::on_cancel`](crate::CancelToken::on_cancel) run on the thread that ends the task: the
//! closure's own, the one that cancels, or the timers' (with a manual clock, the one that moves it). So do the destructors of
//! closures that were never called. There is one thread for the timers of a scheduler, so all of these must be short. If the
//! scheduler is stopped, they run on a helper thread: see [`TaskScheduler::stop`].

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
