//! The limits of peers that ask for too much.

use serde::{Deserialize, Serialize};

use super::net::Net;
use crate::cluster::frame::Head;
use crate::cluster::lives::Life;
use crate::cluster::peer_limits::PeerLimits;
use crate::pid::{Address, Pid};
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{DeadLetterReason, Event, Events, Process, SpawnOptions, Step, StepOutput, StepResult};

/// A message with PIDs.
#[derive(Serialize, Deserialize)]
struct Pids(Vec<Pid>);

crate::remote!(Pids, "test::Pids", 1);

/// Counts the PIDs that it gets.
struct Counter(Arc<Mutex<Vec<usize>>>);

impl Process for Counter {
    type Message = Pids;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Pids>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Pids(pids)) = event {
                lock(&self.0).push(pids.len());
            }
        }
        Ok(Step::Idle)
    }
}

type Reports = Arc<Mutex<Vec<(String, String)>>>;

fn reports(net: &Net, at: usize) -> Reports {
    let reports = Reports::default();
    let told = reports.clone();
    net.sides[at].1.limits().report_to(Box::new(move |peer, why| lock(&told).push((peer.into(), why.into()))));
    reports
}

#[test]
fn a_peer_that_names_lives_without_end_leaves_numbers_for_others() {
    let net = Net::with(3, |wire| wire.message::<Pids>());
    let reports = reports(&net, 1);
    let seen = Arc::<Mutex<Vec<usize>>>::default();
    let counter = net.sides[1].0.spawn(Counter(seen.clone())).unwrap();
    // Lives that these two nodes name, and that nobody else has seen.
    let send = |from: usize, lives: std::ops::Range<u64>| {
        let (runtime, node) = &net.sides[from];
        let number = |life| node.lives.number(Life::Node(life), 7).unwrap();
        let pids = lives.map(|life| Pid::new(number(life), 1, 1).unwrap()).collect();
        let (number, pid) = (net.ends[&(from, 1)].number, counter.pid());
        let far: Address<Pids> = Pid::new(number, pid.slot(), pid.generation()).unwrap().typed();
        runtime.send(far, Pids(pids)).unwrap();
        net.carry();
    };
    // The peer itself has a number, too.
    for round in 0..5 {
        send(0, 1_000 + round * 900..1_000 + (round + 1) * 900);
    }
    assert_eq!(*lock(&seen), [900; 4]);
    // The value that was refused had the last ones.
    send(0, 8_000..8_100);
    assert_eq!(*lock(&seen), [900; 4], "its numbers are given");
    assert_eq!(net.sides[1].0.stats().messages.dead_by_reason[&DeadLetterReason::NotDecoded], 2);
    // It goes on with those that are known, and the others have room.
    send(0, 1_000..1_900);
    send(2, 10_000..10_900);
    assert_eq!(*lock(&seen), [900; 6]);
    let told = lock(&reports).clone();
    assert_eq!((told.len(), &*told[0].0), (1, "node 0"));
    assert!(told[0].1.contains("4096 others through the node"), "{told:?}");
    let (lives, relations) = net.sides[1].1.limits().refused();
    assert_eq!((lives, relations), (2, 0));
}

#[test]
fn a_peer_that_invents_links_is_bounded_and_told() {
    let limits = || PeerLimits::of(usize::MAX, 10);
    let net = Net::with_limits(2, |wire| wire, limits);
    let reports = reports(&net, 1);
    let (one, other) = (net.trapping(0), net.plain(1));
    // Each from a process that never was. The PID of the sender itself is in the order of its node.
    let (far, here) = (net.pid(&other, 0), one.handle.pid());
    let link = |slot| {
        let from = Pid::new(here.node(), slot, 9).unwrap();
        assert!(net.ends[&(0, 1)].connection.send_head(0, &Head::Link { from, to: far, number: 1 }));
        net.carry();
    };
    (1_000..1_010).for_each(link);
    assert_eq!(net.tables(1, 0), (0, 0, 10));
    (1_010..2_000).for_each(link);
    // A known one is linked again, and one that has ended is not linked.
    link(1_000);
    assert_eq!(net.tables(1, 0), (0, 0, 10));
    assert_eq!(net.sides[1].0.core().relations.len(), 11, "the halves of ten links");
    // An honest process is told.
    net.link(&one, &other);
    net.carry();
    assert_eq!(one.seen(), ["exit terminated (its node has 10 links with this one, which is the limit)"]);
    assert_eq!((net.tables(0, 1), net.tables(1, 0)), ((0, 0, 0), (0, 0, 10)));
    // The process here may link itself to others.
    net.link(&other, &one);
    net.carry();
    assert_eq!(net.tables(1, 0), (0, 0, 11));
    assert_eq!(net.sides[1].1.limits().refused(), (0, 991));
    assert_eq!(*lock(&reports), [("node 0".into(), "its node has 10 links with this one, which is the limit".into())]);
    net.unlink(&other, &one);
    net.carry();
    net.cut(0, 1);
    net.rests();
    assert_eq!(net.tables(1, 0), (0, 0, 0));
    assert_eq!(net.sides[1].0.core().relations.len(), 0);
}

#[test]
fn a_peer_that_monitors_without_end_is_bounded_and_told() {
    let limits = || PeerLimits::of(10, usize::MAX);
    let net = Net::with_limits(2, |wire| wire, limits);
    let reports = reports(&net, 1);
    let one = net.plain(0);
    let others: Vec<_> = (0..12).map(|_| net.spawn(1, false, SpawnOptions::new())).collect();
    // Those that never were take no room.
    for slot in 1_000..1_100 {
        let pid = Pid::new(net.ends[&(0, 1)].number, slot, 9).unwrap();
        assert!(net.ends[&(0, 1)].connection.send_head(0, &Head::Watch { pid }));
    }
    net.carry();
    assert_eq!(net.tables(1, 0), (0, 0, 0));
    others.iter().for_each(|other| net.monitor(&one, other));
    net.carry();
    let why = "its node lets one node monitor 10 processes at most";
    assert_eq!(one.seen(), [format!("down terminated ({why})"), format!("down terminated ({why})")]);
    assert_eq!((net.tables(0, 1), net.tables(1, 0)), ((10, 0, 0), (0, 10, 0)));
    // The same ones again and again are one entry each.
    for other in others[..10].iter().cycle().take(1_000) {
        let pid = net.pid(other, 0);
        assert!(net.ends[&(0, 1)].connection.send_head(0, &Head::Watch { pid }));
    }
    net.carry();
    assert_eq!((net.tables(1, 0), net.sides[1].0.core().relations.len()), ((0, 10, 0), 10));
    // One that has ended is told as it is.
    net.done(&others[11]);
    net.monitor(&one, &others[11]);
    net.carry();
    assert_eq!(one.seen(), ["down terminated (no such process)"]);
    // There is room again.
    net.done(&others[0]);
    net.carry();
    net.monitor(&one, &others[10]);
    net.carry();
    assert_eq!((one.seen(), net.tables(1, 0)), (vec!["down done".into()], (0, 10, 0)));
    assert_eq!(net.sides[1].1.limits().refused(), (0, 2));
    assert_eq!(*lock(&reports), [("node 0".into(), why.into())]);
}
