//! Lanes, credit and bounds: what passes what, and how much waits.

use std::time::Duration;

use super::simulated_link::{Fate, MILLISECOND, SECOND, World};
use super::*;

/// The first byte of a batch. That of a beat is greater, and all others are less.
const BATCH: u8 = 0xC5;

fn place_of(world: &World, token: u64) -> usize {
    world.nodes[1].order.iter().position(|other| *other == token).expect("delivered")
}

/// 64 MiB travel in large items of one sender. An item of another one waits behind 256 KiB of fragments at most, and a
/// heartbeat does not wait either.
#[test]
fn a_large_item_holds_up_nobody_else() {
    let mut world = World::up(1);
    let (mut left, mut larges, mut smalls, mut waits) = (4, Vec::new(), Vec::new(), Vec::new());
    let mut most = 0;
    while larges.len() < 4 || world.nodes[1].delivered.len() < larges.len() + smalls.len() {
        assert!(world.now < Duration::from_secs(60), "the items do not arrive");
        if left > 0
            && let Some(token) = world.offer(0, Class::Message, 7, ITEM_LIMIT)
        {
            larges.push(token);
            left -= 1;
        }
        if larges.len() < 4 || !world.nodes[1].delivered.contains(&larges[3]) {
            let token = world.offer(0, Class::Message, 8, 200).expect("small items have room of their own");
            let begin = world.now;
            // The item goes on its way at once, and takes the delay of the link.
            world.turn(0);
            most = most.max(world.bytes_to(1));
            world.run_for(MILLISECOND * 2);
            assert!(world.nodes[1].delivered.contains(&token), "after {:?}", world.now - begin);
            smalls.push(token);
            waits.push(world.now - begin);
        } else {
            world.run_for(MILLISECOND);
        }
    }
    assert!(smalls.len() > 100);
    assert!(most <= (256 << 10) + (60 << 10), "{most} bytes were on their way");
    assert!(world.nodes.iter().all(|node| node.downs.is_empty()));
}

#[test]
fn the_next_items_of_a_large_ones_sender_arrive_after_it() {
    let mut world = World::up(2);
    let before = world.offer(0, Class::Message, 7, 100).unwrap();
    let large = world.offer(0, Class::Message, 7, 1 << 20).unwrap();
    let after = world.offer(0, Class::Message, 7, 100).unwrap();
    let signal = world.offer(0, Class::Control, 7, 100).unwrap();
    let second = world.offer(0, Class::Control, 7, 1 << 19).unwrap();
    let last = world.offer(0, Class::Message, 7, 100).unwrap();
    let other = world.offer(0, Class::Message, 8, 100).unwrap();
    world.run_for(SECOND);
    assert_eq!(world.nodes[1].order, [before, other, large, after, signal, second, last]);
}

#[test]
fn large_items_take_turns() {
    let mut world = World::up(3);
    let long = world.offer(0, Class::Message, 1, 4 << 20).unwrap();
    let short: Vec<u64> = (2..12).map(|sender| world.offer(0, Class::Message, sender, 100_000).unwrap()).collect();
    world.run_for(SECOND);
    assert!(short.iter().all(|token| place_of(&world, *token) < place_of(&world, long)));
    assert_eq!(world.nodes[1].order.len(), 11);
}

/// Small items without end do not stop a large one, whatever their size.
#[test]
fn a_flood_of_small_items_does_not_stop_a_large_one() {
    for length in [48, 20_000, 30_000, 32 << 10] {
        let mut world = World::up(4);
        let large = world.offer(0, Class::Message, 1, 1 << 20).unwrap();
        let mut frame = Vec::new();
        let mut frames = 0;
        while !world.nodes[1].delivered.contains(&large) {
            while world.offer(0, Class::Message, 2, length).is_some() {}
            // Five batches each time, so that the queue never gets empty.
            for _ in 0..5 {
                if world.nodes[0].peer.next_frame(world.now, &mut frame, &mut Vec::new()) {
                    frames += 1;
                    world.put(1, world.now + MILLISECOND, frame.clone());
                }
            }
            world.now += MILLISECOND * 2;
            world.turn(1);
            for (_, answer) in world.take_wire(0) {
                world.nodes[0].peer.receive(world.now, &answer, &mut Vec::new());
            }
            assert!(frames < 200, "{length}");
        }
    }
}

