//! Processes that wait for room in the mailbox of another one.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::{DeadLetterReason, ProcessState};
use procession::spawn::Overflow;
use procession::testing::{Driver, Outstanding, SentError};
use procession::{
    Address, CommandError, Event, Events, Handle, Pid, Process, Rejected, Reply, Runtime, SendError, SpawnOptions,
    Step, StepOutput, Tag, Upgrade,
};

use crate::helpers::*;

const LIMIT: Duration = Duration::from_secs(5);

/// A receiver fails when it is told this.
const FAILS: u32 = u32::MAX;

/// The tag of a send with a limit.
type Sent<M> = Tag<Result<(), Rejected<M, SendError>>>;

/// The result of a send: the message that came back, and why.
type Told = Result<(), (u32, SendError)>;

fn bound(limit: usize) -> SpawnOptions {
    SpawnOptions::new().mailbox(limit, Overflow::Refuse)
}

/// A runtime with one worker and a manual clock, and an observer of dead letters.
fn observed() -> (Runtime, ManualClock, Watcher) {
    let (clock, watcher) = (ManualClock::new(), Watcher::new());
    let runtime = builder().workers(2).clock(clock.clock()).observer(watcher.clone()).start().unwrap();
    (runtime, clock, watcher)
}

/// A receiver that is held up in its first step, which was given no events. It writes down what it is told then. It
/// fails when it is told [`FAILS`], and is done when it is asked to stop.
fn held(runtime: &Runtime, options: SpawnOptions, log: &Log<u32>) -> (Handle<impl Process<Message = u32>>, Blocker) {
    let blocker = Blocker::new();
    let receiver = runtime.spawn_with(receiver(log, Some(blocker.blocked())), options).unwrap();
    blocker.wait_begun();
    (receiver, blocker)
}

