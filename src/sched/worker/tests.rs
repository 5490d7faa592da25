//! Tests of two workers without threads: a test gives each of them its turns, and so decides which one stands still.

use super::{HANDED_OFF_IN_A_ROW, Own, PASSES_A_YIELD, Robs, WOKEN_A_CALL, Worker};
use crate::primitives::{Arc, Mutex, lock, thread};
use crate::process::{
    Address, Event, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult, described_body,
};
use crate::runtime::Runtime;
use crate::sched::body::Ready;
use crate::sched::engine::Engine;
use crate::sched::find_work::STEPS_A_LOOK_ELSEWHERE;
use crate::sched::road::Executor as _;
use crate::sched::search::Searcher as _;
use crate::wait::{until, wait};

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

/// The body of a process that does nothing.
fn idle_body(pid: Pid) -> Ready {
    let idle = Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Idle));
    described_body(idle, pid, SpawnOptions::new(), None)
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

/// Gives two workers one turn after the other. The first has this many processes that continue, and the second has two.
/// Returns how many steps of the many the second worker has made.
fn steps_elsewhere(many: usize) -> u32 {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let (second_works, elsewhere) = (Arc::new(Mutex::new(false)), Arc::new(Mutex::new(0)));
    for _ in 0..many {
        let (second_works, elsewhere) = (second_works.clone(), elsewhere.clone());
        let process = Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
            *lock(&elsewhere) += u32::from(*lock(&second_works));
            Ok(Step::Continue)
        });
        runtime.spawn(process).map_err(|_| "refused").unwrap();
    }
    while !workers[0].own.queues.deque.is_empty() || !workers[0].own.road.queues.is_outside_empty() {
        assert!(turn_of(&mut workers[0]));
    }
    assert_eq!(workers[0].own.queues.waiting(), many);
    for _ in 0..2 {
        let other = Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Continue));
        runtime.spawn(other).map_err(|_| "refused").unwrap();
    }
    (0..2).for_each(|_| assert!(turn_of(&mut workers[1])));
    for turn in 0..2_000 {
        *lock(&second_works) = turn % 2 == 1;
        assert!(turn_of(&mut workers[turn % 2]));
    }
    *lock(&elsewhere)
}

#[test]
fn a_worker_takes_from_one_that_has_much_more_waiting() {
    assert!(steps_elsewhere(100) > 500);
    // One more is no reason to carry a process from one processor to another.
    assert_eq!(steps_elsewhere(3), 0);
}

#[test]
fn sleeping_workers_are_told_while_a_step_wakes_many() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let own = &mut workers[0].own;
    let road = own.road.clone();
    let sleeper = thread::spawn(move || {
        road.sleep.start_looking();
        road.sleep.fall_asleep(1, || false)
    });
    until("the other worker sleeps", || own.road.sleep.all_sleep(1, || false));
    let pid = Pid::new(0, 1, 1).unwrap();
    for step in 0..3 {
        own.begins(pid, &mut idle_body(pid));
        if step == 2 {
            // There are no hand-offs for a while, and others wait. So nothing goes into the slot.
            assert!(own.take_next().is_some());
            own.handed_off_in_a_row = HANDED_OFF_IN_A_ROW;
        }
        let told = |number: u32| {
            own.woken(idle_body(pid));
            assert_eq!(own.view.counters.woke_others.get(), u64::from(step > 0 || number > 0));
            !own.offered
        };
        let told: Vec<bool> = (0..2 * WOKEN_A_CALL + 2).map(told).collect();
        // The worker itself steps the first process of a step. Nobody need be told of that.
        let mut expected: Vec<bool> = (0..2 * WOKEN_A_CALL + 2).map(|number| number % WOKEN_A_CALL == 1).collect();
        match step {
            // At first, nothing at all was offered.
            0 => expected[0] = true,
            // The slot is full.
            1 => expected.rotate_left(1),
            _ => {}
        }
        assert_eq!(told, expected, "step {step}");
    }
    assert!(wait(sleeper).unwrap());
    drop(runtime);
}

#[test]
fn what_a_slice_of_yields_wakes_is_held_back_to_its_end() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let own = &mut workers[0].own;
    let pid = Pid::new(0, 1, 1).unwrap();
    let wake = |own: &mut Own, many: usize| {
        for _ in 0..many {
            own.woken(idle_body(pid));
        }
        own.queues.waiting()
    };
    own.begins(pid, &mut idle_body(pid));
    own.hold_back();
    // The first one is in the hand-off slot.
    assert_eq!(wake(own, 11), 0);
    own.hold_back();
    assert_eq!((own.queues.waiting(), own.offered), (10, false), "the first slice is over, and others are told");
    assert_eq!(wake(own, 10), 10);
    own.let_go();
    assert_eq!(own.queues.waiting(), 21, "user code that may take long follows");
    assert_eq!(wake(own, 11), 31);
    own.hold_back();
    assert_eq!(wake(own, 10), 31);
    own.release();
    assert!(!own.offered);
    assert_eq!(wake(own, 10), 51, "all slices are over");
    while own.queues.take_any().is_some() {}
    drop(own.take_next());
    drop(runtime);
}

