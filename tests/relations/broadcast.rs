//! Broadcasts to a group: who receives them, how often the message is cloned, and what a clone may do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use procession::observe::{DeadLetter, DeadLetterReason, Observer};
use procession::spawn::Overflow;
use procession::{Events, Pid, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;

const GROUP: &str = "group";

/// Spawns members, and the logs of their messages.
fn members<M: Send + 'static>(runtime: &Runtime, count: usize) -> Vec<(Log<M>, Pid)> {
    let member = |_| {
        let log = Log::new();
        let pid = runtime.spawn(recorder(&log)).unwrap().pid();
        runtime.join_group(GROUP, pid).unwrap();
        (log, pid)
    };
    (0..count).map(member).collect()
}

/// Runs a step of a process, and waits until everything that follows from it is done.
fn run<T: Send + Sync + std::fmt::Debug + 'static>(
    runtime: &Runtime,
    mut step: impl FnMut(&mut StepOutput) -> T + Send + 'static,
) -> Arc<T> {
    let process =
        script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<T> { Ok(Step::Done(step(out))) });
    let result = output(&runtime.spawn(process).unwrap());
    until("all is stepped", || runtime.is_idle());
    result
}

/// Calls a function when it is cloned.
struct Cloned(u32, Arc<dyn Fn() + Send + Sync>);

impl Cloned {
    fn new(number: u32, calls: impl Fn() + Send + Sync + 'static) -> Cloned {
        Cloned(number, Arc::new(calls))
    }

    /// Without a call.
    fn copy(&self) -> Cloned {
        Cloned(self.0, self.1.clone())
    }
}

impl Clone for Cloned {
    fn clone(&self) -> Self {
        (self.1)();
        self.copy()
    }
}

#[test]
fn a_broadcast_follows_each_change_of_the_members() {
    let runtime = runtime(1);
    let all = members::<u32>(&runtime, 4);
    let pids: Vec<Pid> = all.iter().map(|(_, pid)| *pid).collect();
    let mut number = 0;
    let mut expected = vec![Vec::new(); 4];
    let mut comes_to = |places: &[usize]| {
        // Twice in each way: the second finds the list of the first.
        for way in 0..4 {
            number += 1;
            let count = if way % 2 == 0 {
                runtime.broadcast(GROUP, number)
            } else {
                let number = number;
                *run(&runtime, move |out| out.broadcast(GROUP, number))
            };
            assert_eq!(count, places.len());
            places.iter().for_each(|place| expected[*place].push(number));
        }
        until("all is stepped", || runtime.is_idle());
        all.iter().zip(&expected).for_each(|((log, _), expected)| assert_eq!(log.to_vec(), *expected));
    };
    comes_to(&[0, 1, 2, 3]);
    runtime.leave_group(GROUP, pids[1]);
    comes_to(&[0, 2, 3]);
    runtime.join_group(GROUP, pids[1]).unwrap();
    comes_to(&[0, 1, 2, 3]);
    runtime.leave_group(GROUP, pids[1]);
    runtime.join_group(GROUP, pids[0]).unwrap();
    comes_to(&[0, 2, 3]);
    runtime.leave_group(GROUP, pids[0]);
    comes_to(&[0, 2, 3]);
    runtime.leave_group(GROUP, pids[0]);
    comes_to(&[2, 3]);
    runtime.terminate(pids[3]).unwrap();
    until("it has left", || runtime.group_members(GROUP).len() == 1);
    comes_to(&[2]);
    runtime.leave_group(GROUP, pids[2]);
    comes_to(&[]);
    runtime.join_group(GROUP, pids[1]).unwrap();
    comes_to(&[1]);
}

#[test]
fn no_list_of_receivers_outlives_a_change_in_a_race() {
    let runtime = runtime(1);
    let all = members::<u32>(&runtime, 4);
    for _ in 0..300 {
        // Each member leaves and comes back, and broadcasts go on meanwhile.
        let ready = Barrier::new(all.len() + 2);
        std::thread::scope(|scope| {
            for (_, pid) in &all {
                scope.spawn(|| {
                    wait(&ready);
                    assert!(runtime.leave_group(GROUP, *pid));
                    runtime.broadcast(GROUP, 1_u32);
                    runtime.join_group(GROUP, *pid).unwrap();
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    wait(&ready);
                    (0..5).for_each(|_| assert!(runtime.broadcast(GROUP, 1_u32) <= all.len()));
                });
            }
        });
        assert_eq!(runtime.broadcast(GROUP, 2_u32), all.len());
        until("all is stepped", || runtime.is_idle());
        for (log, _) in &all {
            assert_eq!(log.take().last(), Some(&2));
        }
    }
}

