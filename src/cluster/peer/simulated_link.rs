//! Two machines over a simulated link, and a checker of what they promise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::random::{below, random_at};

use super::frame::LONGEST_FRAME;
use super::*;

pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Random numbers of one seed.
pub(super) struct Dice {
    seed: u64,
    position: u64,
}

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice { seed, position: 0 }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.position += 1;
        random_at(self.seed, 0, self.position)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        below(bound, || self.next())
    }

    /// Whether something happens that happens once in `count` times. Never for zero.
    pub(super) fn once_in(&mut self, count: u64) -> bool {
        count > 0 && self.below(count) == 0
    }
}

/// The faults of the link: each fault happens once in so many frames, and never for zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    pub(super) delay: Duration,
    pub(super) jitter: Duration,
    pub(super) lose: u64,
    pub(super) repeat: u64,
    /// A copy that arrives up to 30 s later.
    pub(super) late: u64,
    pub(super) tear: u64,
}

/// The fate of a frame on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    Lost,
    Doubled,
}

/// A fault of the link that a test chooses: the sender of a frame, the frame, and its fate.
type Spoil = dyn FnMut(usize, &mut Vec<u8>) -> Fate;

/// An item as its payload says: the connection, the sender, and its number among those of the sender there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    connection: (u64, u64),
    sender: u64,
    number: u64,
    token: u64,
}

fn payload_of(mark: Mark, length: usize) -> Vec<u8> {
    let words = [mark.connection.0, mark.connection.1, mark.sender, mark.number, mark.token, length as u64];
    let mut payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    payload.resize(length.max(48), mark.token as u8);
    payload
}

fn mark_of(payload: &[u8]) -> Mark {
    let word = |place: usize| u64::from_le_bytes(payload[place * 8..place * 8 + 8].try_into().unwrap());
    let mark = Mark { connection: (word(0), word(1)), sender: word(2), number: word(3), token: word(4) };
    assert_eq!(payload.len() as u64, word(5).max(48), "the length of {mark:?}");
    assert!(payload[48..].iter().step_by(97).all(|byte| *byte == mark.token as u8), "the bytes of {mark:?}");
    mark
}

pub(super) struct Node {
    pub(super) peer: Peer,
    nonce: u64,
    /// The nonces of both sides, ours first, while the connection is up.
    connection: Option<(u64, u64)>,
    pub(super) paused_until: Duration,
    /// How long a frame waits between its arrival and its decoding.
    pub(super) decoding: Duration,
    arrived: VecDeque<(Duration, Vec<u8>)>,
    /// How many items of each sender were accepted on this connection.
    numbers: BTreeMap<u64, u64>,
    /// How many items of each sender of the peer were delivered on this connection.
    delivered_numbers: BTreeMap<u64, u64>,
    accepted: BTreeMap<u64, Mark>,
    undelivered: BTreeSet<u64>,
    /// The tokens of the peer's items.
    pub(super) delivered: BTreeSet<u64>,
    told: Vec<u64>,
    /// All tokens of `delivered`, and of `undelivered`, in their order.
    pub(super) order: Vec<u64>,
    pub(super) told_order: Vec<u64>,
    pub(super) ups: usize,
    pub(super) downs: Vec<(Duration, DownReason)>,
    pub(super) refusals: Vec<(Duration, Refusal)>,
    pub(super) rooms: usize,
    pub(super) hellos: Vec<Duration>,
}

impl Node {
    fn new(now: Duration, identity: Identity, limit: usize) -> Node {
        Node {
            peer: Peer::new(now, identity, limit),
            nonce: 0,
            connection: None,
            paused_until: now,
            decoding: Duration::ZERO,
            arrived: VecDeque::new(),
            numbers: BTreeMap::new(),
            delivered_numbers: BTreeMap::new(),
            accepted: BTreeMap::new(),
            undelivered: BTreeSet::new(),
            delivered: BTreeSet::new(),
            told: Vec::new(),
            order: Vec::new(),
            told_order: Vec::new(),
            ups: 0,
            downs: Vec::new(),
            refusals: Vec::new(),
            rooms: 0,
            hellos: Vec::new(),
        }
    }

