//! F: waiting for counters.

use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;

use crate::support::{LIMIT, ZERO, job};
use crate::wait::{until, wait};

/// Waits on another thread.
fn waiter(state: &ShutdownNode) -> std::thread::JoinHandle<bool> {
    let state = state.clone();
    std::thread::spawn(move || state.wait_timeout(LIMIT).is_ok())
}

#[test]
fn wait_returns_when_all_counters_from_here_down_are_zero() {
    let (below, counter) = ShutdownNode::counted([]);
    let (state, own) = ShutdownNode::counted([below]);
    let (one, two) = (counter.add(), counter.add());
    let third = own.add();
    assert_eq!((counter.count(), own.count()), (2, 1));
    for guard in [one, third, two] {
        assert!(state.wait_timeout(ZERO).is_err());
        drop(guard);
    }
    assert!(state.wait_timeout(ZERO).is_ok());

    let guard = counter.add();
    let waiting = waiter(&state);
    drop(guard);
    assert!(wait(waiting).unwrap());
}

#[test]
fn three_inside_each_other_are_waited_for_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (one, one_counter) = ShutdownNode::counted([]);
        let (two, two_counter) = ShutdownNode::counted([one]);
        let (three, three_counter) = ShutdownNode::counted([two]);
        let mut guards = [one_counter, two_counter, three_counter].map(|counter| Some(counter.add()));
        let waiting = waiter(&three);
        for next in order {
            assert!(three.wait_timeout(ZERO).is_err() && !waiting.is_finished());
            guards[next] = None;
        }
        assert!(wait(waiting).unwrap());
    }
}

#[test]
fn a_dependency_is_waited_for_with_parent_and_children() {
    let ((parent, parent_counter), (child, child_counter)) = (ShutdownNode::counted([]), ShutdownNode::counted([]));
    let all = parent.depends_on([child]);
    let guard = parent_counter.add();
    assert!(all.wait_timeout(ZERO).is_err());
    drop(guard);
    let guard = child_counter.add();
    assert!(all.wait_timeout(ZERO).is_err());
    drop(guard);
    assert!(all.wait_timeout(ZERO).is_ok());
}

#[test]
fn nothing_to_wait_for_is_no_wait() {
    let (work, _tail) = job();
    let (counted, _counter) = ShutdownNode::counted([work.clone()]);
    for state in [work, counted, ShutdownNode::empty(), ShutdownNode::merge([]), ShutdownNode::error("broken", [])] {
        assert!(state.wait_timeout(ZERO).is_ok() && state.wait().is_ok());
    }
}

#[test]
fn waiting_and_shutting_down_have_nothing_to_do_with_each_other() {
    let (work, tail) = job();
    let (state, counter) = ShutdownNode::counted([work]);
    let guard = counter.add();
    state.request_shutdown();
    tail.done();
    state.shutdown_timeout(ZERO).unwrap();
    assert!(state.wait_timeout(ZERO).is_err(), "closed, and still counted");
    drop(guard);
    assert!(state.wait_timeout(ZERO).is_ok());

    let (work, _tail) = job();
    let (open, counter) = ShutdownNode::counted([work]);
    drop(counter.add());
    assert!(open.wait_timeout(ZERO).is_ok() && !open.is_shutting_down());
}

#[test]
fn a_count_may_rise_again_after_it_was_zero() {
    let (state, counter) = ShutdownNode::counted([]);
    drop(counter.add());
    assert!(state.wait_timeout(ZERO).is_ok());
    let again = counter.add();
    assert!(state.wait_timeout(ZERO).is_err());
    let waiting = waiter(&state);
    drop(again);
    assert!(wait(waiting).unwrap());
}

#[test]
fn a_wait_has_a_limit() {
    let clock = ManualClock::new();
    let (state, counter) = ShutdownNode::counted([ShutdownNode::builder().clock(clock.clock()).merge()]);
    let _guard = counter.add();
    let waiting = std::thread::spawn({
        let state = state.clone();
        move || state.wait_timeout(Duration::from_secs(5)).is_ok()
    });
    until("the limit is over", || {
        // The limit may begin only now.
        clock.advance(Duration::from_secs(5));
        waiting.is_finished()
    });
    assert!(!wait(waiting).unwrap());
}

#[test]
fn work_that_is_handed_from_one_counter_to_another_is_never_missed() {
    // Always at least one is counted: the next is raised before the last is lowered.
    let (left, left_counter) = ShutdownNode::counted([]);
    let (right, right_counter) = ShutdownNode::counted([]);
    let all = ShutdownNode::merge([left, right]);
    let mut guard = left_counter.add();
    let waiting = waiter(&all);
    for _ in 0..50_000 {
        let next = right_counter.add();
        drop(std::mem::replace(&mut guard, next));
        assert!(!waiting.is_finished());
        let next = left_counter.add();
        drop(std::mem::replace(&mut guard, next));
    }
    assert!(!waiting.is_finished());
    drop(guard);
    assert!(wait(waiting).unwrap());
}

#[test]
fn work_handed_on_to_a_new_node_of_a_group_is_never_missed() {
    // Always one piece of work is counted, and always another one. A node that has handed its work on leaves the
    // group.
    let (state, group) = ShutdownNode::group([]);
    let taken_in = || {
        let (one, counter) = ShutdownNode::counted([]);
        let guard = counter.add();
        group.add(one).unwrap();
        guard
    };
    let mut guard = taken_in();
    let waiting = waiter(&state);
    for _ in 0..20_000 {
        guard = taken_in();
        assert!(!waiting.is_finished());
    }
    drop(guard);
    assert!(wait(waiting).unwrap());
}
