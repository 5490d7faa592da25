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