    fn effect(&mut self, now: Duration, effect: Effect, frame: &[u8]) -> Vec<Effect> {
        let mut effects = Vec::new();
        match effect {
            Effect::Greeted(_) => {
                let nonce = self.nonce.to_le_bytes().to_vec();
                assert!(self.peer.accept(now, b"types".to_vec(), nonce, &mut effects));
            }
            Effect::Refused(refusal) => self.refusals.push((now, *refusal)),
            Effect::Up { types, directory, .. } => {
                assert_eq!(self.ups, self.downs.len(), "two ups without a down between them");
                assert_eq!(types, b"types");
                let there = u64::from_le_bytes(directory.try_into().unwrap());
                self.connection = Some((self.nonce, there));
                self.ups += 1;
                (self.numbers, self.delivered_numbers) = Default::default();
                self.told.clear();
            }
            Effect::Deliver { payload, class } => {
                let mark = mark_of(payload.bytes(frame));
                let (here, there) = self.connection.expect("an item without an up");
                assert_eq!(mark.connection, (there, here), "an item of another connection");
                assert!(self.delivered.insert(mark.token), "{mark:?} was delivered twice");
                self.order.push(mark.token);
                // Control items from outside have no order.
                if mark.sender != 0 || class == Class::Message {
                    let next = self.delivered_numbers.entry(mark.sender).or_default();
                    assert_eq!(mark.number, *next, "{mark:?} is out of order");
                    *next += 1;
                }
            }
            Effect::Down(reason) => {
                assert_eq!(self.ups, self.downs.len() + 1, "a down without an up");
                assert!(self.connection.take().is_some());
                self.downs.push((now, reason));
            }
            Effect::Undelivered(token) => {
                assert!(self.connection.is_none(), "told while the connection is up");
                assert!(self.accepted.contains_key(&token), "{token} was never accepted");
                assert!(self.undelivered.insert(token), "{token} was told twice");
                self.told.push(token);
                self.told_order.push(token);
            }
            Effect::Room(_) => self.rooms += 1,
        }
        effects
    }
}

/// Two nodes and the link between them.
pub(super) struct World {
    pub(super) now: Duration,
    pub(super) dice: Dice,
    pub(super) weather: Weather,
    pub(super) nodes: [Node; 2],
    /// Whether frames of this node are lost.
    pub(super) cut: [bool; 2],
    /// Frames on their way to this node, by their time of arrival and number.
    wires: [BTreeMap<(Duration, u64), Vec<u8>>; 2],
    last_arrival: [Duration; 2],
    frames: u64,
    tokens: u64,
    /// Called for each frame on its way, with its sender. It may change the frame, and says what becomes of it.
    pub(super) spoil: Box<Spoil>,
    /// The frames that each node has sent, while they are kept.
    pub(super) sent: [Vec<Vec<u8>>; 2],
    pub(super) keeps_frames: bool,
}

pub(super) fn identity(name: &str, incarnation: u64) -> Identity {
    Identity {
        cluster: String::from("test"),
        name: String::from(name),
        incarnation,
        protocols: spoken(PROTOCOL),
        voters: vec![String::from("a"), String::from("b")],
        detection_time: Duration::from_millis(1500),
    }
}

impl World {
    pub(super) fn new(seed: u64, weather: Weather) -> World {
        World::of(seed, weather, [identity("a", 1), identity("b", 2)], 8 << 20)
    }

