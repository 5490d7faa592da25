//! Links.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::sync::Latch;
use procession::{
    EntryArgs, Event, Events, Exit, InitResult, Pid, Process, Reason, SpawnOptions, Step, StepOutput, StepResult,
};

use crate::helpers::*;
use crate::support::frail::{Frail, Order, frail};
use crate::support::node::{Do, Heard, Way, node, node_with};

/// The process that ended first, and its exit, for a process that was ended through a link.
pub fn first(exit: &Exit) -> (Pid, String) {
    match exit {
        Exit::Terminated(Reason::Linked(linked)) => (linked.pid(), linked.exit().to_string()),
        other => panic!("it was not ended through a link: {other}"),
    }
}

#[test]
fn an_abnormal_end_ends_the_linked_with_its_pid_and_reason() {
    let runtime = runtime(2);
    for (way, text) in [(Way::Fail, "failed: it failed"), (Way::Panic, "panicked: it panicked")] {
        for linker_ends in [false, true] {
            let (one, other) = (node(&runtime), node(&runtime));
            one.does(&runtime, [Do::Link(other.pid())]);
            let (ends, follows) = if linker_ends { (one, other) } else { (other, one) };
            ends.ends(&runtime, way);
            let exit = join(&follows.handle).without_output();
            assert_eq!(first(&exit), (ends.pid(), text.into()));
            assert_eq!(exit.to_string(), format!("terminated (linked to {}, which ended: {text})", ends.pid()));
        }
    }
    let (one, other) = (node(&runtime), node(&runtime));
    one.does(&runtime, [Do::Link(other.pid())]);
    runtime.terminate(other.pid()).unwrap();
    assert_eq!(first(&join(&one.handle).without_output()), (other.pid(), "terminated (terminated)".into()));
}

#[test]
fn a_normal_end_is_an_event_only_for_linked_that_trap_exits() {
    let runtime = runtime(2);
    let (ends, plain, traps) = (node(&runtime), node(&runtime), node(&runtime));
    traps.does(&runtime, [Do::Trap(true), Do::Link(ends.pid())]);
    plain.does(&runtime, [Do::Link(ends.pid())]);
    ends.ends(&runtime, Way::Done);
    assert_eq!(traps.hears(1), [Heard::Exit(ends.pid(), "done".into())]);
    plain.settles(&runtime);
    assert!(!plain.handle.is_finished() && plain.heard.len() == 0);
}

#[test]
fn one_that_traps_exits_is_told_and_lives_on_until_it_traps_no_more() {
    let runtime = runtime(2);
    let traps = node_with(&runtime, SpawnOptions::new().trap_exits());
    for (number, way) in [Way::Fail, Way::Panic].into_iter().enumerate() {
        let ends = node(&runtime);
        ends.does(&runtime, [Do::Link(traps.pid())]);
        let exit = ends.ends(&runtime, way);
        assert_eq!(traps.hears(number + 1)[number], Heard::Exit(ends.pid(), exit.to_string()));
    }
    let ends = node(&runtime);
    traps.does(&runtime, [Do::Link(ends.pid()), Do::Trap(false)]);
    ends.ends(&runtime, Way::Fail);
    assert_eq!(first(&join(&traps.handle).without_output()).0, ends.pid());
}

#[test]
fn a_link_made_twice_is_one_and_a_needless_unlink_does_nothing() {
    let runtime = runtime(2);
    let (one, other, third) = (node(&runtime), node(&runtime), node(&runtime));
    one.does(&runtime, [Do::Trap(true), Do::Link(other.pid()), Do::Link(other.pid()), Do::Unlink(third.pid())]);
    other.does(&runtime, [Do::Link(one.pid()), Do::Link(other.pid())]);
    other.ends(&runtime, Way::Fail);
    one.hears(1);
    // One unlinking is enough for any number of linkings, and either may do it.
    let other = node(&runtime);
    one.does(&runtime, [Do::Link(other.pid()), Do::Link(other.pid())]);
    other.does(&runtime, [Do::Unlink(one.pid())]);
    other.ends(&runtime, Way::Fail);
    one.settles(&runtime);
    one.hears(1);
    third.ends(&runtime, Way::Panic);
    one.settles(&runtime);
    one.hears(1);
}

