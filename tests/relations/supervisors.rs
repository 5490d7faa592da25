//! Supervisors: start order, strategies, intensity, delays.

use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{
    AutoShutdown, Backoff, ChildError, ChildSpec, ChildState, Restart, Shutdown, SpecError, Strategy, Supervisor,
    SupervisorError, SupervisorMessage, Tree,
};
use procession::{Exit, ExitError, Pid, SpawnOptions};

use crate::helpers::*;
use crate::support::node::Way;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

fn three(diary: &Diary, strategy: Strategy) -> Supervisor {
    let builder = Supervisor::builder().strategy(strategy).intensity(100, SECOND);
    ["a", "b", "c"].into_iter().fold(builder, |builder, id| builder.child(diary.spec(id))).build().unwrap()
}

/// The error of a supervisor that has failed.
fn error(boss: &Boss) -> SupervisorError {
    match join(&boss.handle).into_result() {
        Err(ExitError::Failed(failure)) => failure.error().downcast_ref::<SupervisorError>().unwrap().clone(),
        other => panic!("it did not fail: {other:?}"),
    }
}

#[test]
fn children_start_in_order_and_are_stopped_in_reverse() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let boss = supervise(&runtime, three(&diary, Strategy::OneForOne));
    assert_eq!(diary.take(), ["start a", "start b", "start c"]);
    assert!(boss.children().iter().all(|info| info.state == ChildState::Up));
    boss.stop();
    assert_eq!(diary.take(), ["end c", "end b", "end a"]);
    assert_eq!(runtime.stats().processes, 0);
}

#[test]
fn a_child_that_fails_to_start_ends_earlier_ones_in_reverse() {
    for panics in [false, true] {
        let (runtime, diary) = (runtime(2), Diary::new());
        let bad = diary.clone();
        let supervisor = Supervisor::builder()
            .child(diary.spec("a"))
            .child(diary.spec("b"))
            .child(ChildSpec::new("bad", move || {
                let fails = if panics { &bad.fail_makes } else { &bad.fail_inits };
                fails.fetch_add(1, Ordering::SeqCst);
                bad.worker("bad")
            }))
            .child(diary.spec("never"))
            .build();
        let boss = supervise(&runtime, supervisor.unwrap());
        let SupervisorError::NotStarted { id, error } = error(&boss) else { panic!("of another kind") };
        assert_eq!(&*id, "bad");
        match error {
            ChildError::Ended(exit) => assert_eq!((panics, exit.to_string()), (false, "failed: init of bad".into())),
            ChildError::FactoryPanicked { message } => assert_eq!((panics, &*message), (true, "the factory of bad")),
            other => panic!("{other}"),
        }
        let log: Vec<String> = diary.take().into_iter().filter(|line| !line.ends_with("bad")).collect();
        assert_eq!(log, ["start a", "start b", "end b", "end a"]);
        assert_eq!(runtime.stats().processes, 0);
    }
}

#[test]
fn a_supervisor_can_be_stopped_while_it_starts() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let blocker = Blocker::new();
    let (blocked, slow) = (blocker.blocked(), diary.clone());
    let supervisor = Supervisor::builder()
        .child(diary.spec("a"))
        .child(ChildSpec::new("slow", move || {
            blocked.wait();
            slow.worker("slow")
        }))
        .child(diary.spec("never"))
        .build();
    let handle = runtime.spawn(supervisor.unwrap()).unwrap();
    blocker.wait_begun();
    runtime.cancel(handle.pid(), "changed my mind").unwrap();
    blocker.release();
    assert!(join(&handle).is_done());
    let log = diary.take();
    assert!(!log.iter().any(|line| line.ends_with("never")), "{log:?}");
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
}

