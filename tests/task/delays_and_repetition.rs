//! Delays and repetition.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::{Pool, PoolError, QueuePolicy};
use procession::sync::Latch;
use procession::task::{Repeat, Retention, Status, SubmitError, TaskHandle, TaskOptions, TaskScheduler, TaskSet};
use procession::{CancelToken, Exit, Reason};

use crate::support::*;

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
    until("it is over", || task.status().is_finished());
    assert_eq!(task.info().started, Some(start + SECOND));
    assert_eq!(wait(task).output(), Some(&1));
    manual.advance(100 * HOUR);
    assert_eq!(never.status(), Status::Scheduled);
    assert!(never.cancel());
    let counted = Counted::default();
    let cancelled = tasks.submit_with(delay(SECOND), counted.closure()).unwrap();
    cancelled.cancel();
    assert_eq!((counted.alive(), tasks.stats().timers), (0, 0));
    // Its time is over before its delay.
    let late = tasks.submit_with(delay(HOUR).start_timeout(SECOND), counted.closure()).unwrap();
    manual.advance(HOUR);
    assert_eq!((late.status(), counted.calls()), (Status::TimedOut, 0));
    // The pool is gone when it is its time.
    let orphan = tasks.submit_with(delay(SECOND), counted.closure()).unwrap();
    pool.stop().unwrap();
    manual.advance(SECOND);
    assert_eq!((orphan.status(), counted.alive()), (Status::Stopped, 0));
    assert!(was_ended(&wait(orphan), Reason::Shutdown));
}