fn receiver(log: &Log<u32>, mut blocked: Option<Blocked>) -> impl Process<Message = u32, Output = ()> + use<> {
    let log = log.clone();
    script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        if let Some(blocked) = blocked.take() {
            blocked.wait();
            return Ok(Step::Idle);
        }
        for event in events {
            match event {
                Event::Message(FAILS) => return Err("as it was told".into()),
                Event::Message(n) => log.push(n),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

/// What a sender is told to yield.
enum Order {
    /// Send a message with a limit.
    Timeout(u32, Duration),
    /// Send a message without a limit.
    Plain(u32),
    /// Cancel the first send with a limit.
    Cancel,
    /// Fail.
    Fail,
}

/// Yields what it is told, in one step. Writes the results of its sends down.
fn sender(to: Address<u32>, told: &Log<Told>) -> impl Process<Message = Vec<Order>, Output = ()> + use<> {
    let (mut sent, told) = (Vec::<Sent<u32>>::new(), told.clone());
    script(move |events: &mut Events<'_, Vec<Order>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(orders) => {
                    for order in orders {
                        match order {
                            Order::Timeout(n, limit) => sent.push(out.send_timeout(to, n, limit)),
                            Order::Plain(n) => out.send(to, n),
                            Order::Cancel => out.cancel_command(sent[0]),
                            Order::Fail => return Err("as it was told".into()),
                        }
                    }
                }
                Event::Completed(done) => {
                    let result = sent.iter().find_map(|tag| done.take(*tag)).unwrap().unwrap();
                    told.push(result.map_err(Rejected::into_parts));
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

fn spawn_sender(runtime: &Runtime, to: Address<u32>, told: &Log<Told>) -> Address<Vec<Order>> {
    runtime.spawn(sender(to, told)).unwrap().address()
}

/// Tells a sender what to yield, and waits until it has done so.
fn tell(runtime: &Runtime, sender: Address<Vec<Order>>, orders: Vec<Order>) {
    let steps = |pid: Pid| runtime.process(pid).unwrap().steps;
    until("it rests", || steps(sender.pid()) > 0 && runtime.process(sender.pid()).unwrap().in_step.is_none());
    let before = runtime.stats().messages.stepped;
    runtime.send(sender, orders).unwrap();
    until("it has yielded", || runtime.stats().messages.stepped > before);
    until("its yields are performed", || {
        runtime.process(sender.pid()).is_none_or(|info| info.state == ProcessState::Idle)
    });
}

fn full(to: Pid, limit: usize) -> SendError {
    SendError::Full { pid: to, limit }
}

#[test]
fn a_process_slows_down_to_the_speed_of_its_receiver() {
    const MANY: u32 = 10_000;
    let (runtime, _, watcher) = observed();
    let log = Log::new();
    let sink = runtime.spawn_with(receiver(&log, None), bound(10)).unwrap();
    let (to, mut next, mut sent) = (sink.address(), 0, None::<Sent<u32>>);
    let source = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let Event::Completed(done) = event {
                done.take(sent).unwrap()??;
            }
        }
        if next == MANY {
            return Ok(Step::Done(()));
        }
        sent = Some(out.send_timeout(to, next, LIMIT));
        next += 1;
        Ok(Step::Wait)
    });
    output(&runtime.spawn(source).unwrap());
    until("all are stepped", || log.len() == MANY as usize);
    assert!(log.take().into_iter().eq(0..MANY));
    assert_eq!((watcher.dead.len(), runtime.stats().timers), (0, 0));
    assert_accounted(&runtime);
}

#[test]
fn later_messages_of_a_sender_wait_behind_its_message() {
    let (runtime, _, watcher) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(3), &log);
    runtime.join_group("all", receiver.pid()).unwrap();
    let to = receiver.address();
    let mut sent = Vec::<Sent<u32>>::new();
    let tells = told.clone();
    let sender = runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if sent.is_empty() {
                (0..3).for_each(|n| out.send(to, n));
                sent.push(out.send_timeout(to, 3, LIMIT));
                out.send(to, 4);
                out.broadcast("all", 5_u32);
                sent.push(out.send_timeout(to, 6, LIMIT));
                // No room for these two, whose turn comes with that of 6.
                out.send(to, 7);
                out.send(to, 8);
                sent.push(out.send_timeout(to, 9, LIMIT));
            }
            for event in events {
                if let Event::Completed(done) = event {
                    tells.push(sent.iter().find_map(|tag| done.take(*tag)).unwrap().unwrap().is_ok());
                }
            }
            Ok(Step::<()>::Idle)
        }))
        .unwrap();
    until("all is sent", || runtime.process(sender.pid()).unwrap().steps == 1 && runtime.stats().timers == 3);
    assert_eq!(runtime.process(receiver.pid()).unwrap().mailbox, 3);
    assert_accounted(&runtime);
    blocker.release();
    until("all are told", || told.len() == 3);
    until("all are stepped", || log.len() + watcher.dead.len() == 10);
    let seen = log.take();
    assert_eq!(seen[..7], [0, 1, 2, 3, 4, 5, 6]);
    assert!(seen.is_sorted() && seen.contains(&9), "{seen:?}");
    assert!(
        watcher
            .dead
            .take()
            .iter()
            .all(|(_, from, why)| { (*from, *why) == (Some(sender.pid()), DeadLetterReason::Full) })
    );
    assert_eq!(runtime.stats().timers, 0);
    assert_accounted(&runtime);
}

#[test]
fn a_question_behind_a_message_that_waits_is_answered() {
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let (blocker, answers) = (Blocker::new(), Log::new());
    let blocked = blocker.blocked();
    let mut is_first = true;
    let receiver = script(move |events: &mut Events<'_, Option<Reply<u32>>>, out: &mut StepOutput| {
        if std::mem::take(&mut is_first) {
            blocked.wait();
        }
        for event in events {
            match event {
                Event::Message(Some(reply)) => out.reply(reply, 7),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let receiver = runtime.spawn_with(receiver, bound(1)).unwrap();
    blocker.wait_begun();
    let (to, told, mut asked) = (receiver.address(), answers.clone(), Vec::<Tag<u32>>::new());
    let asker = runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            if asked.is_empty() {
                out.send(to, None);
                out.send_timeout(to, None, LIMIT);
                // The mailbox is full when it is the turn of the first one.
                asked.push(out.ask(to, Some, Duration::MAX));
                out.send_timeout(to, None, Duration::MAX);
                asked.push(out.ask(to, Some, LIMIT * 2));
            }
            for event in events {
                if let Event::Completed(done) = event
                    && let Some(answer) = asked.iter().find_map(|tag| done.take(*tag))
                {
                    told.push((done.tag(), answer.map_err(|error| error.to_string())));
                }
            }
            Ok(Step::<()>::Idle)
        }))
        .unwrap();
    until("all is asked", || runtime.process(asker.pid()).unwrap().steps == 1 && runtime.stats().timers == 2);
    clock.advance(LIMIT);
    let why = CommandError::Full(receiver.pid()).to_string();
    until("the first question is refused", || answers.len() == 1);
    assert_eq!(answers.take(), [(2, Err(why))]);
    // The limit of a question that waits is its own.
    clock.advance(LIMIT);
    until("the second question is over", || answers.len() == 1);
    assert_eq!(answers.take(), [(4, Err(CommandError::TimedOut.to_string()))]);
    blocker.release();
    until("all are stepped", || runtime.is_idle());
    assert_accounted(&runtime);
}

