//! Supervisors: stopping, and what happens at the same time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{
    ChildSpec, ChildState, Restart, Shutdown, Strategy, Supervisor, SupervisorError, SupervisorMessage,
};
use procession::sync::Latch;
use procession::{Event, Events, Exit, Reason, SpawnOptions, Step, StepOutput};

use crate::helpers::*;
use crate::support::node::{Do, Way, node};
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);
const TEN: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

#[test]
fn each_child_has_its_own_limit_to_stop_and_then_force_is_used() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let stubborn = |name: &'static str| {
        let diary = diary.clone();
        ChildSpec::new(name, move || diary.stubborn(name))
    };
    let supervisor = Supervisor::builder()
        .child(diary.spec("first"))
        .child(stubborn("one").shutdown(Shutdown::Within(SECOND)))
        .child(stubborn("ten").shutdown(Shutdown::Within(10 * SECOND)))
        .child(stubborn("now").shutdown(Shutdown::AtOnce))
        .build();
    let boss = supervise(&runtime, supervisor.unwrap());
    diary.take();
    runtime.cancel(boss.handle.pid(), "enough").unwrap();
    until("the one with ten seconds is asked", || diary.log.to_vec() == ["end now", "ask ten"]);
    clock.advance(10 * SECOND - Duration::from_millis(1));
    assert_eq!(diary.log.len(), 2, "it has its time");
    assert_eq!(boss.child("ten").unwrap().state, ChildState::Stopping);
    clock.advance(Duration::from_millis(1));
    until("the next is asked", || diary.log.len() == 4);
    assert!(!boss.handle.is_finished());
    clock.advance(SECOND);
    assert!(join(&boss.handle).is_done());
    assert_eq!(diary.take(), ["end now", "ask ten", "end ten", "ask one", "end one", "end first"]);
    assert_eq!(runtime.stats().timers, 0, "no limit is left over");
}

/// How a supervisor comes to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Asked,
    TooManyRestarts,
    Linked,
}

/// One child is held up in its `close`, after it was ended by force.
#[test]
fn a_supervisor_is_not_over_before_its_children_are_however_it_ends() {
    for ends in [Ends::Asked, Ends::TooManyRestarts, Ends::Linked] {
        let (runtime, diary, closes) = (runtime(2), Diary::new(), Blocker::new());
        let (inner, slow) = (diary.clone(), BlocksInClose(closes.blocked()));
        let branch = move || Supervisor::builder().child(inner.spec("leaf")).build().unwrap();
        let supervisor = Supervisor::builder()
            .intensity(0, SECOND)
            .child(ChildSpec::supervisor("branch", branch))
            .child(diary.spec("a"))
            .child(ChildSpec::new("slow", move || slow.clone()).shutdown(Shutdown::AtOnce));
        let (boss, linked) = (supervise(&runtime, supervisor.build().unwrap()), node(&runtime));
        match ends {
            Ends::Asked => drop(runtime.cancel(boss.handle.pid(), "enough").unwrap()),
            Ends::TooManyRestarts => boss.tell("a", Tell::End(Way::Fail)),
            Ends::Linked => linked.does(&runtime, [Do::Link(boss.handle.pid())]),
        }
        drop(linked.ends(&runtime, Way::Fail));
        closes.wait_begun();
        assert_eq!(boss.child("slow").unwrap().state, ChildState::Stopping, "{ends:?}");
        assert!(!boss.handle.is_finished(), "{ends:?}");
        closes.release();
        assert_eq!(join(&boss.handle).is_done(), ends == Ends::Asked);
        assert_eq!((diary.alive.load(Ordering::SeqCst), runtime.stats().processes), (0, 0), "{ends:?}");
    }
}

#[test]
fn children_of_a_supervisor_that_is_terminated_end_through_their_links() {
    for _ in 0..20 {
        let (runtime, diary) = (runtime(2), Diary::new());
        let inner = diary.clone();
        let branch = move || Supervisor::builder().child(inner.spec("leaf")).build().unwrap();
        let supervisor = Supervisor::builder().child(ChildSpec::supervisor("branch", branch)).child(diary.spec("a"));
        let boss = supervise(&runtime, supervisor.build().unwrap());
        let a = runtime.watch(boss.pid("a"));
        runtime.terminate(boss.handle.pid()).unwrap();
        let exit = a.wait_timeout(LIMIT).unwrap().exit;
        assert!(matches!(&exit, Exit::Terminated(Reason::Linked(by)) if by.pid() == boss.handle.pid()), "{exit}");
        until("none is left", || diary.alive.load(Ordering::SeqCst) == 0 && runtime.stats().processes == 0);
    }
}

