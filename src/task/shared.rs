//! What the handles of a scheduler, its timers and its jobs share, and the protocol of a task's end.
//!
//! Several may want to end a task: its closure returns; somebody cancels it, or what it stands under; a timer is due; the
//! scheduler is stopped; the pool drops its job. Each of them does the same:
//!
//! 1. Under the task's lock: decide (`task/record.rs`), and note it in the table (under the table's lock, which is taken
//!    inside of it; nobody takes a task's lock under the table's). Status, result, counts and retention change in this one
//!    step.
//! 2. With the locks free: wake who waits; make the request that the closure was given; clear timers and the job in the
//!    pool's line away; drop what is the user's, contained.
//!
//! Who comes second finds the task over at 1 and does nothing; a closure that does so has its result back, and drops it.
//! So when any of these calls has returned, the task is over, whoever it was.
//!
//! **Nothing is left behind.** A timer or ticket that is made while the task ends is attached under the task's lock: either
//! the end comes later and finds it, or it comes back and is cleared away by whoever made it. A task enters the table under
//! the same lock under which the scheduler is stopped: either it is refused, or the stop finds it there.

use std::task::Waker;
use std::time::{Duration, Instant};

use super::options::Keep;
use super::record::{End, Life, Loose, LooseEnd};
use super::status::{Status, TaskId, TaskInfo};
use super::table::{Settled, Table};
use crate::clock::{Clock, Deadline};
use crate::latch::Latch;
use crate::outcome::{Exit, Reason, drop_contained};
use crate::pool::{CountsOnOthers, Pool};
use crate::shutdown::Part;
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering, ThreadId, Weak, lock, thread};
use crate::threads::Reaper;
use crate::timer::Timers;

pub(super) struct Shared {
    pub(super) table: Mutex<Table<Arc<dyn AnyRecord>>>,
    /// Notified when a closure has returned whose task was over before.
    pub(super) returned: Condvar,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    pub(super) pool: Pool,
    pub(super) keep: Keep,
    pub(super) begun: AtomicU64,
    /// For closures that are dropped uncalled when a timer is due: whatever their destructors do, the next timer is on time.
    reaper: Reaper,
    /// Its place in a shutdown tree, if somebody has asked for it.
    pub(super) part: Part,
}

/// A task, whatever its types.
pub(super) trait AnyRecord: Send + Sync {
    fn id(&self) -> TaskId;
    fn over(&self) -> &Latch<()>;
    fn status(&self) -> Status;
    fn info(&self) -> TaskInfo;
    /// Whether its closure runs on this thread, as far as the record knows: not any more when the task is over.
    fn runs_on(&self, thread: ThreadId) -> bool;
    /// If the calling thread is one of the pool's, and the task waits there for one, it is run here and now: otherwise it
    /// might wait for the very thread that waits for it. With a bell, it is only run if no other thread comes to it at once,
    /// and otherwise the bell is rung when that is so no more.
    fn run_if_inside(&self, pool: &Pool, bell: Option<Waker>) -> Helped;
    /// Has the bell rung when the task waits for a thread, or when it never will.
    fn ring_when_in_line(&self, shared: &Shared, bell: Waker);
    /// Ends it from outside; whether this call did it.
    fn terminate(&self, shared: &Arc<Shared>, status: Status, reason: Reason) -> bool;
}

/// What a thread has done for a task that it waits for.
pub(super) enum Helped {
    /// What it could: it has run it, or somebody else has it.
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
    pub(super) fn new(pool: Pool, clock: Clock, keep: Keep, shutdown_limit: Option<Duration>) -> Shared {
        Shared {
            table: Mutex::new(Table::new()),
            returned: Condvar::new(),
            timers: Timers::new(clock.clone(), "procession-task-timers"),
            clock,
            pool,
            keep,
            begun: AtomicU64::new(0),
            reaper: Reaper::default(),
            part: Part::new(shutdown_limit),
        }
    }

