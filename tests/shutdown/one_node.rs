//! B: shutting down one node.

use std::sync::Arc;
use std::time::Duration;

use procession::clock::ManualClock;
use procession::shutdown::{Job, Key};
use procession::{Reason, ShutdownNode};

use crate::support::{LIMIT, ZERO, job, named, shutdown, timed};
use crate::wait::{Mutex, wait};

#[test]
fn a_new_job_is_neither_told_nor_done() {
    let (state, tail) = job();
    assert!(!tail.end().is_cancelled() && !tail.cancel().is_cancelled());
    assert!(!state.is_closed() && !state.is_shutting_down());
}

#[test]
fn shutdown_tells_and_returns_only_when_the_tail_has_said_done() {
    let (state, tail) = job();
    let call = shutdown(&state, LIMIT, &tail);
    assert_eq!(wait(tail.end()), Reason::Shutdown);
    assert!(!state.is_closed() && !call.is_finished());
    tail.done();
    wait(call).unwrap().unwrap();
    assert!(state.is_closed());
}

#[test]
fn the_end_signal_stays_and_is_the_same_each_time() {
    let (state, tail) = job();
    let (first, handle) = (tail.end().clone(), tail.job());
    state.request_shutdown();
    state.request_shutdown();
    assert!(first.is_cancelled() && tail.end().is_cancelled() && handle.end().is_cancelled());
    tail.done();
    assert_eq!(first.reason(), Some(Reason::Shutdown));
    assert_eq!(wait(&first), wait(tail.end()));
}

#[test]
fn saying_done_twice_does_nothing() {
    let (child, tail) = job();
    let (parent, parent_tail) = ShutdownNode::job([child.clone(), child.clone()]);
    let handle = tail.job();
    tail.done();
    handle.done();
    drop(tail);
    handle.done();
    parent.request_shutdown();
    assert!(parent_tail.end().is_cancelled() && !parent.is_closed());
    drop(parent_tail);
    assert!(parent.is_closed());
}

#[test]
fn several_shutdowns_at_once_all_succeed_and_a_later_one_does_at_once() {
    let (state, tail) = job();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let state = state.clone();
            std::thread::spawn(move || state.shutdown_timeout(LIMIT))
        })
        .collect();
    wait(tail.end());
    tail.done();
    for call in calls {
        wait(call).unwrap().unwrap();
    }
    state.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn a_job_that_never_says_done_is_a_timeout_at_the_limit() {
    let clock = ManualClock::new();
    let (state, tail) = timed("stuck", &clock);
    let call = shutdown(&state, Duration::from_secs(10), &tail);
    clock.advance(Duration::from_secs(9));
    assert!(tail.end().is_cancelled() && !call.is_finished());
    clock.advance(Duration::from_secs(1));
    let error = wait(call).unwrap().unwrap_err();
    assert_eq!(error.open().len(), 1);
    assert_eq!(error.to_string(), "stuck: timeout expired");
    assert!(!state.is_closed());
}

#[test]
fn a_limit_of_zero_tells_all_the_same_and_is_a_timeout() {
    let (state, tail) = job();
    assert!(state.shutdown_timeout(ZERO).is_err());
    assert!(tail.end().is_cancelled());
}

#[test]
fn an_expired_limit_on_what_is_closed_is_a_success_always() {
    let (state, tail) = job();
    tail.done();
    for _ in 0..1_000 {
        state.shutdown_timeout(ZERO).unwrap();
    }
    let (asked, tail) = job();
    asked.request_shutdown();
    tail.done();
    for _ in 0..1_000 {
        asked.shutdown_timeout(ZERO).unwrap();
    }
}

