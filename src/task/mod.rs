//! Tasks: closures whose status and result can be queried.
//!
//! A program submits a task and gets a handle. It can wait for the task's result, cancel the task, and give it a
//! timeout. It can also stop all tasks at once.
//!
//! A task runs on a [pool](crate::pool), and has one outcome. Its closure *returned* (a value, an error, or a panic),
//! or the task was *cancelled*, *timed out* or *stopped*. The first of these events decides the outcome. Later events
//! change nothing. A closure cannot be ended from outside. Its [`CancelToken`](crate::CancelToken) asks it to stop. If
//! the closure returns after its task has ended, its result is dropped.
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
//! A task's result is an [`Exit`](crate::Exit), like the result of a process. Both kinds of exit have the same four
//! cases: done, failed, panicked and terminated. A task's exit has the closure's own types (`Exit<T, E>`). `Failed(E)`
//! holds the error that the closure returned. [`into_result`](crate::Exit::into_result) turns every exit but `Done`
//! into an error that `?` accepts.
//!
//! A [`Status`] has no type parameters. `Completed` stands for `Done`, `Failed` and `Panicked`. `Cancelled`, `TimedOut`
//! and `Stopped` stand for `Terminated`, whose reason gives the details.
//!
//! # A task is not a process
//!
//! A task needs no mailbox, no worker and no second step. So a task is not built on a process. A process would also
//! need a PID, memory in the process table, and two hand-overs between threads. And a program with only tasks would
//! have to start a runtime.
//!
//! # The threads of user code
//!
//! Wakers and callbacks of [`CancelToken::on_cancel`](crate::CancelToken::on_cancel) run on the thread that ends the
//! task. This is the closure's thread, the cancelling thread, or the timer thread. With a manual clock, the thread that
//! moves the clock takes the place of the timer thread. If a closure was never called, its destructor runs on the same
//! thread. Each scheduler has only one timer thread, so all this code must be short. If the scheduler is stopped, this
//! code runs on a helper thread: see [`TaskScheduler::stop`].

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
