//! The shared state of a scheduler, and the protocol of a task's end.
//!
//! Several events may end a task. Its closure returns. The task or its token's parent is cancelled. A timer is due.
//! The scheduler is stopped. The pool drops the job. Each of them does the same:
//!
//! 1. Under the task's lock: decide (`task/life.rs`), and note the end in the table. The table's lock is taken inside
//!    the task's lock, never the other way round. Status, result, counts and retention change in this one step. A
//!    result that nobody can take is not stored.
//! 2. With the locks free: wake the waiting threads, call wakers and callbacks, cancel the closure's token, remove
//!    timers and the job in the pool's queue, and drop the user's values. Panics are contained.
//!
//! A second caller finds at 1 that the task has ended, and does nothing. The thread of a closure that returns too late
//! keeps the result and drops it. So when any of these calls has returned, the task has ended.
//!
//! **Stopping** does step 1 for all tasks on the calling thread. Then it does step 2 for all of them on a helper
//! thread. So no user code runs before every task has ended: a destructor may wait for any other task of the
//! scheduler. User code that hangs blocks only the helper thread. A stop is *open* from its begin (under the table's
//! lock) until its step 2 is done. `stop_and_join` and the shutdown tree wait until no stop is open.
//!
//! **Nothing is left behind.** A timer or ticket that is made while the task ends is attached under the task's lock.
//! Either the end comes later and finds it, or `attach` hands it back and the caller removes it. The timer of the
//! timeout is set before the task begins. The begin itself exchanges it for the timers of the start. Either the caller
//! removes those, or the task had ended before, and the caller removes the timeout's timer. A task is added to the
//! table under the lock under which the scheduler is stopped. Either the task is refused, or the stop finds it in
//! the table.

use std::task::Waker;
use std::time::Duration;

use super::info::{Status, TaskId, TaskInfo};
use super::life::{AnyValues, End, ExitValue, Left, Life, Loose};
use super::options::Retention;
use super::table::{Settled, Table};
use crate::clock::{Clock, Deadline};
use crate::latch::{Calls, Latch};
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pool::{CountsOnOthers, Pool, SHUTDOWN_GRACE};
use crate::primitives::{Arc, AtomicU64, Condvar, Mutex, ThreadId, lock, thread};
use crate::shutdown::Part;
use crate::timer::Timers;

pub(super) struct Shared {
    pub(super) table: Mutex<Table<Arc<Record>>>,
    /// Notified when a closure has returned whose task had already ended.
    pub(super) returned: Condvar,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    pub(super) pool: Pool,
    pub(super) retention: Retention,
    /// How many closures have been called.
    ///
    /// Ordering: Relaxed. It is read under the table's lock, and all values that it is compared with were written
    /// later under that lock.
    pub(super) begun: AtomicU64,
    /// The scheduler's place in a shutdown tree, if a node was requested.
    pub(super) part: Part,
}

/// A task. Only its values depend on its types. The table has tasks of any type.
pub(super) struct Record<V: ?Sized = dyn AnyValues> {
    pub(super) id: TaskId,
    pub(super) timeout: Option<Duration>,
    pub(super) start_by: Deadline,
    pub(super) over: Latch<()>,
    pub(super) life: Mutex<Life<V>>,
}

/// The work that remains when the end of a task is decided. It runs user code.
pub(super) struct Rest {
    calls: Option<Calls<()>>,
    reason: Reason,
    left: Left,
    settled: Settled<Arc<Record>>,
}

/// The result of a thread's attempt to run a task that it waits for.
pub(super) enum Helped {
    /// The thread has run the task, or another thread has it.
    Done,
    /// The task does not wait in the queue of the thread's pool. It may enter that queue later.
    NotYet,
    /// Another thread will run the task. The bell is attached while this value lives.
    OthersCome(CountsOnOthers),
}

impl Rest {
    /// Calls the wakers of waiting futures, and the callbacks of the closure's token.
    pub(super) fn tell(&mut self) {
        if let Some(calls) = self.calls.take() {
            calls.make();
        }
        if let Some((context, _)) = &self.left.running
            && context.is_shared()
        {
            context.cancel(self.reason.clone());
        }
    }
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

