//! A node's options, its start, and the handle of a program.

mod group_calls;

use std::fmt;
use std::time::Duration;

use rand::rngs::{SysRng, Xoshiro256PlusPlus};
use rand::{RngExt as _, SeedableRng as _, TryRng as _};

use super::events::{NodeEvents, NodeIdentity};
use super::link::{Link, LinkError, is_name};
use super::lives::Life;
use super::members::Members;
use super::memory_network::MemoryNetwork;
use super::node::{Leave as _, Node};
use super::peer::{DETECTION_TIME, ITEM_LIMIT, Identity, MOST_VOTERS, PROTOCOL, spoken};
#[cfg(feature = "zenoh")]
use super::security::{Endpoints, Security};
use super::simulated::NodeHost;
use super::wire::{Wire, WireError};
#[cfg(feature = "zenoh")]
use super::zenoh_link::ZenohLink;
use crate::inside::WaitError;
use crate::outcome::{BoxError, tell_log};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{CommandError, NodeError};
use crate::runtime::{AskFuture, ClusterStats, Runtime, WeakAccess, WeakRuntime};

/// The name of a cluster if none is given.
const CLUSTER: &str = "procession";

/// The room for the directory in the opening of a connection, in bytes.
const DIRECTORY: usize = 64 << 10;

/// The handle of a runtime that is a node of a cluster. Clones are the same node.
///
/// The node has connections to all nodes that its link sees. PIDs of other nodes come in messages, and work as local
/// ones do: they can be sent to and asked. The node leaves the cluster when its runtime shuts down, and not when the
/// handles are dropped.
#[derive(Clone)]
pub struct Cluster {
    pub(super) here: NodeIdentity,
    pub(super) members: Arc<Members>,
    pub(super) access: WeakAccess,
    pub(super) runtime: WeakRuntime,
}

/// Options of a node, made by [`Cluster::named`].
#[must_use = "a builder does nothing until `start` is called"]
pub struct ClusterBuilder {
    name: String,
    cluster: String,
    wire: Wire,
    voters: Vec<String>,
    network: Option<MemoryNetwork>,
    /// The newest version of the protocol that the node speaks.
    protocol: u16,
    #[cfg(feature = "zenoh")]
    endpoints: Endpoints,
}

/// Why a node could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// A name is empty, longer than 64 bytes, or has other characters than ASCII letters, digits, `-`, `_` and `.`.
    #[error("{0:?} is not a valid name of a node or a cluster: use 1 to 64 ASCII letters, digits, `-`, `_` or `.`")]
    BadName(String),
    /// Two types of the wire have the same name, or one of them cannot travel.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The list of types is too long for the opening of a connection. This many bytes were needed, and allowed.
    #[error("the list of the types that travel has {0} bytes, but only {1} are allowed: register fewer types")]
    TooManyTypes(usize, usize),
    /// There are more than 64 voters.
    #[error("the cluster has {0} voters, but only {MOST_VOTERS} are allowed: three or five are enough")]
    TooManyVoters(usize),
    /// No link was chosen.
    #[error("the node has no link to others: call `listen` or `join`, with the feature `zenoh`, or `memory`")]
    NoLink,
    /// This endpoint cannot be used, for this reason.
    #[error("the endpoint {0:?} cannot be used: {1}")]
    BadEndpoint(String, &'static str),
    /// The link could not be opened. The runtime cannot become a node any more.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The runtime is a node already.
    #[error("the runtime is a node already")]
    IsNode,
    /// The runtime is one of a simulation.
    #[error("the runtime is one of a simulation: start the node by `World::start_node`")]
    InSimulation,
    /// The runtime has shut down, or is about to.
    #[error("the runtime shuts down")]
    ShutDown,
    /// Another reason.
    #[error("the node could not be started: {0}")]
    NotStarted(BoxError),
}