    pub(super) fn of(seed: u64, weather: Weather, identities: [Identity; 2], limit: usize) -> World {
        World {
            now: SECOND,
            dice: Dice::new(seed),
            weather,
            nodes: identities.map(|identity| Node::new(SECOND, identity, limit)),
            cut: [false; 2],
            wires: Default::default(),
            last_arrival: [Duration::ZERO; 2],
            frames: 0,
            tokens: 0,
            spoil: Box::new(|_, _| Fate::Arrives),
            sent: Default::default(),
            keeps_frames: false,
        }
    }

    /// Two nodes that are connected by a link without faults.
    pub(super) fn up(seed: u64) -> World {
        let mut world = World::new(seed, Weather { delay: MILLISECOND, ..Weather::default() });
        world.run_for(SECOND);
        assert!(world.are_up());
        world
    }

    pub(super) fn are_up(&self) -> bool {
        self.nodes.iter().all(|node| node.peer.is_up())
    }

    /// Replaces a node by one of another incarnation.
    pub(super) fn restart(&mut self, who: usize, identity: Identity) {
        let delivered = std::mem::take(&mut self.nodes[who].delivered);
        self.nodes[who] = Node::new(self.now, identity, 8 << 20);
        self.nodes[who].delivered = delivered;
    }

    /// Offers an item. Returns its token if it was accepted.
    pub(super) fn offer(&mut self, who: usize, class: Class, sender: u64, length: usize) -> Option<u64> {
        self.tokens += 1;
        let token = self.tokens;
        let node = &mut self.nodes[who];
        let connection = node.connection.unwrap_or_default();
        let is_ordered = sender != 0 || class == Class::Message;
        let number = if is_ordered { node.numbers.get(&sender).copied().unwrap_or_default() } else { 0 };
        let mark = Mark { connection, sender, number, token };
        let item = Item { sender, token, payload: payload_of(mark, length) };
        match node.peer.offer(class, item) {
            Ok(()) => {
                if is_ordered {
                    *node.numbers.entry(sender).or_default() += 1;
                }
                node.accepted.insert(token, mark);
                Some(token)
            }
            Err(
                NotOffered::Busy(item)
                | NotOffered::NotUp(item)
                | NotOffered::TooLarge(item)
                | NotOffered::TooMuch(item),
            ) => {
                assert_eq!(item.token, token);
                None
            }
        }
    }

    /// Lets a frame of this node go on its way.
    pub(super) fn send(&mut self, from: usize, mut frame: Vec<u8>) {
        assert!(frame.len() <= LONGEST_FRAME, "{} bytes", frame.len());
        let to = 1 - from;
        let Weather { delay, jitter, lose, repeat, late, tear } = self.weather;
        if self.keeps_frames {
            self.sent[from].push(frame.clone());
        }
        let fate = (self.spoil)(from, &mut frame);
        if fate == Fate::Lost || self.cut[from] || self.dice.once_in(lose) {
            return;
        }
        if self.dice.once_in(tear) {
            frame.truncate(self.dice.below(frame.len() as u64) as usize);
        }
        let jitter = Duration::from_micros(self.dice.below(jitter.as_micros() as u64 + 1));
        let at = (self.now + delay + jitter).max(self.last_arrival[to]);
        self.last_arrival[to] = at;
        if fate == Fate::Doubled || self.dice.once_in(repeat) {
            self.put(to, at, frame.clone());
        }
        if self.dice.once_in(late) {
            let late = Duration::from_millis(self.dice.below(30_000));
            self.put(to, at + late, frame.clone());
        }
        self.put(to, at, frame);
    }

    /// How many bytes are on their way to a node.
    pub(super) fn bytes_to(&self, to: usize) -> usize {
        self.wires[to].values().map(Vec::len).sum()
    }

    /// Takes all frames off that are on their way to a node.
    pub(super) fn take_wire(&mut self, to: usize) -> BTreeMap<(Duration, u64), Vec<u8>> {
        std::mem::take(&mut self.wires[to])
    }

