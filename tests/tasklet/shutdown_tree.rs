//! The loop in a shutdown tree.

use std::time::Duration;

use procession::clock::ManualClock;
use procession::pool::{Pool, SHUTDOWN_GRACE};
use procession::shutdown::Phase;
use procession::sync::Latch;
use procession::tasklet::{Directive, Loop, LoopHandle, TaskletContext, ready};
use procession::{Exit, Reason, ShutdownNode, WaitError};

use crate::support::*;

const ZERO: Duration = Duration::ZERO;
const LONG: Duration = LIMIT;
const SECOND: Duration = Duration::from_secs(1);

/// A loop on this pool, run by a thread of its own, with a tasklet that blocks on the pool, whatever it is told.
fn held(builder: procession::tasklet::LoopBuilder) -> (LoopHandle<()>, Blocker, std::thread::JoinHandle<bool>) {
    let (blocker, told) = (Blocker::new(), Latch::new());
    let stubborn = ready::named(blocks_on_pool(blocker.blocked(), Directive::Home), "stubborn");
    let tell = told.clone();
    let runs = std::thread::spawn(move || {
        let mut home = builder.build(());
        let _ = tell.set(home.handle());
        home.schedule(stubborn, Directive::Home).unwrap().run().is_ok()
    });
    blocker.wait_begun();
    (wait(&told), blocker, runs)
}

#[test]
fn a_loop_told_to_end_closes_when_its_last_step_has_returned() {
    let (pool, manual) = (Pool::new(2).unwrap(), ManualClock::new());
    let (handle, blocker, runs) = held(Loop::<()>::builder().pool(&pool).clock(manual.clock()));
    let waits = handle.schedule(ready::wait(), Directive::Wait).unwrap();
    let state = handle.shutdown_node();
    manual.advance(SECOND);
    state.request_shutdown();
    assert!(matches!(wait(&waits), Exit::Terminated(Reason::Shutdown)));
    let error = state.shutdown_timeout(ZERO).unwrap_err();
    let expected = "loop: timeout expired (1 tasklet is left: stubborn (#1): Pool for 1s, in a step)";
    assert_eq!(error.to_string(), expected);
    assert!(handle.is_closed() && !runs.is_finished());
    blocker.release();
    state.shutdown_timeout(LONG).unwrap();
    assert!(wait(runs).unwrap() && state.err().is_none());
    assert!(pool.run(|| ()).is_ok(), "the pool goes on");
}

#[test]
fn a_loop_has_one_shutdown_node_which_includes_its_own_pool() {
    let pool = Pool::new(1).unwrap();
    let shared = Loop::on((), &pool);
    assert_eq!(
        ShutdownNode::merge([shared.shutdown_node(), shared.handle().shutdown_node()]).report().nodes().len(),
        2
    );

    let (handle, blocker, runs) = held(Loop::<()>::builder());
    let state = handle.shutdown_node();
    let report = state.report();
    let names: Vec<_> = report.nodes().iter().filter_map(|node| node.name.as_deref()).collect();
    assert_eq!(names, ["procession-tasklet", "loop"], "the pool closes after the loop");
    blocker.release();
    state.shutdown_timeout(LONG).unwrap();
    assert_eq!(state.report().count(Phase::Done), 3);
    assert!(wait(runs).unwrap() && state.err().is_none());
}

#[test]
fn a_loop_that_is_closed_or_dropped_closes_its_shutdown_node() {
    let pool = Pool::new(2).unwrap();
    for own in [true, false] {
        let builder = || if own { Loop::<()>::builder() } else { Loop::<()>::builder().pool(&pool) };
        let mut one = builder().build(());
        one.schedule(ready::wait(), Directive::Wait).unwrap();
        let state = one.shutdown_node();
        one.close(LIMIT).unwrap();
        assert!(state.is_closed() && !state.is_shutting_down() && state.err().is_none());

        let two = builder().build(());
        let (state, handle) = (two.shutdown_node(), two.handle());
        handle.schedule(ready::done(), Directive::Home).unwrap();
        drop(two);
        assert!(state.is_closed() && handle.is_closed());

        let three = builder().build(());
        let handle = three.handle();
        three.into_inner();
        assert!(handle.shutdown_node().is_closed(), "it had ended before");

        let four = builder().build(());
        let state = four.shutdown_node();
        state.request_shutdown();
        state.wait_closed_timeout(LONG).unwrap();

        let (handle, blocker, runs) = held(builder());
        let state = handle.shutdown_node();
        assert!(handle.close(Duration::ZERO).is_err());
        assert!(!state.is_closed(), "a step still runs");
        blocker.release();
        assert!(wait(runs).unwrap());
        assert!(state.wait_closed_timeout(LONG).is_ok());
    }
}

