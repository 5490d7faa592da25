//! How long messages wait in mailboxes.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::BuildError;
use procession::observe::MetricsOptions;
use procession::simulation::Simulation;
use procession::spawn::Overflow;
use procession::{Address, Event, Events, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;
use crate::node::*;
use crate::traces::*;

const SECOND: Duration = Duration::from_secs(1);

/// A runtime with one worker, which measures the wait of each message.
fn sampled(manual: &ManualClock) -> Runtime {
    builder().workers(1).clock(manual.clock()).metrics(MetricsOptions::new().wait_one_in(1)).start().unwrap()
}

/// Takes all messages. With `rests` it takes none for a second. A message that it `passes` over, it passes over once.
struct Taker {
    seen: Log<u32>,
    rests: bool,
    passes: Option<u32>,
}

impl Process for Taker {
    type Message = u32;
    type Output = ();

    fn type_name() -> &'static str {
        "taker"
    }

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.rests) {
            out.after(SECOND);
            return Ok(Step::Wait);
        }
        let mut passed = false;
        let mut is_wanted = |message: &u32| {
            passed |= self.passes == Some(*message);
            self.passes != Some(*message)
        };
        while let Some(event) = events.select(&mut is_wanted) {
            match event {
                Event::Message(message) => self.seen.push(message),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        self.passes = self.passes.filter(|_| !passed);
        Ok(Step::Idle)
    }
}

fn taker(seen: &Log<u32>) -> Taker {
    Taker { seen: seen.clone(), rests: false, passes: None }
}

/// The number of measured messages of a type, and the sum of their waits.
fn waits(runtime: &Runtime, name: &str) -> (u64, Duration) {
    let snapshot = quiet(runtime);
    let waits = &of_type(&snapshot, name).wait_times;
    (waits.count, waits.sum)
}

#[test]
fn a_message_that_lay_for_a_second_shows_as_a_second() {
    let (manual, seen) = (ManualClock::new(), Log::new());
    let runtime = sampled(&manual);
    let taker = runtime.spawn(taker(&seen)).unwrap();
    runtime.send(taker.address(), 0).unwrap();
    assert_eq!(waits(&runtime, "taker"), (1, Duration::ZERO));
    let (holder, blocker) = hold_up(&runtime);
    // The first wakes the process, and lies in its body. The next one lies in its cell.
    runtime.send(taker.address(), 1).unwrap();
    runtime.send(taker.address(), 2).unwrap();
    manual.advance(SECOND);
    blocker.release();
    join(&holder);
    assert_eq!(waits(&runtime, "taker"), (3, 2 * SECOND));
    let snapshot = quiet(&runtime);
    let waits = &of_type(&snapshot, "taker").wait_times;
    let buckets: Vec<_> = waits.buckets.iter().filter(|bucket| bucket.from <= SECOND && SECOND <= bucket.to).collect();
    assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 2);
    assert_eq!(seen.take(), [0, 1, 2]);
    let text = snapshot.to_openmetrics();
    assert!(text.contains("procession_type_wait_seconds_sum{type=\"taker\"} 2.0"), "{text}");
    assert!(text.contains("procession_type_wait_seconds_count{type=\"taker\"} 3\n"), "{text}");
}

#[test]
fn messages_of_processes_are_measured_on_each_of_their_ways() {
    let (manual, seen) = (ManualClock::new(), Log::new());
    let runtime = sampled(&manual);
    let rests = |seen: &Log<u32>| Taker { rests: true, ..taker(seen) };
    let one = runtime.spawn(rests(&seen)).unwrap().address();
    let options = SpawnOptions::new().mailbox(2, Overflow::DropOldest);
    let bounded = runtime.spawn_with(rests(&seen), options).unwrap().address();
    let log = seen.clone();
    let sends = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for _ in events {
            (1..=3).for_each(|message| out.send(one, message));
            out.send(bounded, 11);
            out.send(one, 4);
            (12..=14).for_each(|message| out.send(bounded, message));
            let child = out.spawn(rests(&log))?;
            out.send(child, 21);
            out.send(child, 22);
        }
        Ok(Step::<()>::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    until("the runtime is idle", || runtime.is_idle());
    runtime.send(sends.address(), ()).unwrap();
    until("all were sent", || runtime.is_idle());
    manual.advance(SECOND);
    // Two of the messages were pushed out.
    assert_eq!(waits(&runtime, "taker"), (8, 8 * SECOND));
    let mut all = seen.take();
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 13, 14, 21, 22]);
}