#[test]
fn a_message_comes_back_when_its_limit_is_over() {
    let (runtime, clock, watcher) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    let sender = spawn_sender(&runtime, receiver.address(), &told);
    let orders = vec![
        Order::Timeout(0, LIMIT),
        Order::Timeout(1, LIMIT),
        Order::Plain(2),
        Order::Timeout(3, LIMIT * 2),
        Order::Timeout(4, Duration::ZERO),
    ];
    tell(&runtime, sender, orders);
    until("two are answered", || told.len() == 2);
    assert_eq!(told.take(), [Ok(()), Err((4, full(receiver.pid(), 1)))]);
    clock.advance(LIMIT - Duration::from_nanos(1));
    assert!(told.take().is_empty() && watcher.dead.len() == 0);
    clock.advance(Duration::from_nanos(1));
    until("its limit is over", || told.len() == 1);
    assert_eq!(told.take(), [Err((1, full(receiver.pid(), 1)))]);
    until("the message behind it is dead", || watcher.dead.len() == 1);
    assert_eq!(watcher.dead.take(), [(receiver.pid(), Some(sender.pid()), DeadLetterReason::Full)]);
    blocker.release();
    until("the other is accepted", || told.len() == 1 && log.len() == 2);
    assert_eq!((told.take(), log.take()), (vec![Ok(())], vec![0, 3]));
    assert_eq!(runtime.stats().timers, 0);
    assert_accounted(&runtime);
}

