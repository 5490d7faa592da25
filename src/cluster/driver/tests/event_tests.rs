//! The reason of each down, as the subscribers of both nodes are told of it.

use super::*;
use crate::cluster::events::{NodeEvent, NodeEvents};

/// An event, without the names of nodes.
#[derive(Debug, PartialEq)]
enum Told {
    Up,
    Down(DownReason),
    Refused,
}

/// The events that were not taken yet.
fn told(events: &mut [NodeEvents; 2]) -> [Vec<Told>; 2] {
    events.each_mut().map(|events| {
        let events = std::iter::from_fn(|| events.recv_timeout(Duration::ZERO).ok().flatten());
        let told = events.map(|event| match event {
            NodeEvent::Up(_) => Told::Up,
            NodeEvent::Down(_, why) => Told::Down(why),
            NodeEvent::Refused { .. } => Told::Refused,
            other => panic!("{other:?}"),
        });
        told.collect()
    })
}

/// Fails if a node is told of a down twice, with another reason, or not at all.
#[test]
fn each_down_is_told_once_with_its_reason() {
    let mut world = world();
    let mut events = world.ends.each_ref().map(|end| end.side.node.node_watch().subscribe());
    let (_echo, far, _notes) = world.echo();
    assert_eq!(told(&mut events), [(); 2].map(|()| vec![Told::Up]));
    let mut check = |world: &mut World, downs: [DownReason; 2], is_refused: bool| {
        assert_eq!(world.is_up(), [false; 2], "{downs:?}");
        let expected = downs.map(|down| match is_refused {
            true => vec![Told::Down(down), Told::Refused],
            false => vec![Told::Down(down)],
        });
        assert_eq!(told(&mut events), expected);
        world.connect();
        assert_eq!(told(&mut events), [(); 2].map(|()| vec![Told::Up]));
    };
    // The link of one node no longer sees the other node.
    world.ends[0].driver.gone();
    world.pass(Duration::from_secs(2), &mut || true);
    world.ends[0].driver.seen();
    check(&mut world, [DownReason::Closed, DownReason::Silent], false);
    world.pass(Duration::from_secs(2), &mut || false);
    check(&mut world, [DownReason::Silent; 2], false);
    // A frame is lost. The next heartbeat shows it.
    world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
    world.run_in(&mut || false);
    world.pass(Duration::from_millis(260), &mut || true);
    check(&mut world, [DownReason::Gap; 2], false);
    // One node sends a part of an unknown kind.
    world.ends[0].side.runtime.send(far, Message::Note(2)).unwrap();
    let mut frame = Vec::new();
    assert!(world.ends[0].turns_out(&mut frame));
    frame[45] = 99;
    world.ends[1].driver.arrived(frame);
    world.run();
    check(&mut world, [DownReason::Protocol; 2], false);
    // One node sends an item that the other one cannot read.
    let up = lock(&world.ends[0].driver.machine).peer.up().unwrap();
    let item = Item { bytes: vec![0xff; 64], sender: 1, letter: None, class: Class::Notice };
    world.ends[0].driver.offer(up, item).unwrap();
    world.run();
    check(&mut world, [DownReason::Refused; 2], true);
    world.ends[1].driver.leave();
    world.run();
    assert_eq!(told(&mut events), [(); 2].map(|()| vec![Told::Down(DownReason::Left)]));
    world.pass(Duration::from_secs(10), &mut || true);
    assert_eq!(told(&mut events), [(); 2].map(|()| Vec::new()), "nothing follows");
}
