//! E: errors.

use std::error::Error;
use std::fmt;

use procession::ShutdownNode;

use crate::support::{LIMIT, ZERO, job};
use crate::wait::{Barrier, wait};

#[derive(Debug, PartialEq, Eq)]
struct OutOfPaper {
    tray: u32,
}

impl fmt::Display for OutOfPaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tray {} is empty", self.tray)
    }
}

impl Error for OutOfPaper {}

fn err(state: &ShutdownNode) -> Option<String> {
    state.err().map(|error| error.to_string())
}

#[test]
fn an_error_is_reported_directly_and_through_any_parents() {
    let error = ShutdownNode::error("broken", []);
    assert_eq!(err(&error).unwrap(), "broken");
    let (above, _tail) = ShutdownNode::job([ShutdownNode::merge([ShutdownNode::empty(), error])]);
    let above = ShutdownNode::empty().depends_on([above]);
    assert_eq!(err(&above).unwrap(), "broken");
}

#[test]
fn an_own_error_comes_before_those_of_children() {
    let child = ShutdownNode::error("child", []);
    assert_eq!(err(&ShutdownNode::error("own", [child.clone()])).unwrap(), "own");
    let (state, tail) = ShutdownNode::job([child]);
    assert_eq!(err(&state).unwrap(), "child");
    tail.fail("own");
    assert_eq!(err(&state).unwrap(), "own");
}

#[test]
fn the_parents_error_comes_first_then_children_from_the_left() {
    let (one, two, three) =
        (ShutdownNode::error("one", []), ShutdownNode::error("two", []), ShutdownNode::error("three", []));
    assert_eq!(err(&one.depends_on([two.clone(), three.clone()])).unwrap(), "one");
    assert_eq!(err(&ShutdownNode::empty().depends_on([two.clone(), three.clone()])).unwrap(), "two");
    let deep = ShutdownNode::merge([ShutdownNode::merge([two])]);
    assert_eq!(err(&ShutdownNode::merge([deep, three])).unwrap(), "two", "the left one, even if deeper");
}

#[test]
fn a_state_made_from_a_success_has_no_error() {
    assert_eq!(err(&ShutdownNode::result(Ok::<u32, OutOfPaper>(1), [])), None);
    assert_eq!(err(&ShutdownNode::result(Err::<(), _>(OutOfPaper { tray: 2 }), [])).unwrap(), "tray 2 is empty");
}

#[test]
fn a_place_for_errors_that_is_empty_does_not_hide_those_of_its_children() {
    let (errors, tail) = ShutdownNode::errors([ShutdownNode::error("child", [])]);
    assert_eq!(err(&errors).unwrap(), "child");
    assert_eq!(
        err(&ShutdownNode::result(Ok::<(), OutOfPaper>(()), [ShutdownNode::error("child", [])])).unwrap(),
        "child"
    );
    tail.set("own");
    assert_eq!(err(&errors).unwrap(), "own");
}

#[test]
fn the_first_error_that_is_set_is_kept_from_any_thread() {
    for _ in 0..100 {
        let (state, tail) = ShutdownNode::errors([]);
        assert_eq!(err(&state), None);
        let together = Barrier::new(2);
        let first = std::thread::scope(|scope| {
            let set = |name: &'static str| {
                let (tail, together) = (tail.clone(), &together);
                scope.spawn(move || {
                    wait(together);
                    tail.set(name).then_some(name)
                })
            };
            let (one, two) = (set("one"), set("two"));
            let (one, two) = (wait(one).unwrap(), wait(two).unwrap());
            assert!(one.is_some() != two.is_some(), "one of them is the first");
            one.or(two).unwrap()
        });
        assert!(!tail.set("three"));
        assert_eq!(err(&state).unwrap(), first);
    }
}

#[test]
fn a_success_sets_no_error() {
    let (state, tail) = ShutdownNode::errors([]);
    assert_eq!(tail.set_on(Ok::<u32, OutOfPaper>(5)), Some(5));
    assert_eq!(err(&state), None);
    assert_eq!(tail.set_on(Err::<u32, _>(OutOfPaper { tray: 1 })), None);
    assert_eq!(err(&state).unwrap(), "tray 1 is empty");

    let (state, tail) = job();
    assert_eq!(tail.fail_on("6".parse::<u32>()), Some(6));
    assert_eq!(err(&state), None);
    assert_eq!(tail.fail_on("six".parse::<u32>()), None);
    assert_eq!(err(&state).unwrap(), "invalid digit found in string");
}

#[test]
fn an_error_can_have_a_sentence_before_it_and_keeps_its_cause() {
    let (state, tail) = ShutdownNode::errors([]);
    assert!(tail.set_because("page 7", OutOfPaper { tray: 3 }));
    let error = state.annotate("printer").err().unwrap();
    assert_eq!(error.to_string(), "printer: page 7: tray 3 is empty");
    let because = error.source().unwrap();
    assert_eq!(because.source().unwrap().downcast_ref(), Some(&OutOfPaper { tray: 3 }));
}

#[test]
fn who_has_reported_an_error_always_reports_one() {
    let (child, tail) = job();
    let (group_state, group) = ShutdownNode::group([]);
    let (top, top_tail) = ShutdownNode::job([group_state]);
    group.add(child).unwrap();
    tail.fail("first");
    assert_eq!(err(&top).unwrap(), "first");
    tail.done();
    assert!(group.is_empty(), "the child has left");
    assert_eq!(err(&top).unwrap(), "first");
    top_tail.fail("own");
    assert_eq!(err(&top).unwrap(), "own", "which one is shown may change");
    top.request_shutdown();
    top_tail.done();
    top.shutdown_timeout(ZERO).unwrap();
    assert!(top.err().is_some());
}

#[test]
fn the_original_error_is_in_the_annotated_one() {
    let state = ShutdownNode::error(OutOfPaper { tray: 9 }, []).annotate("inner").annotate("outer");
    let error = state.err().unwrap();
    assert_eq!(error.downcast_ref::<OutOfPaper>(), Some(&OutOfPaper { tray: 9 }));
    assert_eq!(error.source().unwrap().downcast_ref::<OutOfPaper>(), Some(&OutOfPaper { tray: 9 }));
    assert_eq!(error.error().to_string(), "tray 9 is empty");
    assert!(error.downcast_ref::<fmt::Error>().is_none());
}

#[test]
fn a_shutdown_may_succeed_although_there_is_an_error() {
    let state = ShutdownNode::thread("broken", |job| {
        wait(job.end());
        Err("it broke while it ended".into())
    })
    .unwrap();
    state.shutdown_timeout(LIMIT).unwrap();
    assert_eq!(err(&state).unwrap(), "broken: it broke while it ended");
}

#[test]
fn what_cannot_start_returns_a_state_with_its_error() {
    fn start(port: &str) -> ShutdownNode {
        match port.parse::<u16>() {
            Ok(_) => ShutdownNode::thread("server", |_| Ok(())).unwrap(),
            Err(error) => ShutdownNode::error(error, []),
        }
    }
    let broken = start("many");
    assert_eq!(err(&broken).unwrap(), "invalid digit found in string");
    broken.shutdown_timeout(ZERO).unwrap();
    assert_eq!(err(&start("80")), None);
}
