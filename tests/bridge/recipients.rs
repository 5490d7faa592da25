//! Recipients: targets that convert messages, in steps and outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use procession::names::NoSuchProcessError;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::testing::{Driver, SentError};
use procession::{
    CommandError, Event, Events, Process, Recipient, Rejected, Reply, SendError, SpawnOptions, Step, StepOutput, Tag,
};

use crate::helpers::*;

/// Not `Clone`, so a call cannot keep a copy to hand back.
#[derive(Debug, PartialEq)]
struct Line(u32);

enum Room {
    Line(Line),
    Count(Reply<usize>),
}

/// Collects lines.
fn room(lines: &Log<u32>) -> impl Process<Message = Room, Output = ()> {
    let lines = lines.clone();
    script(move |events: &mut Events<'_, Room>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(Room::Line(Line(n))) => lines.push(n),
                Event::Message(Room::Count(reply)) => out.reply(reply, lines.len()),
                _ => return Ok(Step::Done(())),
            }
        }
        Ok(Step::Idle)
    })
}

/// Passes over everything until it is asked to stop. Then it takes messages until it has so many.
fn picky(lines: &Log<u32>, many: usize) -> impl Process<Message = Room, Output = ()> {
    let (lines, mut takes) = (lines.clone(), false);
    script(move |events: &mut Events<'_, Room>, _: &mut StepOutput| {
        while let Some(event) = events.select(|_| takes) {
            match event {
                Event::Cancel(_) => takes = true,
                Event::Message(Room::Line(Line(n))) => lines.push(n),
                _ => {}
            }
        }
        Ok(if lines.len() == many { Step::Done(()) } else { Step::Idle })
    })
}

#[test]
fn a_recipient_is_a_target_for_every_call() {
    let (runtime, lines) = (runtime(1), Log::new());
    let room = runtime.spawn(room(&lines)).unwrap();
    let to: Recipient<Line> = room.address().map(Room::Line);
    let count: Recipient<Reply<usize>> = room.address().map(Room::Count);
    runtime.send(&to, Line(1)).unwrap();
    runtime.send_timeout(&to.clone(), Line(2), LIMIT).wait().unwrap();
    let reference = runtime.process_ref(&to);
    reference.send(Line(3)).unwrap();
    block_on(reference.send_timeout(Line(4), LIMIT)).unwrap();
    assert_eq!(runtime.ask(&count, |reply| reply, LIMIT).wait().unwrap(), 4);
    assert_eq!(block_on(runtime.process_ref(&count).ask(|reply| reply, LIMIT)).unwrap(), 4);
    // In a step.
    let (line, asks, mut tag) = (to.clone(), count.clone(), None);
    let asker = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            if let (Event::Completed(done), Some(tag)) = (event, tag) {
                return Ok(Step::Done(done.take(tag).unwrap().unwrap()));
            }
        }
        (5..8).for_each(|n| out.send(&line, Line(n)));
        tag = Some(out.ask(&asks, |reply| reply, LIMIT));
        Ok(Step::Wait)
    });
    assert_eq!(*output(&runtime.spawn(asker).unwrap()), 7);
    assert_eq!(lines.take(), [1, 2, 3, 4, 5, 6, 7]);
    // Calls without a message.
    assert_eq!((to.pid(), runtime.is_alive(&to)), (room.pid(), true));
    runtime.register("room", &to).unwrap();
    let watch = runtime.watch(&to);
    assert!(runtime.cancel(&to, "over").unwrap());
    assert!(wait(watch).exit.is_done());
    assert_accounted(&runtime);
}

/// An address that needs no conversion.
#[test]
fn an_address_is_a_recipient_of_its_own_messages() {
    let (runtime, lines) = (runtime(1), Log::new());
    let room = runtime.spawn(room(&lines)).unwrap();
    let to: Recipient<Room> = room.address().into();
    runtime.send(&to, Room::Line(Line(1))).unwrap();
    assert_eq!(runtime.ask(&to, Room::Count, LIMIT).wait().unwrap(), 1);
}

