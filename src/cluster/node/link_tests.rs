//! Links between nodes, and storms of all relations.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::net::{Inner, Local, Net, Order, Outer};
use crate::counts::counts;
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;
use crate::process::{SpawnOptions, Step, StepOutput};
use crate::wait::wait;

#[test]
fn a_link_ends_both_ends_and_a_done_one_is_an_event_for_those_that_trap() {
    let net = Net::new(2);
    for from_here in [false, true] {
        let (one, other) = (net.plain(0), net.plain(1));
        let (first, second) = if from_here { (&one, &other) } else { (&other, &one) };
        net.link(first, second);
        net.carry();
        assert!(net.is_linked(&one, &other) && net.is_linked(&other, &one));
        net.tell(first, |_| Err(Outer(Inner).into()));
        net.carry();
        assert!(!wait(&second.handle).is_done(), "{from_here}");
        net.nothing_is_left("failed");
    }
    let (traps, other) = (net.trapping(0), net.plain(1));
    net.link(&other, &traps);
    net.carry();
    net.done(&other);
    net.carry();
    assert_eq!(traps.seen(), ["exit done"]);
    net.link(&traps, &other);
    net.carry();
    assert_eq!(traps.seen(), ["exit terminated (no such process)"]);
    let plain = net.plain(0);
    net.link(&plain, &other);
    net.carry();
    let Exit::Terminated(Reason::Linked(first)) = wait(&plain.handle).without_output() else { panic!("it is linked") };
    assert!(matches!(first.exit(), Exit::Terminated(Reason::NoSuchProcess)));
    net.nothing_is_left("ended");
}

#[test]
fn a_process_that_links_itself_and_ends_tells_its_real_exit() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.trapping(1));
    let far = net.pid(&other, 0);
    net.tell(&one, move |out| {
        out.send(far.typed::<Order>(), Order::Note(1));
        out.link(far);
        Ok(Step::Done(()))
    });
    net.carry_by(&mut |count| count - 1);
    assert_eq!(other.seen(), ["note 1", "exit done"]);
    net.nothing_is_left("done");
}

#[test]
fn after_an_unlink_no_exit_comes_also_if_it_was_on_its_way() {
    let net = Net::new(2);
    let (one, other) = (net.plain(0), net.plain(1));
    net.link(&one, &other);
    net.carry();
    net.sides[1].0.terminate(other.handle.pid()).unwrap();
    net.rests();
    assert_eq!(net.on_the_way(1, 0), 1);
    net.unlink(&one, &other);
    net.carry();
    net.does(&one, |_| ());
    assert!(net.sides[0].0.is_alive(one.handle.pid()));
    net.nothing_is_left("unlinked");
    // Linked anew while the exit is on its way: it is told once.
    let (one, other) = (net.trapping(0), net.plain(1));
    net.link(&one, &other);
    net.carry();
    net.done(&other);
    net.unlink(&one, &other);
    net.link(&one, &other);
    net.carry();
    assert_eq!(one.seen(), ["exit done"]);
    net.nothing_is_left("linked anew");
}

#[test]
fn crossing_links_and_unlinks_leave_both_ends_agreed() {
    let seeds = counts(300, 20_000);
    let net = Net::new(2);
    for seed in 0..seeds {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let both = [net.trapping(0), net.trapping(1)];
        // The second half of the calls is that of one end only, in some of the seeds.
        let alone = random.random_range(0..3_usize);
        let count = random.random_range(2..14);
        let mut last = [None; 2];
        for number in 0..count {
            let late = number * 2 >= count;
            let at = if late && alone < 2 { alone } else { random.random_range(0..2) };
            let links = random.random_range(0..2) == 0;
            if links {
                net.link(&both[at], &both[1 - at]);
            } else {
                net.unlink(&both[at], &both[1 - at]);
            }
            last[at] = Some(links);
            for _ in 0..random.random_range(0..4) {
                let from = random.random_range(0..2);
                net.step(from, 1 - from, &mut |count| random.random_range(0..count));
            }
            if late || random.random_range(0..4) > 0 {
                continue;
            }
            net.carry_by(&mut |count| random.random_range(0..count));
            last = [None; 2];
        }
        net.carry_by(&mut |count| random.random_range(0..count));
        let linked = [net.is_linked(&both[0], &both[1]), net.is_linked(&both[1], &both[0])];
        assert_eq!(linked[0], linked[1], "seed {seed}: both sides agree");
        if let [Some(links), None] | [None, Some(links)] = last {
            assert_eq!(linked[0], links, "seed {seed}: the last call, and the other did nothing");
        }
        let entries = usize::from(linked[0]);
        assert_eq!([net.tables(0, 1).2, net.tables(1, 0).2], [entries; 2], "seed {seed}");
        // The end of one is told exactly if they are linked.
        net.done(&both[0]);
        net.carry();
        assert_eq!(both[1].seen().len(), entries, "seed {seed}");
        net.done(&both[1]);
        net.carry();
        assert!(both[0].seen().is_empty(), "seed {seed}");
        net.nothing_is_left(&format!("seed {seed}"));
    }
}

