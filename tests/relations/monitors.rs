//! Monitors.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use procession::{Event, Events, Pid, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::support::node::*;

const WAYS: [(Way, &str); 3] =
    [(Way::Done, "done"), (Way::Fail, "failed: it failed"), (Way::Panic, "panicked: it panicked")];

#[test]
fn who_monitors_is_told_once_with_the_monitor_the_pid_and_the_exit() {
    let runtime = runtime(2);
    let watcher = node(&runtime);
    for (number, (way, text)) in WAYS.into_iter().enumerate() {
        let target = node(&runtime);
        watcher.does(&runtime, [Do::Monitor(target.pid())]);
        assert_eq!(watcher.heard.len(), number, "not before the end");
        target.ends(&runtime, way);
        assert_eq!(watcher.hears(number + 1)[number], Heard::Down(number, target.pid(), text.into()));
    }
    let target = node(&runtime);
    watcher.does(&runtime, [Do::Monitor(target.pid())]);
    runtime.terminate(target.pid()).unwrap();
    assert_eq!(watcher.hears(4)[3], Heard::Down(3, target.pid(), "terminated (terminated)".into()));
    watcher.settles(&runtime);
    watcher.hears(4);
}

#[test]
fn a_process_that_ends_and_monitors_another_in_one_step_is_told() {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let watcher = node(&runtime);
        for number in 0..500 {
            let target = node(&runtime);
            watcher.does(&runtime, [Do::EndAndMonitor(target.pid())]);
            let heard = watcher.hears(number + 1).pop().unwrap();
            let Heard::Down(of, pid, exit) = heard else { panic!("{heard:?}") };
            assert_eq!((of, pid), (number, target.pid()));
            assert!(["terminated (terminated)", "terminated (no such process)"].contains(&&*exit), "{exit}");
        }
    }
}

#[test]
fn a_watcher_outside_is_told_by_thread_and_as_a_future_and_may_give_up() {
    let runtime = runtime(1);
    for (way, text) in WAYS {
        let target = node(&runtime);
        let (blocking, mut future, given_up) =
            (runtime.watch(target.pid()), runtime.watch(target.pid()), runtime.watch(target.pid()));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
        assert!(blocking.wait_timeout(Duration::ZERO).is_err() && blocking.down().is_none());
        drop(given_up);
        target.ends(&runtime, way);
        let down = blocking.wait_timeout(LIMIT).unwrap();
        assert_eq!((down.pid, down.exit.to_string()), (target.pid(), text.into()));
        until("the future is ready", || Pin::new(&mut future).poll(&mut cx).is_ready());
        assert!(wait(runtime.watch(target.pid())).is_no_such_process(), "it has ended");
    }
}

#[test]
fn a_watcher_outside_hears_of_the_end_of_the_runtime() {
    let runtime = runtime(1);
    // It does not care that it is asked to stop.
    let target = runtime.spawn(script(|_: &mut Events<'_, ()>, _: &mut StepOutput| Ok(Step::<()>::Idle))).unwrap();
    let watch = runtime.watch(target.pid());
    drop((target, runtime));
    assert_eq!(watch.wait_timeout(LIMIT).unwrap().exit.to_string(), "terminated (shutdown)");
}

#[test]
fn a_monitor_of_an_absent_process_says_no_such_process_at_once() {
    let runtime = builder().workers(1).node(5).start().unwrap();
    let (watcher, ended) = (node(&runtime), node(&runtime));
    ended.ends(&runtime, Way::Done);
    let never: Pid = "<5.4000000.1>".parse().unwrap();
    let foreign: Pid = "<6.0.1>".parse().unwrap();
    for (number, pid) in [ended.pid(), never, foreign].into_iter().enumerate() {
        watcher.does(&runtime, [Do::Monitor(pid)]);
        let heard = watcher.hears(number + 1);
        assert_eq!(heard[number], Heard::Down(number, pid, "terminated (no such process)".into()));
        assert!(runtime.watch(pid).down().unwrap().is_no_such_process());
    }
}

#[test]
fn a_process_that_is_being_ended_can_still_be_monitored() {
    let runtime = runtime(2);
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let target = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        blocked.wait();
        Ok(Step::Done(()))
    }));
    let (target, watcher) = (target.unwrap(), node(&runtime));
    blocker.wait_begun();
    // It is told to end, and is in its last step.
    runtime.terminate(target.pid()).unwrap();
    watcher.does(&runtime, [Do::Monitor(target.pid())]);
    assert_eq!(watcher.heard.len(), 0);
    blocker.release();
    assert_eq!(watcher.hears(1), [Heard::Down(0, target.pid(), "terminated (terminated)".into())]);
}

