//! Unique names in true time, and frame by frame.

use super::true_time::{Event, SECOND, World, name};
use super::*;
use crate::counts::counts;

/// The seeds: 500 times as many with `PROCESSION_FULL=1`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    0..counts(count, 500 * count)
}

#[test]
fn a_name_has_at_most_one_holder_in_any_weather_and_tokens_rise() {
    let (mut held, mut lost, mut no_majority) = (0, 0, 0);
    for seed in seeds(200) {
        let (nodes, voters) = [(3, 3), (5, 3), (5, 5), (4, 2), (3, 1)][seed as usize % 5];
        let mut world = World::new(seed, nodes, voters);
        world.at(0, Event::Act);
        world.run_for(120 * SECOND);
        world.fine(seed);
        // Then all is well: the names that are claimed are held, and in the end nothing is left.
        world.queue.retain(|_, event| !matches!(event, Event::Act));
        world.heal();
        world.run_for(75 * SECOND);
        world.fine(seed);
        for name in 0..2 {
            let claims = world.nodes.iter().flat_map(|node| &node.machine.as_ref().unwrap().claims);
            let is_claimed = claims.filter(|(_, told)| told.name == name).count() > 0;
            assert_eq!(world.holders(name).len(), usize::from(is_claimed), "seed {seed}");
        }
        for at in 0..nodes {
            let claims: Vec<u64> = world.nodes[at].machine.as_ref().unwrap().claims.keys().copied().collect();
            claims.into_iter().for_each(|number| world.release(at, number));
        }
        world.run_for(6 * SECOND);
        world.fine(seed);
        for node in &world.nodes {
            let leases = &node.machine.as_ref().unwrap().leases;
            assert!(leases.claims.is_empty() && leases.due().is_none(), "seed {seed}");
            assert!(leases.voter.as_ref().is_none_or(Voter::is_empty), "seed {seed}");
        }
        held += world.held.len();
        (lost, no_majority) = (lost + world.lost, no_majority + world.no_majority);
    }
    println!("{held} holdings, {lost} were lost, {no_majority} claims had no majority");
    assert!(held > 1_000 && lost > 50 && no_majority > 50);
}

/// Nodes that are connected, with three voters that grant.
fn calm(seed: u64) -> World {
    let mut world = World::new(seed, 5, 3);
    world.run_for(10 * SECOND);
    world
}

#[test]
fn claims_are_served_in_the_order_of_their_arrival_and_soon() {
    for seed in seeds(100) {
        let mut world = calm(seed);
        let mut claims = Vec::new();
        // The clocks by which claims are timed differ by less than this.
        for at in [4, 2, 0, 3, 1] {
            claims.push((at, world.claim(at, 0).unwrap()));
            world.run_for(SECOND / 4);
        }
        assert_eq!(world.holders(0).len(), 1, "seed {seed}");
        for pair in claims.windows(2) {
            let ((at, number), (next, _)) = (pair[0], pair[1]);
            assert_eq!(world.holders(0), [(at, number)], "seed {seed}");
            let waited = world.at_release(at, number, next);
            assert!(waited.is_some_and(|waited| waited <= SECOND / 2), "seed {seed}: {waited:?}");
        }
        world.fine(seed);
    }
}

#[test]
fn the_order_of_arrival_counts_and_not_that_of_the_clocks() {
    for seed in seeds(20) {
        let mut world = calm(seed);
        (world.nodes[4].skew, world.nodes[3].skew) = (0, 60 * SECOND);
        let first = world.claim(2, 0).unwrap();
        world.run_for(SECOND);
        let second = world.claim(3, 0).unwrap();
        world.run_for(SECOND);
        world.claim(4, 0).unwrap();
        world.run_for(SECOND);
        assert!(world.at_release(2, first, 3).is_some(), "seed {seed}");
        world.run_for(3 * SECOND);
        assert_eq!(world.holders(0), [(3, second)], "seed {seed}");
    }
}

#[test]
fn a_split_vote_is_resolved_soon() {
    for seed in seeds(200) {
        let mut world = calm(seed);
        let claims: BTreeMap<usize, u64> = (0..5).map(|at| (at, world.claim(at, 0).unwrap())).collect();
        let mut waited = world.until_held(0, |_| true, SECOND / 2);
        for _ in 0..5 {
            assert!(waited.is_some(), "seed {seed}");
            let (holder, number) = world.holders(0)[0];
            assert_eq!(claims[&holder], number);
            world.release(holder, number);
            waited = world.until_held(0, |_| true, SECOND / 2);
        }
        assert!(waited.is_none());
        world.fine(seed);
    }
}

