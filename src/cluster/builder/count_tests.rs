//! The counts of a node, and of the limits that its peers have reached.

use super::tests::{LIMIT, member, two};
use crate::cluster::MemoryNetwork;
use crate::cluster::events::NodeEvent;
use crate::cluster::link::Upward as _;
use crate::cluster::node::echo::Message;
use crate::wait::until;

#[test]
fn the_counts_of_a_node_have_its_peers_and_their_frames() {
    let [a, b] = two(&MemoryNetwork::new());
    let (echo, _) = b.echo();
    let far = a.far(&b, echo.address());
    let before = a.cluster.stats();
    assert_eq!((before.held_processes, before.waiting_sends, before.peers.len()), (0, 0, 1));
    for _ in 0..10 {
        assert_eq!(a.runtime.ask(far, Message::Ask, LIMIT).wait().unwrap(), 7);
    }
    let peer = &a.cluster.stats().peers[0];
    assert!(peer.name == "b" && peer.is_up, "{peer:?}");
    // Each question is in a frame after the answer before it.
    for (after, before) in
        [(peer.frames_sent, before.peers[0].frames_sent), (peer.frames_received, before.peers[0].frames_received)]
    {
        assert!(after >= before + 10, "{after} after {before}");
    }
    assert!(peer.bytes_sent > peer.frames_sent && peer.bytes_received > peer.frames_received, "{peer:?}");
    // The network loses nothing. So what one has given to it, the other one gets.
    until("both count the same", || {
        let (here, there) = (a.cluster.stats().peers, b.cluster.stats().peers);
        let sent = (here[0].frames_sent, here[0].bytes_sent);
        sent == (there[0].frames_received, there[0].bytes_received)
    });
    assert!(b.runtime.shutdown(LIMIT).unwrap().is_clean());
    until("the peer is down", || !a.cluster.stats().peers[0].is_up);
    assert!(a.cluster.stats().peers[0].frames_sent >= peer.frames_sent);
}

#[test]
fn the_counts_of_a_peer_go_on_though_a_thousand_names_came_meanwhile() {
    let network = MemoryNetwork::new();
    let [a, b] = two(&network);
    let (echo, _) = b.echo();
    assert_eq!(a.runtime.ask(a.far(&b, echo.address()), Message::Ask, LIMIT).wait().unwrap(), 7);
    b.runtime.shutdown(LIMIT).unwrap();
    until("the node is down", || a.names().is_empty());
    let of_b = || a.cluster.stats().peers.into_iter().find(|peer| peer.name == "b");
    let before = of_b().unwrap();
    assert!(before.frames_sent > 1 && before.frames_received > 1, "{before:?}");
    let members = &a.cluster.members;
    for name in (0..2_000).map(|number| format!("c{number}")) {
        members.seen(&name, 1);
        members.gone(&name, 1);
    }
    assert!(!members.has_more_than(1_024));
    assert_eq!(of_b(), None, "it was forgotten");
    assert!(a.cluster.stats().peers.iter().all(|peer| peer.frames_sent == 0), "they were never up");
    let _again = member("b", &network);
    a.cluster.wait_for("b", LIMIT).unwrap();
    let after = of_b().unwrap();
    assert!(after.frames_sent > before.frames_sent && after.bytes_sent > before.bytes_sent, "{after:?}");
    assert!(after.frames_received > before.frames_received && after.bytes_received > before.bytes_received);
}

#[test]
fn a_limit_that_a_peer_has_reached_is_an_event_and_counted() {
    let network = MemoryNetwork::new();
    let a = member("a", &network);
    let mut events = a.cluster.events();
    let limits = a.cluster.members.node().unwrap().limits().clone();
    limits.relation_refused("b", "too many", true);
    limits.relation_refused("b", "too many", false);
    limits.life_refused("c", "too many lives", true);
    let expected = [("b", "too many"), ("c", "too many lives")];
    for (name, why) in expected.map(|(name, why)| (name.to_string(), why.to_string())) {
        assert_eq!(events.recv_timeout(LIMIT).unwrap(), Some(NodeEvent::LimitReached { name, why }));
    }
    let stats = a.cluster.stats();
    assert_eq!((stats.refused_lives, stats.refused_relations), (1, 2));
    a.runtime.shutdown(LIMIT).unwrap();
    assert_eq!(events.recv(), Ok(None));
}
