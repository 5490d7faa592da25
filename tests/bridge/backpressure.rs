//! Processes that wait for room in the mailbox of another one.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::testing::{Driver, Outstanding, SentError};
use procession::{Address, CommandError, Event, Events, Pid, Reply, SendError, SpawnOptions, Step, StepOutput, Tag};

use crate::helpers::*;
use crate::senders::*;

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
        sent = Some(out.send_timeout(to, next, PATIENCE));
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
                sent.push(out.send_timeout(to, 3, PATIENCE));
                out.send(to, 4);
                out.broadcast("all", 5_u32);
                sent.push(out.send_timeout(to, 6, PATIENCE));
                // No room for these two, whose turn comes with that of 6.
                out.send(to, 7);
                out.send(to, 8);
                sent.push(out.send_timeout(to, 9, PATIENCE));
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
                out.send_timeout(to, None, PATIENCE);
                // The mailbox is full when it is the turn of the first one.
                asked.push(out.ask(to, Some, Duration::MAX));
                out.send_timeout(to, None, Duration::MAX);
                asked.push(out.ask(to, Some, PATIENCE * 2));
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
    clock.advance(PATIENCE);
    let why = CommandError::Full(receiver.pid()).to_string();
    until("the first question is refused", || answers.len() == 1);
    assert_eq!(answers.take(), [(2, Err(why))]);
    // The limit of a question that waits is its own.
    clock.advance(PATIENCE);
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
        Order::Timeout(0, PATIENCE),
        Order::Timeout(1, PATIENCE),
        Order::Plain(2),
        Order::Timeout(3, PATIENCE * 2),
        Order::Timeout(4, Duration::ZERO),
    ];
    tell(&runtime, sender, orders);
    until("two are answered", || told.len() == 2);
    assert_eq!(told.take(), [Ok(()), Err((4, full(receiver.pid(), 1)))]);
    clock.advance(PATIENCE - Duration::from_nanos(1));
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
fn a_cancelled_send_hands_its_message_back() {
    let (runtime, _, _) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    runtime.send(receiver.address(), 0).unwrap();
    let sender = spawn_sender(&runtime, receiver.address(), &told);
    tell(&runtime, sender, vec![Order::Timeout(1, PATIENCE), Order::Timeout(2, PATIENCE)]);
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
    let orders = |numbers: std::ops::Range<u32>| numbers.map(|n| Order::Timeout(n, PATIENCE)).collect();
    tell(&runtime, first, orders(0..4));
    tell(&runtime, second, orders(10..13));
    blocker.release();
    until("all are stepped", || log.len() == 7);
    assert_eq!(log.take(), [0, 1, 10, 2, 11, 3, 12]);
}