    /// Does the work that the table could not do under its lock.
    pub(super) fn settle(self: &Arc<Shared>, id: TaskId, settled: Settled<Arc<Record>>) {
        let Settled::Until(moment) = settled else { return };
        let shared = Arc::downgrade(self);
        let forget = Box::new(move || {
            // The record is dropped without the lock.
            let removed = shared.upgrade().map(|shared| lock(&shared.table).remove(id));
            drop(removed);
        });
        match self.timers.at(moment, forget) {
            Ok(timer) => {
                let is_there = lock(&self.table).remove_by(id, timer);
                if !is_there {
                    drop(self.timers.cancel(timer));
                }
            }
            // Without a timer the record would never be removed.
            Err(forget) => forget(),
        }
    }

    /// Accepts no more tasks, and decides that all remaining ones are stopped. It runs no user code. The stop is open
    /// until [`finish_stop`](Self::finish_stop).
    pub(super) fn begin_stop(self: &Arc<Shared>) -> Vec<(Arc<Record>, Rest)> {
        let live = lock(&self.table).begin_stop();
        let stop = |task: Arc<Record>| {
            let rest = task.decide(self, End::terminated(Status::Stopped, Reason::Shutdown), |_| ())?;
            Some((task, rest))
        };
        live.into_iter().filter_map(stop).collect()
    }

    /// Does the remaining work for stopped tasks, which runs user code. It first calls all wakers and callbacks, and
    /// then runs all destructors. So a destructor may wait for any of these tasks.
    pub(super) fn finish_stop(self: &Arc<Shared>, mut stopped: Vec<(Arc<Record>, Rest)>) {
        let me = thread::current().id();
        let is_at = |task: &Arc<Record>| {
            let before = lock(&self.table).clearing.insert(me, task.clone());
            drop(before);
        };
        for (task, rest) in &mut stopped {
            is_at(task);
            rest.tell();
        }
        for (task, rest) in stopped {
            is_at(&task);
            task.clear(self, rest);
        }
        self.end_stop(Some(me));
    }

    /// Notes that a stop is no longer open. `thread` is the thread that has run user code for it, if any has.
    pub(super) fn end_stop(&self, thread: Option<ThreadId>) {
        let last = lock(&self.table).end_stop(thread);
        drop(last);
        self.returned.notify_all();
        self.tell_tree();
    }

    /// Closes the node if the scheduler has ended. It is called wherever the scheduler may have ended.
    pub(super) fn tell_tree(&self) {
        if self.part.is_wanted() && lock(&self.table).has_ended() {
            self.part.over(None);
        }
    }

    /// Whether this thread is in a task's closure, or in user code of a stop.
    pub(super) fn is_inside(&self) -> bool {
        let me = thread::current().id();
        let records: Vec<_> = {
            let table = lock(&self.table);
            if table.has_inside(me) {
                return true;
            }
            table.records().cloned().collect()
        };
        // The first list is checked again, because a task may have ended between the two checks. A task that no
        // longer runs is in this list.
        records.iter().any(|record| record.runs_on(me)) || lock(&self.table).has_inside(me)
    }

    /// Waits for the closures of ended tasks and for open stops, until the deadline. A stop that is open then gets the
    /// [`SHUTDOWN_GRACE`] in addition.
    ///
    /// Returns the tasks whose closures have not returned, and those of which a stop runs user code. The calling
    /// thread's own tasks are left out.
    pub(super) fn wait_until_returned(
        self: &Arc<Shared>,
        deadline: Deadline,
        waits: bool,
    ) -> (Vec<TaskInfo>, Vec<TaskInfo>) {
        let shared = Arc::downgrade(self);
        let _watch = self.clock.watch(move || {
            if let Some(shared) = shared.upgrade() {
                let _table = lock(&shared.table);
                shared.returned.notify_all();
            }
        });
        let mut table = lock(&self.table);
        while waits && !table.has_settled() && !deadline.has_passed(&self.clock) {
            table = self.clock.wait(&self.returned, table, deadline);
        }
        let system = Clock::system();
        let grace = system.deadline(SHUTDOWN_GRACE);
        while waits && table.open_stops > 0 && !grace.has_passed(&system) {
            table = system.wait(&self.returned, table, grace);
        }
        let me = thread::current().id();
        let (running, clearing): (Vec<_>, Vec<_>) =
            (table.inside(me).cloned().collect(), table.cleared(me).cloned().collect());
        // The lock of a task is never taken inside of the table's.
        drop(table);
        let infos = |tasks: Vec<Arc<Record>>| tasks.iter().map(|task| task.info()).collect();
        (infos(running), infos(clearing))
    }
}

