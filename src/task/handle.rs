//! The handle of a task, which waits for the result and holds it.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::info::{Status, TaskId, TaskInfo};
use super::life::ExitValue;
use super::shared::{Helped, Record, Shared};
use crate::clock::Deadline;
use crate::inside::{WaitError, refuse_step_timeout};
use crate::latch::{Latch, LatchFuture};
use crate::outcome::{Exit, Reason, Rejected, contain, drop_contained};
use crate::primitives::{Arc, lock, thread};

/// The handle of a task, which gives its result.
///
/// A wait consumes the handle, so the result can be taken once. If several callers need the output, wrap it in an
/// `Arc`.
///
/// The handle is also a future of the result. Dropping the handle neither cancels the task nor waits for it. But it
/// drops the task's result.
///
/// `{}` prints one line with the task's number, name, status, output and error. `{:#}` prints several lines, also with
/// the times, and leaves out the parts that the task does not have.
#[must_use = "without the handle there is no result; drop it explicitly if none is wanted"]
pub struct TaskHandle<T, E> {
    pub(super) record: Arc<Record<dyn ExitValue<T, E>>>,
    pub(super) shared: Arc<Shared>,
    pub(super) waiting: LatchFuture<()>,
    /// Whether the result was moved out.
    was_taken: bool,
}

impl<T, E> TaskHandle<T, E> {
    pub(super) fn new(record: Arc<Record<dyn ExitValue<T, E>>>, shared: Arc<Shared>) -> TaskHandle<T, E> {
        let waiting = LatchFuture::new(record.over.clone());
        TaskHandle { record, shared, waiting, was_taken: false }
    }

    /// The task's number. The [`TaskScheduler`](super::TaskScheduler) finds the task by it.
    pub fn id(&self) -> TaskId {
        self.record.id
    }

    /// The task's status at this moment.
    pub fn status(&self) -> Status {
        self.record.status()
    }

    /// A snapshot of the task at this moment.
    pub fn info(&self) -> TaskInfo {
        self.record.info()
    }

    /// Cancels the task with [`Reason::Cancelled`]. Returns whether this call ended the task.
    ///
    /// The result is `false` if the task had already ended.
    ///
    /// The call does not wait for the closure, which goes on until it returns. To stop early, the closure checks its
    /// token. Its result is dropped. Threads and futures that wait for the task are woken at once.
    pub fn cancel(&self) -> bool {
        self.cancel_because(Reason::Cancelled)
    }

    /// As [`cancel`](Self::cancel), with this reason, which the token and the exit also get.
    pub fn cancel_because(&self, reason: impl Into<Reason>) -> bool {
        self.record.terminate(&self.shared, Status::Cancelled, reason.into())
    }

    /// Blocks the calling thread until the task has ended, and returns the result.
    ///
    /// If the caller is a thread of the task's pool and the task has not begun, the calling thread runs the task. A
    /// delayed task runs after its delay. So tasks can wait for tasks that they submit, however few threads there are.
    /// [`TaskSet::wait_next`](super::TaskSet::wait_next) works in the same way. A wait with a limit runs no task, and
    /// neither does a future.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]) or the task itself ([`WaitError::Inside`]). The handle is
    /// given back.
    pub fn wait(self) -> Result<Exit<T, E>, Rejected<TaskHandle<T, E>, WaitError>> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits at most `limit` by the scheduler's clock.
    ///
    /// With [`Duration::MAX`] the call is the same as [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). Or the limit has passed ([`WaitError::TimedOut`]).
    pub fn wait_timeout(mut self, limit: Duration) -> Result<Exit<T, E>, Rejected<TaskHandle<T, E>, WaitError>> {
        if let Err(error) = refuse_step_timeout(limit) {
            return Err(Rejected::new(self, error));
        }
        let deadline = self.shared.clock.deadline(limit);
        if deadline == Deadline::NEVER && !self.help() {
            return Err(Rejected::new(self, WaitError::Inside));
        }
        if self.record.over.wait_until(&self.shared.clock, deadline) {
            return Ok(self.take());
        }
        Err(Rejected::new(self, WaitError::TimedOut))
    }

    /// Returns the result, if the task has ended.
    ///
    /// # Errors
    /// The task has not ended. The handle is given back.
    pub fn try_result(mut self) -> Result<Exit<T, E>, TaskHandle<T, E>> {
        if self.status().is_finished() { Ok(self.take()) } else { Err(self) }
    }

    /// Runs the task here, if it waits and this is a thread of its pool.
    ///
    /// Returns whether the caller may wait. A caller must not wait for a task that runs on its own thread.
    ///
    /// The task may enter the pool's queue at any moment. The bell is attached under the task's lock. The place in
    /// the queue is noted under the same lock. If the place is noted later, noting it rings the bell. If it is
    /// already there, the bell rings at once.
    fn help(&self) -> bool {
        // This is the usual case of a caller that waits for many tasks in turn.
        if self.status().is_finished() {
            return true;
        }
        if self.runs_here() {
            return false;
        }
        while let Helped::NotYet = self.record.run_if_inside(&self.shared.pool, None) {
            let rung = Latch::new();
            self.record.ring_when_in_line(&self.shared, Waker::from(Arc::new(Bell(rung.clone()))));
            rung.wait();
        }
        true
    }

    /// Whether the closure runs on the calling thread. If so, the thread would wait for itself.
    pub(super) fn runs_here(&self) -> bool {
        self.record.runs_on(thread::current().id())
    }

    pub(super) fn take(&mut self) -> Exit<T, E> {
        self.was_taken = true;
        // A future that is polled again after it was ready must not stay pending, which would hang its task.
        self.record.take().unwrap_or_else(|| Exit::Terminated(Reason::from("its result was taken before")))
    }
}

struct Bell(Latch<()>);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        let _ = self.0.set(());
    }
}

impl<T, E> Future for TaskHandle<T, E> {
    type Output = Exit<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Exit<T, E>> {
        Pin::new(&mut self.waiting).poll(cx).map(|()| self.take())
    }
}

// The fields are shared references; nothing is pinned.
impl<T, E> Unpin for TaskHandle<T, E> {}

impl<T, E> Drop for TaskHandle<T, E> {
    fn drop(&mut self) {
        let id = self.record.id;
        let settled = lock(&self.shared.table).handle_dropped(id, &self.shared.clock);
        self.shared.settle(id, settled);
        if !self.was_taken {
            drop_contained(self.record.take());
        }
    }
}

impl<T: Debug, E> Display for TaskHandle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.info();
        // Printing runs user code, which must not hold the task's lock. So the result is taken out while it is
        // printed.
        let output = self.record.take().and_then(|exit| {
            let text = contain(|| exit.output().map(|output| format!("{output:?}")));
            *lock(&self.record.life).values.exit() = Some(exit);
            text.unwrap_or_else(|_| Some(String::from("an output whose text panics")))
        });
        info.write(f, output.as_deref())
    }
}

impl<T, E> Debug for TaskHandle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").field("id", &self.id()).field("status", &self.status()).finish()
    }
}
