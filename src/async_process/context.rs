//! The context of an async process: its view of its events and its output.

use std::fmt;

use super::state::SharedState;
use crate::primitives::Arc;
use crate::{Address, Pid, StepOutput};

/// The events and the output of an async process. Its function is given it.
///
/// All methods take `&self`. So several waits can be polled together, for example in a `join!` or a `select!`. Clones
/// are the same context.
///
/// # Use outside of a step
///
/// The context belongs to the steps of its process. Elsewhere, in another thread or when the process has ended, it
/// does nothing: a message becomes a dead letter with
/// [`DeadLetterReason::OutsideStep`](crate::observe::DeadLetterReason::OutsideStep), and other yields are dropped.
/// [`next`](Self::next) returns `None`, [`receive`](Self::receive) is never ready, and the other waits end with
/// [`CommandError::Dropped`](crate::CommandError::Dropped). The same holds within the closure that is given to
/// [`out`](Self::out). No method blocks, and none panics.
pub struct Context<M> {
    pub(super) state: Arc<SharedState<M>>,
}

impl<M> Context<M> {
    /// The PID of the process.
    pub fn pid(&self) -> Pid {
        self.state.pid
    }

    /// The address of the process.
    pub fn address(&self) -> Address<M> {
        self.state.pid.typed()
    }

    /// Borrows the output of the step, if this is in a poll.
    pub(super) fn borrow(&self) -> Option<Borrowed<'_, M>> {
        let out = self.state.open_in_poll()?.out.take();
        out.is_some().then(|| Borrowed { state: &self.state, out })
    }
}

/// The output, while a call of the context uses it. It is put back when this is dropped.
pub(super) struct Borrowed<'a, M> {
    state: &'a SharedState<M>,
    /// Empty only while it is put back.
    pub(super) out: Option<Box<StepOutput>>,
}

impl<M> Drop for Borrowed<'_, M> {
    fn drop(&mut self) {
        self.state.open().out = self.out.take();
    }
}

impl<M> Clone for Context<M> {
    fn clone(&self) -> Context<M> {
        Context { state: self.state.clone() }
    }
}

impl<M> fmt::Debug for Context<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("pid", &self.pid()).finish_non_exhaustive()
    }
}
