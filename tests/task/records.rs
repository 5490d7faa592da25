//! Removing records, and keeping them.

use procession::Reason;
use procession::sync::Latch;
use procession::task::{RemoveError, Retention, Status, TaskId, TaskOptions, TaskScheduler};

use crate::support::*;

/// A task that has ended and whose handle is dropped.
fn done(tasks: &TaskScheduler, keep: Retention) -> TaskId {
    let task = tasks.submit_with(TaskOptions::new().retention(keep), |_| Ok::<_, String>(())).unwrap();
    let id = task.id();
    assert!(end(task).is_done());
    id
}

#[test]
fn a_removed_task_is_forgotten() {
    let tasks = tasks();
    let id = done(&tasks, Retention::UntilRemoved);
    assert_eq!(tasks.status(id).unwrap(), Status::Completed);
    tasks.remove(id).unwrap();
    assert!(tasks.status(id).is_err() && tasks.info(id).is_err() && tasks.list().is_empty());
}

#[test]
fn a_task_that_is_not_over_is_not_removed() {
    let (_, _pool, tasks) = bounded(1);
    let held = stubborn(&tasks, TaskOptions::new());
    let waits = tasks.submit(|_| Ok::<_, String>(1)).unwrap();
    for (id, status) in [(held.task.id(), Status::Running), (waits.id(), Status::Scheduled)] {
        let refused = tasks.remove(id).unwrap_err();
        assert_eq!((refused, tasks.status(id).unwrap()), (RemoveError::NotFinished(id), status));
        assert_eq!(refused.to_string(), format!("task {id} is not over"));
    }
    held.let_go();
    assert_eq!((end(held.task).output(), end(waits).output()), (Some(&7), Some(&1)));
}

#[test]
fn removing_what_is_unknown_or_removed_is_an_error() {
    let tasks = tasks();
    let id = done(&tasks, Retention::UntilRemoved);
    tasks.remove(id).unwrap();
    assert_eq!(tasks.remove(id), Err(RemoveError::Unknown(id)));
    assert_eq!(tasks.remove(done(&tasks, Retention::WithHandle)).unwrap_err().to_string(), "there is no task 2");
}

#[test]
fn a_record_stays_with_its_handle_or_as_long_as_it_is_kept() {
    let tasks = tasks();
    let task = tasks.submit(|_| Ok::<_, String>(())).unwrap();
    let id = task.id();
    until("it is over", || task.status().is_finished());
    assert_eq!(tasks.status(id).unwrap(), Status::Completed);
    drop(task);
    assert!(tasks.status(id).is_err());
    let kept = done(&tasks, Retention::UntilRemoved);
    assert_eq!(tasks.status(kept).unwrap(), Status::Completed);
    // As the scheduler was told, where the task does not say so.
    let keeps = TaskScheduler::builder().retention(Retention::UntilRemoved).build();
    let task = keeps.submit(|_| Ok::<_, String>(())).unwrap();
    let id = task.id();
    end(task);
    assert_eq!(keeps.info(id).unwrap().status, Status::Completed);
    let own = keeps.submit_with(TaskOptions::new().retention(Retention::WithHandle), |_| Ok::<_, String>(())).unwrap();
    let id = own.id();
    end(own);
    assert!(keeps.info(id).is_err());
}

#[test]
fn a_task_without_handle_is_known_until_it_is_over() {
    let (_, _pool, tasks) = bounded(1);
    let Stubborn { task, blocker, returned } = stubborn(&tasks, TaskOptions::new());
    let (id, waits) = (task.id(), tasks.submit(obedient).unwrap());
    let waiting = waits.id();
    drop((task, waits));
    assert_eq!((tasks.status(id).unwrap(), tasks.status(waiting).unwrap()), (Status::Running, Status::Scheduled));
    assert!(tasks.cancel(waiting).unwrap());
    assert!(tasks.status(waiting).is_err(), "it was over at once");
    blocker.release();
    wait(&returned);
    until("it is forgotten", || tasks.status(id).is_err());
    assert_eq!(tasks.stats().completed, 1);
}

#[test]
fn records_can_be_kept_for_a_time() {
    let (manual, tasks) = manual();
    let (short, long) = (done(&tasks, Retention::For(SECOND)), done(&tasks, Retention::For(HOUR)));
    let ever = done(&tasks, Retention::For(std::time::Duration::MAX));
    until("both are kept by a timer", || tasks.stats().timers == 2);
    manual.advance(SECOND - MILLI);
    assert!(tasks.status(short).is_ok());
    manual.advance(MILLI);
    assert!(tasks.status(short).is_err() && tasks.status(long).is_ok());
    tasks.remove(long).unwrap();
    assert_eq!(tasks.stats().timers, 0, "the timer goes with the record");
    // The time counts from the end, and the handle keeps it in any case.
    let task =
        tasks.submit_with(TaskOptions::new().retention(Retention::For(SECOND)), |_| Ok::<_, String>(())).unwrap();
    let id = task.id();
    until("it is over", || task.status().is_finished());
    manual.advance(HOUR);
    assert!(tasks.status(id).is_ok());
    drop(task);
    assert!(tasks.status(id).is_err());
    assert!(tasks.status(ever).is_ok());
    // Also of those that are kept beyond the stop.
    let kept = done(&tasks, Retention::For(SECOND));
    tasks.stop();
    assert!(tasks.status(kept).is_ok());
    manual.advance(SECOND);
    assert!(tasks.status(kept).is_err());
}

#[test]
fn the_newest_records_can_be_kept() {
    let tasks = tasks();
    let all: Vec<_> = (0..10).map(|_| done(&tasks, Retention::Newest(3))).collect();
    let there: Vec<_> = tasks.list().into_iter().map(|task| task.id).collect();
    assert_eq!(there, all[7..]);
    assert!(tasks.status(all[6]).is_err());
    assert_eq!(tasks.stats().records, 3);
}

#[test]
fn the_record_of_a_closure_that_still_runs_can_be_removed() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new().retention(Retention::UntilRemoved));
    let id = held.task.id();
    held.task.cancel();
    tasks.remove(id).unwrap();
    let stats = tasks.stats();
    assert_eq!((stats.records, stats.abandoned), (0, 1), "it is still counted");
    assert!(tasks.status(id).is_err());
    held.let_go();
    tasks.stop_and_join(LIMIT).unwrap();
    let stats = tasks.stats();
    assert_eq!((stats.records, stats.abandoned, stats.cancelled, stats.completed), (0, 0, 1, 0));
    assert!(was_ended(&wait(held.task), Reason::Cancelled));
}

#[test]
fn many_submissions_with_dropped_handles_leave_an_empty_table() {
    let (_, pool, tasks) = bounded(2);
    for _ in 0..50_000 {
        drop(tasks.submit(|_| Ok::<_, String>([0_u8; 64])).unwrap());
    }
    until("all are over", || tasks.stats().completed == 50_000);
    until("the pool has them off its hands", || pool.stats().running == 0);
    assert!(tasks.list().is_empty());
    assert_eq!((tasks.stats().records, tasks.stats().abandoned), (0, 0));
    let last = Latch::new();
    let set = last.clone();
    drop(tasks.submit(move |_| set.set(()).map_err(|()| "twice")).unwrap());
    wait(&last);
}
