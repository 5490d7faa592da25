//! Recoveries: events that no step has taken, or that the failing step has taken.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::config::Watchdog;
use procession::observe::{Observer, ProcessIdentity};
use procession::supervisor::{Backoff, ChildSpec, ChildState, Supervisor};
use procession::sync::Latch;
use procession::{Event, Events, Pid, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Upgrade};

use crate::helpers::*;
use crate::support::frail::{Order, frail};
use crate::support::node::{Do, Way, node};
use crate::support::worker::supervise;

const BEAT: Duration = Duration::from_millis(100);

/// A successor that writes down what it is told.
fn recovering(told: &Log<&'static str>) -> SpawnOptions {
    let told = told.clone();
    SpawnOptions::new().trap_exits().recover_with(move |_| Some(Upgrade::to(listener(&told))))
}

fn listener(told: &Log<&'static str>) -> impl Process<Message = (), Output = ()> {
    let told = told.clone();
    script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
        for event in events {
            told.push(match event {
                Event::Exit(_) => "an exit",
                Event::Completed(_) => "an answer",
                _ => "something else",
            });
        }
        Ok(Step::Idle)
    })
}

#[test]
fn what_a_failing_step_was_given_and_has_not_taken_is_not_told_the_next() {
    for given in ["an answer", "a down event", "an exit", "a group"] {
        let (clock, told) = (ManualClock::new(), Log::new());
        let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
        let other = node(&runtime);
        let (of, mut begun) = (other.pid(), false);
        let fails = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
            if std::mem::replace(&mut begun, true) {
                return Err("it takes nothing".into());
            }
            match given {
                "an answer" => drop(out.after(BEAT)),
                "a down event" => drop(out.monitor(of)),
                "an exit" => out.link(of),
                _ => drop(out.subscribe("group")),
            }
            Ok(Step::Idle)
        });
        let process = runtime.spawn_with(fails, recovering(&told)).unwrap();
        until("it has begun", || runtime.process(process.pid()).is_some_and(|info| info.steps > 0));
        until("it has begun, and what it wants is done", || runtime.is_idle());
        clock.advance(BEAT);
        other.ends(&runtime, Way::Done);
        until("it has failed", || runtime.process(process.pid()).is_some_and(|info| info.steps >= 3));
        until("its successor has made a step", || runtime.is_idle());
        assert_eq!(told.take(), [""; 0], "{given}");
        assert_eq!(runtime.stats().discarded_answers, u64::from(given == "an answer"), "{given}");
    }
}

/// The exit of a process that has linked itself to the failing one waits behind two answers. The step that fails
/// takes one of them, and the other one is never told.
#[test]
fn an_exit_that_waits_behind_an_answer_to_the_failed_one_is_told_the_next() {
    let (runtime, told, mut replies, has_ended) = (runtime(2), Log::new(), Vec::new(), Latch::new());
    let answers = script(move |events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
        while let Some(Event::Message(reply)) = events.next() {
            out.link(events.sender().unwrap());
            replies.push(reply);
        }
        if replies.len() < 2 {
            return Ok(Step::<()>::Idle);
        }
        replies.drain(..).for_each(|reply| out.reply(reply, ()));
        Ok(Step::Done(()))
    });
    let answers = runtime.spawn(answers).unwrap();
    let (asked, mut steps, all_is_there) = (answers.address(), 0, has_ended.clone());
    let fails = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| -> StepResult<()> {
        steps += 1;
        match steps {
            1 => {
                for _ in 0..2 {
                    out.ask(asked, |reply| reply, LIMIT);
                }
            }
            // It is held up until all has come, and takes nothing.
            2 => wait(&all_is_there),
            _ => {
                assert!(matches!(events.next(), Some(Event::Completed(_))));
                return Err("it takes one answer".into());
            }
        }
        Ok(Step::Continue)
    });
    let _process = runtime.spawn_with(fails, recovering(&told)).unwrap();
    join(&answers);
    has_ended.set(()).unwrap();
    until("its successor is told", || told.len() > 0 && runtime.is_idle());
    assert_eq!(told.take(), ["an exit"]);
    assert_eq!(runtime.stats().discarded_answers, 1);
}

/// The process that unlinks is held up in a step. So the exit is in its mailbox, and is not taken.
#[test]
fn after_an_unlink_only_the_exit_of_a_later_link_is_told() {
    for links_first in [false, true] {
        let (runtime, heard) = (runtime(2), Log::new());
        let frail = frail(&runtime, 3, SpawnOptions::new());
        let (blocker, pid, log) = (Blocker::new(), frail.pid(), heard.clone());
        let blocked = blocker.blocked();
        let watcher = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(()) => {
                        blocked.wait();
                        if links_first {
                            out.link(pid);
                        }
                        out.unlink(pid);
                    }
                    Event::Exit(exit) => log.push(exit.exit.to_string()),
                    _ => {}
                }
            }
            Ok(Step::<()>::Idle)
        });
        let watcher = runtime.spawn_with(watcher, SpawnOptions::new().trap_exits()).unwrap();
        let to = watcher.pid();
        frail.does(move |out| out.link(to));
        frail.settles();
        runtime.send(watcher.address(), ()).unwrap();
        blocker.wait_begun();
        frail.fails();
        blocker.release();
        until("it has unlinked", || runtime.is_idle());
        assert_eq!(heard.take(), [""; 0], "links first: {links_first}");
        frail.does(move |out| out.link(to));
        frail.fails();
        until("it is told", || heard.len() == 1);
        assert_eq!(heard.take(), ["failed: frail"]);
    }
}

