//! C. Messages: order, accounting, senders, bounds, and what overtakes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use procession::{Address, Event, Events, Latch, Overflow, Pid, Process, SpawnOptions, Step, StepOutput};

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
                hold.wait();
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
