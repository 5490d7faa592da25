//! Tests of two workers without threads: a test gives each of them its turns, and so decides which one stands still.

use super::Worker;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{Address, Event, Events, Process, Step, StepOutput, StepResult};
use crate::runtime::Runtime;
use crate::sched::engine::Engine;
use crate::sched::find_work::STEPS_A_LOOK_ELSEWHERE;
use crate::sched::search::Searcher as _;

/// Gives a worker one turn. Returns whether it found something to do.
fn turn_of<E: Engine>(worker: &mut Worker<E>) -> bool {
    let Some(ready) = worker.at_hand() else { return false };
    worker.take_up(ready);
    true
}

/// A process whose step is a closure.
struct Script<F>(F);

impl<F> Process for Script<F>
where
    F: FnMut(&mut Events<'_, u64>, &mut StepOutput) -> StepResult<()> + Send + 'static,
{
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        (self.0)(events, out)
    }
}

/// In each of its three steps sends the number of the step.
fn producer(to: Address<u64>, steps: &Arc<Mutex<u64>>) -> impl Process<Message = u64> {
    let steps = steps.clone();
    Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        let mut steps = lock(&steps);
        *steps += 1;
        out.send(to, *steps);
        Ok(if *steps == 3 { Step::Done(()) } else { Step::Continue })
    })
}

#[test]
fn a_producer_is_not_stepped_again_before_its_woken_consumer() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let second = Arc::new(Mutex::new(workers.pop().unwrap()));
    let first = &mut workers[0];
    let (steps, seen) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
    // While it is stepped by the first worker, the second one goes on.
    let (other, made, tells) = (second.clone(), steps.clone(), seen.clone());
    let consumer = runtime.spawn(Script(move |events: &mut Events<'_, u64>, _: &mut StepOutput| {
        for event in events {
            if let Event::Message(number) = event {
                let before = *lock(&made);
                turn_of(&mut lock(&other));
                lock(&tells).push((number, before, *lock(&made)));
            }
        }
        Ok(Step::Idle)
    }));
    assert!(turn_of(first) && !turn_of(first), "the consumer rests");
    runtime.spawn(producer(consumer.unwrap().address(), &steps)).map_err(|_| "refused").unwrap();

    assert!(turn_of(first));
    assert_eq!(*lock(&steps), 1);
    // The number of turns that the second worker has before the first one goes on does not matter.
    for _ in 0..10_000 {
        assert!(turn_of(&mut lock(&second)), "the producer is ready, and lets its turn pass");
    }
    assert_eq!((*lock(&steps), lock(&seen).len()), (1, 0));
    assert!(turn_of(first));
    assert_eq!(lock(&seen)[0], (1, 1, 3), "the consumer is stepped, and from then on the producer beside it");
    assert_eq!(lock(&seen).len(), 3);
}

#[test]
fn work_behind_a_stuck_worker_is_stolen_after_a_few_busy_steps() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let second = &mut workers.pop().unwrap();
    let first = Arc::new(Mutex::new(workers.pop().unwrap()));
    let (steps, taken_after) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let (counts, tells, drives) = (steps.clone(), taken_after.clone(), first.clone());
    let spinner = Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
        let mut steps = lock(&counts);
        *steps += 1;
        // A worker that never looked elsewhere would never end its turn.
        Ok(if lock(&tells).is_none() && *steps < 10_000 { Step::Continue } else { Step::Done(()) })
    });
    let (counts, tells, looks) = (steps.clone(), taken_after.clone(), taken_after.clone());
    runtime
        .spawn(Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
            let (counts, tells) = (counts.clone(), tells.clone());
            out.spawn(Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
                *lock(&tells) = Some(*lock(&counts));
                Ok(Step::Done(()))
            }))?;
            let (drives, looks) = (drives.clone(), looks.clone());
            // On top of it, and in this step until the other worker has taken the process below.
            out.spawn(Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
                while lock(&looks).is_none() {
                    assert!(turn_of(&mut lock(&drives)));
                }
                Ok(Step::Done(()))
            }))?;
            Ok(Step::Done(()))
        }))
        .map_err(|_| "refused")
        .unwrap();
    assert!(turn_of(second), "the parent");
    runtime.spawn(spinner).map_err(|_| "refused").unwrap();
    assert!(turn_of(second), "the one that is stuck");
    let after: u32 = lock(&taken_after).unwrap();
    assert!(after <= 4 * STEPS_A_LOOK_ELSEWHERE, "after {after} steps");
}

/// Sends a message to the process of the address for each message that it gets, and counts its steps.
fn echo(to: &Arc<Mutex<Option<Address<u64>>>>, steps: &Arc<Mutex<u64>>) -> impl Process<Message = u64> {
    let (to, steps) = (to.clone(), steps.clone());
    Script(move |events: &mut Events<'_, u64>, out: &mut StepOutput| {
        *lock(&steps) += 1;
        let to = lock(&to).expect("the test has written it");
        events.for_each(|_| out.send(to, 0));
        Ok(Step::Idle)
    })
}

#[test]
fn hand_offs_begin_anew_after_another_process_had_its_turn() {
    let (runtime, mut workers) = Runtime::builder().workers(1).by_hand();
    let worker = &mut workers[0];
    let (others, handed, ready) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)), Arc::new(Mutex::new(None)));
    let counts = others.clone();
    let other = Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
        *lock(&counts) += 1;
        Ok(Step::Continue)
    });
    runtime.spawn(other).map_err(|_| "refused").unwrap();
    let back = Arc::new(Mutex::new(None));
    let one = runtime.spawn(echo(&ready, &handed)).map_err(|_| "refused").unwrap().address();
    let two = runtime.spawn(echo(&back, &handed)).map_err(|_| "refused").unwrap().address();
    (*lock(&ready), *lock(&back)) = (Some(two), Some(one));
    runtime.send(one, 0).map_err(|_| "refused").unwrap();
    for _ in 0..1_000 {
        assert!(turn_of(worker));
    }
    let (others, handed): (u64, u64) = (*lock(&others), *lock(&handed));
    assert!(handed > 8 * others, "{handed} steps of the two that wake each other, and {others} of the other");
    assert!(others > 20, "it has its turns");
}