#[test]
fn a_recipient_hands_back_what_is_refused_unconverted() {
    let (runtime, lines, converted) = (runtime(1), Log::new(), Arc::new(AtomicUsize::new(0)));
    let full = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let room = runtime.spawn_with(picky(&lines, 1), full).unwrap();
    let counts = converted.clone();
    let convert = move |line| {
        counts.fetch_add(1, Ordering::SeqCst);
        Room::Line(line)
    };
    let to = room.address().map(convert.clone());
    runtime.send(&to, Line(1)).unwrap();
    until("the receiver rests", || runtime.is_idle());
    for refused in [runtime.send(&to, Line(2)), runtime.send_timeout(&to, Line(2), std::time::Duration::ZERO).wait()] {
        let (back, why) = refused.unwrap_err().into_parts();
        assert_eq!((back, why), (Line(2), SendError::Full { pid: room.pid(), limit: 1 }));
    }
    let waits = runtime.send_timeout(&to, Line(3), LIMIT);
    let other = room.pid().typed::<String>().map(|Line(n)| n.to_string());
    let (back, why) = runtime.send(&other, Line(4)).unwrap_err().into_parts();
    assert!(matches!(why, SendError::WrongType { sent: "alloc::string::String", .. }), "{why}");
    assert_eq!((back, converted.load(Ordering::SeqCst)), (Line(4), 1));
    assert!(runtime.terminate(&to).unwrap());
    wait(&room);
    let gone = SendError::NoSuchProcess(NoSuchProcessError::Pid(room.pid()));
    for refused in [runtime.send(&to, Line(3)), waits.wait()] {
        assert_eq!(refused.unwrap_err().into_parts(), (Line(3), gone.clone()));
    }
    let asks = room.address().map(Room::Count);
    let answer = runtime.ask(&asks, |reply| reply, LIMIT).wait();
    assert!(matches!(answer, Err(CommandError::NoSuchProcess(_))), "{answer:?}");
    assert_eq!(converted.load(Ordering::SeqCst), 1, "what is refused is not converted");
    assert_accounted(&runtime);
}

/// A mailbox that refuses nothing has no places to wait for.
#[test]
fn a_converted_message_that_need_not_wait_counts_once() {
    for overflow in [None, Some(Overflow::DropNewest), Some(Overflow::DropOldest)] {
        let (runtime, lines) = (runtime(1), Log::new());
        let options = overflow.into_iter().fold(SpawnOptions::new(), |options, overflow| options.mailbox(1, overflow));
        let to = runtime.spawn_with(room(&lines), options).unwrap().address().map(Room::Line);
        let mut tag: Option<Tag<Result<(), Rejected<Line, SendError>>>> = None;
        let sender = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                if let (Event::Completed(done), Some(tag)) = (event, tag) {
                    return Ok(Step::Done(done.take(tag).unwrap()?.is_ok()));
                }
            }
            tag = Some(out.send_timeout(&to, Line(1), LIMIT));
            Ok(Step::Wait)
        });
        assert!(*output(&runtime.spawn(sender).unwrap()));
        until("the line is taken", || lines.len() == 1 && runtime.is_idle());
        assert_accounted(&runtime);
    }
}

/// Questions that a full mailbox refuses or drops are answered at once.
#[test]
fn a_question_to_a_full_recipient_is_answered() {
    for overflow in [Overflow::Refuse, Overflow::DropNewest] {
        let runtime = runtime(1);
        let (_held, blocker) = hold_up(&runtime);
        let to = runtime.spawn_with(room(&Log::new()), SpawnOptions::new().mailbox(1, overflow)).unwrap();
        let (lines, asks) = (to.address().map(Room::Line), to.address().map(Room::Count));
        runtime.send(&lines, Line(1)).unwrap();
        let answer = runtime.ask(&asks, |reply| reply, LIMIT).wait();
        assert!(matches!(answer, Err(CommandError::Full(_))), "{overflow:?}: {answer:?}");
        blocker.release();
    }
}

