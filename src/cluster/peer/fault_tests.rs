//! Faults of a peer, and their ends.

use super::simulated_link::{Fate, MILLISECOND, SECOND, World, identity};
use super::*;

/// The first bytes of a batch, and of a `Bye`.
const BATCH: u8 = 0xC5;
const BYE: u8 = 0xC3;

/// The first batch of the second node has a part of a kind that nobody knows.
fn with_a_fault(loses_goodbye: bool) -> World {
    let mut world = World::up(17);
    let mut spoils = true;
    world.spoil = Box::new(move |who, frame| {
        if loses_goodbye && frame[0] == BYE {
            return Fate::Lost;
        }
        if who == 1 && frame[0] == BATCH && std::mem::take(&mut spoils) {
            frame[45] = 99;
        }
        Fate::Arrives
    });
    world.offer(1, Class::Message, 1, 100).unwrap();
    world.run_for(SECOND / 2);
    assert_eq!(world.nodes[0].downs[0].1, DownReason::Protocol);
    world
}

/// It may be another program, in which the fault is repaired.
#[test]
fn a_repaired_node_does_not_wait_for_the_fault_of_the_one_before() {
    let mut world = with_a_fault(false);
    world.run_for(SECOND);
    assert!(!world.are_up(), "the same node waits");
    world.restart(1, identity("b", 3));
    world.run_for(SECOND);
    assert!(world.are_up());
}

/// A copy of a `Hello` may be 30 s late. So it does not show which node runs now.
#[test]
fn a_late_hello_does_not_end_the_wait_for_a_faulty_node() {
    // The faulty node does not know of its fault. It sees silence, and sends a `Hello`.
    let mut world = with_a_fault(true);
    world.run_for(SECOND * 2);
    assert!(!world.are_up());
    let mut earlier: Peer = Peer::new(world.now, identity("b", 9), 8 << 20);
    let mut hello = Vec::new();
    assert!(earlier.dial(world.now, 99) && earlier.next_frame(world.now, &mut hello, &mut Vec::new()));
    world.put(0, world.now, hello);
    world.run_for(SECOND * 2);
    assert!(!world.are_up());
    world.run_for(SECOND * 2);
    assert!(world.are_up(), "5 s are over");
}

#[test]
fn a_goodbye_whose_reason_only_a_newer_version_knows_is_no_fault() {
    for (reason, expected, is_up) in
        [(77, DownReason::Unknown, true), (DownReason::Protocol.to_byte(), DownReason::Protocol, false)]
    {
        let mut world = World::up(18);
        let mut is_lost = false;
        world.spoil = Box::new(move |who, frame| {
            if who == 0 && frame[0] == BATCH && !std::mem::replace(&mut is_lost, true) {
                return Fate::Lost;
            }
            if who == 1 && frame[0] == BYE {
                *frame.last_mut().unwrap() = reason;
            }
            Fate::Arrives
        });
        world.offer(0, Class::Message, 1, 100).unwrap();
        world.run_for(MILLISECOND * 300);
        assert_eq!(world.nodes[0].downs.iter().map(|(_, reason)| *reason).collect::<Vec<_>>(), [expected]);
        world.run_for(SECOND);
        assert_eq!(world.are_up(), is_up, "{expected:?}");
    }
}
