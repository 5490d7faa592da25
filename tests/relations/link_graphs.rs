//! Chains, rings and random graphs of links, against a model.

use std::collections::{BTreeSet, VecDeque};

use procession::sync::Latch;
use procession::{Events, Pid, Runtime, SpawnOptions, Step, StepOutput};
use proptest::prelude::*;

use crate::helpers::*;
use crate::links::first;
use crate::support::node::*;

const LONG: usize = 10_000;

/// So many nodes, each linked to the one before it.
fn chain(runtime: &Runtime, length: usize) -> Vec<Known> {
    let nodes: Vec<Known> = (0..length).map(|_| node(runtime)).collect();
    for pair in nodes.windows(2) {
        runtime.send(pair[1].address(), Do::Link(pair[0].pid())).unwrap();
    }
    nodes.last().unwrap().settles(runtime);
    until("all are linked", || runtime.is_idle());
    nodes
}

fn all_end_by(nodes: &[Known], cause: Pid) {
    for node in nodes.iter().filter(|node| node.pid() != cause) {
        let exit = join(&node.handle).without_output();
        assert_eq!(first(&exit), (cause, "panicked: it panicked".into()), "the first one, however long the way");
    }
}

#[test]
fn a_long_chain_ends_whole_when_one_fails_at_an_end_or_in_the_middle() {
    for workers in [1, 2] {
        for place in [0, LONG / 2, LONG - 1] {
            let runtime = runtime(workers);
            let nodes = chain(&runtime, LONG);
            nodes[place].ends(&runtime, Way::Panic);
            all_end_by(&nodes, nodes[place].pid());
            assert_eq!(runtime.stats().processes, 0);
        }
    }
}

#[test]
fn a_long_ring_ends_whole() {
    let runtime = runtime(2);
    let nodes = chain(&runtime, LONG);
    nodes[0].does(&runtime, [Do::Link(nodes[LONG - 1].pid())]);
    nodes[17].ends(&runtime, Way::Panic);
    all_end_by(&nodes, nodes[17].pid());
}

