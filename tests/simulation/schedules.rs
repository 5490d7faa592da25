//! Schedules of whole worlds: how often PCT finds a planted bug, and that no process starves. Statements 16 and 17.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use procession::simulation::{Schedule, Simulation, ensure};
use procession::{Address, Event, Events, Runtime, Step, StepOutput};

use crate::programs::is_full;
use crate::script::script;
use crate::wait::Mutex;

const WALKERS: u64 = 4;
const STEPS: u64 = 6;

/// Counts the seeds in which these steps happen in this order. Each step has the number of a walker, and its own.
fn found(schedule: Schedule, seeds: u64, wanted: &'static [(u64, u64)]) -> u64 {
    let found = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = found.clone();
    Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let steps = Arc::new(Mutex::new(Vec::new()));
        for walker in 0..WALKERS {
            let (steps, mut next) = (steps.clone(), 0);
            runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
                steps.lock().unwrap().push((walker, next));
                next += 1;
                Ok(if next == STEPS { Step::Done(()) } else { Step::Continue })
            }))?;
        }
        world.run()?;
        let mut left = wanted.iter().peekable();
        for step in steps.lock().unwrap().iter() {
            left.next_if_eq(&step);
        }
        if left.peek().is_none() {
            // Some seeds are run twice.
            seen.lock().unwrap().insert(world.seed());
        }
        Ok(())
    })
    .schedule(schedule)
    .seeds(0..seeds)
    .check();
    let found = found.lock().unwrap().len();
    found as u64
}

#[test]
fn pct_finds_planted_bugs_of_worlds_as_often_as_promised() {
    let full = 100_000;
    let seeds = if is_full() { full } else { 3_000 };
    println!("{seeds} of {full} seeds; PROCESSION_FULL=1 runs all");
    let turns = WALKERS * STEPS;
    // One walker begins between two steps of another one.
    let depth_two = &[(0, 2), (1, 0), (0, 3)];
    let count = found(Schedule::pct(2), seeds, depth_two);
    assert!(count >= seeds / (WALKERS * turns), "{count}");
    // A third walker begins between two steps of that one.
    let depth_three = &[(0, 2), (1, 0), (0, 3), (1, 1)];
    let count = found(Schedule::pct(3), seeds, depth_three);
    assert!(count >= seeds / (WALKERS * turns * turns), "{count}");
    // Priorities that never change do not preempt a walker between two of its steps.
    assert_eq!(found(Schedule::pct(1), 500, depth_two), 0);
}

/// Two that chat, one that always continues and one that looks for a name, until a fifth one has had its steps.
fn busy(schedule: Schedule) -> Simulation {
    Simulation::new(|world| {
        let runtime = world.start(Runtime::builder())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            Ok(if over.load(SeqCst) { Step::Done(()) } else { Step::Continue })
        }))?;
        let over = is_over.clone();
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let is_found = out.whereis("nobody").is_some();
            Ok(if over.load(SeqCst) || is_found { Step::Done(()) } else { Step::Continue })
        }))?;
        let chats = [(); 2].map(|()| {
            let over = is_over.clone();
            script(move |events: &mut Events<'_, Address<u64>>, out: &mut StepOutput| {
                for event in events.by_ref() {
                    if let Event::Message(other) = event
                        && !over.load(SeqCst)
                    {
                        out.send(other.pid().typed(), out.pid().typed::<u64>());
                    }
                }
                Ok::<_, procession::BoxError>(Step::<()>::Idle)
            })
        });
        let [one, other] = chats.map(|chat| runtime.spawn(chat));
        runtime.send(&one?, other?.pid().typed::<u64>())?;
        let (over, mut steps) = (is_over.clone(), 0);
        runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            steps += 1;
            if steps < 20 {
                return Ok(Step::Continue);
            }
            over.store(true, SeqCst);
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        ensure(is_over.load(SeqCst), || "it has starved".into())?;
        Ok(())
    })
    .schedule(schedule)
    // A schedule is free for 1,000 turns, and is fair then. Each process has a turn in five.
    .max_turns(1_000 + 20 * 6)
    .seeds(0..60)
}

#[test]
fn no_process_of_a_world_starves_under_any_schedule() {
    let schedules = [Schedule::random(), Schedule::pos(), Schedule::round_robin(), Schedule::mixed()];
    for schedule in schedules.into_iter().chain((1..4).map(Schedule::pct)) {
        busy(schedule).check();
    }
}
