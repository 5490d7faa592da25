//! The network between the nodes of a world.
//!
//! A frame of one node to another is an entry of the world. Frames of one pair keep their order: each entry takes the
//! oldest frame of its pair.

use std::fmt;
use std::time::Duration;

use super::decision::{Choose as _, Odds, Place};
use super::entries::Entry;
use super::faults::{What, Whom};
use super::frames::End;
use super::recorder::ConnectionWork;
use super::shared::Shared;
use super::world::World;
use crate::cluster::link::{Link, LinkError, Upward};
use crate::cluster::simulated::{ConnectionTurn, NodeHost};
use crate::cluster::{Cluster, ClusterBuilder, ClusterError};
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::primitives::{Arc, Weak, lock};
use crate::random::random_at;
use crate::runtime::Runtime;
use crate::runtime::simulated::Job;

/// The stream of random numbers of the nodes of a world.
const STREAM: u64 = 0x6e_6f64_6573;

/// The node number of the PIDs that stand for pairs of nodes. It is the last one that a node gives out.
const PAIRS: u32 = Pid::MAX_NODE;

/// A frame that is later than this keeps the world from resting. Earlier ones do not, because there may always be some.
const LATE: Duration = Duration::from_secs(1);

/// The time in which other nodes may learn that a node has crashed, without a silence.
const CRASH: Duration = Duration::from_millis(50);

/// The network between the nodes of a [`World`].
///
/// [`Faults`](super::Faults) lose frames, repeat them, delay them, or cut two nodes from each other, as the seed
/// decides. These calls are for a scenario that decides itself.
pub struct WorldNetwork<'w> {
    shared: &'w Arc<Shared>,
}

impl World {
    /// Starts a node in this world. It has no threads: the world decides when a frame is sent, arrives, and is taken.
    ///
    /// All nodes of a world are connected by its [network](Self::network), whatever links their builders have.
    ///
    /// Nodes send heartbeats for ever. So a world with nodes *rests* when nothing but connections has done anything for
    /// 6 s, and no timer is set. By then a node that is silent is down, and one that was refused has tried again. A
    /// frame that is more than 1 s late, and the end of a cut by [`Faults`](super::Faults), count as activity. So a
    /// world whose faults cut nodes for ever does not rest: see [`Faults::until`](super::Faults::until). Claims to
    /// unique names have timers, so a world with such a claim does not rest either.
    ///
    /// # Errors
    /// The errors of [`ClusterBuilder::start`], or the runtime is not one of this world.
    pub fn start_node(&self, node: ClusterBuilder, runtime: &Runtime) -> Result<Cluster, ClusterError> {
        let is_here = runtime
            .core()
            .road
            .clock
            .driver()
            .is_some_and(|driver| std::ptr::addr_eq(Arc::as_ptr(&driver), Arc::as_ptr(&self.shared)));
        if !is_here {
            return Err(ClusterError::NotStarted("the runtime is not one of this world".into()));
        }
        let number = self.shared.state().number_of(runtime.core()).unwrap_or(usize::MAX);
        let host = WorldNodes { shared: Arc::downgrade(&self.shared), seed: self.seed(), runtime: number };
        node.start_in(runtime, Some(Arc::new(host)))
    }

    /// The network between the nodes of this world.
    pub fn network(&self) -> WorldNetwork<'_> {
        WorldNetwork { shared: &self.shared }
    }

    /// Ends a node and its runtime as a crash does: it sends nothing any more. Frames that are on their way arrive.
    ///
    /// The other nodes may learn of it within 50 ms, as they do if the operating system closes the connections. Or they
    /// see only silence, as they do if the machine has lost its power. The seed decides.
    pub fn crash(&self, node: &Cluster, runtime: &Runtime) {
        let incarnation = node.here().incarnation();
        let shared = &self.shared;
        let is_told = {
            let state = &mut *shared.state();
            let nth = state.next_asked(u32::MAX, Pid::FIRST);
            let place = Place::Fault { rule: u32::MAX, of: Pid::FIRST, nth };
            state.chooser.decide(place, Odds::Chance(0.5)) == 0
        };
        shared.state().has_fault_until(shared.clock.now());
        let number = shared.state().number_of(runtime.core());
        if number.is_some() {
            shared.end_pauses(number);
        }
        let others = lock(&shared.network).remove(incarnation);
        if is_told {
            let (name, delay) = (Arc::<str>::from(node.here().name()), shared.draw_time(Pid::FIRST, CRASH));
            let turn = ConnectionWork::Crash(name.clone());
            let job = move || {
                for other in others.iter().filter_map(Weak::upgrade) {
                    other.gone(&name, incarnation);
                }
            };
            shared.push_after(delay, Entry::Connection(Box::new((turn, Box::new(job)))));
        }
        let _ = runtime.shutdown(Duration::ZERO);
    }
}

