//! Traces of messages under bounds, and over replacements of state machines.

use std::time::Duration;

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::{Event, Events, Exit, Process, SpawnOptions, Step, StepOutput, StepResult, Upgrade};

use super::*;

#[test]
fn a_bound_neither_counts_a_trace_nor_loses_one() {
    let (runtime, traces) = traced(1);
    for (overflow, dead) in [(Overflow::DropOldest, 0), (Overflow::DropNewest, 2), (Overflow::Refuse, 2)] {
        let seen = Log::new();
        let (holder, blocker) = hold_up(&runtime);
        let before = traces.dead().len();
        let bounded = runtime.spawn_with(batches(&seen), SpawnOptions::new().mailbox(2, overflow)).unwrap();
        let roots: Vec<_> = (0..3)
            .map(|number| {
                traces.root(|| {
                    let sent = runtime.send(bounded.address(), number);
                    assert_eq!(sent.is_err(), overflow == Overflow::Refuse && number == 2);
                })
            })
            .collect();
        blocker.release();
        join(&holder);
        rest(&runtime);
        let kept: Vec<_> = (0..3).filter(|number| *number != dead).collect();
        assert_eq!(seen.take(), kept.iter().map(|number| (vec![*number], true)).collect::<Vec<_>>());
        for (number, root) in (0..).zip(&roots) {
            assert_eq!(traces.children(*root).len(), usize::from(number != dead), "{overflow:?}: {number}");
        }
        let expected = match overflow {
            Overflow::DropOldest => vec![(roots[0], DeadLetterReason::DroppedOldest)],
            Overflow::DropNewest => vec![(roots[2], DeadLetterReason::DroppedNewest)],
            Overflow::Refuse => vec![],
        };
        assert_eq!(traces.dead()[before..], expected);
    }
    close(runtime, &traces);
}

#[test]
fn a_message_that_waits_for_room_keeps_its_trace() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let slow = runtime.spawn_with(batches(&seen), SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let to = slow.address();
    let sends = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(first) => {
                        (first..10).for_each(|number| _ = out.send_timeout(to, number, Duration::MAX));
                        out.send(to, 10);
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(sends.address(), 0).unwrap());
    until("all were taken", || seen.len() == 10);
    rest(&runtime);
    assert_eq!(seen.take(), (0..10).map(|number| (vec![number], true)).collect::<Vec<_>>());
    let step = only_child(&traces, root).number;
    let received = traces.children(step).into_iter().filter(|span| span.pid == Some(slow.pid())).count();
    assert_eq!(received, 10);
    // The last message did not wait for room, and there was none when its turn came.
    assert_eq!(traces.dead(), [(step, DeadLetterReason::Full)]);
    // A thread outside waits, too.
    let (holder, blocker) = hold_up(&runtime);
    runtime.send(to, 20).unwrap();
    let mut waits = None;
    let outside = traces.root(|| waits = Some(runtime.send_timeout(to, 21, 60 * SECOND)));
    blocker.release();
    join(&holder);
    block_on(waits.unwrap()).unwrap();
    rest(&runtime);
    assert_eq!(seen.take(), [(vec![20], false), (vec![21], true)]);
    assert_eq!(only_child(&traces, outside).pid, Some(slow.pid()));
    close(runtime, &traces);
}

