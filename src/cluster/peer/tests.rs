//! The promises of the machine, one by one.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::refusal::Difference;
use super::simulated_link::{Fate, MILLISECOND, SECOND, Weather, World, identity};
use super::*;

const BATCH: u8 = 0xC5;

fn reasons(world: &World) -> [Vec<DownReason>; 2] {
    [0, 1].map(|who| world.nodes[who].downs.iter().map(|(_, reason)| *reason).collect())
}

fn word(frame: &[u8], place: usize) -> u64 {
    u64::from_le_bytes(frame[place..place + 8].try_into().unwrap())
}

/// Spoils one batch in a hundred, and at most one of each connection. Each of them gives one down on each side, which
/// comes 250 ms after the batch at the latest.
#[test]
fn each_spoiled_batch_is_one_down_on_each_side() {
    for tears in [None, Some(false), Some(true)] {
        let mut world = World::up(1);
        let spoiled = Rc::new(RefCell::new(BTreeSet::new()));
        let (seen, mut batches) = (spoiled.clone(), 0);
        world.spoil = Box::new(move |_, frame| {
            if frame[0] != BATCH {
                return Fate::Arrives;
            }
            batches += 1;
            let mut connection = [word(frame, 1), word(frame, 9)];
            connection.sort_unstable();
            if batches % 100 != 0 || word(frame, 17) < 2 || !seen.borrow_mut().insert(connection) {
                return Fate::Arrives;
            }
            match tears {
                None => return Fate::Lost,
                Some(false) => return Fate::Doubled,
                Some(true) => frame.truncate(frame.len() - 1),
            }
            Fate::Arrives
        });
        let mut last_up = world.now;
        for _ in 0..5_000 {
            let before = spoiled.borrow().len();
            for who in 0..2 {
                world.offer(who, Class::Message, 1, 100);
            }
            world.turn(0);
            world.turn(1);
            if spoiled.borrow().len() > before {
                // Nothing else is sent.
                let limit = world.now + MILLISECOND * 253;
                while world.now < limit {
                    world.step(limit);
                }
                let downs = world.nodes.iter().map(|node| node.downs.len());
                assert!(downs.eq([before + 1; 2]), "{tears:?}: {:?}", reasons(&world));
            }
            world.run_for(MILLISECOND * 3);
            last_up = if world.are_up() { world.now } else { last_up };
            assert!(world.now - last_up < SECOND);
        }
        world.run_for(SECOND);
        world.check_accounts();
        assert!(spoiled.borrow().len() > 50);
        for of_node in reasons(&world) {
            assert_eq!(of_node, vec![DownReason::Gap; spoiled.borrow().len()]);
        }
    }
}

#[test]
fn a_cut_in_one_direction_is_a_down_on_both_sides() {
    for cut in [[true, false], [false, true], [true, true]] {
        let mut world = World::up(2);
        let tokens: Vec<u64> = (0..20).filter_map(|n| world.offer(0, Class::Message, n % 3, 100)).collect();
        world.cut = cut;
        let begin = world.now;
        world.run_for(SECOND * 4);
        for of_node in &world.nodes {
            let [(at, reason)] = of_node.downs[..] else { panic!("{:?}", of_node.downs) };
            assert_eq!(reason, DownReason::Silent);
            assert!(at - begin <= MILLISECOND * 1752, "{:?}", at - begin);
        }
        // If the acknowledgements are lost, the items are in doubt.
        if cut[0] {
            assert_eq!(world.nodes[0].told_order, tokens);
        }
        assert_eq!(world.in_doubt(), if cut == [false, true] { 20 } else { 0 });
        world.cut = [false; 2];
        world.run_for(SECOND * 2);
        assert!(world.are_up(), "after a heal the nodes are up within 2 s");
        world.check_accounts();
    }
}

/// Both have slept, and one batch was on its way. Neither takes the other for silent, or for one that acknowledges
/// nothing.
#[test]
fn a_node_that_has_slept_grants_its_peer_a_heartbeat() {
    for sleep in [2, 5, 60] {
        let mut world = World::up(3);
        world.offer(0, Class::Message, 1, 100).unwrap();
        world.turn(0);
        let until = world.now + SECOND * sleep;
        world.nodes.iter_mut().for_each(|node| node.paused_until = until);
        world.run_for(SECOND * (sleep + 5));
        assert_eq!(reasons(&world), [vec![], vec![]], "after {sleep} s");
    }
}

