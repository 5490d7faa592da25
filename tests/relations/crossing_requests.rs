//! Supervisors: requests that cross, and many children at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{
    Backoff, ChildError, ChildInfo, ChildSpec, ChildState, Restart, Shutdown, Strategy, Supervisor, SupervisorMessage,
    Tree,
};
use procession::sync::Latch;
use procession::{
    Address, EntryArgs, Event, Events, Handle, InitResult, Process, Reply, Runtime, SpawnOptions, Step, StepOutput,
    StepResult,
};

use crate::helpers::*;
use crate::support::node::{Do, Way, node};
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// Is held up in `init`, and then succeeds or fails.
#[derive(Clone)]
struct HeldInit {
    blocked: Blocked,
    fails: bool,
}

impl Process for HeldInit {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        self.blocked.wait();
        if self.fails { Err("it did not begin".into()) } else { Ok(()) }
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(if events.any(|event| matches!(event, Event::Cancel(_))) { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn a_supervisor_stopped_while_a_child_fails_to_begin_is_done() {
    let (runtime, diary) = (runtime(3), Diary::new());
    let boss = supervise(&runtime, Supervisor::builder().build().unwrap());
    let (child, make) = (Blocker::new(), Blocker::new());
    let init = HeldInit { blocked: child.blocked(), fails: true };
    let spec = ChildSpec::new("does not begin", move || init.clone()).options(|| SpawnOptions::new().name("child"));
    let adds = [runtime.ask(boss.handle.address(), SupervisorMessage::add(spec), LIMIT)];
    child.wait_begun();
    // It has a greater PID than the supervisor, and so is told of the child's end later.
    let told_later = node(&runtime);
    assert!(told_later.pid() > boss.handle.pid());
    told_later.does(&runtime, [Do::Link(runtime.whereis("child").unwrap())]);
    // The supervisor is held up in a step, while the child ends and somebody asks it to stop.
    let factory = make.blocked();
    let spec = ChildSpec::new("holds up", move || {
        factory.wait();
        diary.worker("holds up")
    });
    let more = runtime.ask(boss.handle.address(), SupervisorMessage::add(spec), LIMIT);
    make.wait_begun();
    child.release();
    join(&told_later.handle);
    runtime.cancel(boss.handle.pid(), "enough").unwrap();
    make.release();
    assert!(join(&boss.handle).is_done());
    assert_eq!(runtime.stats().processes, 0);
    drop((adds, more));
}

#[test]
fn a_supervisor_has_not_started_before_every_child_has_been_up() {
    let (runtime, diary) = (runtime(3), Diary::new());
    let (slow, answered) = (Blocker::new(), Arc::new(AtomicUsize::new(0)));
    let init = HeldInit { blocked: slow.blocked(), fails: false };
    let supervisor = Supervisor::builder()
        .strategy(Strategy::OneForAll)
        .child(diary.spec("a"))
        .child(ChildSpec::new("slow", move || init.clone()))
        .build();
    let handle = runtime.spawn(supervisor.unwrap()).unwrap();
    let (asker, count) = (Boss { runtime: runtime.clone(), handle }, answered.clone());
    let (boss, mut begun, mut tag) = (asker.handle.address(), false, None);
    let asks = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            tag = Some(out.ask(boss, SupervisorMessage::started, Duration::MAX));
        }
        let done = events.any(|event| matches!(event, Event::Completed(done) if done.take(tag).unwrap().is_ok()));
        count.fetch_add(usize::from(done), Ordering::SeqCst);
        Ok(if done { Step::Done(()) } else { Step::Idle })
    });
    slow.wait_begun();
    let asks = runtime.spawn(asks).unwrap();
    // The first fails while the second has not begun: both are to start again.
    asker.tell("a", Tell::End(Way::Fail));
    until("the second is to stop", || asker.child("slow").unwrap().state == ChildState::Stopping);
    until("the supervisor is idle", || !asker.children().is_empty());
    assert_eq!(answered.load(Ordering::SeqCst), 0);
    slow.release();
    assert!(join(&asks).is_done());
    assert!(asker.children().iter().all(|info| info.state == ChildState::Up));
    asker.stop();
}

/// Ends when it is told to, and not when it is asked to stop.
fn stubborn() -> impl Process<Message = (), Output = ()> {
    script(|events: &mut Events<'_, ()>, _: &mut StepOutput| {
        Ok(if events.any(|event| matches!(event, Event::Message(()))) { Step::Done(()) } else { Step::Idle })
    })
}

