//! Recipients: targets that convert messages, in steps and outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use procession::names::NoSuchProcessError;
use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::testing::Driver;
use procession::{CommandError, Event, Events, Process, Recipient, Reply, SendError, SpawnOptions, Step, StepOutput};

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
