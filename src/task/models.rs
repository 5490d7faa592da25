//! The races of a task's end, under the model checker: the real record, table and timers; the models are the pool.

use std::time::Duration;

use super::handle::TaskHandle;
use super::info::Status;
use super::life::{Life, LooseEnd};
use super::options::Retention;
use super::set::TaskSet;
use super::shared::{AnyRecord, Shared, Whole};
use crate::cancel::CancelToken;
use crate::clock::{Deadline, ManualClock};
use crate::latch::Latch;
use crate::outcome::{Exit, Reason};
use crate::pool::Pool;
use crate::primitives::{Arc, AtomicUsize, Mutex, Ordering, lock};

/// What a closure returns: counts that it is dropped.
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Body = Box<dyn FnOnce(&CancelToken) -> Result<Token, String> + Send>;
type Subject = Arc<Whole<Token, String, Body>>;

struct Bench {
    shared: Arc<Shared>,
    calls: Arc<AtomicUsize>,
    drops: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Arc<Bench> {
        Bench::with(1)
    }

    fn with(threads: usize) -> Arc<Bench> {
        let clock = ManualClock::new().clock();
        let pool = Pool::builder().max(threads).clock(clock.clone()).build().unwrap();
        let shared = Arc::new(Shared::new(pool, clock, Retention::WithHandle, None));
        Arc::new(Bench { shared, calls: Arc::default(), drops: Arc::default() })
    }

    /// A task that is in the table and in no pool, unless the scheduler is stopped.
    fn accept(&self) -> Option<(Subject, TaskHandle<Token, String>)> {
        self.accept_with(|| ())
    }

    /// The same with something that its closure does.
    fn accept_with(&self, act: impl FnOnce() + Send + 'static) -> Option<(Subject, TaskHandle<Token, String>)> {
        let (calls, drops) = (self.calls.clone(), self.drops.clone());
        let body: Body = Box::new(move |_| {
            act();
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(Token(drops))
        });
        let accepted = self.shared.accept(Retention::WithHandle, body, |id, body| Whole {
            id,
            name: None,
            submitted: self.shared.clock.now(),
            timeout: None,
            start_by: Deadline::NEVER,
            over: Latch::new(),
            life: Mutex::new(Life::new(body)),
        });
        let task: Subject = accepted.ok()?;
        let handle = TaskHandle::new(task.clone(), self.shared.clone());
        Some((task, handle))
    }

    /// As the scheduler does, but on this thread.
    fn stop(&self) {
        let stopped = self.shared.begin_stop();
        self.shared.finish_stop(stopped);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn drops(&self) -> usize {
        self.drops.load(Ordering::Relaxed)
    }
}

/// Breaks when `end` does not look whether it has been decided, and when `begin` does not.
#[test]
fn one_of_returned_cancelled_and_stopped_decides() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        let runner = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.run(&bench.shared)
        });
        let canceller = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.terminate(&bench.shared, Status::Cancelled, Reason::Cancelled)
        });
        bench.stop();
        let status = handle.status();
        assert!(status.is_finished(), "when stop returns, it is over");
        let cancelled = canceller.join().unwrap();
        runner.join().unwrap();
        assert_eq!(handle.status(), status, "and stays so");
        assert_eq!(cancelled, status == Status::Cancelled);
        let started = handle.info().started.is_some();
        assert_eq!(bench.calls(), usize::from(started), "who ends it before it begins has its closure");
        let exit = handle.wait().unwrap();
        assert_eq!(matches!(exit, Exit::Done(_)), status == Status::Completed);
        drop(exit);
        assert_eq!(bench.drops(), bench.calls(), "its result was had once, or dropped once");
        let table = lock(&bench.shared.table);
        assert_eq!((table.len(), table.abandoned(), table.counts.over()), (0, 0, 1));
    });
}

/// Breaks when the time is over in one step and the status changes in another.
#[test]
fn the_time_is_over_while_the_closure_returns() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        let runner = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.run(&bench.shared)
        });
        let timer = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.terminate(&bench.shared, Status::TimedOut, Reason::TimedOut)
        });
        // As `wait` does, but for the question whether this is a thread of the pool, which has models of its own.
        task.over.wait();
        let exit = handle.try_result().unwrap();
        let timed_out = timer.join().unwrap();
        runner.join().unwrap();
        assert_eq!(timed_out, matches!(exit, Exit::Terminated(Reason::TimedOut)));
        assert_eq!(!timed_out, matches!(exit, Exit::Done(_)));
        assert_eq!(task.status() == Status::TimedOut, timed_out);
    });
}

/// Breaks when the timer by which a task has to begin ends it also after it has begun.
#[test]
fn a_task_begins_while_the_time_for_that_is_over() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        let timer = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.time_out_unless_begun(&bench.shared)
        });
        task.run(&bench.shared);
        timer.join().unwrap();
        let (status, began) = (handle.status(), handle.info().started.is_some());
        assert_eq!(status, if began { Status::Completed } else { Status::TimedOut });
        assert_eq!(bench.calls(), usize::from(began));
    });
}