#[test]
fn processes_held_back_are_let_go_after_the_last_slice() {
    const MANY: u64 = 40_000;
    let (runtime, mut workers) = Runtime::builder().workers(1).by_hand();
    let worker = &mut workers[0];
    let receivers = [0, 1, 2].map(|_| {
        let receiver = Script(|events: &mut Events<'_, u64>, _: &mut StepOutput| {
            events.for_each(drop);
            Ok(Step::Idle)
        });
        runtime.spawn(receiver).map_err(|_| "refused").unwrap()
    });
    while turn_of(worker) {}
    let to = [0, 1, 2].map(|number: usize| receivers[number].address());
    let sender = Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        (0..MANY).for_each(|number| out.send(to[(number % 3) as usize], number));
        let monitor = out.monitor(to[0].pid());
        out.demonitor(monitor);
        Ok(Step::Idle)
    });
    let sender = runtime.spawn(sender).map_err(|_| "refused").unwrap();
    assert!(turn_of(worker));
    assert_eq!(worker.own.woken, 0, "all were held back");
    assert_eq!((worker.own.next.is_some(), worker.own.queues.waiting()), (true, 2));
    assert!(worker.own.held.is_none());
    assert_eq!(worker.out.yields.capacity(), 0, "the memory of so many yields is freed");
    while turn_of(worker) {}
    assert_eq!(runtime.stats().messages.stepped, MANY);
    drop((sender, receivers, runtime));
}

#[test]
fn a_worker_yields_at_some_of_the_turns_that_are_let_pass() {
    let (runtime, mut workers) = Runtime::builder().workers(1).by_hand();
    let own = &mut workers[0].own;
    let yields: Vec<bool> = (1..=64).map(|_| own.is_to_yield()).collect();
    assert!(yields.chunks(PASSES_A_YIELD as usize).all(|turns| turns.iter().filter(|yields| **yields).count() == 1));
    drop(runtime);
}

#[test]
fn a_shard_behind_a_stuck_worker_is_taken() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let [first, second] = &mut workers[..] else { panic!("two") };
    let ended = Arc::new(Mutex::new(0));
    for _ in 0..3 {
        let (ended, mut steps) = (ended.clone(), 0);
        let process = Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
            steps += 1;
            *lock(&ended) += u32::from(steps == 2);
            Ok(if steps == 2 { Step::Done(()) } else { Step::Continue })
        });
        runtime.spawn(process).map_err(|_| "refused").unwrap();
    }
    while first.own.queues.waiting() < 3 {
        assert!(turn_of(first));
    }
    // From here on the first worker stands still. The second has two processes of its own, so it never searches.
    for _ in 0..2 {
        let other = Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Continue));
        runtime.spawn(other).map_err(|_| "refused").unwrap();
    }
    for _ in 0..10 * STEPS_A_LOOK_ELSEWHERE {
        assert!(turn_of(second));
    }
    assert_eq!(*lock(&ended), 3);
}

/// A process that continues for ever. Alone, it would have one turn without an end.
fn continues() -> impl Process<Message = u64> {
    Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Continue))
}

#[test]
fn a_process_behind_a_deep_deque_is_taken_by_a_busy_worker() {
    const DEEP: u32 = 2_000;
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let [first, second] = &mut workers[..] else { panic!("two") };
    let steps = Arc::new(Mutex::new(0));
    let counts = steps.clone();
    let parent = Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        *lock(&counts) += 1;
        for _ in 0..if *lock(&counts) == 1 { DEEP } else { 0 } {
            out.spawn(Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Idle)))?;
        }
        Ok(Step::Continue)
    });
    runtime.spawn(parent).map_err(|_| "refused").unwrap();
    // The first worker looks into its shard early, and then only after so many searches as its deque is deep.
    while *lock(&steps) < 2 {
        assert!(turn_of(first));
    }
    (0..2).for_each(|_| drop(runtime.spawn(continues()).map_err(|_| "refused").unwrap()));
    let mut turns = 0;
    while *lock(&steps) < 3 {
        assert!(turn_of(first) && turn_of(second));
        turns += 1;
    }
    assert!(turns < 4 * STEPS_A_LOOK_ELSEWHERE, "after {turns} turns of each worker");
}

