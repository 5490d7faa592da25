//! Section C: mailboxes with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::{Event, Events, Handle, Process, Runtime, SendError, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

/// A receiver with a bound, held up in its first step by this blocker. It writes down what it is told. When this
/// function returns, the first step has been given its events, of which there are none.
fn held(
    runtime: &Runtime,
    bound: SpawnOptions,
    log: &Log<u32>,
    blocker: &Blocker,
) -> Handle<impl Process<Message = u32, Output = ()>> {
    let (log, blocked) = (log.clone(), blocker.blocked());
    let receiver = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(n) => log.push(n),
                _ => return Ok(Step::Done(())),
            }
        }
        blocked.wait();
        Ok(Step::Idle)
    });
    let receiver = runtime.spawn_with(receiver, bound).unwrap();
    blocker.wait_begun();
    receiver
}

#[test]
fn a_full_mailbox_refuses_or_drops_as_it_was_told() {
    for (overflow, expected, dead) in [
        (Overflow::Refuse, [1, 2, 3], None),
        (Overflow::DropOldest, [3, 4, 5], Some(DeadLetterReason::DroppedOldest)),
        (Overflow::DropNewest, [1, 2, 3], Some(DeadLetterReason::DroppedNewest)),
    ] {
        let watcher = Watcher::new();
        let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
        let (log, blocker) = (Log::new(), Blocker::new());
        let receiver = held(&runtime, SpawnOptions::new().mailbox(3, overflow), &log, &blocker);
        (1..=3).for_each(|n| runtime.send(receiver.address(), n).unwrap());
        for n in 4..=5 {
            let sent = runtime.send(receiver.address(), n);
            match overflow {
                Overflow::Refuse => {
                    let refused = sent.unwrap_err();
                    assert_eq!(refused.reason(), &SendError::Full { pid: receiver.pid(), limit: 3 });
                    assert_eq!(refused.into_inner(), n);
                }
                _ => sent.unwrap(),
            }
        }
        assert_eq!(runtime.process(receiver.pid()).unwrap().mailbox, 3);
        blocker.release();
        until("all is stepped", || log.len() == 3);
        assert_eq!(log.take(), expected);
        let letters = dead.map_or(vec![], |reason| vec![(receiver.pid(), None, reason); 2]);
        assert_eq!(watcher.dead.take(), letters);
        assert_accounted(&runtime);
        // There is room again.
        runtime.send(receiver.address(), 9).unwrap();
        until("it is stepped", || log.len() == 1);
    }
}

#[test]
fn a_full_mailbox_makes_dead_letters_but_takes_signals() {
    let watcher = Watcher::new();
    let runtime = builder().workers(2).observer(watcher.clone()).start().unwrap();
    let (blocker, log) = (Blocker::new(), Log::new());
    let bound = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let receiver = held(&runtime, bound, &log, &blocker);
    let to = receiver.address();
    let sender = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        (0..3).for_each(|n| out.send(to, n));
        Ok(Step::Done(out.pid()))
    }));
    let sender = *output(&sender.unwrap());
    assert_eq!(watcher.dead.take(), [(to.pid(), Some(sender), DeadLetterReason::Full); 2]);
    assert_eq!(runtime.process(to.pid()).unwrap().mailbox, 1);
    assert!(runtime.cancel(to.pid(), "full or not").unwrap());
    blocker.release();
    output(&receiver);
    assert_accounted(&runtime);
}

#[test]
fn a_sender_outside_can_wait_for_room_but_not_longer_than_its_limit() {
    let manual = ManualClock::new();
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let (log, blocker) = (Log::new(), Blocker::new());
    let bound = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let receiver = held(&runtime, bound, &log, &blocker);
    runtime.send_timeout(receiver.address(), 1, Duration::ZERO).wait().unwrap();
    assert_eq!(runtime.send_timeout(receiver.address(), 2, Duration::ZERO).wait().unwrap_err().into_inner(), 2);
    let sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let late = scope.spawn(|| runtime.send_timeout(receiver.address(), 3, Duration::from_secs(10)).wait());
        advance_until("the limit is over", &manual, Duration::from_secs(1), || late.is_finished());
        assert_eq!(wait(late).unwrap().unwrap_err().into_inner(), 3);
        let patient = scope.spawn(|| {
            let result = runtime.send_timeout(receiver.address(), 4, Duration::MAX).wait();
            sent.store(true, Ordering::Relaxed);
            result
        });
        blocker.release();
        wait(patient).unwrap().unwrap();
    });
    until("both are stepped", || log.len() == 2);
    assert_eq!(log.take(), [1, 4]);
}

/// Passes over everything until it is told to take it all.
fn picky(runtime: &Runtime, limit: usize, overflow: Overflow, taken: &Log<u32>) -> Handle<impl Process<Message = u32>> {
    let taken = taken.clone();
    let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        let mut takes = false;
        while let Some(event) = events.select(|_| takes) {
            match event {
                Event::Message(message) => taken.push(message),
                Event::Cancel(_) => takes = true,
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    });
    let process = runtime.spawn_with(process, SpawnOptions::new().mailbox(limit, overflow)).unwrap();
    until("its first step is over", || runtime.is_idle());
    process
}

