//! Recovery: what stays and what goes when a failed state machine is replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::command::{Command, Responder};
use procession::names::GroupChange;
use procession::supervisor::{ChildSpec, Supervisor};
use procession::sync::Latch;
use procession::{
    CommandError, Event, Events, Process, Reason, Reply, SpawnOptions, Step, StepOutput, StepResult, Tag,
};

use crate::helpers::*;
use crate::support::frail::{Order, frail};
use crate::support::node::{Do, Heard, Way, node, node_with};
use crate::support::worker::supervise;

const BEAT: Duration = Duration::from_millis(100);

/// Sets a timer in its first step, and again whenever one of its commands is answered. A message is a crash.
struct Heart {
    beats: Arc<AtomicUsize>,
    begun: bool,
}

impl Process for Heart {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if !std::mem::replace(&mut self.begun, true) {
            out.after(BEAT);
        }
        for event in events {
            match event {
                Event::Message(()) => return Err("a crash".into()),
                Event::Completed(_) => {
                    self.beats.fetch_add(1, Ordering::SeqCst);
                    out.after(BEAT);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_heartbeat_has_the_same_rate_and_one_timer_after_three_crashes() {
    let (clock, beats) = (ManualClock::new(), Arc::new(AtomicUsize::new(0)));
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let count = beats.clone();
    let spec = ChildSpec::in_place("heart", move || Heart { beats: count.clone(), begun: false });
    let boss = supervise(&runtime, Supervisor::builder().intensity(3, 1_000 * BEAT).child(spec).build().unwrap());
    let heart = boss.pid("heart");
    let advance = |beats: u32| {
        for _ in 0..2 * beats {
            clock.advance(BEAT / 2);
            until("the beat is counted", || runtime.is_idle());
        }
    };
    advance(10);
    assert_eq!(beats.load(Ordering::SeqCst), 10);
    for crash in 1..=3 {
        clock.advance(BEAT / 4);
        runtime.send(heart, ()).unwrap();
        boss.restarted("heart", crash);
        until("it has begun anew", || runtime.is_idle());
        assert_eq!(runtime.stats().timers, 1, "after {crash} crashes");
    }
    beats.store(0, Ordering::SeqCst);
    advance(10);
    assert_eq!(beats.load(Ordering::SeqCst), 10);
    assert_eq!((runtime.stats().timers, boss.pid("heart")), (1, heart));
    boss.stop();
}

/// Names itself, subscribes to a group and joins it in its first step. It writes down what it is told. A message is a
/// crash.
struct Member {
    told: Log<GroupChange>,
    named: Option<Tag<()>>,
}

impl Process for Member {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let me = out.pid();
        let named = *self.named.get_or_insert_with(|| {
            out.subscribe("crew");
            out.join_group("crew", me);
            out.register("member", me)
        });
        for event in events {
            match event {
                Event::Message(()) => return Err("a crash".into()),
                Event::Group(event) => self.told.push(event.change.clone()),
                Event::Completed(done) => done.take(named).transpose().map(drop)?,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_member_that_recovers_joins_and_subscribes_only_once() {
    let (runtime, told) = (runtime(2), Log::new());
    let log = told.clone();
    let spec = ChildSpec::in_place("member", move || Member { told: log.clone(), named: None });
    let boss = supervise(&runtime, Supervisor::builder().intensity(3, 1_000 * BEAT).child(spec).build().unwrap());
    let member = boss.pid("member");
    let watching = Log::new();
    let outside = crate::groups::mirror(&runtime, "crew", &watching);
    until("both have joined", || runtime.is_idle());
    for crash in 1..=3 {
        told.take();
        watching.take();
        runtime.send(member, ()).unwrap();
        boss.restarted("member", crash);
        until("it has begun anew", || runtime.is_idle());
        assert_eq!(runtime.group_members("crew"), [member], "after {crash} crashes");
        assert_eq!(runtime.whereis("member"), Some(member));
        assert_eq!(told.to_vec(), [GroupChange::Members(vec![]), GroupChange::Joined(member)]);
        assert_eq!(watching.to_vec(), [GroupChange::Left(member), GroupChange::Joined(member)]);
    }
    told.take();
    let other = node(&runtime);
    runtime.join_group("crew", other.pid()).unwrap();
    other.ends(&runtime, Way::Done);
    until("all is told", || runtime.is_idle());
    assert_eq!(told.to_vec(), [GroupChange::Joined(other.pid()), GroupChange::Left(other.pid())], "each change once");
    assert_eq!(boss.child("member").unwrap().restarts, 3, "the name that it has already was no failure");
    boss.stop();
    drop(outside);
}

fn trapping() -> SpawnOptions {
    SpawnOptions::new().trap_exits()
}

#[test]
fn a_recovery_ends_own_links_and_keeps_links_of_others() {
    let runtime = runtime(2);
    let (frail, parent) = (frail(&runtime, 2, SpawnOptions::new()), node_with(&runtime, trapping()));
    let pid = frail.pid();
    // There are two that it has linked itself to, one of which traps exits. One more has linked itself to it. And
    // there is one where both have.
    let (dies, told) = (node(&runtime), node_with(&runtime, trapping()));
    let both = node_with(&runtime, trapping());
    let made = [dies.pid(), told.pid(), both.pid()];
    frail.does(move |out| made.into_iter().for_each(|pid| out.link(pid)));
    frail.settles();
    parent.does(&runtime, [Do::Link(pid)]);
    both.does(&runtime, [Do::Link(pid)]);
    let child = Log::new();
    let born = child.clone();
    frail.does(move |out| born.push(out.spawn_with(sink::<()>(), SpawnOptions::new().link()).unwrap().pid()));
    frail.settles();
    let child = runtime.watch(child.take()[0]);
    frail.fails();
    // Its end names the process that goes on.
    for exit in [child.wait_timeout(LIMIT).unwrap().exit, join(&dies.handle).without_output()] {
        assert!(exit.to_string().contains(&format!("{pid}, which ended: failed: frail")), "{exit}");
    }
    assert_eq!(told.hears(1), [Heard::Exit(pid, "failed: frail".into())]);
    for one in [&parent, &both] {
        assert_eq!(one.hears(1), [Heard::Recovered(pid, "failed: frail".into())]);
    }
    assert!(runtime.is_alive(pid) && frail.heard.take().is_empty());
    // Links that the others have made hold in both directions.
    assert_eq!(both.ends(&runtime, Way::Done).to_string(), "done");
    frail.tell(Order::Fail);
    assert!(join(&frail.handle).without_output().to_string().contains("frail"));
    assert_eq!(parent.hears(2)[1], Heard::Exit(pid, "failed: frail".into()));
    assert_eq!(told.hears(1).len(), 1, "its link was gone");
}

#[test]
fn a_linker_ends_with_the_process_and_not_with_its_recovery() {
    let runtime = runtime(2);
    let (frail, linked) = (frail(&runtime, 2, SpawnOptions::new()), node(&runtime));
    linked.does(&runtime, [Do::Link(frail.pid())]);
    frail.fails();
    linked.settles(&runtime);
    assert!(!linked.handle.is_finished() && linked.heard.len() == 0);
    frail.tell(Order::Fail);
    assert!(join(&linked.handle).without_output().to_string().contains("frail"));
}

/// Both have made the link. Each takes what it has made with it when it fails, so the second one takes the last.
#[test]
fn a_mutual_link_ends_when_the_second_of_both_recovers() {
    let runtime = runtime(2);
    let [one, two] = [(); 2].map(|()| frail(&runtime, 3, trapping()));
    let pids = [one.pid(), two.pid()];
    one.does(move |out| out.link(pids[1]));
    two.does(move |out| out.link(pids[0]));
    two.settles();
    one.fails();
    until("the second is told of the recovery", || two.heard.take() == [format!("1: recovered {}", pids[0])]);
    two.fails();
    until("the first is told of the failure", || one.heard.take() == [format!("2: exit {}", pids[1])]);
    two.tell(Order::Done);
    join(&two.handle);
    one.settles();
    assert!(one.heard.take().is_empty() && two.heard.take().is_empty(), "nothing links them");
}

#[test]
fn monitors_that_a_failed_state_machine_set_go_and_monitors_of_it_stay() {
    let runtime = runtime(2);
    let (frail, target, watcher) = (frail(&runtime, 2, SpawnOptions::new()), node(&runtime), node(&runtime));
    let of = target.pid();
    frail.does(move |out| {
        out.monitor(of);
        out.monitor(out.pid());
    });
    watcher.does(&runtime, [Do::Monitor(frail.pid())]);
    frail.fails();
    target.ends(&runtime, Way::Done);
    watcher.settles(&runtime);
    frail.settles();
    assert!(frail.heard.take().is_empty() && watcher.heard.len() == 0);
    frail.tell(Order::Done);
    join(&frail.handle);
    assert_eq!(watcher.hears(1), [Heard::Down(0, frail.pid(), "done".into())]);
}

/// Everything comes while the step is held up that then fails, so it waits in the mailbox.
#[test]
fn what_waits_for_a_failed_state_machine_alone_is_not_told_the_next() {
    for bounded in [false, true] {
        let clock = ManualClock::new();
        let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
        let options = if bounded { trapping().mailbox(100, procession::spawn::Overflow::Refuse) } else { trapping() };
        let (frail, of_both, of_other) = (frail(&runtime, 2, options), node(&runtime), node(&runtime));
        let (monitored, linked) = (node(&runtime), node(&runtime));
        let keeper = crate::support::frail::frail(&runtime, 1, SpawnOptions::new());
        for other in [&of_both, &of_other] {
            other.does(&runtime, [Do::Link(frail.pid())]);
        }
        let (pids, asked) = ([monitored.pid(), linked.pid(), of_both.pid()], keeper.address());
        let blocker = Blocker::new();
        let blocked = blocker.blocked();
        frail.does(move |out| {
            out.monitor(pids[0]);
            out.link(pids[1]);
            out.link(pids[2]);
            out.subscribe("group");
            out.after(BEAT);
            out.ask(asked, |reply: Reply<()>| Order::Answer(reply), LIMIT);
        });
        frail.settles();
        until("the snapshot and the answer are taken", || frail.heard.len() == 2);
        frail.heard.take();
        // Asked and answered anew: that answer waits.
        let question = move |out: &mut StepOutput| {
            out.ask(asked, |reply: Reply<()>| Order::Answer(reply), LIMIT);
        };
        let waits = Latch::new();
        let wait_for_it = waits.clone();
        keeper.does(move |_| wait(&wait_for_it));
        frail.does(question);
        frail.settles();
        frail.does(move |_| {
            blocked.wait();
            panic!("held up, and broken");
        });
        blocker.wait_begun();
        waits.set(()).unwrap();
        keeper.settles();
        clock.advance(BEAT);
        runtime.join_group("group", keeper.pid()).unwrap();
        for one in [&monitored, &linked, &of_both, &of_other] {
            one.ends(&runtime, Way::Fail);
        }
        until("all ends are told", || runtime.stats().processes == 2);
        frail.tell(Order::Do(Box::new(|_| ())));
        blocker.release();
        frail.settles();
        let mut heard = frail.heard.take();
        heard.sort();
        let mut exits = [&of_both, &of_other].map(|other| format!("2: exit {}", other.pid()));
        exits.sort();
        assert_eq!(heard, exits, "bounded: {bounded}");
        assert_eq!(runtime.stats().discarded_answers, 2, "of the timer and the question");
        assert_accounted(&runtime);
    }
}

struct Held;

impl Command for Held {
    type Output = u32;
}

#[test]
fn answers_that_come_after_a_failure_are_late_and_never_reach_the_next() {
    let completions: Arc<Mutex<Vec<Responder<u32>>>> = Arc::default();
    let keep = completions.clone();
    let handler = move |_: Held, completion| {
        keep.lock().unwrap().push(completion);
        Ok(())
    };
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).handler::<Held, _>(handler).start().unwrap();
    let (frail, keeper) = (frail(&runtime, 3, SpawnOptions::new()), frail(&runtime, 1, SpawnOptions::new()));
    let (asked, begun, cancelled) = (keeper.address(), Latch::new(), Latch::new());
    let (begin, is_cancelled) = (begun.clone(), cancelled.clone());
    frail.does(move |out| {
        out.command(Held);
        out.after(BEAT);
        out.ask(asked, Order::Keep, 10 * BEAT);
        out.blocking_with(move |cancel| {
            let _ = begin.set(());
            let _kept = cancel.on_cancel(move |reason| drop(is_cancelled.set(reason.clone())));
            cancel.wait();
        });
    });
    frail.settles();
    wait(&begun);
    keeper.settles();
    assert_eq!(runtime.stats().timers, 2);
    frail.fails();
    assert_eq!(wait(&cancelled), Reason::Ended);
    assert_eq!(runtime.stats().timers, 0, "also that of the question");
    until("the work is done, for nobody", || runtime.stats().discarded_answers == 1);
    let completion = completions.lock().unwrap().pop().unwrap();
    assert!(completion.cancel().is_cancelled());
    completion.ok(7);
    assert_eq!((runtime.stats().discarded_answers, runtime.stats().late_replies), (2, 0));
    keeper.tell(Order::Done);
    join(&keeper.handle);
    clock.advance(100 * BEAT);
    frail.settles();
    assert!(frail.heard.take().is_empty());
    // Nothing is outstanding, so it may not wait; and what is its own comes.
    frail.does(|out| {
        out.blocking(|| ());
    });
    frail.tell(Order::Wait);
    until("its own answer comes", || frail.heard.take() == ["2: completed"]);
    frail.tell(Order::Wait);
    let exit = join(&frail.handle).without_output().to_string();
    assert!(exit.contains("no command of the process is outstanding"), "{exit}");
}

#[test]
fn a_reply_that_comes_after_the_asker_has_failed_is_late() {
    let runtime = runtime(2);
    let (frail, keeper) = (frail(&runtime, 2, SpawnOptions::new()), frail(&runtime, 1, SpawnOptions::new()));
    let (asked, kept): (_, Log<Reply<()>>) = (keeper.address(), Log::new());
    let keep = kept.clone();
    frail.does(move |out| {
        let question = move |reply: Reply<()>| {
            keep.push(reply);
            Order::Do(Box::new(|_| ()))
        };
        out.ask(asked, question, Duration::MAX);
    });
    frail.fails();
    assert!(!kept.take().remove(0).send(()), "nobody waits for it");
    assert_eq!((runtime.stats().late_replies, runtime.stats().discarded_answers), (1, 0));
    frail.settles();
    assert!(frail.heard.take().is_empty());
}

#[test]
fn asks_of_a_failed_step_are_not_sent_and_not_answered() {
    let runtime = runtime(1);
    let (frail, keeper) = (frail(&runtime, 2, SpawnOptions::new()), frail(&runtime, 1, SpawnOptions::new()));
    let asked = keeper.address();
    frail.does(move |out| {
        out.ask(asked, Order::Keep, LIMIT);
        // Its answer is given, and comes, before the step fails.
        out.ask(asked, |reply: Reply<u32>| Order::Do(Box::new(|_| drop(reply))), LIMIT);
        out.ask(
            asked,
            |reply: Reply<u32>| {
                drop(reply);
                Order::Fail
            },
            LIMIT,
        );
        panic!("asked");
    });
    frail.settles();
    let stats = runtime.stats();
    assert_eq!((stats.discarded_answers, stats.late_replies, stats.timers), (1, 0, 0));
    keeper.settles();
    assert!(frail.heard.take().is_empty(), "and the keeper was told nothing");
    frail.does(move |out| {
        out.ask(asked, |reply: Reply<()>| Order::Answer(reply), LIMIT);
    });
    until("its successor is answered", || frail.heard.take() == ["2: completed"]);
}

#[test]
fn askers_of_a_failed_process_get_the_error_dropped() {
    let runtime = runtime(2);
    let frail = frail(&runtime, 2, SpawnOptions::new());
    let answer = std::thread::scope(|scope| {
        let asks = scope.spawn(|| runtime.ask(frail.address(), Order::Keep, LIMIT).wait());
        until("it keeps the reply", || runtime.stats().messages.stepped == 1);
        frail.tell(Order::Fail);
        wait(asks).unwrap()
    });
    assert!(matches!(answer, Err(CommandError::Dropped)), "{answer:?}");
}

#[test]
fn whether_exits_are_trapped_is_again_as_the_spawn_options_say() {
    let runtime = runtime(2);
    for at_spawn in [false, true] {
        let frail = frail(&runtime, 2, if at_spawn { trapping() } else { SpawnOptions::new() });
        let linked = node(&runtime);
        frail.does(move |out| out.trap_exits(!at_spawn));
        frail.fails();
        linked.does(&runtime, [Do::Link(frail.pid())]);
        linked.ends(&runtime, Way::Fail);
        if at_spawn {
            until("it is told", || frail.heard.take() == [format!("2: exit {}", linked.pid())]);
        } else {
            assert!(join(&frail.handle).without_output().to_string().contains("it failed"));
        }
    }
}

#[test]
fn a_recovery_keeps_names_and_given_memberships_and_drops_own() {
    let runtime = runtime(2);
    let frail = frail(&runtime, 2, SpawnOptions::new().name("first").group("given"));
    let pid = frail.pid();
    runtime.join_group("other", pid).unwrap();
    frail.does(move |out| {
        out.register("second", pid);
        out.unregister("first");
        for group in ["given", "own", "own", "other"] {
            out.join_group(group, pid);
        }
        out.subscribe("given");
        out.subscribe("only subscribed");
    });
    frail.settles();
    let told = Log::new();
    let watching = crate::groups::mirror(&runtime, "own", &told);
    until("the snapshot is told", || told.take() == [GroupChange::Members(vec![pid, pid])]);
    assert_eq!(runtime.group_members("other"), [pid, pid]);
    frail.heard.take();
    frail.fails();
    assert_eq!((runtime.group_members("given"), runtime.group_members("other")), (vec![pid], vec![pid]));
    assert!(runtime.group_members("own").is_empty());
    until("both are told", || told.len() == 2);
    assert_eq!(told.take(), [GroupChange::Left(pid), GroupChange::Left(pid)]);
    assert_eq!((runtime.whereis("first"), runtime.whereis("second")), (None, Some(pid)), "as they were");
    let another = node(&runtime);
    ["given", "only subscribed"].into_iter().for_each(|group| runtime.join_group(group, another.pid()).unwrap());
    frail.settles();
    assert!(frail.heard.take().is_empty());
    frail.tell(Order::Done);
    join(&frail.handle);
    until("it has left", || runtime.group_members("given") == [another.pid()] && runtime.groups().len() == 2);
    drop(watching);
}