#[test]
fn control_items_pass_those_of_other_senders() {
    let mut world = World::up(5);
    let mut accepted = 0;
    while world.offer(0, Class::Message, 1, 1000).is_some() {
        accepted += 1;
    }
    // The overhead of an item counts.
    assert!((7800..8400).contains(&accepted), "{accepted}");
    let signal = world.offer(0, Class::Control, 2, 100).expect("control items are never refused");
    let own = world.offer(0, Class::Control, 1, 100).expect("control items are never refused");
    world.run_for(SECOND);
    assert_eq!((place_of(&world, signal), place_of(&world, own)), (0, accepted + 1));
}

#[test]
fn a_full_queue_hands_back_and_tells_of_room_once() {
    let mut world = World::up(6);
    for round in 1..4 {
        while world.offer(0, Class::Message, 1, 100).is_some() {}
        assert!(world.offer(0, Class::Message, 2, 100).is_none());
        assert_eq!(world.nodes[0].rooms, round - 1);
        world.run_for(MILLISECOND * 300);
        assert_eq!(world.nodes[0].rooms, round, "nobody else is told, and nobody twice");
    }
    assert!(world.nodes[0].peer.is_drained());
    while world.offer(0, Class::Message, 1, 1 << 20).is_some() {}
    world.run_for(SECOND);
    assert_eq!(world.nodes[0].rooms, 4, "large items have a bound of their own");
}

#[test]
fn a_caller_that_has_found_no_room_is_told_of_it() {
    let mut world = World::up(6);
    while world.nodes[0].peer.room() == Room::All {
        world.offer(0, Class::Message, 1, 30_000).unwrap();
    }
    assert_eq!(world.nodes[0].peer.room(), Room::Held);
    world.offer(0, Class::Held, 2, 30_000).unwrap();
    assert!(world.offer(0, Class::Message, 2, 30_000).is_none());
    world.run_for(MILLISECOND * 300);
    assert_eq!(world.nodes[0].rooms, 1);
    while world.nodes[0].peer.room() == Room::All {
        world.offer(0, Class::Held, 1, 1 << 20).unwrap();
    }
    assert_eq!(world.nodes[0].peer.room(), Room::Small);
    world.run_for(SECOND);
    assert_eq!((world.nodes[0].rooms, world.nodes[0].peer.room()), (2, Room::All), "nobody was refused");
    while world.nodes[0].peer.has_room_for(Bound::Large) {
        world.offer(0, Class::Held, 1, 1 << 20).unwrap();
    }
    assert!(world.nodes[0].peer.has_room_for(Bound::Small));
    world.run_for(SECOND);
    assert_eq!(world.nodes[0].rooms, 3, "nobody was refused");
    while world.offer(0, Class::Held, 1, 30_000).is_some() {}
    assert_eq!(world.nodes[0].peer.room(), Room::None);
}

/// A sender fills all the room behind its large item, before that comes to the front of the queue, or afterwards.
#[test]
fn a_sender_behind_its_large_item_takes_no_room_of_others() {
    for is_early in [false, true] {
        let mut world = World::up(7);
        // The peer grants nothing, so the large item stays.
        world.spoil = Box::new(|from, frame| {
            if from == 1 && frame[0] >= BATCH {
                frame[33..41].fill(0);
            }
            Fate::Arrives
        });
        world.offer(0, Class::Message, 1, 5 << 20).unwrap();
        if !is_early {
            world.run_for(MILLISECOND * 100);
        }
        while world.offer(0, Class::Message, 1, 1000).is_some() {}
        assert_eq!(world.nodes[0].peer.needed_by(Some(1)), if is_early { Bound::Small } else { Bound::Large });
        assert_eq!(world.offer(0, Class::Message, 2, 1000).is_none(), is_early);
        world.run_for(MILLISECOND * 100);
        assert_eq!([1, 2].map(|sender| world.nodes[0].peer.needed_by(Some(sender))), [Bound::Large, Bound::Small]);
        assert!(world.offer(0, Class::Message, 2, 1000).is_some());
        assert!(world.offer(0, Class::Message, 1, 1000).is_none() || !is_early);
        assert_eq!(world.nodes[0].rooms, usize::from(is_early));
    }
}

#[test]
fn an_item_that_is_too_large_is_handed_back() {
    let mut world = World::up(8);
    let item = Item { sender: 0, token: 1, payload: vec![0; ITEM_LIMIT + 1] };
    assert!(matches!(world.nodes[0].peer.offer(Class::Control, item), Err(NotOffered::TooLarge(_))));
    // The longest ones pass. Control items are not refused, but they are not all open at once either.
    let longest = [1, 2].map(|sender| world.offer(0, Class::Control, sender, ITEM_LIMIT).unwrap());
    world.run_for(SECOND * 2);
    assert_eq!(world.nodes[1].order, longest);
    assert!(world.are_up());
}