#[test]
fn a_node_that_sleeps_alone_is_down_and_comes_back() {
    let mut world = World::up(4);
    world.nodes[0].paused_until = world.now + SECOND * 5;
    world.run_for(SECOND * 8);
    assert_eq!(reasons(&world), [vec![DownReason::Silent], vec![DownReason::Silent]]);
    assert!(world.are_up());
}

#[test]
fn silence_is_counted_from_the_arrival_of_frames() {
    let mut world = World::up(5);
    world.nodes[0].decoding = SECOND * 3;
    for _ in 0..10 {
        world.offer(1, Class::Message, 1, 100).unwrap();
        world.run_for(SECOND);
    }
    assert_eq!(reasons(&world), [vec![], vec![]]);
}

#[test]
fn a_gone_peer_is_known_by_the_closed_link_at_once() {
    let mut world = World::up(6);
    let token = world.offer(0, Class::Message, 1, 100).unwrap();
    let mut effects = Vec::new();
    world.nodes[0].peer.close(world.now, &mut effects);
    assert_eq!(effects, [Effect::Down(DownReason::Closed), Effect::Undelivered(token)]);
    let item = Item { sender: 0, token: 7, payload: Vec::new() };
    assert!(matches!(world.nodes[0].peer.offer(Class::Control, item), Err(NotOffered::NotUp(item)) if item.token == 7));
}

#[test]
fn a_node_that_leaves_says_so() {
    let mut world = World::up(7);
    world.offer(0, Class::Message, 1, 100).unwrap();
    world.turn(0);
    let mut effects = Vec::new();
    world.nodes[0].peer.leave(world.now, &mut effects);
    assert!(matches!(effects[..], [Effect::Down(DownReason::Left), Effect::Undelivered(_)]));
    world.run_for(SECOND * 20);
    assert_eq!(reasons(&world)[1], [DownReason::Left]);
    assert_eq!(world.nodes[1].delivered.len(), 1);
    // Nobody dials.
    assert_eq!(world.nodes.each_ref().map(|node| node.hellos.len()), [1, 1]);
}

#[test]
fn a_leave_after_a_lost_batch_is_a_gap() {
    let mut world = World::up(8);
    world.offer(0, Class::Message, 1, 100).unwrap();
    world.cut[0] = true;
    world.turn(0);
    world.cut[0] = false;
    world.nodes[0].peer.leave(world.now, &mut Vec::new());
    world.run_for(MILLISECOND * 10);
    assert_eq!(reasons(&world)[1], [DownReason::Gap]);
}

#[test]
fn nodes_that_differ_refuse_each_other_once_in_five_seconds() {
    let other = |change: fn(&mut Identity)| {
        let mut identity = identity("b", 2);
        change(&mut identity);
        identity
    };
    let differences = [
        (other(|node| node.cluster.push('x')), Difference::Cluster),
        (other(|node| node.voters.push("c".into())), Difference::Voters),
        (other(|node| node.detection_time = SECOND), Difference::DetectionTime),
        (other(|node| node.protocols = spoken(PROTOCOL + 2)), Difference::Protocols),
        (other(|node| node.name = "a".into()), Difference::Name),
    ];
    for (seed, (there, difference)) in differences.into_iter().enumerate() {
        let weather = Weather { delay: MILLISECOND * 30, ..Weather::default() };
        let mut world = World::of(seed as u64, weather, [identity("a", 1), there], 8 << 20);
        world.run_for(SECOND * 21);
        for who in 0..2 {
            let [here, there] = [who, 1 - who].map(|who| &world.nodes[who]);
            assert_eq!((here.ups, here.refusals.len()), (0, 5), "{difference:?}");
            for ((_, mine), (_, other)) in here.refusals.iter().zip(&there.refusals) {
                assert_eq!(mine.difference, difference);
                assert_eq!((&mine.here, &mine.there), (&other.there, &other.here));
            }
            let is_slow = here.hellos.windows(2).all(|two| two[1] - two[0] >= SECOND * 5);
            assert!(is_slow, "{:?}", here.hellos);
        }
    }
}

