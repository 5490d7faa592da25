//! G: readiness.

use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;
use procession::shutdown::NotReadyError;

use crate::support::{LIMIT, ZERO, job};
use crate::wait::{advance_until, wait};

#[test]
fn a_readiness_node_is_ready_when_its_tail_says_so() {
    let (state, tail) = ShutdownNode::readiness([]);
    assert!(!state.is_ready());
    assert!(matches!(state.wait_ready_timeout(ZERO), Err(NotReadyError::TimedOut(_))));
    tail.ok();
    tail.ok();
    assert!(state.is_ready());
    drop(tail);
    assert!(state.is_ready(), "once said it stays");
    state.wait_ready_timeout(ZERO).unwrap();
}

#[test]
fn a_node_is_ready_when_it_and_all_below_it_are() {
    let (one, one_tail) = ShutdownNode::readiness([]);
    let (two, two_tail) = ShutdownNode::readiness([one.clone()]);
    let (three, three_tail) = ShutdownNode::readiness([two.clone()]);
    let all = || [&one, &two, &three].map(|state| state.is_ready());
    three_tail.ok();
    two_tail.ok();
    assert_eq!(all(), [false; 3]);
    one_tail.ok();
    assert_eq!(all(), [true; 3]);
}

#[test]
fn a_dependency_is_ready_when_its_children_and_its_parent_are() {
    let (parent, parent_tail) = ShutdownNode::readiness([]);
    let (left, left_tail) = ShutdownNode::readiness([]);
    let (right, right_tail) = ShutdownNode::readiness([]);
    let all = parent.depends_on([left.clone(), right.clone()]);
    left_tail.ok();
    assert!(left.is_ready() && !right.is_ready() && !all.is_ready());
    right_tail.ok();
    assert!(right.is_ready() && !all.is_ready());
    parent_tail.ok();
    assert!(all.is_ready());
}

#[test]
fn readiness_can_be_asked_for_any_number_of_times() {
    let (state, tail) = ShutdownNode::readiness([]);
    assert!((0..100).all(|_| !state.is_ready()));
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let state = state.clone();
            std::thread::spawn(move || state.wait_ready_timeout(LIMIT))
        })
        .collect();
    tail.ok();
    assert!(waiting.into_iter().all(|waiter| wait(waiter).unwrap().is_ok()));
    assert!((0..100).all(|_| state.is_ready() && state.wait_ready_timeout(ZERO).is_ok()));
}

#[test]
fn what_has_nothing_to_get_ready_is_ready_at_the_first_look() {
    assert!(ShutdownNode::merge([]).is_ready());
    let (work, _tail) = job();
    assert!(ShutdownNode::merge([work.annotate("work")]).depends_on([ShutdownNode::empty()]).is_ready());
}

#[test]
fn waiting_for_readiness_ends_with_the_limit() {
    let clock = ManualClock::new();
    let (state, _tail) = ShutdownNode::readiness([ShutdownNode::builder().clock(clock.clock()).merge()]);
    let state = ShutdownNode::merge([state.annotate("engine")]);
    let waiting = std::thread::spawn(move || state.wait_ready_timeout(Duration::from_secs(5)));
    advance_until("the limit is over", &clock, Duration::from_secs(5), || waiting.is_finished());
    let error = wait(waiting).unwrap().unwrap_err();
    assert_eq!(error.to_string(), "engine: not ready when the limit was over");
}

/// Returns how two waits end. One begins before `change` or after it, as it happens. The other one begins after it
/// for sure.
fn ends_with(state: &ShutdownNode, change: impl FnOnce()) -> [NotReadyError; 2] {
    let early = std::thread::spawn({
        let state = state.clone();
        move || state.wait_ready_timeout(LIMIT)
    });
    change();
    [wait(early).unwrap().unwrap_err(), state.wait_ready_timeout(LIMIT).unwrap_err()]
}

#[test]
fn waiting_for_readiness_ends_when_it_shuts_down_or_fails_first() {
    // One part of it, while the rest goes on.
    let ((state, _tail), (work, _work_tail)) = (ShutdownNode::readiness([]), job());
    let errors = ends_with(&ShutdownNode::merge([state.clone(), work]), || state.request_shutdown());
    assert!(errors.iter().all(|error| matches!(error, NotReadyError::ShutDown)), "{errors:?}");

    let (state, _tail) = ShutdownNode::readiness([]);
    let top = ShutdownNode::merge([state]);
    let errors = ends_with(&top, || top.request_shutdown());
    assert!(errors.iter().all(|error| matches!(error, NotReadyError::ShutDown)), "{errors:?}");

    // The node that is not ready closes last, and has not been asked yet.
    let ((state, _tail), (hangs, _hangs_tail)) = (ShutdownNode::readiness([]), job());
    let top = state.depends_on([hangs]);
    let errors = ends_with(&top, || top.request_shutdown());
    assert!(errors.iter().all(|error| matches!(error, NotReadyError::ShutDown)), "{errors:?}");

    let (state, _tail) = ShutdownNode::readiness([]);
    let (other, errors_tail) = ShutdownNode::errors([]);
    let errors = ends_with(&ShutdownNode::merge([state, other.annotate("other")]), || {
        errors_tail.set("broken");
    });
    for error in errors {
        assert!(matches!(error, NotReadyError::Failed(_)));
        assert_eq!(error.to_string(), "failed before it was ready: other: broken");
    }
}

#[test]
fn a_readiness_tail_that_is_dropped_without_a_word_is_told_of() {
    let (state, tail) = ShutdownNode::readiness([]);
    let clone = tail.clone();
    drop(tail);
    assert!(matches!(state.wait_ready_timeout(ZERO), Err(NotReadyError::TimedOut(_))), "there is another tail");
    let errors = ends_with(&state.annotate("engine"), || drop(clone));
    for error in errors {
        assert!(matches!(error, NotReadyError::Dropped(_)));
        assert_eq!(error.to_string(), "engine: will never be ready");
    }

    let state = ShutdownNode::builder().name("job").unready().thread(|_| Ok(())).unwrap();
    assert!(matches!(state.wait_ready_timeout(LIMIT), Err(NotReadyError::Dropped(_))));
}

#[test]
fn a_job_can_say_that_it_is_ready() {
    let state = ShutdownNode::builder()
        .unready()
        .thread(|job| {
            job.ready();
            wait(job.end());
            Ok(())
        })
        .unwrap();
    state.wait_ready_timeout(LIMIT).unwrap();
    state.shutdown_timeout(LIMIT).unwrap();
    assert!(state.is_ready());
}
