//! Beyond the original: limits of single jobs, and what happens when they are over.

use std::time::Duration;

use procession::clock::{Clock, ManualClock};
use procession::shutdown::{Phase, ShutdownNodeBuilder};
use procession::sync::Latch;
use procession::{Reason, ShutdownNode};

use crate::support::{LIMIT, ZERO, job, shutdown};
use crate::wait::wait;

const SECOND: Duration = Duration::from_secs(1);

fn limited(name: &str, clock: &ManualClock) -> ShutdownNodeBuilder {
    ShutdownNode::builder().name(name).clock(clock.clock()).cancel_after(2 * SECOND).give_up_after(5 * SECOND)
}

#[test]
fn a_job_that_does_not_end_is_told_to_cancel_and_then_given_up() {
    let clock = ManualClock::new();
    let (stuck, tail) = limited("stuck", &clock).job();
    let (above, above_tail) = ShutdownNode::builder().name("above").children([stuck.clone()]).job();
    clock.advance(100 * SECOND);
    assert!(!tail.end().is_cancelled(), "its time begins with the end signal");
    above.request_shutdown();
    let phase = || above.report().find("stuck").unwrap().phase;
    assert_eq!((phase(), tail.cancel().is_cancelled()), (Phase::Told, false));
    clock.advance(SECOND);
    assert!(!tail.cancel().is_cancelled());
    clock.advance(SECOND);
    assert_eq!((phase(), tail.cancel().reason()), (Phase::Cancelled, Some(Reason::TimedOut)));
    assert!(!above_tail.end().is_cancelled());
    clock.advance(3 * SECOND);
    assert_eq!(phase(), Phase::GivenUp);
    assert!(above_tail.end().is_cancelled(), "the others go on");
    above_tail.done();
    assert!(above.is_closed());

    let error = above.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "above: stuck: timeout expired");
    assert!(error.open()[0].was_given_up() && error.only_given_up());
    assert!(error.report().to_string().contains("stuck (job): given up"), "{}", error.report());
    // It ends after all, and a later call succeeds.
    tail.done();
    above.shutdown_timeout(ZERO).unwrap();
    assert_eq!(phase(), Phase::Done);
}

#[test]
fn a_job_that_cancels_in_time_is_a_success() {
    let clock = ManualClock::new();
    let (slow, tail) = limited("slow", &clock).job();
    let call = shutdown(&slow, LIMIT, &tail);
    clock.advance(2 * SECOND);
    assert!(tail.cancel().is_cancelled());
    tail.done();
    wait(call).unwrap().unwrap();
    clock.advance(100 * SECOND);
    assert_eq!(slow.report().nodes()[0].phase, Phase::Done);
    assert_eq!(clock.next_due(), None, "no limit is left behind");
}

#[test]
fn limits_of_jobs_that_end_leave_nothing_behind() {
    let clock = ManualClock::new();
    let (states, tails): (Vec<_>, Vec<_>) = (0..1_000).map(|_| limited("one", &clock).job()).unzip();
    let all = ShutdownNode::merge(states);
    all.request_shutdown();
    assert!(clock.next_due().is_some());
    drop(tails);
    all.shutdown_timeout(ZERO).unwrap();
    assert_eq!(clock.next_due(), None);
}

#[test]
fn a_limit_for_giving_up_alone_tells_to_cancel_at_the_same_time() {
    let clock = ManualClock::new();
    let (stuck, tail) = ShutdownNode::builder().clock(clock.clock()).give_up_after(SECOND).job();
    stuck.request_shutdown();
    assert!(!tail.cancel().is_cancelled());
    clock.advance(SECOND);
    assert!(tail.cancel().is_cancelled() && stuck.is_closed());
}

#[test]
fn limits_of_zero_are_over_at_once() {
    let clock = ManualClock::new();
    let (stuck, tail) =
        ShutdownNode::builder().clock(clock.clock()).cancel_after(Duration::ZERO).give_up_after(Duration::ZERO).job();
    let (above, above_tail) = ShutdownNode::job([stuck]);
    above.request_shutdown();
    assert!(tail.end().is_cancelled() && tail.cancel().is_cancelled() && above_tail.end().is_cancelled());
}

#[test]
fn one_slow_job_does_not_use_up_the_time_of_the_others() {
    let clock = ManualClock::new();
    let (stuck, _stuck_tail) = limited("stuck", &clock).job();
    let (next, next_tail) = limited("next", &clock).children([stuck]).job();
    let (last, last_tail) = limited("last", &clock).children([next]).job();
    last.request_shutdown();
    clock.advance(5 * SECOND);
    assert!(next_tail.end().is_cancelled() && !next_tail.cancel().is_cancelled());
    clock.advance(SECOND);
    next_tail.done();
    assert!(last_tail.end().is_cancelled());
    clock.advance(SECOND);
    assert!(!last_tail.cancel().is_cancelled(), "it has its own two seconds");
}