#[test]
fn who_fails_is_restarted_with_whomever_the_strategy_says() {
    let expected = [
        (Strategy::OneForOne, vec!["end b", "start b"]),
        (Strategy::OneForAll, vec!["end b", "end c", "end a", "start a", "start b", "start c"]),
        (Strategy::RestForOne, vec!["end b", "end c", "start b", "start c"]),
    ];
    for (strategy, lines) in expected {
        for way in [Way::Fail, Way::Panic, Way::Done] {
            let (runtime, diary) = (runtime(2), Diary::new());
            let boss = supervise(&runtime, three(&diary, strategy));
            diary.take();
            boss.tell("b", Tell::End(way));
            boss.restarted("b", 1);
            assert_eq!(diary.take(), lines, "{strategy:?}");
            let restarts: Vec<u64> = boss.children().iter().map(|info| info.restarts).collect();
            assert_eq!(restarts, [0, 1, 0], "counted with the one that failed");
            boss.stop();
        }
    }
}

#[test]
fn when_a_child_is_restarted_is_its_own_affair() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let supervisor = Supervisor::builder()
        .intensity(100, SECOND)
        .child(diary.spec("permanent"))
        .child(diary.spec("transient").restart(Restart::Transient))
        .child(diary.spec("temporary").restart(Restart::Temporary))
        .build();
    let boss = supervise(&runtime, supervisor.unwrap());
    boss.tell("transient", Tell::End(Way::Fail));
    boss.restarted("transient", 1);
    boss.tell("transient", Tell::End(Way::Done));
    until("it stays down", || boss.child("transient").unwrap().state == ChildState::Down);
    boss.tell("temporary", Tell::End(Way::Fail));
    until("it is forgotten", || boss.child("temporary").is_none());
    runtime.terminate(boss.pid("permanent")).unwrap();
    until("it is up again", || boss.child("permanent").is_some_and(|info| info.restarts == 1));
    boss.stop();
}

#[test]
fn a_supervisor_ends_with_its_significant_children_if_it_is_told_so() {
    for (auto, both_needed) in [(AutoShutdown::AnySignificant, false), (AutoShutdown::AllSignificant, true)] {
        let (runtime, diary) = (runtime(2), Diary::new());
        let transient = |id| diary.spec(id).restart(Restart::Transient).significant();
        let builder = Supervisor::builder().auto_shutdown(auto).child(diary.spec("other"));
        let boss = supervise(&runtime, builder.child(transient("one")).child(transient("two")).build().unwrap());
        // A failure is not an end by itself: it is restarted.
        boss.fail("one", 1);
        boss.tell("one", Tell::End(Way::Done));
        if both_needed {
            until("it is down", || boss.child("one").unwrap().state == ChildState::Down);
            assert!(!boss.handle.is_finished());
            boss.tell("two", Tell::End(Way::Done));
        }
        assert!(join(&boss.handle).is_done());
        assert_eq!(diary.alive.load(Ordering::SeqCst), 0, "the others are stopped");
    }
}

#[test]
fn one_restart_above_the_intensity_ends_the_supervisor() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let supervisor = Supervisor::builder().intensity(3, 10 * SECOND).child(diary.spec("a")).child(diary.spec("b"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    boss.fail("a", 1);
    clock.advance(9 * SECOND);
    boss.fail("b", 1);
    boss.fail("a", 2);
    clock.advance(SECOND);
    // The first is out of the window, which is half open.
    boss.fail("b", 2);
    boss.tell("b", Tell::End(Way::Panic));
    let SupervisorError::TooManyRestarts { restarts } = error(&boss) else { panic!("of another kind") };
    let list: Vec<String> = restarts.iter().map(|(id, exit)| format!("{id}: {exit}")).collect();
    assert_eq!(list, ["b: failed: b failed", "a: failed: a failed", "b: failed: b failed", "b: panicked: b panicked"]);
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0, "and the other children are stopped");
}

#[test]
fn three_restarts_within_five_seconds_are_allowed_by_default() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let boss = supervise(&runtime, Supervisor::builder().child(diary.spec("a")).build().unwrap());
    boss.fail("a", 1);
    clock.advance(5 * SECOND);
    // The first is out of the window.
    (2..=4).for_each(|restarts| boss.fail("a", restarts));
    clock.advance(5 * SECOND - Duration::from_millis(1));
    boss.tell("a", Tell::End(Way::Fail));
    assert!(matches!(error(&boss), SupervisorError::TooManyRestarts { restarts } if restarts.len() == 4));
}