#[test]
fn a_chain_of_links_over_three_nodes_ends_whole_and_names_the_first() {
    const COUNT: usize = 300;
    let net = Net::new(3);
    let chain: Vec<Local> = (0..COUNT).map(|number| net.plain(number % 3)).collect();
    chain.windows(2).for_each(|two| net.link(&two[0], &two[1]));
    net.carry();
    let first = &chain[COUNT / 2];
    net.sides[first.at].0.terminate(first.handle.pid()).unwrap();
    net.carry();
    for link in &chain {
        match wait(&link.handle).without_output() {
            Exit::Terminated(Reason::Linked(ended)) => assert_eq!(ended.pid(), net.pid(first, link.at)),
            exit => assert!(link.handle.pid() == first.handle.pid() && link.at == first.at, "{exit}"),
        }
    }
    net.nothing_is_left("a chain");
}

#[test]
fn a_process_that_recovers_ends_the_links_that_it_alone_has_made() {
    let net = Net::new(2);
    let (one, other) = (net.spawn(0, true, SpawnOptions::new()), net.trapping(1));
    net.link(&one, &other);
    net.carry();
    net.tell(&one, |_| Err(Outer(Inner).into()));
    net.carry();
    assert_eq!(other.seen(), ["exit failed: the order failed"]);
    assert!(net.sides[0].0.is_alive(one.handle.pid()));
    net.nothing_is_left("recovered");
    // The other end links itself, too, while this one fails: that is one call against the other.
    let (one, other) = (net.spawn(0, true, SpawnOptions::new()), net.trapping(1));
    net.link(&one, &other);
    net.carry();
    net.link(&other, &one);
    net.tell(&one, |_| Err(Outer(Inner).into()));
    net.carry();
    assert_eq!(other.seen(), ["exit failed: the order failed"]);
    assert!(!net.is_linked(&one, &other) && !net.is_linked(&other, &one));
    net.nothing_is_left("recovered while the other end links itself");
    // The other end has made the link. It is told, and the link stays.
    let (one, other) = (net.spawn(0, true, SpawnOptions::new()), net.trapping(1));
    net.link(&other, &one);
    net.carry();
    net.tell(&one, |_| Err(Outer(Inner).into()));
    net.carry();
    assert_eq!(other.seen(), ["recovered failed: the order failed"]);
    assert!(net.is_linked(&one, &other) && net.is_linked(&other, &one));
    net.done(&one);
    net.carry();
    assert_eq!(other.seen(), ["exit done"]);
    net.nothing_is_left("recovered, and ended");
    // Both have made the link, at once, so it stays. If the other end has taken its part back, it is as the first case.
    for is_taken_back in [false, true] {
        let (one, other) = (net.spawn(0, true, SpawnOptions::new()), net.trapping(1));
        net.link(&other, &one);
        if is_taken_back {
            net.unlink(&other, &one);
            (0..2).for_each(|_| net.link(&one, &other));
        }
        net.link(&one, &other);
        net.carry();
        net.tell(&one, |_| Err(Outer(Inner).into()));
        net.carry();
        let expected =
            if is_taken_back { "exit failed: the order failed" } else { "recovered failed: the order failed" };
        assert_eq!(other.seen(), [expected], "taken back: {is_taken_back}");
        net.done(&one);
        net.carry();
        net.nothing_is_left("both have made the link");
    }
}

/// Processes of three nodes relate themselves, end, and are ended, while connections break. In the end all have ended,
/// and nothing is left.
#[test]
fn after_any_storm_nothing_of_relations_and_questions_is_left() {
    for seed in 0..counts(20, 1_000) {
        storm(seed, 300);
    }
    storm(0, counts(1_000, 100_000));
}

