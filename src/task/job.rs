//! How a task gets to its thread: it is handed to the pool at once or after a delay.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::info::Status;
use super::life::{End, Link, LooseEnd};
use super::shared::{AnyRecord, Shared, Stopped, Whole};
use crate::cancel::CancelToken;
use crate::outcome::{Exit, Reason, Rejected, contain, drop_contained, tell_log};
use crate::pool::{PoolError, Ran, Ticket, Work};
use crate::primitives::{Arc, Ordering, lock, thread};

/// The pool's part of a task. If the pool drops it before it ran, the drop stops the task.
struct Job<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
{
    task: Arc<Whole<T, E, F>>,
    shared: Arc<Shared>,
    task_end: TaskEnd,
}

/// What the drop of a pool's job does to its task.
enum TaskEnd {
    /// Nothing: the task was begun, or its end is another's matter.
    None,
    /// It stops the task.
    Stop,
    /// The pool has abandoned the job, and the task is stopped. The drop does the rest.
    Clear(Box<dyn Stopped>),
}

impl<T, E, F> Work for Job<T, E, F>
where
    T: Send + 'static,
    E: Display + Send + 'static,
    F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
{
    fn run(mut self: Box<Self>) -> Ran {
        self.task_end = TaskEnd::None;
        self.task.run(&self.shared);
        Ran::nothing()
    }

    fn abandon(&mut self, why: &Reason) {
        let stopped = self.task.clone().decide_stop(&self.shared, why.clone());
        self.task_end = stopped.map_or(TaskEnd::None, TaskEnd::Clear);
    }

    fn tell_abandoned(&mut self) {
        if let TaskEnd::Clear(stopped) = &mut self.task_end
            && let Err(panic) = contain(|| stopped.tell())
        {
            tell_log(|| tracing::error!(%panic, "a waker or a callback panicked"));
        }
    }
}

impl<T: Send + 'static, E: Send + 'static, F: Send + 'static> Drop for Job<T, E, F> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.task_end, TaskEnd::None) {
            TaskEnd::None => {}
            // Nothing happens to a task that was ended otherwise.
            TaskEnd::Stop => drop(self.task.terminate(&self.shared, Status::Stopped, Reason::Shutdown)),
            TaskEnd::Clear(stopped) => stopped.clear(),
        }
    }
}