/// A peer acknowledges nothing, or grants nothing. It is dropped after 30 s, and until then little is sent to it.
#[test]
fn a_peer_that_acknowledges_or_grants_nothing_is_dropped() {
    for (place, offers, length) in [(25, 100, 1000), (33, 1, 100_000)] {
        let mut world = World::up(9);
        world.spoil = Box::new(move |from, frame| {
            if from == 1 && frame[0] >= BATCH {
                frame[place..place + 8].fill(0);
            }
            Fate::Arrives
        });
        world.run_for(SECOND);
        let (begin, mut tokens) = (world.now, Vec::new());
        world.keeps_frames = true;
        while world.nodes[0].downs.is_empty() {
            tokens.extend((0..offers).filter_map(|_| world.offer(0, Class::Message, 1, length)));
            world.run_for(MILLISECOND * 20);
            if world.now - begin > SECOND * 40 {
                break;
            }
        }
        assert_eq!(world.nodes[0].downs[0].1, DownReason::Silent);
        assert!(world.nodes[0].downs[0].0 - begin <= Duration::from_secs(32));
        let sent: usize = world.sent[0].iter().map(Vec::len).sum();
        let most = if place == 25 { 5 << 20 } else { 300 << 10 };
        assert!(sent < most, "{sent} bytes were sent");
        assert_eq!(world.nodes[0].told_order.len(), tokens.len() - acknowledged(&world, place));
        world.run_for(SECOND);
        assert_eq!(world.nodes[0].ups, 2, "it is no fault, so the two connect again");
    }
}

/// How many items were delivered and acknowledged.
fn acknowledged(world: &World, place: usize) -> usize {
    if place == 25 { 0 } else { world.nodes[1].delivered.len() }
}

#[test]
fn each_item_is_told_once_and_in_order_at_a_down() {
    let mut world = World::up(10);
    world.cut[1] = true;
    // Some are sent, and some are not: the window is full.
    let sent: Vec<u64> = (0..3000).filter_map(|n| world.offer(0, Class::Message, n % 5, 2000)).collect();
    world.run_for(MILLISECOND * 10);
    let large = world.offer(0, Class::Message, 1, 100_000).unwrap();
    let behind = world.offer(0, Class::Control, 1, 100).unwrap();
    let signal = world.offer(0, Class::Control, 99, 100).unwrap();
    world.run_for(SECOND * 2);
    let told = &world.nodes[0].told_order;
    assert_eq!(told.len(), 3003);
    let place = |token| told.iter().position(|other| *other == token).unwrap();
    assert!(place(large) < place(behind) && place(signal) < place(large));
    let mut in_order: Vec<u64> = told.iter().copied().filter(|token| sent.contains(token)).collect();
    in_order.sort_unstable();
    assert_eq!(in_order, sent);
}

#[test]
fn messages_of_processes_that_are_held_have_a_bound_of_their_own() {
    let mut world = World::up(1);
    let held = (0..1_000).take_while(|_| world.offer(0, Class::Held, 7, 1 << 20).is_some()).count();
    assert!((64..=65).contains(&held), "{held} MiB wait");
    assert!(world.offer(0, Class::Answer, 7, 100).is_some(), "messages stop no answer");
    world.run_for(60 * SECOND);
    assert_eq!(world.nodes[1].delivered.len(), held + 1);
    assert!(world.offer(0, Class::Held, 7, 1 << 20).is_some());
}

#[test]
fn answers_have_a_bound_of_their_own() {
    let mut world = World::up(1);
    let mut offered = |class| (0..1_000).take_while(|_| world.offer(0, class, 7, 1 << 20).is_some()).count();
    let answers = offered(Class::Answer);
    assert!((7..=8).contains(&answers), "{answers} MiB wait");
    let held = answers + offered(Class::HeldAnswer);
    assert!((63..=65).contains(&held), "{held} MiB wait");
    assert!(world.offer(0, Class::Message, 7, 1 << 20).is_some(), "answers stop no message");
    assert!(world.offer(0, Class::Notice, 7, 100).is_some());
    assert!(!world.nodes[0].peer.has_room_for(Bound::Answers));
    world.run_for(60 * SECOND);
    assert!(world.nodes[0].peer.has_room_for(Bound::Answers));
    assert_eq!((world.nodes[1].delivered.len(), world.nodes[0].ups), (held + 2, 1));
}
