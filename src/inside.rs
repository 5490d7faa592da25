//! Calls that block, and the threads that must not make them.
//!
//! A worker that blocks in a step does nothing else. The awaited work may need this very worker. So a worker marks
//! its thread when it starts, and each call that blocks looks at the mark first.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::{Clock, Deadline};

thread_local! {
    static STEPS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread: from now on it steps processes.
pub(crate) fn begin_steps() {
    STEPS.set(true);
}

/// Runs code of a simulation, whose only thread is now a worker and now another thread. Afterwards the thread is what
/// it was before.
pub(crate) fn as_step<R>(is_step: bool, run: impl FnOnce() -> R) -> R {
    let before = STEPS.replace(is_step);
    let result = run();
    STEPS.set(before);
    result
}

/// Whether the calling thread steps processes.
pub(crate) fn is_step() -> bool {
    STEPS.get()
}

/// A number of the calling thread. No two threads that run at the same time have the same.
pub(crate) fn thread_number() -> usize {
    STEPS.with(|mark| std::ptr::from_ref(mark).addr())
}

/// Refuses a call that would block a step.
pub(crate) fn refuse_step() -> Result<(), WaitError> {
    if is_step() { Err(WaitError::InsideStep) } else { Ok(()) }
}

/// As `refuse_step`, for a call with a limit. A call with a limit of zero does not block and is not refused.
pub(crate) fn refuse_step_timeout(limit: Duration) -> Result<(), WaitError> {
    if limit.is_zero() { Ok(()) } else { refuse_step() }
}

/// The deadline of a call that does more than wait. In a step it does not wait at all.
pub(crate) fn deadline_here(clock: &Clock, deadline: Deadline) -> Deadline {
    if is_step() { clock.deadline(Duration::ZERO) } else { deadline }
}

/// Why such a call has not waited for the end.
pub(crate) fn why_not_over(limit: Duration) -> WaitError {
    refuse_step_timeout(limit).err().unwrap_or(WaitError::TimedOut)
}

/// Why a call that blocks the calling thread has returned without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The caller is a step, or other code on a worker of a runtime. The call did not wait.
    ///
    /// Other code is an `init`, a `close`, a poll of a future, an observer, a handler, a waker or a destructor. The
    /// call would have blocked the worker. The awaited work may need this very worker.
    ///
    /// A step asks or monitors instead. It can also run blocking work with [`Step::Blocking`](crate::Step::Blocking)
    /// or [`StepOutput::blocking`](crate::StepOutput::blocking). A call whose limit is zero does not wait, and is not
    /// refused. (The calls that do more than wait are refused in any case: `Runtime::shutdown`, `Loop::run_for`.
    /// `Runtime::ask` sends the question in any case. `AskFuture::wait` is refused unless the reply is there already.)
    #[error("a step cannot wait, for it would block its worker: ask, monitor, or wait in blocking work")]
    InsideStep,
    /// The caller would wait for itself: it is the job or the task, or runs on a thread that must end first.
    #[error("the caller would wait for itself")]
    Inside,
    /// The limit was over first.
    #[error("the limit was over")]
    TimedOut,
}