impl Cluster {
    /// Begins a node with this name. The wire has all types that it sends to others, or takes from them.
    ///
    /// A cluster has one node of a name at a time. If a second one is started, nodes that know the first refuse it.
    pub fn named(name: impl Into<String>, wire: Wire) -> ClusterBuilder {
        ClusterBuilder {
            name: name.into(),
            cluster: CLUSTER.into(),
            wire,
            voters: Vec::new(),
            network: None,
            protocol: PROTOCOL,
            #[cfg(feature = "zenoh")]
            endpoints: Endpoints::default(),
        }
    }

    /// This node.
    pub fn here(&self) -> &NodeIdentity {
        &self.here
    }

    /// The other nodes that are connected, by name.
    pub fn nodes(&self) -> Vec<NodeIdentity> {
        self.members.watch.nodes()
    }

    /// Counts of this node and of its connections at this moment.
    /// [`Snapshot::with_cluster`](crate::observe::Snapshot::with_cluster) adds them to the figures of the runtime.
    pub fn stats(&self) -> ClusterStats {
        let (waiting_sends, held_processes) = self.members.node().map_or((0, 0), |node| node.waiting_counts());
        let mut stats = ClusterStats::default();
        (stats.held_processes, stats.waiting_sends, stats.peers) =
            (held_processes, waiting_sends, self.members.stats());
        (stats.refused_lives, stats.refused_relations) =
            self.members.node().map_or((0, 0), |node| node.limits().refused());
        stats
    }

    /// Subscribes to the ups and downs of other nodes.
    pub fn events(&self) -> NodeEvents {
        self.members.watch.subscribe()
    }

