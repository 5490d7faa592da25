//! The end or the replacement of a process while messages wait for room.

use std::time::Duration;

use procession::observe::{DeadLetterReason, ProcessState};
use procession::{Address, Event, Events, Pid, Runtime, SendError, SpawnOptions, Step, StepOutput, Upgrade};

use crate::helpers::*;
use crate::senders::*;

#[test]
fn a_message_comes_back_when_its_receiver_ends() {
    let ends: [fn(&Runtime, Pid); 3] = [
        |runtime, pid| assert!(runtime.cancel(pid, "be done").unwrap()),
        |runtime, pid| assert!(runtime.terminate(pid).unwrap()),
        |runtime, pid| assert!(runtime.send_timeout(pid, FAILS, Duration::ZERO).wait().is_err()),
    ];
    for (way, end) in ends.into_iter().enumerate() {
        let (runtime, _, watcher) = observed();
        let (log, told) = (Log::new(), Log::new());
        let (receiver, blocker) = held(&runtime, bound(1), &log);
        // It fails in the last way.
        runtime.send(receiver.address(), if way == 2 { FAILS } else { 0 }).unwrap();
        let sender = spawn_sender(&runtime, receiver.address(), &told);
        tell(&runtime, sender, vec![Order::Timeout(1, PATIENCE), Order::Plain(2), Order::Timeout(3, Duration::MAX)]);
        let outside = std::thread::spawn({
            let (runtime, to) = (runtime.clone(), receiver.address());
            move || runtime.send_timeout(to, 4, Duration::MAX).wait()
        });
        end(&runtime, receiver.pid());
        blocker.release();
        join(&receiver);
        until("both have come back", || told.len() == 2);
        let why = runtime.send(receiver.pid(), 0_u32).unwrap_err().reason().clone();
        // A last step is given its messages. That makes room for one.
        let first = if way == 1 { Err((1, why.clone())) } else { Ok(()) };
        assert_eq!(told.take(), [first, Err((3, why.clone()))]);
        if let Err(refused) = wait(outside).unwrap() {
            assert_eq!(refused.into_parts(), (4, why));
        }
        until("the timer is gone", || runtime.stats().timers == 0);
        assert!(watcher.dead.take().iter().all(|(to, ..)| *to == receiver.pid()));
        assert_accounted(&runtime);
    }
}

#[test]
fn messages_wait_on_when_their_receiver_is_replaced() {
    for is_upgrade in [false, true] {
        let (runtime, _, watcher) = observed();
        let (log, told, blocker) = (Log::new(), Log::new(), Blocker::new());
        let (logs, mut blocked) = (log.clone(), Some(blocker.blocked()));
        let first = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let Some(blocked) = blocked.take() else {
                assert_eq!(events.count(), 1);
                let next = || Upgrade::to(receiver(&logs, None));
                return if is_upgrade { Ok(Step::Upgrade(next())) } else { Err("as it was told".into()) };
            };
            blocked.wait();
            Ok(Step::Idle)
        });
        let logs = log.clone();
        let options = bound(1).recover_with(move |_| Some(Upgrade::to(receiver(&logs, None))));
        let receiver = runtime.spawn_with(first, options).unwrap();
        blocker.wait_begun();
        runtime.send(receiver.address(), 0).unwrap();
        let sender = spawn_sender(&runtime, receiver.address(), &told);
        tell(&runtime, sender, (1..=20).map(|n| Order::Timeout(n, PATIENCE)).collect());
        blocker.release();
        until("all are accepted", || log.len() == 20);
        assert!(log.take().into_iter().eq(1..=20));
        until("all are told", || told.len() == 20);
        assert!(told.take().into_iter().all(|told| told.is_ok()));
        assert_eq!(watcher.dead.len(), usize::from(!is_upgrade), "the one that the failed step had taken");
        assert_accounted(&runtime);
    }
}

#[test]
fn a_message_comes_back_from_a_successor_of_another_type() {
    let (runtime, _, watcher) = observed();
    let (told, blocker) = (Log::new(), Blocker::new());
    let mut blocked = Some(blocker.blocked());
    let receiver = script(move |_: &mut Events<'_, u32>, _: &mut StepOutput| match blocked.take() {
        Some(blocked) => {
            blocked.wait();
            Ok(Step::Upgrade(Upgrade::to(sink::<String>())))
        }
        None => Ok(Step::Idle),
    });
    let receiver = runtime.spawn_with(receiver, bound(1)).unwrap();
    blocker.wait_begun();
    let to = receiver.address();
    let sender = spawn_sender(&runtime, to, &told);
    tell(&runtime, sender, vec![Order::Timeout(0, PATIENCE), Order::Timeout(1, PATIENCE), Order::Plain(2)]);
    blocker.release();
    until("both are answered", || told.len() == 2);
    let told = told.take();
    assert_eq!(told[0], Ok(()));
    assert!(matches!(&told[1], Err((1, SendError::WrongType { pid, .. })) if *pid == to.pid()), "{told:?}");
    until("the others are dead", || watcher.dead.len() == 2);
    assert!(watcher.dead.take().iter().all(|(.., why)| *why == DeadLetterReason::WrongType));
    assert_accounted(&runtime);
}

/// Ends a sender.
type End = fn(&Runtime, Address<Vec<Order>>);