#[test]
fn a_mark_takes_no_room_and_goes_where_its_message_goes() {
    let manual = ManualClock::new();
    let runtime = sampled(&manual);
    let mut before = (0, Duration::ZERO);
    let policies =
        [(Overflow::DropOldest, [1, 2], 3), (Overflow::DropNewest, [0, 1], 5), (Overflow::Refuse, [0, 1], 5)];
    for (overflow, kept, seconds) in policies {
        let seen = Log::new();
        let (holder, blocker) = hold_up(&runtime);
        let bounded = runtime.spawn_with(taker(&seen), SpawnOptions::new().mailbox(2, overflow)).unwrap();
        for message in 0..3 {
            let sent = runtime.send(bounded.address(), message);
            assert_eq!(sent.is_err(), overflow == Overflow::Refuse && message == 2);
            manual.advance(SECOND);
        }
        blocker.release();
        join(&holder);
        let (count, sum) = waits(&runtime, "taker");
        assert_eq!((count - before.0, sum - before.1), (2, seconds * SECOND), "{overflow:?}");
        assert_eq!(seen.take(), kept);
        before = (count, sum);
    }
    assert_eq!(quiet(&runtime).stats.messages.queued, 0);
}

#[test]
fn a_message_that_has_waited_for_room_is_measured_from_its_entry() {
    let (manual, seen) = (ManualClock::new(), Log::new());
    let runtime = sampled(&manual);
    let bounded = runtime.spawn_with(taker(&seen), SpawnOptions::new().mailbox(1, Overflow::Refuse)).unwrap();
    let (holder, blocker) = hold_up(&runtime);
    runtime.send(bounded.address(), 1).unwrap();
    let waits_for_room = runtime.send_timeout(bounded.address(), 2, 60 * SECOND);
    manual.advance(SECOND);
    blocker.release();
    join(&holder);
    waits_for_room.wait().unwrap();
    assert_eq!(waits(&runtime, "taker"), (2, SECOND));
    assert_eq!(seen.take(), [1, 2]);
}

#[test]
fn the_wait_goes_on_while_a_process_takes_no_messages_or_is_replaced() {
    let manual = ManualClock::new();
    let runtime = sampled(&manual);
    let node = runtime.spawn(Node::<0> { recovers: true }).unwrap();
    runtime.send(node.address(), Order::Rest).unwrap();
    assert_eq!(waits(&runtime, "node 0"), (1, Duration::ZERO));
    for order in [Order::Nothing, Order::Fail, Order::Nothing, Order::Count(1)] {
        runtime.send(node.address(), order).unwrap();
    }
    assert_eq!(waits(&runtime, "node 0"), (1, Duration::ZERO));
    manual.advance(3_600 * SECOND);
    // The messages that the failed step has taken are dead. The others go to the successor.
    until("it is replaced", || runtime.snapshot().types.iter().any(|one| one.type_name == "node 1"));
    assert_eq!(waits(&runtime, "node 0"), (1, Duration::ZERO));
    assert_eq!(waits(&runtime, "node 1"), (2, 2 * 3_600 * SECOND));
}

