//! Statement 17: a message that waits for room in a bounded mailbox.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::names::NoSuchProcessError;
use procession::spawn::Overflow;
use procession::{
    Address, Event, Events, Handle, Process, Rejected, Runtime, SendError, SendFuture, SpawnOptions, Step, StepOutput,
    StepResult, Upgrade,
};

use crate::helpers::*;

/// The bound of most mailboxes here.
const BOUND: usize = 16;

fn bound(limit: usize) -> SpawnOptions {
    SpawnOptions::new().mailbox(limit, Overflow::Refuse)
}

fn message<M>(event: Event<M>) -> Option<M> {
    if let Event::Message(message) = event { Some(message) } else { None }
}

fn poll<M: Send + 'static>(future: &mut SendFuture<M>) -> Poll<Result<(), Rejected<M, SendError>>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Passes over all messages until it is asked to stop. Then it takes all messages that come, one by one. It is done
/// when it has taken so many.
struct Picky {
    takes: bool,
    many: usize,
    taken: Log<usize>,
}

impl Process for Picky {
    type Message = usize;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, usize>, _: &mut StepOutput) -> StepResult<()> {
        while let Some(event) = events.select(|_| self.takes) {
            match event {
                Event::Cancel(_) => self.takes = true,
                Event::Message(message) => {
                    self.taken.push(message);
                    if self.taken.len() == self.many {
                        return Ok(Step::Done(()));
                    }
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A runtime with a process at rest, whose mailbox is full of the numbers below `limit`.
fn full(limit: usize, many: usize) -> (Runtime, Handle<Picky>, Log<usize>) {
    let (runtime, taken) = (runtime(1), Log::new());
    let picky = Picky { takes: false, many, taken: taken.clone() };
    let handle = runtime.spawn_with(picky, bound(limit)).unwrap();
    fill(&runtime, &handle, limit);
    (runtime, handle, taken)
}

/// Fills the mailbox of a process that passes over everything, and waits until the process rests.
fn fill(runtime: &Runtime, picky: &Handle<Picky>, limit: usize) {
    for number in 0..limit {
        // A step that is about to leave what it was given makes room, for a moment, for as many again.
        until("the receiver rests", || runtime.is_idle());
        picky.send(number).unwrap();
    }
    until("the receiver rests", || runtime.is_idle());
    assert!(matches!(picky.send(0).unwrap_err().reason(), SendError::Full { limit: told, .. } if *told == limit));
}

fn is_full(refused: Rejected<usize, SendError>, message: usize) {
    let (back, why) = refused.into_parts();
    assert!(matches!(why, SendError::Full { .. }), "{why}");
    assert_eq!(back, message);
}

#[test]
fn eight_senders_lose_nothing_and_overtake_nothing() {
    const SENDERS: usize = 8;
    const EACH: usize = 400;
    let (runtime, most) = (runtime(2), Arc::new(AtomicUsize::new(0)));
    let (mut next, mut taken, given) = ([0; SENDERS], 0, most.clone());
    let receiver = script(move |events: &mut Events<'_, (usize, usize)>, _: &mut StepOutput| {
        let messages: Vec<_> = events.filter_map(message).collect();
        given.fetch_max(messages.len(), Ordering::SeqCst);
        for (sender, number) in messages {
            assert_eq!(number, next[sender], "of sender {sender}");
            next[sender] += 1;
            taken += 1;
        }
        Ok(if taken == SENDERS * EACH { Step::Done(next) } else { Step::Idle })
    });
    let receiver = runtime.spawn_with(receiver, bound(BOUND)).unwrap();
    let reference = receiver.process_ref();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let reference = reference.clone();
            thread::spawn(move || {
                for number in 0..EACH {
                    let sending = reference.send_timeout((sender, number), LIMIT);
                    // Every other sender is async code.
                    if sender % 2 == 0 { sending.wait() } else { block_on(sending) }.unwrap();
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| wait(sender).unwrap());
    assert_eq!(*output(&receiver), [EACH; SENDERS]);
    assert!(most.load(Ordering::SeqCst) <= BOUND, "{most:?} waited");
    assert_accounted(&runtime);
}

/// With futures that nobody polls, in whatever order their results are waited for.
#[test]
fn waiting_messages_are_sent_in_the_order_of_the_calls() {
    const MANY: usize = 1_000;
    for limit in [1, 3, BOUND] {
        let (runtime, picky, taken) = full(limit, MANY);
        let mut sends: Vec<_> = (limit..MANY).map(|number| picky.send_timeout(number, LIMIT)).collect();
        assert_eq!(runtime.process(&picky).unwrap().mailbox, limit, "the others wait outside");
        assert!(runtime.cancel(&picky, "take").unwrap());
        while let Some(last) = sends.pop() {
            if sends.len() % 2 == 0 { last.wait() } else { block_on(last) }.unwrap();
        }
        wait(&picky);
        assert_eq!(taken.take(), (0..MANY).collect::<Vec<_>>());
        assert_accounted(&runtime);
    }
}

#[test]
fn a_message_does_not_overtake_one_that_waits() {
    let (runtime, picky, taken) = full(1, 3);
    let first = picky.send_timeout(1, LIMIT);
    is_full(picky.send(7).unwrap_err(), 7);
    is_full(picky.send_timeout(7, Duration::ZERO).wait().unwrap_err(), 7);
    assert!(runtime.cancel(&picky, "take").unwrap());
    first.wait().unwrap();
    picky.send_timeout(2, LIMIT).wait().unwrap();
    wait(&picky);
    assert_eq!(taken.take(), [0, 1, 2]);
}

#[test]
fn a_message_whose_limit_is_over_comes_back_and_is_not_sent() {
    let (manual, taken) = (ManualClock::new(), Log::new());
    let runtime = builder().workers(1).clock(manual.clock()).start().unwrap();
    let picky = runtime.spawn_with(Picky { takes: false, many: 2, taken: taken.clone() }, bound(1)).unwrap();
    fill(&runtime, &picky, 1);
    let limit = Duration::from_secs(10);
    let (mut polled, waited) = (picky.send_timeout(1, limit), picky.send_timeout(2, limit));
    assert!(poll(&mut polled).is_pending());
    let waiter = thread::spawn(move || waited.wait());
    manual.advance(limit - Duration::from_nanos(1));
    assert!(poll(&mut polled).is_pending() && !waiter.is_finished());
    // The limit runs from the call, not from the first poll.
    advance_until("the limit is over", &manual, Duration::from_nanos(1), || waiter.is_finished());
    is_full(wait(waiter).unwrap().unwrap_err(), 2);
    is_full(block_on(polled).unwrap_err(), 1);
    assert!(runtime.cancel(&picky, "take").unwrap());
    until("the place is free", || runtime.send(&picky, 3).is_ok());
    wait(&picky);
    assert_eq!(taken.take(), [0, 3]);
    assert_accounted(&runtime);
}

#[test]
fn a_message_comes_back_when_the_process_ends() {
    let ends: [fn(&Runtime, &Handle<Picky>); 3] = [
        |runtime, picky| assert!(runtime.cancel(picky, "take").unwrap()),
        |runtime, picky| assert!(runtime.terminate(picky).unwrap()),
        |runtime, _| drop(runtime.shutdown(Duration::ZERO).unwrap()),
    ];
    for end in ends {
        // It is done with its first message.
        let (runtime, picky, taken) = full(1, 1);
        let (waited, mut polled, left) =
            (picky.send_timeout(1, Duration::MAX), picky.send_timeout(2, Duration::MAX), picky.send_timeout(3, LIMIT));
        assert!(poll(&mut polled).is_pending());
        let waiter = thread::spawn(move || waited.wait());
        end(&runtime, &picky);
        wait(&picky);
        let expected = SendError::NoSuchProcess(NoSuchProcessError::Pid(picky.pid()));
        for (back, message) in [(wait(waiter).unwrap(), 1), (block_on(polled), 2), (left.wait(), 3)] {
            // One may have got the room of the message that was taken, and is a dead letter then.
            if let Err(back) = back {
                assert_eq!(back.into_parts(), (message, expected.clone()));
            }
        }
        assert!(taken.take().len() <= 1);
        assert_accounted(&runtime);
    }
}

/// The step of the receiver hangs, so the end of the receiver is far away.
#[test]
fn a_thread_that_waits_for_room_at_a_stuck_process_ends_with_the_runtime() {
    let (runtime, blocker) = (runtime(1), Blocker::new());
    let blocked = blocker.blocked();
    let hangs = script(move |_: &mut Events<'_, usize>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::<()>::Idle)
    });
    let stuck = runtime.spawn_with(hangs, bound(1)).unwrap();
    blocker.wait_begun();
    stuck.send(0).unwrap();
    let waits = stuck.send_timeout(1, Duration::MAX);
    let waiter = thread::spawn(move || waits.wait());
    assert_eq!(runtime.shutdown(Duration::ZERO).unwrap().stuck.len(), 1);
    assert_eq!(wait(waiter).unwrap().unwrap_err().into_inner(), 1);
    blocker.release();
}

#[test]
fn a_send_that_is_dropped_before_is_not_sent() {
    let (runtime, picky, taken) = full(1, 3);
    let (mut polled, unpolled, kept) =
        (picky.send_timeout(1, LIMIT), picky.send_timeout(2, LIMIT), picky.send_timeout(3, LIMIT));
    assert!(poll(&mut polled).is_pending());
    drop((polled, unpolled));
    assert!(runtime.cancel(&picky, "take").unwrap());
    kept.wait().unwrap();
    picky.send_timeout(4, LIMIT).wait().unwrap();
    wait(&picky);
    assert_eq!(taken.take(), [0, 3, 4]);
    assert_accounted(&runtime);
}

/// While a message waits, another thread drops its future. It is sent, or it is not, and it is dropped once.
#[test]
fn a_send_that_is_dropped_as_room_comes_is_sent_or_not() {
    for round in 0..200 {
        let (runtime, picky, taken) = full(1, 3);
        let mut dropped = picky.send_timeout(1, LIMIT);
        assert!(poll(&mut dropped).is_pending());
        let kept = picky.send_timeout(2, LIMIT);
        let dropper = thread::spawn(move || drop(dropped));
        if round % 2 == 0 {
            thread::yield_now();
        }
        assert!(runtime.cancel(&picky, "take").unwrap());
        kept.wait().unwrap();
        wait(dropper).unwrap();
        if taken.len() < 3 {
            let _ = picky.send_timeout(3, LIMIT).wait();
        }
        wait(&picky);
        let taken = taken.take();
        assert!(taken == [0, 1, 2] || taken == [0, 2, 3], "{taken:?}");
        assert_accounted(&runtime);
    }
}

#[test]
fn a_send_that_finds_room_needs_no_wait() {
    let (runtime, taken) = (runtime(1), Log::new());
    let picky = runtime.spawn_with(Picky { takes: true, many: 3, taken: taken.clone() }, bound(BOUND)).unwrap();
    // Not awaited: the call has sent it.
    drop(picky.send_timeout(1, LIMIT));
    let mut polled = runtime.send_timeout(&picky, 2, LIMIT);
    assert!(matches!(poll(&mut polled), Poll::Ready(Ok(()))));
    assert!(poll(&mut polled).is_pending(), "a future that was ready has no second result");
    runtime.send_timeout(picky.pid(), 3_usize, LIMIT).wait().unwrap();
    wait(&picky);
    assert_eq!(taken.take(), [1, 2, 3]);
    // The kinds of refusal.
    let gone = SendError::NoSuchProcess(NoSuchProcessError::Pid(picky.pid()));
    assert_eq!(picky.send_timeout(4, LIMIT).wait().unwrap_err().into_parts(), (4, gone));
    let nobody = SendError::NoSuchProcess(NoSuchProcessError::Name("nobody".into()));
    assert_eq!(block_on(runtime.send_timeout("nobody", 5, LIMIT)).unwrap_err().into_parts(), (5, nobody));
}

/// In its first step waits for the gate. Then a successor that takes `M` replaces it.
struct Upgrades<P: Process> {
    blocked: Option<Blocked>,
    next: Option<P>,
}

impl<P: Process<Output = usize>> Process for Upgrades<P> {
    type Message = usize;
    type Output = usize;

    fn step(&mut self, _: &mut Events<'_, usize>, _: &mut StepOutput) -> StepResult<usize> {
        self.blocked.take().unwrap().wait();
        Ok(Step::Upgrade(Upgrade::to(self.next.take().unwrap())))
    }
}

/// Counts messages, and is done when there are this many.
fn counts<M: Send + 'static>(many: usize) -> impl Process<Message = M, Output = usize> {
    let mut seen = 0;
    script(move |events: &mut Events<'_, M>, _: &mut StepOutput| {
        seen += events.filter_map(message).count();
        Ok(if seen == many { Step::Done(seen) } else { Step::Idle })
    })
}

fn upgrades<M: Send + 'static>(runtime: &Runtime, many: usize) -> (Address<usize>, Blocker, SendFuture<usize>) {
    let blocker = Blocker::new();
    let upgrades = Upgrades { blocked: Some(blocker.blocked()), next: Some(counts::<M>(many)) };
    let to = runtime.spawn_with(upgrades, bound(1)).unwrap().address();
    blocker.wait_begun();
    runtime.send(to, 0).unwrap();
    let mut waits = runtime.send_timeout(to, 1, LIMIT);
    assert!(poll(&mut waits).is_pending());
    (to, blocker, waits)
}

#[test]
fn an_upgrade_has_waiting_messages_wait_at_the_successor() {
    let runtime = runtime(1);
    let (to, blocker, waits) = upgrades::<usize>(&runtime, 2);
    let watch = runtime.watch(to);
    blocker.release();
    block_on(waits).unwrap();
    assert!(wait(watch).exit.is_done());
    // A successor that takes other messages.
    let (to, blocker, waits) = upgrades::<String>(&runtime, 1);
    blocker.release();
    let (back, why) = block_on(waits).unwrap_err().into_parts();
    assert!(matches!(why, SendError::WrongType { sent: "usize", .. }), "{why}");
    assert_eq!(back, 1);
    assert!(runtime.terminate(to).unwrap());
    // A successor that is done at once.
    let (to, blocker, waits) = upgrades::<usize>(&runtime, 1);
    let watch = runtime.watch(to);
    blocker.release();
    assert!(wait(watch).exit.is_done());
    drop(block_on(waits));
    assert_accounted(&runtime);
}
