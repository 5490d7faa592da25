//! Nodes in true time for the tests: clocks that drift, pauses, cuts, overlapping partitions, and restarts.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const NAMES: [&str; 2] = ["n", "m"];

/// An event, at a moment of true time.
#[derive(Debug)]
pub(super) enum Event {
    Frame {
        peer: u64,
        to: usize,
        epoch: u64,
        frame: LeaseFrame,
    },
    Down {
        at: usize,
        other: usize,
        epoch: u64,
    },
    /// One side of a connection begins.
    Up {
        at: usize,
        other: usize,
        epoch: u64,
    },
    /// A connection begins, if it can.
    Connect(usize, usize),
    Tick(usize, u64),
    Resume(usize),
    Start(usize),
    Act,
}

pub(super) struct Link {
    pub(super) epoch: u64,
    /// Whether it is up on the side of the lower node, and of the higher one.
    pub(super) is_up: [bool; 2],
    pub(super) is_cut: bool,
    /// Frames were lost, so nothing is delivered any more.
    pub(super) is_broken: bool,
    pub(super) last: [u64; 2],
}

/// A claim, as its node was told.
pub(super) struct Told {
    pub(super) name: usize,
    /// In true time.
    pub(super) held_until: Option<u64>,
}

pub(super) struct Machine {
    pub(super) leases: Leases,
    pub(super) started: u64,
    pub(super) claims: BTreeMap<u64, Told>,
}

pub(super) struct Node {
    /// Its clock runs so many microseconds in a million of true time.
    pub(super) rate: u64,
    pub(super) skew: u64,
    pub(super) machine: Option<Machine>,
    pub(super) life: u64,
    pub(super) paused_until: Option<u64>,
    pub(super) inbox: Vec<Event>,
}

pub(super) struct World {
    pub(super) random: Xoshiro256PlusPlus,
    pub(super) now: u64,
    pub(super) queue: BTreeMap<(u64, u64), Event>,
    pub(super) events: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) links: BTreeMap<(usize, usize), Link>,
    pub(super) voters: Vec<String>,
    pub(super) tokens: [u64; 2],
    /// The moments and the nodes of holdings, by name.
    pub(super) held: Vec<(u64, usize, usize)>,
    pub(super) no_majority: usize,
    pub(super) lost: usize,
    pub(super) problem: Option<String>,
}

pub(super) fn name(at: usize) -> String {
    format!("v{at}")
}

impl World {
    pub(super) fn new(seed: u64, nodes: usize, voters: usize) -> World {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let node = |random: &mut Xoshiro256PlusPlus| Node {
            rate: [990_000, 1_010_000, random.random_range(990_000..=1_010_000)][random.random_range(0..3)],
            skew: random.random_range(0..SECOND / 10),
            machine: None,
            life: 0,
            paused_until: None,
            inbox: Vec::new(),
        };
        let nodes: Vec<Node> = (0..nodes).map(|_| node(&mut random)).collect();
        let mut world = World {
            random,
            now: 1_000 * SECOND,
            queue: BTreeMap::new(),
            events: 0,
            nodes,
            links: BTreeMap::new(),
            voters: (0..voters).map(name).collect(),
            tokens: [0; 2],
            held: Vec::new(),
            no_majority: 0,
            lost: 0,
            problem: None,
        };
        for at in 0..world.nodes.len() {
            world.start(at);
            for other in 0..at {
                let link = Link { epoch: 0, is_up: [false; 2], is_cut: false, is_broken: false, last: [0; 2] };
                world.links.insert((other, at), link);
                world.connect_soon(other, at);
            }
        }
        world
    }

    pub(super) fn at(&mut self, delay: u64, event: Event) {
        self.events += 1;
        self.queue.insert((self.now + delay, self.events), event);
    }

    pub(super) fn upto(&mut self, most: u64) -> u64 {
        self.random.random_range(0..=most)
    }

    pub(super) fn chance(&mut self, one_in: u64) -> bool {
        self.upto(one_in - 1) == 0
    }

    pub(super) fn local(&self, at: usize) -> Duration {
        let node = &self.nodes[at];
        let started = node.machine.as_ref().map_or(self.now, |machine| machine.started);
        Duration::from_micros((self.now - started) * node.rate / 1_000_000)
    }

    /// The moment of true time at which a clock shows this. If it is rounded, it is later.
    pub(super) fn moment(&self, at: usize, local: Duration) -> u64 {
        let node = &self.nodes[at];
        let started = node.machine.as_ref().map_or(self.now, |machine| machine.started);
        started + (local.as_micros() as u64 * 1_000_000).div_ceil(node.rate)
    }