#[test]
fn a_message_comes_back_when_its_receiver_ends() {
    let ends: [fn(&Runtime, Pid); 3] = [
        |runtime, pid| assert!(runtime.cancel(pid, "be done").unwrap()),
        |runtime, pid| assert!(runtime.terminate(pid).unwrap()),
        |runtime, pid| assert!(runtime.send_timeout(pid, FAILS, Duration::ZERO).is_err()),
    ];
    for (way, end) in ends.into_iter().enumerate() {
        let (runtime, _, watcher) = observed();
        let (log, told) = (Log::new(), Log::new());
        let (receiver, blocker) = held(&runtime, bound(1), &log);
        // It fails in the last way.
        runtime.send(receiver.address(), if way == 2 { FAILS } else { 0 }).unwrap();
        let sender = spawn_sender(&runtime, receiver.address(), &told);
        tell(&runtime, sender, vec![Order::Timeout(1, LIMIT), Order::Plain(2), Order::Timeout(3, Duration::MAX)]);
        let outside = std::thread::spawn({
            let (runtime, to) = (runtime.clone(), receiver.address());
            move || runtime.send_timeout(to, 4, Duration::MAX)
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
        tell(&runtime, sender, (1..=20).map(|n| Order::Timeout(n, LIMIT)).collect());
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
    tell(&runtime, sender, vec![Order::Timeout(0, LIMIT), Order::Timeout(1, LIMIT), Order::Plain(2)]);
    blocker.release();
    until("both are answered", || told.len() == 2);
    let told = told.take();
    assert_eq!(told[0], Ok(()));
    assert!(matches!(&told[1], Err((1, SendError::WrongType { pid, .. })) if *pid == to.pid()), "{told:?}");
    until("the others are dead", || watcher.dead.len() == 2);
    assert!(watcher.dead.take().iter().all(|(.., why)| *why == DeadLetterReason::WrongType));
    assert_accounted(&runtime);
}

#[test]
fn messages_of_a_sender_that_ends_do_not_wait() {
    let ends: [fn(&Runtime, Address<Vec<Order>>); 4] = [
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
        tell(&runtime, address, vec![Order::Timeout(0, LIMIT), Order::Timeout(1, Duration::MAX), Order::Plain(2)]);
        tell(&runtime, address, vec![Order::Timeout(3, LIMIT)]);
        end(&runtime, address);
        let of_receiver = |watcher: &Watcher| watcher.dead.to_vec().iter().filter(|(at, ..)| *at == to.pid()).count();
        until("the messages are dead", || of_receiver(&watcher) == 3);
        assert_eq!(runtime.stats().timers, 0);
        if way == 3 {
            tell(&runtime, address, vec![Order::Timeout(5, LIMIT)]);
        }
        blocker.release();
        until("the receiver has the others", || log.len() == if way == 3 { 2 } else { 1 });
        assert_eq!(log.take(), if way == 3 { vec![0, 5] } else { vec![0] });
        let dead = watcher.dead.take();
        let expected = (to.pid(), Some(pid), DeadLetterReason::Full);
        assert_eq!(dead.iter().filter(|letter| **letter == expected).count(), 3, "{dead:?}");
        clock.advance(LIMIT);
        assert_accounted(&runtime);
    }
}

#[test]
fn a_cancelled_send_hands_its_message_back() {
    let (runtime, _, _) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    runtime.send(receiver.address(), 0).unwrap();
    let sender = spawn_sender(&runtime, receiver.address(), &told);
    tell(&runtime, sender, vec![Order::Timeout(1, LIMIT), Order::Timeout(2, LIMIT)]);
    tell(&runtime, sender, vec![Order::Cancel, Order::Cancel]);
    until("it comes back", || told.len() == 1);
    assert_eq!(told.take(), [Err((1, full(receiver.pid(), 1)))]);
    blocker.release();
    until("the other is accepted", || log.len() == 2);
    assert_eq!(log.take(), [0, 2]);
    tell(&runtime, sender, vec![Order::Cancel]);
    assert_eq!(told.take(), [Ok(())]);
    assert_eq!(runtime.stats().timers, 0);
}

#[test]
fn senders_take_turns_in_the_order_in_which_they_began_to_wait() {
    let (runtime, _, _) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    let to = receiver.address();
    let [first, second] = [(); 2].map(|()| spawn_sender(&runtime, to, &told));
    let orders = |numbers: std::ops::Range<u32>| numbers.map(|n| Order::Timeout(n, LIMIT)).collect();
    tell(&runtime, first, orders(0..4));
    tell(&runtime, second, orders(10..13));
    blocker.release();
    until("all are stepped", || log.len() == 7);
    assert_eq!(log.take(), [0, 1, 10, 2, 11, 3, 12]);
}

#[test]
fn a_mailbox_that_never_refuses_answers_at_once() {
    let (runtime, _, watcher) = observed();
    let (log, told) = (Log::new(), Log::new());
    let policies = [None, Some(Overflow::DropOldest), Some(Overflow::DropNewest)];
    for (policy, expected) in policies.into_iter().zip([vec![0, 1, 2], vec![2], vec![0]]) {
        let options = policy.map_or_else(SpawnOptions::new, |policy| SpawnOptions::new().mailbox(1, policy));
        let (receiver, blocker) = held(&runtime, options, &log);
        let sender = spawn_sender(&runtime, receiver.address(), &told);
        tell(&runtime, sender, (0..3).map(|n| Order::Timeout(n, LIMIT)).collect());
        until("all are answered", || told.len() == 3);
        assert_eq!(told.take(), [Ok(()), Ok(()), Ok(())]);
        blocker.release();
        until("it has taken them", || log.len() == expected.len() && runtime.is_idle());
        assert_eq!(log.take(), expected);
    }
    assert_eq!((watcher.dead.len(), runtime.stats().timers), (4, 0));
    assert_accounted(&runtime);
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
            sent.push(out.send_timeout(gone, 1, LIMIT));
            sent.push(out.send_timeout("nobody", 2, LIMIT));
            sent.push(out.send_timeout(other, 3, LIMIT));
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
                        out.after(LIMIT);
                    }
                    Event::Completed(done) => match (next.take(), done.take(sent)) {
                        (Some(next), _) => sent = Some(out.send_timeout(next, None, LIMIT)),
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
    clock.advance(LIMIT);
    until("each of them waits for room", || runtime.stats().timers == 3 && runtime.is_idle());
    assert_eq!(told.len(), 0);
    clock.advance(LIMIT);
    ring.iter().for_each(|member| drop(output(member)));
    assert_eq!(told.take(), [false; 3]);
    assert_accounted(&runtime);
}

#[test]
fn a_test_drives_sends_that_wait() {
    let to: Address<u32> = "<0.7.1>".parse::<Pid>().unwrap().typed();
    let told = Log::new();
    let mut driver = Driver::new(sender(to, &told));
    driver.message((1..=4).map(|n| Order::Timeout(n, LIMIT)).chain([Order::Plain(5)]).collect()).run();
    assert_eq!(driver.outstanding().len(), 4);
    assert!(matches!(driver.outstanding()[0], Outstanding::Send { tag: 1 }));
    assert!(matches!(driver.accept_send::<String>(), Err(SentError::OtherType { .. })));
    assert_eq!(driver.accept_send::<u32>(), Ok((to.pid(), 1)));
    let why = SendError::Full { pid: to.pid(), limit: 9 };
    assert!(driver.refuse_send(why.clone()));
    driver.run();
    assert_eq!(told.take(), [Ok(()), Err((2, why))]);
    assert_eq!(driver.sent::<u32>(), Ok((to.pid(), 5)));
    driver.advance(LIMIT).run();
    assert_eq!(told.take().len(), 2);
    assert_eq!(driver.accept_send::<u32>(), Err(SentError::Nothing));
    assert!(driver.outstanding().is_empty());
    driver.message(vec![Order::Timeout(6, LIMIT)]).run();
    assert!(driver.refuse_send(SendError::Full { pid: to.pid(), limit: 9 }));
    assert!(!driver.refuse_send(SendError::Full { pid: to.pid(), limit: 9 }));
}

/// Eight processes and two threads send to one mailbox. None of them is overtaken by itself, and nothing is lost.
#[test]
fn many_senders_at_once_lose_nothing_and_keep_their_order() {
    const EACH: u32 = 500;
    let (runtime, _, watcher) = observed();
    let log = Log::new();
    let sink = runtime.spawn_with(receiver(&log, None), bound(16)).unwrap();
    let to = sink.address();
    let processes: Vec<_> = (0..8)
        .map(|number| {
            let (mut next, mut sent, mut open) = (0, Vec::<Sent<u32>>::new(), 0);
            runtime
                .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
                    for event in events {
                        if let Event::Completed(done) = event {
                            sent.iter().find_map(|tag| done.take(*tag)).unwrap().unwrap()?;
                            open -= 1;
                        }
                    }
                    if next == EACH && open == 0 {
                        return Ok(Step::Done(()));
                    }
                    if open == 0 {
                        sent.clear();
                    }
                    while next < EACH && open < 10 {
                        sent.push(out.send_timeout(to, number * EACH + next, Duration::MAX));
                        (next, open) = (next + 1, open + 1);
                    }
                    Ok(Step::Wait)
                }))
                .unwrap()
        })
        .collect();
    let threads: Vec<_> = (8..10)
        .map(|number| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                (0..EACH).for_each(|n| runtime.send_timeout(to, number * EACH + n, Duration::MAX).unwrap());
            })
        })
        .collect();
    processes.iter().for_each(|process| drop(output(process)));
    threads.into_iter().for_each(|thread| wait(thread).unwrap());
    until("all are stepped", || log.len() == 10 * EACH as usize);
    let seen = log.take();
    for number in 0..10 {
        assert!(seen.iter().copied().filter(|n| n / EACH == number).eq(number * EACH..(number + 1) * EACH));
    }
    assert_eq!((watcher.dead.len(), runtime.stats().timers), (0, 0));
    assert_accounted(&runtime);
}
