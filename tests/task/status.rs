//! Status.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use procession::sync::Latch;
use procession::task::{Retention, Status, TaskOptions};
use procession::{Exit, Reason};

use crate::support::*;

const ALL: [(Status, &str); 6] = [
    (Status::Scheduled, "Scheduled"),
    (Status::Running, "Running"),
    (Status::Stopped, "Stopped"),
    (Status::Cancelled, "Cancelled"),
    (Status::Completed, "Completed"),
    (Status::TimedOut, "TimedOut"),
];

#[test]
fn six_statuses_print_by_their_names_and_four_are_final() {
    for (status, text) in ALL {
        assert_eq!(status.to_string(), text);
        assert_eq!(status.is_finished(), !matches!(text, "Scheduled" | "Running"));
    }
}

/// How far a status is on its way.
fn stage(status: Status) -> usize {
    match status {
        Status::Scheduled => 0,
        Status::Running => 1,
        _ => 2,
    }
}

#[test]
fn a_status_never_goes_back() {
    let (_, _pool, tasks) = bounded(2);
    let mut ends = std::collections::HashSet::new();
    for round in 0..400 {
        let task = tasks.submit(|_| Ok::<_, String>(())).unwrap();
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut seen = vec![task.status()];
                while !task.status().is_finished() {
                    seen.push(task.status());
                }
                seen.extend([task.status(), task.info().status]);
                seen
            });
            if round % 2 == 1 {
                task.cancel();
            }
            let seen = wait(watcher).unwrap();
            assert!(seen.is_sorted_by_key(|status| stage(*status)), "{seen:?}");
            let over: Vec<_> = seen.iter().filter(|status| status.is_finished()).collect();
            assert!(over.windows(2).all(|two| two[0] == two[1]), "{seen:?}");
            ends.insert(seen[seen.len() - 1]);
        });
    }
    assert!(ends.contains(&Status::Completed), "{ends:?}");
}

#[test]
fn scheduled_running_and_the_end_are_seen_in_this_order() {
    let (_, _pool, tasks) = bounded(1);
    let first = stubborn(&tasks, TaskOptions::new());
    let second = tasks.submit(obedient).unwrap();
    assert_eq!(second.status(), Status::Scheduled);
    first.let_go();
    until("the second runs", || second.status() == Status::Running);
    second.cancel();
    assert_eq!(second.status(), Status::Cancelled);
}

#[test]
fn nothing_that_comes_later_changes_the_end() {
    let (manual, tasks) = manual();
    let held = |options: TaskOptions| stubborn(&tasks, options.timeout(SECOND));
    let [cancelled, timed_out, completed] = [(); 3].map(|()| held(TaskOptions::new()));
    assert!(cancelled.task.cancel());
    completed.let_go();
    until("it is over", || completed.task.status().is_finished());
    let stopped = stubborn(&tasks, TaskOptions::new());
    manual.advance(2 * SECOND);
    tasks.stop();
    let ends = [
        (&cancelled, Status::Cancelled),
        (&timed_out, Status::TimedOut),
        (&completed, Status::Completed),
        (&stopped, Status::Stopped),
    ];
    for (held, status) in &ends {
        assert_eq!(held.task.status(), *status);
        assert!(!held.task.cancel() && !tasks.cancel(held.task.id()).unwrap());
        // A late return.
        held.let_go();
        wait(&held.returned);
    }
    tasks.stop_and_join(HOUR).unwrap();
    for (held, status) in &ends {
        assert_eq!((held.task.status(), held.task.info().status), (*status, *status));
    }
    assert!(was_ended(&wait(cancelled.task), Reason::Cancelled));
    assert!(was_ended(&wait(timed_out.task), Reason::TimedOut));
    assert!(was_ended(&wait(stopped.task), Reason::Shutdown));
    assert_eq!(wait(completed.task).output(), Some(&7));
}