#[test]
fn waiting_messages_of_a_recipient_are_sent_in_order() {
    const MANY: u32 = 200;
    let (runtime, lines) = (runtime(2), Log::new());
    let bound = SpawnOptions::new().mailbox(3, Overflow::Refuse);
    let room = runtime.spawn_with(picky(&lines, 2 * MANY as usize), bound).unwrap();
    let to = room.address().map(Room::Line);
    let sends: Vec<_> = (0..MANY).map(|n| runtime.send_timeout(&to, Line(n), LIMIT)).collect();
    let (reference, address) = (runtime.process_ref(&to), room.process_ref());
    let sender = thread::spawn(move || {
        // Some are converted, and some are not.
        for n in MANY..2 * MANY {
            match n % 2 {
                0 => reference.send_timeout(Line(n), LIMIT).wait().unwrap(),
                _ => block_on(address.send_timeout(Room::Line(Line(n)), LIMIT)).unwrap(),
            }
        }
    });
    assert!(runtime.cancel(&to, "take").unwrap());
    sends.into_iter().rev().for_each(|send| send.wait().unwrap());
    wait(sender).unwrap();
    wait(&room);
    let lines = lines.take();
    let of = |from: u32| lines.iter().copied().filter(|n| (from..from + MANY).contains(n)).collect::<Vec<_>>();
    assert_eq!(of(0), (0..MANY).collect::<Vec<_>>());
    assert_eq!(of(MANY), (MANY..2 * MANY).collect::<Vec<_>>());
    assert_accounted(&runtime);
}

/// The place of a message whose conversion panics is free, and the caller panics.
#[test]
fn a_conversion_that_panics_costs_nobody_a_place() {
    let (runtime, lines) = (runtime(1), Log::new());
    let bound = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let room = runtime.spawn_with(picky(&lines, 2), bound).unwrap();
    let to: Recipient<Line> = room.address().map(|_| panic!("in a conversion"));
    let panics = |send: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(send)).unwrap_err();
    for _ in 0..3 {
        let payload = panics(&|| drop(runtime.send(&to, Line(1))));
        assert_eq!(payload.downcast_ref(), Some(&"in a conversion"));
    }
    room.send(Room::Line(Line(2))).unwrap();
    until("the receiver rests", || runtime.is_idle());
    let waits = runtime.send_timeout(&to, Line(3), LIMIT);
    let next = room.send_timeout(Room::Line(Line(4)), LIMIT);
    assert!(runtime.cancel(&to, "take").unwrap());
    next.wait().unwrap();
    let waits = Mutex::new(Some(waits));
    let payload = panics(&|| drop(waits.lock().unwrap().take().unwrap().wait()));
    assert_eq!(payload.downcast_ref(), Some(&"in a conversion"));
    wait(&room);
    assert_eq!(lines.take(), [2, 4]);
    assert_accounted(&runtime);
    // In a step it is a panic of the step.
    let sends = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(&to, Line(1));
        Ok(Step::Done(()))
    });
    assert!(matches!(wait(&runtime.spawn(sends).unwrap()), procession::Exit::Panicked(_)));
}

#[test]
fn a_message_of_a_wrong_type_keeps_no_place() {
    let runtime = runtime(1);
    let room = runtime.spawn_with(picky(&Log::new(), 1), SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let to: Recipient<u32> = room.pid().typed::<String>().map(|n: u32| n.to_string());
    let refused = runtime.send(&to, 1).unwrap_err();
    assert!(matches!(refused.reason(), SendError::WrongType { .. }));
    assert_eq!(refused.into_inner(), 1);
    room.send(Room::Line(Line(1))).unwrap();
}

/// Passes over everything until it is asked to stop. Its second step says that it has begun, and waits.
fn passes(blocked: Blocked, taken: &Log<u32>) -> impl Process<Message = u32, Output = ()> {
    let (taken, mut steps, mut takes) = (taken.clone(), 0, false);
    script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        steps += 1;
        if steps == 2 {
            blocked.wait();
        }
        while let Some(event) = events.select(|_| takes) {
            match event {
                Event::Message(n) => taken.push(n),
                _ => takes = true,
            }
        }
        Ok(if takes && taken.len() == 3 { Step::Done(()) } else { Step::Idle })
    })
}

