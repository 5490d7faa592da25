//! Durable processes on a disk that loses its power while they run.

use std::collections::BTreeMap;
use std::time::Instant;

use procession::durable::journal::{Fault, Journal, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Format, Store};
use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::{counts, draw, until_the_disk_crashes};
use crate::wait::LIMIT;

/// Greets its peers, and counts the greetings of each.
#[derive(Serialize, Deserialize)]
struct Peer {
    number: u32,
    peers: Vec<Address<PeerMessage>>,
    sent: u64,
    /// The number of the last greeting of each peer.
    seen: BTreeMap<u32, u64>,
    /// Greetings that were not the next one of their sender.
    wrong: Vec<(u32, u64, u64)>,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum PeerMessage {
    Peers(Vec<Address<PeerMessage>>),
    /// Greets all peers so many times.
    Rounds(u64),
    Hello {
        from: u32,
        number: u64,
    },
    Report(Reply<Report>),
}

#[derive(Serialize, Deserialize)]
pub(crate) struct Report {
    /// How often it has greeted.
    pub(crate) sent: u64,
    seen: BTreeMap<u32, u64>,
    wrong: Vec<(u32, u64, u64)>,
}

impl Report {
    fn seen(&self, from: u32) -> u64 {
        self.seen.get(&from).copied().unwrap_or_default()
    }
}

impl Process for Peer {
    type Message = PeerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, PeerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(PeerMessage::Peers(peers)) => self.peers = peers,
                Event::Message(PeerMessage::Rounds(0)) => {}
                Event::Message(PeerMessage::Rounds(rounds)) => {
                    self.sent += 1;
                    for peer in &self.peers {
                        out.send(*peer, PeerMessage::Hello { from: self.number, number: self.sent });
                    }
                    let me: Address<PeerMessage> = out.pid().typed();
                    out.send(me, PeerMessage::Rounds(rounds - 1));
                }
                Event::Message(PeerMessage::Hello { from, number }) => {
                    let seen = self.seen.entry(from).or_default();
                    if number != *seen + 1 {
                        self.wrong.push((from, *seen, number));
                    }
                    *seen = number;
                }
                Event::Message(PeerMessage::Report(reply)) => {
                    let (seen, wrong) = (self.seen.clone(), self.wrong.clone());
                    out.reply(reply, Report { sent: self.sent, seen, wrong });
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Peer {
    const NAME: &str = "peer";
    const FORMAT: Format = Format::Postcard;
}

const PEERS: u32 = 8;

pub(crate) fn open(journal: impl Journal + 'static) -> (Store, Runtime) {
    let builder = Runtime::builder().workers(2);
    store_in(journal).kind::<Peer>().start(builder).unwrap()
}

/// Begins so many peers, and tells them of each other.
pub(crate) fn begin(store: &Store, peers: u32) -> Vec<Address<PeerMessage>> {
    let new = |number| Peer { number, peers: Vec::new(), sent: 0, seen: BTreeMap::new(), wrong: Vec::new() };
    let peers: Vec<_> =
        (0..peers).map(|number| store.begin(&format!("{number}"), new(number)).unwrap().address()).collect();
    for peer in &peers {
        store.send(*peer, PeerMessage::Peers(peers.clone())).unwrap().wait(LIMIT).unwrap();
    }
    peers
}

/// Has each peer greet all others so many times. When this returns, that is on disk.
pub(crate) fn greet(store: &Store, peers: &[Address<PeerMessage>], rounds: u64) {
    for peer in peers {
        store.send(*peer, PeerMessage::Rounds(rounds)).unwrap().wait(LIMIT).unwrap();
    }
}

/// How often every peer has greeted all others at least, when all greetings have arrived. Each arrived once, and in
/// order.
pub(crate) fn rounds_of(runtime: &Runtime, peers: &[Address<PeerMessage>]) -> Option<u64> {
    // While the store opens its files again, a question may be dropped.
    let ask = |peer: &Address<PeerMessage>| runtime.ask(*peer, PeerMessage::Report, LIMIT).wait().ok();
    let reports: Vec<Report> = peers.iter().map(ask).collect::<Option<_>>()?;
    for report in &reports {
        assert_eq!(report.wrong, [], "no greeting is lost, doubled or reordered");
    }
    let has_all = |report: &Report| (0..).zip(&reports).all(|(from, other)| report.seen(from) == other.sent);
    reports.iter().all(has_all).then(|| reports.iter().map(|report| report.sent).min())?
}

#[test]
fn messages_arrive_once_and_in_order_though_the_disk_loses_its_power() {
    let rounds = 300;
    until_the_disk_crashes(counts("seeds", 5, 100), |seed| {
        let disk = MemoryDisk::with_seed(seed);
        let (store, runtime) = open(MemoryJournal::new(&disk));
        let peers = begin(&store, PEERS);
        greet(&store, &peers, rounds);
        let (mut crashes, mut calls, deadline) = (0, 0, Instant::now() + LIMIT);
        while rounds_of(&runtime, &peers) != Some(rounds) {
            assert!(Instant::now() < deadline, "seed {seed}: nobody is stuck: {store:?}");
            // The third error in a row would close the store. So something is written between two crashes.
            if crashes < 20 && disk.calls() > calls + 20 + draw(seed, crashes, 1, 50) {
                disk.crash();
                (crashes, calls) = (crashes + 1, disk.calls());
            }
        }
        assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
        store.close().unwrap();
        crashes
    });
}

#[test]
fn messages_arrive_once_and_in_order_though_the_program_may_end() {
    let (seeds, rounds) = (counts("seeds", 3, 100), 300);
    let mut ends_before = 0;
    for seed in 0..seeds {
        let disk = MemoryDisk::with_seed(seed);
        let mut peers = Vec::new();
        for run in 0.. {
            assert!(run < 1_000, "seed {seed}: nobody is stuck");
            let (store, runtime) = open(MemoryJournal::new(&disk));
            if run == 0 {
                peers = begin(&store, PEERS);
                greet(&store, &peers, rounds);
            }
            let mut is_done = false;
            for _ in 0..draw(seed, run, 2, 4) {
                is_done |= rounds_of(&runtime, &peers) == Some(rounds);
            }
            // Nothing reaches the disk any more, as after a kill.
            (disk.calls()..disk.calls() + 1_000).for_each(|call| disk.fail_at(call, Fault::Error));
            assert_eq!(runtime.shutdown(LIMIT).unwrap().terminated, 0);
            drop(store.close());
            disk.crash();
            disk.heal();
            if is_done {
                break;
            }
            ends_before += 1;
        }
    }
    assert!(ends_before > 0, "a program has ended before all have arrived");
}
