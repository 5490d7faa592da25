//! Calls that block, and the threads on which they must not.
//!
//! A worker that blocks in a step does nothing else, and what it waits for may need this very worker. So a worker
//! marks its thread when it starts, and each call that blocks looks at the mark first.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::{Clock, Deadline};

thread_local! {
    static STEPS: Cell<bool> = const { Cell::new(false) };
}

/// From now on the calling thread steps processes.
pub(crate) fn begin_steps() {
    STEPS.set(true);
}

/// Whether the calling thread steps processes.
pub(crate) fn is_step() -> bool {
    STEPS.get()
}

/// Refuses a call that would block a step.
pub(crate) fn refuse_step() -> Result<(), WaitError> {
    if is_step() { Err(WaitError::InsideStep) } else { Ok(()) }
}

/// The same for a call with a limit. With a limit of zero it does not block.
pub(crate) fn refuse_step_timeout(limit: impl Into<Option<Duration>>) -> Result<(), WaitError> {
    if limit.into().is_some_and(|limit| limit.is_zero()) { Ok(()) } else { refuse_step() }
}

/// Until when a call waits that has more to do than to wait: until `deadline`, and in a step not at all.
pub(crate) fn deadline_here(clock: &Clock, deadline: Deadline) -> Deadline {
    if is_step() { clock.deadline(Duration::ZERO) } else { deadline }
}

/// Why such a call has not waited for the end.
pub(crate) fn why_not_over(limit: impl Into<Option<Duration>>) -> WaitError {
    refuse_step_timeout(limit).err().unwrap_or(WaitError::TimedOut)
}

/// Why a call that blocks the calling thread has returned without what it should wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The caller is a step, or other code that runs on a worker of a runtime: an `init`, a `close`, a hook, a
    /// handler, a waker, a destructor. It would have blocked the worker, which may be the one that the awaited work
    /// needs. Nothing was waited for.
    ///
    /// A step asks, monitors, or has blocking work done by a [`Step::Blocking`](crate::Step::Blocking) or
    /// [`StepOutput::blocking`](crate::StepOutput::blocking). A call whose limit is zero does not wait, and is not
    /// refused. (The calls that do more than wait are refused in any case: `Runtime::ask`, `Runtime::shutdown`,
    /// `Loop::run_for`.)
    #[error("a step cannot wait, for it would block its worker: ask, monitor, or wait in blocking work")]
    InsideStep,
    /// The caller would wait for itself: it is the job or the task, or runs on a thread that must end first.
    #[error("the caller would wait for itself")]
    Inside,
    /// The limit was over before.
    #[error("the limit was over")]
    TimedOut,
}