/// The processes that end when this one fails, and those that are told: `(ended, [(trapping process, ended process)])`.
fn model(
    victim: usize,
    links: &BTreeSet<(usize, usize)>,
    traps: &[bool],
) -> (BTreeSet<usize>, BTreeSet<(usize, usize)>) {
    let neighbours =
        |of: usize| links.iter().filter_map(move |&(a, b)| if a == of { Some(b) } else { (b == of).then_some(a) });
    let (mut ended, mut heard, mut next) = (BTreeSet::from([victim]), BTreeSet::new(), VecDeque::from([victim]));
    while let Some(one) = next.pop_front() {
        for other in neighbours(one) {
            if traps[other] && other != victim {
                heard.insert((other, one));
            } else if ended.insert(other) {
                next.push_back(other);
            }
        }
    }
    (ended, heard)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Random links, made and taken away by either end, and one failure.
    #[test]
    fn a_failure_ends_exactly_those_whom_it_reaches_and_tells_those_who_trap(
        traps in prop::collection::vec(prop::bool::weighted(0.2), 2..40),
        made in prop::collection::vec((0..40_usize, 0..40_usize, prop::bool::weighted(0.15)), 0..120),
        victim in 0..40_usize,
        workers in 1..3_usize,
    ) {
        let (runtime, size) = (runtime(workers), traps.len());
        let nodes: Vec<Known> = (0..size).map(|_| node(&runtime)).collect();
        for (node, traps) in nodes.iter().zip(&traps) {
            node.does(&runtime, [Do::Trap(*traps)]);
        }
        let mut links = BTreeSet::new();
        for (a, b, unlink) in made.into_iter().map(|(a, b, unlink)| (a % size, b % size, unlink)) {
            let (order, pair) = (nodes[b].pid(), (a.min(b), a.max(b)));
            if unlink {
                links.remove(&pair);
                nodes[a].does(&runtime, [Do::Unlink(order)]);
            } else {
                if a != b {
                    links.insert(pair);
                }
                nodes[a].does(&runtime, [Do::Link(order)]);
            }
        }
        let victim = victim % size;
        let (ended, heard) = model(victim, &links, &traps);
        nodes[victim].ends(&runtime, Way::Panic);
        for &one in ended.iter().filter(|one| **one != victim) {
            let exit = join(&nodes[one].handle).without_output();
            prop_assert_eq!(first(&exit).0, nodes[victim].pid());
        }
        until("all rests", || runtime.is_idle());
        for (number, node) in nodes.iter().enumerate() {
            prop_assert_eq!(node.handle.is_finished(), ended.contains(&number), "number {}", number);
            let of: BTreeSet<Pid> = node.heard.to_vec().into_iter().map(|heard| match heard {
                Heard::Exit(pid, _) => pid,
                Heard::Down(..) | Heard::Recovered(..) => panic!("nobody is monitored, and nobody recovers"),
            }).collect();
            prop_assert_eq!(of.len(), node.heard.len(), "each is told once");
            // One that has ended itself may have heard of others before.
            if !ended.contains(&number) {
                let expected: BTreeSet<Pid> =
                    heard.iter().filter(|(who, _)| *who == number).map(|(_, of)| nodes[*of].pid()).collect();
                prop_assert_eq!(of, expected);
            }
        }
    }

    /// Random monitors, taken back or not, and random ends: each that was not taken back is told once.
    #[test]
    fn each_monitor_that_was_not_taken_back_is_told_exactly_once(
        size in 2..20_usize,
        made in prop::collection::vec((0..20_usize, 0..20_usize, prop::bool::weighted(0.3)), 0..80),
        ends in prop::collection::vec((0..20_usize, 0..3_usize), 0..20),
    ) {
        let runtime = runtime(2);
        let nodes: Vec<Known> = (0..size).map(|_| node(&runtime)).collect();
        // Of each node its monitors, with whether they are wanted.
        let mut monitors: Vec<Vec<(usize, bool)>> = vec![Vec::new(); size];
        for (who, of, taken_back) in made.into_iter().map(|(a, b, back)| (a % size, b % size, back)) {
            let number = monitors[who].len();
            monitors[who].push((of, !taken_back));
            runtime.send(nodes[who].address(), Do::Monitor(nodes[of].pid())).unwrap();
            if taken_back {
                runtime.send(nodes[who].address(), Do::Demonitor(number)).unwrap();
            }
        }
        until("all is made", || runtime.is_idle());
        let mut over = BTreeSet::new();
        for (who, way) in ends.into_iter().map(|(who, way)| (who % size, way)) {
            if over.insert(who) {
                let way = [Way::Done, Way::Fail, Way::Panic][way];
                runtime.send(nodes[who].address(), Do::End(way)).unwrap();
            }
        }
        until("all rests", || runtime.is_idle());
        for (number, node) in nodes.iter().enumerate().filter(|(number, _)| !over.contains(number)) {
            let wanted =
                |(place, (of, wanted)): (usize, &(usize, bool))| (*wanted && over.contains(of)).then_some(place);
            let expected: BTreeSet<usize> = monitors[number].iter().enumerate().filter_map(wanted).collect();
            let heard: Vec<usize> = node.heard.to_vec().into_iter().map(|heard| match heard {
                Heard::Down(place, ..) => place,
                Heard::Exit(..) | Heard::Recovered(..) => panic!("nobody is linked"),
            }).collect();
            prop_assert_eq!(heard.len(), expected.len());
            prop_assert_eq!(heard.into_iter().collect::<BTreeSet<_>>(), expected);
        }
    }
}

/// Both link each other while both end, again and again.
#[test]
fn links_made_while_the_other_ends_are_told_or_kill_and_never_neither() {
    for round in 0..300 {
        let runtime = runtime(2);
        let go = Latch::new();
        let gate = go.clone();
        let ends = runtime.spawn(script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
            wait(&gate);
            Err::<Step<()>, _>("it failed".into())
        }));
        let ends = ends.unwrap();
        let traps = node_with(&runtime, SpawnOptions::new().trap_exits());
        runtime.send(traps.address(), Do::Link(ends.pid())).unwrap();
        if round % 2 == 0 {
            until("it is linked", || {
                runtime.process_state(traps.pid()) == Some(procession::observe::ProcessState::Idle)
            });
        }
        go.set(()).unwrap();
        join(&ends);
        let heard = traps.hears(1);
        let Heard::Exit(pid, text) = &heard[0] else { panic!("{heard:?}") };
        assert_eq!(*pid, ends.pid());
        assert!(text == "failed: it failed" || text == "terminated (no such process)", "{text}");
    }
}
