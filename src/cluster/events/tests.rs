//! The end of the events.

use super::*;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn nodes_that_are_up_at_the_end_are_down_and_nothing_comes_after_the_end() {
    let watch = NodeWatch::new(Clock::system());
    let node = NodeIdentity::new("a", 1);
    watch.up(&node);
    let mut events = watch.subscribe();
    watch.close();
    // A thread that was left behind carries its down out.
    watch.down(&node, DownReason::Closed);
    watch.up(&node);
    assert_eq!(events.recv_timeout(LIMIT), Ok(Some(NodeEvent::Up(node.clone()))));
    assert_eq!(events.recv_timeout(LIMIT), Ok(Some(NodeEvent::Down(node, DownReason::Left))));
    assert_eq!((events.recv_timeout(LIMIT), events.recv_timeout(LIMIT)), (Ok(None), Ok(None)));
    assert_eq!(watch.nodes(), []);
}

/// Fails if others are asked about a node that has said that it leaves, or about one that is up again. Fails if
/// a node that is down is asked when it is up again.
#[test]
fn others_are_asked_about_a_node_that_is_down_and_has_not_left() {
    let watch = NodeWatch::new(Clock::system());
    let [a, b, c] = [("a", 1), ("b", 2), ("c", 3)].map(|(name, incarnation)| NodeIdentity::new(name, incarnation));
    [&a, &b, &c].into_iter().for_each(|node| watch.up(node));
    watch.down(&a, DownReason::Left);
    assert_eq!(watch.inquiries(), 0);
    watch.up(&a);
    watch.down(&a, DownReason::Silent);
    assert_eq!(watch.inquiries(), 2, "to each of the others");
    watch.down(&b, DownReason::Gap);
    assert_eq!(watch.inquiries(), 2, "two to the last one, and none to a node that is down");
    watch.up(&NodeIdentity::new("a", 4));
    assert_eq!(watch.inquiries(), 1, "none about another one of this name");
    watch.close();
    assert_eq!(watch.inquiries(), 0);
}
