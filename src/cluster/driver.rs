//! The driver of one peer: it carries frames and items between the node, the machine of the connection, and the link.
//!
//! It has no thread of its own. One thread calls [`PeerDriver::turn_out`], and sends the frames that it returns. One
//! thread calls [`PeerDriver::turn_in`], which runs the decoders of users. A simulation calls both in its own order.
//! [`PeerDriver::arrived`] and [`Carrier::offer`] are called by any thread, and never wait for user code.
//!
//! **One order of effects.** The machine is behind a lock. Each call to it appends its effects to one queue under this
//! lock. Only `turn_in` takes them out and carries them out, without the lock. So a message that arrived before a down
//! is delivered before it, even if another thread has found that the peer is silent. A decoder that takes long holds up
//! neither heartbeats nor senders.
//!
//! **Why a sender is told.** A frame that is offered while the machine is up is in the machine, which gives it back at
//! the down. A frame that is offered later is refused. The node removes the connection when the effect of the down is
//! carried out. In between, senders find a connection that refuses.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::connection::{Carrier, Connection, Item, Letter, Refused};
use super::guarded;
use super::lives::Life;
use super::node::Node;
use super::peer::{self, Class, DownReason, Effect, Identity, Payload, Peer, Refusal};
use crate::clock::Clock;
use crate::outcome::{BoxError, tell_log};
use crate::primitives::{Arc, Mutex, Weak, lock};

/// The most bytes of messages that wait for a peer.
const LIMIT: usize = 8 << 20;

/// An entry of the directory that nodes exchange.
#[derive(Serialize, Deserialize)]
struct Directory {
    /// The number that the node wishes to have at others, which is its own.
    number: u32,
}

/// The token of an item is the message in it, if there is one.
type Token = Option<Letter>;

/// The driver of one peer.
pub(crate) struct PeerDriver {
    node: Weak<Node>,
    clock: Clock,
    start: Instant,
    machine: Mutex<Machine>,
    /// Draws a new nonce.
    nonce: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Called when `turn_in`, or `turn_out`, has something to do.
    wake: Wakes,
    me: Weak<PeerDriver>,
}

/// The calls that wake the two threads. They never wait.
pub(crate) struct Wakes {
    pub(crate) inward: Box<dyn Fn() + Send + Sync>,
    pub(crate) outward: Box<dyn Fn() + Send + Sync>,
}

struct Machine {
    peer: Peer<Token>,
    arrived: VecDeque<Vec<u8>>,
    /// The effects that were not carried out, with the frames of their payloads.
    effects: VecDeque<(Vec<Effect<Token>>, Vec<u8>)>,
}