impl WorldNetwork<'_> {
    /// Loses all frames between two nodes from now on, in both directions.
    pub fn cut(&self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Loses all frames of one node to another from now on.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        self.shared.state().is_busy_until(self.shared.clock.now());
        lock(&self.shared.network).cuts.insert((from.into(), to.into()), None);
    }

    /// Carries frames between two nodes again, in both directions.
    pub fn heal(&self, one: &str, other: &str) {
        self.shared.state().is_busy_until(self.shared.clock.now());
        let cuts = &mut lock(&self.shared.network).cuts;
        for (from, to) in [(one, other), (other, one)] {
            cuts.remove(&(from.to_string(), to.to_string()));
        }
    }

    /// Pauses this node for this time: the threads of its runtime do not run, and the clock goes on. See
    /// [`Faults::pause_nodes`](super::Faults::pause_nodes).
    ///
    /// If no node has this name, nothing happens.
    pub fn pause(&self, node: &str, time: Duration) {
        let runtime = lock(&self.shared.network).ends.iter().find(|end| &*end.name == node).map(|end| end.runtime);
        runtime.into_iter().for_each(|runtime| self.shared.pause_runtime(runtime, time));
    }

    /// Ends all cuts, also those of [`Faults`](super::Faults).
    pub fn heal_all(&self) {
        self.shared.state().is_busy_until(self.shared.clock.now());
        lock(&self.shared.network).cuts.clear();
    }
}

impl fmt::Debug for WorldNetwork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = lock(&self.shared.network);
        f.debug_struct("WorldNetwork")
            .field("nodes", &network.names.iter().map(|(_, name)| name).collect::<Vec<_>>())
            .field("cuts", &network.cuts)
            .finish_non_exhaustive()
    }
}

/// The world, as its nodes see it.
struct WorldNodes {
    shared: Weak<Shared>,
    seed: u64,
    /// The number of the runtime of the node.
    runtime: usize,
}

impl NodeHost for WorldNodes {
    fn draw(&self) -> u64 {
        let position = self.shared.upgrade().map_or(0, |shared| {
            let network = &mut *lock(&shared.network);
            network.draws += 1;
            network.draws
        });
        random_at(self.seed, STREAM, position).max(1)
    }

    fn work(&self, turn: ConnectionTurn, delay: Duration, job: Job) {
        if let Some(shared) = self.shared.upgrade() {
            let ConnectionTurn { node, peer, sends } = turn;
            let turn = if sends { ConnectionWork::Sends(node, peer) } else { ConnectionWork::Takes(node, peer) };
            shared.push_after(delay, Entry::Connection(Box::new((turn, job))));
        }
    }

    fn connect(&self, (cluster, name): (&str, &str), incarnation: u64) -> Arc<dyn Link> {
        let (cluster, name) = (cluster.into(), name.into());
        Arc::new(WorldEnd { shared: self.shared.clone(), cluster, name, incarnation, runtime: self.runtime })
    }
}

/// The link of one node of a world.
struct WorldEnd {
    shared: Weak<Shared>,
    cluster: Arc<str>,
    name: Arc<str>,
    incarnation: u64,
    runtime: usize,
}

