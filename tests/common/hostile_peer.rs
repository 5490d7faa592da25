//! A peer that breaks the protocol between nodes. It uses the engine directly, as any program in the network can.
//!
//! The memory suite and `benches/nodes` use it. It announces itself, so a node that listens on TCP dials it.

#![allow(dead_code)]

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use procession::Pid;
use zenoh::qos::CongestionControl;
use zenoh::sample::{Locality, Sample};
use zenoh::{Session, Wait as _};

pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;

/// The cluster of the node.
pub(crate) const CLUSTER: &str = "attacked";

/// The name of the node, and that of this peer.
pub(crate) const NODE: &str = "node";
pub(crate) const PEER: &str = "peer";

/// The incarnation of the peer.
const INCARNATION: u64 = 0x6666;

/// The time between two heartbeats of the peer.
const BEAT: Duration = Duration::from_millis(250);

/// The bytes that the peer gives its engine at once.
const LARGE_FRAME: usize = 64 << 20;

/// How many nodes the peer names.
pub(crate) const NAMED: u64 = 1_000_000;

/// How many of them are in one message. A message has at most 1,000.
pub(crate) const NAMED_IN_ONE: u64 = 900;

/// How many messages of names are in one frame.
const MESSAGES: u64 = 4;

/// The bytes of a fragment.
const FRAGMENT: u64 = 32 << 10;

/// The bytes of the longest item.
const LONGEST_ITEM: u64 = (16 << 20) + (64 << 10);

/// The bytes of all items that may be open at once.
const OPEN: u64 = 24 << 20;

/// The first bytes of frames.
const HELLO: u8 = 0xC0;
const BATCH: u8 = 0xC5;
const HEARTBEAT: u8 = 0xC6;

/// The bytes before the parts of a batch.
const HEAD: usize = 45;

/// The kinds of parts.
const MESSAGE: u8 = 0;
const LARGE_MESSAGE: u8 = 2;
const NEXT_FRAGMENT: u8 = 4;

/// The way in which the peer misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It never lets the node send fragments of large messages.
    NoCredit,
    /// As before. The node has messages of 16 MiB.
    NoCreditForLargest,
    /// It never acknowledges a batch.
    NoAcknowledgement,
    /// It answers the first frame of each connection, and says nothing more. It also has a bare connection to the port.
    Silent,
    /// It sends as much of large messages as may be open at once, and never the ends. Then it only sends heartbeats.
    HalfMessages,
    /// It sends as much of large messages as may be open at once, and then the next one. It begins again with each
    /// connection.
    EndlessHalves,
    /// It names 1,000,000 nodes in messages.
    NamedNodes,
    /// It gives its engine messages of 64 MiB for the node, which travel in fragments of the engine.
    LargeFrames,
    /// It tells the engine of the node that 1,000,000 nodes are there.
    AnnouncedNodes,
}

impl Fault {
    pub(crate) const ALL: [Fault; 9] = [
        Fault::NoCredit,
        Fault::NoCreditForLargest,
        Fault::NoAcknowledgement,
        Fault::Silent,
        Fault::HalfMessages,
        Fault::EndlessHalves,
        Fault::NamedNodes,
        Fault::LargeFrames,
        Fault::AnnouncedNodes,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::NoCredit => "grants no credit",
            Fault::NoCreditForLargest => "grants no credit for messages of 16 MiB",
            Fault::NoAcknowledgement => "acknowledges nothing",
            Fault::Silent => "dials and says nothing",
            Fault::HalfMessages => "sends half of large messages",
            Fault::EndlessHalves => "sends half of large messages again and again",
            Fault::NamedNodes => "names 1,000,000 nodes",
            Fault::LargeFrames => "sends 64 MiB at once",
            Fault::AnnouncedNodes => "announces 1,000,000 nodes",
        }
    }
}