/// A step leaves its messages while another message is converted, for which there was room when they were in the step.
/// That message is accepted, whether it keeps a place (the first) or has waited for it (the last).
#[test]
fn a_place_is_kept_while_a_step_leaves_messages() {
    let (runtime, taken, blocker) = (runtime(2), Log::new(), Blocker::new());
    let bound = SpawnOptions::new().mailbox(2, Overflow::Refuse);
    let to = runtime.spawn_with(passes(blocker.blocked(), &taken), bound).unwrap();
    until("the first step is over", || runtime.process(to.pid()).is_some_and(|process| process.steps == 1));
    to.send(1).unwrap();
    blocker.wait_begun();
    let conversion = Blocker::new();
    let blocked = conversion.blocked();
    let slow: Recipient<u32> = to.address().map(move |_| {
        blocked.wait();
        panic!("on purpose")
    });
    let sender = runtime.clone();
    let thread = thread::spawn(move || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(sender.send(&slow, 9)))).unwrap_err();
    });
    conversion.wait_begun();
    to.send(2).unwrap();
    // It gets the place that the conversion gives back. The steps are over when it is converted itself.
    let (pid, inside, blocker) = (to.pid(), runtime.clone(), Mutex::new(Some(blocker)));
    let last: Recipient<u32> = to.address().map(move |n| {
        blocker.lock().unwrap().take().unwrap().release();
        until("it has left them", || inside.process(pid).is_some_and(|process| process.steps == 3) && inside.is_idle());
        n
    });
    let waits = runtime.send_timeout(&last, 3, LIMIT);
    conversion.release();
    waits.wait().unwrap();
    wait(thread).unwrap();
    runtime.cancel(to.pid(), "take").unwrap();
    wait(&to);
    assert_eq!(taken.take(), [1, 2, 3]);
    assert_accounted(&runtime);
}

#[test]
fn a_message_that_keeps_a_place_is_accepted() {
    let (runtime, taken, blocker) = (runtime(2), Log::new(), Blocker::new());
    let bound = SpawnOptions::new().mailbox(2, Overflow::Refuse);
    let to = runtime.spawn_with(passes(blocker.blocked(), &taken), bound).unwrap();
    until("the first step is over", || runtime.process(to.pid()).is_some_and(|process| process.steps == 1));
    runtime.send_timeout(&to, 1, LIMIT).wait().unwrap();
    blocker.wait_begun();
    to.send(2).unwrap();
    let (pid, inside, blocker) = (to.pid(), runtime.clone(), Mutex::new(Some(blocker)));
    let last: Recipient<u32> = to.address().map(move |n| {
        blocker.lock().unwrap().take().unwrap().release();
        until("it has left them", || inside.process(pid).is_some_and(|process| process.steps == 3));
        n
    });
    runtime.send(&last, 3).unwrap();
    runtime.cancel(to.pid(), "take").unwrap();
    wait(&to);
    assert_eq!(taken.take(), [1, 2, 3]);
    assert_accounted(&runtime);
}

/// The receiver takes messages of another type when the message is converted. Its place goes to one that waits.
#[test]
fn a_place_that_is_kept_for_nothing_goes_to_the_next() {
    let watcher = Watcher::new();
    let (runtime, lines) = (builder().workers(1).observer(watcher.clone()).start().unwrap(), Log::new());
    let mut next = Some(room(&lines));
    let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| match events.next() {
        Some(Event::Cancel(_)) => Ok(Step::Upgrade(procession::Upgrade::to(next.take().unwrap()))),
        _ => Ok(Step::Idle),
    });
    let old = runtime.spawn_with(process, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let (pid, inside, waits) = (old.pid(), runtime.clone(), Arc::new(Mutex::new(None)));
    let waiting = waits.clone();
    let to: Recipient<u32> = old.address().map(move |n| {
        assert!(inside.cancel(pid, "upgrade").unwrap());
        until("it is upgraded", || inside.address::<Room>(pid).is_ok() && inside.is_idle());
        *waiting.lock().unwrap() = Some(inside.send_timeout(pid.typed(), Room::Line(Line(2)), LIMIT));
        n
    });
    runtime.send(&to, 1).unwrap();
    let waits = waits.lock().unwrap().take().unwrap();
    waits.wait().unwrap();
    until("it was taken", || lines.len() == 1);
    assert_eq!(watcher.dead.take(), [(pid, None, DeadLetterReason::WrongType)]);
    assert_accounted(&runtime);
}

/// A receiver that ends while the message is converted: the message was accepted, and is a dead letter.
#[test]
fn a_receiver_that_ends_during_the_conversion_has_a_dead_letter() {
    let watcher = Watcher::new();
    let runtime = builder().workers(1).observer(watcher.clone()).start().unwrap();
    let room = runtime.spawn(room(&Log::new())).unwrap();
    let (inside, handle) = (runtime.downgrade(), room.clone());
    let to = room.address().map(move |line| {
        assert!(inside.upgrade().unwrap().terminate(&handle).unwrap());
        wait(&handle);
        Room::Line(line)
    });
    runtime.send(&to, Line(1)).unwrap();
    assert_eq!(watcher.dead.take(), [(room.pid(), None, DeadLetterReason::Ended)]);
    assert_accounted(&runtime);
}

