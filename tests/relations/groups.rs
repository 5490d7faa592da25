//! Groups of processes.

use std::collections::BTreeMap;
use std::time::Duration;

use procession::names::{GroupChange, NameError, NoSuchProcessError};
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{
    EntryArgs, Event, Events, InitResult, Pid, Process, Runtime, SpawnError, SpawnOptions, Step, StepOutput, StepResult,
};

use crate::helpers::*;
use crate::support::frail::frail;
use crate::support::node::*;
use crate::support::worker::supervise;

#[test]
fn a_process_may_join_twice_and_leaves_all_groups_at_its_end() {
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
    assert_eq!(
        runtime.join_group("late", ended.pid()),
        Err(NameError::NoSuchProcess(NoSuchProcessError::Pid(ended.pid())))
    );
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
    assert_eq!(*output(&from_inside.unwrap()), 8, "all members");
    until("all is stepped", || runtime.is_idle());
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

/// Writes down what happens to a group, until it is asked to stop.
pub fn mirror(
    runtime: &Runtime,
    group: &'static str,
    seen: &Log<GroupChange>,
) -> procession::Handle<impl procession::Process<Message = ()>> {
    let (log, mut begun) = (seen.clone(), false);
    runtime
        .spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            let first = !std::mem::replace(&mut begun, true);
            let subscription = first.then(|| out.subscribe(group));
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
fn subscribers_see_each_change_once_from_their_snapshot_on() {
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
            let mirrors = scope.spawn(|| logs.iter().for_each(|log| drop(mirror(&runtime, "g", log))));
            // One by one: how a scope waits for its threads is hidden from the thread sanitizer.
            joins.into_iter().chain([mirrors]).for_each(|join| wait(join).unwrap());
        });
        until("all rests", || runtime.is_idle());
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
    until("it is taken back", || runtime.is_idle());
    runtime.join_group("g", node(&runtime).pid()).unwrap();
    runtime.send(subscriber.address(), ()).unwrap();
    output(&subscriber);
    assert_eq!(log.len(), 0);
}

#[test]
fn a_subscription_ends_with_its_process_and_makes_no_group() {
    let runtime = runtime(1);
    let log = Log::new();
    let subscriber = mirror(&runtime, "g", &log);
    until("it has the snapshot", || log.len() == 1);
    assert!(runtime.groups().is_empty(), "a group that is only subscribed to has no members");
    runtime.terminate(subscriber.pid()).unwrap();
    join(&subscriber);
    let member = node_with(&runtime, SpawnOptions::new());
    runtime.join_group("g", member.pid()).unwrap();
    assert_eq!(log.len(), 1);
}

/// Writes down who is in the group when its `init` runs, and in its first step. A message is a crash.
struct Joins {
    runtime: Runtime,
    fails: bool,
    seen: Log<Vec<Pid>>,
    begun: bool,
}

impl Joins {
    fn new(runtime: &Runtime, fails: bool, seen: &Log<Vec<Pid>>) -> Joins {
        Joins { runtime: runtime.clone(), fails, seen: seen.clone(), begun: false }
    }
}

