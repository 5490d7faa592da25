//! I: the empty state.

use procession::ShutdownNode;
use procession::shutdown::Key;

use crate::support::{ZERO, job};

#[derive(PartialEq, Eq)]
struct Anything;

impl Key for Anything {
    type Value = ();
}

#[test]
fn the_empty_state_has_nothing_does_nothing_and_stands_anywhere() {
    let empty = ShutdownNode::empty();
    assert!(empty.err().is_none() && empty.get(&Anything).is_none() && empty.failed_timeout(ZERO).is_err());
    assert!(empty.is_ready() && empty.wait().is_ok() && empty.wait_ready().is_ok());
    empty.shutdown_timeout(ZERO).unwrap();
    empty.shutdown().unwrap();

    let (child, tail) = job();
    let above = empty.depends_on([child, empty.clone()]);
    let (top, top_tail) = ShutdownNode::job([above, ShutdownNode::empty()]);
    top.request_shutdown();
    assert!(tail.end().is_cancelled() && !top_tail.end().is_cancelled());
    tail.done();
    assert!(top_tail.end().is_cancelled());
    top_tail.done();
    top.shutdown_timeout(ZERO).unwrap();
}