#[test]
fn after_a_timeout_the_shutdown_goes_on_by_itself() {
    let (child, child_tail) = named("child");
    let (middle, middle_tail) = ShutdownNode::job([child]);
    let (top, top_tail) = ShutdownNode::job([middle]);
    assert!(top.shutdown_timeout(ZERO).is_err());
    child_tail.done();
    assert!(middle_tail.end().is_cancelled() && !top_tail.end().is_cancelled());
    assert!(top.shutdown_timeout(ZERO).is_err());
    middle_tail.done();
    assert!(top_tail.end().is_cancelled());
    top_tail.done();
    top.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn what_closes_while_the_error_is_made_is_a_success() {
    // The error asks the job what it waits for, and the job ends just then.
    let slot = Arc::new(Mutex::new(None::<Job>));
    let ends = slot.clone();
    let detail = move || {
        // Taken out, or the job would keep itself for ever.
        ends.lock().unwrap().take().into_iter().for_each(|job| job.done());
        None
    };
    let (state, tail) = ShutdownNode::builder().detail(detail).job();
    *slot.lock().unwrap() = Some(tail.job());
    state.shutdown_timeout(ZERO).unwrap();

    // The job is done before the end of the limit, or after the look at the jobs that hang, or in between. The result
    // is success or a named job.
    for _ in 0..300 {
        let (state, tail) = named("racing");
        let worker = std::thread::spawn(move || {
            wait(tail.end());
            tail.done();
        });
        if let Err(error) = state.shutdown_timeout(ZERO) {
            assert_eq!(error.to_string(), "racing: timeout expired");
        }
        wait(worker).unwrap();
        state.shutdown_timeout(ZERO).unwrap();
    }
}

#[test]
fn states_without_a_job_close_their_children_only() {
    let (errors, error_tail) = ShutdownNode::errors([]);
    let (counted, counter) = ShutdownNode::counted([]);
    let (unready, ready) = ShutdownNode::readiness([]);
    let guard = counter.add();
    for state in [ShutdownNode::empty(), ShutdownNode::error("broken", []), errors, counted, unready] {
        state.shutdown_timeout(ZERO).unwrap();
    }
    drop((error_tail, ready, guard));

    let (child, tail) = job();
    let (above, _counter) = ShutdownNode::counted([child]);
    assert!(above.shutdown_timeout(ZERO).is_err() && tail.end().is_cancelled());
    tail.done();
    above.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn what_never_became_ready_shuts_down() {
    let (child, tail) = ShutdownNode::builder().unready().job();
    let (state, ready) = ShutdownNode::readiness([child]);
    state.request_shutdown();
    assert!(tail.end().is_cancelled());
    tail.done();
    state.shutdown_timeout(ZERO).unwrap();
    assert!(!state.is_ready());
    drop(ready);
}

#[test]
fn a_parent_made_after_a_close_waits_only_for_itself() {
    let (state, tail) = job();
    state.request_shutdown();
    tail.done();
    let (parent, parent_tail) = ShutdownNode::job([state.clone()]);
    assert!(state.is_closed() && !parent.is_closed());
    parent.request_shutdown();
    assert!(parent_tail.end().is_cancelled(), "nothing is open below it");
    assert!(parent.shutdown_timeout(ZERO).is_err());
    parent_tail.done();
    parent.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn a_shutdown_goes_on_without_a_handle_of_its_node() {
    let gone = Arc::new(());
    for waits in [false, true] {
        #[derive(PartialEq, Eq)]
        struct Mark;
        impl Key for Mark {
            type Value = Arc<()>;
        }
        let ((server, server_tail), (store, store_tail)) = (job(), job());
        let all = store.depends_on([server, ShutdownNode::value(Mark, gone.clone(), [])]).annotate("all");
        if waits {
            assert!(all.shutdown_timeout(ZERO).is_err());
        } else {
            all.request_shutdown();
        }
        drop(all);
        assert!(server_tail.end().is_cancelled() && !store_tail.end().is_cancelled());
        server_tail.done();
        assert!(store_tail.end().is_cancelled());
        assert_eq!(Arc::strong_count(&gone), 2);
        store_tail.done();
        assert_eq!(Arc::strong_count(&gone), 1, "and then it goes");
    }
}