/// One node dials, and the other one answers. The first one finds the difference, and tells the other.
#[test]
fn a_refused_node_is_told_and_waits_whatever_comes() {
    let mut there = identity("b", 2);
    there.cluster.push('x');
    let mut peers: [Peer; 2] = [identity("a", 1), there].map(|identity| Peer::new(SECOND, identity, 8 << 20));
    let mut effects = [Vec::new(), Vec::new()];
    let (mut frame, mut answer) = (Vec::new(), Vec::new());
    assert!(peers[0].dial(SECOND, 5));
    for round in 0..3 {
        for who in 0..2 {
            while peers[who].next_frame(SECOND, &mut frame, &mut Vec::new()) {
                peers[1 - who].receive(SECOND, &frame, &mut effects[1 - who]);
            }
            if round == 0 && who == 0 {
                assert!(peers[1].dial(SECOND, 6));
                // The hello comes again, so that the answer names its nonce. The own hello of this node is lost.
                peers[1].receive(SECOND, &frame, &mut effects[1]);
                assert!(peers[1].next_frame(SECOND, &mut answer, &mut Vec::new()));
                assert!(peers[1].next_frame(SECOND, &mut Vec::new(), &mut Vec::new()));
                peers[0].receive(SECOND, &answer, &mut effects[0]);
            }
        }
    }
    assert!(effects.iter().all(|effects| matches!(effects[..], [Effect::Refused(_)])), "{effects:?}");
    // Another node of the other cluster says hello. It is told, too, and changes nothing.
    let mut third = identity("c", 3);
    third.cluster.push('y');
    let mut third: Peer = Peer::new(SECOND, third, 8 << 20);
    let later = SECOND * 2;
    assert!(third.dial(later, 7) && third.next_frame(later, &mut frame, &mut Vec::new()));
    peers[0].receive(later, &frame, &mut effects[0]);
    assert_eq!(peers[0].dial_at(), Some(SECOND * 6));
    assert!(peers[0].next_frame(later, &mut frame, &mut Vec::new()));
    let mut told = Vec::new();
    third.receive(later, &frame, &mut told);
    assert!(matches!(&told[..], [Effect::Refused(refusal)] if refusal.here == "testy" && refusal.there == "test"));
}

/// A peer that is heard, and never sends its types, is dropped after 5 s. There was no up, so there is no down.
#[test]
fn a_peer_that_does_not_go_on_after_its_hello_is_dropped() {
    let mut peers: [Peer; 2] =
        [identity("a", 1), identity("b", 2)].map(|identity| Peer::new(SECOND, identity, 8 << 20));
    let mut effects = [Vec::new(), Vec::new()];
    let (mut frame, mut now) = (Vec::new(), SECOND);
    assert!(peers[0].dial(now, 5) && peers[1].dial(now, 6));
    while peers[0].dial_at().is_none() {
        for who in 0..2 {
            peers[who].tick(now, false, &mut effects[who]);
            while peers[who].next_frame(now, &mut frame, &mut Vec::new()) {
                peers[1 - who].arrived(now, &frame);
                peers[1 - who].receive(now, &frame, &mut effects[1 - who]);
            }
        }
        // The other one does not accept.
        peers[0].accept(now, Vec::new(), Vec::new(), &mut Vec::new());
        now += MILLISECOND * 100;
        assert!(now < SECOND * 10, "it is not dropped");
    }
    assert!(now >= SECOND * 6);
    assert!(effects.iter().all(|effects| matches!(effects[..], [Effect::Greeted(_)])), "{effects:?}");
}

#[test]
fn peers_speak_the_newest_protocol_that_both_know() {
    let [mut here, mut there] = [identity("a", 1), identity("b", 2)];
    (here.protocols, there.protocols) = (2..=5, 1..=3);
    assert_eq!(here.common_protocol(&there), Some(3));
    there.protocols = 6..=7;
    assert_eq!(here.common_protocol(&there), None);
}

/// A newer node says more behind its greetings, and sends frames of kinds that this version does not know.
#[test]
fn a_newer_node_that_says_more_is_understood() {
    let mut newer = identity("b", 2);
    newer.protocols = spoken(PROTOCOL + 1);
    let weather = Weather { delay: MILLISECOND, ..Weather::default() };
    let mut world = World::of(12, weather, [identity("a", 1), newer], 8 << 20);
    world.spoil = Box::new(|_, frame| {
        if frame[0] < BATCH {
            frame.extend_from_slice(b"more");
        }
        Fate::Arrives
    });
    world.run_for(SECOND);
    assert!(world.are_up());
    for kind in 0xC7..=0xFF {
        let now = world.now;
        (0..2).for_each(|who| world.put(who, now, vec![kind; 60]));
    }
    world.offer(1, Class::Message, 1, 100).unwrap();
    world.run_for(SECOND * 5);
    assert_eq!((reasons(&world), world.nodes[0].delivered.len()), ([vec![], vec![]], 1));
    // It begins anew, and its `Bye` is lost. It is asked with a `Who`, and says `Bye`.
    let mut effects = Vec::new();
    world.nodes[1].peer.close(world.now, &mut effects);
    world.effects(1, effects, &[]);
    world.run_for(SECOND * 5);
    assert!(world.are_up());
    let before = reasons(&world)[0].len();
    world.nodes[1].peer.leave(world.now, &mut Vec::new());
    world.run_for(SECOND);
    assert_eq!(reasons(&world)[0][before..], [DownReason::Left]);
}