    /// Lets a frame arrive at a node at a time.
    pub(super) fn put(&mut self, to: usize, at: Duration, frame: Vec<u8>) {
        self.frames += 1;
        assert!(self.frames < 200_000, "the nodes answer each other for ever");
        self.wires[to].insert((at, self.frames), frame);
    }

    /// Lets a node do all that it can do now.
    pub(super) fn turn(&mut self, who: usize) {
        let now = self.now;
        if self.nodes[who].paused_until > now {
            return;
        }
        while let Some(entry) = self.wires[who].first_entry().filter(|entry| entry.key().0 <= now) {
            let frame = entry.remove();
            let node = &mut self.nodes[who];
            node.peer.arrived(now, &frame);
            node.arrived.push_back((now + node.decoding, frame));
        }
        while let Some((_, frame)) = self.nodes[who].arrived.pop_front_if(|(at, _)| *at <= now) {
            let mut effects = Vec::new();
            self.nodes[who].peer.receive(now, &frame, &mut effects);
            self.effects(who, effects, &frame);
        }
        let mut effects = Vec::new();
        let frames_wait = !self.nodes[who].arrived.is_empty();
        self.nodes[who].peer.tick(now, frames_wait, &mut effects);
        self.effects(who, effects, &[]);
        if self.nodes[who].peer.dial_at().is_some_and(|at| at <= now) {
            let nonce = self.dice.next().max(1);
            let node = &mut self.nodes[who];
            node.nonce = nonce;
            node.hellos.push(now);
            assert!(node.peer.dial(now, nonce));
        }
        let mut frame = Vec::new();
        let mut effects = Vec::new();
        while self.nodes[who].peer.next_frame(now, &mut frame, &mut effects) {
            self.send(who, frame.clone());
        }
        self.effects(who, effects, &[]);
    }

    /// Carries effects out, and checks the order of the tokens that were told.
    pub(super) fn effects(&mut self, who: usize, effects: Vec<Effect>, frame: &[u8]) {
        for effect in effects {
            let more = self.nodes[who].effect(self.now, effect, frame);
            self.effects(who, more, frame);
        }
        let told = std::mem::take(&mut self.nodes[who].told);
        let mut last = BTreeMap::new();
        for mark in told.iter().map(|token| self.nodes[who].accepted[token]) {
            let before = last.insert(mark.sender, mark.number);
            let is_in_order = mark.sender == 0 || before.is_none_or(|before| before < mark.number);
            assert!(is_in_order, "{mark:?} was told after {before:?}");
        }
    }

    /// Moves to the next time at which something happens, or to the limit.
    pub(super) fn step(&mut self, limit: Duration) {
        (0..2).for_each(|who| self.turn(who));
        let mut next = limit;
        for (node, wire) in self.nodes.iter().zip(&self.wires) {
            let arrival = wire.first_key_value().map(|((at, _), _)| *at);
            let decoding = node.arrived.front().map(|(at, _)| *at);
            let due = [arrival, decoding, node.peer.due(!node.arrived.is_empty())]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(limit);
            next = next.min(due.max(node.paused_until));
        }
        self.now = next.max(self.now + Duration::from_micros(1)).min(limit.max(self.now));
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let limit = self.now + time;
        while self.now < limit {
            self.step(limit);
        }
    }

    /// Checks that each item that was accepted was delivered or told. Nothing may be on its way.
    pub(super) fn check_accounts(&self) {
        for who in 0..2 {
            let (here, there) = (&self.nodes[who], &self.nodes[1 - who]);
            for (token, mark) in &here.accepted {
                let is_told = here.undelivered.contains(token);
                assert!(is_told || there.delivered.contains(token), "{mark:?} is lost in silence");
            }
        }
    }

    /// How many items were both delivered and told, because they were in doubt.
    pub(super) fn in_doubt(&self) -> usize {
        let doubts = |who: usize| self.nodes[who].undelivered.intersection(&self.nodes[1 - who].delivered).count();
        doubts(0) + doubts(1)
    }
}