#[test]
fn orders_that_cross_are_answered_each_as_if_they_had_not() {
    let runtime = runtime(2);
    let spec = || ChildSpec::new("a", stubborn).shutdown(Shutdown::Unlimited);
    let boss = supervise(&runtime, Supervisor::builder().child(spec()).build().unwrap());
    let old = boss.pid("a");
    let address = boss.handle.address();
    // Both are there before the child has ended.
    let stop = waits_for(&runtime, address, SupervisorMessage::stop("a"));
    let restart = waits_for(&runtime, address, SupervisorMessage::restart("a"));
    // One step of the supervisor's may have taken all, and tell the child when it is over.
    until("it is being stopped", || boss.child("a").unwrap().state == ChildState::Stopping);
    runtime.send(old, ()).unwrap();
    assert!(output(&stop).is_ok());
    assert!(matches!(*output(&restart), Ok(new) if new != old && boss.pid("a") == new));
    // Of one that is deleted nothing else can be wanted.
    let delete = waits_for(&runtime, address, SupervisorMessage::delete("a"));
    let stop = waits_for(&runtime, address, SupervisorMessage::stop("a"));
    let restart = waits_for(&runtime, address, SupervisorMessage::restart("a"));
    assert!(matches!(*output(&restart), Err(ChildError::NoSuchChild { .. })));
    runtime.send(boss.pid("a"), ()).unwrap();
    assert!(output(&delete).is_ok() && output(&stop).is_ok());
    assert!(boss.children().is_empty());
    boss.stop();
}

#[test]
fn a_child_in_its_start_has_no_tree_and_a_stop_answers_at_once() {
    let (runtime, slow) = (runtime(3), Blocker::new());
    let init = HeldInit { blocked: slow.blocked(), fails: false };
    let leaf = ChildSpec::new("leaf", move || init.clone());
    let branch = move || Supervisor::builder().child(leaf.clone()).build().unwrap();
    let boss = supervise(&runtime, Supervisor::builder().build().unwrap());
    let address = boss.handle.address();
    let add = waits_for(&runtime, address, SupervisorMessage::add(ChildSpec::supervisor("branch", branch)));
    slow.wait_begun();
    let tree = Tree::of(&runtime, address, LIMIT).unwrap();
    let [(info, below)] = &tree.children[..] else { panic!("{tree}") };
    assert!(info.state == ChildState::Starting && below.is_none() && tree.processes() == 1, "{tree}");

    let stop = waits_for(&runtime, address, SupervisorMessage::stop("branch"));
    // The child is still held in its start. A shorter limit than that of the child, which goes on by itself.
    let added = add.join_timeout(LIMIT / 2).unwrap();
    assert!(matches!(**added.output().unwrap(), Err(ChildError::Stopped)));
    let restart = waits_for(&runtime, address, SupervisorMessage::restart("branch"));
    slow.release();
    assert!(output(&stop).is_ok() && output(&restart).is_ok());
    boss.stop();
}

/// Asks, and is done with the answer; the question is with the supervisor when this returns.
fn waits_for<T: Clone + std::fmt::Debug + Send + Sync + 'static>(
    runtime: &Runtime,
    supervisor: Address<SupervisorMessage>,
    question: impl FnOnce(Reply<T>) -> SupervisorMessage + Send + 'static,
) -> Handle<impl Process<Output = T>> {
    let (mut question, mut asked, begun) = (Some(question), None, Latch::new());
    let begin = begun.clone();
    let asks = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let Some(question) = question.take() {
            asked = Some(out.ask(supervisor, question, Duration::MAX));
            return Ok(Step::Continue);
        }
        let _ = begin.set(());
        match events.next() {
            Some(Event::Completed(done)) => Ok(Step::Done(done.take(asked).unwrap()?)),
            _ => Ok(Step::Idle),
        }
    });
    let asks = runtime.spawn(asks).unwrap();
    wait(&begun);
    asks
}

#[test]
fn a_delay_for_which_nobody_waits_any_more_is_taken_back() {
    let clock = ManualClock::new();
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let (delay, limit) = (3_600 * SECOND, Shutdown::Unlimited);
    let supervisor = Supervisor::builder()
        .intensity(100, SECOND)
        .backoff(Backoff::exponential(delay, delay))
        .child(ChildSpec::new("new", fragile).shutdown(limit))
        .child(ChildSpec::in_place("in place", fragile).shutdown(limit))
        .build();
    let boss = supervise(&runtime, supervisor.unwrap());
    let fails = |id: &str| {
        runtime.send(boss.pid(id), ()).unwrap();
        until("it waits", || boss.child(id).unwrap().state == ChildState::Delayed);
        assert_eq!(runtime.stats().timers, 1);
    };
    let no_timer = || until("no timer is left", || runtime.is_idle() && runtime.stats().timers == 0);
    for id in ["new", "in place"] {
        fails(id);
        boss.ask(SupervisorMessage::restart(id)).unwrap();
        no_timer();
        fails(id);
        boss.ask(SupervisorMessage::stop(id)).unwrap();
        no_timer();
        boss.ask(SupervisorMessage::restart(id)).unwrap();
        fails(id);
        if let Some(pid) = boss.child(id).unwrap().pid {
            // It ends otherwise while it waits, and waits again for another process.
            runtime.terminate(pid).unwrap();
            until("it has no process", || boss.child(id).unwrap().pid.is_none());
            until("one timer is left", || runtime.is_idle() && runtime.stats().timers == 1);
        }
        boss.ask(SupervisorMessage::delete(id)).unwrap();
        no_timer();
    }
    boss.stop();
}