/// Each is held up when it is asked, so one that is asked after another has ended would never be asked.
#[test]
fn a_runtime_shutdown_asks_all_children_to_stop_at_once() {
    const CHILDREN: [&str; 3] = ["a", "b", "c"];
    let (runtime, asked, go) = (runtime(CHILDREN.len() + 1), Log::new(), Latch::new());
    let spec = |id: &'static str| {
        let (asked, go) = (asked.clone(), go.clone());
        ChildSpec::new(id, move || {
            let (asked, go) = (asked.clone(), go.clone());
            script(move |events: &mut Events<'_, ()>, _: &mut StepOutput| {
                if !events.any(|event| matches!(event, Event::Cancel(_))) {
                    return Ok(Step::Idle);
                }
                asked.push(id);
                wait(&go);
                Ok(Step::Done(()))
            })
        })
    };
    let supervisor = CHILDREN.into_iter().fold(Supervisor::builder(), |builder, id| builder.child(spec(id)));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    std::thread::scope(|scope| {
        let shutdown = scope.spawn(|| runtime.shutdown(LIMIT).unwrap());
        until("all are asked", || asked.len() == CHILDREN.len());
        go.set(()).unwrap();
        assert!(wait(shutdown).unwrap().is_clean());
    });
    assert!(join(&boss.handle).is_done());
}

#[test]
fn a_child_that_fails_while_it_is_being_stopped_is_not_a_failure() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let inner = diary.clone();
    let supervisor = Supervisor::builder()
        .intensity(1, 1_000 * SECOND)
        .strategy(Strategy::OneForAll)
        .child(ChildSpec::new("fails when asked", move || {
            let _ = inner.worker("x");
            script(|events: &mut Events<'_, Tell>, _: &mut StepOutput| {
                for event in events {
                    if let Event::Cancel(_) = event {
                        return Err::<Step<()>, _>("a bad end".into());
                    }
                }
                Ok(Step::Idle)
            })
        }))
        .child(diary.spec("a"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    boss.fail("a", 1);
    assert_eq!(boss.child("fails when asked").unwrap().restarts, 0);
    boss.ask(SupervisorMessage::stop("fails when asked")).unwrap();
    boss.stop();
}

#[test]
fn a_child_that_fails_while_another_is_being_restarted_is_not_lost() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        let (runtime, diary) = (runtime(2), Diary::new());
        let blocker = Blocker::new();
        let (blocked, inner) = (blocker.blocked(), diary.clone());
        let made = std::sync::atomic::AtomicUsize::new(0);
        let slow = ChildSpec::new("slow", move || {
            // Its second start is held up.
            if made.fetch_add(1, Ordering::SeqCst) == 1 {
                blocked.wait();
            }
            inner.worker("slow")
        });
        let supervisor = Supervisor::builder()
            .strategy(strategy)
            .intensity(100, SECOND)
            .child(diary.spec("a"))
            .child(slow)
            .child(diary.spec("c"));
        let boss = supervise(&runtime, supervisor.build().unwrap());
        let (a, c) = (boss.pid("a"), boss.pid("c"));
        boss.tell("slow", Tell::End(Way::Fail));
        blocker.wait_begun();
        // Both may fail now, or may have been stopped already.
        let _ = runtime.send(a, Tell::End(Way::Panic));
        let _ = runtime.send(c, Tell::End(Way::Done));
        blocker.release();
        until("all are up", || boss.children().iter().all(|info| info.state == ChildState::Up));
        until("it stays so", || runtime.is_idle());
        assert!(boss.children().iter().all(|info| info.state == ChildState::Up));
        assert_eq!(diary.alive.load(Ordering::SeqCst), 3, "{strategy:?}");
        boss.stop();
    }
}

