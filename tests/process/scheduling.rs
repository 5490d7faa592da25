//! D. Scheduling: where work is found, who sleeps, and that all of it is done.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::observe::WorkerStats;
use procession::{Event, Events, Process, Reply, Runtime, SpawnError, Step, StepOutput};

use crate::helpers::*;

#[test]
fn a_runtime_has_a_worker_per_processor_and_names_its_threads() {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    assert_eq!(Runtime::start().unwrap().stats().workers.len(), processors);
    let runtime = builder().workers(3).thread_name("mill").start().unwrap();
    assert_eq!(runtime.stats().workers.len(), 3);
    let name = || {
        script(|_: &mut Events<'_, ()>, _: &mut StepOutput| {
            Ok(Step::Done(std::thread::current().name().unwrap_or_default().to_string()))
        })
    };
    let name = output(&runtime.spawn(name()).unwrap());
    assert!(name.starts_with("mill-worker-"), "{name}");
}

#[test]
fn steps_and_blocking_work_have_the_stack_that_was_asked_for() {
    /// Far more than a thread has where nothing is said.
    fn deep() -> usize {
        std::hint::black_box([1_u8; 8 << 20]).iter().map(|byte| usize::from(*byte)).sum()
    }
    let runtime = builder().workers(1).stack_size(64 << 20).start().unwrap();
    let mut works = None;
    let process = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let tag = *works.get_or_insert_with(|| out.blocking(deep));
        let answer = events.find_map(|event| if let Event::Completed(done) = event { done.take(tag) } else { None });
        Ok(answer.map_or(Step::Wait, |answer| Step::Done((deep(), answer.unwrap()))))
    });
    assert_eq!(*output(&runtime.spawn(process).unwrap()), (8 << 20, 8 << 20));
}

/// Writes its name down when it is told to, and rests.
fn named(name: &'static str, log: &Log<&'static str>) -> impl Process<Message = (), Output = ()> {
    let log = log.clone();
    script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(()) => log.push(name),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn work_comes_from_the_slot_then_the_deque_then_globally() {
    let (runtime, log) = (runtime(1), Log::new());
    let woken: Vec<_> =
        ["first woken", "second woken"].iter().map(|name| runtime.spawn(named(name, &log)).unwrap()).collect();
    let to = [woken[0].address(), woken[1].address()];
    let round = || {
        until("all is at rest", || runtime.is_idle());
        let (before, seen) = (runtime.stats().workers[0], log.clone());
        let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            for name in ["older child", "younger child"] {
                let seen = seen.clone();
                out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                    seen.push(name);
                    Ok(Step::Done(()))
                }))?;
            }
            out.send(to[0], ());
            out.send(to[1], ());
            Ok(Step::Done(()))
        });
        // Nobody waits for the parent: before the waker of such a thread is called the hand-off slot is emptied.
        drop(runtime.spawn(parent).unwrap());
        until("all are stepped", || log.len() == 4);
        until("the counts are made", || runtime.is_idle());
        let after = runtime.stats().workers[0];
        let found = |which: fn(&WorkerStats) -> u64| which(&after) - which(&before);
        (
            log.take(),
            found(|worker| worker.handed_off),
            found(|worker| worker.from_own),
            found(|worker| worker.from_global),
        )
    };
    // From the global queue come the parent, which was spawned from outside, and the second woken.
    let expected = (vec!["first woken", "younger child", "older child", "second woken"], 1, 2, 2);
    // A search that begins elsewhere for the sake of fairness may fall into a round.
    let rounds: Vec<_> = (0..20).map(|_| round()).collect();
    assert!(rounds.contains(&expected), "{rounds:?}");
}

#[test]
fn a_batch_is_taken_from_the_global_queue_at_once() {
    let runtime = runtime(1);
    let (holder, blocker) = hold_up(&runtime);
    let over = || script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::Done(())));
    let others: Vec<_> = (0..34).map(|_| runtime.spawn(over()).unwrap()).collect();
    assert_eq!(runtime.stats().global_queue, 34);
    let before = runtime.stats().workers[0];
    blocker.release();
    output(&holder);
    others.iter().for_each(|other| drop(output(other)));
    let after = runtime.stats().workers[0];
    let (searches, from_own) = (after.from_global - before.from_global, after.from_own - before.from_own);
    assert_eq!(searches + from_own, 34);
    assert_eq!(searches, 6, "1 + 16 of 34, then half of what is left: 9, 4, 2, 1, 1");
}

#[test]
fn half_of_a_victims_deque_is_stolen() {
    let runtime = runtime(2);
    // Each worker must be in one of the two at the same time, so one of them has been stolen.
    output(&runtime.spawn(meeting(2)).unwrap());
    until("all have ended", || runtime.stats().processes == 0);
    assert_eq!(runtime.stats().workers.iter().map(|worker| worker.stolen).sum::<u64>(), 1);
}

