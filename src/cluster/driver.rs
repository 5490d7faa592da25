//! The driver of one peer: it carries frames and items between the node, the machine of the connection, and the link.
//!
//! It has no thread of its own. One thread calls [`PeerDriver::turn_out`], and sends the frames that it returns. One
//! thread calls [`PeerDriver::turn_in`], which runs the decoders of users. A simulation calls both in its own order.
//! [`PeerDriver::arrived`] and [`Carrier::offer`] are called by any thread, and never wait for user code.
//!
//! **One order of effects.** The machine is behind a lock. Each call to it appends its effects to one queue under this
//! lock. Only `turn_in` takes them out and carries them out, without the lock. So a message that arrived before a down
//! is delivered before it. While frames wait, the peer counts as silent only after 30 s. A decoder that takes long
//! holds up neither heartbeats nor senders.
//!
//! **Why a sender is told.** A frame that is offered while the machine is up is in the machine, which gives it back at
//! the down. A frame that is offered later is refused. The node removes the connection when the effect of the down is
//! carried out. In between, senders find a connection that refuses.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::connection::{Carrier, Connection, Item, Letter, Refused};
use super::events::{NodeIdentity, NodeWatch};
use super::guarded;
use super::lives::Life;
use super::node::{Announced, Node};
use super::peer::{self, Bound, DownReason, Effect, Identity, Payload, Peer, Refusal, Room};
use crate::clock::Clock;
use crate::outcome::{BoxError, tell_log};
use crate::primitives::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, Weak, lock};

/// The most bytes of messages that wait for a peer.
const LIMIT: usize = 8 << 20;

/// The most bytes of frames that have arrived and wait for `turn_in`. An honest peer has at most 4 MiB on the way.
const ARRIVED: usize = 16 << 20;

/// The memory that a frame takes beside its bytes, while it waits.
const OVERHEAD: usize = 64;

/// The time between two digests that a node sends to a peer. With the 250 ms of a heartbeat, a difference between
/// tables is found within 750 ms. Guarantee 34 promises 1 s.
const COMPARE: Duration = Duration::from_millis(500);

/// An entry of the directory that nodes exchange.
#[derive(Serialize, Deserialize)]
struct Directory {
    /// The number that the node wishes to have at others, which is its own.
    number: u32,
    /// Its store, with the number of that.
    store: Option<(u64, u32)>,
}

/// The token of an item is the message in it, if there is one.
type Token = Option<Letter>;

/// The driver of one peer.
pub(crate) struct PeerDriver {
    node: Weak<Node>,
    /// The name of the peer.
    name: Arc<str>,
    watch: Arc<NodeWatch>,
    clock: Clock,
    start: Instant,
    machine: Mutex<Machine>,
    nonce: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Called when `turn_in`, or `turn_out`, has something to do.
    wake: Wakes,
    /// Whether the peer was up once.
    has_been_up: AtomicBool,
    me: Weak<PeerDriver>,
}

/// Something that comes from the link.
enum Arrival {
    Frame(Vec<u8>),
    /// The connection is to be closed. The flag says that too many items that are never refused wait for the peer.
    Closed(bool),
}

impl Machine {
    /// When `turn_out` is to be called next, if nothing happens before.
    fn due(&self) -> Option<Duration> {
        let rests = !self.is_seen && self.peer.dial_at().is_some();
        self.peer.due(self.frames_wait()).filter(|_| !rests)
    }

    /// Whether a frame of the peer that was just taken wakes the out thread.
    ///
    /// It does if there is a frame to send now (an acknowledgement, or items for which there is room again), or if the
    /// machine is due before the thread wakes by itself. Most acknowledgements are sent with the next items, or when
    /// the thread wakes by itself.
    fn wakes_out(&self, now: Duration) -> bool {
        let Some(out_at) = self.out_at else { return true };
        self.peer.has_frame(now) || self.due().is_some_and(|due| due < out_at)
    }

    /// Whether frames have arrived that `turn_in` has not taken.
    fn frames_wait(&self) -> bool {
        !self.arrived.is_empty()
    }