/// Stops in the hook that is told of the spawn of the process with this name.
struct StopsAtSpawn(Blocked);

impl Observer for StopsAtSpawn {
    fn spawned(&self, process: &ProcessIdentity) {
        if process.name.as_deref() == Some("stops") {
            self.0.wait();
        }
    }
}

/// The other process links itself and fails while the yields after the unlink are performed.
#[test]
fn the_exit_of_a_link_made_after_an_unlink_is_told() {
    let (blocker, heard) = (Blocker::new(), Log::new());
    let runtime = builder().workers(2).observer(StopsAtSpawn(blocker.blocked())).start().unwrap();
    let frail = frail(&runtime, 3, SpawnOptions::new());
    frail.fails();
    let (pid, log) = (frail.pid(), heard.clone());
    let watcher = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(()) => {
                    out.unlink(pid);
                    out.spawn_with(sink::<()>(), SpawnOptions::new().name("stops"))?;
                }
                Event::Exit(exit) => log.push(exit.exit.to_string()),
                _ => {}
            }
        }
        Ok(Step::<()>::Idle)
    });
    let watcher = runtime.spawn_with(watcher, SpawnOptions::new().trap_exits()).unwrap();
    let to = watcher.pid();
    runtime.send(watcher.address(), ()).unwrap();
    blocker.wait_begun();
    frail.does(move |out| out.link(to));
    frail.fails();
    blocker.release();
    until("all is told", || runtime.is_idle());
    assert_eq!(heard.take(), ["failed: frail"]);
}

/// One linked process ends before the step has failed, and the other one in the delay, in which it has sent something.
#[test]
fn exits_before_and_in_a_restart_delay_come_after_it_in_order() {
    for bounded in [false, true] {
        let (clock, told, blocker) = (ManualClock::new(), Log::new(), Blocker::new());
        let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
        let (log, blocked) = (told.clone(), blocker.blocked());
        let make = move || {
            let (log, blocked) = (log.clone(), blocked.clone());
            script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
                for event in events {
                    match event {
                        Event::Message(0) => {
                            blocked.wait();
                            return Err("it is told so".into());
                        }
                        Event::Message(number) => log.push(format!("message {number}")),
                        Event::Exit(exit) => log.push(format!("exit {}", exit.pid)),
                        Event::Cancel(_) => return Ok(Step::Done(())),
                        _ => log.push(String::from("something else")),
                    }
                }
                Ok(Step::Idle)
            })
        };
        let options = move || {
            let options = SpawnOptions::new().trap_exits();
            if bounded { options.mailbox(1, procession::spawn::Overflow::Refuse) } else { options }
        };
        let supervisor = Supervisor::builder()
            .intensity(10, Duration::from_secs(1))
            .backoff(Backoff::exponential(BEAT, BEAT))
            .child(ChildSpec::in_place("child", make).options(options));
        let boss = supervise(&runtime, supervisor.build().unwrap());
        let child: Pid = boss.pid("child");
        let early = node(&runtime);
        early.does(&runtime, [Do::Link(child)]);
        runtime.send(child, 0_u32).unwrap();
        blocker.wait_begun();
        early.ends(&runtime, Way::Fail);
        blocker.release();
        until("it waits for its delay", || {
            boss.child("child").unwrap().state == ChildState::Delayed && runtime.is_idle()
        });
        let late = script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.link(child);
            out.send(child, 1_u32);
            Ok(Step::Done(()))
        });
        let late = runtime.spawn(late).unwrap();
        join(&late);
        until("its end is told", || runtime.is_idle());
        assert_eq!(told.take(), [""; 0], "bounded: {bounded}");
        clock.advance(BEAT);
        boss.restarted("child", 1);
        until("the next has made a step", || runtime.is_idle());
        let exits = [early.pid(), late.pid()].map(|pid| format!("exit {pid}"));
        assert_eq!(told.take(), [&exits[0], "message 1", &exits[1]], "bounded: {bounded}");
        boss.stop();
    }
}

#[test]
fn a_taken_request_to_stop_is_remembered_over_busy_steps() {
    for (watched, messages) in [(false, 4), (true, 0), (true, 4)] {
        let builder = builder().workers(1);
        let builder = if watched { builder.watchdog(Watchdog::after(LIMIT)) } else { builder };
        let runtime = builder.start().unwrap();
        let frail = frail(&runtime, 2, SpawnOptions::new());
        runtime.cancel(frail.pid(), "enough").unwrap();
        until("it has taken the request", || frail.heard.len() == 1 && runtime.is_idle());
        // It has the only worker next, and all of these in one step.
        let (holder, blocker) = hold_up(&runtime);
        (0..messages).for_each(|_| frail.does(|_| ()));
        blocker.release();
        output(&holder);
        until("it has stepped them", || runtime.is_idle());
        frail.tell(Order::Fail);
        until("its step has failed", || runtime.is_idle());
        assert!(frail.handle.is_finished(), "it was asked to stop; with a watchdog: {watched}, messages: {messages}");
        assert_eq!(frail.heard.take(), ["1: cancel"]);
    }
}
