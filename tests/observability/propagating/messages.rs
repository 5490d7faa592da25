//! Messages within traces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use procession::observe::DeadLetterReason;
use procession::spawn::Overflow;
use procession::{Address, BoxError, Event, Events, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult};

use super::*;

/// Passes a number on to the next process, until it is zero.
struct Hop {
    next: Option<Address<Hopping>>,
    outside: Arc<AtomicUsize>,
}

enum Hopping {
    Next(Address<Hopping>),
    Hops(u32),
    Plain,
}

impl Process for Hop {
    type Message = Hopping;
    type Output = ();

    fn type_name() -> &'static str {
        "hop"
    }

    fn step(&mut self, events: &mut Events<'_, Hopping>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match (event, self.next) {
                (Event::Message(Hopping::Next(next)), _) => self.next = Some(next),
                (Event::Message(Hopping::Hops(left @ 1..)), Some(next)) => out.send(next, Hopping::Hops(left - 1)),
                (Event::Message(Hopping::Plain), _) if Traces::current().is_none() => {
                    self.outside.fetch_add(1, Ordering::Relaxed);
                }
                (Event::Cancel(_), _) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_thousand_hops_are_one_chain_and_what_is_outside_stays_outside() {
    let (runtime, traces) = traced(2);
    let outside = Arc::new(AtomicUsize::new(0));
    let ring: Vec<_> =
        (0..100).map(|_| runtime.spawn(Hop { next: None, outside: outside.clone() }).unwrap().address()).collect();
    for (place, hop) in ring.iter().enumerate() {
        runtime.send(*hop, Hopping::Next(ring[(place + 1) % 100])).unwrap();
    }
    rest(&runtime);
    assert_eq!(traces.spans(), [], "none of these was sent within a trace");
    let root = traces.root(|| runtime.send(ring[0], Hopping::Hops(1_000)).unwrap());
    for hop in &ring {
        runtime.send(*hop, Hopping::Plain).unwrap();
    }
    rest(&runtime);
    let mut parent = root;
    for hop in 0..=1_000 {
        let span = only_child(&traces, parent);
        let process = ring[hop % 100].pid();
        assert_eq!((span.pid, &*span.process, &*span.end), (Some(process), "hop", "succeeded"));
        assert!(span.event.ends_with("Hopping"), "{span:?}");
        parent = span.number;
    }
    assert_eq!(traces.children(parent), [], "the chain ends here");
    assert_eq!(traces.spans().len(), 1_002);
    assert_eq!(outside.load(Ordering::Relaxed), 100, "these are stepped outside of the trace");
    assert_eq!(traces.contexts(), 0);
    close(runtime, &traces);
}

#[test]
fn a_traced_message_has_a_step_of_its_own_and_keeps_its_place() {
    let plain = || SpawnOptions::new();
    let bounded = |overflow| SpawnOptions::new().mailbox(100, overflow);
    for (options, step_events) in [
        (plain(), 100),
        (bounded(Overflow::Refuse), 100),
        (bounded(Overflow::DropOldest).name("batches"), 100),
        (plain(), 2),
        (bounded(Overflow::Refuse), 2),
        (bounded(Overflow::DropOldest), 2),
    ] {
        let (runtime, traces) = traced_by(builder().workers(1).step_events(step_events));
        let seen = Log::new();
        let (holder, blocker) = hold_up(&runtime);
        let batches = runtime.spawn_with(batches(&seen), options).unwrap();
        let mut roots = Vec::new();
        for number in 0..12 {
            let send = || runtime.send(batches.address(), number).unwrap();
            if number % 4 == 2 { roots.push(traces.root(send)) } else { send() }
        }
        blocker.release();
        join(&holder);
        rest(&runtime);
        let seen = seen.take();
        assert!(seen.iter().all(|(taken, _)| taken.len() <= step_events));
        // Steps that take plain messages one after the other count as one here.
        let mut joined: Vec<(Vec<u32>, bool)> = Vec::new();
        for (taken, is_traced) in seen {
            match joined.last_mut() {
                Some((before, false)) if !is_traced => before.extend(taken),
                _ => joined.push((taken, is_traced)),
            }
        }
        let expected = [
            (vec![0, 1], false),
            (vec![2], true),
            (vec![3, 4, 5], false),
            (vec![6], true),
            (vec![7, 8, 9], false),
            (vec![10], true),
            (vec![11], false),
        ];
        assert_eq!(joined, expected);
        for root in roots {
            let span = only_child(&traces, root);
            assert_eq!((span.pid, &*span.event, &*span.end), (Some(batches.pid()), "u32", "succeeded"));
        }
        close(runtime, &traces);
    }
}

#[test]
fn a_span_has_the_name_of_its_process() {
    let (runtime, traces) = traced(1);
    let named = runtime.spawn_with(sink::<u32>(), SpawnOptions::new().name("orders")).unwrap();
    let root = traces.root(|| runtime.send(named.address(), 1).unwrap());
    rest(&runtime);
    assert_eq!(only_child(&traces, root).name.as_deref(), Some("orders"));
    close(runtime, &traces);
}

#[test]
fn a_failed_step_passes_its_trace_on_to_nobody() {
    let (runtime, traces) = traced(1);
    let sink = runtime.spawn(sink::<u32>()).unwrap();
    let to = sink.address();
    let fails = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events.by_ref() {
                if let Event::Message(number) = event {
                    out.send(to, number);
                    let _ = out.after(SECOND);
                    return Err("on purpose".into());
                }
            }
            Ok::<_, BoxError>(Step::<()>::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(fails.address(), 1).unwrap());
    join(&fails);
    rest(&runtime);
    let span = only_child(&traces, root);
    assert!(span.end.contains("on purpose"), "{span:?}");
    assert_eq!(traces.children(span.number), []);
    assert_eq!(traces.dead(), [(root, DeadLetterReason::StepFailed)]);
    close(runtime, &traces);
}

#[test]
fn a_traced_dead_letter_is_an_event_in_its_trace() {
    let (runtime, traces) = traced(1);
    let ended = runtime.spawn(sink::<u32>()).unwrap();
    let gone = ended.address();
    runtime.terminate(gone).unwrap();
    join(&ended);
    let sends = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(0) => out.send(gone, 7),
                    Event::Message(_) => {
                        out.send("nobody", 7_u32);
                        out.send(out.pid(), "a text");
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let first = traces.root(|| runtime.send(sends.address(), 0).unwrap());
    rest(&runtime);
    let second = traces.root(|| runtime.send(sends.address(), 1).unwrap());
    rest(&runtime);
    let [first, second] = [first, second].map(|root| only_child(&traces, root).number);
    let expected = [
        (first, DeadLetterReason::NoSuchProcess),
        (second, DeadLetterReason::NoSuchName),
        (second, DeadLetterReason::WrongType),
    ];
    assert_eq!(traces.dead(), expected);
    // Messages that no step has taken when the process ends.
    let (holder, blocker) = hold_up(&runtime);
    let third = traces.root(|| runtime.send(sends.address(), 0).unwrap());
    runtime.terminate(sends.address()).unwrap();
    blocker.release();
    join(&holder);
    join(&sends);
    rest(&runtime);
    assert_eq!(traces.dead()[3..], [(third, DeadLetterReason::Ended)]);
    close(runtime, &traces);
}

#[test]
fn a_message_that_is_passed_over_keeps_its_trace() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let log = seen.clone();
    let mut opened = false;
    let selects = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let all = opened;
            let mut taken = Vec::new();
            while let Some(event) = events.select(|number| all || *number == 9) {
                match event {
                    Event::Message(number) => {
                        opened |= number == 9;
                        taken.push(number);
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            if !taken.is_empty() {
                log.push((taken, Traces::current().is_some()));
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let (holder, blocker) = hold_up(&runtime);
    let to = selects.address();
    runtime.send(to, 0).unwrap();
    let roots = [1, 2].map(|number| traces.root(|| runtime.send(to, number).unwrap()));
    runtime.send(to, 3).unwrap();
    blocker.release();
    join(&holder);
    rest(&runtime);
    assert_eq!(seen.take(), []);
    let nine = traces.root(|| runtime.send(to, 9).unwrap());
    rest(&runtime);
    // The passed messages are offered again when the next event arrives.
    runtime.send(to, 4).unwrap();
    rest(&runtime);
    let expected = [(vec![9], true), (vec![0], false), (vec![1], true), (vec![2], true), (vec![3, 4], false)];
    assert_eq!(seen.take(), expected);
    for root in roots.into_iter().chain([nine]) {
        assert_eq!(only_child(&traces, root).pid, Some(selects.pid()));
    }
    close(runtime, &traces);
}

#[test]
fn a_broadcast_and_a_message_to_a_new_child_carry_their_trace() {
    let (runtime, traces) = traced(2);
    let seen = Log::new();
    for _ in 0..10 {
        let member = runtime.spawn(batches(&seen)).unwrap();
        runtime.join_group("all", member.address()).unwrap();
    }
    let child_seen = seen.clone();
    let parent = runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(()) => {
                        out.broadcast("all", 1_u32);
                        let child = out.spawn(batches(&child_seen))?;
                        out.send(child, 2);
                    }
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(parent.address(), ()).unwrap());
    until("all were taken", || seen.len() == 11);
    rest(&runtime);
    assert!(seen.take().iter().all(|(_, is_traced)| *is_traced));
    assert_eq!(traces.children(only_child(&traces, root).number).len(), 11);
    close(runtime, &traces);
}

#[test]
fn questions_from_outside_and_replies_carry_their_trace() {
    let (runtime, traces) = traced(1);
    let echo = runtime.spawn(echo()).unwrap();
    let root = traces.root(|| {
        assert_eq!(runtime.ask(echo.address(), |reply| reply, 60 * SECOND).wait().unwrap(), 1);
    });
    rest(&runtime);
    assert_eq!(only_child(&traces, root).pid, Some(echo.pid()));
    let recipient = echo.address().map(|reply: Reply<u32>| reply);
    let root = traces.root(|| {
        assert_eq!(runtime.ask(&recipient, |reply| reply, 60 * SECOND).wait().unwrap(), 1);
    });
    rest(&runtime);
    assert_eq!(only_child(&traces, root).pid, Some(echo.pid()));
    close(runtime, &traces);
}

#[test]
fn a_step_on_the_pool_has_its_span_there() {
    let (runtime, traces) = traced(1);
    let seen = Log::new();
    let log = seen.clone();
    let mut is_blocking = false;
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let mut taken = Vec::new();
            if is_blocking {
                for event in events {
                    match event {
                        Event::Message(number) => taken.push(number),
                        Event::Cancel(_) => return Ok(Step::Done(())),
                        _ => {}
                    }
                }
            }
            is_blocking = !is_blocking;
            if !taken.is_empty() {
                log.push((taken, Traces::current().is_some()));
            }
            Ok(if is_blocking { Step::Blocking } else { Step::Continue })
        }))
        .unwrap();
    let root = traces.root(|| runtime.send(process.address(), 1).unwrap());
    until("the message was taken", || seen.len() == 1);
    assert_eq!(seen.take(), [(vec![1], true)]);
    until("the span has ended", || only_child(&traces, root).end == "succeeded");
    runtime.terminate(process.pid()).unwrap();
    join(&process);
    close(runtime, &traces);
}

#[test]
fn a_propagator_that_panics_costs_no_message() {
    use procession::observe::{DeadLetter, Propagator, StepSpan, TraceContext, TracedStep};

    struct Bad(AtomicUsize);

    impl Propagator for Bad {
        fn current(&self) -> Option<Arc<dyn TraceContext>> {
            match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
                0 => panic!("on purpose"),
                _ => Some(Arc::new(BadContext)),
            }
        }
    }

    struct BadContext;

    impl TraceContext for BadContext {
        fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
            panic!("on purpose");
        }

        fn enter(&self) -> Box<dyn std::any::Any> {
            panic!("on purpose");
        }

        fn dead_letter(&self, _: &DeadLetter<'_>) {
            panic!("on purpose");
        }
    }

    let runtime = builder().workers(1).propagate(Bad(AtomicUsize::new(0))).start().unwrap();
    let seen = Log::new();
    let recorder = runtime.spawn(recorder::<u32>(&seen)).unwrap();
    (0..10).for_each(|number| runtime.send(recorder.address(), number).unwrap());
    until("all were taken", || seen.len() == 10);
    assert_eq!(seen.take(), (0..10).collect::<Vec<_>>());
    runtime.terminate(recorder.address()).unwrap();
    join(&recorder);
    let pid: Pid = recorder.pid();
    assert!(!runtime.is_alive(pid));
}

#[test]
fn a_predicate_is_asked_once_for_each_message_of_a_step() {
    let (runtime, traces) = traced(1);
    let (seen, asked) = (Log::new(), Log::new());
    let (log, asks) = (seen.clone(), asked.clone());
    let process = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
            let select = |events: &mut Events<'_, u32>| {
                events.select(|number| {
                    asks.push(*number);
                    true
                })
            };
            while let Some(event) = select(events) {
                match event {
                    Event::Message(number) => log.push(number),
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    let (holder, blocker) = hold_up(&runtime);
    for number in 0..9 {
        let send = || runtime.send(process.address(), number).unwrap();
        if number % 3 == 1 { _ = traces.root(send) } else { send() }
    }
    blocker.release();
    join(&holder);
    rest(&runtime);
    let all: Vec<_> = (0..9).collect();
    assert_eq!((seen.take(), asked.take()), (all.clone(), all));
    close(runtime, &traces);
}