/// Fails when it is told to, and is done when it is asked to stop.
fn fragile() -> impl Process<Message = (), Output = ()> {
    script(|events: &mut Events<'_, ()>, _: &mut StepOutput| match events.next() {
        Some(Event::Message(())) => Err("fragile".into()),
        Some(Event::Cancel(_)) => Ok(Step::Done(())),
        _ => Ok(Step::Idle),
    })
}

/// So many that a supervisor which looks through all children with each event would not come to an end.
const MANY: usize = 10_000;

fn all_fail_and_stop(runtime: &Runtime, boss: &Boss) {
    let pids: Vec<_> = boss.children().iter().map(|info| info.pid.unwrap()).collect();
    assert_eq!(pids.len(), MANY);
    let (first, second) = (hold_up(runtime), hold_up(runtime));
    pids.iter().for_each(|pid| runtime.send(*pid, ()).unwrap());
    first.1.release();
    second.1.release();
    join(&first.0);
    join(&second.0);
    until("all have been restarted", || {
        boss.children().iter().all(|info| info.state == ChildState::Up && info.restarts == 1)
    });
    boss.stop();
    assert_eq!(runtime.stats().processes, 0);
}

#[test]
fn very_many_children_that_fail_together_are_restarted() {
    let runtime = runtime(2);
    let builder = Supervisor::builder().intensity(MANY, 1_000 * SECOND);
    let builder = (0..MANY).fold(builder, |builder, n| builder.child(ChildSpec::new(n.to_string(), fragile)));
    let boss = supervise(&runtime, builder.build().unwrap());
    all_fail_and_stop(&runtime, &boss);
}

#[test]
fn very_many_dynamic_children_are_added_fail_together_and_stop() {
    let runtime = runtime(2);
    let builder = Supervisor::builder().intensity(MANY, 1_000 * SECOND);
    let supervisor = builder.dynamic("n", |_: &usize| fragile(), |spec| spec.restart(Restart::Transient)).build();
    let boss = supervise(&runtime, supervisor.unwrap());
    let add = |n| runtime.ask(boss.handle.address(), SupervisorMessage::add_of_kind(n), LIMIT);
    let adds: Vec<_> = (0..MANY).map(add).collect();
    until("all are up", || {
        let children = boss.children();
        children.len() == MANY && children.iter().all(|info| info.state == ChildState::Up)
    });
    drop(adds);
    all_fail_and_stop(&runtime, &boss);
}

/// Each of them fails when all after it have failed already, and wait to be started again.
#[test]
fn very_many_children_failing_last_to_first_are_restarted() {
    let runtime = runtime(2);
    let builder = Supervisor::builder().strategy(Strategy::RestForOne).intensity(MANY, 1_000 * SECOND);
    let builder = (0..MANY).fold(builder, |builder, n| builder.child(ChildSpec::new(n.to_string(), fragile)));
    let boss = supervise(&runtime, builder.build().unwrap());
    let pids: Vec<_> = boss.children().iter().map(|info| info.pid.unwrap()).collect();
    // The supervisor is in a step until all have failed.
    let blocker = Blocker::new();
    let blocked = blocker.blocked();
    let last = ChildSpec::new("last", move || {
        blocked.wait();
        fragile()
    });
    let add = runtime.ask(boss.handle.address(), SupervisorMessage::add(last), LIMIT);
    blocker.wait_begun();
    for pid in pids.iter().rev() {
        let watch = runtime.watch(*pid);
        runtime.send(*pid, ()).unwrap();
        watch.wait_timeout(LIMIT).unwrap();
    }
    blocker.release();
    until("all are up again", || {
        let children = boss.children();
        let again = |info: &ChildInfo| info.state == ChildState::Up && (info.restarts == 1 || *info.id == *"last");
        children.len() == MANY + 1 && children.iter().all(again)
    });
    drop(add);
    boss.stop();
    assert_eq!(runtime.stats().processes, 0);
}