/// The exit event is in the mailbox when the step that takes the link away is over.
#[test]
fn after_unlinking_no_exit_event_comes_though_it_was_in_the_mailbox() {
    let runtime = runtime(2);
    let target = node(&runtime);
    let (pid, blocker) = (target.pid(), Blocker::new());
    let (blocked, mut steps) = (blocker.blocked(), 0);
    let unlinks = runtime.spawn_with(
        script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            steps += 1;
            match steps {
                1 => {
                    out.link(pid);
                    return Ok(Step::Continue);
                }
                2 => {
                    blocked.wait();
                    out.unlink(pid);
                    return Ok(Step::Idle);
                }
                _ => {}
            }
            let exits = events.filter(|event| matches!(event, Event::Exit(_))).count();
            Ok(Step::Done(exits))
        }),
        SpawnOptions::new().trap_exits(),
    );
    let unlinks = unlinks.unwrap();
    blocker.wait_begun();
    target.ends(&runtime, Way::Fail);
    assert!(runtime.watch(pid).wait_timeout(LIMIT).is_ok());
    blocker.release();
    until("it rests", || runtime.is_idle());
    runtime.send(unlinks.address(), ()).unwrap();
    assert_eq!(*output(&unlinks), 0);
}

/// Keeps the worker of the yielding process until the latch is set.
struct Hold(Latch<()>);

impl Command for Hold {
    type Output = ();
}

/// It is linked after the unlinking, by the other one, and ends before the step's yields are all performed.
#[test]
fn a_link_made_after_an_unlink_in_the_same_step_is_reported() {
    let builder = builder().workers(2).step_events(1).handler(|hold: Hold, completion: Responder<()>| {
        wait(&hold.0);
        completion.complete(Ok::<_, procession::BoxError>(()));
        Ok(())
    });
    let runtime = builder.start().unwrap();
    let (other, over) = (node(&runtime), Latch::new());
    let (to, is_finished) = (other.address(), over.clone());
    let unlinks = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| match events.next() {
        Some(Event::Message(())) => {
            out.unlink(to.pid());
            out.send(to, Do::Link(out.pid()));
            out.send(to, Do::End(Way::Fail));
            out.command(Hold(is_finished.clone()));
            Ok(Step::Idle)
        }
        Some(Event::Exit(exit)) => Ok(Step::Done(exit.pid)),
        _ => Ok(Step::Idle),
    });
    let unlinks = runtime.spawn_with(unlinks, SpawnOptions::new().trap_exits()).unwrap();
    // It has a greater PID, and so is told of the other's end later.
    let later = node_with(&runtime, SpawnOptions::new().trap_exits());
    assert!(later.pid() > unlinks.pid());
    later.does(&runtime, [Do::Link(other.pid())]);
    runtime.send(unlinks.address(), ()).unwrap();
    later.hears(1);
    over.set(()).unwrap();
    assert_eq!(*output(&unlinks), other.pid());

    // And one that is made anew by the process itself, to one that has ended.
    let ended = other.pid();
    let mut steps = 0;
    let links = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        steps += 1;
        if steps == 1 {
            out.trap_exits(true);
            out.link(ended);
            out.unlink(ended);
            out.link(ended);
            out.send(out.pid(), ());
            return Ok(Step::Idle);
        }
        let told = events.filter(|event| matches!(event, Event::Exit(_))).count();
        Ok(if steps == 2 { Step::Done(told) } else { Step::Idle })
    });
    let links = runtime.spawn(links).unwrap();
    assert_eq!(*output(&links), 1);
}

#[test]
fn linking_to_an_ended_process_is_an_exit_that_says_so() {
    let runtime = runtime(1);
    let (plain, traps, ended) = (node(&runtime), node(&runtime), node(&runtime));
    ended.ends(&runtime, Way::Done);
    traps.does(&runtime, [Do::Trap(true), Do::Link(ended.pid())]);
    assert_eq!(traps.hears(1), [Heard::Exit(ended.pid(), "terminated (no such process)".into())]);
    runtime.send(plain.address(), Do::Link(ended.pid())).unwrap();
    let exit = join(&plain.handle).without_output();
    assert_eq!(first(&exit), (ended.pid(), "terminated (no such process)".into()));
}

#[test]
fn a_process_ended_by_a_link_is_closed_and_not_stepped_again() {
    let runtime = runtime(2);
    // In a step, and then about to rest; blocked; waiting for a thread of the pool is covered by `terminate`.
    let ends = node(&runtime);
    let pid = ends.pid();
    let blocker = Blocker::new();
    let (in_step, mut steps) = (blocker.blocked(), 0);
    let held = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        steps += 1;
        assert!(steps <= 2, "it is not stepped again");
        if steps == 1 {
            out.link(pid);
            return Ok(Step::Continue);
        }
        in_step.wait();
        Ok(Step::<()>::Continue)
    }));
    let held = held.unwrap();
    blocker.wait_begun();
    let blocked = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.link(pid);
        out.after(std::time::Duration::MAX);
        Ok(Step::<()>::Wait)
    }));
    let blocked = blocked.unwrap();
    until("it waits", || runtime.process_state(blocked.pid()) == Some(procession::observe::ProcessState::Blocked));
    ends.ends(&runtime, Way::Fail);
    assert_eq!(first(&join(&blocked).without_output()).0, pid);
    blocker.release();
    assert_eq!(first(&join(&held).without_output()).0, pid);
}

