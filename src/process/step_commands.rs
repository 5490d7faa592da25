//! Yields that limit or cancel commands.

use std::time::Duration;

use super::command::{Command, Tag};
use super::handler::BoxedCommand;
use crate::sched::body::{LimitedCommand, StepOutput, Yield};

/// Limits of commands.
impl StepOutput {
    /// As [`command`](Self::command), but with a limit by the runtime's clock. When the limit is over, the command is
    /// answered with [`CommandError::TimedOut`](crate::CommandError::TimedOut) at once. Then the handler's
    /// [`CancelToken`](crate::CancelToken) is cancelled, with
    /// [`Reason::TimedOut`](crate::Reason::TimedOut). The handler need not answer any more. An answer that comes later
    /// is discarded and [counted](crate::observe::Stats::discarded_answers).
    ///
    /// [`Duration::MAX`] is no limit. The limit begins when the yields of the step are performed. If the runtime has
    /// no thread for its timers, the command is not performed. It is answered with
    /// [`CommandError::Cancelled`](crate::CommandError::Cancelled) and the reason.
    pub fn command_timeout<C: Command>(&mut self, command: C, limit: Duration) -> Tag<C::Output> {
        let tag = self.tag();
        let command = BoxedCommand::new(command);
        self.push(Yield::CommandTimeout(Box::new(LimitedCommand { tag: tag.id(), command, limit })));
        tag
    }

    /// Cancels a command of this process: a [`command`](Self::command), a [blocking closure](Self::blocking), a timer,
    /// an [`ask`](Self::ask), a [future](Self::future), a [retry](Self::retry) or a [`run`](Self::run). The command is
    /// answered with [`CommandError::Cancelled`](crate::CommandError::Cancelled) at once. The reason is
    /// [`Reason::Cancelled`](crate::Reason::Cancelled). If the command is already answered, this has no effect.
    ///
    /// Then the [`CancelToken`](crate::CancelToken) of the handler or the closure is cancelled, with the same reason. A
    /// closure that has not begun is not run. An answer that comes later is discarded and
    /// [counted](crate::observe::Stats::discarded_answers). An asked process is not notified. Its reply is late. The
    /// future of a command is dropped.
    ///
    /// A child that the process [runs](Self::run) is terminated. A child that [traps
    /// exits](crate::SpawnOptions::trap_exits) is asked to stop instead. It gets an
    /// [`Event::Cancel`](crate::Event::Cancel) with the reason, and should end soon.
    ///
    /// Other commands are not affected, because they take no time: for example those that register a name.
    pub fn cancel_command<T>(&mut self, command: Tag<T>) {
        self.push(Yield::CancelCommand { tag: command.id() });
    }
}
