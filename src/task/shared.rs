//! The state that the handles of a scheduler, its timers and its jobs share, and the protocol of a task's end.
//!
//! Several events may end a task: its closure returns; it is cancelled, or the token above it is; a timer is due; the
//! scheduler is stopped; the pool drops its job. Each of them does the same:
//!
//! 1. Under the task's lock: decide (`task/life.rs`), and note it in the table. The table's lock is taken inside of the task's
//!    lock, never the other way round. Status, result, counts and retention change in this one step.
//! 2. With the locks free: wake the threads that wait, call wakers and callbacks, cancel the closure's token, remove timers and
//!    the job in the pool's queue, drop the user's values. Panics are contained.
//!
//! The second caller finds the task over at 1 and does nothing. A closure that returns too late gets its result back and drops
//! it. So when any of these calls has returned, the task is over.
//!
//! **Stopping** does step 1 for all tasks on the calling thread, and then step 2 for all of them on a helper thread. So no user
//! code runs before every task is over: a destructor may wait for any other task of the scheduler. User code that hangs holds
//! up the helper thread only. A stop is *open* from its begin (under the table's lock) until its step 2 is done; `stop_and_join`
//! and the shutdown tree wait until no stop is open.
//!
//! **Nothing is left behind.** A timer or ticket that is made while the task ends is attached under the task's lock: either
//! the end comes later and finds it, or `attach` hands it back, and the caller removes it. A task enters the table under
//! the same lock under which the scheduler is stopped: either it is refused, or the stop finds it there.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::info::{Status, TaskId, TaskInfo};
use super::life::{End, Left, Life, Loose, LooseEnd};
use super::options::Retention;
use super::table::{Settled, Table};
use crate::clock::{Clock, Deadline};
use crate::latch::{Calls, Latch};
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pool::{CountsOnOthers, Pool};
use crate::primitives::{Arc, AtomicU64, Condvar, Mutex, Ordering, ThreadId, Weak, lock, thread};
use crate::shutdown::Part;
use crate::threads;
use crate::timer::Timers;

/// How long the end of a scheduler waits for user code beyond its limit: destructors, wakers and callbacks, which return at once
/// in nearly every program.
pub(super) const GRACE: Duration = Duration::from_millis(250);

pub(super) type Tasks = Vec<Arc<dyn AnyRecord>>;

pub(super) struct Shared {
    pub(super) table: Mutex<Table<Arc<dyn AnyRecord>>>,
    /// Notified when a closure has returned whose task was over before.
    pub(super) returned: Condvar,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    pub(super) pool: Pool,
    pub(super) retention: Retention,
    pub(super) begun: AtomicU64,
    /// Its place in a shutdown tree, if it was asked for.
    pub(super) part: Part,
}

/// A task, whatever its types.
pub(super) trait AnyRecord: Send + Sync {
    fn id(&self) -> TaskId;
    fn over(&self) -> &Latch<()>;
    fn status(&self) -> Status;
    fn info(&self) -> TaskInfo;
    /// Whether the task is running on this thread. The record of a task that is over does not know.
    fn runs_on(&self, thread: ThreadId) -> bool;
    /// If the calling thread is one of the pool's, and the task waits there for one, it is run here and now: otherwise it
    /// might wait for the very thread that waits for it. With a bell, it is only run if no other thread comes to it at once,
    /// and otherwise the bell is rung when that is so no more.
    fn run_if_inside(&self, pool: &Pool, bell: Option<Waker>) -> Helped;
    /// Has the bell rung when the task waits for a thread, or when it never will.
    fn ring_when_in_line(&self, shared: &Shared, bell: Waker);
    /// Ends it from outside; whether this call did it.
    fn terminate(&self, shared: &Arc<Shared>, status: Status, reason: Reason) -> bool;
    /// Decides that it is stopped, and leaves the rest to be done later. Nothing if it is over already.
    fn decide_stop(self: Arc<Self>, shared: &Arc<Shared>, reason: Reason) -> Option<Box<dyn Stopped>>;
}

/// A task that was stopped, with what is left to do for it. Both calls run user code.
pub(super) trait Stopped: Send {
    fn task(&self) -> Arc<dyn AnyRecord>;
    fn tell(&mut self);
    fn clear(self: Box<Self>);
}