/// Ends as soon as it can.
struct Mayfly(&'static str);

impl Process for Mayfly {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        if self.0 == "init" { Err("in init".into()) } else { Ok(()) }
    }

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        match self.0 {
            "fails" => Err("in its first step".into()),
            _ => Ok(Step::Done(())),
        }
    }
}

#[test]
fn a_child_that_is_monitored_or_linked_from_birth_cannot_end_unnoticed() {
    const ROUNDS: usize = 200;
    let runtime = runtime(2);
    runtime.spawn_with(sink::<()>(), SpawnOptions::new().name("taken")).unwrap();
    let (mut downs, mut exits, mut begun) = (Vec::new(), Vec::new(), false);
    let step = move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            for _ in 0..ROUNDS {
                for way in ["done", "fails", "init"] {
                    out.spawn_with(Mayfly(way), SpawnOptions::new().monitor())?;
                    out.spawn_with(Mayfly(way), SpawnOptions::new().link())?;
                }
                out.spawn_with(Mayfly("done"), SpawnOptions::new().name("taken").monitor())?;
                out.spawn_with(Mayfly("done"), SpawnOptions::new().name("taken").link())?;
            }
        }
        for event in events {
            match event {
                Event::Down(down) => downs.push(down.exit.to_string()),
                Event::Exit(exit) => exits.push(exit.exit.to_string()),
                _ => {}
            }
        }
        let all = downs.len() == 4 * ROUNDS && exits.len() == 4 * ROUNDS;
        Ok(if all { Step::Done([downs.clone(), exits.clone()]) } else { Step::Idle })
    };
    let parent = runtime.spawn_with(script(step), SpawnOptions::new().trap_exits()).unwrap();
    for heard in output(&parent).iter() {
        for text in ["done", "failed: in its first step", "failed: in init", "failed: the name \"taken\" is taken by"] {
            assert_eq!(heard.iter().filter(|exit| exit.starts_with(text)).count(), ROUNDS, "{text}");
        }
    }
}

#[test]
fn a_child_that_fails_at_once_takes_its_parent_with_it() {
    for _ in 0..100 {
        let runtime = runtime(2);
        let parent = runtime.spawn(script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.spawn_with(Mayfly("fails"), SpawnOptions::new().link())?;
            Ok(Step::<()>::Idle)
        }));
        assert_eq!(first(&join(&parent.unwrap()).without_output()).1, "failed: in its first step");
    }
}

#[test]
fn an_upgrade_keeps_links_and_everything_else_of_a_process() {
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let (process, keeper) = (frail(&runtime, 1, SpawnOptions::new()), frail(&runtime, 1, SpawnOptions::new()));
    let (linked, monitored) = (node(&runtime), node(&runtime));
    let linker = node_with(&runtime, SpawnOptions::new().trap_exits());
    let (pid, to, of, asked) = (process.pid(), linked.pid(), monitored.pid(), keeper.address());
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    process.does(move |out| {
        out.trap_exits(true);
        out.link(to);
        out.monitor(of);
        out.join_group("own", pid);
        out.subscribe("group");
        out.register("own", pid);
        out.after(Duration::from_secs(1));
        out.ask(asked, Order::Keep, Duration::from_secs(2));
        out.blocking(move || blocked.wait());
    });
    process.settles();
    linker.does(&runtime, [Do::Link(pid)]);
    blocker.wait_begun();
    until("the first answers are taken", || process.heard.len() == 3);
    process.heard.take();
    process.tell(Order::Upgrade(Frail::new(1, &process.heard).numbered(2)));
    process.settles();
    assert_eq!((runtime.group_members("own"), runtime.whereis("own")), (vec![pid], Some(pid)));
    let hears = |what: String| until(&what, || process.heard.take() == [format!("2: {what}")]);
    runtime.join_group("group", keeper.pid()).unwrap();
    hears("joined".into());
    linked.ends(&runtime, Way::Fail);
    hears(format!("exit {to}"));
    monitored.ends(&runtime, Way::Fail);
    hears(format!("down {of}"));
    blocker.release();
    hears("completed".into());
    for _ in 0..2 {
        clock.advance(Duration::from_secs(1));
        hears("completed".into());
    }
    assert_eq!((linker.heard.len(), runtime.stats().discarded_answers), (0, 0));
    process.tell(Order::Fail);
    assert_eq!(linker.hears(1), [Heard::Exit(pid, "failed: frail".into())]);
}
