//! The way of a task to its thread.
//!
//! A task is accepted, and handed to the pool at once or after a delay.

use std::fmt::Display;
use std::time::Duration;

use super::info::{Status, TaskInfo};
use super::life::{Body, End, Life, Loose, Values};
use super::options::TaskOptions;
use super::shared::{Record, Rest, Shared};
use crate::cancel::CancelToken;
use crate::clock::Deadline;
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, contain, drop_contained, tell_log};
use crate::pool::{PoolError, Ran, Work};
use crate::primitives::{Arc, Mutex, Ordering, lock, thread};
use crate::timer::TimerKey;

/// A task whose types are known.
pub(super) type Task<B> = Record<Values<B>>;

/// The pool's part of a task. If the pool drops it before it ran, the drop stops the task.
struct Job<B: Body> {
    /// The task, until the pool runs it.
    task: Option<Arc<Task<B>>>,
    shared: Arc<Shared>,
    /// The work that is left to the drop, if the pool has abandoned the job. It is in a box, because few jobs have it.
    rest: Option<Box<Rest>>,
}

impl<B: Body> Work for Job<B> {
    fn run(mut self: Box<Self>) -> Ran {
        if let Some(task) = self.task.take() {
            task.run(&self.shared);
        }
        Ran::nothing()
    }

    fn abandon(&mut self, why: &Reason) {
        let end = End::terminated(Status::Stopped, why.clone());
        self.rest = self.task.as_ref().and_then(|task| task.decide(&self.shared, end, |_| ())).map(Box::new);
    }

    fn tell_abandoned(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.tell();
        }
    }
}

impl<B: Body> Drop for Job<B> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        match self.rest.take() {
            Some(rest) => task.clear(&self.shared, *rest),
            // Nothing happens to a task that was ended otherwise.
            None => drop(task.terminate(&self.shared, Status::Stopped, Reason::Shutdown)),
        }
    }
}

impl Shared {
    /// Adds a task to the table. The same step checks whether the scheduler is stopped. If so, the closure is handed
    /// back.
    pub(super) fn accept<B: Body>(&self, options: &TaskOptions, body: B) -> Result<Arc<Task<B>>, B> {
        let now = self.clock.now();
        let latest_start = options.start_timeout.and_then(|limit| now.checked_add(limit));
        let mut table = lock(&self.table);
        if table.is_stopped {
            return Err(body);
        }
        let id = table.next_id();
        let info = TaskInfo::scheduled(id, options.name.clone(), now, std::any::type_name::<B::Output>());
        let task = Arc::new(Record {
            id,
            timeout: options.timeout,
            start_by: Deadline(options.start_by.into_iter().chain(latest_start).min()),
            over: Latch::new(),
            life: Mutex::new(Life::new(info, body)),
        });
        table.insert(task.clone(), options.retention.unwrap_or(self.retention));
        Ok(task)
    }
}

impl<B: Body> Task<B> {
    /// Puts the task under its token, sets its timers, and starts it.
    ///
    /// The task is handed to the pool at once or after its delay.
    ///
    /// If the pool refuses the task, it counts as never accepted, and the closure is handed back.
    pub(super) fn start(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        under: Option<&CancelToken>,
        delay: Duration,
    ) -> Result<(), (B, PoolError)> {
        if let Some(token) = under {
            self.put_under(shared, token);
        }
        if self.timeout == Some(Duration::ZERO) || self.start_by.has_passed(&shared.clock) {
            self.time_out(shared);
        }
        if self.over.is_set() {
            return Ok(());
        }
        let mut timers = self.timer(shared, self.start_by, Self::time_out_unless_begun);
        if delay.is_zero() {
            return self.give_to_pool(shared, timers);
        }
        timers.extend(self.timer(shared, shared.clock.deadline(delay), Self::give_late_to_pool));
        self.attach(shared, Loose { timers, ..Loose::default() });
        Ok(())
    }

    /// Hands the task to the pool, with timers that are not attached yet. If the pool refuses it, the closure is
    /// handed back. If the task was ended meanwhile, it counts as an ended task.
    fn give_to_pool(self: &Arc<Self>, shared: &Arc<Shared>, timers: Vec<TimerKey>) -> Result<(), (B, PoolError)> {
        // The pool does not wait for room for an ended task.
        match shared.pool.submit_unless(&self.over, self.job(shared)) {
            Ok(ticket) => {
                self.attach(shared, Loose { ticket: Some(ticket), timers, ..Loose::default() });
                Ok(())
            }
            Err(refused) => {
                timers.into_iter().for_each(|timer| drop(shared.timers.cancel(timer)));
                let body = self.recall(shared);
                // The drop of the job finds a task that has ended.
                let (_job, why) = refused.into_parts();
                body.map_or(Ok(()), |body| Err((body, why)))
            }
        }
    }

    /// Hands the task to the pool after a delay. If the pool refuses it, no caller can take the closure back, so the
    /// task is stopped.
    pub(super) fn give_late_to_pool(self: &Arc<Self>, shared: &Arc<Shared>) {
        // The task was accepted earlier. The timer thread must not wait for room.
        match shared.pool.submit_beyond_bound(self.job(shared)) {
            Ok(ticket) => self.attach(shared, Loose { ticket: Some(ticket), ..Loose::default() }),
            Err(refused) => {
                let is_without_thread = matches!(refused.reason(), PoolError::NoThread(_));
                let reason = if is_without_thread { Reason::NoThread } else { Reason::Shutdown };
                self.terminate(shared, Status::Stopped, reason);
            }
        }
    }