#[test]
fn several_monitors_are_told_one_each_and_those_taken_back_are_not() {
    let runtime = runtime(2);
    let (watcher, target) = (node(&runtime), node(&runtime));
    watcher.does(&runtime, (0..5).map(|_| Do::Monitor(target.pid())));
    watcher.does(&runtime, [Do::Demonitor(1), Do::Demonitor(3), Do::Demonitor(3)]);
    target.ends(&runtime, Way::Done);
    // Nobody promises the order: numbers of monitors are those of the worker on which a step was.
    let numbers: BTreeSet<usize> = watcher
        .hears(3)
        .into_iter()
        .map(|heard| match heard {
            Heard::Down(number, ..) => number,
            Heard::Exit(..) | Heard::Recovered(..) => panic!("there is no link"),
        })
        .collect();
    assert_eq!(numbers, BTreeSet::from([0, 2, 4]));
    // One that has been told changes nothing.
    watcher.does(&runtime, [Do::Demonitor(0), Do::Monitor(target.pid())]);
    watcher.hears(4);
}

/// Takes its monitor back in a step before which, or during which, the target has ended.
#[test]
fn after_a_demonitor_nothing_comes_though_it_was_in_the_mailbox() {
    for arrives_in_step in [false, true] {
        for bounded in [false, true] {
            let runtime = builder().workers(2).step_events(1).start().unwrap();
            let target = node(&runtime);
            let pid = target.pid();
            let blocker = Blocker::new();
            let blocked = blocker.blocked();
            let downs = Arc::new(AtomicUsize::new(0));
            let (count, mut monitor, mut steps) = (downs.clone(), None, 0);
            let step = move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
                steps += 1;
                match (steps, monitor) {
                    (1, _) => {
                        monitor = Some(out.monitor(pid));
                        let _ = out.blocking(|| ());
                        return Ok(Step::Wait);
                    }
                    (2, Some(taken_back)) => {
                        // Performed; the target ends now, while this step runs or before the next one is begun.
                        blocked.wait();
                        if arrives_in_step {
                            out.demonitor(taken_back);
                        }
                        return Ok(if arrives_in_step { Step::Idle } else { Step::Continue });
                    }
                    (3, Some(taken_back)) if !arrives_in_step => {
                        // The event is at hand and is not taken.
                        out.demonitor(taken_back);
                        return Ok(Step::Idle);
                    }
                    _ => {}
                }
                for event in events {
                    match event {
                        Event::Down(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                        Event::Message(7) => return Ok(Step::Done(steps)),
                        _ => {}
                    }
                }
                Ok(Step::Idle)
            };
            let options = SpawnOptions::new();
            let options = if bounded { options.mailbox(8, procession::spawn::Overflow::Refuse) } else { options };
            let watcher = runtime.spawn_with(script(step), options).unwrap();
            blocker.wait_begun();
            target.ends(&runtime, Way::Fail);
            let told = runtime.watch(pid);
            assert!(told.wait_timeout(LIMIT).is_ok());
            blocker.release();
            until("it rests", || runtime.is_idle());
            runtime.send(watcher.address(), 7).unwrap();
            output(&watcher);
            assert_eq!(downs.load(Ordering::Relaxed), 0, "in step: {arrives_in_step}, bounded: {bounded}");
        }
    }
}

/// Many rounds of an end and a demonitor at the same time: the event comes before the demonitor, or never.
#[test]
fn an_end_and_a_demonitor_at_once_tell_before_or_never() {
    let runtime = runtime(2);
    for _ in 0..300 {
        let (watcher, target) = (node(&runtime), node(&runtime));
        watcher.does(&runtime, [Do::Monitor(target.pid())]);
        runtime.send(target.address(), Do::End(Way::Done)).unwrap();
        runtime.send(watcher.address(), Do::Demonitor(0)).unwrap();
        watcher.settles(&runtime);
        let before = watcher.heard.len();
        join(&target.handle);
        assert!(runtime.watch(target.pid()).wait_timeout(LIMIT).is_ok());
        until("both rest", || runtime.is_idle());
        assert_eq!(watcher.heard.len(), before, "nothing comes after the demonitor");
    }
}

