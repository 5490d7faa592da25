//! C. Groups.

use std::collections::BTreeMap;

use procession::{Event, Events, GroupChange, NameError, Pid, Runtime, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::node::*;

#[test]
fn a_process_joins_several_groups_and_one_several_times_and_leaves_each_when_it_ends() {
    let runtime = runtime(2);
    let (one, other) = (node(&runtime), node(&runtime));
    for group in ["red", "blue", "red"] {
        runtime.join_group(group, one.pid()).unwrap();
    }
    runtime.join_group("red", other.pid()).unwrap();
    assert_eq!(runtime.group_members("red"), [one.pid(), one.pid(), other.pid()]);
    assert_eq!(runtime.group_members("blue"), [one.pid()]);
    assert!(runtime.leave_group("red", one.pid()));
    assert_eq!(runtime.group_members("red"), [one.pid(), other.pid()], "it had joined twice");
    assert!(runtime.leave_group("red", one.pid()) && !runtime.leave_group("red", one.pid()));
    runtime.join_group("red", one.pid()).unwrap();
    one.ends(&runtime, Way::Fail);
    until("it has left", || runtime.group_members("red") == [other.pid()] && runtime.groups().len() == 1);
    other.ends(&runtime, Way::Done);
    until("nobody is left", || runtime.groups().is_empty());
}

#[test]
fn groups_without_members_and_names_that_cannot_be_are_defined() {
    let runtime = runtime(1);
    let ended = node(&runtime);
    ended.ends(&runtime, Way::Done);
    assert_eq!(runtime.broadcast("nobody", 1_u8), 0);
    assert!(runtime.group_members("nobody").is_empty() && !runtime.leave_group("nobody", ended.pid()));
    assert_eq!(runtime.join_group("late", ended.pid()), Err(NameError::NoSuchProcess { pid: ended.pid() }));
    assert_eq!(runtime.join_group("", node(&runtime).pid()), Err(NameError::Empty));
    assert!(runtime.groups().is_empty());
}

#[test]
fn a_broadcast_comes_once_to_each_process_of_the_group_and_to_nobody_else() {
    let runtime = runtime(2);
    let logs: Vec<(Log<u32>, Pid)> = (0..10)
        .map(|_| {
            let log = Log::new();
            let pid = runtime.spawn(recorder(&log)).unwrap().pid();
            (log, pid)
        })
        .collect();
    for (_, pid) in &logs[..7] {
        runtime.join_group("some", *pid).unwrap();
    }
    runtime.join_group("some", logs[0].1).unwrap();
    let deaf = runtime.spawn(sink::<String>()).unwrap();
    runtime.join_group("some", deaf.pid()).unwrap();
    assert_eq!(runtime.broadcast("some", 1_u32), 7, "one takes other messages");
    let from_inside = runtime
        .spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| Ok(Step::Done(out.broadcast("some", 2_u32)))));
    assert_eq!(*output(&from_inside.unwrap()), 8, "whoever is in it");
    until("all is stepped", || runtime.is_at_rest());
    for (number, (log, _)) in logs.iter().enumerate() {
        assert_eq!(log.to_vec(), if number < 7 { vec![1, 2] } else { vec![] });
    }
}

#[test]
fn a_process_joins_and_leaves_by_commands() {
    let runtime = runtime(1);
    let mut asked = None;
    let process = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        let me = out.pid();
        let (joined, left, again) =
            *asked.get_or_insert_with(|| (out.join_group("g", me), out.leave_group("g", me), out.leave_group("g", me)));
        for event in events {
            let Event::Completed(done) = event else { continue };
            if let Some(answer) = done.take(joined) {
                answer?;
            }
            if let Some(answer) = done.take(left) {
                assert!(answer?);
            }
            if let Some(answer) = done.take(again) {
                assert!(!answer?);
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Wait)
    }));
    output(&process.unwrap());
    assert!(runtime.groups().is_empty());
}

/// Keeps the members of a group as its events tell them; says so when asked to stop.
fn mirror(runtime: &Runtime, seen: &Log<GroupChange>) -> procession::Handle<impl procession::Process<Message = ()>> {
    let (log, mut begun) = (seen.clone(), false);
    runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            let first = !std::mem::replace(&mut begun, true);
            let subscription = first.then(|| out.subscribe("g"));
            for event in events {
                match event {
                    Event::Group(event) => log.push(event.change.clone()),
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            drop(subscription);
            Ok(Step::Idle)
        }))
        .unwrap()
}

