//! The order of down events, messages and answers.

use std::time::Duration;

use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{Address, Event, Events, Reply, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Saw {
    Message(u32),
    Down,
}

/// Holds a watcher up in its first step, until a sender that it monitors has ended. Returns what it sees after that.
fn what_is_seen(step_events: usize, options: SpawnOptions, noise: [u32; 3], sends: u32) -> Vec<Saw> {
    let runtime = builder().workers(2).step_events(step_events).start().unwrap();
    let (pids, blocker) = (Latch::new(), Blocker::new());
    let (seen, pid, blocked) = (Log::new(), pids.clone(), blocker.blocked());
    let log = seen.clone();
    let mut steps = 0;
    let watcher = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => {
                out.monitor(wait(&pid));
                return Ok(Step::Continue);
            }
            2 => {
                blocked.wait();
                return Ok(Step::Idle);
            }
            _ => {}
        }
        for event in events {
            match event {
                Event::Message(message) => log.push(Saw::Message(message)),
                Event::Down(_) => log.push(Saw::Down),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let watcher = runtime.spawn_with(watcher, options).unwrap();
    let to: Address<u32> = watcher.address();
    let sender = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.next().is_none() {
            return Ok(Step::Idle);
        }
        (0..sends).for_each(|n| out.send(to, 1_000_000 + n));
        Ok(Step::Done(()))
    });
    let sender = runtime.spawn(sender).unwrap();
    pids.set(sender.pid()).unwrap();
    blocker.wait_begun();
    (0..noise[0]).for_each(|n| runtime.send(to, n).unwrap());
    runtime.send(sender.address(), ()).unwrap();
    join(&sender);
    assert!(runtime.watch(sender.pid()).wait_timeout(LIMIT).is_ok());
    (noise[0]..noise[0] + noise[1]).for_each(|n| runtime.send(to, n).unwrap());
    blocker.release();
    let all = (noise[0] + noise[1] + sends + 1) as usize;
    until("all is seen", || seen.len() >= all);
    assert_eq!(seen.len(), all);
    seen.take()
}

fn down(seen: &[Saw]) -> usize {
    seen.iter().position(|saw| *saw == Saw::Down).unwrap()
}

#[test]
fn what_a_process_sent_before_it_ended_is_stepped_before_the_down_event() {
    for step_events in [1, 2, 7, 128] {
        for bounded in [false, true] {
            for (noise, sends) in [([0, 0, 0], 1), ([3, 3, 0], 5), ([20, 20, 0], 1), ([0, 300, 0], 200)] {
                let options = SpawnOptions::new();
                let options = if bounded { options.mailbox(1_000, Overflow::Refuse) } else { options };
                let seen = what_is_seen(step_events, options, noise, sends);
                let last = seen.iter().rposition(|saw| matches!(saw, Saw::Message(1_000_000..))).unwrap();
                assert!(last < down(&seen), "{step_events} a step, bounded: {bounded}: {seen:?}");
                assert_eq!(down(&seen), last + 1, "and it waits for nothing else");
            }
        }
    }
}

#[test]
fn a_down_event_overtakes_the_messages_of_others() {
    for step_events in [1, 128] {
        for bounded in [false, true] {
            let options = SpawnOptions::new();
            let options = if bounded { options.mailbox(1_000, Overflow::Refuse) } else { options };
            let seen = what_is_seen(step_events, options, [300, 10, 0], 0);
            assert_eq!(down(&seen), 0, "{step_events} a step, bounded: {bounded}");
        }
    }
}

#[test]
fn a_down_event_wakes_a_waiting_process_without_its_messages() {
    let runtime = runtime(2);
    let pids = Latch::new();
    let (pid, waits) = (pids.clone(), Latch::new());
    let set = waits.clone();
    let mut steps = 0;
    let watcher = runtime.spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        steps += 1;
        if steps == 1 {
            out.monitor(wait(&pid));
            out.after(std::time::Duration::MAX);
            let _ = set.set(());
            return Ok(Step::Wait);
        }
        let first = events.next();
        assert!(matches!(first, Some(Event::Down(_))), "{first:?}");
        assert!(events.next().is_none(), "a step after `Wait` is given no messages");
        Ok(Step::Done(()))
    }));
    let watcher = watcher.unwrap();
    let to = watcher.address();
    let sender = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.next().is_none() {
            return Ok(Step::Idle);
        }
        out.send(to, 1);
        Ok(Step::Done(()))
    }));
    let sender = sender.unwrap();
    pids.set(sender.pid()).unwrap();
    wait(&waits);
    runtime.send(sender.address(), ()).unwrap();
    output(&watcher);
}

