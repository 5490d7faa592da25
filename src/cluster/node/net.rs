//! The nodes of one program. A test carries each frame between them, in any order that keeps that of each sender.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Announced, Node};
use crate::cluster::connection::{Carrier, Connection, Item, Letter, Refused};
use crate::cluster::lives::{Life, Lives};
use crate::cluster::peer::{Bound, Class, PROTOCOL, Room};
use crate::cluster::peer_limits::PeerLimits;
use crate::cluster::wire::Wire;
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::propagation::Propagator;
use crate::process::{Event, Events, Process, Reply, SpawnOptions, Spawned, Step, StepOutput, StepResult, Upgrade};
use crate::runtime::{Handle, Runtime, RuntimeBuilder};
use crate::wait::until;

pub(super) type Job = Box<dyn FnOnce(&mut StepOutput) -> StepResult<()> + Send>;

/// A message of the test. All but jobs travel.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    Note(u64),
    Text(String),
    /// Is never answered.
    Keep(Reply<u64>),
    #[serde(skip)]
    Do(Job),
}

crate::remote!(Order, "test::Order", 1);

/// Items with more bytes than this are large.
const LARGE: usize = 32 << 10;

pub(super) type Seen = Arc<Mutex<Vec<String>>>;

/// Does what it is told, and notes its events.
pub(super) struct Actor {
    pub(super) seen: Seen,
    pub(super) recovers: bool,
    pub(super) kept: Vec<Reply<u64>>,
}

impl Process for Actor {
    type Message = Order;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Order>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let seen = match event {
                Event::Message(Order::Do(job)) => match job(out)? {
                    Step::Done(()) => return Ok(Step::Done(())),
                    _ => continue,
                },
                Event::Message(Order::Keep(reply)) => {
                    self.kept.push(reply);
                    continue;
                }
                Event::Message(Order::Note(number)) => format!("note {number}"),
                Event::Message(Order::Text(text)) => format!("text of {}", text.len()),
                Event::Down(down) => format!("down {}", down.exit),
                Event::Exit(exit) => format!("exit {}", exit.exit),
                Event::Recovered(recovered) => format!("recovered {}", recovered.exit),
                Event::Cancel(request) => format!("cancel {}", request.reason),
                Event::Completed(done) => {
                    let mut text = String::new();
                    done.look(&mut |answer| {
                        text = match answer {
                            Ok(answer) => match answer.downcast_ref::<Spawned<Order>>() {
                                Some(spawned) if spawned.monitor.is_some() => "started and monitored".into(),
                                Some(_) => "started".into(),
                                None => format!("lived {:?}", answer.downcast_ref::<bool>()),
                            },
                            Err(why) => format!("answer {why}"),
                        }
                    });
                    text
                }
                _ => "another event".into(),
            };
            lock(&self.seen).push(seen);
        }
        Ok(Step::Idle)
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovers.then(|| Upgrade::to(Actor { seen: self.seen.clone(), recovers: true, kept: Vec::new() }))
    }
}

/// One direction of a connection.
#[derive(Default)]
pub(super) struct Wires {
    pub(super) items: Mutex<Vec<Item>>,
    pub(super) is_cut: Mutex<bool>,
    /// Whether there is no room for messages.
    pub(super) is_full: Mutex<bool>,
    /// Whether a node without room takes no messages of processes that are held either.
    pub(super) is_full_for_all: Mutex<bool>,
    /// How many messages there is room for, if not for any number.
    pub(super) room: Mutex<Option<u32>>,
    /// Whether there is no room for large messages.
    pub(super) is_full_for_large: Mutex<bool>,
}

impl Carrier for Wires {
    fn offer(&self, item: Item) -> Result<(), Refused> {
        if *lock(&self.is_cut) {
            return Err(Refused::Down);
        }
        if matches!(item.class, Class::Message | Class::Answer) {
            if self.room() < Room::Small {
                return Err(Refused::Busy);
            }
            lock(&self.room).iter_mut().for_each(|room| *room -= 1);
        }
        if matches!(item.class, Class::Held | Class::HeldAnswer) && self.room() < Room::Held {
            return Err(Refused::Busy);
        }
        lock(&self.items).push(item);
        Ok(())
    }