#[test]
fn an_upgrade_keeps_monitors_in_both_directions() {
    let runtime = runtime(2);
    let (watcher, target) = (node(&runtime), node(&runtime));
    let (of, heard) = (target.pid(), Log::new());
    let log = heard.clone();
    let upgraded = runtime.spawn(script(move |_: &mut Events<'_, Do>, out: &mut StepOutput| {
        out.monitor(of);
        let log = log.clone();
        let next = script(move |events: &mut Events<'_, u8>, _: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Down(down) => log.push(down.pid),
                    Event::Message(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        });
        Ok(Step::<()>::Upgrade(procession::Upgrade::to(next)))
    }));
    let upgraded = upgraded.unwrap();
    watcher.does(&runtime, [Do::Monitor(upgraded.pid())]);
    until("it is upgraded", || runtime.is_idle());
    target.ends(&runtime, Way::Done);
    until("it hears of it", || heard.len() == 1);
    assert_eq!(watcher.heard.len(), 0, "an upgrade is no end");
    runtime.send(upgraded.pid(), 1_u8).unwrap();
    watcher.hears(1);
}

#[test]
fn a_failed_step_monitors_nobody_and_takes_nothing_back() {
    let runtime = runtime(1);
    let target = node(&runtime);
    let pid = target.pid();
    let monitors = runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.link(pid);
        out.monitor(pid);
        Err::<Step<()>, _>("no".into())
    }));
    join(&monitors.unwrap());
    target.settles(&runtime);
    assert!(!target.handle.is_finished(), "the link was not made");
}

/// So that the compiler sees that what is yielded is data: a process can be driven without a runtime.
#[test]
fn relations_can_be_driven_without_a_runtime() {
    use procession::testing::{Driver, Status};
    let pid: Pid = "<3.1.1>".parse().unwrap();
    let mut heard = Vec::new();
    let mut first = true;
    let mut driver = Driver::new(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::take(&mut first) {
            out.trap_exits(true);
            out.link(pid);
            let child = out.spawn_with(sink::<()>(), SpawnOptions::new().monitor())?;
            assert_eq!(child.monitor.unwrap().pid(), child.pid());
        }
        for event in events {
            match event {
                Event::Down(down) => heard.push(format!("down {}", down.exit)),
                Event::Exit(exit) => heard.push(format!("exit {}", exit.exit)),
                _ => {}
            }
        }
        Ok(if heard.len() == 2 { Step::Done(heard.clone()) } else { Step::Idle })
    }));
    assert_eq!(driver.run(), Status::Idle);
    assert!(driver.traps_exits());
    assert_eq!(driver.links(), [pid]);
    let child = driver.monitors()[0].pid();
    driver.ended(child, &procession::Exit::Done(())).ended(pid, &procession::Exit::Terminated("gone".into()));
    assert_eq!(driver.run(), Status::Ended);
    assert_eq!(**driver.exit().unwrap().output().unwrap(), ["down done", "exit terminated (gone)"]);
}

/// So many that looking through the mailbox for each of them would not come to an end.
#[test]
fn very_many_monitors_that_were_told_are_taken_back_at_once() {
    taken_back(false);
}

/// Also if there is something else between them.
#[test]
fn very_many_monitors_that_were_told_are_taken_back_one_by_one() {
    taken_back(true);
}

fn taken_back(one_by_one: bool) {
    const MANY: usize = 100_000;
    let (runtime, blocker, heard) = (runtime(2), Blocker::new(), Log::new());
    let ends = runtime.spawn(sink::<()>()).unwrap();
    let (of, blocked, hears) = (ends.pid(), blocker.blocked(), heard.clone());
    let mut monitors = Vec::new();
    let watcher = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if monitors.is_empty() {
            monitors = (0..MANY).map(|_| out.monitor(of)).collect();
            return Ok(Step::Continue);
        }
        if !blocked.has_begun() {
            blocked.wait();
            // The last of them first, and every tenth not.
            let back = monitors.iter().enumerate().rev().filter(|(number, _)| number % 10 != 0);
            for (_, monitor) in back {
                out.demonitor(*monitor);
                if one_by_one {
                    out.trap_exits(true);
                }
            }
            return Ok(Step::Continue);
        }
        for event in events {
            match event {
                Event::Down(down) => hears.push(down.monitor),
                Event::Cancel(_) => {
                    assert!(hears.to_vec().iter().eq(monitors.iter().step_by(10)), "in the order of the monitors");
                    return Ok(Step::Done(()));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    });
    let watcher = runtime.spawn(watcher).unwrap();
    blocker.wait_begun();
    runtime.cancel(ends.pid(), "enough").unwrap();
    // It is over for those who wait for it when all who monitor it are told.
    join(&ends);
    blocker.release();
    until("it has heard of the others", || heard.len() == MANY / 10);
    runtime.cancel(watcher.pid(), "enough").unwrap();
    assert!(join(&watcher).is_done());
}
