//! Spare workers: while workers are stuck, others take their places.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use procession::config::Watchdog;
use procession::{Event, Events, Exit, SpawnOptions, Step, StepOutput, Upgrade};

use crate::helpers::*;
use crate::support::stuck::*;

#[test]
fn spare_workers_replace_stuck_workers_until_their_steps_return() {
    let watched = watched(2, 2);
    let runtime = &watched.runtime;
    let held = watched.sticks(2);
    assert_eq!(runtime.stats().spare_workers, 0, "there is no work");
    let game = game(runtime, 10_000);
    watched.pass();
    assert!((1..=2).contains(&runtime.stats().spare_workers));
    output(&game);
    let stats = runtime.stats();
    assert_eq!(stats.workers.len(), 4);
    assert!(stats.workers[2..].iter().map(|worker| worker.steps).sum::<u64>() >= 10_000);
    let asleep = || runtime.stats().workers[2..].iter().filter(|worker| worker.parked > 0).count();
    until("the spares fall asleep", || asleep() == runtime.stats().spare_workers);
    for _ in 0..1_000 {
        assert!(!runtime.is_idle(), "two steps run");
        std::thread::yield_now();
    }
    held[0].release();
    held[1].release();
    // No look is needed for that: the time stands still.
    until("the surplus is gone", || runtime.stats().spare_workers == 0);
    until("all is at rest", || runtime.is_idle());
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

#[test]
fn each_step_that_returns_sends_one_spare_away_and_the_others_stay() {
    let watched = watched(3, 3);
    let runtime = &watched.runtime;
    let held = watched.sticks(3);
    let more: Vec<Blocker> = (0..3).map(|_| hold_up_later(runtime).1).collect();
    watched.pass();
    more.iter().for_each(|held| held.wait_begun());
    assert_eq!(runtime.stats().spare_workers, 3);
    // The spares are stuck as well, so nobody leaves, and nobody comes: there are no more of them.
    watched.pass();
    assert_eq!((runtime.stuck_steps().len(), runtime.stats().spare_workers), (6, 3));
    let waits = game(runtime, 10);
    watched.pass();
    assert_eq!(runtime.stats().spare_workers, 3);
    held[0].release();
    output(&waits);
    assert_eq!(runtime.stats().spare_workers, 3, "five are stuck");
    for (freed, held) in more.iter().enumerate() {
        held.release();
        until("it is over", || runtime.stuck_steps().len() == 4 - freed);
    }
    assert_eq!(runtime.stuck_steps().len(), 2);
    until("one is too many", || runtime.stats().spare_workers == 2);
    held[1].release();
    until("another one is", || runtime.stats().spare_workers == 1);
    held[2].release();
    until("the last one is", || runtime.stats().spare_workers == 0);
    until("all is at rest", || runtime.is_idle());
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

#[test]
fn no_spare_is_begun_as_long_as_the_others_do_all_the_work() {
    let watched = watched(2, 1);
    let held = watched.sticks(1);
    let runtime = &watched.runtime;
    for _ in 0..20 {
        // The processes that the game leaves rest, so no work is lying when the time passes.
        output(&game(runtime, 100));
        watched.pass();
        assert_eq!(runtime.stats().spare_workers, 0);
    }
    held[0].release();
    until("nobody is stuck", || runtime.stuck_steps().is_empty());
}

#[test]
fn a_spare_that_steps_one_process_that_always_continues_goes_as_well() {
    let watched = watched(1, 1);
    let runtime = &watched.runtime;
    let held = watched.sticks(1);
    let (steps, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, is_finished) = (steps.clone(), over.clone());
    let busy = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok(if is_finished.load(Ordering::SeqCst) { Step::Done(()) } else { Step::Continue })
    });
    let busy = runtime.spawn(busy).unwrap();
    watched.pass();
    until("a spare steps it", || steps.load(Ordering::SeqCst) > 0);
    held[0].release();
    until("the surplus is gone", || runtime.stats().spare_workers == 0);
    let now = steps.load(Ordering::SeqCst);
    until("the worker steps it", || steps.load(Ordering::SeqCst) > now);
    over.store(true, Ordering::SeqCst);
    output(&busy);
}

#[test]
fn what_a_stuck_worker_had_taken_for_later_is_done_by_others() {
    let watched = watched(1, 1);
    let runtime = &watched.runtime;
    let (count, held) = (Arc::new(AtomicUsize::new(0)), Blocker::new());
    let (counted, blocked) = (count.clone(), held.blocked());
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        // All on this worker's own deque; the last is stepped first.
        for n in 0..100 {
            let (count, blocked) = (counted.clone(), blocked.clone());
            out.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                if n == 99 {
                    blocked.wait();
                }
                count.fetch_add(1, Ordering::SeqCst);
                Ok(Step::Done(()))
            }))?;
        }
        Ok(Step::Done(()))
    });
    runtime.spawn(parent).unwrap();
    held.wait_begun();
    watched.pass();
    until("the others are stepped", || count.load(Ordering::SeqCst) == 99);
    held.release();
    until("all have ended", || runtime.stats().processes == 0);
    until("the surplus is gone", || runtime.stats().spare_workers == 0);
    assert_accounted(runtime);
}

#[test]
fn a_stuck_first_step_does_not_delay_the_started_report() {
    // Also without a watchdog: the other worker must find the parent.
    let runtime = runtime(2);
    let held = Blocker::new();
    let mut child = Some(holder(held.blocked()));
    let parent = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(child) = child.take() {
            out.spawn_with(child, SpawnOptions::new().link().report_started())?;
            return Ok(Step::Wait);
        }
        Ok(if events.any(|event| matches!(event, Event::Completed(_))) { Step::Done(()) } else { Step::Wait })
    });
    let parent = runtime.spawn(parent).unwrap();
    held.wait_begun();
    output(&parent);
    held.release();
}

