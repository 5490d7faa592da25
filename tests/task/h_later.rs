//! What goes beyond the reference: delays and repetition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::{Pool, PoolError, Queue};
use procession::task::{Keep, Status, SubmitError, TaskOptions, Tasks};
use procession::{Cancel, Latch, Reason};

use crate::helpers::*;
use crate::tools::*;

#[test]
fn a_delayed_task_is_scheduled_until_it_is_its_time() {
    let (manual, pool, tasks) = bounded(2);
    let start = manual.now();
    let delay = |delay| TaskOptions::new().after(delay);
    let task = tasks.submit_with(delay(SECOND), |_| Ok::<_, String>(1)).unwrap();
    let never = tasks.submit_with(delay(Duration::MAX), obedient).unwrap();
    let now = tasks.submit_with(delay(Duration::ZERO), |_| Ok::<_, String>(2)).unwrap();
    assert_eq!(end(now).output(), Some(&2));
    manual.advance(SECOND - MILLI);
    assert_eq!((task.status(), pool.stats().submitted), (Status::Scheduled, 1));
    manual.advance(MILLI);
    until("it is over", || task.status().is_over());
    assert_eq!(task.info().started, Some(start + SECOND));
    assert_eq!(task.wait().output(), Some(&1));
    manual.advance(100 * HOUR);
    assert_eq!(never.status(), Status::Scheduled);
    assert!(never.cancel());
    let counted = Counted::default();
    let cancelled = tasks.submit_with(delay(SECOND), counted.closure()).unwrap();
    cancelled.cancel();
    assert_eq!((counted.alive(), tasks.stats().timers), (0, 0));
    // Its time is over before its delay.
    let late = tasks.submit_with(delay(HOUR).start_within(SECOND), counted.closure()).unwrap();
    manual.advance(HOUR);
    assert_eq!((late.status(), counted.calls()), (Status::TimedOut, 0));
    // The pool is gone when it is its time.
    let orphan = tasks.submit_with(delay(SECOND), counted.closure()).unwrap();
    pool.stop(None).unwrap();
    manual.advance(SECOND);
    assert_eq!((orphan.status(), counted.alive()), (Status::Stopped, 0));
    assert!(was_ended(&orphan.wait(), Reason::Shutdown));
}

#[test]
fn a_repeated_closure_runs_round_by_round_whatever_they_come_to() {
    let (manual, tasks) = manual();
    let (runs, times) = (Arc::new(AtomicUsize::new(0)), Log::new());
    let (count, log, clock, start) = (runs.clone(), times.clone(), manual.clock(), manual.now());
    let repeat = tasks.repeat(10 * SECOND, TaskOptions::new().after(SECOND).keep(Keep::UntilRemoved), move |_| {
        log.push((clock.now() - start).as_secs());
        match count.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(()),
            1 => Err(String::from("the second fails")),
            2 => panic!("the third panics"),
            _ => Ok(()),
        }
    });
    let repeat = repeat.unwrap();
    assert_eq!((repeat.rounds(), tasks.stats().scheduled), (0, 1));
    manual.advance(SECOND);
    for round in 1..=5 {
        until("the round is over", || tasks.stats().completed == round && tasks.stats().scheduled == 1);
        assert_eq!((repeat.rounds(), tasks.stats().timers), (round, 1));
        assert!(tasks.status(repeat.round().unwrap()).unwrap() == Status::Scheduled);
        manual.advance(10 * SECOND);
    }
    until("the sixth is over", || tasks.stats().completed == 6);
    assert_eq!(times.to_vec(), [1, 11, 21, 31, 41, 51]);
    let errors: Vec<_> = tasks.list_by(Status::Completed).iter().map(|task| task.error()).collect();
    assert_eq!(errors[..3], [None, Some("the second fails".into()), Some("panicked: the third panics".into())]);
    // One round that is cancelled is one round.
    until("the next waits", || tasks.stats().scheduled == 1);
    assert!(tasks.cancel(repeat.round().unwrap()).unwrap());
    assert_eq!((tasks.stats().scheduled, runs.load(Ordering::SeqCst)), (1, 6));
    assert!(!repeat.over().is_set());
    assert!(repeat.cancel() && !repeat.cancel());
    assert!(repeat.over().is_set(), "the closure is dropped with the round that waited");
    assert_eq!((tasks.stats().scheduled, tasks.stats().timers, Arc::strong_count(&runs)), (0, 0, 1));
}

#[test]
fn rounds_do_not_overlap_however_long_one_takes() {
    let (manual, tasks) = manual();
    let (inside, begun, go) = (Arc::new(AtomicUsize::new(0)), Latch::new(), Latch::new());
    let (count, begin, gate) = (inside.clone(), begun.clone(), go.clone());
    let repeat = tasks.repeat(SECOND, TaskOptions::new().timeout(SECOND), move |_| {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0);
        let _ = begin.set(());
        gate.wait();
        count.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, String>(())
    });
    let repeat = repeat.unwrap();
    wait(&begun);
    manual.advance(10 * SECOND);
    let stats = tasks.stats();
    assert_eq!((stats.timed_out, stats.abandoned, stats.submitted), (1, 1, 1), "the next one waits for its return");
    go.set(()).unwrap();
    until("the next waits", || tasks.stats().scheduled == 1);
    // From when it was cancelled: the closure is with the round that runs.
    manual.advance(SECOND);
    until("two more", || {
        manual.advance(SECOND);
        repeat.rounds() >= 3
    });
    repeat.cancel();
    wait(repeat.over());
}