#[test]
fn a_repeated_closure_runs_round_by_round_whatever_they_come_to() {
    let (manual, tasks) = manual();
    let (runs, times) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, log, clock, start) = (runs.clone(), times.clone(), manual.clock(), manual.now());
    let repeat =
        tasks.repeat(10 * SECOND, TaskOptions::new().after(SECOND).retention(Retention::UntilRemoved), move |_| {
            log.lock().unwrap().push((clock.now() - start).as_secs());
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
    assert_eq!(*times.lock().unwrap(), [1, 11, 21, 31, 41, 51]);
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
    let (inside, blocker) = (Arc::new(AtomicUsize::new(0)), Blocker::new());
    let (count, blocked) = (inside.clone(), blocker.blocked());
    let repeat = tasks.repeat(SECOND, TaskOptions::new().timeout(SECOND), move |_| {
        assert_eq!(count.fetch_add(1, Ordering::SeqCst), 0);
        blocked.wait();
        count.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, String>(())
    });
    let repeat = repeat.unwrap();
    blocker.wait_begun();
    manual.advance(10 * SECOND);
    let stats = tasks.stats();
    assert_eq!((stats.timed_out, stats.abandoned, stats.submitted), (1, 1, 1), "the next one waits for its return");
    blocker.release();
    until("the next waits", || tasks.stats().scheduled == 1);
    // From when it was cancelled: the closure is with the round that runs.
    manual.advance(SECOND);
    advance_until("two more", &manual, SECOND, || repeat.rounds() >= 3);
    repeat.cancel();
    wait(repeat.over());
}

#[test]
fn a_repetition_ends_with_its_scheduler_its_request_or_its_time() {
    let counted = |alive: &Arc<()>| {
        let alive = alive.clone();
        move |_: &CancelToken| {
            let _ = &alive;
            Ok::<_, String>(())
        }
    };
    let alive = Arc::new(());
    let (manual, tasks) = manual();
    let group = CancelToken::new();
    let under = tasks.repeat(SECOND, TaskOptions::new().under(&group), counted(&alive)).unwrap();
    let until_then = TaskOptions::new().start_by(manual.now() + 3 * SECOND);
    let limited = tasks.repeat(SECOND, until_then, counted(&alive)).unwrap();
    let no_time = tasks.repeat(SECOND, TaskOptions::new().timeout(Duration::ZERO), counted(&alive)).unwrap();
    let stopped = tasks.repeat(SECOND, TaskOptions::new(), counted(&alive)).unwrap();
    // However far the clock is moved below until the others have had their rounds.
    let waits = tasks.repeat(HOUR, TaskOptions::new().after(1_000_000 * HOUR), counted(&alive)).unwrap();
    assert!(no_time.over().is_set() && no_time.rounds() == 0);
    until("all have begun", || [&under, &limited, &stopped].iter().all(|repeat| repeat.rounds() == 1));
    advance_until("there were rounds", &manual, SECOND, || {
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
    let tasks = crate::support::tasks();
    let orphan = tasks.repeat(MILLI, TaskOptions::new(), counted(&alive)).unwrap();
    until("it was done twice", || orphan.rounds() > 1);
    drop(tasks);
    until("it is over", || orphan.over().is_set());
    assert!(!orphan.cancel());
}

#[test]
fn a_repetition_has_rounds_until_its_latest_start() {
    let (manual, tasks) = manual();
    let options = TaskOptions::new().start_by(manual.now() + 3 * SECOND);
    let repeat = tasks.repeat(SECOND, options, |_| Ok::<_, String>(())).unwrap();
    for round in 1..=3 {
        until("the round is over", || tasks.stats().completed == round);
        until("the next waits", || tasks.stats().scheduled == 1);
        manual.advance(SECOND);
    }
    // The fourth would have begun at the moment itself, which is too late.
    wait(repeat.over());
    assert_eq!((repeat.rounds(), tasks.stats().timers), (3, 0));
}

#[test]
fn a_repetition_is_over_when_its_closure_is_dropped() {
    /// Looks, when it is dropped, whether it is said to be over.
    struct Looks(Latch<Latch<()>>, Latch<bool>);
    impl Drop for Looks {
        fn drop(&mut self) {
            let _ = self.1.set(wait(&self.0).is_set());
        }
    }
    type End = fn(&TaskScheduler, &Pool, &Repeat);
    let ends: [End; 3] =
        [|tasks, _, _| tasks.stop(), |_, pool, _| pool.close(), |_, _, repeat| assert!(repeat.cancel())];
    for (end, runs) in ends.into_iter().flat_map(|end| [(end, false), (end, true)]) {
        let (manual, pool, tasks) = bounded(1);
        let (over, was_over, blocker) = (Latch::new(), Latch::new(), Blocker::new());
        let (looks, blocked) = (Looks(over.clone(), was_over.clone()), blocker.blocked());
        let repeat = tasks.repeat(SECOND, TaskOptions::new().after(SECOND), move |_| {
            let _ = &looks;
            blocked.wait();
            Ok::<_, String>(())
        });
        let repeat = repeat.unwrap();
        over.set(repeat.over().clone()).ok().unwrap();
        if runs {
            manual.advance(SECOND);
            blocker.wait_begun();
        }
        end(&tasks, &pool, &repeat);
        blocker.release();
        manual.advance(SECOND);
        wait(repeat.over());
        assert_eq!(was_over.get(), Some(false), "it is dropped before anybody is told of the end");
    }
}

#[test]
fn the_bound_of_a_queue_is_for_those_who_can_wait() {
    quiet_panics();
    for queue in [QueuePolicy::Reject(1), QueuePolicy::Block(1)] {
        let manual = ManualClock::new();
        let pool = Pool::builder().max(1).queue(queue).name("procession-test").clock(manual.clock()).build().unwrap();
        let tasks = TaskScheduler::on(&pool);
        let held = stubborn(&tasks, TaskOptions::new());
        let counted = Counted::default();
        let delayed: Vec<_> =
            (0..5).map(|_| tasks.submit_with(TaskOptions::new().after(SECOND), counted.closure()).unwrap()).collect();
        let waits = tasks.submit(counted.closure()).unwrap();
        // The timers' thread, or the thread that moves the clock, does not stand in line.
        manual.advance(SECOND);
        assert!(delayed.iter().all(|task| task.status() == Status::Scheduled));
        assert_eq!(pool.stats().waiting, 6);
        if queue == QueuePolicy::Reject(1) {
            let refused = tasks.submit(counted.closure()).unwrap_err();
            assert!(matches!(refused.reason(), SubmitError::Pool(PoolError::Full)), "{refused}");
            assert_eq!((tasks.stats().submitted, tasks.stats().records), (7, 7), "it was never there");
            drop(refused);
        } else {
            // A submitter that can wait does so, until there is room or its task has ended.
            let submitter = std::thread::spawn({
                let (tasks, closure) = (tasks.clone(), counted.closure());
                move || tasks.submit(closure).map(|task| task.status())
            });
            until("it is known", || tasks.stats().submitted == 8);
            let id = tasks.list().last().unwrap().id;
            assert!(tasks.cancel(id).unwrap());
            assert_eq!(wait(submitter).unwrap().unwrap(), Status::Cancelled);
        }
        held.let_go();
        until("all are over", || delayed.iter().chain([&waits]).all(|task| task.status() == Status::Completed));
        assert_eq!((counted.calls(), counted.alive()), (6, 0));
    }
}

#[test]
fn a_delay_and_a_timeout_that_are_noted_at_once_leave_no_timer() {
    let tasks = TaskScheduler::new();
    let options = TaskOptions::new().after(Duration::from_nanos(1)).timeout(Duration::from_secs(3_600));
    let submit = || tasks.submit_with(options.clone(), |_| Ok::<_, String>(())).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let all: Vec<_> = (0..500).map(|_| submit()).collect();
                all.into_iter().for_each(|task| drop(wait(task)));
            });
        }
    });
    until("no timer is left", || tasks.stats().timers == 0);
}