impl Process for Joins {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.seen.push(self.runtime.group_members("g"));
        if self.fails { Err("no".into()) } else { Ok(()) }
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.begun, true) {
            self.seen.push(out.group_members("g"));
        }
        for event in events {
            match event {
                Event::Message(()) => return Err("a crash".into()),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn memberships_given_at_spawn_begin_after_init_and_before_the_first_step() {
    let (runtime, told, seen) = (runtime(2), Log::new(), Log::new());
    let watching = mirror(&runtime, "g", &told);
    until("the snapshot is told", || told.len() == 1);
    let options = || SpawnOptions::new().group("g").group("h").group("h");
    let outside = runtime.spawn_with(Joins::new(&runtime, false, &seen), options()).unwrap().pid();
    until("its first step", || seen.len() == 2);
    assert_eq!(runtime.group_members("h"), [outside; 2]);
    let children = Log::new();
    let (born, inner, log) = (children.clone(), runtime.clone(), seen.clone());
    let parent = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        born.push(out.spawn_with(Joins::new(&inner, false, &log), options())?.pid());
        out.spawn_with(Joins::new(&inner, true, &Log::new()), options())?;
        Ok(Step::Done(()))
    }));
    output(&parent.unwrap());
    until("the child's first step, and the end of the other", || seen.len() == 4 && runtime.stats().ended.failed == 1);
    let inside = children.take()[0];
    let mut both = vec![outside, inside];
    both.sort();
    assert_eq!(seen.take(), [vec![], vec![outside], vec![outside], both.clone()]);
    assert!(runtime.spawn_with(Joins::new(&runtime, true, &Log::new()), options()).is_err());
    assert_eq!(runtime.group_members("g"), both);
    until("all is told", || told.len() == 3);
    assert_eq!(told.take()[1..], [GroupChange::Joined(outside), GroupChange::Joined(inside)]);
    let refused = runtime.spawn_with(sink::<()>(), SpawnOptions::new().group("g").group("")).unwrap_err();
    assert!(matches!(refused.reason(), SpawnError::EmptyName));
    for pid in [outside, inside] {
        runtime.terminate(pid).unwrap();
    }
    until("they have left", || runtime.groups().is_empty());
    drop(watching);
}

#[test]
fn memberships_of_a_child_specification_survive_restarts() {
    for in_place in [false, true] {
        let (runtime, told) = (runtime(2), Log::new());
        let watching = mirror(&runtime, "g", &told);
        until("the snapshot is told", || told.len() == 1);
        let inner = runtime.clone();
        let make = move || Joins::new(&inner, false, &Log::new());
        let spec = if in_place { ChildSpec::in_place("j", make) } else { ChildSpec::new("j", make) };
        let spec = spec.options(|| SpawnOptions::new().group("g"));
        let second = Duration::from_secs(1);
        let boss = supervise(&runtime, Supervisor::builder().intensity(10, second).child(spec).build().unwrap());
        let first = boss.pid("j");
        for times in 1..=3 {
            runtime.send(boss.pid("j"), ()).unwrap();
            boss.restarted("j", times);
            assert_eq!(runtime.group_members("g"), [boss.pid("j")]);
        }
        assert_eq!(boss.pid("j") == first, in_place);
        until("all is told", || told.len() == if in_place { 2 } else { 8 });
        boss.stop();
        drop(watching);
    }
}

#[test]
fn a_step_leaves_its_own_membership_first_and_others_the_given() {
    let runtime = runtime(1);
    for by_itself in [true, false] {
        let frail = frail(&runtime, 2, SpawnOptions::new().group("g"));
        let pid = frail.pid();
        frail.does(move |out| {
            out.join_group("g", pid);
            if by_itself {
                out.leave_group("g", pid);
            }
        });
        frail.settles();
        if !by_itself {
            assert!(runtime.leave_group("g", pid));
        }
        assert_eq!(runtime.group_members("g"), [pid]);
        frail.fails();
        assert_eq!(runtime.group_members("g"), if by_itself { vec![pid] } else { vec![] });
        assert_eq!(runtime.leave_group("g", pid), by_itself);
        // Nothing is left of what it was given: it leaves what it joins.
        frail.does(move |out| {
            out.join_group("g", pid);
        });
        frail.settles();
        assert!(runtime.leave_group("g", pid) && runtime.groups().is_empty());
    }
}

#[test]
fn a_process_can_leave_a_group_that_it_was_given_at_its_spawn() {
    let runtime = runtime(1);
    for own in 0..3 {
        let frail = frail(&runtime, 1, SpawnOptions::new().group("g"));
        let pid = frail.pid();
        let joins = move |out: &mut StepOutput| _ = out.join_group("g", pid);
        let leaves = move |out: &mut StepOutput| _ = out.leave_group("g", pid);
        (0..own).for_each(|_| frail.does(joins));
        (0..own).for_each(|_| frail.does(leaves));
        frail.settles();
        assert_eq!(runtime.group_members("g"), [pid], "what it was given, after {own} of its own");
        frail.does(leaves);
        frail.settles();
        assert!(runtime.group_members("g").is_empty(), "after {own} of its own");
    }
}