    fn room(&self) -> Room {
        if *lock(&self.is_cut) {
            return Room::Down;
        }
        let is_full = *lock(&self.is_full) || *lock(&self.room) == Some(0);
        match is_full {
            true if *lock(&self.is_full_for_all) => Room::None,
            true => Room::Held,
            false if *lock(&self.is_full_for_large) => Room::Small,
            false => Room::All,
        }
    }

    fn has_room_for(&self, bound: Bound) -> bool {
        match self.room() {
            Room::Down | Room::All => true,
            Room::Small => bound != Bound::Large,
            Room::None | Room::Held => false,
        }
    }

    fn needed_by(&self, sender: Option<u64>) -> Bound {
        let items = lock(&self.items);
        let last = items.iter().rev().find(|item| Some(item.sender) == sender);
        if last.is_some_and(|item| item.bytes.len() > LARGE) { Bound::Large } else { Bound::Small }
    }
}

pub(super) struct End {
    pub(super) wires: Arc<Wires>,
    pub(super) number: u32,
    pub(super) connection: Arc<Connection>,
}

/// Nodes, each connected to each.
pub(super) struct Net {
    pub(super) sides: Vec<(Runtime, Arc<Node>)>,
    /// By the node that has it, and the other one.
    pub(super) ends: BTreeMap<(usize, usize), End>,
}

pub(super) struct Local {
    pub(super) at: usize,
    pub(super) handle: Handle<Actor>,
    pub(super) seen: Seen,
}

impl Net {
    pub(super) fn new(count: usize) -> Net {
        Net::with(count, |wire| wire)
    }

    /// Nodes with more types.
    pub(super) fn with(count: usize, more: impl Fn(Wire) -> Wire) -> Net {
        Net::with_limits(count, more, PeerLimits::default)
    }

    /// Nodes with more types, and with these limits of monitors and links.
    pub(super) fn with_limits(count: usize, more: impl Fn(Wire) -> Wire, limits: impl Fn() -> PeerLimits) -> Net {
        Net::built(count, more, limits, |builder| builder)
    }

    /// Two nodes with this propagator.
    pub(super) fn traced(propagator: impl Propagator + Clone) -> Net {
        let build = |builder: RuntimeBuilder| builder.propagate(propagator.clone());
        Net::built(2, |wire| wire, PeerLimits::default, build)
    }