#[test]
fn a_panicking_factory_and_a_failing_init_are_tried_again() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let supervisor = Supervisor::builder().intensity(7, 1_000 * SECOND).child(diary.spec("a")).child(diary.spec("b"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    diary.fail_makes.store(2, Ordering::SeqCst);
    diary.fail_inits.store(3, Ordering::SeqCst);
    boss.fail("a", 6);
    assert_eq!(boss.child("b").unwrap().restarts, 0);
    // And they are counted: with two more it is too much.
    diary.fail_inits.store(usize::MAX, Ordering::SeqCst);
    boss.tell("a", Tell::End(Way::Fail));
    let exit = join(&boss.handle);
    let Exit::Failed(failure) = exit else { panic!("{exit}") };
    let Some(SupervisorError::TooManyRestarts { restarts }) = failure.error().downcast_ref() else {
        panic!("{failure}")
    };
    let texts: Vec<String> = restarts.iter().map(|(_, exit)| exit.to_string()).collect();
    let factory = "failed: the factory of the child panicked: the factory of a";
    let (failed, init) = ("failed: a failed", "failed: init of a");
    assert_eq!(texts, [failed, factory, factory, init, init, init, failed, init]);
    assert_eq!(runtime.stats().processes, 0);
}

#[test]
fn a_supervisor_ends_in_order_with_one_to_which_it_is_linked() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let inner = diary.clone();
    let mut begun = false;
    let parent = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if !std::mem::replace(&mut begun, true) {
            let supervisor = Supervisor::builder().child(inner.spec("a")).child(inner.spec("b")).build()?;
            out.spawn_with(supervisor, SpawnOptions::new().name("boss").link())?;
        }
        if events.any(|event| matches!(event, Event::Message(()))) { Err("gone".into()) } else { Ok(Step::<()>::Idle) }
    });
    let parent = runtime.spawn(parent).unwrap();
    until("all is up", || diary.alive.load(Ordering::SeqCst) == 2);
    let watch = runtime.watch("boss");
    runtime.send(parent.address(), ()).unwrap();
    let down = watch.wait_timeout(LIMIT).unwrap();
    assert!(down.exit.to_string().ends_with("to which it was linked, has ended: failed: gone"), "{}", down.exit);
    assert_eq!(diary.take(), ["start a", "start b", "end b", "end a"]);
}

#[test]
fn a_supervisor_in_a_runtime_that_shuts_down_restarts_nobody_and_is_done() {
    for _ in 0..20 {
        let (runtime, diary) = (runtime(2), Diary::new());
        let builder = Supervisor::builder().intensity(1_000, SECOND);
        let supervisor = TEN.into_iter().fold(builder, |builder, name| builder.child(diary.spec(name)));
        let boss = supervise(&runtime, supervisor.build().unwrap());
        let report = runtime.shutdown(LIMIT).unwrap();
        assert!(report.is_clean(), "{report}");
        let exit = join(&boss.handle);
        assert!(exit.is_done() || matches!(exit, Exit::Terminated(Reason::Shutdown)), "{exit}");
        assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn temporary_children_are_stopped_with_the_others_and_not_started_again() {
    let (runtime, diary) = (runtime(1), Diary::new());
    let supervisor = Supervisor::builder()
        .strategy(Strategy::OneForAll)
        .child(diary.spec("a"))
        .child(diary.spec("temporary").restart(Restart::Temporary));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    boss.fail("a", 1);
    assert!(boss.child("temporary").is_none());
    boss.stop();
}

#[test]
fn a_child_that_has_taken_its_link_away_holds_up_no_end() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let loner = diary.spec("loner").shutdown(Shutdown::Unlimited);
    let supervisor = Supervisor::builder().child(diary.spec("a")).child(loner).child(diary.spec("b"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    boss.tell("loner", Tell::Unlink(boss.handle.pid()));
    let exit = runtime.watch(boss.pid("loner"));
    boss.stop();
    assert!(exit.wait_timeout(LIMIT).unwrap().exit.is_done());
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
}

#[test]
fn a_supervisor_stops_although_a_child_fails_meanwhile() {
    for _ in 0..200 {
        let (runtime, diary) = (runtime(2), Diary::new());
        let supervisor = Supervisor::builder().intensity(1_000, SECOND).child(diary.spec("a")).child(diary.spec("b"));
        let boss = supervise(&runtime, supervisor.build().unwrap());
        boss.tell("b", Tell::End(Way::Fail));
        boss.stop();
        assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
    }
}
