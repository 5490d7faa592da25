//! C. Messages: order, accounting, senders, bounds, and what overtakes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::sync::Latch;
use procession::{Address, Event, Events, Pid, Process, SpawnOptions, Step, StepOutput};

use crate::helpers::*;

const SENDERS: usize = 6;
const RECEIVERS: usize = 5;
const EACH: usize = 400;

/// `(sender, number)`
type Numbered = (usize, usize);

/// Takes messages of all senders, checks that each sender's come in order and all, and is done when it has them. It
/// changes between workers, steps with leftovers, and blocking steps as it goes.
fn checker() -> impl Process<Message = Numbered, Output = ()> {
    let mut next = [0_usize; SENDERS];
    let mut steps = 0;
    script(move |events: &mut Events<'_, Numbered>, _: &mut StepOutput| {
        steps += 1;
        let most = if steps % 3 == 0 { 2 } else { 1_000 };
        for event in events.take(most) {
            if let Event::Message((sender, number)) = event {
                assert_eq!(number, next[sender], "the next of sender {sender}");
                next[sender] += 1;
            }
        }
        Ok(if next.iter().all(|n| *n == EACH) {
            Step::Done(())
        } else if steps % 7 == 0 {
            Step::Blocking
        } else if steps % 5 == 0 {
            Step::Continue
        } else {
            Step::Idle
        })
    })
}

#[test]
fn from_each_sender_to_each_receiver_messages_come_once_and_in_order() {
    for workers in [1, 2, 4] {
        let runtime = builder().workers(workers).step_events(16).start().unwrap();
        let receivers: Vec<_> = (0..RECEIVERS).map(|_| runtime.spawn(checker()).unwrap()).collect();
        let addresses: Vec<Address<Numbered>> = receivers.iter().map(procession::Handle::address).collect();
        // Half of the senders are processes, half are threads.
        for sender in 0..SENDERS / 2 {
            let (addresses, mut number) = (addresses.clone(), 0);
            let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                for _ in 0..8 {
                    addresses.iter().for_each(|to| out.send(*to, (sender, number)));
                    number += 1;
                }
                Ok(if number == EACH { Step::Done(()) } else { Step::Continue })
            });
            runtime.spawn(process).unwrap();
        }
        std::thread::scope(|scope| {
            for sender in SENDERS / 2..SENDERS {
                let (runtime, addresses) = (&runtime, &addresses);
                scope.spawn(move || {
                    for number in 0..EACH {
                        addresses.iter().for_each(|to| runtime.send(*to, (sender, number)).unwrap());
                    }
                });
            }
        });
        receivers.iter().for_each(|receiver| drop(output(receiver)));
        let messages = runtime.stats().messages;
        assert_eq!(messages.stepped as usize, SENDERS * RECEIVERS * EACH);
        assert_accounted(&runtime);
    }
}

/// The numbers that have arrived, by sender: so many of each sender, each later than the one before.
type Received = [Vec<usize>; SENDERS];

/// Takes messages of all senders and writes them down, and is stepped in all the ways in which a process can be.
fn writer(received: &Arc<Mutex<Received>>) -> impl Process<Message = Numbered, Output = ()> {
    let (received, mut steps) = (received.clone(), 0);
    script(move |events: &mut Events<'_, Numbered>, _: &mut StepOutput| {
        steps += 1;
        let (mut most, mut over) = (if steps % 3 == 0 { 1 } else { 1_000 }, false);
        // Every fourth step passes over what one of the senders sent; it is offered again with whatever comes next.
        while most > 0
            && let Some(event) = events.select(|(sender, _)| steps % 4 != 0 || *sender != steps % SENDERS)
        {
            match event {
                Event::Message((sender, number)) => received.lock().unwrap()[sender].push(number),
                Event::Cancel(_) => over = true,
                _ => {}
            }
            most -= 1;
        }
        Ok(match steps {
            _ if over => Step::Done(()),
            _ if steps % 7 == 0 => Step::Blocking,
            // So that what was passed over is offered again, however little comes.
            _ if steps % 4 == 0 || steps % 5 == 0 => Step::Continue,
            _ => Step::Idle,
        })
    })
}