#[test]
fn the_name_of_a_lost_node_is_free_within_a_lease_and_half_a_second() {
    for seed in seeds(100) {
        let mut world = calm(seed);
        let holder = seed as usize % 5;
        let next = (holder + 1) % 5;
        world.claim(holder, 0).unwrap();
        world.run_for(SECOND / 4);
        world.claim(next, 0).unwrap();
        world.run_for(seed % 7 * SECOND / 2);
        if seed % 2 == 0 {
            world.crash(holder);
        } else {
            (0..5).filter(|other| *other != holder).for_each(|other| world.cut(holder, other));
        }
        let waited = world.until_held(0, |at| at == next, 5 * SECOND + SECOND / 2);
        assert!(waited.is_some_and(|waited| waited > 2 * SECOND), "seed {seed}: {waited:?}");
        world.fine(seed);
    }
}

#[test]
fn the_loss_of_a_minority_of_the_voters_is_not_noticed() {
    for seed in seeds(50) {
        let mut world = calm(seed);
        let number = world.claim(4, 0).unwrap();
        world.run_for(SECOND);
        for voter in [0, 2, 1] {
            world.crash(voter);
            world.run_for(20 * SECOND);
            world.start(voter);
            world.run_for(10 * SECOND);
        }
        assert_eq!((world.holders(0), world.held.len()), (vec![(4, number)], 1), "seed {seed}");
        world.fine(seed);
    }
}

#[test]
fn without_a_majority_a_claim_fails_after_five_seconds() {
    let mut world = calm(1);
    world.crash(0);
    world.cut(4, 1);
    world.run_for(2 * SECOND);
    world.claim(4, 0).unwrap();
    world.run_for(4 * SECOND);
    assert_eq!(world.no_majority, 0);
    world.run_for(SECOND + SECOND / 5);
    assert_eq!((world.no_majority, world.held.len()), (1, 0));
    // A claim that waits for a moment only has the name when it can.
    world.claim(4, 0).unwrap();
    world.run_for(3 * SECOND);
    world.heal();
    assert!(world.until_held(0, |at| at == 4, SECOND).is_some());
    world.fine(1);
}

#[test]
fn a_restarted_majority_of_voters_grants_nothing_for_a_lease() {
    for seed in seeds(50) {
        let mut world = calm(seed);
        world.claim(3, 0).unwrap();
        world.run_for(SECOND / 4);
        world.claim(4, 0).unwrap();
        world.run_for(SECOND);
        (0..3).for_each(|other| world.cut(3, other));
        world.cut(3, 4);
        [0, 1].into_iter().for_each(|voter| world.crash(voter));
        world.run_for(SECOND / 10);
        [0, 1].into_iter().for_each(|voter| world.start(voter));
        let waited = world.until_held(0, |at| at == 4, 10 * SECOND);
        assert!(waited.is_some_and(|waited| waited > 4 * SECOND + SECOND / 2), "seed {seed}: {waited:?}");
        world.fine(seed);
    }
}

#[test]
fn frames_that_no_honest_node_sends_are_refused() {
    let voters: Vec<String> = (0..3).map(name).collect();
    let mut effects = Vec::new();
    let mut leases = Leases::new(Duration::ZERO, (1, "v0"), &voters, 0);
    leases.up(Duration::ZERO, (2, "other"), &mut effects);
    leases.up(Duration::ZERO, (3, "v1"), &mut effects);
    let number = leases.claim(Duration::ZERO, "n", 0, &mut effects);
    let mut take = |peer, frame| leases.receive(Duration::ZERO, peer, frame, &mut effects).is_ok();
    let granted = |sent| LeaseFrame::Granted { number, sent, token: 1, is_wanted: false };
    let request = |name: &str, number| LeaseFrame::Request { name: name.into(), number, since: 0, sent: 1, token: 0 };
    assert!(!take(2, granted(1)), "no voter");
    assert!(take(3, granted(1)));
    assert!(!take(3, granted(1_000_000)), "a request that was not sent");
    assert!(!take(3, request("", 1)) && !take(3, request(&"x".repeat(256), 1)));
    let most = 2 * MOST as u64;
    assert!((0..most).all(|number| take(3, request("n", number))));
    assert!(!take(3, request("another", most)), "too many");
    assert!(take(3, request("n", 7)), "one that waits already");
    let mut leases = Leases::new(Duration::ZERO, (1, "x"), &voters, 0);
    assert!(leases.receive(Duration::ZERO, 2, request("n", 1), &mut Vec::new()).is_err());
}

/// The frames of these effects, with their receivers.
fn sent(effects: &mut Vec<Effect>) -> Vec<(u64, LeaseFrame)> {
    let frame = |effect| match effect {
        Effect::Send(peer, frame) => Some((peer, frame)),
        _ => None,
    };
    effects.drain(..).filter_map(frame).collect()
}

