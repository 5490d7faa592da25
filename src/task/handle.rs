//! The handle of a task: waits for its result, and has it.

use std::fmt::{self, Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::info::{Status, TaskId, TaskInfo};
use super::shared::{Helped, Record, Shared};
use crate::clock::Deadline;
use crate::inside::{WaitError, refuse_step_timeout};
use crate::latch::{Latch, Waiting};
use crate::outcome::{Exit, Reason, Rejected, contain, drop_contained};
use crate::primitives::{Arc, lock, thread};

/// The handle of a task. A wait moves the result out, once; put an `Arc` into the output if several callers want it.
///
/// It is a future of the result. Dropping it neither cancels the task nor waits for it. The result of a task whose handle is
/// dropped is dropped, too.
///
/// Printed with `{}` it is one line with number, status, output and error; with `{:#}` it is several, with times, and
/// with output or error only if the task is over.
#[must_use = "without the handle there is no result; drop it explicitly if none is wanted"]
pub struct TaskHandle<T, E> {
    record: Arc<dyn Record<T, E>>,
    shared: Arc<Shared>,
    waiting: Waiting<()>,
    /// Whether the result was moved out.
    was_taken: bool,
}

impl<T, E> TaskHandle<T, E> {
    pub(super) fn new(record: Arc<dyn Record<T, E>>, shared: Arc<Shared>) -> TaskHandle<T, E> {
        let waiting = Waiting::new(record.over().clone());
        TaskHandle { record, shared, waiting, was_taken: false }
    }

    /// Its number, with which it can be looked up at its [`TaskScheduler`](super::TaskScheduler).
    pub fn id(&self) -> TaskId {
        self.record.id()
    }

    /// Where it is in its life at this moment.
    pub fn status(&self) -> Status {
        self.record.status()
    }

    /// What is known of it at this moment.
    pub fn info(&self) -> TaskInfo {
        self.record.info()
    }

    /// Cancels it, for [`Reason::Cancelled`]. Returns whether this call decided: not if the task was over already.
    ///
    /// It does not wait for the closure, which goes on until it looks at its token. The closure's result is dropped. Threads and
    /// futures that wait for the task are woken at once.
    pub fn cancel(&self) -> bool {
        self.cancel_because(Reason::Cancelled)
    }

    /// The same with a reason, which the closure's token and the task's exit have.
    pub fn cancel_because(&self, reason: impl Into<Reason>) -> bool {
        self.record.terminate(&self.shared, Status::Cancelled, reason.into())
    }

    /// Blocks the calling thread until it is over, and has its result.
    ///
    /// Called on a thread of the pool on which the task waits for one, it runs the task itself, and so it does with a delayed
    /// one when its delay is over: tasks can wait for those that they submit, however few threads there are. (So they can with
    /// [`TaskSet::wait_next`](super::TaskSet::wait_next).) A wait with a limit only waits, and a future cannot but wait.
    ///
    /// # Errors
    /// The handle comes back: the caller is a step ([`WaitError::InsideStep`]), or is the task itself
    /// ([`WaitError::Inside`]).
    pub fn wait(self) -> Result<Exit<T, E>, Rejected<TaskHandle<T, E>, WaitError>> {
        self.wait_timeout(Duration::MAX)
    }

    /// Blocks the calling thread until it is over or until `limit` is, by the scheduler's clock. With [`Duration::MAX`] it is
    /// as [`wait`](Self::wait).
    ///
    /// # Errors
    /// As [`wait`](Self::wait); or the limit was over before ([`WaitError::TimedOut`]).
    pub fn wait_timeout(mut self, limit: Duration) -> Result<Exit<T, E>, Rejected<TaskHandle<T, E>, WaitError>> {
        if let Err(error) = refuse_step_timeout(limit) {
            return Err(Rejected::new(self, error));
        }
        let deadline = self.shared.clock.deadline(limit);
        if deadline == Deadline::NEVER && !self.help() {
            return Err(Rejected::new(self, WaitError::Inside));
        }
        if self.record.over().wait_until(&self.shared.clock, deadline) {
            return Ok(self.take());
        }
        Err(Rejected::new(self, WaitError::TimedOut))
    }

    /// Its result, if it is over.
    ///
    /// # Errors
    /// The handle comes back if it is not over.
    pub fn try_result(mut self) -> Result<Exit<T, E>, TaskHandle<T, E>> {
        if self.status().is_finished() { Ok(self.take()) } else { Err(self) }
    }

    /// Runs the task here if this is a thread of its pool and no other thread has begun it. Returns whether the caller may wait:
    /// not for a task that runs on this very thread.
    ///
    /// The task may come into the pool's queue at any moment. The bell is left under the task's lock, and the place in the queue
    /// is noted under it. So either the place is noted later and rings the bell, or it is there already, and the bell rings at
    /// once.
    fn help(&self) -> bool {
        // The usual case of a caller that waits for many tasks, one after the other.
        if self.status().is_finished() {
            return true;
        }
        if self.runs_here() {
            return false;
        }
        while let Helped::NotYet = self.run_if_inside(None) {
            let rung = Latch::new();
            self.ring_when_in_line(Waker::from(Arc::new(Bell(rung.clone()))));
            rung.wait();
        }
        true
    }

    /// Whether its closure runs on the calling thread, which would wait for itself.
    pub(super) fn runs_here(&self) -> bool {
        self.record.runs_on(thread::current().id())
    }

    /// If the calling thread is one of the pool's, and the task waits there for one, it is run here and now; with a bell, only
    /// if no other thread comes to it.
    pub(super) fn run_if_inside(&self, bell: Option<Waker>) -> Helped {
        self.record.run_if_inside(&self.shared.pool, bell)
    }

    /// Has the bell rung when the task waits for a thread, or when it never will.
    pub(super) fn ring_when_in_line(&self, bell: Waker) {
        self.record.ring_when_in_line(&self.shared, bell);
    }

    pub(super) fn take(&mut self) -> Exit<T, E> {
        self.was_taken = true;
        self.record.take().unwrap_or_else(taken_before)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Whether it is over; if not, the waker is woken when it is. It takes the place of one before it.
    pub(super) fn is_over_or_rings(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.waiting).poll(cx).is_ready()
    }
}

struct Bell(Latch<()>);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        let _ = self.0.set(());
    }
}

/// The exit for a handle that is polled again after it was ready: a future that stays pending would be a hang.
fn taken_before<T, E>() -> Exit<T, E> {
    Exit::Terminated(Reason::from("its result was taken before"))
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
        let id = self.record.id();
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
        // It is printed by code of the user's, so not under the task's lock: it is taken out as long as that takes.
        let output = self.record.take().and_then(|exit| {
            let text = contain(|| exit.output().map(|output| format!("{output:?}")));
            self.record.put_back(exit);
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
