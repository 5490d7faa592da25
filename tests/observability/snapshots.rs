//! `Runtime::snapshot`.

use std::collections::BTreeMap;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::Watchdog;
use procession::observe::{MetricsOptions, ProcessState};
use procession::{BoxError, Event, Events, Pid, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::node::*;
use crate::parser::Metrics;

#[test]
fn a_snapshot_works_when_every_worker_is_stuck_and_names_the_stuck_steps() {
    let limit = Duration::from_millis(100);
    let manual = ManualClock::new();
    let watchdog = Watchdog::after(limit);
    let runtime = measured().workers(2).clock(manual.clock()).watchdog(watchdog).start().unwrap();
    until("all workers have begun", || runtime.is_idle());
    let held = [hold_up(&runtime), hold_up(&runtime)];
    (0..5).for_each(|_| runtime.send(held[0].0.pid(), ()).unwrap());
    let waits = runtime.spawn_with(Node::<0> { recovers: false }, SpawnOptions::new().name("waits")).unwrap();
    manual.advance(limit * 2);
    until("both are reported", || runtime.stuck_steps().len() == 2);
    let snapshot = runtime.snapshot();
    let mut stuck: Vec<Pid> = snapshot.stuck.iter().map(|stuck| stuck.pid).collect();
    stuck.sort();
    assert_eq!(stuck, [held[0].0.pid(), held[1].0.pid()]);
    assert!(snapshot.stuck.iter().all(|stuck| stuck.running_for >= limit && stuck.doing.contains("step")));
    assert_eq!(snapshot.stats.stuck_steps, 2);
    let node = of_type(&snapshot, "node 0");
    assert_eq!((node.spawned, node.living, node.steps), (1, 1, 0), "{} waits", waits.pid());
    assert_eq!(snapshot.mailboxes.len(), 1);
    let largest = &snapshot.mailboxes[0];
    assert_eq!((largest.pid, largest.messages, largest.state), (held[0].0.pid(), 5, Some(ProcessState::Running)));
    held.into_iter().for_each(|(_, blocker)| blocker.release());
}

#[test]
fn the_largest_hundred_mailboxes_are_listed_largest_first() {
    let runtime = measured().workers(1).start().unwrap();
    let pids: Vec<_> = (0..150)
        .map(|n| runtime.spawn_with(resting(), SpawnOptions::new().name(format!("resting {n}"))).unwrap().pid())
        .collect();
    until("all rest", || runtime.is_idle());
    // The process at place `n` gets as many messages as its place in another order.
    let messages = |n: usize| (n * 7 + 3) % 150;
    for (n, pid) in pids.iter().enumerate() {
        (0..messages(n)).for_each(|_| runtime.send(*pid, 1_u32).unwrap());
    }
    let snapshot = runtime.snapshot();
    let listed: Vec<_> = snapshot.mailboxes.iter().map(|mailbox| mailbox.messages as usize).collect();
    assert_eq!(listed, (50..150).rev().collect::<Vec<_>>());
    for mailbox in &snapshot.mailboxes {
        let place = pids.iter().position(|pid| *pid == mailbox.pid).unwrap();
        assert_eq!(messages(place) as u64, mailbox.messages);
        assert_eq!(mailbox.name, Some(format!("resting {place}")));
        assert_eq!(mailbox.state, Some(ProcessState::Blocked));
    }
    assert_eq!(snapshot.types.len(), 1);
    let resting = &snapshot.types[0];
    let longest = resting.longest.unwrap();
    assert_eq!((resting.waiting, longest.messages, longest.pid), (149 * 150 / 2, 149, snapshot.mailboxes[0].pid));
}

/// Sends on what it gets.
fn passes_on() -> impl procession::Process<Message = Pid, Output = ()> {
    script(|events: &mut Events<'_, Pid>, out: &mut StepOutput| {
        for event in events {
            if let Event::Message(to) = event {
                out.count("passed", 1);
                out.send(to, out.pid());
            }
        }
        Ok::<_, BoxError>(Step::Idle)
    })
}

#[test]
fn no_counter_goes_down_between_two_snapshots_of_a_running_program() {
    let runtime = builder().workers(2).metrics(MetricsOptions::new().time_one_in(3)).start().unwrap();
    let pairs: Vec<_> =
        (0..8).map(|_| [runtime.spawn(passes_on()).unwrap(), runtime.spawn(passes_on()).unwrap()]).collect();
    pairs.iter().for_each(|[one, other]| runtime.send(one.address(), other.pid()).unwrap());
    let mut before = BTreeMap::new();
    let begun = runtime.stats().messages.stepped;
    let mut snapshots = 0;
    while snapshots < 200 || runtime.stats().messages.stepped < begun + 10_000 {
        let now = Metrics::parse(&runtime.snapshot().to_openmetrics()).counters();
        for (series, value) in &before {
            assert!(now.get(series).is_some_and(|now| now >= value), "{series}: {value}, then {:?}", now.get(series));
        }
        before = now;
        snapshots += 1;
    }
    assert!(before.len() > 30);
}

#[test]
fn a_snapshot_of_very_many_processes_is_taken_while_they_run() {
    let runtime = measured().workers(2).start().unwrap();
    let pairs: Vec<_> =
        (0..8).map(|_| [runtime.spawn(passes_on()).unwrap(), runtime.spawn(passes_on()).unwrap()]).collect();
    let idle: Vec<_> = (0..20_000).map(|_| runtime.spawn(sink::<u8>()).unwrap()).collect();
    pairs.iter().for_each(|[one, other]| runtime.send(one.address(), other.pid()).unwrap());
    for _ in 0..10 {
        let before = runtime.stats().messages.stepped;
        let snapshot = runtime.snapshot();
        assert_eq!(snapshot.types.iter().map(|one| one.living).sum::<u64>(), 20_016);
        until("the others go on", || runtime.stats().messages.stepped > before);
    }
    drop(idle);
}
