//! The handle of a tasklet. It waits for the tasklet's end and for its promised value, from any thread.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::directive::{Directive, ScheduleError, TaskletId};
use super::shared::Control;
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::latch::Latch;
use crate::outcome::{Exit, Failure, Reason, Rejected};
use crate::primitives::{Arc, Mutex, Weak, lock};

/// A handle of one tasklet. Clones refer to the same tasklet.
///
/// Dropping a handle does not affect the tasklet.
///
/// A step must not wait for a tasklet of its own loop, because the wait may never end. Other threads may wait.
#[derive(Clone)]
pub struct TaskletHandle {
    pub(super) id: TaskletId,
    pub(super) name: Cow<'static, str>,
    pub(super) ended: Latch<Exit>,
    pub(super) clock: Clock,
    pub(super) of: Weak<dyn Control>,
}

impl TaskletHandle {
    /// Returns the id of the tasklet.
    pub fn id(&self) -> TaskletId {
        self.id
    }

    /// Returns the tasklet's [name](super::Tasklet::name).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the tasklet has ended and its destructor has run.
    pub fn is_finished(&self) -> bool {
        self.ended.is_set()
    }

    /// Returns the tasklet's exit, if it has ended: done, panicked, or terminated with the reason.
    pub fn exit(&self) -> Option<Exit> {
        self.ended.get()
    }

    /// Blocks the calling thread until the tasklet has ended.
    ///
    /// # Errors
    /// The caller is a step of a process ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<Exit, WaitError> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits at most `limit` by the loop's clock.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). Or the limit has passed ([`WaitError::TimedOut`]).
    pub fn wait_timeout(&self, limit: Duration) -> Result<Exit, WaitError> {
        self.ended.join(&self.clock, limit)
    }

    /// Cancels the tasklet. Returns whether this call cancelled it.
    ///
    /// See [`LoopHandle::cancel`](super::LoopHandle::cancel).
    pub fn cancel(&self, reason: impl Into<Reason>) -> bool {
        self.of.upgrade().is_some_and(|control| control.cancel(self.id, reason.into()))
    }

    /// Gives the tasklet another directive. Returns whether the loop has the tasklet.
    ///
    /// See [`LoopHandle::redirect`](super::LoopHandle::redirect).
    ///
    /// # Errors
    /// As [`LoopHandle::redirect`](super::LoopHandle::redirect).
    pub fn redirect(&self, directive: Directive) -> Result<bool, ScheduleError> {
        self.of.upgrade().map_or(Ok(false), |control| control.redirect(self.id, directive))
    }
}

impl IntoFuture for TaskletHandle {
    type Output = Exit;
    type IntoFuture = <Latch<Exit> as IntoFuture>::IntoFuture;

    fn into_future(self) -> Self::IntoFuture {
        self.ended.into_future()
    }
}

impl fmt::Debug for TaskletHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskletHandle")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("exit", &self.exit())
            .finish()
    }
}

/// The storage for a tasklet's value. The value is taken when the latch of the tasklet's end is set.
pub(super) type ValueCell<U> = Arc<Mutex<Option<U>>>;

/// The sender's side of a value that a tasklet promises.
///
/// The tasklet calls [`fulfill`](Self::fulfill). When the tasklet has ended, the [`TaskletFuture`] yields the value.
pub struct Promise<U> {
    pub(super) value: ValueCell<U>,
}

impl<U> Promise<U> {
    /// Sets the promised value.
    pub fn fulfill(self, value: U) {
        let _none = lock(&self.value).replace(value);
    }
}

impl<U> fmt::Debug for Promise<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

/// A tasklet ended with `Done`, but did not fulfill its [`Promise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tasklet is done and has left no value")]
pub struct NoValueError;

/// A future of a tasklet's promised value.
///
/// The value is ready when the tasklet has ended. A thread can wait for it with [`wait`](Self::wait).
#[must_use = "the value can only be had from this"]
pub struct TaskletFuture<U> {
    handle: TaskletHandle,
    ended: <Latch<Exit> as IntoFuture>::IntoFuture,
    value: ValueCell<U>,
}

impl<U> TaskletFuture<U> {
    pub(super) fn new(handle: TaskletHandle, value: ValueCell<U>) -> TaskletFuture<U> {
        TaskletFuture { ended: handle.ended.clone().into_future(), handle, value }
    }

    /// Returns the handle of the tasklet.
    pub fn handle(&self) -> &TaskletHandle {
        &self.handle
    }

    /// Blocks until the tasklet has ended, and returns its exit with the value.
    ///
    /// If the tasklet is done but has not fulfilled its promise, the exit is `Failed` with [`NoValueError`].
    ///
    /// # Errors
    /// The caller is a step of a process ([`WaitError::InsideStep`]). The future is handed back.
    pub fn wait(self) -> Result<Exit<U>, Rejected<TaskletFuture<U>, WaitError>> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits at most `limit` by the loop's clock.
    ///
    /// # Errors
    /// As [`wait`](Self::wait). Or the limit has passed ([`WaitError::TimedOut`]).
    pub fn wait_timeout(self, limit: Duration) -> Result<Exit<U>, Rejected<TaskletFuture<U>, WaitError>> {
        match self.handle.wait_timeout(limit) {
            Ok(exit) => Ok(self.with_value(exit)),
            Err(error) => Err(Rejected::new(self, error)),
        }
    }

    fn with_value(&self, exit: Exit) -> Exit<U> {
        match exit {
            Exit::Done(()) => {
                let value = lock(&self.value).take();
                value.map_or_else(|| Exit::Failed(Failure::new(NoValueError)), Exit::Done)
            }
            Exit::Failed(failure) => Exit::Failed(failure),
            Exit::Panicked(panic) => Exit::Panicked(panic),
            Exit::Terminated(reason) => Exit::Terminated(reason),
        }
    }
}

impl<U> Future for TaskletFuture<U> {
    type Output = Exit<U>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit<U>> {
        Pin::new(&mut self.ended).poll(cx).map(|exit| self.with_value(exit))
    }
}

impl<U> fmt::Debug for TaskletFuture<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TaskletFuture").field(&self.handle).finish()
    }
}