#[test]
fn the_wait_is_over_with_the_first_step_that_looks_at_the_message() {
    let (manual, seen) = (ManualClock::new(), Log::new());
    let runtime = sampled(&manual);
    let taker = runtime.spawn(Taker { passes: Some(7), ..taker(&seen) }).unwrap();
    until("its first step is over", || runtime.is_idle());
    let (holder, blocker) = hold_up(&runtime);
    runtime.send(taker.address(), 7).unwrap();
    manual.advance(SECOND);
    blocker.release();
    join(&holder);
    assert_eq!((waits(&runtime, "taker"), seen.len()), ((1, SECOND), 0));
    manual.advance(SECOND);
    runtime.send(taker.address(), 8).unwrap();
    assert_eq!(waits(&runtime, "taker"), (2, SECOND));
    assert_eq!(seen.take(), [7, 8]);
}

#[test]
fn a_measured_message_may_be_in_a_trace() {
    let (manual, seen, traces) = (ManualClock::new(), Log::new(), Traces::new());
    let metrics = MetricsOptions::new().wait_one_in(1);
    let builder = builder().workers(1).clock(manual.clock()).metrics(metrics).propagate(traces.clone());
    let runtime = builder.start().unwrap();
    let taker = runtime.spawn(taker(&seen)).unwrap();
    let to = taker.address();
    let sends = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        for event in events {
            if let Event::Message(message) = event {
                out.send(to, message + 10);
            }
        }
        Ok(Step::<()>::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    until("the runtime is idle", || runtime.is_idle());
    let (holder, blocker) = hold_up(&runtime);
    let root = traces.root(|| {
        runtime.send(to, 1).unwrap();
        runtime.send(sends.address(), 2).unwrap();
    });
    runtime.send(to, 3).unwrap();
    manual.advance(SECOND);
    blocker.release();
    join(&holder);
    assert_eq!(waits(&runtime, "taker"), (3, 2 * SECOND));
    assert_eq!(seen.take(), [1, 3, 12]);
    assert_eq!(traces.children(root).len(), 2);
    drop(runtime);
    assert_eq!(traces.contexts(), 0);
}

/// Has a trace for a timer that it sets with each message, and for nothing else.
struct Alarm(Traces);

impl Process for Alarm {
    type Message = ();
    type Output = ();

    fn type_name() -> &'static str {
        "alarm"
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(()) => {
                    self.0.root(|| {
                        out.after(SECOND);
                    });
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_step_that_begins_a_trace_with_a_command_is_measured() {
    let (manual, traces) = (ManualClock::new(), Traces::new());
    let metrics = MetricsOptions::new().wait_one_in(1);
    let builder = builder().workers(1).clock(manual.clock()).metrics(metrics).propagate(traces.clone());
    let runtime = builder.start().unwrap();
    let alarm = runtime.spawn(Alarm(traces)).unwrap();
    for message in 1..=3 {
        let (holder, blocker) = hold_up(&runtime);
        runtime.send(alarm.address(), ()).unwrap();
        runtime.send(alarm.address(), ()).unwrap();
        manual.advance(SECOND);
        blocker.release();
        join(&holder);
        assert_eq!(waits(&runtime, "alarm"), (2 * message, 2 * message as u32 * SECOND));
    }
}

/// Sends numbers on to another process, in a step on the pool.
struct Relay {
    to: Address<u32>,
    held: Vec<u32>,
}

impl Process for Relay {
    type Message = u32;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u32>, out: &mut StepOutput) -> StepResult<()> {
        self.held.drain(..).for_each(|message| out.send(self.to, message));
        for event in events {
            match event {
                Event::Message(message) => self.held.push(message),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(if self.held.is_empty() { Step::Idle } else { Step::Blocking })
    }
}

#[test]
fn messages_of_steps_on_the_pool_are_measured() {
    let (manual, seen) = (ManualClock::new(), Log::new());
    let runtime = sampled(&manual);
    let to = runtime.spawn(taker(&seen)).unwrap().address();
    let relay = runtime.spawn(Relay { to, held: Vec::new() }).unwrap();
    for message in 0..50 {
        runtime.send(relay.address(), message).unwrap();
    }
    assert_eq!(waits(&runtime, "taker").0, 50);
    assert_eq!(seen.take(), (0..50).collect::<Vec<_>>());
}

#[test]
fn all_messages_in_a_world_are_measured() {
    Simulation::new(|world| {
        let seen = Log::new();
        let metrics = MetricsOptions::new().wait_one_in(1);
        let runtime = world.start(Runtime::builder().metrics(metrics))?;
        let to = runtime.spawn(taker(&seen))?.address();
        let passes = move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                if let Event::Message(message) = event {
                    out.send(to, message);
                }
            }
            Ok(Step::<()>::Idle)
        };
        let relays = [runtime.spawn(script(passes))?, runtime.spawn(script(passes))?];
        for message in 0..20 {
            runtime.send(relays[message as usize % 2].address(), message)?;
        }
        world.run()?;
        let figures = runtime.snapshot();
        assert_eq!(of_type(&figures, "taker").wait_times.count, 20);
        assert_eq!(figures.types.iter().map(|one| one.wait_times.count).sum::<u64>(), 40);
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn measuring_adds_no_step_and_changes_no_order() {
    let run = |one_in| {
        let (manual, seen) = (ManualClock::new(), Log::new());
        let metrics = MetricsOptions::new().wait_one_in(one_in);
        let runtime = builder().workers(1).clock(manual.clock()).step_events(3).metrics(metrics).start().unwrap();
        let to = runtime.spawn(Taker { rests: true, ..taker(&seen) }).unwrap().address();
        let sends = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                if let Event::Message(message) = event {
                    (0..message).for_each(|number| out.send(to, message * 100 + number));
                }
            }
            Ok(Step::<()>::Idle)
        });
        let sends = runtime.spawn(sends).unwrap();
        let steps = || {
            until("the runtime is idle", || runtime.is_idle());
            of_type(&runtime.snapshot(), "taker").steps
        };
        let mut all = vec![steps()];
        for message in 0..40 {
            runtime.send(to, message).unwrap();
        }
        // A mark wakes nobody, and neither does its message.
        all.push(steps());
        (0..10).for_each(|message| runtime.send(sends.address(), message).unwrap());
        all.push(steps());
        manual.advance(SECOND);
        all.push(steps());
        (seen.take(), all, of_type(&quiet(&runtime), "taker").wait_times.count)
    };
    let without = run(0);
    assert_eq!((without.0.len(), &without.1[..3], without.2), (85, &[1, 1, 1][..], 0));
    for one_in in [1, 2] {
        let (seen, steps, count) = run(one_in);
        assert_eq!((&seen, &steps), (&without.0, &without.1));
        assert!(if one_in == 1 { count == 85 } else { (10..80).contains(&count) }, "{count} of 85");
    }
}

#[test]
fn by_default_about_one_message_in_128_is_measured() {
    let runtime = builder().workers(1).metrics(MetricsOptions::new()).start().unwrap();
    let seen = Log::new();
    let to = runtime.spawn(taker(&seen)).unwrap().address();
    let sends = script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
        for event in events {
            if let Event::Message(count) = event {
                (0..count).for_each(|number| out.send(to, number));
            }
        }
        Ok(Step::<()>::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    (0..40_000).for_each(|count| runtime.send(sends.address(), count % 8).unwrap());
    (0..60_000).for_each(|number| runtime.send(to, number).unwrap());
    let measured = |name| of_type(&quiet(&runtime), name).wait_times.count;
    // 200,000 messages.
    let (taken, count) = (quiet(&runtime).stats.messages.stepped - 40_000, measured("taker"));
    assert_eq!(taken, 200_000);
    assert!((taken / 160..taken / 100).contains(&count), "{count} of {taken}");
}

#[test]
fn a_number_of_messages_out_of_range_is_refused() {
    let refused = builder().metrics(MetricsOptions::new().wait_one_in((1 << 20) + 1)).start();
    assert!(matches!(refused, Err(BuildError::OutOfRange { option: "wait_one_in", .. })));
}
