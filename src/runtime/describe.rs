//! Questions to processes for descriptions of themselves.

use std::time::Duration;

use super::ask::AskFuture;
use super::system::Runtime;
use crate::process::Target;

impl Runtime {
    /// Asks a process to [describe](crate::Process::describe) itself. Await the [`AskFuture`], or call
    /// [`wait`](AskFuture::wait) on it.
    ///
    /// No message is sent: the question waits in no mailbox, has no room under a bound, and is given to no step. The
    /// thread that has the process asks it between two steps. A process that is at rest is asked on a worker, and is
    /// not stepped for it. A process that yields to a node without room is asked when there is room.
    ///
    /// The description has at most 16 KiB. The rest is cut, and the text says so. If the process is durable and is
    /// asleep, or lives on another node, the text says that it is not in memory here.
    ///
    /// # Errors
    /// - [`NoSuchProcess`](crate::CommandError::NoSuchProcess): there is no process at the target.
    /// - [`Ended`](crate::CommandError::Ended): it has ended first.
    /// - [`Dropped`](crate::CommandError::Dropped): it is durable, and has left memory first.
    /// - [`Panicked`](crate::CommandError::Panicked): its `describe` has panicked. The process goes on.
    /// - [`TimedOut`](crate::CommandError::TimedOut): it has not been between two steps within `limit`. A process that
    ///   is stuck in a step is an example.
    ///
    /// ```
    /// use procession::prelude::*;
    /// use std::fmt;
    /// use std::time::Duration;
    ///
    /// struct Till { coins: u64 }
    ///
    /// impl Process for Till {
    ///     type Message = u64;
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<u64>, _: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             if let Event::Message(coins) = event {
    ///                 self.coins += coins;
    ///             }
    ///         }
    ///         Ok(Step::Idle)
    ///     }
    ///
    ///     fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ///         write!(f, "{} coins", self.coins)
    ///     }
    /// }
    ///
    /// let runtime = Runtime::builder().workers(1).start()?;
    /// let till = runtime.spawn(Till { coins: 3 })?;
    /// assert_eq!(runtime.describe(&till, Duration::from_secs(1)).wait()?, "3 coins");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn describe(&self, target: impl Target, limit: Duration) -> AskFuture<String> {
        let access = &self.owner.access;
        access.question_to(access.core.resolve(&target), limit, |ask, pid| access.core.road.ask_description(pid, ask))
    }
}