/// The members that the events of a subscription come to; that they are possible is checked on the way.
fn replay(changes: &[GroupChange]) -> BTreeMap<Pid, usize> {
    let mut members = BTreeMap::new();
    for (place, change) in changes.iter().enumerate() {
        match change {
            GroupChange::Members(pids) => {
                assert_eq!(place, 0, "the snapshot comes first, and once");
                pids.iter().for_each(|pid| *members.entry(*pid).or_default() += 1);
            }
            GroupChange::Joined(pid) => *members.entry(*pid).or_default() += 1,
            GroupChange::Left(pid) => {
                let times = members.get_mut(pid).expect("it is told of none that leaves and was not there");
                *times -= 1;
                if *times == 0 {
                    members.remove(pid);
                }
            }
            _ => {}
        }
        assert!(place > 0 || matches!(change, GroupChange::Members(_)));
    }
    members
}

/// Members join, leave and end on several threads while subscriptions begin: each subscriber comes to the same members.
#[test]
fn subscribers_see_each_join_and_leave_once_from_a_snapshot_without_gap_or_double() {
    for round in 0..10 {
        let runtime = runtime(2);
        let logs: Vec<Log<GroupChange>> = (0..6).map(|_| Log::new()).collect();
        let (stay, go): (Vec<_>, Vec<_>) =
            (0..40).map(|_| runtime.spawn(sink::<()>()).unwrap()).enumerate().partition(|(n, _)| n % 2 == 0);
        std::thread::scope(|scope| {
            let joins = [&stay, &go].map(|half| {
                let runtime = runtime.clone();
                scope.spawn(move || {
                    for (n, process) in half {
                        runtime.join_group("g", process.pid()).unwrap();
                        runtime.join_group("g", process.pid()).unwrap();
                        if n % 3 == 0 {
                            assert!(runtime.leave_group("g", process.pid()));
                        }
                        if n % 2 == 1 {
                            runtime.terminate(process.pid()).unwrap();
                        }
                    }
                })
            });
            let mirrors = scope.spawn(|| logs.iter().for_each(|log| drop(mirror(&runtime, log))));
            // One by one: how a scope waits for its threads is hidden from the thread sanitizer.
            joins.into_iter().chain([mirrors]).for_each(|join| wait(join).unwrap());
        });
        until("all rests", || runtime.is_at_rest());
        let expected = stay.iter().map(|(n, process)| (process.pid(), if n % 3 == 0 { 1 } else { 2 })).collect();
        for log in &logs {
            assert_eq!(replay(&log.to_vec()), expected, "round {round}");
        }
        assert_eq!(runtime.group_members("g").len(), expected.values().sum::<usize>());
    }
}

#[test]
fn a_subscription_that_is_taken_back_tells_nothing_more() {
    let runtime = runtime(1);
    let (log, mut steps) = (Log::new(), 0);
    let seen = log.clone();
    let mut subscription = None;
    let subscriber = runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        steps += 1;
        match steps {
            1 => {
                subscription = Some(out.subscribe("g"));
                return Ok(Step::Continue);
            }
            // The snapshot is in the mailbox and is not taken.
            2 => {
                subscription.take().into_iter().for_each(|one| out.unsubscribe(one));
                return Ok(Step::Idle);
            }
            _ => {}
        }
        for event in events {
            match event {
                Event::Group(event) => seen.push(event.change.clone()),
                Event::Message(()) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }));
    let subscriber = subscriber.unwrap();
    until("it is taken back", || runtime.is_at_rest());
    runtime.join_group("g", node(&runtime).pid()).unwrap();
    runtime.send(subscriber.address(), ()).unwrap();
    output(&subscriber);
    assert_eq!(log.len(), 0);
}

#[test]
fn a_subscriber_that_ends_leaves_nothing_behind_and_a_group_of_its_name_is_nobodys() {
    let runtime = runtime(1);
    let log = Log::new();
    let subscriber = mirror(&runtime, &log);
    until("it has the snapshot", || log.len() == 1);
    assert!(runtime.groups().is_empty(), "a group that is only subscribed to has no members");
    runtime.terminate(subscriber.pid()).unwrap();
    join(&subscriber);
    let member = node_with(&runtime, SpawnOptions::new());
    runtime.join_group("g", member.pid()).unwrap();
    assert_eq!(log.len(), 1);
}