#[test]
fn a_task_that_is_over_before_it_began_is_never_called() {
    let (manual, pool, tasks) = bounded(1);
    let first = stubborn(&tasks, TaskOptions::new());
    let counted = Counted::default();
    let submit = |options: TaskOptions| tasks.submit_with(options, counted.closure()).unwrap();
    let cancelled: Vec<_> = (0..200).map(|_| submit(TaskOptions::new())).collect();
    let too_late: Vec<_> = (0..200).map(|_| submit(TaskOptions::new().start_timeout(SECOND))).collect();
    let stopped: Vec<_> = (0..200).map(|_| submit(TaskOptions::new())).collect();
    assert_eq!((pool.stats().waiting, counted.alive()), (600, 600));
    assert!(cancelled.iter().all(|task| task.cancel()));
    assert_eq!((pool.stats().waiting, counted.alive()), (400, 400), "closures are dropped with the cancellation");
    manual.advance(SECOND);
    assert_eq!((pool.stats().waiting, counted.alive()), (200, 200));
    tasks.stop();
    assert_eq!((pool.stats().waiting, counted.alive()), (0, 0));
    first.let_go();
    tasks.stop_and_join(HOUR).unwrap();
    pool.drain().unwrap();
    assert_eq!(counted.calls(), 0);
    for (kind, status) in [(cancelled, Status::Cancelled), (too_late, Status::TimedOut), (stopped, Status::Stopped)] {
        assert!(kind.iter().all(|task| task.status() == status && task.info().started.is_none()), "{status}");
    }
}

#[test]
fn a_task_is_seen_running_before_it_times_out() {
    let (manual, tasks) = manual();
    let sleeps = |cancel: &procession::CancelToken| cancel.sleep(SECOND);
    let task = tasks.submit_with(TaskOptions::new().timeout(200 * MILLI), sleeps).unwrap();
    until("it runs", || task.status() == Status::Running);
    let seen: Vec<Status> = (0..5)
        .map(|_| {
            let status = task.status();
            manual.advance(50 * MILLI);
            status
        })
        .collect();
    let running = Status::Running;
    assert_eq!(seen, [running, running, running, running, Status::TimedOut]);
}

#[test]
fn an_unknown_number_is_an_error() {
    let tasks = tasks();
    let known = tasks.submit(|_| Ok::<_, String>(())).unwrap();
    let id = known.id();
    end(known);
    let unknown = tasks.status(id).unwrap_err();
    assert_eq!((unknown.0, unknown.to_string()), (id, format!("there is no task {id}")));
    assert_eq!(tasks.info(id).unwrap_err(), unknown);
    assert!(tasks.status(id).is_err() && tasks.cancel(id).is_err() && tasks.remove(id).is_err());
}

#[test]
fn a_looked_up_task_is_a_copy() {
    let tasks = tasks();
    let held = stubborn(&tasks, TaskOptions::new().name("held"));
    let mut info = tasks.info(held.task.id()).unwrap();
    let before = info.clone();
    info.status = Status::Completed;
    info.exit = Some(Exit::Done(()));
    assert_eq!(tasks.status(held.task.id()).unwrap(), Status::Running);
    assert!(tasks.info(held.task.id()).unwrap().exit.is_none());
    held.let_go();
    end(held.task);
    assert_eq!(before.status, Status::Running, "it does not change by itself");
}

#[test]
fn an_output_comes_exactly_as_it_was_returned() {
    mod private {
        /// With fields that nobody else can see, and neither `Clone` nor `Debug` nor `Sync`.
        pub struct Secret {
            number: std::cell::Cell<u64>,
            moment: std::time::SystemTime,
            list: Vec<Box<dyn FnOnce() -> u8 + Send>>,
        }
        impl Secret {
            pub fn new(moment: std::time::SystemTime) -> Secret {
                Secret { number: std::cell::Cell::new(42), moment, list: vec![Box::new(|| 9)] }
            }
            pub fn open(mut self) -> (u64, std::time::SystemTime, u8) {
                (self.number.get(), self.moment, self.list.pop().map_or(0, |last| last()))
            }
        }
    }
    let tasks = tasks();
    let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_007);
    let task = tasks.submit(move |_| Ok::<_, String>(private::Secret::new(moment))).unwrap();
    let Exit::Done(secret) = end(task) else { panic!("it is done") };
    assert_eq!(secret.open(), (42, moment, 9));
}