/// How far a thread has helped a task that it waits for.
pub(super) enum Helped {
    /// It has run the task, or another thread has it.
    Done,
    /// Nothing: it does not wait in the line of the thread's pool, and may come to do so.
    NotYet,
    /// Nothing: another thread comes to it. The bell is there as long as this is.
    OthersCome(CountsOnOthers),
}

/// A task of which the types of its result are known.
pub(super) trait Record<T, E>: AnyRecord {
    fn take(&self) -> Option<Exit<T, E>>;
    fn put_back(&self, exit: Exit<T, E>);
}

/// The work that is left when the end of a task is decided.
struct Rest<T, E, F> {
    calls: Option<Calls<()>>,
    reason: Reason,
    left: Left<F>,
    settled: Settled<Arc<dyn AnyRecord>>,
    unwanted: Option<Exit<T, E>>,
}

impl<T, E, F> Rest<T, E, F> {
    /// Calls the wakers of the futures that wait for the task, and the callbacks of its closure's token.
    fn tell(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.make();
        }
        if let Some((context, _)) = &self.left.running {
            context.cancel(self.reason.clone());
        }
    }
}

struct StoppedTask<T, E, F> {
    task: Arc<Whole<T, E, F>>,
    shared: Arc<Shared>,
    rest: Rest<T, E, F>,
}

impl<T: Send + 'static, E: Send + 'static, F: Send + 'static> Stopped for StoppedTask<T, E, F> {
    fn task(&self) -> Arc<dyn AnyRecord> {
        self.task.clone()
    }

    fn tell(&mut self) {
        self.rest.tell();
    }

    fn clear(self: Box<Self>) {
        self.task.clear(&self.shared, self.rest);
    }
}

/// A task.
pub(super) struct Whole<T, E, F> {
    pub(super) id: TaskId,
    pub(super) name: Option<Arc<str>>,
    pub(super) submitted: Instant,
    pub(super) timeout: Option<Duration>,
    pub(super) start_by: Deadline,
    pub(super) over: Latch<()>,
    pub(super) life: Mutex<Life<T, E, F>>,
}

impl Shared {
    pub(super) fn new(pool: Pool, clock: Clock, retention: Retention, shutdown_limit: Option<Duration>) -> Shared {
        Shared {
            table: Mutex::new(Table::new()),
            returned: Condvar::new(),
            timers: Timers::new(clock.clone(), "procession-task-timers"),
            clock,
            pool,
            retention,
            begun: AtomicU64::new(0),
            part: Part::new(shutdown_limit),
        }
    }