#[test]
fn a_bound_keeps_each_senders_order_and_loses_no_waiting_send() {
    for (workers, overflow) in [
        (1, Overflow::Refuse),
        (2, Overflow::Refuse),
        (1, Overflow::DropOldest),
        (2, Overflow::DropOldest),
        (1, Overflow::DropNewest),
        (2, Overflow::DropNewest),
    ] {
        let runtime = builder().workers(workers).step_events(3).start().unwrap();
        let received = Arc::new(Mutex::new(Received::default()));
        let bound = SpawnOptions::new().mailbox(4, overflow);
        let receiver = runtime.spawn_with(writer(&received), bound).unwrap();
        let to = receiver.address();
        // Half of the senders are processes, half are threads, which wait for room if there is none.
        for sender in 0..SENDERS / 2 {
            let mut number = 0;
            let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                for _ in 0..2 {
                    out.send(to, (sender, number));
                    number += 1;
                }
                Ok(if number == EACH { Step::Done(()) } else { Step::Continue })
            });
            runtime.spawn(process).unwrap();
        }
        std::thread::scope(|scope| {
            for sender in SENDERS / 2..SENDERS {
                let runtime = &runtime;
                scope.spawn(move || {
                    (0..EACH).for_each(|number| runtime.send_timeout(to, (sender, number), LIMIT).wait().unwrap());
                });
            }
        });
        until("all is stepped", || runtime.is_idle() && runtime.stats().messages.queued == 0);
        runtime.cancel(to.pid(), "over").unwrap();
        output(&receiver);
        let received = received.lock().unwrap();
        for (sender, numbers) in received.iter().enumerate() {
            let in_order = numbers.windows(2).all(|pair| pair[0] < pair[1]);
            assert!(in_order, "{overflow:?}: of sender {sender} came {numbers:?}");
            if sender >= SENDERS / 2 && overflow == Overflow::Refuse {
                assert_eq!(numbers.len(), EACH, "{overflow:?}: of sender {sender}");
            }
        }
        let came: usize = received.iter().map(Vec::len).sum();
        let messages = runtime.stats().messages;
        assert_eq!((messages.stepped as usize, messages.accepted as usize), (came, SENDERS * EACH));
        assert_accounted(&runtime);
    }
}

#[test]
fn every_message_is_accounted_for_while_receivers_come_and_go() {
    let runtime = runtime(2);
    let mut receivers: Vec<_> = (0..8).map(|_| runtime.spawn(sink::<u32>()).unwrap()).collect();
    let addresses: Vec<_> = receivers.iter().map(procession::Handle::address).collect();
    let senders: Vec<_> = (0..4)
        .map(|sender| {
            let (addresses, mut left) = (addresses.clone(), 500);
            let process = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                addresses.iter().for_each(|to| out.send(*to, sender));
                left -= 1;
                Ok(if left == 0 { Step::Done(()) } else { Step::Continue })
            });
            runtime.spawn(process).unwrap()
        })
        .collect();
    for (n, receiver) in receivers.drain(..).enumerate() {
        if n % 2 == 0 {
            runtime.terminate(receiver.pid()).unwrap()
        } else {
            runtime.cancel(receiver.pid(), "go").unwrap()
        };
        join(&receiver);
    }
    senders.iter().for_each(|sender| drop(output(sender)));
    assert_accounted(&runtime);
    let messages = runtime.stats().messages;
    assert_eq!((messages.accepted, messages.queued), (4 * 500 * 8, 0));
}

#[test]
fn a_process_is_told_who_sent_a_message() {
    let (runtime, log) = (runtime(1), Log::new());
    let seen = log.clone();
    let receiver = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            while let Some(event) = events.next() {
                if let Event::Message(n) = event {
                    seen.push((n, events.sender()));
                }
            }
            Ok(if seen.len() == 2 { Step::Done(()) } else { Step::Idle })
        }))
        .unwrap();
    let to = receiver.address();
    runtime.send(to, 1).unwrap();
    let sender = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.send(to, 2);
        Ok(Step::Done(out.pid()))
    }));
    let sender: Pid = *output(&sender.unwrap());
    output(&receiver);
    assert_eq!(log.take(), [(1, None), (2, Some(sender))]);
}