#[test]
fn a_repetition_on_a_shared_pool_ends_with_the_pool() {
    let manual = ManualClock::new();
    let pool = Pool::builder().max(1).clock(manual.clock()).build().unwrap();
    let tasks = TaskScheduler::on(&pool);
    let repeat = tasks.repeat(SECOND, TaskOptions::new(), |_| Ok::<_, String>(())).unwrap();
    until("the first round is over", || repeat.rounds() == 1 && tasks.stats().scheduled == 1);
    pool.stop().unwrap();
    manual.advance(SECOND);
    assert!(repeat.over().is_set());
    assert_eq!((tasks.stats().scheduled, tasks.stats().timers), (0, 0));
}

#[test]
fn nobody_stands_in_line_for_a_task_that_is_over() {
    quiet_panics();
    type End = fn(&ManualClock, &TaskScheduler, &CancelToken);
    let ends: [(Status, End); 4] = [
        (Status::TimedOut, |manual, _, _| manual.advance(SECOND)),
        (Status::Cancelled, |_, tasks, _| assert!(tasks.cancel(tasks.list()[0].id).unwrap())),
        (Status::Cancelled, |_, _, group| assert!(group.cancel("enough"))),
        (Status::Stopped, |_, tasks, _| tasks.stop()),
    ];
    for (status, end) in ends {
        let manual = ManualClock::new();
        let builder = Pool::builder().max(1).queue(QueuePolicy::Block(0)).name("procession-test");
        let pool = builder.clock(manual.clock()).build().unwrap();
        let blocker = hold(&pool);
        let (tasks, group, counted) = (TaskScheduler::on(&pool), CancelToken::new(), Counted::default());
        let submitters: Vec<_> = (0..3)
            .map(|_| {
                let (tasks, closure, under) = (tasks.clone(), counted.closure(), TaskOptions::new().under(&group));
                std::thread::spawn(move || tasks.submit_with(under.start_timeout(SECOND), closure))
            })
            .collect();
        until("all are known", || tasks.list().len() == 3);
        end(&manual, &tasks, &group);
        let first = if status == Status::Cancelled && !group.is_cancelled() {
            // The other two stand on, and end otherwise.
            until("one is over", || tasks.stats().cancelled == 1);
            manual.advance(SECOND);
            1
        } else {
            3
        };
        let all: Vec<_> = submitters.into_iter().map(|submitter| wait(submitter).unwrap().unwrap()).collect();
        assert_eq!(all.iter().filter(|task| task.status() == status).count(), first);
        assert_eq!((counted.calls(), counted.alive(), pool.stats().waiting), (0, 0, 0));
        blocker.release();
        until("there is room", || pool.run(|| 1).is_ok());
    }
}