impl<V: ?Sized + AnyValues> Record<V> {
    /// Ends the task from outside. Returns whether this call ended it.
    pub(super) fn terminate(&self, shared: &Arc<Shared>, status: Status, reason: Reason) -> bool {
        self.end(shared, End::terminated(status, reason), |_| ())
    }

    /// Ends the task, unless it has ended before. If the result is wanted, `store` stores it. Returns whether this
    /// call ended the task.
    pub(super) fn end(&self, shared: &Arc<Shared>, end: End, store: impl FnOnce(&mut V)) -> bool {
        let Some(mut rest) = self.decide(shared, end, store) else { return false };
        rest.tell();
        self.clear(shared, rest);
        true
    }

    /// The first step of an end. It runs no user code.
    pub(super) fn decide(&self, shared: &Arc<Shared>, end: End, store: impl FnOnce(&mut V)) -> Option<Rest> {
        let (status, now) = (end.status, shared.clock.now());
        let reason = match &end.exit {
            Exit::Terminated(reason) => reason.clone(),
            _ => Reason::Ended,
        };
        let (left, settled) = {
            let mut life = lock(&self.life);
            let left = life.end(end, now)?;
            let thread = left.running.as_ref().map(|(_, thread)| *thread);
            let settled = lock(&shared.table).end(self.id, status, now, thread);
            if let Settled::HasHandle = settled {
                store(&mut life.values);
            }
            (left, settled)
        };
        let calls = self.over.decide(()).ok();
        Some(Rest { calls, reason, left, settled })
    }

    /// The end of the second step, after [`Rest::tell`].
    pub(super) fn clear(&self, shared: &Arc<Shared>, rest: Rest) {
        rest.left.loose.clear(&shared.timers);
        shared.settle(self.id, rest.settled);
        drop_contained(rest.left.body);
    }

    /// Notes items that must be cleared when the task has ended or begun. Those that come too late are cleared now.
    pub(super) fn attach(&self, shared: &Shared, loose: Loose) {
        let moot = lock(&self.life).attach(loose);
        moot.clear(&shared.timers);
    }

    pub(super) fn status(&self) -> Status {
        lock(&self.life).info.status
    }

    /// Whether the task runs on this thread. It is `false` for an ended task, even if its closure still runs here.
    pub(super) fn runs_on(&self, thread: ThreadId) -> bool {
        lock(&self.life).running.as_ref().is_some_and(|(_, other)| *other == thread)
    }

    /// Runs the task here, if it waits in the queue of the calling thread's pool. Otherwise the task might wait for
    /// the very thread that waits for it. With a bell, the task is only run if no other thread runs it at once. If
    /// another thread does, the bell rings when that is no longer true.
    pub(super) fn run_if_inside(&self, pool: &Pool, bell: Option<Waker>) -> Helped {
        let (ticket, status) = {
            let life = lock(&self.life);
            (life.loose.ticket.clone(), life.info.status)
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

    /// Rings the bell when the task waits for a thread, or when it never will.
    pub(super) fn ring_when_in_line(&self, shared: &Shared, bell: Waker) {
        self.attach(shared, Loose { bell: Some(bell), ..Loose::default() });
    }

    pub(super) fn info(&self) -> TaskInfo {
        lock(&self.life).info.clone()
    }

    /// Takes the result, from a task that has ended.
    pub(super) fn take<T, E>(&self) -> Option<Exit<T, E>>
    where
        V: ExitValue<T, E>,
    {
        lock(&self.life).values.exit().take()
    }
}