#[test]
fn what_is_passed_over_keeps_its_place_in_a_full_mailbox() {
    for (overflow, expected) in
        [(Overflow::Refuse, [1, 2, 3]), (Overflow::DropNewest, [1, 2, 3]), (Overflow::DropOldest, [18, 19, 20])]
    {
        let (watcher, taken) = (Watcher::new(), Log::new());
        let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
        let receiver = picky(&runtime, 3, overflow, &taken);
        let mut refused = 0;
        for n in 1..=20 {
            refused += usize::from(runtime.send(receiver.address(), n).is_err());
            until("it is passed over", || runtime.is_idle());
            assert_eq!(runtime.process(receiver.pid()).unwrap().mailbox, 3.min(n as usize), "{overflow:?} {n}");
        }
        assert_eq!(refused, if overflow == Overflow::Refuse { 17 } else { 0 });
        let reason = if overflow == Overflow::DropOldest {
            DeadLetterReason::DroppedOldest
        } else {
            DeadLetterReason::DroppedNewest
        };
        assert_eq!(watcher.dead.take(), vec![(receiver.pid(), None, reason); 17 - refused]);
        assert_accounted(&runtime);
        runtime.cancel(receiver.pid(), "take them").unwrap();
        until("they are taken", || taken.len() == 3);
        assert_eq!(taken.take(), expected);
        until("its step is over", || runtime.is_idle());
        runtime.send(receiver.address(), 21).unwrap();
    }
}

#[test]
fn a_flood_that_is_passed_over_never_grows_beyond_twice_the_bound() {
    for overflow in [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest] {
        let runtime = runtime(2);
        let receiver = picky(&runtime, 10, overflow, &Log::new());
        let mut most = 0;
        for n in 0..20_000 {
            let _ = runtime.send(receiver.address(), n);
            most = most.max(runtime.process(receiver.pid()).unwrap().mailbox);
        }
        assert!((1..=20).contains(&most), "{overflow:?}: {most} wait");
        until("all are passed over", || runtime.is_idle());
        assert_accounted(&runtime);
    }
}

/// Its handler keeps the answers for the test.
struct Fetch;

impl Command for Fetch {
    type Output = u32;
}

#[test]
fn completions_and_signals_take_no_room_in_a_bounded_mailbox() {
    for (overflow, expected) in
        [(Overflow::Refuse, [1, 2]), (Overflow::DropOldest, [2, 3]), (Overflow::DropNewest, [1, 2])]
    {
        let answers = Arc::new(Mutex::new(Vec::new()));
        let (watcher, keeps) = (Watcher::new(), answers.clone());
        let keep = move |_: Fetch, answer: Responder<u32>| {
            keeps.lock().unwrap().push(answer);
            Ok(())
        };
        let runtime = builder().workers(1).observer(watcher.clone()).handler(keep).start().unwrap();
        let others = [runtime.spawn(sink::<u32>()).unwrap(), runtime.spawn(sink::<u32>()).unwrap()];
        let (blocker, seen) = (Blocker::new(), Log::new());
        let (blocked, log) = (blocker.blocked(), seen.clone());
        let monitored = others.each_ref().map(Handle::pid);
        let mut steps = 0;
        let process = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            steps += 1;
            if steps == 1 {
                for _ in 0..8 {
                    out.command(Fetch);
                }
                for other in monitored {
                    out.monitor(other);
                }
                return Ok(Step::Continue);
            }
            if steps == 2 {
                blocked.wait();
            }
            for event in events {
                match event {
                    Event::Message(n) => log.push(format!("message {n}")),
                    Event::Completed(_) => log.push(String::from("answer")),
                    Event::Down(_) => log.push(String::from("down")),
                    Event::Cancel(_) => log.push(String::from("cancel")),
                    _ => {}
                }
            }
            Ok(if log.len() == 13 { Step::Done(()) } else { Step::Idle })
        });
        let process = runtime.spawn_with(process, SpawnOptions::new().mailbox(2, overflow)).unwrap();
        blocker.wait_begun();
        let mut answers = std::mem::take(&mut *answers.lock().unwrap());
        let mut answer = |count| answers.drain(..count).for_each(|answer| answer.ok(0));
        let waiting = || runtime.process(process.pid()).unwrap().mailbox;
        // Those that are there before the messages leave them their places.
        answer(4);
        runtime.cancel(others[0].pid(), "first").unwrap();
        assert_eq!(waiting(), 0);
        (1..=2).for_each(|n| runtime.send(process.address(), n).unwrap());
        assert_eq!(runtime.send(process.address(), 3).is_err(), overflow == Overflow::Refuse);
        assert_eq!(waiting(), 2);
        // Those that come to a full mailbox are taken.
        answer(4);
        runtime.terminate(others[1].pid()).unwrap();
        runtime.cancel(process.pid(), "full").unwrap();
        assert_eq!(waiting(), 2);
        blocker.release();
        output(&process);
        let seen = seen.take();
        let count = |what: &str| seen.iter().filter(|seen| seen.starts_with(what)).count();
        assert_eq!((count("answer"), count("down"), count("cancel")), (8, 2, 1), "{overflow:?}: {seen:?}");
        let messages: Vec<_> = seen.into_iter().filter(|seen| seen.starts_with("message")).collect();
        assert_eq!(messages, expected.map(|n| format!("message {n}")));
        assert_eq!(watcher.dead.len(), usize::from(overflow != Overflow::Refuse));
        assert_accounted(&runtime);
    }
}
