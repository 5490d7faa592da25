//! Where a tasklet runs next, its id, and why a loop did not take it.

use std::fmt;

use crate::pool::PoolError;

/// How a tasklet is to be run next. Given when it is scheduled, and returned by each of its steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Directive {
    /// On the home thread, with the state of the loop, behind those that wait for that already.
    Home,
    /// On a thread of the pool, where it may block and does not see the state.
    Pool,
    /// Not before it is resumed.
    Wait,
    /// The tasklet has finished.
    Done,
}

/// Names one tasklet: no other one of any loop has the same, also after it has ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskletId {
    /// Which loop: a random number.
    pub(super) owner: u64,
    /// Which tasklet of the loop, counted from 1.
    pub(super) number: u64,
    /// Where it is in the loop's table.
    pub(super) slot: u32,
}

impl TaskletId {
    /// The first tasklet of its loop has 1, the next one 2, and so on.
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

/// Why a loop did not take a tasklet, which comes back with this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// It was to run on the pool, and could not come back from there: no thread is in
    /// [`run`](super::Loop::run) or a turn, and there is no [wake-up hook](super::Loop::on_wake).
    #[error("no thread runs the loop: schedule with `Directive::Home`, or run the loop first")]
    NotRunning,
    /// The loop has been closed or dropped.
    #[error("the loop is closed")]
    Closed,
    /// The pool took no job.
    #[error("the loop's pool refused: {0}")]
    Pool(#[source] PoolError),
}