/// The steps that the peer has made.
#[derive(Default)]
pub(crate) struct Counts {
    /// The connections that it has begun.
    pub(crate) connections: AtomicU64,
    pub(crate) heartbeats: AtomicU64,
    /// How many times it has done all that it does to a connection.
    pub(crate) attacks: AtomicU64,
    /// The nodes that it has announced.
    pub(crate) announced: AtomicU64,
}

/// The peer. It goes on until it is dropped.
pub(crate) struct HostilePeer {
    pub(crate) counts: Arc<Counts>,
    session: Session,
    address: String,
    bare: Option<TcpStream>,
}

impl Drop for HostilePeer {
    fn drop(&mut self) {
        // If the engine cannot close it, the end of the program does.
        let _ = self.session.close().wait();
    }
}

impl HostilePeer {
    /// Opens a session with a node that listens at this address, as in `127.0.0.1:7447`. It says nothing yet.
    pub(crate) fn open(address: &str) -> Result<HostilePeer, Problem> {
        let mut config = zenoh::Config::default();
        for (key, value) in [
            ("mode", "\"peer\"".to_string()),
            ("listen/endpoints", "[]".to_string()),
            ("connect/endpoints", format!("[\"tcp/{address}\"]")),
            ("scouting/multicast/enabled", "false".to_string()),
        ] {
            config.insert_json5(key, &value)?;
        }
        let session = zenoh::open(config).wait()?;
        Ok(HostilePeer { counts: Arc::default(), session, address: address.to_string(), bare: None })
    }

    /// Begins. `to` is a process of the node that takes messages of its first type, which is a list of PIDs.
    pub(crate) fn begin(&mut self, to: Pid, fault: Fault) -> Result<(), Problem> {
        let (session, counts) = (self.session.clone(), self.counts.clone());
        let (send, frames) = channel();
        // The thread that takes them ends with the session.
        let frame = move |sample: Sample| drop(send.send(sample.payload().to_bytes().into_owned()));
        let subscriber = session.declare_subscriber(format!("procession/to/{CLUSTER}/{PEER}/*")).callback(frame);
        subscriber.allowed_origin(Locality::Remote).background().wait()?;
        if fault == Fault::Silent {
            self.bare = Some(TcpStream::connect(&self.address)?);
        }
        let peer = Peer {
            session,
            fault,
            to,
            counts,
            there: 0,
            here: 0,
            is_up: false,
            sequence: 0,
            acknowledged: 0,
            granted: 0,
            done: 0,
        };
        thread::Builder::new().name("hostile-peer".into()).spawn(move || peer.run(&frames))?;
        // It lasts until the session is closed.
        let token = format!("procession/alive/{CLUSTER}/{PEER}/{INCARNATION:016x}");
        std::mem::forget(self.session.liveliness().declare_token(token).wait()?);
        Ok(())
    }
}

/// The state of the connection.
struct Peer {
    session: Session,
    fault: Fault,
    to: Pid,
    counts: Arc<Counts>,
    /// The nonces of the node and of this peer.
    there: u64,
    here: u64,
    is_up: bool,
    /// The sequence numbers of our last batch and of the node's last batch, and the bytes that the node has granted.
    sequence: u64,
    acknowledged: u64,
    granted: u64,
    /// How much of the attack is done: bytes of fragments, or messages.
    done: u64,
}

fn word(frame: &[u8], place: usize) -> Option<u64> {
    Some(u64::from_le_bytes(frame.get(place..place + 8)?.try_into().ok()?))
}

/// Splits a number with a variable length off.
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let end = bytes.iter().position(|byte| *byte < 0x80)?;
    let number = bytes[..=end].iter().rev().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f));
    Some((number, &bytes[end + 1..]))
}