/// A newer node names more voters than this version allows. It is told of the difference, and not passed over.
#[test]
fn a_node_with_too_many_voters_is_refused_and_not_passed_over() {
    let mut newer = identity("b", 2);
    newer.voters = (0..MOST_VOTERS + 20).map(|number| format!("v{number}")).collect();
    let weather = Weather { delay: MILLISECOND, ..Weather::default() };
    let mut world = World::of(13, weather, [identity("a", 1), newer], 8 << 20);
    world.run_for(SECOND * 4);
    for node in &world.nodes {
        let [(_, refusal)] = &node.refusals[..] else { panic!("{:?}", node.refusals) };
        assert_eq!(refusal.difference, Difference::Voters);
    }
}

/// It would break it again, so neither side dials at once.
#[test]
fn a_peer_that_breaks_the_protocol_is_not_dialled_for_five_seconds() {
    let mut world = World::up(14);
    let mut spoils = true;
    world.spoil = Box::new(move |who, frame| {
        if who == 1 && frame[0] == BATCH && std::mem::take(&mut spoils) {
            // A part of a kind that nobody knows.
            frame[45] = 99;
        }
        Fate::Arrives
    });
    world.offer(1, Class::Message, 1, 100).unwrap();
    let before = world.nodes.each_ref().map(|node| node.hellos.len());
    world.run_for(SECOND * 4);
    assert_eq!(reasons(&world), [vec![DownReason::Protocol], vec![DownReason::Protocol]]);
    assert_eq!(world.nodes.each_ref().map(|node| node.hellos.len()), before);
    world.run_for(SECOND * 3);
    assert!(world.are_up());
}

#[test]
fn the_caller_refuses_and_both_sides_are_told() {
    let mut world = World::up(9);
    let refusal = Refusal::new(Difference::Other, "x", "y");
    let mut effects = Vec::new();
    assert!(world.nodes[0].peer.refuse(world.now, refusal, &mut effects));
    assert!(matches!(effects[..], [Effect::Down(DownReason::Refused), Effect::Refused(_)]));
    world.run_for(SECOND);
    assert_eq!(reasons(&world)[1], [DownReason::Refused]);
    assert_eq!(world.nodes[1].refusals[0].1.here, "y");
}

/// The nodes have refused each other at different times. The difference has gone since.
#[test]
fn refusals_do_not_go_on_for_ever() {
    let mut world = World::up(10);
    let refusal = Refusal::new(Difference::Other, "", "");
    world.cut = [true; 2];
    for who in 0..2 {
        let mut effects = Vec::new();
        assert!(world.nodes[who].peer.refuse(world.now, refusal.clone(), &mut effects));
        world.effects(who, effects, &[]);
        world.run_for(SECOND);
    }
    world.cut = [false; 2];
    world.run_for(SECOND * 6);
    assert!(world.are_up());
}