/// Its next message has the turn of the one that came back, and it gains no other.
#[test]
fn a_sender_whose_message_comes_back_keeps_its_turn() {
    let (runtime, clock, _) = observed();
    let (log, told) = (Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    runtime.send(receiver.address(), 0).unwrap();
    let [first, second] = [(); 2].map(|()| spawn_sender(&runtime, receiver.address(), &told));
    let orders = |numbers: std::ops::Range<u32>| numbers.map(|n| Order::Timeout(n, PATIENCE * 2));
    tell(&runtime, first, [Order::Timeout(1, PATIENCE)].into_iter().chain(orders(2..5)).collect());
    tell(&runtime, second, orders(10..12).collect());
    clock.advance(PATIENCE);
    until("its limit is over", || told.len() == 1);
    assert_eq!(told.take(), [Err((1, full(receiver.pid(), 1)))]);
    blocker.release();
    until("all are stepped", || log.len() == 6);
    assert_eq!(log.take(), [0, 2, 10, 3, 11, 4]);
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
        tell(&runtime, sender, (0..3).map(|n| Order::Timeout(n, PATIENCE)).collect());
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
fn a_test_drives_sends_that_wait() {
    let to: Address<u32> = "<0.7.1>".parse::<Pid>().unwrap().typed();
    let told = Log::new();
    let mut driver = Driver::new(sender(to, &told));
    driver.message((1..=4).map(|n| Order::Timeout(n, PATIENCE)).chain([Order::Plain(5)]).collect()).run();
    assert_eq!(driver.outstanding().len(), 4);
    assert!(matches!(driver.outstanding()[0], Outstanding::Send { tag: 1 }));
    assert!(matches!(driver.accept_send::<String>(), Err(SentError::OtherType { .. })));
    assert_eq!(driver.accept_send::<u32>(), Ok((to.pid(), 1)));
    let why = SendError::Full { pid: to.pid(), limit: 9 };
    assert!(driver.refuse_send(why.clone()));
    driver.run();
    assert_eq!(told.take(), [Ok(()), Err((2, why))]);
    assert_eq!(driver.sent::<u32>(), Ok((to.pid(), 5)));
    driver.advance(PATIENCE).run();
    assert_eq!(told.take().len(), 2);
    assert_eq!(driver.accept_send::<u32>(), Err(SentError::Nothing));
    assert!(driver.outstanding().is_empty());
    driver.message(vec![Order::Timeout(6, PATIENCE)]).run();
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
                (0..EACH).for_each(|n| runtime.send_timeout(to, number * EACH + n, Duration::MAX).wait().unwrap());
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

#[test]
fn a_message_to_a_recipient_is_converted_when_it_has_room() {
    let (runtime, clock, watcher) = observed();
    let (log, converted, told) = (Log::new(), Log::new(), Log::new());
    let (receiver, blocker) = held(&runtime, bound(1), &log);
    let (convert, tells) = (converted.clone(), told.clone());
    let to = receiver.address().map(move |text: String| {
        convert.push(text.clone());
        text.parse::<u32>().expect("on purpose")
    });
    let mut sent = Vec::<Sent<String>>::new();
    let sender = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if sent.is_empty() {
            for text in ["0", "1", "none", "2"] {
                sent.push(out.send_timeout(&to, text.to_string(), PATIENCE * 2));
            }
            sent.push(out.send_timeout(&to, "3".to_string(), PATIENCE));
            sent.push(out.send_timeout(&to, "4".to_string(), Duration::ZERO));
            out.send(to.pid(), 5_u32);
            sent.push(out.send_timeout("nobody", "6".to_string(), PATIENCE));
        }
        for event in events {
            if let Event::Completed(done) = event {
                let result = sent.iter().find_map(|tag| done.take(*tag)).unwrap();
                let text = result.map(|sent| sent.map_err(|back| back.into_inner()));
                tells.push((done.tag(), text.map_err(|error| error.to_string())));
            }
        }
        Ok(Step::<()>::Idle)
    });
    runtime.spawn(sender).unwrap();
    until("three are answered", || told.len() == 3);
    assert_eq!(told.take(), [(1, Ok(Ok(()))), (6, Ok(Err("4".into()))), (7, Ok(Err("6".into())))]);
    clock.advance(PATIENCE);
    until("its limit is over", || told.len() == 1);
    assert_eq!(told.take(), [(5, Ok(Err("3".into())))]);
    assert_eq!(converted.take(), ["0"], "the others were not converted");
    blocker.release();
    until("all are answered", || told.len() == 3);
    assert_eq!(
        told.take(),
        [
            (2, Ok(Ok(()))),
            (3, Err("panicked: on purpose: ParseIntError { kind: InvalidDigit }".into())),
            (4, Ok(Ok(())))
        ]
    );
    until("all are stepped", || log.len() + watcher.dead.len() == 4);
    let seen = log.take();
    assert!(seen.starts_with(&[0, 1, 2]) && seen.is_sorted(), "{seen:?}");
    assert_eq!(converted.take(), ["1", "none", "2"]);
    assert_eq!(runtime.stats().timers, 0);
    assert_accounted(&runtime);
}
