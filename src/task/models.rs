//! The races of a task's end under the model checker. The tests use the real record, table and timers. The models act
//! as the pool.

use std::time::Duration;

use super::handle::TaskHandle;
use super::info::Status;
use super::job::Task;
use super::life::Loose;
use super::options::{Retention, TaskOptions};
use super::set::TaskSet;
use super::shared::Shared;
use crate::cancel::CancelToken;
use crate::clock::{Deadline, ManualClock};
use crate::outcome::{Exit, Reason};
use crate::pool::Pool;
use crate::primitives::{Arc, AtomicUsize, Ordering, lock};

/// A closure's result, which counts its drops.
struct Token(Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Body = Box<dyn FnOnce(&CancelToken) -> Result<Token, String> + Send>;
type Subject = Arc<Task<Body>>;

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

    /// Accepts a task that is in the table and in no pool. Returns `None` if the scheduler is stopped.
    fn accept(&self) -> Option<(Subject, TaskHandle<Token, String>)> {
        self.accept_with(|| ())
    }

    /// As `accept`, with an action for the closure.
    fn accept_with(&self, act: impl FnOnce() + Send + 'static) -> Option<(Subject, TaskHandle<Token, String>)> {
        let (calls, drops) = (self.calls.clone(), self.drops.clone());
        let body: Body = Box::new(move |_| {
            act();
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(Token(drops))
        });
        let task = self.shared.accept(&TaskOptions::new(), body).ok()?;
        let handle = TaskHandle::new(task.clone(), self.shared.clone());
        Some((task, handle))
    }

    /// Does what the scheduler does for a stop, but on this thread.
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

/// Fails if `end` does not check whether the task has ended, or if `begin` does not.
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
        assert_eq!((table.len(), table.inside.len(), table.counts.over()), (0, 0, 1));
    });
}

/// Fails if the timeout is decided in one step and the status changes in another.
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
        // As `wait` does, without the check for a thread of the pool. That check has models of its own.
        task.over.wait();
        let exit = handle.try_result().unwrap();
        let timed_out = timer.join().unwrap();
        runner.join().unwrap();
        assert_eq!(timed_out, matches!(exit, Exit::Terminated(Reason::TimedOut)));
        assert_eq!(!timed_out, matches!(exit, Exit::Done(_)));
        assert_eq!(task.status() == Status::TimedOut, timed_out);
    });
}

/// Fails if the timer for a late start also ends a task that has begun.
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

/// Fails if the table checks for a stop in one critical section and adds the task in another.
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

/// Fails if the end clears items before it is noted, or if `attach` does not check for the end.
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
        task.attach(&bench.shared, Loose { timers: vec![timer], ..Loose::default() });
        assert!(canceller.join().unwrap());
        assert_eq!(bench.shared.timers.pending(), 0);
    });
}

/// Fails if the end checks for the handle in one critical section and stores the result in another.
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

/// Fails if the wait for a closure's return does not use the lock under which the return is noted.
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

/// Fails if a closure whose task ends during the check is in neither list when that list is checked. It is not yet in
/// the list of closures of ended tasks when that list is checked. It is no longer a running task when the tasks are
/// checked.
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

/// Fails if a thread that waits for a delayed task checks for its place in the pool's queue in one critical section,
/// and attaches its bell in another.
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

/// The same, if the task ends instead.
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

/// Fails if a thread that waits for a set counts on another thread to run a task of it, and is not notified when that
/// thread does not.
#[test]
fn a_set_is_waited_for_while_the_pools_other_thread_goes() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(1);
    builder.check(|| {
        let bench = Bench::with(2);
        let (task, handle) = bench.accept().unwrap();
        let pool = &bench.shared.pool;
        // There are two threads. One of them soon has no job.
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
