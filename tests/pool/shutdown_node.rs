//! The pool in a shutdown tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use procession::pool::{AbandonedJobsError, JobError, PoolError, PoolStatus, SHUTDOWN_GRACE};
use procession::shutdown::Phase;
use procession::{ShutdownNode, WaitError};

use crate::support::*;

const ZERO: Duration = Duration::ZERO;

#[test]
fn a_pool_that_is_asked_to_close_runs_the_waiting_jobs_first() {
    let pool = pool(1);
    let held = hold(&pool);
    let ran = Arc::new(AtomicUsize::new(0));
    submit_counted(&pool, &ran, 5);
    let state = pool.shutdown_node();
    let error = state.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "pool: timeout expired (jobs: 1 running, 5 waiting)");
    let (_, why) = pool.execute(|| ()).unwrap_err().into_parts();
    assert!(matches!(why, PoolError::Stopped(PoolStatus::Draining)), "{why}");
    assert!(!state.is_closed());
    held.release();
    state.shutdown_timeout(LIMIT).unwrap();
    assert_eq!((ran.load(Ordering::SeqCst), pool.stats().workers, pool.status()), (5, 0, PoolStatus::Stopped));
    assert!(state.err().is_none());
}

#[test]
fn a_pool_has_one_node_and_it_costs_no_thread() {
    let pool = builder(2).name("pool-of-letters").build().unwrap();
    let states = [pool.shutdown_node(), pool.clone().shutdown_node()];
    assert_eq!(ShutdownNode::merge(states).report().nodes().len(), 2, "the merge, and one below it");
    assert_eq!((pool.shutdown_node().name(), pool.stats().workers), (Some("pool-of-letters"), 0));
    let all = pool.shutdown_node();
    all.shutdown_timeout(ZERO).unwrap();
    assert!(pool.shutdown_node().is_closed());
    pool.drain().unwrap();
}

#[test]
fn a_pool_that_ends_otherwise_closes_its_node() {
    let one = pool(2);
    rested(&one, 2);
    let state = one.shutdown_node();
    one.drain().unwrap();
    assert!(state.is_closed() && !state.is_shutting_down() && state.err().is_none());

    let two = pool(2);
    rested(&two, 2);
    let state = two.shutdown_node();
    two.stop().unwrap();
    assert!(state.is_closed() && state.err().is_none());

    let three = pool(2);
    rested(&three, 2);
    let state = three.shutdown_node();
    drop(three);
    assert!(state.wait_closed_timeout(LIMIT).is_ok() && state.err().is_none());

    let four = pool(2);
    rested(&four, 1);
    four.stop().unwrap();
    assert!(four.shutdown_node().is_closed(), "it had ended before");

    let given_back = pool(2);
    let state = given_back.shutdown_node();
    given_back.abandon();
    assert!(state.is_closed());

    let never_used = pool(2);
    let state = never_used.shutdown_node();
    drop(never_used);
    assert!(state.is_closed());
}

#[test]
fn jobs_that_were_never_begun_are_the_error_of_the_node() {
    let pool = pool(1);
    let held = hold(&pool);
    (0..3).for_each(|_| pool.execute(|| ()).unwrap());
    let state = pool.shutdown_node().annotate("letters");
    drop(pool);
    assert!(!state.is_closed(), "a job still runs");
    held.release();
    assert!(state.wait_closed_timeout(LIMIT).is_ok());
    let error = state.err().unwrap();
    assert_eq!(error.to_string(), "letters: pool: jobs that were never begun: 3");
    assert_eq!(error.downcast_ref::<AbandonedJobsError>().unwrap().count, 3);
}

#[test]
fn after_the_limit_jobs_are_dropped_and_after_the_grace_given_up() {
    let manual = procession::clock::ManualClock::new();
    let pool = builder(1).clock(manual.clock()).shutdown_limit(7 * SECOND).build().unwrap();
    let held = hold(&pool);
    let waits = pool.spawn(|| ()).unwrap();
    let (store, store_tail) = ShutdownNode::job([pool.shutdown_node()]);
    store.request_shutdown();
    manual.advance(7 * SECOND - Duration::from_millis(1));
    assert_eq!(pool.stats().waiting, 1);
    manual.advance(Duration::from_millis(1));
    assert!(matches!(wait(waits), Err(JobError::Abandoned)));
    assert_eq!(store.report().find("pool").unwrap().phase, Phase::Cancelled);
    assert!(!store_tail.end().is_cancelled());
    manual.advance(SHUTDOWN_GRACE);
    wait(store_tail.end());
    store_tail.done();
    let error = store.shutdown_timeout(LIMIT).unwrap_err();
    assert!(error.only_given_up());
    assert_eq!(error.open()[0].names().collect::<Vec<_>>(), ["pool"]);
    assert_eq!(error.open()[0].detail(), Some("jobs: 1 running, 0 waiting"));
    held.release();
    pool.stop().unwrap();
    store.shutdown_timeout(LIMIT).unwrap();
    assert_eq!(store.err().unwrap().to_string(), "pool: jobs that were never begun: 1");
}

#[test]
fn a_job_that_waits_for_the_end_of_its_own_pool_is_refused() {
    let pool = pool(1);
    let (store, store_tail) = ShutdownNode::job([pool.shutdown_node()]);
    let all = store.clone();
    let asks = pool.spawn(move || {
        let error = all.shutdown().unwrap_err();
        (error.why() == WaitError::Inside, error.to_string(), all.wait_closed().is_ok(), all.is_shutting_down())
    });
    let (inside, text, closed, asked) = wait(asks.unwrap()).unwrap();
    assert_eq!((inside, closed, asked), (true, false, true));
    assert_eq!(text, "pool: called from inside, and would wait for its own caller");
    wait(store_tail.end());
    store_tail.done();
    store.shutdown().unwrap();
}

#[test]
fn a_pool_that_was_given_up_leaves_its_group_when_it_ends() {
    let manual = procession::clock::ManualClock::new();
    let (all, group) = ShutdownNode::builder().clock(manual.clock()).group();
    for _ in 0..3 {
        let pool = builder(1).clock(manual.clock()).shutdown_limit(SECOND).build().unwrap();
        let held = hold(&pool);
        let state = pool.shutdown_node().annotate("letters");
        group.add(state.clone()).unwrap();
        state.request_shutdown();
        manual.advance(SECOND);
        manual.advance(SHUTDOWN_GRACE);
        assert!(
            state.wait_closed_timeout(LIMIT).is_ok() && all.report().find("letters").is_some(),
            "its job still runs"
        );
        held.release();
        pool.drain().unwrap();
        assert_eq!(all.report().nodes().len(), 1, "nothing of it is left");
    }
}
