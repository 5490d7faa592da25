//! D: annotations, and what the timeout error says.

use std::error::Error;

use procession::ShutdownNode;
use procession::shutdown::{Phase, ShutdownTimeout};

use crate::support::{ZERO, job, named};

fn text(state: &ShutdownNode) -> String {
    state.shutdown_timeout(ZERO).unwrap_err().to_string()
}

#[test]
fn a_timeout_is_recognised_through_any_number_of_names() {
    let (mut state, _tail) = job();
    for name in 0..50 {
        state = state.annotate(name.to_string());
    }
    let error: Box<dyn Error + Send + Sync> = Box::new(state.shutdown_timeout(ZERO).unwrap_err());
    let found = error.downcast_ref::<ShutdownTimeout>().unwrap();
    assert_eq!(found.open()[0].names().count(), 50);
    assert!(!found.open()[0].was_given_up());
}

#[test]
fn names_stand_before_an_error_outermost_first() {
    let state = ShutdownNode::error("cause", []).annotate("inner").annotate("outer");
    assert_eq!(state.err().unwrap().to_string(), "outer: inner: cause");
    assert_eq!(state.err().unwrap().names().collect::<Vec<_>>(), ["outer", "inner"]);
}

#[test]
fn a_timeout_below_a_name_reads_name_then_timeout_expired() {
    let (state, _tail) = job();
    assert_eq!(text(&state.annotate("test")), "test: timeout expired");
}

#[test]
fn a_hanging_child_is_named_also_from_an_unnamed_parent() {
    let (child, _child_tail) = job();
    let (parent, _parent_tail) = ShutdownNode::job([child.annotate("child")]);
    assert_eq!(text(&ShutdownNode::merge([parent])), "child: timeout expired");
}

#[test]
fn the_error_names_who_hangs_and_not_who_waits_for_it() {
    let ((parent, parent_tail), (child, child_tail)) = (job(), job());
    let both = parent.annotate("parent").depends_on([child.annotate("child")]);
    assert_eq!(text(&both), "child: timeout expired");
    child_tail.done();
    assert_eq!(text(&both), "parent: timeout expired");
    parent_tail.done();
    both.shutdown_timeout(ZERO).unwrap();

    // Where the parent's name is on the way to the child, it is told, but the parent is not among those who hang.
    let (child, _child_tail) = named("child");
    let (parent, _parent_tail) = ShutdownNode::builder().name("parent").children([child]).job();
    let error = parent.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "parent: child: timeout expired");
    assert_eq!(error.open().len(), 1);
}

#[test]
fn a_name_with_no_error_below_is_no_error() {
    let (state, tail) = job();
    let state = state.annotate("calm");
    assert!(state.err().is_none());
    tail.done();
    assert!(state.shutdown_timeout(ZERO).is_ok() && state.err().is_none());
}

#[test]
fn a_name_in_a_dependency_is_not_for_its_siblings() {
    let ((parent, _parent_tail), (left, left_tail), (right, right_tail)) = (job(), job(), job());
    let all = parent.depends_on([left.annotate("left"), right]);
    left_tail.done();
    assert_eq!(text(&all), "timeout expired", "the right one has no name");
    right_tail.done();
    assert_eq!(text(&all), "timeout expired", "nor has the parent");

    let named = ShutdownNode::empty().annotate("left").depends_on([ShutdownNode::error("cause", [])]);
    assert_eq!(named.err().unwrap().to_string(), "cause");
}

#[test]
fn an_empty_name_adds_nothing() {
    let (state, _tail) = job();
    assert_eq!(text(&state.annotate("")), "timeout expired");
    assert_eq!(ShutdownNode::error("cause", []).annotate("").err().unwrap().to_string(), "cause");
    let (state, _tail) = named("");
    assert_eq!((text(&state).as_str(), state.name()), ("timeout expired", None));
}

#[test]
fn when_several_hang_all_are_named_the_first_one_first() {
    let (jobs, tails): (Vec<_>, Vec<_>) = ["a", "b", "c"].map(named).into_iter().unzip();
    let all = ShutdownNode::merge(jobs);
    let error = all.shutdown_timeout(ZERO).unwrap_err();
    assert_eq!(error.to_string(), "a: timeout expired; b: timeout expired; c: timeout expired");
    let names: Vec<_> = error.open().iter().flat_map(|open| open.names()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    tails[1].done();
    assert_eq!(text(&all), "a: timeout expired; c: timeout expired");

    let (many, _tails): (Vec<_>, Vec<_>) = (0..100).map(|n| named(&n.to_string())).unzip();
    let error = ShutdownNode::merge(many).shutdown_timeout(ZERO).unwrap_err();
    assert!(error.to_string().ends_with("7: timeout expired; and 92 more"), "{error}");
    assert_eq!(error.open().len(), 100);
}

#[test]
fn the_error_can_show_the_whole_tree() {
    let (child, _child_tail) = named("child");
    let (parent, _parent_tail) = ShutdownNode::builder().name("parent").children([child]).job();
    let error = parent.shutdown_timeout(ZERO).unwrap_err();
    let all = format!("{error:#}");
    assert!(all.contains("parent (job): waits for its children for"), "{all}");
    assert!(all.contains("\n  child (job): told to end for"), "{all}");
    assert_eq!(error.report().find("child").unwrap().phase, Phase::Told);
    assert!(format!("{error:?}").contains("child"));
}