#[test]
fn a_broadcast_clones_once_less_than_there_are_members() {
    let runtime = runtime(1);
    let all = members::<Arc<u32>>(&runtime, 10);
    runtime.join_group(GROUP, all[3].1).unwrap();
    let inside = Arc::new(1_u32);
    let message = inside.clone();
    assert_eq!(*run(&runtime, move |out| out.broadcast(GROUP, message.clone())), 10);
    // The process of the step is gone.
    assert_eq!(Arc::strong_count(&inside), 11);
    let clones: Log<()> = Log::new();
    let counted = clones.clone();
    let message = Cloned::new(1, move || counted.push(()));
    assert_eq!(runtime.broadcast(GROUP, message.copy()), 0, "no member takes messages of this type");
    assert_eq!(clones.len(), 9);
    assert_eq!(*run(&runtime, move |out| out.broadcast(GROUP, message.copy())), 10);
    assert_eq!(clones.len(), 18);
    assert_eq!(runtime.broadcast("nobody", Cloned::new(1, || panic!("there is no member"))), 0);
}

#[test]
fn messages_beside_a_broadcast_keep_their_order() {
    let runtime = runtime(1);
    let all = members::<u32>(&runtime, 3);
    let pids: Vec<Pid> = all.iter().map(|(_, pid)| *pid).collect();
    run(&runtime, move |out| {
        pids.iter().for_each(|pid| out.send(*pid, 1_u32));
        out.broadcast(GROUP, 2_u32);
        out.send(pids[2], 3_u32);
        out.broadcast("nobody", 4_u32);
        out.broadcast(GROUP, 5_u32);
        out.broadcast(GROUP, 6_u32);
        pids.iter().for_each(|pid| out.send(*pid, 7_u32));
    });
    for (place, (log, _)) in all.iter().enumerate() {
        assert_eq!(log.to_vec(), if place == 2 { vec![1, 2, 3, 5, 6, 7] } else { vec![1, 2, 5, 6, 7] });
    }
}

#[test]
fn a_broadcast_that_some_cannot_take_reaches_the_others() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let all = members::<u32>(&runtime, 2);
    let deaf = runtime.spawn(sink::<String>()).unwrap().pid();
    let full = |overflow| {
        let blocker = Log::<u32>::new();
        let options = SpawnOptions::new().mailbox(1, overflow);
        (runtime.spawn_with(recorder(&blocker), options).unwrap().pid(), blocker)
    };
    let (refuses, refused) = full(Overflow::Refuse);
    let (drops, dropped) = full(Overflow::DropOldest);
    for pid in [deaf, refuses, drops] {
        runtime.join_group(GROUP, pid).unwrap();
    }
    let last = members::<u32>(&runtime, 1);
    until("all rest", || runtime.is_idle());
    let victim = last[0].1;
    let from = *run(&runtime, move |out| {
        // All of this is delivered before any member is stepped, because there is one worker.
        assert_eq!(out.broadcast(GROUP, 1_u32), 6);
        assert_eq!(out.broadcast(GROUP, 2_u32), 6);
        out.leave_group(GROUP, deaf);
        out.terminate(victim);
        assert_eq!(out.broadcast(GROUP, 3_u32), 6, "the leave is not performed yet");
        out.pid()
    });
    let heard = |log: &Log<u32>| log.to_vec();
    assert_eq!((heard(&all[0].0), heard(&all[1].0)), (vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!((heard(&refused), heard(&dropped)), (vec![1], vec![3]));
    assert!(heard(&last[0].0).is_empty());
    let (dead, of_victim): (Vec<_>, Vec<_>) = watcher.dead.to_vec().into_iter().partition(|(to, ..)| *to != victim);
    assert_eq!((of_victim.len(), of_victim[0].2), (3, DeadLetterReason::NoSuchProcess));
    let letter = |to, reason| (to, Some(from), reason);
    let first = [letter(deaf, DeadLetterReason::WrongType)];
    let later = [
        letter(deaf, DeadLetterReason::WrongType),
        letter(refuses, DeadLetterReason::Full),
        letter(drops, DeadLetterReason::DroppedOldest),
    ];
    assert_eq!(dead, [&first[..], &later, &later].concat());
    assert_accounted(&runtime);
}

#[test]
fn a_clone_that_panics_ends_its_step_and_nothing_is_sent() {
    let runtime = runtime(1);
    let all = members::<u32>(&runtime, 3);
    let process = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
        out.broadcast(GROUP, 1_u32);
        out.broadcast(GROUP, Cloned::new(2, || panic!("{ON_PURPOSE}")));
        Ok(Step::Done(()))
    });
    assert!(join(&runtime.spawn(process).unwrap()).to_string().contains(ON_PURPOSE));
    until("all is stepped", || runtime.is_idle());
    assert!(all.iter().all(|(log, _)| log.len() == 0));
    let outside = || runtime.broadcast(GROUP, Cloned::new(3, || panic!("{ON_PURPOSE}")));
    assert!(catch_unwind(AssertUnwindSafe(outside)).is_err());
    assert_eq!(runtime.broadcast(GROUP, 4_u32), 3);
    assert_accounted(&runtime);
}