#[test]
fn nothing_is_lost_while_workers_stick_and_spares_come_and_go() {
    const ROUNDS: usize = 150;
    const PAIRS: usize = 8;
    let watched = watched(2, 2);
    let runtime = &watched.runtime;
    let (over, moved) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // Time goes on and on.
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                watched.clock.advance(LONG / 4);
                moved.fetch_add(1, Ordering::SeqCst);
                std::thread::yield_now();
            }
        });
        let mut games = Vec::new();
        for round in 0..ROUNDS {
            let held: Vec<Blocker> = (0..=round % 4).map(|_| hold_up_later(runtime).1).collect();
            games.extend((0..PAIRS).map(|_| game(runtime, 20)));
            // Each of these comes to a worker in the end, or to a spare.
            held.iter().take(2).for_each(|held| held.wait_begun());
            if round % 3 == 0 {
                let now = moved.load(Ordering::SeqCst);
                until("time has passed", || moved.load(Ordering::SeqCst) > now + 10);
            }
            held.iter().for_each(Blocker::release);
        }
        games.iter().for_each(|game| drop(output(game)));
        until("nobody is stuck", || runtime.stuck_steps().is_empty());
        until("the surplus is gone", || runtime.stats().spare_workers == 0);
        over.store(true, Ordering::SeqCst);
    });
    until("all is at rest", || runtime.is_idle());
    assert_accounted(runtime);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    until("all is told", || watched.told.len() as u64 == 2 * runtime.stats().stuck_steps);
    let told = watched.told.to_vec();
    let begun = told.iter().filter(|(over, _)| !over).count();
    assert_eq!(told.len(), begun * 2, "each that was stuck is told of twice");
    assert_eq!(begun as u64, runtime.stats().stuck_steps);
}

#[test]
fn a_runtime_ends_with_its_spares_whether_they_run_sleep_or_are_stuck() {
    // Asleep, behind one that is stuck until it is let go in the shutdown.
    let all = watched(1, 1);
    let held = all.sticks(1);
    let game = game(&all.runtime, 100);
    all.pass();
    output(&game);
    assert_eq!(all.runtime.stats().spare_workers, 1);
    held[0].release();
    assert!(all.runtime.shutdown(LIMIT).unwrap().is_clean());

    // A spare that is stuck is left behind, like any worker.
    let all = watched(1, 1);
    let held = all.sticks(1);
    let spare = hold_up_later(&all.runtime).1;
    all.pass();
    spare.wait_begun();
    assert_eq!(all.runtime.shutdown(Duration::ZERO).unwrap().stuck.len(), 2);
    held[0].release();
    spare.release();
    until("both have ended", || all.runtime.stats().processes == 0);
}

#[test]
fn a_shutdown_ends_the_others_though_all_workers_are_stuck() {
    let watched = watched_with(1, 1, |builder| builder.shutdown_limit(LIMIT * 1_000));
    let runtime = &watched.runtime;
    let idle: Vec<_> = (0..10).map(|_| runtime.spawn(sink::<()>()).unwrap()).collect();
    until("they wait", || runtime.is_idle());
    let held = watched.sticks(1);
    let state = runtime.shutdown_node();
    state.request_shutdown();
    // They are asked to stop; a spare steps them, though the shutdown waits for the one that is stuck.
    advance_until("they are stepped", &watched.clock, LONG, || idle.iter().all(|process| process.exit().is_some()));
    assert!(idle.iter().all(|process| join(process).is_done()));
    held[0].release();
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

#[test]
fn by_the_systems_clock_two_stuck_workers_hold_up_nobody() {
    let watchdog = Watchdog::after(Duration::from_millis(1)).spare_workers(2);
    let runtime = builder().workers(2).watchdog(watchdog).start().unwrap();
    let held = [hold_up(&runtime).1, hold_up(&runtime).1];
    for _ in 0..10 {
        output(&game(&runtime, 1_000));
    }
    assert!(runtime.stats().spare_workers > 0);
    held.iter().for_each(Blocker::release);
    until("the surplus is gone", || runtime.stats().spare_workers == 0);
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
}

#[test]
fn the_end_of_a_stuck_step_is_told_though_nobody_has_the_runtime_any_more() {
    for spares in 0..2 {
        let watched = watched(1, spares);
        let mut held = watched.sticks(1);
        if spares > 0 {
            held.push(hold_up_later(&watched.runtime).1);
            watched.pass();
            held[1].wait_begun();
            watched.pass();
            assert_eq!(watched.runtime.stuck_steps().len(), 2);
        }
        let Watched { runtime, told, .. } = watched;
        drop(runtime);
        held.iter().for_each(Blocker::release);
        until("it is told", || told.len() == 2 * held.len());
        assert_eq!(told.to_vec().iter().filter(|(over, _)| *over).count(), held.len());
    }
}

#[test]
fn a_surplus_spare_ends_its_process_though_no_worker_is_left() {
    let watched = watched(1, 1);
    let runtime = &watched.runtime;
    let held = watched.sticks(1);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let late = script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        blocked.wait();
        // After all others, who are none.
        Ok(Step::Upgrade(Upgrade::to(sink::<()>())))
    });
    let late = runtime.spawn(late).unwrap();
    watched.pass();
    blocker.wait_begun();
    watched.pass();
    assert_eq!(runtime.stuck_steps().len(), 2);
    assert_eq!(runtime.shutdown(Duration::ZERO).unwrap().stuck.len(), 2);
    held[0].release();
    until("the worker's step is over", || runtime.stuck_steps().len() == 1);
    blocker.release();
    assert!(matches!(join(&late), Exit::Terminated(_)));
}