#[test]
fn a_tree_does_not_wait_for_a_step_beyond_the_limit() {
    for own in [false, true] {
        let (pool, manual) = (Pool::new(1).unwrap(), ManualClock::new());
        let builder = Loop::<()>::builder().clock(manual.clock()).shutdown_limit(3 * SECOND);
        let (handle, blocker, runs) = held(if own { builder } else { builder.pool(&pool) });
        let (store, store_tail) = ShutdownNode::job([handle.shutdown_node()]);
        store.request_shutdown();
        manual.advance(3 * SECOND - Duration::from_millis(1));
        assert_eq!(store.report().find("loop").unwrap().phase, Phase::Told);
        manual.advance(Duration::from_millis(1));
        if own {
            // Its pool was told then.
            assert!(!store_tail.end().is_cancelled());
            manual.advance(2 * SHUTDOWN_GRACE);
        }
        wait(store_tail.end());
        store_tail.done();
        let error = store.shutdown_timeout(LONG).unwrap_err();
        assert!(error.only_given_up() && error.open().iter().any(|open| open.names().eq(["loop"])));
        blocker.release();
        assert!(wait(runs).unwrap());
        handle.close(LIMIT).unwrap();
        pool.drain().unwrap();
        assert!(handle.shutdown_node().wait_closed_timeout(LONG).is_ok());
        until("the thread has left", || {
            // The step has returned; its thread is about to leave.
            store.shutdown_timeout(LONG).is_ok()
        });
    }
}

#[test]
fn a_step_that_waits_for_its_loops_end_gets_an_error() {
    let pool = Pool::new(2).unwrap();
    let mut home = Loop::on((), &pool);
    let state = home.shutdown_node();
    let answers = Arc::new(Mutex::new(Vec::new()));
    let asks = move |state: &ShutdownNode| {
        (state.shutdown().is_err_and(|e| e.why() == WaitError::Inside), state.wait_closed().is_ok())
    };
    let (at_home, on_pool) = (state.clone(), state.clone());
    let (first, second) = (answers.clone(), answers.clone());
    // Both are in a step before one of them asks.
    let both = Arc::new(Barrier::new(2));
    let meets = both.clone();
    let on_the_pool = elsewhere(move |_: &mut TaskletContext<'_, ()>| {
        wait(&meets);
        second.lock().unwrap().push(asks(&on_pool));
        Directive::Done
    });
    let here = ready::from_fn(move |(): &mut (), _: &mut TaskletContext<'_, ()>| {
        wait(&both);
        first.lock().unwrap().push(asks(&at_home));
        Directive::Done
    });
    home.schedule(on_the_pool, Directive::Home).unwrap().schedule(here, Directive::Home).unwrap();
    home.run().unwrap();
    assert_eq!(*answers.lock().unwrap(), [(true, false), (true, false)]);
    state.shutdown_timeout(LONG).unwrap();
}

#[test]
fn a_callback_of_a_closing_loop_that_waits_for_it_gets_an_error() {
    let pool = Pool::new(1).unwrap();
    let mut home = Loop::on((), &pool);
    let (state, begun, told) = (home.shutdown_node(), Latch::<()>::new(), Latch::<bool>::new());
    let (asks, begins, tell) = (state.clone(), begun.clone(), told.clone());
    let on_pool = elsewhere(move |cx: &mut TaskletContext<'_, ()>| {
        let (asks, tell, token) = (asks.clone(), tell.clone(), cx.cancelled());
        let _kept = token.on_cancel(move |_| {
            let _ = tell.set(asks.shutdown().is_err_and(|error| error.why() == WaitError::Inside));
        });
        let _ = begins.set(());
        wait(token);
        Directive::Done
    });
    // The other one is cancelled after the callback has returned.
    home.schedule(on_pool, Directive::Home).unwrap().schedule(ready::wait(), Directive::Wait).unwrap();
    let closes = state.clone();
    let closer = std::thread::spawn(move || {
        wait(&begun);
        closes.request_shutdown();
    });
    home.run_for(LIMIT).unwrap();
    assert!(wait(&told));
    wait(closer).unwrap();
    state.shutdown_timeout(LONG).unwrap();
}