#[test]
fn a_rate_of_failures_that_stays_below_is_never_too_much() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(1).clock(clock.clock()).start().unwrap();
    let supervisor = Supervisor::builder().intensity(2, 10 * SECOND).child(diary.spec("a")).build().unwrap();
    let boss = supervise(&runtime, supervisor);
    for round in 1..=200 {
        boss.fail("a", round);
        clock.advance(5 * SECOND);
    }
    boss.stop();
}

#[test]
fn no_restart_at_all_may_be_allowed() {
    let (runtime, diary) = (runtime(1), Diary::new());
    let supervisor = Supervisor::builder().intensity(0, SECOND).child(diary.spec("a")).build().unwrap();
    let boss = supervise(&runtime, supervisor);
    boss.tell("a", Tell::End(Way::Fail));
    assert!(matches!(error(&boss), SupervisorError::TooManyRestarts { restarts } if restarts.len() == 1));
}

#[test]
fn delays_grow_and_begin_anew_after_a_stable_time_and_hold_up_nobody_else() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let supervisor = Supervisor::builder()
        .intensity(100, SECOND)
        .backoff(Backoff::exponential(SECOND, 4 * SECOND).stable_after(60 * SECOND))
        .child(diary.spec("a"))
        .child(diary.spec("b"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    let waits = |delay: Duration, restarts: u64| {
        boss.tell("a", Tell::End(Way::Fail));
        until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
        clock.advance(delay - Duration::from_millis(1));
        // Another child is restarted meanwhile: it has a delay of its own, and the first one does not make it longer.
        assert_eq!(boss.child("a").unwrap().state, ChildState::Delayed, "not before the delay of {delay:?} is over");
        clock.advance(Duration::from_millis(1));
        boss.restarted("a", restarts);
    };
    waits(SECOND, 1);
    waits(2 * SECOND, 2);
    waits(4 * SECOND, 3);
    waits(4 * SECOND, 4);
    clock.advance(60 * SECOND);
    waits(SECOND, 5);

    // Of two that fail one after the other each waits for itself.
    boss.tell("a", Tell::End(Way::Fail));
    until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
    boss.tell("b", Tell::End(Way::Fail));
    until("it waits", || boss.child("b").unwrap().state == ChildState::Delayed);
    clock.advance(SECOND);
    until("b is up again", || boss.child("b").unwrap().state == ChildState::Up);
    assert_eq!(boss.child("a").unwrap().state, ChildState::Delayed, "its second failure waits for two seconds");
    assert!(boss.add(diary.spec("c")).is_ok(), "and others can be added");
    // Nor does the shutdown wait for the delay.
    boss.stop();
    assert_eq!(diary.alive.load(Ordering::SeqCst), 0);
}

#[test]
fn waiting_for_a_delay_is_no_stable_time() {
    // A child that fails in place; one that does not begin again; one whose factory panics.
    for way in ["in place", "init", "factory"] {
        let (clock, diary) = (ManualClock::new(), Diary::new());
        let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
        // The stable time is as long as the longest delay.
        let builder = Supervisor::builder().intensity(100, SECOND).backoff(Backoff::exponential(SECOND, 4 * SECOND));
        let make = diary.clone();
        let in_place = ChildSpec::in_place("a", move || make.worker("a"));
        let spec = if way == "in place" { in_place } else { diary.spec("a") };
        let boss = supervise(&runtime, builder.child(spec).build().unwrap());
        match way {
            "init" => diary.fail_inits.store(5, Ordering::SeqCst),
            "factory" => diary.fail_makes.store(5, Ordering::SeqCst),
            _ => {}
        }
        boss.tell("a", Tell::End(Way::Fail));
        for (restarts, delay) in (1..).zip([1, 2, 4, 4, 4, 4]) {
            let delayed = || boss.child("a").is_some_and(|a| a.state == ChildState::Delayed && a.restarts == restarts);
            until("it waits", delayed);
            clock.advance(delay * SECOND - Duration::from_millis(1));
            assert!(delayed(), "{way}: failure {restarts} waits for {delay} seconds");
            clock.advance(Duration::from_millis(1));
            if way == "in place" {
                boss.restarted("a", restarts);
                boss.tell("a", Tell::End(Way::Fail));
            }
        }
        boss.stop();
    }
}

#[test]
fn a_wrong_specification_is_an_error_when_the_supervisor_is_built() {
    let diary = Diary::new();
    let check = |builder: procession::supervisor::SupervisorBuilder| builder.build().unwrap_err();
    let with = |spec: ChildSpec| check(Supervisor::builder().child(spec));
    let id: std::sync::Arc<str> = "a".into();
    assert_eq!(
        check(Supervisor::builder().child(diary.spec("a")).child(diary.spec("a"))),
        SpecError::TwoWithOneId { id: id.clone() }
    );
    assert_eq!(check(Supervisor::builder().intensity(3, Duration::ZERO)), SpecError::NoWindow);
    assert_eq!(check(Supervisor::builder().limit(0)), SpecError::NoRoom);
    assert_eq!(
        check(Supervisor::builder().limit(1).child(diary.spec("a")).child(diary.spec("b"))),
        SpecError::TooMany { children: 2, limit: 1 }
    );
    assert_eq!(with(diary.spec("")), SpecError::EmptyId);
    assert_eq!(
        with(diary.spec("a").shutdown(Shutdown::Within(Duration::ZERO))),
        SpecError::NoTimeToStop { id: id.clone() }
    );
    assert_eq!(with(diary.spec("a").significant()), SpecError::SignificantAndPermanent { id: id.clone() });
    assert_eq!(
        with(diary.spec("a").restart(Restart::Transient).significant()),
        SpecError::SignificantForNothing { id }
    );
    let bad = [
        Backoff::exponential(Duration::ZERO, SECOND),
        Backoff::exponential(2 * SECOND, SECOND),
        Backoff::exponential(SECOND, SECOND).jitter(1.5),
        Backoff::exponential(SECOND, SECOND).jitter(f64::NAN),
    ];
    for backoff in bad {
        assert!(matches!(check(Supervisor::builder().backoff(backoff)), SpecError::Backoff { .. }));
    }
    let kind = |spec: ChildSpec| spec.restart(Restart::Temporary);
    let inner = diary.clone();
    let dynamic = Supervisor::builder().dynamic("kind", move |_: &u8| inner.worker("k"), kind);
    assert_eq!(check(dynamic.child(diary.spec("a"))), SpecError::KindAndOthers);
}

#[test]
fn children_are_listed_stopped_restarted_deleted_and_added_at_run_time() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let boss = supervise(&runtime, three(&diary, Strategy::OneForOne));
    let before = boss.pid("b");
    boss.ask(SupervisorMessage::stop("b")).unwrap();
    let b = boss.child("b").unwrap();
    assert_eq!((b.state, b.pid), (ChildState::Down, None));
    boss.ask(SupervisorMessage::stop("b")).unwrap();
    let again = boss.ask(SupervisorMessage::restart("b")).unwrap();
    assert!(again != before && boss.pid("b") == again);
    let third = boss.ask(SupervisorMessage::restart("b")).unwrap();
    assert!(third != again && boss.child("b").unwrap().restarts == 0, "by hand is not counted");
    boss.ask(SupervisorMessage::delete("b")).unwrap();
    assert!(boss.child("b").is_none());
    assert!(matches!(boss.ask(SupervisorMessage::stop("b")), Err(ChildError::NoSuchChild { id }) if *id == *"b"));
    assert!(matches!(boss.ask(SupervisorMessage::restart("b")), Err(ChildError::NoSuchChild { .. })));
    assert!(matches!(boss.ask(SupervisorMessage::delete("b")), Err(ChildError::NoSuchChild { .. })));
    let added = boss.add(diary.spec("b")).unwrap();
    assert_eq!(boss.children().last().unwrap().pid, Some(added), "after the others");
    assert!(matches!(boss.add(diary.spec("a")), Err(ChildError::Spec(SpecError::TwoWithOneId { .. }))));
    diary.fail_inits.store(1, Ordering::SeqCst);
    assert!(matches!(boss.add(diary.spec("d")), Err(ChildError::Ended(Exit::Failed(_)))));
    assert!(boss.child("d").is_none(), "one that cannot be added is not there");
    diary.fail_makes.store(1, Ordering::SeqCst);
    assert!(matches!(boss.add(diary.spec("d")), Err(ChildError::FactoryPanicked { .. })));
    let wrong = boss.ask(SupervisorMessage::add_of_kind(1_u8));
    assert!(matches!(wrong, Err(ChildError::WrongKind { .. })));
    diary.take();
    boss.stop();
    assert_eq!(diary.take(), ["end b", "end c", "end a"], "in reverse order of their start");
}