#[test]
fn a_second_living_node_of_one_name_is_refused() {
    let mut world = World::up(11);
    world.keeps_frames = true;
    let mut second: Peer = Peer::new(world.now, identity("b", 3), 8 << 20);
    let (mut frame, mut effects) = (Vec::new(), Vec::new());
    for _ in 0..40 {
        second.dial(world.now, 77);
        while second.next_frame(world.now, &mut frame, &mut effects) {
            world.put(0, world.now, frame.clone());
        }
        world.run_for(MILLISECOND * 50);
        for frame in std::mem::take(&mut world.sent[0]) {
            second.receive(world.now, &frame, &mut effects);
        }
    }
    let [Effect::Refused(refusal)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!(refusal.difference, Difference::Incarnation);
    assert_eq!((&*refusal.here, &*refusal.there), ("0000000000000003", "0000000000000002"));
    assert_eq!(reasons(&world), [vec![], vec![]]);
    assert_eq!(world.nodes[0].refusals.len(), 1);
}

#[test]
fn a_restarted_node_is_another_peer_within_two_seconds() {
    let mut world = World::up(12);
    world.restart(1, identity("b", 3));
    world.run_for(SECOND * 2);
    assert_eq!(reasons(&world)[0], [DownReason::Silent]);
    assert!(world.are_up());
    assert!(world.nodes.iter().all(|node| node.refusals.is_empty()));
}

#[test]
fn frames_of_an_earlier_connection_do_nothing() {
    let mut world = World::new(13, Weather { delay: MILLISECOND, ..Weather::default() });
    world.keeps_frames = true;
    world.run_for(SECOND);
    for number in 0..120 {
        world.offer(0, Class::Message, number % 3, 100).unwrap();
        world.offer(1, Class::Message, number % 3, 50_000).unwrap();
        world.run_for(MILLISECOND * 10);
    }
    world.cut = [true; 2];
    world.run_for(SECOND * 2);
    world.cut = [false; 2];
    world.run_for(SECOND * 2);
    assert!(world.are_up());
    let sent = std::mem::take(&mut world.sent);
    world.keeps_frames = false;
    let delivered = world.nodes.each_ref().map(|node| node.delivered.len());
    for (from, frames) in sent.iter().enumerate() {
        let old: Vec<_> = frames.iter().take(frames.len() / 2).collect();
        assert!(old.len() > 50);
        for frame in old {
            world.put(1 - from, world.now, frame.clone());
            world.run_for(MILLISECOND);
        }
    }
    // They are no signs of life either.
    let silence = world.now;
    world.cut = [true; 2];
    let old = sent[1].iter().find(|frame| frame[0] == BATCH).unwrap();
    // Nor is a copy of the last hello, which is of this connection.
    let hello = sent[1].iter().rfind(|frame| frame[0] == 0xC0 && word(frame, 1) != 0).unwrap();
    for _ in 0..15 {
        world.put(0, world.now, old.clone());
        world.put(0, world.now, hello.clone());
        world.run_for(MILLISECOND * 100);
    }
    world.run_for(MILLISECOND * 260);
    assert_eq!(reasons(&world)[0], [DownReason::Silent; 2]);
    assert!(world.nodes[0].downs[1].0 - silence <= MILLISECOND * 1752);
    assert_eq!(world.nodes.each_ref().map(|node| node.delivered.len()), delivered);
}

/// The `Bye` is lost, so one side begins anew while the other one takes the connection for up.
#[test]
fn a_lost_bye_is_made_good() {
    let mut world = World::up(14);
    world.cut = [true; 2];
    world.offer(0, Class::Message, 1, 10).unwrap();
    world.turn(0);
    world.cut = [false; 2];
    // The next heartbeat of node 0 shows the gap to node 1, whose answer is lost.
    let mut is_lost = false;
    world.spoil = Box::new(move |from, frame| {
        let is_first_bye = from == 1 && frame[0] == 0xC3 && !is_lost;
        is_lost |= is_first_bye;
        if is_first_bye { Fate::Lost } else { Fate::Arrives }
    });
    // The next attempt of node 1 shows that its side of the connection has ended. Silence would take 1.5 s.
    world.run_for(SECOND);
    assert_eq!(reasons(&world), [vec![DownReason::Closed], vec![DownReason::Gap]]);
    world.run_for(SECOND);
    assert!(world.are_up());
    world.check_accounts();
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_a_violation() {
    let mut world = World::up(15);
    world.spoil = Box::new(|from, frame| {
        if from == 1 && frame[0] >= BATCH {
            frame[25..33].copy_from_slice(&1000_u64.to_le_bytes());
        }
        Fate::Arrives
    });
    world.run_for(SECOND / 2);
    assert_eq!(reasons(&world)[0][0], DownReason::Protocol);
}

#[test]
fn an_idle_connection_sends_four_frames_a_second() {
    let mut world = World::up(16);
    world.keeps_frames = true;
    world.run_for(Duration::from_secs(10));
    assert!(world.sent.iter().all(|frames| (39..=41).contains(&frames.len())));
    // An item is acknowledged once, and acknowledgements are not acknowledged.
    world.sent = Default::default();
    world.offer(0, Class::Message, 1, 100).unwrap();
    world.run_for(MILLISECOND * 100);
    let lengths = world.sent.each_ref().map(|frames| frames.len());
    assert!(lengths[0] <= 2 && lengths[1] <= 2, "{lengths:?}");
}