/// At once, or when there is room.
#[test]
fn a_message_that_a_recipient_converts_keeps_its_trace() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let slow = runtime.spawn_with(batches(&seen), SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let (to, recipient) = (slow.address(), slow.address().map(|number: u64| number as u32));
    let at_once = traces.root(|| runtime.send(&recipient, 1).unwrap());
    rest(&runtime);
    let (holder, blocker) = hold_up(&runtime);
    runtime.send(to, 2).unwrap();
    let mut waits = None;
    let with_limit = traces.root(|| waits = Some(runtime.send_timeout(&recipient, 3, 60 * SECOND)));
    blocker.release();
    join(&holder);
    block_on(waits.unwrap()).unwrap();
    rest(&runtime);
    for root in [at_once, with_limit] {
        assert_eq!(only_child(&traces, root).pid, Some(slow.pid()));
    }
    let sends = runtime
        .spawn(script(move |events: &mut Events<'_, u64>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(first) => {
                        out.send(&recipient, first);
                        (first + 1..10).for_each(|number| _ = out.send_timeout(&recipient, number, Duration::MAX));
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(sends.address(), 4).unwrap());
    until("all were taken", || seen.len() == 9);
    rest(&runtime);
    assert_eq!(seen.take(), (1..10).map(|number| (vec![number], number != 2)).collect::<Vec<_>>());
    let step = only_child(&traces, root).number;
    let received = traces.children(step).into_iter().filter(|span| span.pid == Some(slow.pid())).count();
    assert_eq!(received, 6);
    close(runtime, &traces);
}

/// Passes all over, or fails, or is replaced, as its messages say.
struct Replaced {
    seen: Log<(Vec<u32>, bool)>,
    is_second: bool,
}

const FAIL: u32 = 100;
const UPGRADE: u32 = 101;

impl Replaced {
    fn second(&self) -> Replaced {
        Replaced { seen: self.seen.clone(), is_second: true }
    }
}

impl Process for Replaced {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        let is_second = self.is_second;
        let mut taken = Vec::new();
        while let Some(event) = events.select(|number| is_second || *number >= FAIL) {
            match event {
                Event::Message(FAIL) => return Err("on purpose".into()),
                Event::Message(UPGRADE) => return Ok(Step::Upgrade(Upgrade::to(self.second()))),
                Event::Message(number) => taken.push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if !taken.is_empty() {
            self.seen.push((taken, Traces::current().is_some()));
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(self.second()))
    }
}

#[test]
fn a_replacement_of_the_state_machine_keeps_the_traces_of_messages() {
    for replace in [FAIL, UPGRADE] {
        for options in [SpawnOptions::new(), SpawnOptions::new().mailbox(100, Overflow::Refuse)] {
            let (runtime, traces) = traced(1);
            let seen = Log::new();
            let replaced = runtime.spawn_with(Replaced { seen: seen.clone(), is_second: false }, options).unwrap();
            let to = replaced.address();
            let (holder, blocker) = hold_up(&runtime);
            // Some are passed over, some wait behind.
            let mut roots = Vec::new();
            for number in [0, 1, 2, replace, 3, 4, 5] {
                let send = || runtime.send(to, number).unwrap();
                if number % 3 == 1 { roots.push(traces.root(send)) } else { send() }
            }
            blocker.release();
            join(&holder);
            rest(&runtime);
            let expected = [(vec![0], false), (vec![1], true), (vec![2, 3], false), (vec![4], true), (vec![5], false)];
            assert_eq!(seen.take(), expected, "{replace}");
            for root in &roots {
                assert_eq!(traces.children(*root).len(), 1);
            }
            close(runtime, &traces);
        }
    }
}

/// Waits for an answer that never comes in its second step, and is then sent to by two others in turns.
#[test]
fn a_message_that_is_pushed_out_of_a_waiting_process_is_in_its_trace() {
    let (runtime, traces) = traced(1);
    let mut steps = 0;
    let waits = runtime
        .spawn_with(
            script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
                for event in events {
                    if let Event::Cancel(_) = event {
                        return Ok(Step::Done(()));
                    }
                }
                steps += 1;
                if steps == 1 {
                    let _ = out.future(std::future::pending::<()>());
                }
                Ok(Step::Wait)
            }),
            SpawnOptions::new().mailbox(2, Overflow::DropOldest),
        )
        .unwrap();
    rest(&runtime);
    let to = waits.address();
    let sends = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(number) => out.send(to, number),
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let mut roots = Vec::new();
    for number in 0..100 {
        let send = || match number % 4 {
            0 | 1 => runtime.send(sends.address(), number).unwrap(),
            _ => runtime.send(to, number).unwrap(),
        };
        if number % 2 == 0 {
            roots.push(traces.root(send))
        } else {
            send()
        }
        rest(&runtime);
        assert!(traces.contexts() <= 2, "{} contexts after {number}", traces.contexts());
    }
    // Each is in the trace of its own message: that of its root, or of the step that has sent it on.
    let dead = traces.dead();
    let steps = roots.iter().map(|root| traces.children(*root).first().map_or(*root, |step| step.number));
    let expected: Vec<_> = steps.map(|span| (span, DeadLetterReason::DroppedOldest)).take(49).collect();
    assert_eq!(dead, expected);
    // Also with a limit, which does not wait here.
    for overflow in [Overflow::DropOldest, Overflow::DropNewest] {
        let full = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().mailbox(1, overflow)).unwrap().address();
        let limits = runtime
            .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
                for event in events {
                    match event {
                        Event::Message(number) => (0..2).for_each(|n| _ = out.send_timeout(full, number + n, SECOND)),
                        Event::Cancel(_) => return Ok(Step::Done(())),
                        _ => {}
                    }
                }
                Ok(Step::Idle)
            }))
            .unwrap();
        let before = traces.dead().len();
        let root = traces.root(|| runtime.send(limits.address(), 0).unwrap());
        rest(&runtime);
        let step = only_child(&traces, root).number;
        let reason = match overflow {
            Overflow::DropOldest => DeadLetterReason::DroppedOldest,
            _ => DeadLetterReason::DroppedNewest,
        };
        assert_eq!(traces.dead()[before..], [(step, reason)]);
    }
    close(runtime, &traces);
}

#[test]
fn messages_that_a_successor_does_not_take_are_events_in_their_traces() {
    let (runtime, traces) = traced(1);
    for options in [SpawnOptions::new(), SpawnOptions::new().mailbox(100, Overflow::Refuse)] {
        let before = traces.dead().len();
        let process = runtime
            .spawn_with(
                script(|events: &mut Events<'_, u32>, _: &mut StepOutput| match events.select(|number| *number == 1) {
                    Some(Event::Message(_)) => Ok(Step::Upgrade(Upgrade::to(sink::<&str>()))),
                    Some(Event::Cancel(_)) => Ok(Step::Done(0)),
                    _ => Ok(Step::Idle),
                }),
                options,
            )
            .unwrap();
        let (holder, blocker) = hold_up(&runtime);
        let mut roots = Vec::new();
        for number in [0, 1, 2] {
            let send = || runtime.send(process.address(), number).unwrap();
            if number == 1 { send() } else { roots.push(traces.root(send)) }
        }
        blocker.release();
        join(&holder);
        rest(&runtime);
        let dead: Vec<_> = traces.dead()[before..].to_vec();
        assert_eq!(dead, [(roots[0], DeadLetterReason::WrongType), (roots[1], DeadLetterReason::WrongType)]);
    }
    close(runtime, &traces);
}