impl<T, E, F> Whole<T, E, F>
where
    T: Send + 'static,
    E: Display + Send + 'static,
    F: FnOnce(&CancelToken) -> Result<T, E> + Send + 'static,
{
    /// Hands the task to the pool. If the pool refuses it, the task counts as never accepted, and the closure is
    /// handed back. If the task was ended meanwhile, it counts as an ended task.
    pub(super) fn give_to_pool(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<(), (F, PoolError)> {
        // The pool does not wait for room for an ended task.
        let submitted = shared.pool.submit_unless(&self.over, self.job(shared));
        match self.note_place(shared, submitted) {
            Err(why) => self.recall(shared).map_or(Ok(()), |body| Err((body, why))),
            Ok(()) => Ok(()),
        }
    }

    /// Hands the task to the pool after a delay. If the pool refuses it, no caller can take the closure back, so the
    /// task is stopped.
    pub(super) fn give_late_to_pool(self: &Arc<Self>, shared: &Arc<Shared>) {
        // The task was accepted earlier. The timer thread must not wait for room.
        let submitted = shared.pool.submit_beyond_bound(self.job(shared));
        if let Err(why) = self.note_place(shared, submitted) {
            let reason = if let PoolError::NoThread(_) = why { Reason::NoThread } else { Reason::Shutdown };
            self.terminate(shared, Status::Stopped, reason);
        }
    }

    fn job(self: &Arc<Self>, shared: &Arc<Shared>) -> Job<T, E, F> {
        Job { task: self.clone(), shared: shared.clone(), task_end: TaskEnd::Stop }
    }

    /// Notes the job's place in the pool's queue. If the pool has refused the job, the caller ends the task.
    fn note_place(
        &self,
        shared: &Shared,
        submitted: Result<Ticket, Rejected<Job<T, E, F>, PoolError>>,
    ) -> Result<(), PoolError> {
        let rejected = match submitted {
            Ok(ticket) => {
                self.attach(shared, LooseEnd::Waits(ticket));
                return Ok(());
            }
            Err(rejected) => rejected,
        };
        let (mut job, why) = rejected.into_parts();
        job.task_end = TaskEnd::None;
        Err(why)
    }

    fn recall(&self, shared: &Shared) -> Option<F> {
        let (left, record) = {
            let mut life = lock(&self.life);
            let left = life.recall(shared.clock.now())?;
            (left, lock(&shared.table).take_back(self.id))
        };
        left.loose.clear(&shared.timers);
        drop(record);
        left.body
    }

    /// Calls the closure on this thread, unless the task has already ended.
    pub(super) fn run(self: &Arc<Self>, shared: &Arc<Shared>) {
        let now = shared.clock.now();
        if self.start_by.0.is_some_and(|moment| moment <= now) {
            // The timer may be late.
            return self.time_out(shared);
        }
        if let Some(limit) = self.timeout {
            match shared.timers.after(limit, shared.when_due(self, |task, shared| task.time_out(shared))) {
                Ok(Some(timer)) => self.attach(shared, LooseEnd::Timer(timer)),
                Ok(None) => {}
                // Without a timer thread the limit could not be kept. So the task times out at once.
                Err(times_out) => times_out(),
            }
        }
        let context = CancelToken::with_clock(shared.clock.clone());
        let begun = {
            let mut life = lock(&self.life);
            let begun = life.begin(now, &context, thread::current().id());
            if begun.is_some() {
                // Ordering: Relaxed. See `begun`.
                shared.begun.fetch_add(1, Ordering::Relaxed);
            }
            begun
        };
        let Some((body, moot)) = begun else { return };
        if let Some(timer) = moot {
            drop(shared.timers.cancel(timer));
        }
        let exit = match contain(|| body(&context)) {
            Ok(Ok(output)) => Exit::Done(output),
            Ok(Err(error)) => Exit::Failed(error),
            Err(panic) => {
                tell_log(|| tracing::error!(task = self.id.0, name = self.name.as_deref(), %panic, "a task panicked"));
                Exit::Panicked(panic)
            }
        };
        let told = match &exit {
            Exit::Done(_) => Exit::Done(()),
            Exit::Failed(error) => Exit::Failed(text_of(error)),
            Exit::Panicked(panic) => Exit::Panicked(panic.clone()),
            Exit::Terminated(reason) => Exit::Terminated(reason.clone()),
        };
        if let Err(late) = self.end(shared, End::by_return(exit, told)) {
            // This must precede the note that the closure has returned. Its result belongs to the closure.
            drop_contained(late);
            let gone = lock(&shared.table).has_returned(self.id);
            shared.returned.notify_all();
            drop(gone);
            shared.tell_tree();
        }
    }

    /// Cancels the task when this token is cancelled.
    pub(super) fn put_under(self: &Arc<Self>, shared: &Arc<Shared>, cancel: &CancelToken) {
        let node = cancel.child();
        let (task, above) = (Arc::downgrade(self), Arc::downgrade(shared));
        let registration = node.on_cancel(move |reason| {
            if let (Some(task), Some(shared)) = (task.upgrade(), above.upgrade()) {
                task.terminate(&shared, Status::Cancelled, reason.clone());
            }
        });
        self.attach(shared, LooseEnd::Link(Box::new(Link { _node: node, _registration: registration })));
    }

    pub(super) fn time_out(&self, shared: &Arc<Shared>) {
        self.terminate(shared, Status::TimedOut, Reason::TimedOut);
    }

    /// The timer of a task that begins at this moment may already be due.
    pub(super) fn time_out_unless_begun(&self, shared: &Arc<Shared>) {
        let _ = self.end(shared, End::before_begin(Status::TimedOut, Reason::TimedOut));
    }

    /// Makes the task time out if it does not begin in time.
    pub(super) fn begin_by(self: &Arc<Self>, shared: &Arc<Shared>, now: Instant) {
        let Some(moment) = self.start_by.0 else { return };
        if moment <= now {
            return self.time_out(shared);
        }
        // Without a timer thread, a late start is noticed when the pool runs the task. `run` checks the time, too.
        let too_late = shared.when_due(self, |task, shared| task.time_out_unless_begun(shared));
        if let Ok(timer) = shared.timers.at(moment, too_late) {
            self.attach(shared, LooseEnd::StartBy(timer));
        }
    }

    /// Hands the task to the pool after the delay.
    pub(super) fn give_to_pool_after(self: &Arc<Self>, shared: &Arc<Shared>, delay: Duration) {
        match shared.timers.after(delay, shared.when_due(self, |task, shared| task.give_late_to_pool(shared))) {
            Ok(Some(timer)) => self.attach(shared, LooseEnd::Delay(timer)),
            Ok(None) => {}
            Err(give) => give(),
        }
    }
}

/// The text of an error. Formatting it runs user code.
fn text_of(error: &impl Display) -> Arc<str> {
    contain(|| Arc::from(error.to_string())).unwrap_or_else(|_| Arc::from("an error whose text panics"))
}