#[test]
fn a_repetition_ends_with_its_scheduler_its_request_or_its_time() {
    let counted = |alive: &Arc<()>| {
        let alive = alive.clone();
        move |_: &Cancel| {
            let _ = &alive;
            Ok::<_, String>(())
        }
    };
    let alive = Arc::new(());
    let (manual, tasks) = manual();
    let group = Cancel::new();
    let under = tasks.repeat(SECOND, TaskOptions::new().under(&group), counted(&alive)).unwrap();
    let until_then = TaskOptions::new().start_by(manual.now() + 3 * SECOND);
    let limited = tasks.repeat(SECOND, until_then, counted(&alive)).unwrap();
    let no_time = tasks.repeat(SECOND, TaskOptions::new().timeout(Duration::ZERO), counted(&alive)).unwrap();
    let stopped = tasks.repeat(SECOND, TaskOptions::new(), counted(&alive)).unwrap();
    let waits = tasks.repeat(HOUR, TaskOptions::new().after(HOUR), counted(&alive)).unwrap();
    assert!(no_time.over().is_set() && no_time.rounds() == 0);
    until("all have begun", || [&under, &limited, &stopped].iter().all(|repeat| repeat.rounds() == 1));
    until("there were rounds", || {
        manual.advance(SECOND);
        stopped.rounds() > 3 && under.rounds() > 3 && limited.over().is_set()
    });
    assert!((1..=4).contains(&limited.rounds()), "{limited:?}");
    group.cancel("enough");
    until("it is over", || under.over().is_set());
    assert!(!stopped.over().is_set() && !waits.over().is_set());
    tasks.stop();
    until("they are over", || stopped.over().is_set() && waits.over().is_set());
    assert_eq!((waits.rounds(), Arc::strong_count(&alive)), (0, 1));
    let refused = tasks.repeat(SECOND, TaskOptions::new(), counted(&alive)).unwrap_err();
    assert_eq!(refused.to_string(), "the scheduler has been stopped");
    assert_eq!(Arc::strong_count(&alive), 2, "the closure came back");
    // Repetitions do not keep a scheduler.
    let tasks = crate::tools::tasks();
    let orphan = tasks.repeat(MILLI, TaskOptions::new(), counted(&alive)).unwrap();
    until("it was done twice", || orphan.rounds() > 1);
    drop(tasks);
    until("it is over", || orphan.over().is_set());
    assert!(!orphan.cancel());
}

#[test]
fn the_bound_of_a_queue_is_for_those_who_can_wait() {
    quiet_panics();
    for queue in [Queue::Reject(1), Queue::Block(1)] {
        let manual = ManualClock::new();
        let pool = Pool::builder().max(1).queue(queue).name("procession-test").clock(manual.clock()).build().unwrap();
        let tasks = Tasks::on(&pool);
        let held = stubborn(&tasks, TaskOptions::new());
        let counted = Counted::default();
        let delayed: Vec<_> =
            (0..5).map(|_| tasks.submit_with(TaskOptions::new().after(SECOND), counted.closure()).unwrap()).collect();
        let waits = tasks.submit(counted.closure()).unwrap();
        // The timers' thread, or whoever moves the clock, does not stand in line.
        manual.advance(SECOND);
        assert!(delayed.iter().all(|task| task.status() == Status::Scheduled));
        assert_eq!(pool.stats().waiting, 6);
        if queue == Queue::Reject(1) {
            let refused = tasks.submit(counted.closure()).unwrap_err();
            assert!(matches!(refused.reason(), SubmitError::Pool(PoolError::Full)), "{refused}");
            assert_eq!((tasks.stats().submitted, tasks.stats().records), (7, 7), "it was never there");
            drop(refused);
        } else {
            // Who can wait does, until there is room or it is not worth it any more.
            let submitter = std::thread::spawn({
                let (tasks, closure) = (tasks.clone(), counted.closure());
                move || tasks.submit(closure).map(|task| task.status())
            });
            until("it is known", || tasks.stats().submitted == 8);
            let id = tasks.list().last().unwrap().id;
            assert!(tasks.cancel(id).unwrap());
            held.let_go();
            assert_eq!(submitter.join().unwrap().unwrap(), Status::Cancelled);
        }
        held.let_go();
        until("all are over", || delayed.iter().chain([&waits]).all(|task| task.status() == Status::Completed));
        assert_eq!((counted.calls(), counted.alive()), (6, 0));
    }
}

#[test]
fn a_delay_and_a_timeout_that_are_noted_at_once_leave_no_timer() {
    let tasks = Tasks::new();
    let options = TaskOptions::new().after(Duration::from_nanos(1)).timeout(Duration::from_secs(3_600));
    let submit = || tasks.submit_with(options.clone(), |_| Ok::<_, String>(())).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let all: Vec<_> = (0..500).map(|_| submit()).collect();
                all.into_iter().for_each(|task| drop(task.wait()));
            });
        }
    });
    until("no timer is left", || tasks.stats().timers == 0);
}

#[test]
fn a_repetition_on_a_shared_pool_ends_with_the_pool() {
    let manual = ManualClock::new();
    let pool = Pool::builder().max(1).clock(manual.clock()).build().unwrap();
    let tasks = Tasks::on(&pool);
    let repeat = tasks.repeat(SECOND, TaskOptions::new(), |_| Ok::<_, String>(())).unwrap();
    until("the first round is over", || repeat.rounds() == 1 && tasks.stats().scheduled == 1);
    pool.stop(None).unwrap();
    manual.advance(SECOND);
    assert!(repeat.over().is_set());
    assert_eq!((tasks.stats().scheduled, tasks.stats().timers), (0, 0));
}