/// A step leaves a message while another one, which was given its place, is converted.
#[test]
fn a_step_that_leaves_a_message_takes_no_promised_place() {
    let (runtime, lines, blocker) = (runtime(1), Log::new(), Arc::new(Blocker::new()));
    let (blocked, told, mut steps, mut takes) = (blocker.blocked(), lines.clone(), 0, false);
    let picky = script(move |events: &mut Events<'_, Room>, _: &mut StepOutput| {
        steps += 1;
        if steps == 2 {
            blocked.wait();
        }
        while let Some(event) = events.select(|_| takes) {
            match event {
                Event::Message(Room::Line(Line(n))) => told.push(n),
                _ => takes = true,
            }
        }
        Ok(if takes { Step::Done(()) } else { Step::Idle })
    });
    let room = runtime.spawn_with(picky, SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    until("its first step is over", || runtime.is_idle());
    room.send(Room::Line(Line(1))).unwrap();
    blocker.wait_begun();
    let inside = runtime.downgrade();
    let to = room.address().map(move |line| {
        blocker.release();
        until("the first message was left", || inside.upgrade().unwrap().is_idle());
        Room::Line(line)
    });
    runtime.send(&to, Line(2)).unwrap();
    assert!(runtime.cancel(&to, "take").unwrap());
    wait(&room);
    assert_eq!(lines.take(), [1, 2]);
    assert_accounted(&runtime);
}

/// A test of a process sees converted messages.
#[test]
fn a_driver_shows_what_was_sent_to_a_recipient() {
    let pid = "<0.7.1>".parse::<procession::Pid>().unwrap();
    let to: Recipient<Line> = pid.typed::<Room>().map(Room::Line);
    let mut driver = Driver::new(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(&to, Line(1));
        Ok(Step::<()>::Idle)
    }));
    driver.step();
    let (to, Room::Line(line)) = driver.sent::<Room>().unwrap() else { panic!("another message") };
    assert_eq!((to, line), (pid, Line(1)));
}

/// A message that waits is converted when the test accepts it, and not before.
#[test]
fn a_driver_accepts_what_waits_for_a_recipient_converted() {
    let pid = "<0.7.1>".parse::<procession::Pid>().unwrap();
    let (converted, answers) = (Log::new(), Log::new());
    let (converts, tells) = (converted.clone(), answers.clone());
    let to: Recipient<Line> = pid.typed::<Room>().map(move |line: Line| {
        converts.push(line.0);
        assert!(line.0 != 2, "no such line");
        Room::Line(line)
    });
    let mut tags = Vec::new();
    let mut driver = Driver::new(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if tags.is_empty() {
            tags.extend((1..=3).map(|n| out.send_timeout(&to, Line(n), Duration::MAX)));
        }
        for event in events {
            if let Event::Completed(done) = event {
                let answer = tags.iter().find_map(|tag| done.take(*tag)).unwrap();
                tells.push((done.tag(), answer.map(|sent| sent.is_ok()).map_err(|error| error.to_string())));
            }
        }
        Ok(Step::<()>::Idle)
    }));
    driver.run();
    let Err(SentError::OtherType { found, .. }) = driver.accept_send::<Line>() else { panic!("it takes rooms") };
    assert!(found.ends_with("Room") && converted.len() == 0, "{found}");
    assert!(matches!(driver.accept_send::<Room>(), Ok((to, Room::Line(Line(1)))) if to == pid));
    assert_eq!(converted.to_vec(), [1]);
    let Err(SentError::Panicked { to, message }) = driver.accept_send::<Room>() else { panic!("it panics") };
    assert_eq!((to, &*message), (pid, "no such line"));
    assert!(driver.refuse_send(SendError::Full { pid, limit: 4 }));
    driver.run();
    assert_eq!(converted.take(), [1, 2], "what comes back is not converted");
    let answers = answers.take();
    assert_eq!(answers, [(1, Ok(true)), (2, Err("panicked: no such line".into())), (3, Ok(false))]);
    assert!(driver.outstanding().is_empty());
}