/// Has a task of a pool of one thread submit another one with these options, and wait for it in this way. A delay and
/// a limit for its begin are among the options.
fn waits_inside<R: Send + 'static>(
    options: TaskOptions,
    wait: impl FnOnce(TaskHandle<ThreadId, String>) -> R + Send + 'static,
) -> (ManualClock, Pool, TaskScheduler, TaskHandle<(ThreadId, R), String>) {
    let (manual, pool, tasks) = bounded(1);
    let inner = tasks.clone();
    let outer = tasks.submit(move |_| {
        let task = inner.submit_with(options, |_| Ok(std::thread::current().id())).map_err(|why| why.to_string())?;
        Ok((std::thread::current().id(), wait(task)))
    });
    let outer = outer.unwrap();
    // One for its delay, and one by which it has to begin.
    until("the other one has its timers", || tasks.stats().timers == 2);
    (manual, pool, tasks, outer)
}

fn output<T, E: std::fmt::Debug>(exit: Exit<T, E>) -> T {
    let Exit::Done(output) = exit else { panic!("it did not return") };
    output
}

#[test]
fn the_only_thread_runs_a_delayed_task_that_it_waits_for() {
    type Way = fn(TaskHandle<ThreadId, String>) -> Exit<ThreadId, String>;
    let ways: [Way; 3] = [
        |task| task.wait().unwrap(),
        |task| task.wait_timeout(Duration::MAX).unwrap(),
        |task| TaskSet::from_iter([task]).wait_next().unwrap().unwrap().1,
    ];
    for way in ways {
        for paused in [false, true] {
            let delayed = TaskOptions::new().after(SECOND).start_timeout(2 * SECOND).timeout(HOUR);
            let (manual, pool, tasks, outer) = waits_inside(delayed, way);
            // The outer task came before the pause, and so did the task that it needs.
            let pause = paused.then(|| pool.begin_pause().unwrap());
            manual.advance(SECOND - MILLI);
            assert_eq!((tasks.stats().completed, tasks.stats().scheduled), (0, 1));
            manual.advance(MILLI);
            let (thread, exit) = output(end(outer));
            assert_eq!(output(exit), thread);
            // The outer task is over a moment before its job is.
            until("the pool has nothing left", || pool.stats().unfinished() == 0);
            assert_eq!(tasks.stats().timers, 0);
            drop(pause);
        }
    }
}

#[test]
fn a_wait_for_a_delayed_task_on_its_pool_ends_with_the_task() {
    type End = fn(&ManualClock, &TaskScheduler);
    let ends: [(Reason, End); 3] = [
        (Reason::Cancelled, |_, tasks| assert!(tasks.cancel(tasks.list_by(Status::Scheduled)[0].id).unwrap())),
        (Reason::TimedOut, |manual, _| manual.advance(SECOND)),
        (Reason::Shutdown, |_, tasks| tasks.stop()),
    ];
    for (reason, ends) in ends {
        let told = Latch::new();
        let tell = told.clone();
        let (manual, _pool, tasks, outer) =
            waits_inside(TaskOptions::new().after(HOUR).start_timeout(SECOND), move |task| {
                let _ = tell.set(task.wait().unwrap());
            });
        ends(&manual, &tasks);
        until("it is told", || told.is_set());
        assert!(was_ended(&told.get().unwrap(), reason));
        drop(end(outer));
    }
}