    /// Enters a task, which is made with its number, in the step in which it is asked whether the scheduler is stopped. A task
    /// that is refused is not made: what it would have been made of comes back.
    pub(super) fn accept<F, R: AnyRecord + 'static>(
        &self,
        retention: Retention,
        of: F,
        make: impl FnOnce(TaskId, F) -> R,
    ) -> Result<Arc<R>, F> {
        let mut table = lock(&self.table);
        if table.is_stopped() {
            return Err(of);
        }
        let id = table.next_id();
        let task = Arc::new(make(id, of));
        table.insert(id, task.clone(), retention);
        Ok(task)
    }

    /// How many closures have been called.
    pub(super) fn begun(&self) -> u64 {
        // Ordering: Relaxed: it is read under the table's lock, where all that is compared with it was written later.
        self.begun.load(Ordering::Relaxed)
    }

    /// Does what the table could not do under its lock.
    pub(super) fn settle(self: &Arc<Shared>, id: TaskId, settled: Settled<Arc<dyn AnyRecord>>) {
        if let Some(moment) = settled.until {
            let shared = Arc::downgrade(self);
            let forget = Box::new(move || {
                if let Some(shared) = shared.upgrade() {
                    shared.forget(id);
                }
            });
            match self.timers.at(moment, forget) {
                Ok(timer) => {
                    let is_there = lock(&self.table).remove_by(id, timer);
                    if !is_there {
                        drop(self.timers.cancel(timer));
                    }
                }
                // Without a timer it would never go.
                Err(_) => self.forget(id),
            }
        }
        drop(settled.gone);
    }

    fn forget(&self, id: TaskId) {
        let removed = lock(&self.table).remove(id);
        drop(removed);
    }

    /// Takes no more tasks, and decides that those are stopped that are not over. It runs no user code. The stop is open until
    /// [`finish_stop`](Self::finish_stop).
    pub(super) fn begin_stop(self: &Arc<Shared>) -> Vec<Box<dyn Stopped>> {
        let live = lock(&self.table).begin_stop();
        live.into_iter().filter_map(|task| task.decide_stop(self, Reason::Shutdown)).collect()
    }

    /// Does what is left to do for stopped tasks. It runs user code: first all wakers and callbacks, so that a destructor may
    /// wait for any of these tasks, then all destructors.
    pub(super) fn finish_stop(self: &Arc<Shared>, mut stopped: Vec<Box<dyn Stopped>>) {
        let me = thread::current().id();
        let is_at = |task| {
            let before = lock(&self.table).clears(me, task);
            drop(before);
        };
        for stopped in &mut stopped {
            is_at(stopped.task());
            stopped.tell();
        }
        for stopped in stopped {
            is_at(stopped.task());
            stopped.clear();
        }
        self.end_stop(Some(me));
    }

    /// A stop is not open from now on. The thread is the one that has run user code for it, if one has.
    fn end_stop(&self, thread: Option<ThreadId>) {
        let last = lock(&self.table).end_stop(thread);
        drop(last);
        self.returned.notify_all();
        self.tell_tree();
    }

    /// Stops all tasks. A helper thread calls and drops what is the user's. The latch is set when it has done so.
    pub(super) fn stop(self: &Arc<Shared>) -> Option<Latch<()>> {
        let stopped = self.begin_stop();
        if stopped.is_empty() {
            // This may be a destructor that another stop has called on this thread.
            self.end_stop(None);
            return None;
        }
        let shared = self.clone();
        Some(threads::on_helper_thread("procession-shutdown", move || shared.finish_stop(stopped)))
    }

    /// Wherever the scheduler may have come to its end: if it has, its state is done.
    pub(super) fn tell_tree(&self) {
        if self.part.is_wanted() && lock(&self.table).has_ended() {
            self.part.over(None);
        }
    }

    /// Whether the calling thread is in a closure of a task, or in what is called or dropped because tasks are stopped.
    pub(super) fn is_inside(&self) -> bool {
        let me = thread::current().id();
        let records: Vec<_> = {
            let table = lock(&self.table);
            if table.has_inside(me) {
                return true;
            }
            table.records().cloned().collect()
        };
        // Again the first: a task may have ended between the two looks. When it does not run any more, it is there.
        records.iter().any(|record| record.runs_on(me)) || lock(&self.table).has_inside(me)
    }

    /// Waits until the closures of tasks that are over have returned and no stop is open, or until the deadline. A stop that is
    /// open then has the [`GRACE`] on top.
    ///
    /// The tasks whose closures have not returned, and those of which a stop runs user code; but for the calling thread's.
    pub(super) fn wait_until_returned(self: &Arc<Shared>, deadline: Deadline, waits: bool) -> (Tasks, Tasks) {
        if waits {
            self.wait_for_returns(deadline);
        }
        let (me, table) = (thread::current().id(), lock(&self.table));
        (table.inside(me).cloned().collect(), table.cleared(me).cloned().collect())
    }

    fn wait_for_returns(self: &Arc<Shared>, deadline: Deadline) {
        let shared = Arc::downgrade(self);
        let _watch = self.clock.watch(move || {
            if let Some(shared) = shared.upgrade() {
                let _table = lock(&shared.table);
                shared.returned.notify_all();
            }
        });
        let mut table = lock(&self.table);
        while !table.has_settled() && !deadline.has_passed(&self.clock) {
            table = self.clock.wait(&self.returned, table, deadline);
        }
        let system = Clock::system();
        let grace = system.deadline(GRACE);
        while table.has_open_stop() && !grace.has_passed(&system) {
            table = system.wait(&self.returned, table, grace);
        }
    }

    /// A timer for a task: it does nothing if the task, or the scheduler, is gone when it is due.
    pub(super) fn when_due<R: ?Sized + Send + Sync + 'static>(
        self: &Arc<Shared>,
        record: &Arc<R>,
        act: impl FnOnce(&Arc<R>, &Arc<Shared>) + Send + 'static,
    ) -> Box<dyn FnOnce() + Send> {
        let (record, shared): (Weak<R>, _) = (Arc::downgrade(record), Arc::downgrade(self));
        Box::new(move || {
            if let (Some(record), Some(shared)) = (record.upgrade(), shared.upgrade()) {
                act(&record, &shared);
            }
        })
    }
}

