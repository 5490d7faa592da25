//! Beyond the original: states that come and go.

use procession::ShutdownNode;
use procession::shutdown::{AddError, Key};
use procession::sync::Latch;

use crate::support::{LIMIT, ZERO, job, named};
use crate::wait::{Barrier, wait};

#[test]
fn what_is_taken_in_closes_before_what_the_group_is_below() {
    let (state, group) = ShutdownNode::group([]);
    let (supervisor, supervisor_tail) = ShutdownNode::job([state]);
    let (child, child_tail) = job();
    group.add(child).unwrap();
    supervisor.request_shutdown();
    assert!(child_tail.end().is_cancelled() && !supervisor_tail.end().is_cancelled());
    child_tail.done();
    assert!(supervisor_tail.end().is_cancelled());
}

#[test]
fn a_group_through_which_much_passes_does_not_grow() {
    let (state, group) = ShutdownNode::group([]);
    let (stays, stays_tail) = named("stays");
    group.add(stays).unwrap();
    for _ in 0..10_000 {
        let (child, tail) = job();
        group.add(child.annotate("passes")).unwrap();
        tail.done();
    }
    assert_eq!((group.len(), state.report().nodes().len()), (1, 2));
    // A node that was done before it is taken in is removed at once.
    let (early, tail) = job();
    tail.done();
    group.add(early).unwrap();
    assert_eq!(state.report().nodes().len(), 2);
    stays_tail.done();
    assert!(group.is_empty() && !state.is_closed(), "there is somebody who may still add");
    drop(group);
    assert!(state.is_closed());
}

#[test]
fn what_never_had_anything_to_end_leaves_a_group_unless_it_has_a_value() {
    #[derive(PartialEq, Eq)]
    struct Port;
    impl Key for Port {
        type Value = u16;
    }
    let (state, group) = ShutdownNode::group([]);
    for _ in 0..1_000 {
        group.add(ShutdownNode::empty()).unwrap();
        // A part that could not start.
        group.add(ShutdownNode::error("no port", []).annotate("server")).unwrap();
        group.add(ShutdownNode::merge([ShutdownNode::result(Ok::<(), &str>(()), [])])).unwrap();
    }
    assert_eq!((state.report().nodes().len(), state.err().unwrap().to_string().as_str()), (1, "server: no port"));
    group.add(ShutdownNode::merge([ShutdownNode::value(Port, 80, [])])).unwrap();
    assert_eq!((state.report().nodes().len(), state.get(&Port).as_deref()), (3, Some(&80)));
    assert!(group.is_empty());
    drop(group);
    state.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn what_is_taken_in_while_the_group_closes_is_told_at_once_and_waited_for() {
    let (state, group) = ShutdownNode::group([]);
    let (first, first_tail) = job();
    group.add(first).unwrap();
    state.request_shutdown();
    let (late, late_tail) = job();
    group.add(late).unwrap();
    assert!(late_tail.end().is_cancelled());
    first_tail.done();
    assert!(!state.is_closed());
    late_tail.done();
    assert!(state.is_closed());
    assert_eq!(*group.add(job().0).unwrap_err().reason(), AddError::Closed);
}

#[test]
fn values_errors_and_readiness_are_found_in_a_group() {
    #[derive(PartialEq, Eq)]
    struct Size;
    impl Key for Size {
        type Value = u32;
    }
    let (state, group) = ShutdownNode::group([]);
    group.add(ShutdownNode::value(Size, 4, [])).unwrap();
    assert_eq!(state.get(&Size).as_deref(), Some(&4), "what has nothing to end stays as long as the group");
    let (unready, ready) = ShutdownNode::readiness([]);
    group.add(unready).unwrap();
    assert!(!state.is_ready());
    ready.ok();
    assert!(state.is_ready());
    let (errors, tail) = ShutdownNode::errors([]);
    group.add(errors.annotate("late")).unwrap();
    tail.set("broken");
    assert_eq!(state.err().unwrap().to_string(), "late: broken");
    drop(tail);
    assert_eq!(state.err().unwrap().to_string(), "late: broken", "its place has left, and the error is kept");

    let (other, group) = ShutdownNode::group([]);
    let heard = Latch::new();
    let set = heard.clone();
    let _on = other.on_error(move |_| set.set(()).unwrap());
    group.add(ShutdownNode::error("broken before", [])).unwrap();
    assert!(heard.is_set(), "an error comes in with its state");
}

#[test]
fn a_state_may_be_in_several_groups() {
    let ((one, one_group), (two, two_group)) = (ShutdownNode::group([]), ShutdownNode::group([]));
    let (child, tail) = job();
    one_group.add(child.clone()).unwrap();
    two_group.add(child.clone()).unwrap();
    two_group.add(child).unwrap();
    one.request_shutdown();
    assert!(tail.end().is_cancelled());
    tail.done();
    assert!(one.is_closed() && !two.is_closed());
    assert!(two_group.is_empty());
}

#[test]
fn two_groups_added_to_each_other_at_once_make_no_cycle() {
    for _ in 0..500 {
        let ((one, one_group), (two, two_group)) = (ShutdownNode::group([]), ShutdownNode::group([]));
        let together = Barrier::new(2);
        let taken = std::thread::scope(|scope| {
            let (one, two, together) = (one.clone(), two.clone(), &together);
            let (into_one, into_two) = (one_group.clone(), two_group.clone());
            let first = scope.spawn(move || {
                wait(together);
                into_one.add(two).is_ok()
            });
            let second = scope.spawn(move || {
                wait(together);
                into_two.add(one).is_ok()
            });
            [wait(first).unwrap(), wait(second).unwrap()]
        });
        assert_ne!(taken, [true, true]);
        one.shutdown_timeout(LIMIT).unwrap();
        two.shutdown_timeout(LIMIT).unwrap();
    }
}

#[test]
fn children_given_to_the_constructor_stay() {
    let (child, tail) = named("stays");
    let (state, group) = ShutdownNode::group([child]);
    tail.done();
    assert_eq!((group.len(), state.report().nodes().len()), (0, 2));
    state.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn threads_may_add_and_end_nodes_while_the_group_closes() {
    for _ in 0..100 {
        let (state, group) = ShutdownNode::group([]);
        let together = Barrier::new(3);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..2 {
                let (group, together) = (group.clone(), &together);
                threads.push(scope.spawn(move || {
                    wait(together);
                    for _ in 0..50 {
                        let (child, tail) = job();
                        if group.add(child).is_err() {
                            return;
                        }
                        drop(tail);
                    }
                }));
            }
            wait(&together);
            state.shutdown_timeout(LIMIT).unwrap();
            threads.into_iter().for_each(|thread| wait(thread).unwrap());
        });
        assert!(group.is_closed() && group.is_empty());
        assert_eq!(state.report().nodes().len(), 1);
    }
}
