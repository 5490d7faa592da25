//! The memory of a node beside a peer that breaks the protocol.
//!
//! The peer is in the same program, so what it takes itself is counted, too. Its session with the node is not: it is
//! open before the count begins.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use procession::cluster::{Cluster, Security, Wire};
use procession::observe::DeadLetterReason;
use procession::{Event, Events, Handle, Pid, Process, Runtime, Step, StepOutput, StepResult, remote};
use serde::{Deserialize, Serialize};

use crate::helpers::*;
use crate::hostile_peer::{CLUSTER, Counts, Fault, HostilePeer, NAMED, NAMED_IN_ONE, NODE};
use crate::resident::*;

/// The most that such a peer may take, in KiB.
const MOST: u64 = 32 << 10;

#[derive(Serialize, Deserialize)]
struct Pids(Vec<Pid>);

#[derive(Serialize, Deserialize)]
struct Text(String);

remote!(Pids, "memory::Pids", 1);
remote!(Text, "memory::Text", 1);

/// Reports the PIDs that it gets.
struct Reader(Sender<Vec<Pid>>);

impl Process for Reader {
    type Message = Pids;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Pids>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Pids(pids)) = event {
                let _ = self.0.send(pids);
            }
        }
        Ok(Step::Idle)
    }
}

/// A node, and a peer that breaks the protocol.
struct Attacked {
    runtime: Runtime,
    _reader: Handle<Reader>,
    pids: Receiver<Vec<Pid>>,
    peer: HostilePeer,
}

impl Attacked {
    fn count(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        of(&self.peer.counts).load(Ordering::SeqCst)
    }

    fn heartbeats(&self) -> u64 {
        self.count(|counts| &counts.heartbeats)
    }

    /// Waits for more heartbeats of the peer. They come every 250 ms, and only while the connection is up.
    fn wait_for_heartbeats(&self, more: u64) {
        let before = self.heartbeats();
        until("the peer sends heartbeats", || self.heartbeats() >= before + more);
    }

    /// Sends texts of this length until the node has no room for them, and takes none of them for a while either.
    fn fill(&self, to: Pid, length: usize) -> usize {
        let mut sent = 0;
        loop {
            let before = sent;
            while self.runtime.send(to.typed(), Text("x".repeat(length))).is_ok() {
                sent += 1;
            }
            if sent == before {
                return sent;
            }
            self.wait_for_heartbeats(2);
        }
    }
}

/// Runs a peer with this fault. It is at its worst when `worst` returns.
fn takes_little(fault: Fault, worst: impl FnOnce(&Attacked)) {
    alone(|| {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let runtime = runtime(1);
        let node = Cluster::named(NODE, Wire::new().message::<Pids>().message::<Text>()).cluster(CLUSTER);
        let node = node.listen(format!("tcp/{address}")).security(Security::TrustedNetwork);
        let cluster = node.start(&runtime).unwrap();
        let (send, pids) = channel();
        let reader = runtime.spawn(Reader(send)).unwrap();
        let mut peer = HostilePeer::open(&address).unwrap();
        forget_peak();
        let before = resident_kib();
        peer.begin(reader.pid(), fault).unwrap();
        let attacked = Attacked { runtime, _reader: reader, pids, peer };
        worst(&attacked);
        let taken = before.zip(peak_kib()).map(|(before, peak)| peak.saturating_sub(before));
        println!("a peer that {} takes {taken:?} KiB", fault.name());
        assert!(taken.is_none_or(|taken| taken <= MOST), "{taken:?} KiB");
        drop(cluster);
    });
}

#[test]
fn a_peer_that_grants_no_credit_takes_little() {
    takes_little(Fault::NoCredit, |attacked| {
        let to = wait(&attacked.pids).unwrap()[0];
        assert!(attacked.fill(to, 1 << 20) >= 8, "large messages wait");
    });
}

#[test]
fn a_peer_that_acknowledges_nothing_takes_little() {
    takes_little(Fault::NoAcknowledgement, |attacked| {
        let to = wait(&attacked.pids).unwrap()[0];
        assert!(attacked.fill(to, 64) >= 50_000, "small messages wait, or are in doubt");
        assert!(attacked.fill(to, 1 << 20) >= 8, "large messages wait");
    });
}

#[test]
fn a_peer_that_dials_and_says_nothing_takes_little() {
    takes_little(Fault::Silent, |attacked| {
        until("it is dropped and dialled again", || attacked.count(|counts| &counts.connections) >= 3);
    });
}

#[test]
fn a_peer_that_sends_halves_of_messages_takes_little() {
    takes_little(Fault::HalfMessages, |attacked| {
        until("it has sent all halves", || attacked.count(|counts| &counts.attacks) > 0);
        attacked.wait_for_heartbeats(2);
    });
}

#[test]
fn a_peer_that_names_a_million_nodes_takes_little() {
    takes_little(Fault::NamedNodes, |attacked| {
        let messages = NAMED.div_ceil(NAMED_IN_ONE);
        let refused = || attacked.runtime.stats().messages.dead_by_reason.get(&DeadLetterReason::NotDecoded).copied();
        let taken = std::cell::Cell::new(0);
        until("all messages are taken or refused", || {
            taken.set(taken.get() + attacked.pids.try_iter().count() as u64);
            taken.get() + refused().unwrap_or_default() >= messages
        });
        assert!(refused() > Some(0), "its numbers are given");
    });
}