#[test]
fn a_step_that_catches_the_panic_of_a_clone_sends_nothing_of_it() {
    let runtime = runtime(1);
    let all = members::<Cloned>(&runtime, 4);
    run(&runtime, |out| {
        let clones = AtomicUsize::new(0);
        let third = Cloned::new(2, move || assert!(clones.fetch_add(1, Ordering::Relaxed) < 2, "{ON_PURPOSE}"));
        out.broadcast(GROUP, Cloned::new(1, || ()));
        assert!(catch_unwind(AssertUnwindSafe(|| out.broadcast(GROUP, third))).is_err());
        out.broadcast(GROUP, Cloned::new(3, || ()));
    });
    for (log, _) in &all {
        assert_eq!(log.take().iter().map(|message| message.0).collect::<Vec<_>>(), [1, 3]);
    }
    assert_accounted(&runtime);
}

/// From this count on, the destructor of `Brittle` does not panic.
const SOUND: usize = 1_000;

/// Panics when it is cloned, and when it is dropped.
struct Brittle(Arc<AtomicUsize>);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 1, "{ON_PURPOSE}");
        Brittle(self.0.clone())
    }
}

impl Drop for Brittle {
    fn drop(&mut self) {
        assert!(self.0.fetch_add(100, Ordering::Relaxed) >= SOUND, "{ON_PURPOSE}");
    }
}

#[test]
fn a_clone_and_a_destructor_that_both_panic_are_contained() {
    let runtime = runtime(1);
    let all = members::<Brittle>(&runtime, 4);
    let calls = Arc::new(AtomicUsize::new(0));
    let inside = calls.clone();
    let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
        out.broadcast(GROUP, Brittle(inside.clone()));
        Ok(Step::Done(()))
    });
    assert!(join(&runtime.spawn(process).unwrap()).to_string().contains(ON_PURPOSE));
    assert_eq!(calls.swap(0, Ordering::Relaxed), 202, "two clones, and both values are dropped");
    assert!(all.iter().all(|(log, _)| log.len() == 0));
    let outside = || runtime.broadcast(GROUP, Brittle(calls.clone()));
    assert!(catch_unwind(AssertUnwindSafe(outside)).is_err());
    until("the first member is stepped", || all[0].0.len() == 1);
    assert_eq!(calls.load(Ordering::Relaxed), 102, "the first copy is with its member");
    calls.store(SOUND, Ordering::Relaxed);
    drop(all[0].0.take());
    assert_accounted(&runtime);
}

/// Adds up the counts whenever a message is dead.
#[derive(Clone)]
struct Auditor(Arc<OnceLock<Weak<Runtime>>>, Log<(u64, u64)>);

impl Observer for Auditor {
    fn dead_letter(&self, _: &DeadLetter<'_>) {
        let runtime = self.0.get().and_then(Weak::upgrade).unwrap();
        let messages = runtime.stats().messages;
        self.1.push((messages.accepted, messages.stepped + messages.dead() + messages.queued));
    }
}

#[test]
fn in_the_middle_of_a_broadcast_every_message_is_accounted_for() {
    let auditor = Auditor(Arc::new(OnceLock::new()), Log::new());
    let runtime = Arc::new(builder().workers(1).observer(auditor.clone()).start().unwrap());
    assert!(auditor.0.set(Arc::downgrade(&runtime)).is_ok());
    let _all = members::<u32>(&runtime, 2);
    for _ in 0..2 {
        let deaf = runtime.spawn(sink::<String>()).unwrap().pid();
        runtime.join_group(GROUP, deaf).unwrap();
        let _more = members::<u32>(&runtime, 2);
    }
    until("all rest", || runtime.is_idle());
    assert_eq!(*run(&runtime, |out| out.broadcast(GROUP, 1_u32)), 8);
    assert_eq!(auditor.1.to_vec(), [(3, 3), (6, 6)]);
}

#[test]
fn a_clone_may_change_the_group_and_send_to_it() {
    let runtime = Arc::new(runtime(1));
    let all = members::<u32>(&runtime, 3);
    let first = all[0].1;
    let change = |runtime: &Arc<Runtime>| {
        let runtime = Arc::downgrade(runtime);
        move || {
            let runtime = runtime.upgrade().unwrap();
            assert!(runtime.leave_group(GROUP, first));
            assert_eq!(runtime.broadcast(GROUP, 1_u32), 2);
            runtime.join_group(GROUP, first).unwrap();
            assert_eq!(runtime.broadcast(GROUP, 2_u32), 3);
        }
    };
    // No lock is held, neither of the group nor of a member.
    assert_eq!(runtime.broadcast(GROUP, Cloned::new(0, change(&runtime))), 0);
    let message = Cloned::new(0, change(&runtime));
    assert_eq!(*run(&runtime, move |out| out.broadcast(GROUP, message.copy())), 3);
    let expected = [[2, 2, 2, 2].as_slice(), &[1, 2, 1, 2, 1, 2, 1, 2]];
    for (place, (log, _)) in all.iter().enumerate() {
        assert_eq!(log.to_vec(), expected[usize::from(place > 0)]);
    }
}