#[test]
fn children_of_one_kind_are_made_of_inputs_up_to_a_limit() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let inner = diary.clone();
    let make = move |input: &u64| {
        let mut worker = inner.worker("kind");
        worker.total = *input;
        worker
    };
    let supervisor = Supervisor::builder()
        .intensity(100, SECOND)
        .limit(3)
        .dynamic("kind", make, |spec| spec.restart(Restart::Transient))
        .build()
        .unwrap();
    let boss = supervise(&runtime, supervisor);
    let add = |n: u64| boss.ask(SupervisorMessage::add_of_kind(n));
    let pids: Vec<Pid> = (10..13).map(|n| add(n).unwrap()).collect();
    assert!(matches!(add(13), Err(ChildError::Limit { limit: 3 })));
    let wrong = boss.ask(SupervisorMessage::add_of_kind("text")).unwrap_err().to_string();
    assert!(wrong.contains("limit"), "{wrong}");
    let read = |pid: Pid| runtime.ask(pid.typed(), Tell::Read, LIMIT).wait().unwrap();
    assert_eq!(pids.iter().map(|pid| read(*pid)).collect::<Vec<_>>(), [10, 11, 12]);
    runtime.send(pids[1], Tell::End(Way::Fail)).unwrap();
    until("it is made again of its input", || {
        let up = boss.children().into_iter().find(|info| info.restarts == 1 && info.state == ChildState::Up);
        up.and_then(|info| info.pid).is_some_and(|pid| read(pid) == 11)
    });
    runtime.send(pids[0], Tell::End(Way::Done)).unwrap();
    until("it is forgotten", || boss.children().len() == 2);
    add(14).unwrap();
    assert!(matches!(boss.add(diary.spec("other")), Err(ChildError::Limit { .. })));
    boss.stop();
}