impl Link for WorldEnd {
    fn open(&self, upward: Arc<dyn Upward>) -> Result<(), LinkError> {
        let gone = || LinkError::from(BoxError::from("the world of the node has ended"));
        let shared = self.shared.upgrade().ok_or_else(gone)?;
        let mut others = Vec::new();
        {
            let mut network = lock(&shared.network);
            network.number(&self.cluster, &self.name);
            others.extend(network.ends.iter().cloned());
            let (cluster, name, incarnation) = (self.cluster.clone(), self.name.clone(), self.incarnation);
            let (runtime, upward) = (self.runtime, Arc::downgrade(&upward));
            network.ends.push(End { cluster, name, incarnation, runtime, upward });
        }
        for End { cluster, name, incarnation, upward: other, .. } in others {
            let Some(other) = other.upgrade() else { continue };
            if cluster == self.cluster {
                other.seen(&self.name, self.incarnation);
                upward.seen(&name, incarnation);
            } else {
                other.foreign(&self.cluster, &self.name);
                upward.foreign(&cluster, &name);
            }
        }
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let Some(shared) = self.shared.upgrade() else { return };
        let is_open = lock(&shared.network).ends.iter().any(|end| end.incarnation == self.incarnation);
        if is_open {
            shared.frame(self, to, frame);
        }
    }

    fn close(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let others = lock(&shared.network).remove(self.incarnation);
        for other in others.iter().filter_map(Weak::upgrade) {
            other.gone(&self.name, self.incarnation);
        }
    }
}

impl Shared {
    /// A node sends a frame.
    fn frame(&self, end: &WorldEnd, to: &str, frame: &[u8]) {
        let from = &end.name;
        let now = self.clock.now();
        let (pair, names) = {
            let network = &mut *lock(&self.network);
            network.cuts.retain(|_, until| until.is_none_or(|until| until > now));
            if network.cuts.contains_key(&(from.to_string(), to.to_string())) {
                return;
            }
            let pair = (network.number(&end.cluster, from), network.number(&end.cluster, to));
            (pair, (network.names[pair.0].1.clone(), network.names[pair.1].1.clone()))
        };
        // Decisions about a pair are told apart by a PID that stands for it.
        let of = Pid::new(PAIRS, (pair.0 as u32) << 12 | pair.1 as u32, 1).unwrap_or(Pid::FIRST);
        let (mut copies, mut delay) = (1, Duration::ZERO);
        match self.inject(of, |rule| matches!(rule.whom, Whom::Network)) {
            Some(What::LoseFrame) => copies = 0,
            Some(What::RepeatFrame) => copies = 2,
            Some(What::DelayFrame(most)) => delay = self.draw_time(of, most),
            Some(What::Cut(most)) => {
                let until = now + self.draw_time(of, most);
                lock(&self.network).cuts.insert((from.to_string(), to.to_string()), Some(until));
                self.state().is_busy_until(until);
                return;
            }
            Some(What::Pause(most)) => self.pause_runtime(end.runtime, self.draw_time(of, most)),
            _ => {}
        }
        for _ in 0..copies {
            let delay = {
                let network = &mut *lock(&self.network);
                let way = network.on_the_way.entry(pair).or_default();
                way.frames.push_back(frame.to_vec());
                let arrives = way.last.map_or(now + delay, |last| last.max(now + delay));
                way.last = Some(arrives);
                arrives - now
            };
            if delay > LATE {
                self.state().is_busy_until(now + delay);
            }
            let turn = ConnectionWork::Arrives(names.0.clone(), names.1.clone());
            let (me, names) = (self.me.clone(), names.clone());
            let job = move || {
                if let Some(shared) = me.upgrade() {
                    shared.arrives(pair, &names.0);
                }
            };
            self.push_after(delay, Entry::Connection(Box::new((turn, Box::new(job)))));
        }
    }

    /// The oldest frame of a pair arrives.
    fn arrives(&self, pair: (usize, usize), from: &str) {
        let (frame, receivers) = {
            let network = &mut *lock(&self.network);
            let frame = network.on_the_way.get_mut(&pair).and_then(|way| way.frames.pop_front());
            let is_named = |end: &&End| network.names[pair.1] == (end.cluster.clone(), end.name.clone());
            let receivers: Vec<_> = network.ends.iter().filter(is_named).map(|end| end.upward.clone()).collect();
            (frame, receivers)
        };
        let Some(frame) = frame else { return };
        for receiver in receivers.iter().filter_map(Weak::upgrade) {
            receiver.frame(from, frame.clone());
        }
    }
}

#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod answer_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod flood_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod group_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod partition_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod pause_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod reply_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod spawn_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod torture_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod upgrade_tests;
#[cfg(all(test, not(any(loom, procession_sanitize_thread))))]
mod unique_tests;