/// Breaks when the table looks whether it is stopped in one critical section and takes the task in another.
#[test]
fn submitting_against_stopping() {
    loom::model(|| {
        let bench = Bench::new();
        let submitter = loom::thread::spawn({
            let bench = bench.clone();
            move || {
                let (task, handle) = bench.accept()?;
                task.run(&bench.shared);
                Some(handle)
            }
        });
        bench.stop();
        let over_then = {
            let table = lock(&bench.shared.table);
            table.records().all(|record| record.status().is_finished())
        };
        assert!(over_then, "when stop returns, all that were accepted are over");
        match submitter.join().unwrap() {
            Some(handle) => {
                assert!(handle.status().is_finished());
                assert_eq!(bench.calls(), usize::from(handle.info().started.is_some()));
            }
            None => assert_eq!(bench.calls(), 0),
        }
        assert_eq!(bench.drops(), bench.calls());
        assert_eq!(lock(&bench.shared.table).len(), 0);
    });
}

/// Breaks when the end clears away first and is noted afterwards, and when what is attached does not look for the end.
#[test]
fn a_timer_that_is_made_while_the_task_ends_is_not_left_behind() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, _handle) = bench.accept().unwrap();
        let canceller = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.terminate(&bench.shared, Status::Cancelled, Reason::Cancelled)
        });
        let timer = bench.shared.timers.after(Duration::from_secs(1), Box::new(|| ())).ok().unwrap().unwrap();
        task.attach(&bench.shared, LooseEnd::StartBy(timer));
        assert!(canceller.join().unwrap());
        assert_eq!(bench.shared.timers.pending(), 0);
    });
}

/// Breaks when the end looks for the handle in one critical section and puts the result away in another.
#[test]
fn the_handle_is_dropped_while_the_task_ends() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        let runner = loom::thread::spawn({
            let bench = bench.clone();
            move || task.run(&bench.shared)
        });
        drop(handle);
        runner.join().unwrap();
        assert_eq!((bench.calls(), bench.drops()), (1, 1), "a result that nobody can have is dropped");
        assert_eq!(lock(&bench.shared.table).len(), 0);
    });
}

/// Breaks when the closure's return is not waited for under the lock under which it is noted.
#[test]
fn somebody_waits_for_a_closure_whose_task_is_over() {
    loom::model(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        let runner = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.run(&bench.shared)
        });
        bench.stop();
        assert!(bench.shared.wait_until_returned(Deadline::NEVER, true).0.is_empty());
        let had_begun = handle.info().started.is_some();
        assert_eq!(bench.calls(), usize::from(had_begun));
        drop(handle);
        assert_eq!(bench.drops(), usize::from(had_begun), "what came late was dropped before");
        runner.join().unwrap();
    });
}

/// Breaks when a closure whose task is ended while it asks is in none of the places that are looked at: not yet among those
/// whose tasks are over, when these are looked at, and not running any more, when the tasks are.
#[test]
fn a_closure_is_inside_also_while_its_task_is_ended() {
    loom::model(|| {
        let bench = Bench::new();
        let asks = Arc::downgrade(&bench.shared);
        let (task, handle) = bench.accept_with(move || assert!(asks.upgrade().unwrap().is_inside())).unwrap();
        let canceller = loom::thread::spawn({
            let (task, bench) = (task.clone(), bench.clone());
            move || task.terminate(&bench.shared, Status::Cancelled, Reason::Cancelled)
        });
        task.run(&bench.shared);
        canceller.join().unwrap();
        assert!(!bench.shared.is_inside(), "it has returned");
        let has_begun = handle.info().started.is_some();
        assert_eq!(bench.calls(), usize::from(has_begun), "and said that it was inside, if it was called");
    });
}

/// Breaks when a thread that waits for a delayed task looks for its place in the pool's line in one critical section, and
/// leaves its bell in another.
#[test]
fn the_only_thread_waits_for_a_task_that_is_being_queued() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        bench.shared.pool.execute(move || assert!(handle.wait().unwrap().is_done())).unwrap();
        task.give_late_to_pool(&bench.shared);
        bench.shared.pool.drain().unwrap();
        assert_eq!((bench.calls(), bench.drops()), (1, 1));
        assert_eq!(bench.shared.pool.stats().panicked, 0);
    });
}

/// The same, when the task ends instead.
#[test]
fn the_only_thread_waits_for_a_task_that_is_never_queued() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let bench = Bench::new();
        let (task, handle) = bench.accept().unwrap();
        bench.shared.pool.execute(move || assert!(!handle.wait().unwrap().is_done())).unwrap();
        assert!(task.terminate(&bench.shared, Status::Cancelled, Reason::Cancelled));
        bench.shared.pool.drain().unwrap();
        assert_eq!((bench.calls(), bench.shared.pool.stats().panicked), (0, 0));
    });
}

/// Breaks when a thread that waits for a set counts on another one to come for a task of it, and does not hear that this one
/// does not.
#[test]
fn a_set_is_waited_for_while_the_pools_other_thread_goes() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    builder.check(|| {
        let bench = Bench::with(2);
        let (task, handle) = bench.accept().unwrap();
        let pool = &bench.shared.pool;
        // Two threads, of which one has soon nothing to do.
        pool.execute(|| ()).unwrap();
        pool.execute(move || {
            let mut set = TaskSet::from_iter([handle]);
            assert!(set.wait_next().unwrap().unwrap().1.is_done());
        })
        .unwrap();
        task.give_late_to_pool(&bench.shared);
        pool.resize(0, 1).unwrap();
        pool.drain().unwrap();
        assert_eq!((bench.calls(), bench.drops()), (1, 1));
        assert_eq!(pool.stats().panicked, 0);
    });
}
