//! I: the empty state.

use procession::ShutdownNode;
use procession::shutdown::Key;

use crate::helpers::{ZERO, job};

#[derive(PartialEq, Eq)]
struct Anything;

impl Key for Anything {
    type Value = ();
}

#[test]
fn the_empty_state_has_nothing_does_nothing_and_stands_anywhere() {
    let empty = ShutdownNode::empty();
    assert!(empty.err().is_none() && empty.get(&Anything).is_none() && empty.failed(ZERO).is_err());
    assert!(empty.is_ready() && empty.wait(None).is_ok() && empty.wait_ready(None).is_ok());
    empty.shutdown(ZERO).unwrap();
    empty.shutdown(None).unwrap();

    let (child, tail) = job();
    let above = empty.depends_on([child, empty.clone()]);
    let (top, top_tail) = ShutdownNode::job([above, ShutdownNode::empty()]);
    top.request_shutdown();
    assert!(tail.end().is_cancelled() && !top_tail.end().is_cancelled());
    tail.done();
    assert!(top_tail.end().is_cancelled());
    top_tail.done();
    top.shutdown(ZERO).unwrap();
}