#[test]
fn a_name_of_a_child_is_there_for_its_successor() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let spec = diary.spec("a").options(|| SpawnOptions::new().name("office"));
    let supervisor = Supervisor::builder().intensity(100, SECOND).child(spec).build().unwrap();
    let boss = supervise(&runtime, supervisor);
    for round in 1..=20 {
        boss.fail("a", round);
        assert_eq!(runtime.whereis("office"), Some(boss.pid("a")));
    }
    boss.stop();
}

#[test]
fn a_tree_can_be_printed() {
    let (runtime, diary) = (runtime(1), Diary::new());
    let inner = diary.clone();
    let supervisor = Supervisor::builder()
        .child(ChildSpec::supervisor("branch", move || three(&inner, Strategy::OneForAll)))
        .child(diary.spec("leaf"));
    let boss = supervise(&runtime, supervisor.build().unwrap());
    assert_eq!(
        diary.take(),
        ["start a", "start b", "start c", "start leaf"],
        "a branch has started when its leaves have"
    );
    let tree = Tree::of(&runtime, boss.handle.address(), LIMIT).unwrap();
    assert!(tree.is_up());
    assert_eq!(tree.processes(), 5);
    let pids: Vec<String> = tree.to_string().lines().map(|line| line.split('<').next().unwrap().to_string()).collect();
    assert_eq!(pids, ["├─ branch Up ", "│  ├─ a Up ", "│  ├─ b Up ", "│  └─ c Up ", "└─ leaf Up "]);
    boss.stop();
}