#[test]
fn a_stuck_worker_is_found_beside_one_that_always_has_more() {
    let (runtime, mut workers) = Runtime::builder().workers(3).by_hand();
    let [first, second, third] = &mut workers[..] else { panic!("three") };
    let is_found = Arc::new(Mutex::new(false));
    let tells = is_found.clone();
    let parent = Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        let tells = tells.clone();
        out.spawn(Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
            *lock(&tells) = true;
            Ok(Step::Done(()))
        }))?;
        Ok(Step::Done(()))
    });
    let receivers: Vec<_> = (0..5_000)
        .map(|_| {
            let rests = Script(|events: &mut Events<'_, u64>, _: &mut StepOutput| {
                events.for_each(drop);
                Ok(Step::Idle)
            });
            runtime.spawn(rests).map_err(|_| "refused").unwrap().address()
        })
        .collect();
    while !first.own.nothing_waits() {
        assert!(turn_of(first));
    }
    (0..2).for_each(|_| drop(runtime.spawn(continues()).map_err(|_| "refused").unwrap()));
    while third.own.queues.waiting() < 2 {
        assert!(turn_of(third));
    }
    runtime.spawn(parent).map_err(|_| "refused").unwrap();
    assert!(turn_of(second), "from here on it stands still, with the child in its deque");
    let wakes = Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        receivers.iter().for_each(|receiver| out.send(*receiver, 0));
        Ok(Step::Done(()))
    });
    runtime.spawn(wakes).map_err(|_| "refused").unwrap();
    assert!(turn_of(first), "all receivers are in its shard");
    assert!(!*lock(&is_found));
    // The third worker looks at the first one before it looks at the second one. The first one has long steps.
    let mut turns = 0;
    while !*lock(&is_found) {
        if turns % (STEPS_A_LOOK_ELSEWHERE / 2) == 0 {
            assert!(turn_of(first));
        }
        assert!(turn_of(third));
        turns += 1;
    }
    assert!(turns < 8 * STEPS_A_LOOK_ELSEWHERE, "after {turns} turns, though the first worker always has more");
    assert!(first.own.queues.waiting() > 1_000);
}

#[test]
fn a_worker_whose_only_process_lets_turns_pass_steps_its_receiver() {
    let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
    let [first, second] = &mut workers[..] else { panic!("two") };
    let (received, sent) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
    let counts = received.clone();
    let receiver = Script(move |_: &mut Events<'_, u64>, _: &mut StepOutput| {
        *lock(&counts) += 1;
        Ok(Step::Continue)
    });
    let receiver = runtime.spawn(receiver).map_err(|_| "refused").unwrap().address();
    runtime.spawn(continues()).map_err(|_| "refused").unwrap();
    while second.own.queues.waiting() < 2 {
        assert!(turn_of(second));
    }
    // From here on it stands still, with the receiver in its shard.
    let before: u32 = *lock(&received);
    let counts = sent.clone();
    let producer = Script(move |_: &mut Events<'_, u64>, out: &mut StepOutput| {
        *lock(&counts) += 1;
        (0..10_000).for_each(|number| out.send(receiver, number));
        Ok(Step::Continue)
    });
    runtime.spawn(producer).map_err(|_| "refused").unwrap();
    while *lock(&received) == before {
        assert!(turn_of(first));
    }
    let sent: u32 = *lock(&sent);
    assert_eq!(sent, 1, "the backlog does not grow until the second worker is found stuck");
}

/// A third worker may sleep. It is notified of the rest, which would otherwise wait behind the first process.
#[test]
fn the_rest_of_what_was_taken_is_offered_to_others() {
    let other = || Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Continue));
    for robs in [Some(Robs::Nothing), Some(Robs::Shard), None] {
        let (runtime, mut workers) = Runtime::builder().workers(2).by_hand();
        let [first, second] = &mut workers[..] else { panic!("two") };
        (0..8).for_each(|_| drop(runtime.spawn(other()).map_err(|_| "refused").unwrap()));
        if let Some(robs) = robs {
            while first.own.queues.waiting() < 8 {
                assert!(turn_of(first));
            }
            (second.own.robs, second.own.victim) = (robs, 0);
        }
        assert!(!second.own.offered);
        let taken = second.look();
        // Without a victim, a batch comes from the part of the global queue for submissions from outside.
        let rest = if robs.is_some() { second.own.queues.waiting() } else { second.own.queues.deque.len() };
        assert!(taken.is_some() && rest > 0);
        assert!(second.own.offered);
    }
}

#[test]
fn what_a_worker_has_is_seen_by_others_and_given_back_when_it_leaves() {
    let (runtime, mut workers) = Runtime::builder().workers(1).by_hand();
    let own = &mut workers[0].own;
    let body = |slot: u32| {
        let idle = Script(|_: &mut Events<'_, u64>, _: &mut StepOutput| Ok(Step::Idle));
        described_body(idle, Pid::new(0, slot, 1).unwrap(), SpawnOptions::new(), None)
    };
    let road = own.road.clone();
    assert!(!road.queues.has_work());
    own.behind_all(body(1));
    assert!(road.queues.has_work() && road.queues.global_len() == 1);
    assert_eq!(road.queues.take_any().unwrap().head.pid.slot(), 1);
    own.behind_all(body(2));
    own.spawned(body(3));
    own.woken(body(4));
    // It is no spare, and stays. But what it has is where all workers look first.
    own.leaves();
    let given: Vec<u32> = std::iter::from_fn(|| road.queues.take_one()).map(|ready| ready.head.pid.slot()).collect();
    assert_eq!(given, [3, 2, 4]);
    drop(runtime);
}