    pub(super) fn incarnation(&self, at: usize) -> u64 {
        self.nodes[at].life * 100 + at as u64 + 1
    }

    pub(super) fn place(incarnation: u64) -> usize {
        (incarnation % 100) as usize - 1
    }

    pub(super) fn link(&mut self, one: usize, other: usize) -> &mut Link {
        self.links.get_mut(&(one.min(other), one.max(other))).unwrap()
    }

    pub(super) fn is_up(&mut self, at: usize, other: usize, epoch: u64) -> bool {
        let link = self.link(at, other);
        link.epoch == epoch && link.is_up[usize::from(at > other)]
    }

    pub(super) fn start(&mut self, at: usize) {
        self.nodes[at].life += 1;
        let (here, now) = (self.incarnation(at), self.now);
        let wall = now + self.nodes[at].skew;
        let leases = Leases::new(Duration::ZERO, (here, &name(at)), &self.voters, wall);
        self.nodes[at].machine = Some(Machine { leases, started: now, claims: BTreeMap::new() });
    }

    pub(super) fn crash(&mut self, at: usize) {
        self.nodes[at].machine = None;
        self.nodes[at].inbox.clear();
        self.nodes[at].paused_until = None;
        for other in (0..self.nodes.len()).filter(|other| *other != at) {
            self.link(at, other).is_up[usize::from(at > other)] = false;
            let most = if self.chance(2) { 50_000 } else { 1_750_000 };
            self.break_link(at, other, most);
        }
    }

    pub(super) fn pause(&mut self, at: usize, time: u64) {
        if self.nodes[at].machine.is_none() || self.nodes[at].paused_until.is_some() {
            return;
        }
        self.nodes[at].paused_until = Some(self.now + time);
        self.at(time, Event::Resume(at));
        if time > 1_500_000 {
            for other in (0..self.nodes.len()).filter(|other| *other != at) {
                let epoch = self.link(at, other).epoch;
                let silent = 1_500_000 + self.upto(250_000.min(time - 1_500_000));
                self.at(silent, Event::Down { at: other, other: at, epoch });
                // It finds that out some time after it goes on.
                let late = time + self.upto(100_000);
                self.at(late, Event::Down { at, other, epoch });
            }
        }
    }

    /// Nothing is delivered any more, and both sides find out.
    pub(super) fn break_link(&mut self, one: usize, other: usize, most: u64) {
        let link = self.link(one, other);
        link.is_broken = true;
        let epoch = link.epoch;
        for (at, other) in [(one, other), (other, one)] {
            let delay = self.upto(most);
            self.at(delay, Event::Down { at, other, epoch });
        }
    }

    pub(super) fn cut(&mut self, one: usize, other: usize) {
        if !std::mem::replace(&mut self.link(one, other).is_cut, true) {
            self.break_link(one, other, 1_750_000);
        }
    }

    pub(super) fn heal(&mut self) {
        self.links.values_mut().for_each(|link| link.is_cut = false);
    }

    pub(super) fn connect_soon(&mut self, one: usize, other: usize) {
        let delay = self.upto(500_000);
        self.at(delay, Event::Connect(one, other));
    }

    pub(super) fn lives(&self, at: usize) -> bool {
        self.nodes[at].machine.is_some() && self.nodes[at].paused_until.is_none()
    }

    pub(super) fn call<R>(
        &mut self,
        at: usize,
        call: impl FnOnce(&mut Leases, Duration, &mut Vec<Effect>) -> R,
    ) -> Option<R> {
        let local = self.local(at);
        let mut effects = Vec::new();
        let result = call(&mut self.nodes[at].machine.as_mut()?.leases, local, &mut effects);
        effects.into_iter().for_each(|effect| self.carry_out(at, effect));
        let due = self.nodes[at].machine.as_ref()?.leases.due();
        if let Some(due) = due {
            let late = if self.chance(10) { self.upto(50_000) } else { self.upto(1_000) };
            let delay = self.moment(at, due).saturating_sub(self.now) + late;
            let life = self.nodes[at].life;
            self.at(delay, Event::Tick(at, life));
        }
        Some(result)
    }