    fn push_closed(&mut self, is_too_much: bool) {
        if !matches!(self.arrived.back(), Some(Arrival::Closed(_))) {
            self.arrived.push_back(Arrival::Closed(is_too_much));
        }
    }
}

/// The calls that wake the two threads. They never wait.
pub(crate) struct Wakes {
    pub(crate) inward: Box<dyn Fn() + Send + Sync>,
    pub(crate) outward: Box<dyn Fn() + Send + Sync>,
}

struct Machine {
    peer: Peer<Token>,
    /// Whether the link can reach the peer. Otherwise it is not dialled, and its frames are dropped.
    is_seen: bool,
    /// When the peer is to be told the digest, and asked about other nodes.
    compare_at: Duration,
    /// The moment at which the out thread calls `turn_out` next, unless it is woken. `None` while the thread sends a
    /// frame.
    out_at: Option<Duration>,
    arrived: VecDeque<Arrival>,
    /// The bytes of the frames among them.
    arrived_bytes: usize,
    /// The effects that were not carried out, with the frames of their payloads.
    effects: VecDeque<(Vec<Effect<Token>>, Vec<u8>)>,
}

/// The connection that is up, for the thread that carries out effects.
#[derive(Default)]
pub(crate) struct Inward {
    up: Option<Up>,
    /// The effects that were taken from the machine and not carried out, with the frames of their payloads. A panic
    /// leaves some behind.
    left: VecDeque<(Effects, Vec<u8>)>,
}

type Effects = Peekable<std::vec::IntoIter<Effect<Token>>>;

struct Up {
    connection: Arc<Connection>,
    peer: NodeIdentity,
}

/// The parts of a driver.
pub(crate) struct Parts {
    /// The identity of this node.
    pub(crate) here: Identity,
    /// The name of the peer.
    pub(crate) name: Arc<str>,
    pub(crate) watch: Arc<NodeWatch>,
    pub(crate) clock: Clock,
    /// The start of the time of the machine. All drivers of a node have the same, so their heartbeats are due together.
    pub(crate) start: Instant,
    /// Draws a new nonce.
    pub(crate) nonce: Box<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) wake: Wakes,
}

/// The result of a turn outward.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outward {
    /// This frame is to be sent.
    Frame,
    /// Nothing is to be sent until this moment. `None` if only an item or a frame of the peer changes that.
    Until(Option<Instant>),
}

impl PeerDriver {
    /// Makes the driver of a peer that the link does not see yet.
    pub(crate) fn new(node: Weak<Node>, parts: Parts) -> Arc<PeerDriver> {
        let Parts { here, name, watch, clock, start, nonce, wake } = parts;
        let peer = Peer::new(clock.now().saturating_duration_since(start), here, LIMIT);
        let (arrived, effects) = (VecDeque::new(), VecDeque::new());
        let machine = Mutex::new(Machine {
            peer,
            is_seen: false,
            compare_at: Duration::ZERO,
            out_at: None,
            arrived,
            arrived_bytes: 0,
            effects,
        });
        let has_been_up = AtomicBool::new(false);
        Arc::new_cyclic(|me| {
            let me = me.clone();
            PeerDriver { node, name, watch, clock, start, machine, nonce, wake, has_been_up, me }
        })
    }