#[test]
fn a_grant_that_crosses_its_own_return_does_not_count() {
    let voters: Vec<String> = (0..3).map(name).collect();
    let (mut effects, ms) = (Vec::new(), Duration::from_millis);
    let mut leases = Leases::new(Duration::ZERO, (9, "x"), &voters, 0);
    (0..3).for_each(|at| leases.up(ms(1), (at, &name(at as usize)), &mut effects));
    let number = leases.claim(ms(1_000), "n", 0, &mut effects);
    let granted = |sent, is_wanted| LeaseFrame::Granted { number, sent, token: 5, is_wanted };
    let first = 1_000_000;
    leases.receive(ms(1_010), 0, granted(first, true), &mut effects).unwrap();
    sent(&mut effects);
    leases.tick(ms(1_109), &mut effects);
    assert!(sent(&mut effects).is_empty());
    leases.tick(ms(1_110), &mut effects);
    let [(0, LeaseFrame::Yield { sent: back, .. })] = sent(&mut effects)[..] else { panic!("it gives back") };
    // The voter has said this before it got the vote back.
    leases.receive(ms(1_111), 0, granted(first, true), &mut effects).unwrap();
    leases.receive(ms(1_112), 1, granted(first, false), &mut effects).unwrap();
    assert!(sent(&mut effects).is_empty(), "one vote is no majority");
    leases.receive(ms(1_113), 0, granted(back, false), &mut effects).unwrap();
    let confirms = |(_, frame): &(u64, LeaseFrame)| matches!(frame, LeaseFrame::Request { token: 6, .. });
    assert_eq!(sent(&mut effects).iter().filter(|sent| confirms(sent)).count(), 3);
}

#[test]
fn a_token_that_was_not_confirmed_in_time_is_dropped() {
    let voters: Vec<String> = (0..3).map(name).collect();
    let (mut effects, ms) = (Vec::new(), Duration::from_millis);
    let mut leases = Leases::new(Duration::ZERO, (9, "x"), &voters, 0);
    (0..3).for_each(|at| leases.up(ms(1), (at, &name(at as usize)), &mut effects));
    let number = leases.claim(ms(1_000), "n", 0, &mut effects);
    let granted = |sent, token| LeaseFrame::Granted { number, sent, token, is_wanted: false };
    let requested = |effects: &mut Vec<Effect>| match sent(effects).last() {
        Some((_, LeaseFrame::Request { sent, token, .. })) => (*sent, *token),
        other => panic!("{other:?} is no request"),
    };
    let (first, _) = requested(&mut effects);
    (0..2).for_each(|voter| leases.receive(ms(1_010), voter, granted(first, 5), &mut effects).unwrap());
    assert_eq!(requested(&mut effects).1, 6);
    // Nothing comes for longer than the leases last. In the meantime another process may have had the name.
    leases.tick(ms(7_000), &mut effects);
    let (later, token) = requested(&mut effects);
    assert_eq!(token, 0);
    (0..2).for_each(|voter| leases.receive(ms(7_010), voter, granted(later, 9), &mut effects).unwrap());
    let (last, token) = requested(&mut effects);
    assert_eq!(token, 10);
    (0..2).for_each(|voter| leases.receive(ms(7_020), voter, granted(last, 10), &mut effects).unwrap());
    assert!(matches!(effects[..], [Effect::Held { token: 10, .. }]));
}

/// Otherwise a timer would be due again and again.
#[test]
fn a_wanted_vote_of_a_voter_that_goes_down_is_due_no_more() {
    let voters = [0, 1, 2].map(name);
    let (at, mut effects) = (Duration::from_millis, Vec::new());
    let mut leases = Leases::new(at(0), (77, "claimant"), &voters, 1);
    (0..3).for_each(|place| leases.up(at(1), (place as u64, &name(place)), &mut effects));
    let number = leases.claim(at(1_000), "name", 5, &mut effects);
    let sent = leases.claims[&number].sent;
    let granted = LeaseFrame::Granted { number, sent, token: 1, is_wanted: true };
    leases.receive(at(1_010), 0, granted, &mut effects).unwrap();
    assert_eq!(leases.due(), Some(at(1_110)));
    leases.down(at(1_050), 0, &mut effects);
    leases.tick(at(1_111), &mut effects);
    assert!(leases.due().is_some_and(|due| due > at(1_111)), "{:?}", leases.due());
}

/// A voter that was restarted may hear first of a claim that waits, and that is earlier by the wall clocks.
#[test]
fn a_holder_gets_the_votes_of_restarted_voters_back_from_those_that_wait() {
    for seed in seeds(40) {
        let mut world = calm(seed);
        (world.nodes[4].skew, world.nodes[3].skew) = (60 * SECOND, 0);
        let holder = world.claim(4, 0).unwrap();
        world.run_for(SECOND);
        world.claim(3, 0).unwrap();
        world.run_for(SECOND);
        for voter in [0, 2, 1] {
            world.crash(voter);
            world.run_for(20 * SECOND);
            world.start(voter);
            world.run_for(10 * SECOND);
        }
        assert_eq!((world.holders(0), world.held.len()), (vec![(4, holder)], 1), "seed {seed}");
        world.fine(seed);
    }
}