#[test]
fn messages_of_a_sender_that_ends_do_not_wait() {
    let ends: [End; 4] = [
        |runtime, sender| assert!(runtime.cancel(sender.pid(), "be done").unwrap()),
        |runtime, sender| assert!(runtime.terminate(sender.pid()).unwrap()),
        |runtime, sender| runtime.send(sender, vec![Order::Fail]).unwrap(),
        // It is replaced then.
        |runtime, sender| runtime.send(sender, vec![Order::Plain(4), Order::Fail]).unwrap(),
    ];
    for (way, end) in ends.into_iter().enumerate() {
        let (runtime, clock, watcher) = observed();
        let (log, told) = (Log::new(), Log::new());
        let (receiver, blocker) = held(&runtime, bound(1), &log);
        let (to, tells) = (receiver.address(), told.clone());
        let recovers = move |_: &_| (way == 3).then(|| Upgrade::to(sender(to, &tells)));
        let options = SpawnOptions::new().recover_with(recovers);
        let sender = runtime.spawn_with(sender(to, &told), options).unwrap();
        let (pid, address) = (sender.pid(), sender.address());
        tell(&runtime, address, vec![Order::Timeout(0, PATIENCE), Order::Timeout(1, Duration::MAX), Order::Plain(2)]);
        tell(&runtime, address, vec![Order::Timeout(3, PATIENCE)]);
        end(&runtime, address);
        let of_receiver = |watcher: &Watcher| watcher.dead.to_vec().iter().filter(|(at, ..)| *at == to.pid()).count();
        until("the messages are dead", || of_receiver(&watcher) == 3);
        assert_eq!(runtime.stats().timers, 0);
        if way == 3 {
            tell(&runtime, address, vec![Order::Timeout(5, PATIENCE)]);
        }
        blocker.release();
        until("the receiver has the others", || log.len() == if way == 3 { 2 } else { 1 });
        assert_eq!(log.take(), if way == 3 { vec![0, 5] } else { vec![0] });
        let dead = watcher.dead.take();
        let expected = (to.pid(), Some(pid), DeadLetterReason::Full);
        assert_eq!(dead.iter().filter(|letter| **letter == expected).count(), 3, "{dead:?}");
        clock.advance(PATIENCE);
        assert_accounted(&runtime);
    }
}

#[test]
fn a_message_that_reaches_nobody_comes_back_at_once() {
    let (runtime, _, watcher) = observed();
    let gone = runtime.spawn(script(|_: &mut Events<'_, u32>, _: &mut StepOutput| Ok(Step::Done(())))).unwrap();
    let other = runtime.spawn(sink::<String>()).unwrap().pid();
    join(&gone);
    let (gone, mut sent) = (gone.pid(), Vec::<Sent<u32>>::new());
    let sender = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if sent.is_empty() {
            sent.push(out.send_timeout(gone, 1, PATIENCE));
            sent.push(out.send_timeout("nobody", 2, PATIENCE));
            sent.push(out.send_timeout(other, 3, PATIENCE));
            return Ok(Step::Idle);
        }
        let refused = |done: &procession::Completion| sent.iter().find_map(|tag| done.take(*tag)).unwrap().unwrap();
        let told: Vec<_> = events
            .map(|event| match event {
                Event::Completed(done) => refused(&done).unwrap_err().into_parts(),
                other => panic!("{other:?}"),
            })
            .collect();
        Ok(Step::Done(told))
    });
    let told = output(&runtime.spawn(sender).unwrap());
    assert!(matches!(&told[0], (1, SendError::NoSuchProcess(_))), "{told:?}");
    assert_eq!(told[1].1.to_string(), "no process has the name \"nobody\"");
    assert!(matches!(&told[2], (3, SendError::WrongType { pid, .. }) if *pid == other), "{told:?}");
    assert_eq!((watcher.dead.len(), runtime.stats().timers), (0, 0));
    assert_accounted(&runtime);
}

#[test]
fn a_cycle_of_processes_that_wait_for_room_ends_by_their_limits() {
    let (runtime, clock, _) = observed();
    let told = Log::new();
    let member = || {
        let (told, mut next, mut sent) = (told.clone(), None, None::<Sent<Option<Pid>>>);
        script(move |events: &mut Events<'_, Option<Pid>>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(pid) => {
                        next = pid;
                        out.after(PATIENCE);
                    }
                    Event::Completed(done) => match (next.take(), done.take(sent)) {
                        (Some(next), _) => sent = Some(out.send_timeout(next, None, PATIENCE)),
                        (None, Some(result)) => {
                            told.push(result.unwrap().is_ok());
                            return Ok(Step::Done(()));
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
            // It takes no messages until its timer has fired and its message is answered.
            Ok(if next.is_some() || sent.is_some() { Step::Wait } else { Step::Idle })
        })
    };
    let ring = [(); 3].map(|()| runtime.spawn_with(member(), bound(2)).unwrap());
    for (at, member) in ring.iter().enumerate() {
        runtime.send(member.address(), Some(ring[(at + 1) % 3].pid())).unwrap();
        until("it waits", || runtime.process_state(member.pid()) == Some(ProcessState::Blocked));
        while runtime.send(member.address(), None).is_ok() {}
    }
    clock.advance(PATIENCE);
    until("each of them waits for room", || runtime.stats().timers == 3 && runtime.is_idle());
    assert_eq!(told.len(), 0);
    clock.advance(PATIENCE);
    ring.iter().for_each(|member| drop(output(member)));
    assert_eq!(told.take(), [false; 3]);
    assert_accounted(&runtime);
}