    fn now(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// Calls the machine, and keeps the effects. `frame` has the payloads of the effects.
    fn call<R>(
        &self,
        frame: Vec<u8>,
        call: impl FnOnce(&mut Peer<Token>, Duration, &mut Vec<Effect<Token>>) -> R,
    ) -> R {
        let now = self.now();
        let mut effects = Vec::new();
        let mut machine = lock(&self.machine);
        let result = call(&mut machine.peer, now, &mut effects);
        self.keep(machine, effects, frame);
        result
    }

    /// Keeps the effects for `turn_in`.
    fn keep(&self, mut machine: MutexGuard<'_, Machine>, effects: Vec<Effect<Token>>, frame: Vec<u8>) {
        let has_effects = !effects.is_empty();
        if has_effects {
            machine.effects.push_back((effects, frame));
        }
        drop(machine);
        if has_effects {
            (self.wake.inward)();
        }
    }

    /// The link can reach the peer now.
    pub(crate) fn seen(&self) {
        let now = self.now();
        let machine = &mut *lock(&self.machine);
        machine.is_seen = true;
        machine.peer.found(now);
        (self.wake.outward)();
    }

    /// Takes a frame of the link.
    pub(crate) fn arrived(&self, frame: Vec<u8>) {
        let now = self.now();
        let mut machine = lock(&self.machine);
        if !machine.is_seen || machine.arrived_bytes > ARRIVED {
            return;
        }
        machine.peer.arrived(now, &frame);
        if machine.arrived.is_empty() && peer::is_beat(&frame) {
            // A heartbeat has nothing to decode, and no earlier frame waits. Only effects wake the in thread.
            let mut effects = Vec::new();
            machine.peer.receive(now, &frame, &mut effects);
            let wakes_out = machine.wakes_out(now);
            self.keep(machine, effects, frame);
            if wakes_out {
                (self.wake.outward)();
            }
            return;
        }
        machine.arrived_bytes += frame.len() + OVERHEAD;
        machine.arrived.push_back(Arrival::Frame(frame));
        if machine.arrived_bytes > ARRIVED {
            // Only a peer that does not wait for acknowledgements sends so much.
            machine.push_closed(false);
        }
        drop(machine);
        (self.wake.inward)();
    }

    /// The connection of the link to the peer has closed. All frames that came before are still taken.
    pub(crate) fn closed(&self) {
        lock(&self.machine).push_closed(false);
        (self.wake.inward)();
    }

    /// The link cannot reach the peer any more.
    pub(crate) fn gone(&self) {
        lock(&self.machine).is_seen = false;
        self.closed();
    }

    /// Whether the connection is up and of this incarnation of the peer.
    pub(crate) fn is_connected_to(&self, incarnation: u64) -> bool {
        lock(&self.machine).peer.incarnation() == Some(incarnation)
    }

    /// Whether the peer was up once.
    pub(crate) fn has_been_up(&self) -> bool {
        // Ordering: Relaxed. No other data goes with it.
        self.has_been_up.load(Ordering::Relaxed)
    }

    pub(crate) fn set_has_been_up(&self) {
        self.has_been_up.store(true, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn has_arrivals(&self) -> bool {
        !lock(&self.machine).arrived.is_empty()
    }

    /// Whether batches were sent that the peer has not acknowledged.
    pub(crate) fn has_unacknowledged(&self) -> bool {
        lock(&self.machine).peer.has_unacknowledged()
    }

    /// Whether the peer has acknowledged all that was sent to it.
    pub(crate) fn is_drained(&self) -> bool {
        lock(&self.machine).peer.is_drained()
    }

    /// Leaves the cluster. The frames that say so are left for `turn_out`.
    pub(crate) fn leave(&self) {
        self.call(Vec::new(), |peer, now, effects| peer.leave(now, effects));
        {
            // Frames mean nothing any more, and there may be no thread that takes them.
            let machine = &mut *lock(&self.machine);
            machine.is_seen = false;
            machine.arrived.clear();
            machine.arrived_bytes = 0;
        }
        (self.wake.outward)();
    }

    /// Writes the next frame for the link into a buffer, or says when to come again.
    pub(crate) fn turn_out(&self, frame: &mut Vec<u8>) -> Outward {
        let now = self.now();
        self.compare(now);
        let mut effects = Vec::new();
        let mut guard = lock(&self.machine);
        let machine = &mut *guard;
        let frames_wait = machine.frames_wait();
        let peer = &mut machine.peer;
        if machine.is_seen && peer.dial_at().is_some_and(|at| at <= now) {
            peer.dial(now, (self.nonce)());
        }
        peer.tick(now, frames_wait, &mut effects);
        let turned = if peer.next_frame(now, frame, &mut effects) {
            machine.out_at = None;
            Outward::Frame
        } else {
            let due = machine.due();
            machine.out_at = Some(due.unwrap_or(Duration::MAX));
            Outward::Until(due.map(|due| self.start + due))
        };
        self.keep(guard, effects, Vec::new());
        turned
    }

    /// Tells the peer the digest, and asks it about other nodes, if it is time. The machine wakes more often than that.
    fn compare(&self, now: Duration) {
        let peer = {
            let machine = &mut *lock(&self.machine);
            let peer = machine.peer.incarnation().filter(|_| machine.compare_at <= now);
            peer.inspect(|_| machine.compare_at = now + COMPARE)
        };
        if let (Some(peer), Some(node)) = (peer, self.node.upgrade()) {
            node.groups().compare(peer);
            node.inquire(peer);
        }
    }

    /// Takes a frame that has arrived, and carries out all effects that are there. Returns whether there was
    /// something. Only one thread may call it at a time.
    pub(crate) fn turn_in(&self, inward: &mut Inward) -> bool {
        let now = self.now();
        let mut guard = lock(&self.machine);
        let machine = &mut *guard;
        let arrived = machine.arrived.pop_front();
        let has_arrived = arrived.is_some();
        let mut effects = Vec::new();
        let mut is_overrun = false;
        match arrived {
            Some(Arrival::Frame(frame)) => {
                machine.arrived_bytes -= frame.len() + OVERHEAD;
                machine.peer.receive(now, &frame, &mut effects);
                machine.effects.push_back((effects, frame));
            }
            Some(Arrival::Closed(is_too_much)) => {
                is_overrun = is_too_much;
                machine.peer.close(now, &mut effects);
                machine.effects.push_back((effects, Vec::new()));
            }
            None => {}
        }
        let effects = std::mem::take(&mut machine.effects);
        let wakes_out = has_arrived && machine.wakes_out(now);
        let has_batch = wakes_out && machine.peer.has_batch();
        drop(guard);
        if has_batch {
            // The batch does not wait for decoders.
            (self.wake.outward)();
        }
        if is_overrun {
            tell_log(|| tracing::warn!(peer = &*self.name, "too much waits for a node: its connection is closed"));
        }
        inward.left.extend(effects.into_iter().map(|(effects, frame)| (effects.into_iter().peekable(), frame)));
        let is_idle = !has_arrived && inward.left.is_empty();
        self.carry_out(inward);
        if wakes_out && !has_batch {
            // An acknowledgement may go with an answer.
            (self.wake.outward)();
        }
        !is_idle
    }

    /// Carries the effects out. Each is taken out of the list before. So if one panics, the next turn has the rest.
    fn carry_out(&self, inward: &mut Inward) {
        let Inward { up, left } = inward;
        while let Some((effects, frame)) = left.front_mut() {
            let Some(effect) = effects.next() else {
                left.pop_front();
                continue;
            };
            match effect {
                Effect::Greeted(_) => self.greet(),
                Effect::Up { peer, protocol, nonce, types, directory } => {
                    self.up((&peer, protocol), nonce, (&types, &directory), up);
                }
                Effect::Deliver { payload, .. } => self.deliver(&payload, frame, up),
                Effect::Down(reason) => {
                    let mut letters = Vec::new();
                    while let Some(Effect::Undelivered(letter)) = effects.peek() {
                        letters.extend(letter.clone());
                        effects.next();
                    }
                    self.down(reason, letters, up);
                }
                Effect::Refused(refusal) => {
                    tell_log(|| tracing::warn!(peer = &*self.name, %refusal, "a connection was refused"));
                    self.watch.refused(&self.name, &refusal);
                }
                Effect::Room(bound) => {
                    if let (Some(node), Some(up)) = (self.node.upgrade(), up.as_ref()) {
                        node.has_room(&up.connection, bound);
                    }
                }
                Effect::Undelivered(_) => {}
            }
        }
    }

    /// Answers a peer that has said who it is.
    fn greet(&self) {
        let Some(node) = self.node.upgrade() else { return };
        let ours = || -> Result<_, BoxError> {
            Ok((node.list()?, postcard::to_stdvec(&Directory { number: node.number(), store: node.store() })?))
        };
        match ours() {
            Ok((types, directory)) => {
                self.call(Vec::new(), |peer, now, effects| _ = peer.accept(now, types, directory, effects));
                (self.wake.outward)();
            }
            Err(error) => self.refuse(&*error),
        }
    }

    fn up(
        &self,
        (peer, protocol): (&Identity, u16),
        nonce: u64,
        (types, directory): (&[u8], &[u8]),
        slot: &mut Option<Up>,
    ) {
        let (Some(node), Some(me)) = (self.node.upgrade(), self.me.upgrade()) else { return };
        let up = guarded::decode::<Directory>(directory).map_err(BoxError::from).and_then(|directory| {
            let life = (Life::Node(peer.incarnation), directory.number);
            node.up(
                Announced { name: self.name.clone(), life, store: directory.store, protocol },
                types,
                Arc::new(Lane { driver: me, nonce }),
            )
        });
        match up {
            Ok(connection) => {
                let peer = NodeIdentity::new(&self.name, peer.incarnation);
                tell_log(|| tracing::info!(%peer, protocol = connection.protocol(), "a node is up"));
                self.set_has_been_up();
                self.watch.up(&peer);
                *slot = Some(Up { connection, peer });
            }
            Err(error) => self.refuse(&*error),
        }
    }

    fn deliver(&self, payload: &Payload, frame: &[u8], up: &Option<Up>) {
        let Some(Up { connection, .. }) = up else { return };
        if let Err(error) = connection.receive(payload.bytes(frame)) {
            self.refuse(&error);
        }
    }

    fn down(&self, reason: DownReason, letters: Vec<Letter>, up: &mut Option<Up>) {
        let Some(Up { connection, peer }) = up.take() else { return };
        tell_log(|| tracing::info!(%peer, ?reason, unconfirmed = letters.len(), "a node is down"));
        if let Some(node) = self.node.upgrade() {
            node.down(&connection, letters);
        }
        self.watch.down(&peer, reason);
    }

    /// Ends the connection, because the peer has sent something that this node does not understand.
    fn refuse(&self, error: &dyn std::error::Error) {
        let refusal = Refusal::other(error);
        self.call(Vec::new(), |peer, now, effects| _ = peer.refuse(now, refusal, effects));
        (self.wake.outward)();
    }
}

/// The carrier of one up. A thread may hold the connection of an earlier up, whose frames mean nothing in a later one.
struct Lane {
    driver: Arc<PeerDriver>,
    nonce: u64,
}

impl Carrier for Lane {
    fn offer(&self, item: Item) -> Result<(), Refused> {
        self.driver.offer(self.nonce, item)
    }

    fn room(&self) -> Room {
        let machine = &mut *lock(&self.driver.machine);
        if machine.peer.up() == Some(self.nonce) { machine.peer.room() } else { Room::Down }
    }

    fn has_room_for(&self, bound: Bound) -> bool {
        let machine = &mut *lock(&self.driver.machine);
        machine.peer.up() != Some(self.nonce) || machine.peer.has_room_for(bound)
    }

    fn needed_by(&self, sender: Option<u64>) -> Bound {
        lock(&self.driver.machine).peer.needed_by(sender)
    }
}

impl PeerDriver {
    /// Takes a frame for the up with this nonce.
    fn offer(&self, nonce: u64, item: Item) -> Result<(), Refused> {
        let Item { bytes, sender, letter, class } = item;
        let item = peer::Item { sender, token: letter, payload: bytes };
        let offered = {
            let machine = &mut *lock(&self.machine);
            if machine.peer.up() != Some(nonce) {
                return Err(Refused::Down);
            }
            let offered = machine.peer.offer(class, item);
            if matches!(offered, Err(peer::NotOffered::TooMuch(_))) {
                machine.push_closed(true);
            }
            offered
        };
        match offered {
            Ok(()) => {
                (self.wake.outward)();
                Ok(())
            }
            Err(peer::NotOffered::Busy(_)) => Err(Refused::Busy),
            Err(peer::NotOffered::TooMuch(_)) => {
                (self.wake.inward)();
                Err(Refused::Down)
            }
            // The encoder has the same limit.
            Err(peer::NotOffered::NotUp(_) | peer::NotOffered::TooLarge(_)) => Err(Refused::Down),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