#[test]
fn a_holder_gets_the_vote_back_of_a_voter_that_it_could_not_reach() {
    for seed in seeds(40) {
        let mut world = calm(seed);
        (world.nodes[4].skew, world.nodes[3].skew) = (60 * SECOND, 0);
        let holder = world.claim(4, 0).unwrap();
        world.run_for(SECOND);
        world.claim(3, 0).unwrap();
        world.run_for(SECOND);
        world.cut(4, 0);
        world.run_for(7 * SECOND);
        world.heal();
        world.run_for(6 * SECOND);
        world.crash(1);
        world.run_for(20 * SECOND);
        assert_eq!((world.holders(0), world.held.len()), (vec![(4, holder)], 1), "seed {seed}");
        world.fine(seed);
    }
}

#[test]
fn a_lost_claim_waits_at_no_voter_and_its_leases_last() {
    let (at, voters) = (Duration::from_secs, [0, 1].map(name));
    let (first, second) = (5, 6);
    let mut effects = Vec::new();
    let mut leases = Leases::new(at(0), (0, &voters[0]), &voters, 1);
    (1..8).for_each(|peer| leases.up(at(0), (peer, "another"), &mut effects));
    let request = |number, token| LeaseFrame::Request { name: "name".into(), number, since: 1, sent: 1, token };
    let lost = |number| LeaseFrame::Lost { name: "name".into(), number, since: 1 };
    let granted = |effects: &mut Vec<Effect>| {
        let is_grant = |effect: &Effect| match effect {
            Effect::Send(peer, LeaseFrame::Granted { .. }) => Some(*peer),
            _ => None,
        };
        effects.drain(..).filter_map(|effect| is_grant(&effect)).collect::<Vec<_>>()
    };
    effects.clear();
    leases.receive(at(10), first, request(1, 3), &mut effects).unwrap();
    leases.receive(at(10), second, request(1, 0), &mut effects).unwrap();
    assert_eq!(granted(&mut effects), [first]);
    leases.receive(at(11), first, lost(1), &mut effects).unwrap();
    assert!(granted(&mut effects).is_empty(), "its lease lasts");
    leases.tick(at(15), &mut effects);
    assert_eq!(granted(&mut effects), [second]);
    // A claim that waits is taken out of the queue.
    leases.receive(at(16), first, request(2, 4), &mut effects).unwrap();
    leases.receive(at(16), first, lost(2), &mut effects).unwrap();
    granted(&mut effects);
    leases
        .receive(at(17), second, LeaseFrame::Release { name: "name".into(), number: 1, since: 1 }, &mut effects)
        .unwrap();
    leases.tick(at(17), &mut effects);
    assert!(granted(&mut effects).is_empty(), "nobody has claimed it");
    assert!(leases.voter.as_ref().is_some_and(Voter::is_empty));
    // A token from a century ahead would end the growth of all tokens.
    assert!(leases.receive(at(18), first, request(3, u64::MAX), &mut effects).is_err());
}

/// The process of such a claim may be stuck in a step, and go on with it.
#[test]
fn a_claim_that_is_abandoned_leaves_its_leases_to_their_time() {
    let (at, voters) = (Duration::from_secs, [0, 1, 2].map(name));
    let mut effects = Vec::new();
    let mut leases = Leases::new(at(0), (77, "claimant"), &voters, 1);
    (0..3).for_each(|place| leases.up(at(0), (place as u64, &name(place)), &mut effects));
    for has_majority in [true, false] {
        let number = leases.claim(at(1), "name", 5, &mut effects);
        let sent = leases.claims[&number].sent;
        for peer in 0..if has_majority { 2 } else { 1 } {
            let granted = LeaseFrame::Granted { number, sent, token: 1, is_wanted: false };
            leases.receive(at(1), peer, granted, &mut effects).unwrap();
        }
        effects.clear();
        leases.abandon(at(1), number, &mut effects);
        let is_lost = |effect: &Effect| matches!(effect, Effect::Send(_, LeaseFrame::Lost { .. }));
        let is_released = |effect: &Effect| matches!(effect, Effect::Send(_, LeaseFrame::Release { .. }));
        let counts =
            [effects.iter().filter(|it| is_lost(it)).count(), effects.iter().filter(|it| is_released(it)).count()];
        assert_eq!(counts, if has_majority { [3, 0] } else { [0, 3] });
        assert!(leases.claims.is_empty());
    }
}