#[test]
fn an_idle_runtime_sleeps_and_is_woken_by_nothing_but_work() {
    let runtime = runtime(2);
    let process = runtime.spawn(sink::<()>()).unwrap();
    until("all is at rest", || runtime.is_idle());
    until("both sleep", || runtime.stats().workers.iter().all(|worker| worker.parked > 0));
    until("the process rests", || runtime.process(process.pid()).unwrap().steps == 1);
    let counts = || {
        let workers = runtime.stats().workers;
        workers.iter().map(|worker| (worker.parked, worker.steps, worker.woke_others)).collect::<Vec<_>>()
    };
    // The workers that were woken for the spawn go back to sleep. From then on nothing moves.
    until("all is at rest again", || runtime.is_idle());
    let before = counts();
    for _ in 0..1_000 {
        assert!(runtime.is_alive(process.pid()));
        assert_eq!(counts(), before);
    }
    runtime.send(process.address(), ()).unwrap();
    until("the message is stepped", || runtime.stats().messages.stepped == 1);
    until("all is at rest once more", || runtime.is_idle());
    let woken = counts().iter().zip(&before).filter(|(after, before)| after.1 > before.1).count();
    assert_eq!(woken, 1, "one message is stepped by one worker");
}

#[test]
fn a_worker_that_falls_asleep_while_work_arrives_does_not_miss_it() {
    // Each round catches the workers at another point of their way to sleep. A missed wake-up is a question without
    // end.
    let runtime = runtime(2);
    let echo = script(|events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(reply) => out.reply(reply, ()),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    });
    let echo = runtime.spawn(echo).unwrap();
    let (began, mut rounds) = (std::time::Instant::now(), 0);
    // On a busy machine a round takes a hundred times as long, and a few thousand of them say as much.
    while rounds < 3_000 || rounds < 30_000 && began.elapsed() < Duration::from_secs(10) {
        for _ in 0..rounds % 997 {
            std::hint::spin_loop();
        }
        runtime.ask(echo.address(), |reply| reply, LIMIT).wait().unwrap();
        rounds += 1;
    }
    assert_eq!(runtime.stats().messages.stepped, rounds);
}

#[test]
fn ten_thousand_processes_finish_and_each_worker_takes_part() {
    for workers in [1, 2, 32] {
        let runtime = runtime(workers);
        let (barrier, steps) = (Arc::new(Barrier::new(workers)), Arc::new(AtomicUsize::new(0)));
        let all: Vec<_> = (0..10_000)
            .map(|n| {
                let (barrier, steps, mut left) = (barrier.clone(), steps.clone(), 10);
                let process = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                    if n < workers && left == 10 {
                        // As many as there are workers wait for each other, so each worker must have one of them.
                        wait(&barrier);
                    }
                    steps.fetch_add(1, Ordering::Relaxed);
                    left -= 1;
                    Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
                });
                runtime.spawn(process).unwrap()
            })
            .collect();
        all.iter().for_each(|process| drop(output(process)));
        assert_eq!(steps.load(Ordering::Relaxed), 100_000);
        let stats = runtime.stats();
        assert_eq!(stats.workers.iter().map(|worker| worker.steps).sum::<u64>(), 100_000);
        assert!(stats.workers.iter().all(|worker| worker.steps > 0), "{:?}", stats.workers);
    }
}

#[test]
fn beyond_the_limit_a_process_is_handed_back() {
    let runtime = builder().workers(1).max_processes(3).start().unwrap();
    let kept: Vec<_> = (0..3).map(|_| runtime.spawn(sink::<u32>()).unwrap()).collect();
    let refused = runtime.spawn(named("one too many", &Log::new())).unwrap_err();
    assert!(matches!(refused.reason(), SpawnError::Limit { limit: 3 }));
    assert!(refused.to_string().contains("3 processes"), "{refused}");
    let handed_back = refused.into_inner();
    runtime.cancel(kept[0].pid(), "make room").unwrap();
    output(&kept[0]);
    let handed_back = runtime.spawn(handed_back).unwrap();
    runtime.cancel(handed_back.pid(), "make room").unwrap();
    output(&handed_back);

    let parent = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let refused = out.spawn(sink::<u32>()).unwrap_err();
        Ok(Step::Done(matches!(refused.reason(), SpawnError::Limit { limit: 3 })))
    });
    assert!(*output(&runtime.spawn(parent).unwrap()), "the parent was the third");
    assert_eq!(runtime.stats().processes, 2);
}
