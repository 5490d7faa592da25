//! Supervisors: the stable time of a child, and children that do not begin.

use std::sync::atomic::Ordering;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::supervisor::{Backoff, ChildError, ChildSpec, ChildState, Strategy, Supervisor, SupervisorMessage};

use crate::helpers::*;
use crate::support::node::Way;
use crate::support::worker::*;

const SECOND: Duration = Duration::from_secs(1);

/// A child that had been up for a moment is stopped with another, waits for that one's delay, and does not begin again.
#[test]
fn being_stopped_with_others_is_no_stable_time() {
    let (clock, diary) = (ManualClock::new(), Diary::new());
    let runtime = builder().workers(2).clock(clock.clock()).start().unwrap();
    let supervisor = Supervisor::builder()
        .strategy(Strategy::OneForAll)
        .intensity(100, SECOND)
        .backoff(Backoff::exponential(SECOND, 8 * SECOND).stable_after(3 * SECOND))
        .child(diary.spec("b"))
        .child(diary.spec("a"))
        .build();
    let boss = supervise(&runtime, supervisor.unwrap());
    let delayed = |id: &str, delay: u32| {
        until("it waits", || boss.child(id).unwrap().state == ChildState::Delayed);
        clock.advance(delay * SECOND - Duration::from_millis(1));
        until("the supervisor rests", || runtime.is_idle());
        assert_eq!(boss.child(id).unwrap().state, ChildState::Delayed, "{id} waits for {delay} seconds");
        clock.advance(Duration::from_millis(1));
    };
    let all_up = || until("all are up", || boss.children().iter().all(|info| info.state == ChildState::Up));
    let fails = |id: &str, delay: u32| {
        all_up();
        boss.tell(id, Tell::End(Way::Fail));
        delayed(id, delay);
    };
    [("b", 1), ("b", 2), ("b", 4), ("a", 1), ("a", 2)].into_iter().for_each(|(id, delay)| fails(id, delay));
    all_up();
    // Of both, the other one is the first to start again.
    diary.fail_inits.store(1, Ordering::SeqCst);
    fails("a", 4);
    until("it has not begun", || boss.child("b").is_some_and(|b| b.restarts == 4));
    delayed("b", 8);
    all_up();
    boss.stop();
}

/// A child that was there from the beginning, or has been up, or was stopped by hand, is kept though it does not
/// begin.
#[test]
fn only_a_child_that_was_just_added_is_forgotten_when_it_does_not_begin() {
    let (runtime, diary) = (runtime(2), Diary::new());
    let blocker = Blocker::new();
    let (blocked, slow) = (blocker.blocked(), diary.clone());
    let slow = ChildSpec::new("slow", move || {
        blocked.wait();
        slow.worker("slow")
    });
    let supervisor = Supervisor::builder().child(diary.spec("up")).child(slow).child(diary.spec("never up")).build();
    let handle = runtime.spawn(supervisor.unwrap()).unwrap();
    let boss = Boss { runtime: runtime.clone(), handle };
    blocker.wait_begun();
    let stops = runtime.ask(boss.handle.address(), SupervisorMessage::stop("never up"), LIMIT);
    blocker.release();
    until("it is down", || boss.child("never up").unwrap().state == ChildState::Down);
    drop(stops);
    // No other `init` is to come but those that are to fail.
    boss.ask(SupervisorMessage::started);
    boss.add(diary.spec("added")).unwrap();
    for id in ["up", "never up", "added"] {
        boss.ask(SupervisorMessage::stop(id)).unwrap();
        for _ in 0..2 {
            diary.fail_inits.store(1, Ordering::SeqCst);
            assert!(matches!(boss.ask(SupervisorMessage::restart(id)), Err(ChildError::Ended(_))), "{id}");
            assert_eq!(boss.child(id).map(|info| info.state), Some(ChildState::Down), "{id}");
        }
        boss.ask(SupervisorMessage::restart(id)).unwrap();
    }
    diary.fail_inits.store(1, Ordering::SeqCst);
    assert!(matches!(boss.add(diary.spec("new")), Err(ChildError::Ended(_))));
    assert!(boss.child("new").is_none());
    boss.stop();
}

/// Two supervisors of one runtime wait for different times, and in a runtime with the same seed for the same times.
#[test]
fn the_jitter_of_supervisors_comes_from_the_seed_of_the_runtime() {
    let delays = |seed: u64| {
        let (clock, diary) = (ManualClock::new(), Diary::new());
        let runtime = builder().workers(1).node(3).seed(seed).clock(clock.clock()).start().unwrap();
        [(); 2].map(|()| {
            let supervisor = Supervisor::builder()
                .intensity(100, SECOND)
                .backoff(Backoff::exponential(SECOND, SECOND).jitter(1.0))
                .child(diary.spec("a"))
                .build();
            let boss = supervise(&runtime, supervisor.unwrap());
            until("it is up", || boss.child("a").unwrap().state == ChildState::Up);
            boss.tell("a", Tell::End(Way::Fail));
            until("it waits", || boss.child("a").unwrap().state == ChildState::Delayed);
            let due = clock.next_due().unwrap() - clock.now();
            clock.advance(SECOND);
            until("it is up again", || boss.child("a").unwrap().state == ChildState::Up);
            boss.stop();
            due
        })
    };
    let one = delays(1);
    assert_eq!(one, delays(1));
    assert_ne!(one[0], one[1]);
    assert_ne!(one, delays(2));
}