    /// Asks another node which of its processes has this [name](crate::Runtime::register).
    ///
    /// If no process has the name, the error is [`CommandError::NoSuchProcess`]. If the node is not connected, it is
    /// [`CommandError::Node`].
    ///
    /// The PID is that of the process, and not that of the name. So ask again when the process has ended.
    ///
    /// ```
    /// # use procession::cluster::{Cluster, MemoryNetwork, Wire};
    /// # use procession::{Address, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, remote};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// #[derive(Serialize, Deserialize)]
    /// struct Count(Reply<u64>);
    /// remote!(Count, "demo::Count", 1);
    ///
    /// struct Counter(u64);
    ///
    /// impl Process for Counter {
    ///     type Message = Count;
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<'_, Count>, out: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             if let Event::Message(Count(reply)) = event {
    ///                 self.0 += 1;
    ///                 out.reply(reply, self.0);
    ///             }
    ///         }
    ///         Ok(Step::Idle)
    ///     }
    /// }
    ///
    /// # let (network, limit) = (MemoryNetwork::new(), Duration::from_secs(5));
    /// let (here, there) = (Runtime::start()?, Runtime::start()?);
    /// let a = Cluster::named("a", Wire::new().message::<Count>()).memory(&network).start(&here)?;
    /// let b = Cluster::named("b", Wire::new().message::<Count>()).memory(&network).start(&there)?;
    /// let counter = there.spawn(Counter(0))?;
    /// there.register("counter", &counter)?;
    ///
    /// a.wait_for("b", limit)?;
    /// let counter: Address<Count> = a.whereis("b", "counter", limit).wait()?.typed();
    /// assert_eq!(here.ask(counter, Count, limit).wait()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn whereis(&self, node: &str, name: &str, limit: Duration) -> AskFuture<Pid> {
        let target = self.node_pid(node);
        self.access.ask_elsewhere(target, limit, |ask| match (self.members.node(), target) {
            (Some(here), Some(target)) => here.whereis_at(target, name, ask),
            _ => ask.give_up(CommandError::Node { pid: ask.target(), why: NodeError::NodeDown }),
        })
    }

    /// The PID that stands for another node, if that is connected.
    pub(super) fn node_pid(&self, node: &str) -> Option<Pid> {
        self.members.node()?.connected(self.members.watch.incarnation(node)?)
    }

    /// The number here of a node that was connected once.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn number_of(&self, incarnation: u64) -> u32 {
        self.members.node().unwrap().number_of(incarnation)
    }

    /// How many entries about relations are left, and how many open questions, over all connections.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn left(&self) -> (usize, usize) {
        self.members.node().unwrap().left()
    }

    /// The entries about relations with a node that is up, and the open questions, as the connection counts them.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn tables(&self, node: &str) -> ((usize, usize, usize), (usize, usize)) {
        let incarnation = self.members.watch.incarnation(node);
        incarnation.map_or_else(Default::default, |of| self.members.node().unwrap().tables(of))
    }

    /// The number of inquiries at other nodes about nodes that are down here.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn inquiries(&self) -> usize {
        self.members.watch.inquiries()
    }

    /// The versions of the protocol that are spoken with the nodes which are up, sorted.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn protocols(&self) -> Vec<u16> {
        self.members.node().unwrap().protocols()
    }

    /// Waits until the node of this name is connected.
    ///
    /// # Errors
    /// The limit is over, this node has left the cluster, or the caller is a step.
    pub fn wait_for(&self, name: &str, limit: Duration) -> Result<(), WaitError> {
        self.events().wait_for(name, limit)
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterBuilder")
            .field("name", &self.name)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("here", &self.here).field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

impl ClusterBuilder {
    /// Sets the name of the cluster. Nodes of other clusters are refused. The default is `procession`.
    pub fn cluster(mut self, name: impl Into<String>) -> ClusterBuilder {
        self.cluster = name.into();
        self
    }

    /// Sets the names of the voters, which decide about [unique names](Cluster::claim_unique).
    ///
    /// A majority of the voters grants a name. By default there are no voters, and unique names cannot be claimed. All
    /// nodes of a cluster must have the same list, in any order. Nodes with other lists are refused. The list
    /// cannot change while nodes run. Three voters go on if one is lost, and five if two are lost. They may do other
    /// work, too.
    ///
    /// A voter stores nothing. A voter that has just started votes after 5 s.
    pub fn voters<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> ClusterBuilder {
        self.voters = names.into_iter().map(Into::into).collect();
        self.voters.sort_unstable();
        self.voters.dedup();
        self
    }

    /// Sets the newest version of the protocol that the node speaks.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn protocol(mut self, newest: u16) -> ClusterBuilder {
        self.protocol = newest;
        self
    }

    /// Connects the node with the other nodes of this network, which are in the same program.
    pub fn memory(mut self, network: &MemoryNetwork) -> ClusterBuilder {
        self.network = Some(network.clone());
        self
    }

    /// Adds an endpoint at which the node listens, as `quic/127.0.0.1:7001`.
    ///
    /// An endpoint `quic/` needs [`Security::Certificates`], and `tcp/` needs [`Security::TrustedNetwork`].
    #[cfg(feature = "zenoh")]
    pub fn listen(mut self, endpoint: impl Into<String>) -> ClusterBuilder {
        self.endpoints.listen.push(endpoint.into());
        self
    }

    /// Adds an endpoint of another node. A node needs to know one other node, which may start later. It gets to know
    /// the others through that one.
    #[cfg(feature = "zenoh")]
    pub fn join(mut self, endpoint: impl Into<String>) -> ClusterBuilder {
        self.endpoints.join.push(endpoint.into());
        self
    }

    /// Says how the connections are secured.
    #[cfg(feature = "zenoh")]
    pub fn security(mut self, security: Security) -> ClusterBuilder {
        self.endpoints.security = Some(security);
        self
    }

    /// Makes a runtime a node. If it has a [store](crate::durable), other nodes reach its durable processes, too. They
    /// cannot link themselves to one.
    ///
    /// Each peer takes at most two threads: one until its first frame arrives, then two.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub fn start(self, runtime: &Runtime) -> Result<Cluster, ClusterError> {
        self.start_in(runtime, None)
    }

    /// The endpoints, if there are any. They are checked.
    #[cfg(feature = "zenoh")]
    fn endpoints(&self) -> Result<Option<Endpoints>, ClusterError> {
        if let Some((endpoint, why)) = self.endpoints.problem() {
            return Err(ClusterError::BadEndpoint(endpoint, why));
        }
        let mut names = self.endpoints.certificates().into_iter().flat_map(|certificates| &certificates.nodes);
        names.try_for_each(|name| check_name(name))?;
        Ok((!self.endpoints.is_empty()).then(|| self.endpoints.clone()))
    }

    /// Makes a runtime a node. In a simulation, `world` has the network and the turns.
    pub(crate) fn start_in(self, runtime: &Runtime, world: Option<Arc<dyn NodeHost>>) -> Result<Cluster, ClusterError> {
        #[cfg(feature = "zenoh")]
        let far = self.endpoints()?;
        let ClusterBuilder { name, cluster, wire, voters, network, protocol, .. } = self;
        check_name(&name)?;
        check_name(&cluster)?;
        voters.iter().try_for_each(|voter| check_name(voter))?;
        if voters.len() > MOST_VOTERS {
            return Err(ClusterError::TooManyVoters(voters.len()));
        }
        wire.check()?;
        let listed = wire.list().map_err(ClusterError::NotStarted)?.len();
        if listed > ITEM_LIMIT - DIRECTORY {
            return Err(ClusterError::TooManyTypes(listed, ITEM_LIMIT - DIRECTORY));
        }
        let core = runtime.core();
        let road = &core.road;
        let draw = || match &world {
            Some(world) => Ok(world.draw()),
            None => SysRng.try_next_u64().map_err(|error| ClusterError::NotStarted(error.into())),
        };
        let incarnation = draw()?;
        let link: Arc<dyn Link> = match (&world, network) {
            (Some(world), _) => world.connect((&cluster, &name), incarnation),
            (None, _) if core.simulation.is_some() => return Err(ClusterError::InSimulation),
            (None, Some(network)) => Arc::new(network.link((&cluster, &name), incarnation)),
            #[cfg(feature = "zenoh")]
            (None, None) if let Some(endpoints) = far => {
                Arc::new(ZenohLink::new((&cluster, &name), incarnation, endpoints))
            }
            (None, None) => return Err(ClusterError::NoLink),
        };
        let node = Node::with_voters(Life::Node(incarnation), (&name, &voters), wire, core)
            .map_err(ClusterError::NotStarted)?;
        let node = Arc::new(node);
        if road.nodes.set(node.clone()).is_err() {
            return Err(ClusterError::IsNode);
        }
        let here = Identity {
            cluster,
            name: name.clone(),
            incarnation,
            protocols: spoken(protocol),
            voters,
            detection_time: DETECTION_TIME,
        };
        let random = Mutex::new(Xoshiro256PlusPlus::seed_from_u64(draw()?));
        let nonce = move || lock(&random).random_range(1..=u64::MAX);
        let members = Members::new(here, &node, (link.clone(), world), road.clock.clone(), Arc::new(nonce));
        node.leaves_by(members.clone());
        link.open(members.clone())?;
        if road.door.is_closed() {
            // The shutdown may have looked for the node before it was there, or closed the link before it was open.
            members.leave_at_once();
            link.close();
            return Err(ClusterError::ShutDown);
        }
        let here = NodeIdentity::new(&name, incarnation);
        tell_log(|| tracing::info!(node = %here, number = node.number(), "the runtime is a node of a cluster"));
        Ok(Cluster { here, members, access: runtime.weak_access(), runtime: runtime.downgrade() })
    }
}

/// Checks the name of a node or a cluster.
fn check_name(name: &str) -> Result<(), ClusterError> {
    if is_name(name) { Ok(()) } else { Err(ClusterError::BadName(name.into())) }
}

#[cfg(all(test, not(loom)))]
mod count_tests;
#[cfg(all(test, not(loom)))]
mod order_tests;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, feature = "zenoh"))]
mod zenoh_program_tests;
#[cfg(all(test, feature = "zenoh"))]
mod zenoh_tests;