/// Processes make this number of relations, requests and ends.
fn storm(seed: u64, changes: u64) {
    const NODES: usize = 3;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut net = Net::new(NODES);
    let mut cut: Vec<(usize, usize)> = Vec::new();
    let mut alive: Vec<Local> = (0..12).map(|number| net.trapping(number % NODES)).collect();
    let mut watchers = Vec::new();
    let mut dead = Vec::new();
    for _ in 0..changes {
        let one = random.random_range(0..alive.len());
        let other = random.random_range(0..alive.len());
        let far = net.pid(&alive[other], alive[one].at);
        match random.random_range(0..12) {
            0..=2 => net.link(&alive[one], &alive[other]),
            3 | 4 => net.unlink(&alive[one], &alive[other]),
            5 => net.monitor(&alive[one], &alive[other]),
            6 => net.does(&alive[one], move |out| {
                let monitor = out.monitor(far);
                out.demonitor(monitor);
            }),
            7 => watchers.push(net.sides[alive[one].at].0.watch(far)),
            8 => net.does(&alive[one], move |out| _ = out.cancel(far, "a storm")),
            9 => {
                let job = move |out: &mut StepOutput| {
                    out.terminate(far);
                };
                if random.random_range(0..2) == 0 {
                    net.does(&alive[one], job);
                } else {
                    net.done(&alive[one]);
                }
            }
            10 if cut.is_empty() => {
                let from = random.random_range(0..NODES);
                let pair = (from, (from + 1) % NODES);
                net.cut(pair.0, pair.1);
                cut.push(pair);
            }
            _ => {
                if let Some((from, to)) = cut.pop() {
                    net.connect(from, to);
                }
                watchers.truncate(random.random_range(0..5));
            }
        }
        for _ in 0..random.random_range(0..6) {
            let (from, to) = (random.random_range(0..NODES), random.random_range(0..NODES));
            net.step(from, to, &mut |count| random.random_range(0..count));
        }
        let (ended, lives): (Vec<Local>, Vec<Local>) =
            alive.into_iter().partition(|local| !net.sides[local.at].0.is_alive(local.handle.pid()));
        dead.extend(ended);
        alive = lives;
        while alive.len() < 12 {
            alive.push(net.trapping(random.random_range(0..NODES)));
        }
    }
    cut.into_iter().for_each(|(from, to)| net.connect(from, to));
    net.carry_by(&mut |count| random.random_range(0..count));
    // Both sides of each link agree.
    for one in &alive {
        for other in alive.iter().filter(|other| other.at != one.at) {
            assert_eq!(net.is_linked(one, other), net.is_linked(other, one), "seed {seed}");
        }
    }
    alive.iter().for_each(|local| net.done(local));
    net.carry_by(&mut |count| random.random_range(0..count));
    watchers.iter().for_each(|watcher| assert!(watcher.down().is_some(), "seed {seed}: {}", watcher.pid()));
    net.nothing_is_left(&format!("seed {seed}"));
}

/// Each process of three nodes has a monitor of each process of the others, a link with it, and a question to it. Some
/// processes end, a connection breaks, and then all end.
#[test]
fn nothing_is_left_of_many_relations_and_questions_at_once() {
    // With the full count there are more than 100,000 relations, and half as many questions.
    let each = counts(8, 92) as usize;
    let mut net = Net::new(3);
    let locals: Vec<Local> = (0..3 * each).map(|number| net.trapping(number % 3)).collect();
    let others = |local: &Local| -> Vec<Pid> {
        let others = locals.iter().filter(|other| other.at != local.at);
        others.map(|other| net.pid(other, local.at)).collect()
    };
    let mut watchers = Vec::new();
    for local in &locals {
        let others = others(local);
        watchers.extend(others.iter().map(|other| net.sides[local.at].0.watch(*other)));
        net.does(local, move |out| {
            for other in others {
                out.monitor(other);
                out.link(other);
                out.ask(other.typed(), Order::Keep, Duration::from_secs(3_600));
            }
        });
    }
    net.carry();
    let peers = 2 * each;
    for (pair, end) in &net.ends {
        assert_eq!(end.connection.open_questions(), (each * each, each * each), "questions of {pair:?}");
        assert_ne!(end.connection.relations(), (0, 0, 0), "tables of {pair:?}");
    }
    let relations: usize = net.sides.iter().map(|(runtime, _)| runtime.core().relations.len()).sum();
    assert_eq!(relations, 3 * locals.len(), "each node has the relations of each process");
    // The watchers of one node are dropped, and those of the others are told.
    let (dropped, told): (Vec<_>, Vec<_>) =
        watchers.into_iter().enumerate().partition(|(at, _)| (at / peers).is_multiple_of(3));
    drop(dropped);
    let (first, rest) = locals.split_at(each);
    first.iter().for_each(|local| net.done(local));
    net.carry();
    net.cut(0, 1);
    net.connect(0, 1);
    rest.iter().for_each(|local| net.done(local));
    net.carry();
    assert!(told.iter().all(|(_, watcher)| watcher.down().is_some()));
    net.nothing_is_left("many relations");
}