#[test]
fn a_set_of_many_is_waited_for_on_the_only_thread() {
    let (manual, _pool, tasks) = bounded(1);
    let (inner, others, all_in) = (tasks.clone(), crate::support::tasks(), Latch::new());
    let tell = all_in.clone();
    let outer = tasks.submit(move |_| {
        let mut set = TaskSet::new();
        for n in 0..20 {
            let delay = if n % 2 == 0 { Duration::ZERO } else { SECOND * (20 - n) };
            set.push(inner.submit_with(TaskOptions::new().after(delay), move |_| Ok::<_, String>(n)).unwrap());
            // One of another scheduler, whose thread this is not.
            set.push(others.submit(move |_| Ok(100 + n)).unwrap());
        }
        tell.set(()).map_err(|()| "told twice".to_owned())?;
        let mut seen: Vec<u32> =
            std::iter::from_fn(|| set.wait_next().unwrap()).map(|(_, exit)| output(exit)).collect();
        let own: Vec<_> = seen.iter().copied().filter(|n| *n < 100).collect();
        seen.sort_unstable();
        Ok::<_, String>((own, seen))
    });
    let outer = outer.unwrap();
    wait(&all_in);
    // One after the other: which of several that are due it begins with is its own affair.
    for over in 10..20 {
        until("those that are due are over", || tasks.stats().completed == over);
        manual.advance(if over == 10 { SECOND } else { 2 * SECOND });
    }
    let (own, all) = output(wait(outer));
    assert_eq!(own, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1]);
    assert_eq!(all, (0..20).chain(100..120).collect::<Vec<_>>());
}

#[test]
fn a_wait_for_a_set_is_not_held_up_by_a_task_of_other_threads() {
    for threads in [3, 64] {
        let (_, pool, tasks) = bounded(threads);
        for _ in 0..100 {
            // A thread that is still at the last round's would not be there for what waits.
            assert!(pool.wait_idle().is_ok());
            let (go, inner) = (Latch::new(), tasks.clone());
            let gate = go.clone();
            let outer = tasks.submit(move |_| {
                let mut set = TaskSet::new();
                let waits = inner.submit(move |_| {
                    wait(&gate);
                    Ok::<_, String>(())
                });
                set.push(waits.map_err(|why| why.to_string())?);
                set.push(inner.submit(|_| Ok(())).map_err(|why| why.to_string())?);
                let first = set.wait_next().unwrap().map(|(info, _)| info.id);
                Ok::<_, String>((first, go.set(()).is_ok(), set.wait_next().unwrap().map(|(info, _)| info.id)))
            });
            let (first, _, second) = output(end(outer.unwrap()));
            assert!(first > second, "the one that was submitted later was over first");
        }
    }
}

#[test]
fn a_set_may_be_waited_for_by_the_only_threads_of_two_pools_in_turn() {
    let ((_, _pool, tasks), (_, _other_pool, others)) = (bounded(1), bounded(1));
    let inner = tasks.clone();
    let outer = tasks.submit(move |_| {
        let returns = |tasks: &TaskScheduler, n: u32| tasks.submit(move |_| Ok::<_, String>(n)).unwrap();
        let next = |set: &mut TaskSet<u32, String>| output(set.wait_next().unwrap().unwrap().1);
        let mut set = TaskSet::from_iter([returns(&inner, 1), returns(&inner, 2)]);
        let first = next(&mut set);
        let inner_others = others.clone();
        let elsewhere = others.submit(move |_| {
            set.push(returns(&inner_others, 3));
            let second = next(&mut set);
            Ok::<_, String>((set, second))
        });
        let (mut set, second) = output(elsewhere.unwrap().wait().unwrap());
        Ok::<_, String>([first, second, next(&mut set)])
    });
    // Each thread runs the tasks of its own pool, and no other thread does.
    assert_eq!(output(end(outer.unwrap())), [1, 3, 2]);
}