    /// Enters a task, which is made with its number, in the step in which it is asked whether the scheduler is stopped. A task
    /// that is refused is not made: what it would have been made of comes back.
    pub(super) fn accept<F, R: AnyRecord + 'static>(
        &self,
        keep: Keep,
        of: F,
        make: impl FnOnce(TaskId, F) -> R,
    ) -> Result<Arc<R>, F> {
        let mut table = lock(&self.table);
        if table.is_stopped() {
            return Err(of);
        }
        let id = table.next_id();
        let task = Arc::new(make(id, of));
        table.insert(id, task.clone(), keep);
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
                // Nobody would come for it later.
                Err(_) => self.forget(id),
            }
        }
        drop(settled.gone);
    }

    fn forget(&self, id: TaskId) {
        let removed = lock(&self.table).remove(id);
        drop(removed);
    }

    /// Takes no more tasks, and ends those that are not over.
    pub(super) fn stop(self: &Arc<Shared>) {
        let me = thread::current().id();
        let live = lock(&self.table).stop(me);
        for task in live {
            // If somebody else has decided meanwhile, that was complete when this returns.
            task.terminate(self, Status::Stopped, Reason::Shutdown);
        }
        lock(&self.table).has_stopped(me);
        self.tell_tree();
    }

    /// Whether the calling thread is about to end all that are not over.
    pub(super) fn stops_here(&self) -> bool {
        lock(&self.table).stops(thread::current().id())
    }

    /// Wherever the scheduler may have come to its end: if it has, its state is done.
    pub(super) fn tell_tree(&self) {
        if self.part.is_wanted() && lock(&self.table).is_over_for_good() {
            self.part.over(None);
        }
    }

    /// Whether the calling thread is in a closure of a task, or in what is called or dropped because it stops all tasks: those
    /// behind it are not over before it returns.
    pub(super) fn is_inside(&self) -> bool {
        let me = thread::current().id();
        let records: Vec<_> = {
            let table = lock(&self.table);
            if table.has_inside(me) || table.stops(me) {
                return true;
            }
            table.records().cloned().collect()
        };
        // Again the first: a task may have ended between the two looks. When it does not run any more, it is there.
        records.iter().any(|record| record.runs_on(me)) || lock(&self.table).has_inside(me)
    }

    /// Waits until the closures of tasks that are over have returned, but for one on this thread, or until the deadline.
    /// Those that have not. Closures that all wait here do not wait for each other.
    pub(super) fn wait_until_returned(self: &Arc<Shared>, deadline: Deadline) -> Vec<Arc<dyn AnyRecord>> {
        let me = thread::current().id();
        let shared = Arc::downgrade(self);
        let _watch = self.clock.watch(move || {
            if let Some(shared) = shared.upgrade() {
                let _table = lock(&shared.table);
                shared.returned.notify_all();
            }
        });
        let mut table = lock(&self.table);
        let joins = table.begin_join(me);
        if joins {
            // Another one may have waited for this one only.
            self.returned.notify_all();
        }
        while table.to_join(me).next().is_some() && !deadline.has_passed(&self.clock) {
            table = self.clock.wait(&self.returned, table, deadline);
        }
        let left = table.to_join(me).cloned().collect();
        if joins {
            table.end_join(me);
        }
        left
    }

    /// Drops a closure that was never called: on this thread, unless that is the timers'.
    fn let_go<F: Send + 'static>(&self, body: F) {
        if std::mem::needs_drop::<F>() && self.timers.is_current() {
            self.reaper.take(body);
        } else {
            drop_contained(body);
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
        let (status, reason, now) = (end.status(), end.reason(), shared.clock.now());
        let (left, unwanted, settled) = {
            let mut life = lock(&self.life);
            let left = life.end(end, now)?;
            let thread = left.running.as_ref().map(|(_, thread)| *thread);
            let settled = lock(&shared.table).is_finished(self.id, status, now, thread);
            (left, if settled.unwanted { life.take() } else { None }, settled)
        };
        let _ = self.over.set(());
        if let Some((context, _)) = left.running {
            context.cancel(reason);
        }
        left.loose.clear(&shared.timers);
        shared.settle(self.id, settled);
        if let Some(body) = left.body {
            shared.let_go(body);
        }
        drop_contained(unwanted);
        Ok(())
    }

    /// Notes what has to be cleared away when it is over, or has begun; if it is already, that is now.
    pub(super) fn attach(&self, shared: &Shared, end: LooseEnd) {
        let moot = lock(&self.life).attach(end);
        if let Some(end) = moot {
            Loose::from(end).clear(&shared.timers);
        }
    }
}

impl<T: Send, E: Send, F: Send + 'static> AnyRecord for Whole<T, E, F> {
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
}

impl<T: Send, E: Send, F: Send + 'static> Record<T, E> for Whole<T, E, F> {
    fn take(&self) -> Option<Exit<T, E>> {
        lock(&self.life).take()
    }

    fn put_back(&self, exit: Exit<T, E>) {
        lock(&self.life).put_back(exit);
    }
}