    fn job(self: &Arc<Self>, shared: &Arc<Shared>) -> Job<B> {
        Job { task: Some(self.clone()), shared: shared.clone(), rest: None }
    }

    /// Takes the task back before it has begun, as if it had never been accepted.
    fn recall(&self, shared: &Shared) -> Option<B> {
        let end = End { unless_begun: true, ..End::terminated(Status::Stopped, Reason::Shutdown) };
        let (body, left, record) = {
            let mut life = lock(&self.life);
            let body = life.values.body.take();
            let left = life.end(end, shared.clock.now())?;
            (body, left, lock(&shared.table).take_back(self.id))
        };
        left.loose.clear(&shared.timers);
        drop(record);
        body
    }

    /// Calls the closure on this thread, unless the task has already ended.
    pub(super) fn run(self: &Arc<Self>, shared: &Arc<Shared>) {
        let now = shared.clock.now();
        if self.start_by.0.is_some_and(|moment| moment <= now) {
            // The timer may be late.
            return self.time_out(shared);
        }
        let limit = Deadline(self.timeout.and_then(|limit| now.checked_add(limit)));
        let mut timers = self.timer(shared, limit, Self::time_out);
        let context = CancelToken::with_clock(shared.clock.clone());
        let body = {
            let mut life = lock(&self.life);
            if life.begin(now, &context, thread::current().id(), &mut timers) {
                // Ordering: Relaxed. See the field.
                shared.begun.fetch_add(1, Ordering::Relaxed);
                life.values.body.take()
            } else {
                None
            }
        };
        timers.into_iter().for_each(|timer| drop(shared.timers.cancel(timer)));
        let Some(body) = body else { return };
        let (exit, told) = match contain(|| body.call(&context)) {
            Ok(Ok(output)) => (Exit::Done(output), Exit::Done(())),
            Ok(Err(error)) => {
                let text = text_of(&error);
                (Exit::Failed(error), Exit::Failed(text))
            }
            Err(panic) => {
                let name = lock(&self.life).info.name.clone();
                tell_log(|| tracing::error!(task = self.id.0, name = name.as_deref(), %panic, "a task panicked"));
                (Exit::Panicked(panic.clone()), Exit::Panicked(panic))
            }
        };
        // Mostly nobody else has it, and then nobody need be told of the end.
        drop(context);
        let mut exit = Some(exit);
        let end = End { status: Status::Completed, exit: told, unless_begun: false };
        let is_in_time = self.end(shared, end, |values| values.exit = exit.take());
        if let Some(unwanted) = exit {
            drop_contained(unwanted);
        }
        if !is_in_time {
            // The closure's result belongs to the closure, so it was dropped before this.
            let gone = lock(&shared.table).inside.remove(&self.id);
            shared.returned.notify_all();
            drop(gone);
            shared.tell_tree();
        }
    }

    /// Cancels the task when this token is cancelled.
    fn put_under(self: &Arc<Self>, shared: &Arc<Shared>, token: &CancelToken) {
        let node = token.child();
        let (task, above) = (Arc::downgrade(self), Arc::downgrade(shared));
        let callback = node.on_cancel(move |reason| {
            if let (Some(task), Some(shared)) = (task.upgrade(), above.upgrade()) {
                task.terminate(&shared, Status::Cancelled, reason.clone());
            }
        });
        self.attach(shared, Loose { link: Some(Box::new((node, callback))), ..Loose::default() });
    }

    fn time_out(self: &Arc<Self>, shared: &Arc<Shared>) {
        self.terminate(shared, Status::TimedOut, Reason::TimedOut);
    }

    /// The timer of a task that begins at this moment may already be due.
    pub(super) fn time_out_unless_begun(self: &Arc<Self>, shared: &Arc<Shared>) {
        let end = End { unless_begun: true, ..End::terminated(Status::TimedOut, Reason::TimedOut) };
        self.end(shared, end, |_| ());
    }

    /// Sets a timer for the task, if the moment ever comes. The timer does nothing if the task or the scheduler no
    /// longer exists then.
    fn timer(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        moment: Deadline,
        act: fn(&Arc<Self>, &Arc<Shared>),
    ) -> Vec<TimerKey> {
        let Some(moment) = moment.0 else { return Vec::new() };
        let (task, weak) = (Arc::downgrade(self), Arc::downgrade(shared));
        let action = Box::new(move || {
            if let (Some(task), Some(shared)) = (task.upgrade(), weak.upgrade()) {
                act(&task, &shared);
            }
        });
        // No timer is refused: the thread was started before the task was accepted.
        shared.timers.at(moment, action).into_iter().collect()
    }
}

/// The text of an error. Formatting it runs user code.
fn text_of(error: &impl Display) -> Arc<str> {
    contain(|| Arc::from(error.to_string())).unwrap_or_else(|_| Arc::from("an error whose text panics"))
}