fn put_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Peer {
    fn run(mut self, frames: &Receiver<Vec<u8>>) {
        let mut beat_at = Instant::now() + BEAT;
        loop {
            match frames.recv_timeout(beat_at.saturating_duration_since(Instant::now())) {
                Ok(frame) => _ = self.take(&frame),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if Instant::now() >= beat_at {
                beat_at = Instant::now() + BEAT;
                self.beat();
            }
        }
    }

    fn send(&self, frame: Vec<u8>) {
        let put = self.session.put(format!("procession/to/{CLUSTER}/{NODE}/{PEER}"), frame);
        // A session that is closed sends nothing.
        let _ = put.congestion_control(CongestionControl::Block).express(true).wait();
    }

    /// Takes a frame of the node. `None` if it is torn.
    fn take(&mut self, frame: &[u8]) -> Option<()> {
        let (kind, to, from) = (*frame.first()?, word(frame, 1)?, word(frame, 9)?);
        match kind {
            HELLO => {
                if from != self.there {
                    (self.there, self.here, self.is_up) = (from, self.here + 1, false);
                    (self.sequence, self.acknowledged, self.granted, self.done) = (0, 0, 0, 0);
                    self.counts.connections.fetch_add(1, Ordering::SeqCst);
                }
                let has_paired = frame.get(17) == Some(&1);
                if !has_paired {
                    self.send(self.hello(frame)?);
                }
            }
            BATCH | HEARTBEAT if to == self.here && from == self.there => {
                self.acknowledged = word(frame, 17)?;
                self.granted = word(frame, 33)?;
                if self.fault == Fault::Silent {
                    return Some(());
                }
                if !self.is_up && kind == BATCH {
                    // Its types and its directory are ours, too.
                    self.is_up = true;
                    self.batch(&frame[HEAD..]);
                }
                if self.is_up {
                    self.attack();
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Our `Hello`: that of the node, with our name and numbers.
    fn hello(&self, of_node: &[u8]) -> Option<Vec<u8>> {
        let mut hello = vec![HELLO];
        [self.there, self.here].iter().for_each(|nonce| hello.extend(nonce.to_le_bytes()));
        hello.push(0);
        hello.extend(INCARNATION.to_le_bytes());
        let mut rest = of_node.get(26..)?;
        let begin = rest;
        for _ in 0..3 {
            rest = varint(rest)?.1;
        }
        let (cluster, after) = varint(rest)?;
        rest = after.get(cluster as usize..)?;
        hello.extend(&begin[..begin.len() - rest.len()]);
        hello.push(PEER.len() as u8);
        hello.extend(PEER.as_bytes());
        let (name, after) = varint(rest)?;
        hello.extend(after.get(name as usize..)?);
        Some(hello)
    }

    fn head(&self, kind: u8, length: usize) -> Vec<u8> {
        let acknowledged = if self.fault == Fault::NoAcknowledgement { 0 } else { self.acknowledged };
        let gives_none = matches!(self.fault, Fault::NoCredit | Fault::NoCreditForLargest);
        let granted = if gives_none { 0 } else { u64::MAX / 2 };
        let mut frame = vec![kind];
        let words = [self.there, self.here, self.sequence, acknowledged, granted];
        words.iter().for_each(|word| frame.extend(word.to_le_bytes()));
        frame.extend((length as u32).to_le_bytes());
        frame
    }

    fn batch(&mut self, parts: &[u8]) {
        self.sequence += 1;
        let mut frame = self.head(BATCH, HEAD + parts.len());
        frame.extend(parts);
        self.send(frame);
    }

    fn beat(&mut self) {
        if self.is_up && self.fault != Fault::Silent {
            self.send(self.head(HEARTBEAT, HEAD));
            self.counts.heartbeats.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Does what there is to do now.
    fn attack(&mut self) {
        match self.fault {
            Fault::NoCredit | Fault::NoCreditForLargest | Fault::NoAcknowledgement if self.done == 0 => {
                // A process of this peer, to which the node sends.
                let parts = self.message(1, |_| (0, 1, 1), &[]);
                self.batch(&parts);
                self.finish(1);
            }
            Fault::HalfMessages | Fault::EndlessHalves => self.send_halves(),
            Fault::NamedNodes if self.done == 0 => {
                let messages = NAMED.div_ceil(NAMED_IN_ONE);
                for frame in 0..messages.div_ceil(MESSAGES) {
                    let parts: Vec<u8> = (frame * MESSAGES..messages.min((frame + 1) * MESSAGES))
                        .flat_map(|number| {
                            let lives: Vec<u64> = (0..NAMED_IN_ONE).map(|life| number * NAMED_IN_ONE + life).collect();
                            self.message(NAMED_IN_ONE, |at| (2 + at, 1, 1), &lives)
                        })
                        .collect();
                    self.batch(&parts);
                }
                self.finish(1);
            }
            // The node is sent one after the other while it is connected.
            Fault::LargeFrames => {
                self.send(vec![BATCH; LARGE_FRAME]);
                self.finish(1);
            }
            Fault::AnnouncedNodes if self.done == 0 => {
                for number in 0..NAMED {
                    let token = format!("procession/alive/{CLUSTER}/n{number}/{number:016x}");
                    // It lasts until the session is closed.
                    let declared = self.session.liveliness().declare_token(token).wait();
                    std::mem::forget(declared);
                    self.counts.announced.fetch_add(1, Ordering::SeqCst);
                    if number % 1_000 == 0 {
                        self.beat();
                    }
                }
                self.finish(1);
            }
            _ => {}
        }
    }

    fn finish(&mut self, done: u64) {
        self.done = done;
        self.counts.attacks.fetch_add(1, Ordering::SeqCst);
    }

    /// The part of a batch that has a message: a list of PIDs, each with the index of its node, and the nodes.
    fn message(&self, count: u64, pid: impl Fn(u64) -> (u64, u64, u64), lives: &[u64]) -> Vec<u8> {
        // The head: a message of the first type, to a process of the receiver, from outside of processes.
        let mut item = vec![0, 1];
        put_varint(&mut item, self.to.slot().into());
        put_varint(&mut item, self.to.generation().into());
        item.extend([0, 0]);
        put_varint(&mut item, count);
        for at in 0..count {
            let (node, slot, generation) = pid(at);
            [node, slot, generation].into_iter().for_each(|number| put_varint(&mut item, number));
        }
        for life in lives {
            item.push(0);
            item.extend((1_000_000 + life).to_le_bytes());
            item.extend(7_u16.to_le_bytes());
        }
        item.extend((lives.len() as u16).to_le_bytes());
        item.extend([0, 0]);
        let mut part = vec![MESSAGE];
        put_varint(&mut part, item.len() as u64);
        part.extend(item);
        part
    }

    /// Sends fragments of two large messages, as far as the node grants them, and not the last ones.
    fn send_halves(&mut self) {
        let lengths = [LONGEST_ITEM, OPEN - LONGEST_ITEM];
        // All fragments but the last one of each.
        let fragments = lengths.map(|length| length.div_ceil(FRAGMENT) - 1);
        let whole = fragments.iter().sum::<u64>();
        while self.done < whole && (self.done + 1) * FRAGMENT <= self.granted {
            let (number, place) = if self.done < fragments[0] { (0, self.done) } else { (1, self.done - fragments[0]) };
            let mut part = vec![if place == 0 { LARGE_MESSAGE } else { NEXT_FRAGMENT }];
            put_varint(&mut part, number);
            if place == 0 {
                put_varint(&mut part, lengths[number as usize]);
            }
            put_varint(&mut part, FRAGMENT);
            part.resize(part.len() + FRAGMENT as usize, 7);
            self.batch(&part);
            self.done += 1;
            if self.done == whole {
                self.finish(whole);
            }
        }
        if self.fault == Fault::EndlessHalves && self.done == whole {
            let mut part = vec![LARGE_MESSAGE, 2];
            put_varint(&mut part, LONGEST_ITEM);
            put_varint(&mut part, FRAGMENT);
            part.resize(part.len() + FRAGMENT as usize, 7);
            self.batch(&part);
            self.done += 1;
        }
    }
}