/// The sender's messages are pushed out of a small mailbox before the watcher is stepped.
#[test]
fn a_down_event_is_told_though_what_it_waited_behind_was_pushed_out() {
    let seen = {
        let options = SpawnOptions::new().mailbox(4, Overflow::DropOldest);
        let runtime = builder().workers(2).step_events(1).start().unwrap();
        let (pids, blocker, over) = (Latch::new(), Blocker::new(), Latch::new());
        let (pid, blocked, set) = (pids.clone(), blocker.blocked(), over.clone());
        let (mut steps, seen) = (0, Log::new());
        let log = seen.clone();
        let watcher = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            steps += 1;
            if steps == 1 {
                out.monitor(wait(&pid));
                return Ok(Step::Continue);
            }
            if steps == 2 {
                blocked.wait();
            }
            for event in events {
                match event {
                    Event::Message(message) => log.push(Saw::Message(message)),
                    Event::Down(_) => {
                        log.push(Saw::Down);
                        let _ = set.set(());
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        });
        let watcher = runtime.spawn_with(watcher, options).unwrap();
        let to: Address<u32> = watcher.address();
        let sender = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if events.next().is_none() {
                return Ok(Step::Idle);
            }
            out.send(to, 77);
            Ok(Step::Done(()))
        }));
        let sender = sender.unwrap();
        pids.set(sender.pid()).unwrap();
        blocker.wait_begun();
        runtime.send(sender.address(), ()).unwrap();
        join(&sender);
        (0..10).for_each(|n| runtime.send(to, n).unwrap());
        blocker.release();
        wait(&over);
        seen.take()
    };
    assert!(!seen.contains(&Saw::Message(77)) && seen.contains(&Saw::Down), "{seen:?}");
}

/// An answer is a completion, but it was sent before the end all the same.
#[test]
fn what_a_process_answered_before_it_ended_is_told_before_the_down_event() {
    // Whether it says `Wait`, whether messages are there, and whether the answer is yielded or sent at once.
    for (waits, noise, at_once) in [(false, 0, false), (true, 0, true), (false, 300, false), (true, 300, false)] {
        let runtime = builder().workers(2).step_events(7).start().unwrap();
        let blocker = Blocker::new();
        let (blocked, begun) = (blocker.blocked(), blocker.begun());
        let (mut asked, mut steps, mut seen) = (None, 0, Vec::new());
        let asker = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            steps += 1;
            if steps == 1 {
                let is_in_a_step = begun.clone();
                let answers = script(move |events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput| {
                    let Some(Event::Message(reply)) = events.next() else { return Ok(Step::Idle) };
                    // An answer that the second step had found, and had left, would not wake the asker.
                    wait(&is_in_a_step);
                    if at_once {
                        reply.send(7);
                    } else {
                        out.reply(reply, 7);
                    }
                    Ok(Step::Done(()))
                });
                let child = out.spawn_with(answers, SpawnOptions::new().name("answers").monitor())?.address;
                asked = Some(out.ask(child, |reply| reply, LIMIT));
                out.after(Duration::MAX);
                return Ok(Step::Continue);
            }
            if steps == 2 {
                // It is asked, and ends, while this one is in a step.
                blocked.wait();
                return Ok(if waits { Step::Wait } else { Step::Idle });
            }
            for event in events {
                match event {
                    Event::Completed(done) if done.take(asked).is_some() => seen.push("answer"),
                    Event::Down(_) => seen.push("down"),
                    _ => {}
                }
            }
            Ok(match seen.len() {
                2 => Step::Done(seen.clone()),
                _ if waits => Step::Wait,
                _ => Step::Idle,
            })
        });
        let asker = runtime.spawn(asker).unwrap();
        blocker.wait_begun();
        (0..noise).for_each(|n| runtime.send(asker.address(), n).unwrap());
        // A watcher that comes later is told later.
        let _ = runtime.watch("answers").wait_timeout(LIMIT);
        blocker.release();
        assert_eq!(**output(&asker), ["answer", "down"], "waits: {waits}, {noise} messages");
    }
}