#[test]
fn what_was_given_up_stays_in_its_group_until_it_ends() {
    let clock = ManualClock::new();
    let (stuck, tail) = limited("stuck", &clock).job();
    let (state, group) = ShutdownNode::builder().clock(clock.clock()).group();
    group.add(stuck.clone()).unwrap();
    stuck.request_shutdown();
    clock.advance(5 * SECOND);
    assert!(group.is_empty(), "it is not waited for");
    assert!(state.report().find("stuck").is_some(), "but it has not ended");
    let error = state.shutdown_timeout(ZERO).unwrap_err();
    assert!(state.is_closed() && error.only_given_up());
    tail.done();
    state.shutdown_timeout(ZERO).unwrap();
    assert!(state.report().find("stuck").is_none());
}

#[test]
fn a_group_of_jobs_that_are_given_up_and_end_late_does_not_grow() {
    let clock = ManualClock::new();
    let (inner, inner_group) = ShutdownNode::builder().clock(clock.clock()).group();
    let (outer, _outer_group) = ShutdownNode::group([inner.clone()]);
    let mut late = Vec::new();
    for round in 0..100 {
        // Two of them below one that is in the group: it leaves with the second, and its error is kept.
        let (jobs, tails): (Vec<_>, Vec<_>) = (0..2).map(|_| limited("stuck", &clock).job()).unzip();
        let both = ShutdownNode::merge(jobs).annotate("both");
        inner_group.add(both.clone()).unwrap();
        both.request_shutdown();
        clock.advance(5 * SECOND);
        assert!(both.is_closed() && inner_group.is_empty());
        late.extend(tails);
        if round % 10 == 9 {
            late.iter().step_by(2).for_each(|tail| tail.done());
            assert_eq!(inner.report().nodes().len(), 1 + 10 * 4);
            late[1].fail("late");
            late.clear();
            assert_eq!(
                (outer.report().nodes().len(), outer.err().unwrap().to_string().as_str()),
                (2, "both: stuck: late")
            );
        }
    }
    outer.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn limits_by_the_clock_of_the_system_come_as_well() {
    let (stuck, tail) = ShutdownNode::builder().cancel_after(Duration::from_millis(1)).job();
    stuck.request_shutdown();
    assert_eq!(wait(tail.cancel()), Reason::TimedOut);
    tail.done();
    stuck.shutdown_timeout(LIMIT).unwrap();
}

#[test]
fn a_job_may_end_in_the_callback_that_tells_it_to_cancel() {
    let clock = ManualClock::new();
    let (slow, tail) = limited("slow", &clock).job();
    let (above, above_tail) = ShutdownNode::job([slow, job().0]);
    let ends = tail.job();
    let _on = tail.cancel().on_cancel(move |_| ends.done());
    above.request_shutdown();
    clock.advance(2 * SECOND);
    assert!(above_tail.end().is_cancelled());
    above_tail.done();
    above.shutdown_timeout(ZERO).unwrap();
}

#[test]
fn limits_go_by_the_clock_of_the_job_whatever_the_clock_above_is() {
    let (clock, other) = (ManualClock::new(), ManualClock::new());
    let (state, group) = ShutdownNode::group([]);
    let (one, one_tail) = limited("one", &clock).job();
    let (two, two_tail) = limited("two", &other).job();
    group.add(one).unwrap();
    group.add(two).unwrap();
    state.request_shutdown();
    clock.advance(2 * SECOND);
    assert!(one_tail.cancel().is_cancelled() && !two_tail.cancel().is_cancelled());
    one_tail.done();
    other.advance(5 * SECOND);
    assert!(two_tail.cancel().is_cancelled() && state.is_closed());
    assert_eq!((clock.next_due(), other.next_due()), (None, None));
}

#[test]
fn a_job_gets_end_before_cancel_even_with_a_limit_of_zero() {
    for clock in [ManualClock::new().clock(), Clock::system()] {
        for _ in 0..100 {
            let (state, tail) = ShutdownNode::builder().clock(clock.clone()).cancel_after(Duration::ZERO).job();
            let (ends, early) = (tail.end().clone(), Latch::new());
            let set = early.clone();
            let _on = tail.cancel().on_cancel(move |_| set.set(!ends.is_cancelled()).unwrap());
            state.request_shutdown();
            assert!(!wait(&early));
        }
    }
}