#[test]
fn dead_letters_of_an_ended_process_name_their_senders() {
    for bound in [None, Some(Overflow::Refuse)] {
        let watcher = Watcher::new();
        let runtime = builder().workers(2).step_events(2).observer(watcher.clone()).start().unwrap();
        let (begun, go, mut steps) = (Log::new(), [Latch::new(), Latch::new(), Latch::new()], 0);
        let (begin, gates) = (begun.clone(), go.clone());
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            begin.push(());
            wait(&gates[steps]);
            steps += 1;
            Ok(match steps {
                1 => Step::Idle,
                // It passes over all that it was given.
                2 => {
                    while events.select(|_| false).is_some() {}
                    Step::Idle
                }
                _ => Step::Done(()),
            })
        });
        let options = bound.map_or(SpawnOptions::new(), |overflow| SpawnOptions::new().mailbox(100, overflow));
        let receiver = runtime.spawn_with(process, options).unwrap();
        let to = receiver.address();
        let mut expected = Vec::new();
        // Four for the second step, which is given two; four while that goes on; four while the third goes on.
        for (round, gate) in go.iter().enumerate() {
            until("it is held up", || begun.len() == round + 1);
            for _ in 0..2 {
                let sender = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
                    out.send(to, 0);
                    Ok(Step::Done(()))
                }));
                let sender = sender.unwrap();
                output(&sender);
                runtime.send(to, 0).unwrap();
                expected.extend([
                    (to.pid(), Some(sender.pid()), DeadLetterReason::Ended),
                    (to.pid(), None, DeadLetterReason::Ended),
                ]);
            }
            gate.set(()).unwrap();
        }
        output(&receiver);
        assert_eq!(watcher.dead.take(), expected);
        assert_accounted(&runtime);
    }
}

#[test]
fn control_signals_are_stepped_before_messages_that_were_queued_earlier() {
    for bound in [None, Some(Overflow::Refuse)] {
        let runtime = runtime(1);
        let (log, gate, go) = (Log::new(), Latch::new(), Arc::new(AtomicBool::new(false)));
        let (seen, hold, gone) = (log.clone(), gate.clone(), go.clone());
        let process = script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(n) => seen.push(n.to_string()),
                    Event::Cancel(request) => seen.push(request.reason.to_string()),
                    _ => {}
                }
            }
            if !gone.swap(true, Ordering::Relaxed) {
                wait(&hold);
            }
            Ok(if seen.len() == 1_002 { Step::Done(()) } else { Step::Idle })
        });
        let options = bound.map_or(SpawnOptions::new(), |overflow| SpawnOptions::new().mailbox(1_000, overflow));
        let receiver = runtime.spawn_with(process, options).unwrap();
        until("it is held up", || go.load(Ordering::Relaxed));
        (0..1_000).for_each(|n| runtime.send(receiver.address(), n).unwrap());
        runtime.cancel(receiver.pid(), "first").unwrap();
        runtime.cancel(receiver.pid(), "second").unwrap();
        gate.set(()).unwrap();
        output(&receiver);
        assert_eq!(log.take()[..3], ["first", "second", "0"]);
    }
}

/// Tells what its first step was given, and ends.
fn teller(told: std::sync::mpsc::Sender<Vec<String>>) -> impl Process<Message = u32, Output = ()> {
    script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        let given = events.map(|event| match event {
            Event::Message(number) => number.to_string(),
            Event::Cancel(request) => request.reason.to_string(),
            other => format!("{other:?}"),
        });
        told.send(given.take(3).collect())?;
        Ok(Step::Done(()))
    })
}

#[test]
fn a_cancel_request_overtakes_messages_also_before_the_first_step() {
    let runtime = runtime(1);
    for messages in [0, 1, 2, 1_000] {
        let (tell, told) = std::sync::mpsc::channel();
        let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let child = out.spawn(teller(tell.clone()))?;
            (0..messages).for_each(|number| out.send(child, number));
            out.cancel(child.pid(), "stop");
            Ok(Step::Done(()))
        });
        runtime.spawn(parent).unwrap();
        let expected: Vec<_> =
            std::iter::once(String::from("stop")).chain((0..messages).map(|n| n.to_string())).collect();
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), expected[..expected.len().min(3)], "{messages} messages");
    }
}

#[test]
fn a_childs_first_step_has_the_messages_of_the_spawning_step() {
    let runtime = runtime(1);
    let (tell, told) = std::sync::mpsc::channel();
    let parent = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        let children = [out.spawn(teller(tell.clone()))?, out.spawn(teller(tell.clone()))?];
        children.into_iter().zip([7, 7]).for_each(|(child, number)| out.send(child, number));
        Ok(Step::Done(()))
    });
    runtime.spawn(parent).unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(LIMIT).unwrap(), ["7"]);
    }
}