impl<T, E, F: Send + 'static> Whole<T, E, F> {
    /// Decides, unless it has been decided: then the result comes back.
    pub(super) fn end(&self, shared: &Arc<Shared>, end: End<T, E>) -> Result<(), Exit<T, E>> {
        self.decide(shared, end).map(|rest| self.finish(shared, rest))
    }

    /// The first step of an end. It runs no user code.
    fn decide(&self, shared: &Arc<Shared>, end: End<T, E>) -> Result<Rest<T, E, F>, Exit<T, E>> {
        let (status, reason, now) = (end.status(), end.reason(), shared.clock.now());
        let (left, settled, unwanted) = {
            let mut life = lock(&self.life);
            let left = life.end(end, now)?;
            let thread = left.running.as_ref().map(|(_, thread)| *thread);
            let settled = lock(&shared.table).end(self.id, status, now, thread);
            let unwanted = if settled.unwanted { life.take() } else { None };
            (left, settled, unwanted)
        };
        let calls = self.over.decide(()).ok();
        Ok(Rest { calls, reason, left, settled, unwanted })
    }

    /// The second step. It runs user code.
    fn finish(&self, shared: &Arc<Shared>, mut rest: Rest<T, E, F>) {
        rest.tell();
        self.clear(shared, rest);
    }

    fn clear(&self, shared: &Arc<Shared>, rest: Rest<T, E, F>) {
        let Rest { left, settled, unwanted, .. } = rest;
        left.loose.clear(&shared.timers);
        shared.settle(self.id, settled);
        drop_contained(left.body);
        drop_contained(unwanted);
    }

    /// Notes what has to be cleared away when it is over, or has begun; if it is already, that is now.
    pub(super) fn attach(&self, shared: &Shared, end: LooseEnd) {
        let moot = lock(&self.life).attach(end);
        if let Some(end) = moot {
            Loose::from(end).clear(&shared.timers);
        }
    }
}

impl<T: Send + 'static, E: Send + 'static, F: Send + 'static> AnyRecord for Whole<T, E, F> {
    fn id(&self) -> TaskId {
        self.id
    }

    fn over(&self) -> &Latch<()> {
        &self.over
    }

    fn status(&self) -> Status {
        lock(&self.life).status()
    }

    fn runs_on(&self, thread: ThreadId) -> bool {
        lock(&self.life).runs_on(thread)
    }

    fn run_if_inside(&self, pool: &Pool, bell: Option<Waker>) -> Helped {
        let (ticket, status) = {
            let life = lock(&self.life);
            (life.ticket(), life.status())
        };
        match ticket {
            Some(ticket) => {
                if let Some(others) = bell.and_then(|bell| pool.others_come(bell)) {
                    return Helped::OthersCome(others);
                }
                ticket.run_if_inside();
                Helped::Done
            }
            None if status == Status::Scheduled && pool.is_inside() => Helped::NotYet,
            None => Helped::Done,
        }
    }

    fn ring_when_in_line(&self, shared: &Shared, bell: Waker) {
        self.attach(shared, LooseEnd::Bell(bell));
    }

    fn info(&self) -> TaskInfo {
        let life = lock(&self.life);
        let ended = life.ended();
        TaskInfo {
            id: self.id,
            name: self.name.clone(),
            status: life.status(),
            exit: ended.map(|ended| ended.exit.clone()),
            submitted: self.submitted,
            started: life.started(),
            ended: ended.map(|ended| ended.at),
            output_type: std::any::type_name::<T>(),
        }
    }

    fn terminate(&self, shared: &Arc<Shared>, status: Status, reason: Reason) -> bool {
        self.end(shared, End::from_outside(status, reason)).is_ok()
    }

    fn decide_stop(self: Arc<Self>, shared: &Arc<Shared>, reason: Reason) -> Option<Box<dyn Stopped>> {
        let rest = self.decide(shared, End::from_outside(Status::Stopped, reason)).ok()?;
        Some(Box::new(StoppedTask { task: self, shared: shared.clone(), rest }))
    }
}

impl<T: Send + 'static, E: Send + 'static, F: Send + 'static> Record<T, E> for Whole<T, E, F> {
    fn take(&self) -> Option<Exit<T, E>> {
        lock(&self.life).take()
    }

    fn put_back(&self, exit: Exit<T, E>) {
        lock(&self.life).put_back(exit);
    }
}