    fn built(
        count: usize,
        more: impl Fn(Wire) -> Wire,
        limits: impl Fn() -> PeerLimits,
        build: impl Fn(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Net {
        let side = |at: usize| {
            let runtime = build(Runtime::builder().workers(1).node(7)).start().unwrap();
            let wire = more(Wire::new().message::<Order>());
            let mut node = Node::new(Life::Node(at as u64 + 1), wire, runtime.core()).unwrap();
            let number = node.here;
            node.limits = Arc::new(limits());
            node.lives = Arc::new(Lives::new(Life::Node(at as u64 + 1), number, node.limits.clone()));
            let node = Arc::new(node);
            assert!(runtime.core().road.nodes.set(node.clone()).is_ok());
            (runtime, node)
        };
        let mut net = Net { sides: (0..count).map(side).collect(), ends: BTreeMap::new() };
        for at in 0..count {
            (0..at).for_each(|other| net.connect(at, other));
        }
        net
    }

    pub(super) fn connect(&mut self, one: usize, other: usize) {
        for (at, there) in [(one, other), (other, one)] {
            let wires = Arc::<Wires>::default();
            let list = self.sides[there].1.list().unwrap();
            let (name, life) = (format!("node {there}").into(), (Life::Node(there as u64 + 1), 7));
            let peer = Announced { name, life, store: None, protocol: PROTOCOL };
            let connection = self.sides[at].1.up(peer, &list, wires.clone()).unwrap();
            self.ends.insert((at, there), End { wires, number: connection.there().node, connection });
        }
    }

    /// Breaks a connection. All frames on the way are lost.
    pub(super) fn cut(&self, one: usize, other: usize) {
        for pair in [(one, other), (other, one)] {
            *lock(&self.ends[&pair].wires.is_cut) = true;
        }
        for pair in [(one, other), (other, one)] {
            let End { wires, connection, .. } = &self.ends[&pair];
            let letters: Vec<Letter> = lock(&wires.items).drain(..).filter_map(|item| item.letter).collect();
            self.sides[pair.0].1.down(connection, letters);
        }
    }

    /// Says that there is no room in one direction, or that there is.
    pub(super) fn fill(&self, from: usize, to: usize, is_full: bool) {
        let End { wires, connection, .. } = &self.ends[&(from, to)];
        *lock(&wires.is_full) = is_full;
        if !is_full {
            let has_room = |bound: &Bound| wires.has_room_for(*bound);
            Bound::ALL.into_iter().filter(has_room).for_each(|bound| self.sides[from].1.has_room(connection, bound));
        }
    }

    pub(super) fn rests(&self) {
        until("all rest", || self.sides.iter().all(|(runtime, _)| runtime.is_idle()));
    }

    /// Carries the next frame from one node to another. `pick` chooses the sender whose next frame it is.
    pub(super) fn step(&self, from: usize, to: usize, pick: &mut dyn FnMut(usize) -> usize) -> bool {
        let Some(end) = self.ends.get(&(from, to)) else { return false };
        let item = {
            let mut items = lock(&end.wires.items);
            let mut firsts: Vec<usize> = Vec::new();
            for at in 0..items.len() {
                if firsts.iter().all(|first| items[*first].sender != items[at].sender) {
                    firsts.push(at);
                }
            }
            if firsts.is_empty() {
                return false;
            }
            items.remove(firsts[pick(firsts.len())])
        };
        self.ends[&(to, from)].connection.receive(&item.bytes).unwrap();
        true
    }

    pub(super) fn carry_by(&self, pick: &mut dyn FnMut(usize) -> usize) {
        self.carry_with(&mut |from, to| self.step(from, to, pick));
    }

    /// Carries all frames in the order in which they were sent.
    pub(super) fn carry(&self) {
        self.carry_with(&mut |from, to| self.all(from, to));
    }

    /// Calls `carry` for each pair of nodes until no frame is left.
    fn carry_with(&self, carry: &mut dyn FnMut(usize, usize) -> bool) {
        let count = self.sides.len();
        let mut quiet = 0;
        while quiet < 2 {
            self.rests();
            let mut moved = false;
            for from in 0..count {
                for to in 0..count {
                    while carry(from, to) {
                        moved = true;
                    }
                }
            }
            quiet = if moved { 0 } else { quiet + 1 };
        }
    }

    /// Carries the frames that are on the way from one node to another.
    fn all(&self, from: usize, to: usize) -> bool {
        let Some(end) = self.ends.get(&(from, to)) else { return false };
        let items = std::mem::take(&mut *lock(&end.wires.items));
        let moves = !items.is_empty();
        items.into_iter().for_each(|item| self.ends[&(to, from)].connection.receive(&item.bytes).unwrap());
        moves
    }

    pub(super) fn spawn(&self, at: usize, recovers: bool, options: SpawnOptions) -> Local {
        let seen = Seen::default();
        let handle =
            self.sides[at].0.spawn_with(Actor { seen: seen.clone(), recovers, kept: Vec::new() }, options).unwrap();
        Local { at, handle, seen }
    }

    pub(super) fn trapping(&self, at: usize) -> Local {
        self.spawn(at, false, SpawnOptions::new().trap_exits())
    }

    pub(super) fn plain(&self, at: usize) -> Local {
        self.spawn(at, false, SpawnOptions::new())
    }

    /// The PID of a process, as a node sees it.
    pub(super) fn pid(&self, of: &Local, at: usize) -> Pid {
        let pid = of.handle.pid();
        let number = if of.at == at { pid.node() } else { self.ends[&(at, of.at)].number };
        Pid::new(number, pid.slot(), pid.generation()).unwrap()
    }

    pub(super) fn tell(&self, who: &Local, job: impl FnOnce(&mut StepOutput) -> StepResult<()> + Send + 'static) {
        let _ = self.sides[who.at].0.send(who.handle.address(), Order::Do(Box::new(job)));
        self.rests();
    }

    pub(super) fn does(&self, who: &Local, job: impl FnOnce(&mut StepOutput) + Send + 'static) {
        self.tell(who, move |out| {
            job(out);
            Ok(Step::Idle)
        });
    }

    pub(super) fn done(&self, who: &Local) {
        self.tell(who, |_| Ok(Step::Done(())));
    }

    pub(super) fn link(&self, one: &Local, other: &Local) {
        let pid = self.pid(other, one.at);
        self.does(one, move |out| out.link(pid));
    }

    pub(super) fn unlink(&self, one: &Local, other: &Local) {
        let pid = self.pid(other, one.at);
        self.does(one, move |out| out.unlink(pid));
    }

    pub(super) fn monitor(&self, one: &Local, other: &Local) {
        let pid = self.pid(other, one.at);
        self.does(one, move |out| _ = out.monitor(pid));
    }

    pub(super) fn on_the_way(&self, from: usize, to: usize) -> usize {
        lock(&self.ends[&(from, to)].wires.items).len()
    }

    pub(super) fn tables(&self, at: usize, other: usize) -> (usize, usize, usize) {
        self.ends[&(at, other)].connection.relations()
    }

    pub(super) fn is_linked(&self, one: &Local, other: &Local) -> bool {
        let core = self.sides[one.at].0.core();
        core.relations.is_linked_to(one.handle.pid(), self.pid(other, one.at))
    }

    /// Checks that nothing of a relation or a question is left.
    pub(super) fn nothing_is_left(&self, what: &str) {
        for (pair, end) in &self.ends {
            assert_eq!(end.connection.relations(), (0, 0, 0), "{what}: tables of {pair:?}");
            assert_eq!(end.connection.open_questions(), (0, 0), "{what}: questions of {pair:?}");
        }
        for (at, (runtime, _)) in self.sides.iter().enumerate() {
            assert_eq!(runtime.core().relations.len(), 0, "{what}: relations of {at}");
        }
    }
}

/// Figures for tests of the cluster.
impl Node {
    /// The number of processes that are listed as waiting for room.
    pub(in crate::cluster) fn listed_processes(&self) -> usize {
        self.waiting.len().1
    }

    /// How many entries about relations are left, and how many open questions, over all connections.
    pub(in crate::cluster) fn left(&self) -> (usize, usize) {
        self.connections.iter().fold((0, 0), |(relations, questions), connection| {
            let ((watched, watching, links), (mine, theirs)) = (connection.relations(), connection.open_questions());
            (relations + watched + watching + links, questions + mine + theirs)
        })
    }

    /// The entries about relations with the node of this incarnation, and the open questions.
    pub(in crate::cluster) fn tables(&self, incarnation: u64) -> ((usize, usize, usize), (usize, usize)) {
        let connection = self.connections.get(&self.number_of(incarnation));
        connection.map_or_else(Default::default, |it| (it.relations(), it.open_questions()))
    }
}

impl Local {
    pub(super) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.seen))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the order failed")]
pub(super) struct Outer(#[source] pub(super) Inner);

#[derive(Debug, thiserror::Error)]
#[error("no stock")]
pub(super) struct Inner;
