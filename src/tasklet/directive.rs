//! Where a tasklet runs next, a tasklet's id, and the errors of scheduling.

use std::fmt;

use crate::pool::PoolError;

/// Says what a tasklet does next.
///
/// The caller gives a directive when it schedules the tasklet, and each step returns one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Directive {
    /// Run a step on the home thread, with the loop's state.
    ///
    /// It runs after the steps that are already queued there.
    Home,
    /// Run a step on a thread of the pool. It may block, and has no access to the state.
    Pool,
    /// Wait until the tasklet is resumed.
    Wait,
    /// End the tasklet.
    Done,
}

/// The id of a tasklet. It is unique among all loops, and is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskletId {
    /// A random number that identifies the loop.
    pub(super) owner: u64,
    /// The tasklet's number in its loop, counted from 1.
    pub(super) number: u64,
    /// The tasklet's index in the loop's table.
    pub(super) slot: u32,
}

impl TaskletId {
    /// The tasklet's number in its loop. The first tasklet has 1, the next has 2, and so on.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for TaskletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}

impl fmt::Debug for TaskletId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskletId({})", self.number)
    }
}

/// The reason why a loop refused a tasklet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The tasklet needs the pool, and no thread would run its home steps.
    ///
    /// No thread is in [`run`](super::Loop::run) or in a turn, and there is no [wake-up hook](super::Loop::on_wake).
    #[error("no thread runs the loop: schedule with `Directive::Home`, or run the loop first")]
    NotRunning,
    /// The loop has been closed or dropped.
    #[error("the loop is closed")]
    Closed,
    /// The pool refused the step.
    #[error("the loop's pool refused: {0}")]
    Pool(#[source] PoolError),
}