#[test]
fn an_output_may_refer_to_itself() {
    struct Knot {
        itself: Mutex<Option<Arc<Knot>>>,
        value: u8,
    }
    let tasks = tasks();
    let task = tasks
        .submit_with(TaskOptions::new().retention(Retention::UntilRemoved), |_| {
            let knot = Arc::new(Knot { itself: Mutex::default(), value: 5 });
            *knot.itself.lock().unwrap() = Some(knot.clone());
            Ok::<_, String>(knot)
        })
        .unwrap();
    let id = task.id();
    let Exit::Done(knot) = end(task) else { panic!("it is done") };
    assert_eq!(Arc::strong_count(&knot), 2, "itself and this one");
    let itself = knot.itself.lock().unwrap().take();
    assert!(itself.is_some_and(|itself| Arc::ptr_eq(&itself, &knot) && itself.value == 5));
    assert!(tasks.info(id).unwrap().to_string().contains("Knot"));
}

#[test]
fn an_end_from_outside_has_an_error_that_says_which() {
    let (manual, tasks) = manual();
    let keep = || TaskOptions::new().retention(Retention::UntilRemoved);
    let cancelled = tasks.submit_with(keep(), obedient).unwrap();
    let because = tasks.submit_with(keep(), obedient).unwrap();
    let timed_out = tasks.submit_with(keep().timeout(SECOND), obedient).unwrap();
    let stopped = tasks.submit_with(keep(), obedient).unwrap();
    until("all run", || tasks.stats().running == 4);
    cancelled.cancel();
    because.cancel_because("the disk is full");
    manual.advance(SECOND);
    tasks.stop();
    for (task, error, reason) in [
        (cancelled, "cancelled", Reason::Cancelled),
        (because, "the disk is full", Reason::from("the disk is full")),
        (timed_out, "timed out", Reason::TimedOut),
        (stopped, "shutdown", Reason::Shutdown),
    ] {
        assert_eq!(tasks.info(task.id()).unwrap().error().as_deref(), Some(error));
        let problem = wait(task).into_result().unwrap_err();
        assert_eq!(problem.to_string(), format!("it was terminated ({error})"));
        assert!(matches!(problem, procession::ExitError::Terminated(why) if why == reason));
    }
}

#[test]
fn the_long_form_has_results_of_finished_tasks_only() {
    let (manual, tasks) = manual();
    let go = Latch::new();
    let gate = go.clone();
    let task = tasks.submit_with(TaskOptions::new().name("sum"), move |_| {
        wait(&gate);
        Ok::<_, String>(vec![1, 2])
    });
    let task = task.unwrap();
    until("it runs", || task.status() == Status::Running);
    assert_eq!(task.to_string(), "task 1 (sum): Running, output: none, error: none");
    assert_eq!(format!("{task:#}"), "task 1\n  name: sum\n  status: Running\n  waited: 0ns");
    manual.advance(SECOND);
    go.set(()).unwrap();
    until("it is over", || task.status().is_finished());
    assert_eq!(task.to_string(), "task 1 (sum): Completed, output: [1, 2], error: none");
    let long = "task 1\n  name: sum\n  status: Completed\n  waited: 0ns\n  ran: 1s\n  output: [1, 2]";
    assert_eq!(format!("{task:#}"), long);
    assert_eq!(format!("{task:#}"), long, "it was looked at, and not taken");
    assert_eq!(tasks.info(task.id()).unwrap().to_string(), {
        "task 1 (sum): Completed, output: <alloc::vec::Vec<i32>>, error: none"
    });
    assert_eq!(wait(task).output().unwrap(), &[1, 2]);

    let failed = tasks.submit(|_| Err::<(), _>("no disk")).unwrap();
    until("it is over", || failed.status().is_finished());
    assert_eq!(failed.to_string(), "task 2: Completed, output: none, error: no disk");
    assert_eq!(format!("{failed:#}"), "task 2\n  status: Completed\n  waited: 0ns\n  ran: 0ns\n  error: no disk");

    let never = tasks.submit_with(TaskOptions::new().after(HOUR), |_| Ok::<_, String>(())).unwrap();
    assert_eq!(never.to_string(), "task 3: Scheduled, output: none, error: none");
    never.cancel();
    assert_eq!(format!("{never:#}"), "task 3\n  status: Cancelled\n  error: cancelled");
}