    pub(super) fn carry_out(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Send(peer, frame) => {
                let to = World::place(peer);
                let delay = if self.chance(20) { self.upto(20_000) } else { 100 + self.upto(2_000) };
                let now = self.now;
                let side = usize::from(at > to);
                let link = self.link(at, to);
                if link.is_broken || !link.is_up[side] {
                    return;
                }
                let arrives = (now + delay).max(link.last[side]);
                link.last[side] = arrives;
                let epoch = link.epoch;
                let peer = self.incarnation(at);
                self.at(arrives - now, Event::Frame { peer, to, epoch, frame });
            }
            Effect::Held { number, token, until } => {
                let until = self.moment(at, until);
                let name = self.told(at, number).name;
                self.told(at, number).held_until = Some(until);
                if token <= std::mem::replace(&mut self.tokens[name], token) {
                    self.problem = Some(format!("the token {token} of {} is not greater", NAMES[name]));
                }
                self.held.push((self.now, at, name));
                self.check(at, number);
            }
            Effect::Extended { number, until } => {
                let (now, until) = (self.now, self.moment(at, until));
                let until = self.told(at, number).held_until.replace(until);
                if until.is_none_or(|until| until <= now) {
                    self.problem = Some(format!("{at} has its lease extended after its end"));
                }
                self.check(at, number);
            }
            Effect::Lost { number } => {
                self.lost += 1;
                self.forget(at, number);
            }
            Effect::NoMajority { number } => {
                self.no_majority += 1;
                self.forget(at, number);
            }
        }
    }

    pub(super) fn told(&mut self, at: usize, number: u64) -> &mut Told {
        self.nodes[at].machine.as_mut().unwrap().claims.get_mut(&number).unwrap()
    }

    pub(super) fn forget(&mut self, at: usize, number: u64) {
        self.nodes[at].machine.as_mut().unwrap().claims.remove(&number).unwrap();
    }

    /// The holders of a name: a step of their processes could begin now.
    pub(super) fn holders(&self, name: usize) -> Vec<(usize, u64)> {
        let of = |(at, node): (usize, &Node)| -> Vec<(usize, u64)> {
            let holds = |told: &Told| told.name == name && told.held_until.is_some_and(|until| until > self.now);
            let claims = node.machine.iter().flat_map(|machine| &machine.claims);
            claims.filter(|(_, told)| holds(told)).map(|(number, _)| (at, *number)).collect()
        };
        self.nodes.iter().enumerate().flat_map(of).collect()
    }

    pub(super) fn check(&mut self, at: usize, number: u64) {
        let name = self.told(at, number).name;
        let holders = self.holders(name);
        if holders.len() > 1 {
            self.problem = Some(format!("{} is held by {holders:?}", NAMES[name]));
        }
    }

    pub(super) fn claim(&mut self, at: usize, name: usize) -> Option<u64> {
        let since = self.now + self.nodes[at].skew;
        let machine = self.nodes[at].machine.as_mut()?;
        // Known when the first effects come.
        machine.claims.insert(machine.leases.next, Told { name, held_until: None });
        self.call(at, |leases, now, effects| leases.claim(now, NAMES[name], since, effects))
    }

    pub(super) fn release(&mut self, at: usize, number: u64) {
        self.forget(at, number);
        self.call(at, |leases, now, effects| leases.release(now, number, effects));
    }

    pub(super) fn step(&mut self, event: Event) {
        match event {
            Event::Frame { to: at, .. } | Event::Down { at, .. } | Event::Up { at, .. } | Event::Tick(at, _)
                if self.nodes[at].paused_until.is_some() =>
            {
                self.nodes[at].inbox.push(event);
            }
            Event::Frame { peer, to, epoch, frame } => {
                if self.is_up(to, World::place(peer), epoch) {
                    let taken = self.call(to, |leases, now, effects| leases.receive(now, peer, frame, effects));
                    taken.unwrap().unwrap();
                }
            }
            Event::Down { at, other, epoch } => {
                if self.is_up(at, other, epoch) {
                    let link = self.link(at, other);
                    link.is_up[usize::from(at > other)] = false;
                    if !std::mem::replace(&mut link.is_broken, true) {
                        self.break_link(at, other, 1_750_000);
                    }
                    // The other node may have been started again since.
                    let peers: Vec<u64> =
                        self.nodes[at].machine.iter().flat_map(|m| m.leases.places.keys()).copied().collect();
                    let peer = peers.into_iter().find(|peer| World::place(*peer) == other).unwrap();
                    self.call(at, |leases, now, effects| leases.down(now, peer, effects));
                }
            }
            Event::Up { at, other, epoch } => {
                let link = self.link(at, other);
                if link.epoch == epoch && !link.is_broken && self.nodes[at].machine.is_some() {
                    self.link(at, other).is_up[usize::from(at > other)] = true;
                    let peer = self.incarnation(other);
                    self.call(at, |leases, now, effects| leases.up(now, (peer, &name(other)), effects));
                }
            }
            Event::Connect(one, other) => {
                let (lives, now) = (self.lives(one) && self.lives(other), self.now);
                let link = self.link(one, other);
                if lives && !link.is_cut && link.is_up == [false; 2] {
                    link.epoch += 1;
                    link.is_broken = false;
                    let epoch = link.epoch;
                    // Frames wait for the up of their receiver.
                    link.last = [now + 20_000; 2];
                    for (at, other) in [(one, other), (other, one)] {
                        let delay = self.upto(20_000);
                        self.at(delay, Event::Up { at, other, epoch });
                    }
                }
                self.connect_soon(one, other);
            }
            Event::Tick(at, life) => {
                let is_due = |machine: &Machine| machine.leases.due().is_some_and(|due| due <= self.local(at));
                if self.nodes[at].life == life && self.nodes[at].machine.as_ref().is_some_and(is_due) {
                    self.call(at, |leases, now, effects| leases.tick(now, effects));
                }
            }
            Event::Resume(at) => {
                if self.nodes[at].paused_until.is_some_and(|until| until <= self.now) {
                    self.nodes[at].paused_until = None;
                    for event in std::mem::take(&mut self.nodes[at].inbox) {
                        self.step(event);
                    }
                }
            }
            Event::Start(at) => {
                if self.nodes[at].machine.is_none() {
                    self.start(at);
                }
            }
            Event::Act => {
                self.act();
                let delay = self.upto(800_000);
                self.at(delay, Event::Act);
            }
        }
    }

    /// Something happens: to a claim, or to a node, or to the network.
    pub(super) fn act(&mut self) {
        let count = self.nodes.len() as u64;
        let at = self.upto(count - 1) as usize;
        match self.upto(99) {
            0..45 => {
                let claims = self.nodes[at].machine.as_ref().map_or(0, |machine| machine.claims.len());
                if self.lives(at) && claims < 3 {
                    let name = self.upto(3) == 0;
                    self.claim(at, usize::from(name));
                }
            }
            45..70 => {
                let claims: Vec<u64> =
                    self.nodes[at].machine.iter().flat_map(|machine| machine.claims.keys()).copied().collect();
                if self.lives(at) && !claims.is_empty() {
                    let number = claims[self.upto(claims.len() as u64 - 1) as usize];
                    self.release(at, number);
                }
            }
            70..80 => {
                let other = self.upto(count - 1) as usize;
                if other != at {
                    self.cut(at, other);
                }
            }
            80..85 => {
                // Two sides, with one node that sees both.
                let both = self.upto(count - 1) as usize;
                for one in 0..count as usize {
                    for other in (0..one).filter(|other| one % 2 != other % 2) {
                        if one != both && other != both {
                            self.cut(one, other);
                        }
                    }
                }
            }
            85..91 => self.heal(),
            91..95 => {
                let most = [3 * SECOND, 6 * SECOND, 60 * SECOND][self.upto(2) as usize];
                let time = self.upto(most);
                self.pause(at, time);
            }
            _ => {
                self.crash(at);
                let delay = SECOND + self.upto(5 * SECOND);
                self.at(delay, Event::Start(at));
            }
        }
    }

    pub(super) fn run_for(&mut self, time: u64) {
        let until = self.now + time;
        while let Some(((at, _), _)) = self.queue.first_key_value()
            && *at <= until
            && self.problem.is_none()
        {
            let ((at, _), event) = self.queue.pop_first().unwrap();
            self.now = at;
            self.step(event);
        }
        self.now = until;
    }

    /// Runs until one of these holds the name. Returns the time.
    pub(super) fn until_held(&mut self, name: usize, by: impl Fn(usize) -> bool, limit: u64) -> Option<u64> {
        let (start, known) = (self.now, self.held.len());
        while self.now < start + limit {
            self.run_for(1_000);
            let held = self.held[known..].iter().find(|(_, at, what)| *what == name && by(*at));
            if let Some((at, ..)) = held {
                return Some(at - start);
            }
        }
        None
    }

    /// Releases a name. Returns after which time the other node has it.
    pub(super) fn at_release(&mut self, at: usize, number: u64, next: usize) -> Option<u64> {
        self.release(at, number);
        self.until_held(0, |at| at == next, SECOND / 2)
    }

    pub(super) fn fine(&self, seed: u64) {
        assert_eq!(self.problem, None, "seed {seed}");
    }
}
