//! Trees of 100,000 nodes, on a small stack: deep, wide, and laced.

use std::time::Duration;

use procession::ShutdownNode;
use procession::clock::ManualClock;
use procession::shutdown::Phase;

use crate::support::{LIMIT, ZERO, job, named};
use crate::wait::wait;

const MANY: usize = 100_000;

/// Runs it where recursion over the tree would overflow the stack.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    wait(std::thread::Builder::new().stack_size(256 * 1024).spawn(test).unwrap()).unwrap();
}

#[test]
fn a_chain_of_100_000_nodes_is_built_looked_at_shut_down_and_dropped() {
    on_a_small_stack(|| {
        let (mut state, tail) = named("deepest");
        let mut tails = vec![tail];
        for number in 1..MANY {
            let (above, tail) = ShutdownNode::job([state]);
            // Not all of them are of one kind.
            state = match number % 1_000 {
                0 => above.annotate("name"),
                1 => ShutdownNode::empty().depends_on([above]),
                _ => above,
            };
            tails.push(tail);
        }
        let error = state.shutdown_timeout(ZERO).unwrap_err();
        assert_eq!(error.open().len(), 1);
        assert_eq!(error.open()[0].names().count(), 100);
        assert!(tails[0].end().is_cancelled() && !tails[1].end().is_cancelled());
        tails[0].fail("deep down");
        assert!(state.err().unwrap().to_string().ends_with("deepest: deep down"));
        assert!(state.is_ready() && state.wait_timeout(ZERO).is_ok());
        // One after the other, from below.
        tails.drain(..).for_each(drop);
        state.shutdown_timeout(ZERO).unwrap();
        let report = state.report();
        assert_eq!(report.count(Phase::Done), report.nodes().len());
        assert!(report.to_string().lines().count() > MANY);
        drop(state);
    });
}

#[test]
fn a_chain_that_is_done_from_above_closes_at_once_when_the_deepest_is() {
    on_a_small_stack(|| {
        let (mut state, deepest) = job();
        let mut tails = Vec::new();
        for _ in 1..MANY {
            let (above, tail) = ShutdownNode::job([state]);
            state = above;
            tails.push(tail);
        }
        state.request_shutdown();
        drop(tails);
        assert!(!state.is_closed());
        drop(deepest);
        assert!(state.is_closed());
        drop(state);
    });
}

#[test]
fn a_chain_that_nobody_shuts_down_is_dropped_without_depth() {
    on_a_small_stack(|| {
        let mut state = job().0;
        for _ in 1..2 * MANY {
            state = ShutdownNode::merge([state]);
        }
        drop(state);

        let mut state = job().0;
        for _ in 1..MANY {
            state = ShutdownNode::empty().depends_on([state]);
        }
        drop(state);
    });
}

#[test]
fn a_node_with_100_000_children_closes_them_all() {
    let (states, tails): (Vec<_>, Vec<_>) = (0..MANY).map(|_| job()).unzip();
    let (top, top_tail) = ShutdownNode::job(states);
    top.request_shutdown();
    assert!(tails.iter().all(|tail| tail.end().is_cancelled()));
    assert_eq!(top.report().count(Phase::Told), MANY);
    assert!(!top_tail.end().is_cancelled());
    drop(tails);
    assert!(top_tail.end().is_cancelled());
    top_tail.done();
    top.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn a_group_takes_100_000_in_and_they_leave_in_any_order() {
    let (state, group) = ShutdownNode::group([]);
    let mut tails = Vec::new();
    for _ in 0..MANY {
        let (child, tail) = job();
        group.add(child).unwrap();
        tails.push(tail);
    }
    // From the front, which would be slow if each left the list by itself.
    drop(tails);
    assert!(group.is_empty());
    state.shutdown_timeout(LIMIT).unwrap();
}

#[test]
fn a_ladder_of_diamonds_is_not_walked_along_each_of_its_ways() {
    // There are 2 to the power of 1,000 ways from the top to the bottom.
    let (mut state, bottom) = job();
    let mut tails = Vec::new();
    for _ in 0..1_000 {
        let (left, left_tail) = ShutdownNode::job([state.clone()]);
        let (right, right_tail) = ShutdownNode::job([state]);
        state = ShutdownNode::merge([left, right]);
        tails.extend([left_tail, right_tail]);
    }
    state.request_shutdown();
    assert_eq!(state.report().nodes().len(), 3_001);
    assert!(state.is_ready() && state.wait_timeout(ZERO).is_ok() && state.err().is_none());
    bottom.fail("at the bottom");
    assert!(state.err().is_some());
    drop(bottom);
    tails.drain(..).for_each(drop);
    state.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn the_error_of_a_hanging_chain_grows_linearly() {
    // The names on the ways to 100,000 nodes, one below the other, would take 80 GB.
    on_a_small_stack(|| {
        let clock = ManualClock::new();
        let mut state = ShutdownNode::empty();
        let mut tails = Vec::new();
        for _ in 0..MANY {
            let builder = ShutdownNode::builder().name("job").clock(clock.clock()).children([state]);
            let (above, tail) = builder.give_up_after(Duration::ZERO).job();
            state = above;
            tails.push(tail);
        }
        let error = state.shutdown_timeout(ZERO).unwrap_err();
        assert_eq!((error.open().len(), error.only_given_up()), (MANY, true));
        let deepest = error.open().last().unwrap();
        assert_eq!((deepest.names().count(), deepest.was_given_up()), (MANY, true));
        let text = error.to_string();
        assert!(
            text.starts_with("job: timeout expired; job: job: timeout expired; ") && text.ends_with("; and 99992 more")
        );
        assert!(format!("{error:?}").len() < 10_000);
    });
}