/// The connection that is up, for the thread that carries out effects.
#[derive(Default)]
pub(crate) struct Inward {
    up: Option<(u32, Arc<Connection>)>,
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
    pub(crate) fn new(
        node: &Arc<Node>,
        identity: Identity,
        clock: Clock,
        nonce: impl Fn() -> u64 + Send + Sync + 'static,
        wake: Wakes,
    ) -> Arc<PeerDriver> {
        let start = clock.now();
        let peer = Peer::new(Duration::ZERO, identity, LIMIT);
        let machine = Machine { peer, arrived: VecDeque::new(), effects: VecDeque::new() };
        Arc::new_cyclic(|me| PeerDriver {
            node: Arc::downgrade(node),
            clock,
            start,
            machine: Mutex::new(machine),
            nonce: Box::new(nonce),
            wake,
            me: me.clone(),
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
        let has_effects = !effects.is_empty();
        if has_effects {
            machine.effects.push_back((effects, frame));
        }
        drop(machine);
        if has_effects {
            (self.wake.inward)();
        }
        result
    }

    /// Takes a frame of the link.
    pub(crate) fn arrived(&self, frame: Vec<u8>) {
        let now = self.now();
        let mut machine = lock(&self.machine);
        machine.peer.arrived(now, &frame);
        machine.arrived.push_back(frame);
        drop(machine);
        (self.wake.inward)();
    }

    /// The link to the peer has closed.
    pub(crate) fn closed(&self) {
        self.call(Vec::new(), |peer, now, effects| peer.close(now, effects));
    }

    /// Leaves the cluster. The frames that say so are left for `turn_out`.
    pub(crate) fn leave(&self) {
        self.call(Vec::new(), |peer, now, effects| peer.leave(now, effects));
        (self.wake.outward)();
    }

    /// Writes the next frame for the link into a buffer, or says when to come again.
    pub(crate) fn turn_out(&self, frame: &mut Vec<u8>) -> Outward {
        self.call(Vec::new(), |peer, now, effects| {
            if peer.dial_at().is_some_and(|at| at <= now) {
                peer.dial(now, (self.nonce)());
            }
            peer.tick(now, effects);
            if peer.next_frame(now, frame, effects) {
                return Outward::Frame;
            }
            Outward::Until(peer.due().map(|due| self.start + due))
        })
    }

    /// Takes a frame that has arrived, and carries out all effects that are there. Returns whether there was
    /// something. Only one thread may call it at a time.
    pub(crate) fn turn_in(&self, inward: &mut Inward) -> bool {
        let now = self.now();
        let mut machine = lock(&self.machine);
        let arrived = machine.arrived.pop_front();
        let has_arrived = arrived.is_some();
        if let Some(frame) = arrived {
            let mut effects = Vec::new();
            machine.peer.receive(now, &frame, &mut effects);
            machine.effects.push_back((effects, frame));
        }
        let effects = std::mem::take(&mut machine.effects);
        drop(machine);
        let is_idle = !has_arrived && effects.is_empty();
        for (effects, frame) in effects {
            self.carry_out(effects, &frame, inward);
        }
        if has_arrived {
            // There may be an acknowledgement to send, or room for what waits.
            (self.wake.outward)();
        }
        !is_idle
    }

    fn carry_out(&self, effects: Vec<Effect<Token>>, frame: &[u8], inward: &mut Inward) {
        let mut effects = effects.into_iter().peekable();
        while let Some(effect) = effects.next() {
            match effect {
                Effect::Greeted(_) => self.greet(),
                Effect::Up { peer, types, directory, .. } => self.up(&peer, &types, &directory, inward),
                Effect::Deliver { payload, .. } => self.deliver(&payload, frame, inward),
                Effect::Down(reason) => {
                    let mut letters = Vec::new();
                    while let Some(Effect::Undelivered(letter)) = effects.peek() {
                        letters.extend(*letter);
                        effects.next();
                    }
                    self.down(reason, letters, inward);
                }
                Effect::Refused(refusal) => tell_log(|| tracing::warn!(%refusal, "a connection was refused")),
                // Senders try again by themselves.
                Effect::Undelivered(_) | Effect::Room => {}
            }
        }
    }

    /// Answers a peer that has said who it is.
    fn greet(&self) {
        let Some(node) = self.node.upgrade() else { return };
        let ours = || -> Result<_, BoxError> {
            Ok((node.list()?, postcard::to_stdvec(&Directory { number: node.number() })?))
        };
        match ours() {
            Ok((types, directory)) => {
                self.call(Vec::new(), |peer, now, effects| _ = peer.accept(now, types, directory, effects));
                (self.wake.outward)();
            }
            Err(error) => self.refuse(&*error),
        }
    }

    fn up(&self, peer: &Identity, types: &[u8], directory: &[u8], inward: &mut Inward) {
        let (Some(node), Some(me)) = (self.node.upgrade(), self.me.upgrade()) else { return };
        let up = guarded::decode::<Directory>(directory).map_err(BoxError::from).and_then(|directory| {
            let life = (Life::Node(peer.incarnation), directory.number);
            node.up(life, types, me as Arc<dyn Carrier>)
        });
        match up {
            Ok(up) => inward.up = Some(up),
            Err(error) => self.refuse(&*error),
        }
    }

    fn deliver(&self, payload: &Payload, frame: &[u8], inward: &mut Inward) {
        let Some((_, connection)) = &inward.up else { return };
        if let Err(error) = connection.receive(payload.bytes(frame)) {
            self.refuse(&error);
        }
    }

    fn down(&self, reason: DownReason, letters: Vec<Letter>, inward: &mut Inward) {
        let up = inward.up.take();
        if let (Some((number, connection)), Some(node)) = (up, self.node.upgrade()) {
            tell_log(|| tracing::info!(?reason, unconfirmed = letters.len(), "a node is down"));
            node.down((number, &connection), letters);
        }
    }

    /// Ends the connection, because the peer has sent something that this node does not understand.
    fn refuse(&self, error: &dyn std::error::Error) {
        let refusal = Refusal::other(error);
        self.call(Vec::new(), |peer, now, effects| _ = peer.refuse(now, refusal, effects));
        (self.wake.outward)();
    }
}

impl Carrier for PeerDriver {
    fn offer(&self, item: Item) -> Result<(), Refused> {
        let Item { bytes, sender, letter } = item;
        let class = if letter.is_some() { Class::Message } else { Class::Answer };
        let item = peer::Item { sender, token: letter, payload: bytes };
        let offered = lock(&self.machine).peer.offer(class, item);
        match offered {
            Ok(()) => {
                (self.wake.outward)();
                Ok(())
            }
            Err(peer::NotOffered::Busy(_)) => Err(Refused::Busy),
            // The encoder has the same limit.
            Err(peer::NotOffered::NotUp(_) | peer::NotOffered::TooLarge(_)) => Err(Refused::Down),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
