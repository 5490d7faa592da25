//! The handle of a tasklet: waits for its end from anywhere, and for the value that it has promised.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::directive::{Directive, ScheduleError, TaskletId};
use super::shared::Control;
use crate::clock::Clock;
use crate::inside::{WaitError, refuse_step, refuse_step_timeout};
use crate::latch::Latch;
use crate::outcome::{Exit, Failure, Reason, Rejected};
use crate::primitives::{Arc, Mutex, Weak, lock};

/// One tasklet, from outside. Clones are the same tasklet; dropping it changes nothing.
///
/// Waiting is for other threads: a step of the same loop that waits for a tasklet of its own loop may wait for itself.
#[derive(Clone)]
pub struct TaskletHandle {
    id: TaskletId,
    name: Cow<'static, str>,
    ended: Latch<Exit>,
    clock: Clock,
    of: Weak<dyn Control>,
}

impl TaskletHandle {
    pub(super) fn new<C: Control + 'static>(
        id: TaskletId,
        name: Cow<'static, str>,
        ended: Latch<Exit>,
        (clock, of): (Clock, &Arc<C>),
    ) -> TaskletHandle {
        let of: Weak<C> = Arc::downgrade(of);
        TaskletHandle { id, name, ended, clock, of }
    }

    /// Which one.
    pub fn id(&self) -> TaskletId {
        self.id
    }

    /// Its [name](super::Tasklet::name).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has ended, its destructor included.
    pub fn is_finished(&self) -> bool {
        self.ended.is_set()
    }

    /// How it has ended, if it has: done, panicked, or terminated with the reason.
    pub fn exit(&self) -> Option<Exit> {
        self.ended.get()
    }

    /// Blocks the calling thread until it has ended.
    ///
    /// # Errors
    /// The caller is a step of a process ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<Exit, WaitError> {
        refuse_step()?;
        Ok(self.ended.wait())
    }

    /// The same, but no longer than `limit` by the loop's clock.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); or the limit was over before ([`WaitError::TimedOut`]).
    pub fn wait_timeout(&self, limit: Duration) -> Result<Exit, WaitError> {
        refuse_step_timeout(limit)?;
        self.ended.wait_until(&self.clock, self.clock.deadline(limit));
        self.ended.get().ok_or(WaitError::TimedOut)
    }

    /// Cancels it; whether this call did. Its [token](super::TaskletContext::cancelled) is cancelled. If it is queued or waits it is
    /// dropped at once, on this thread; if it is in a step, when the step returns.
    pub fn cancel(&self, reason: impl Into<Reason>) -> bool {
        self.of.upgrade().is_some_and(|control| control.cancel(self.id, reason.into()))
    }

    /// Gives it another directive; whether it was there. See [`LoopHandle::redirect`](super::LoopHandle::redirect).
    ///
    /// # Errors
    /// As there.
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

/// A value that a tasklet leaves. It is taken when the latch of the tasklet's end is set.
pub(super) type ValueCell<U> = Arc<Mutex<Option<U>>>;

/// A value that a tasklet has promised. The [`TaskletFuture`] gets the value of [`fulfill`](Self::fulfill) when the tasklet has
/// ended.
pub struct Promise<U> {
    value: ValueCell<U>,
}

impl<U> Promise<U> {
    pub(super) fn new(value: ValueCell<U>) -> Promise<U> {
        Promise { value }
    }

    /// Gives the value.
    pub fn fulfill(self, value: U) {
        let _none = lock(&self.value).replace(value);
    }
}

impl<U> fmt::Debug for Promise<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

/// A tasklet was done and had not fulfilled its [`Promise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tasklet is done and has left no value")]
pub struct NoValueError;

/// The end of a tasklet together with the value that it has promised. It can be waited for, or awaited.
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

    /// The tasklet.
    pub fn handle(&self) -> &TaskletHandle {
        &self.handle
    }

    /// Blocks the calling thread until the tasklet has ended, and gives the value, or why there is none. A tasklet that was
    /// done and has not fulfilled its promise has failed with [`NoValueError`].
    ///
    /// # Errors
    /// The answer comes back: the caller is a step of a process ([`WaitError::InsideStep`]).
    pub fn wait(self) -> Result<Exit<U>, Rejected<TaskletFuture<U>, WaitError>> {
        self.wait_timeout(Duration::MAX)
    }

    /// The same, but no longer than `limit` by the loop's clock.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); or the limit was over before ([`WaitError::TimedOut`]).
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
