//! Processes on several nodes.
//!
//! A runtime becomes a *node* of a cluster by [`Cluster::named`]. PIDs and addresses of other nodes' processes come in
//! messages. They work as local ones do: the same calls send to them, ask, stop, monitor and link them.
//!
//! Messages between nodes are encoded. So their types implement [`Remote`], mostly by [`remote!`](crate::remote), and
//! are named in the [`Wire`] of the node. Local messages pay nothing for it.
//!
//! A process is spawned on another node by its type, which is a [`RemoteProcess`], and an argument.
//!
//! With the feature `zenoh`, nodes of several programs are connected, over QUIC with certificates, or over TCP in a
//! trusted network. The nodes of one program are connected by a [`MemoryNetwork`], or in a
//! [simulation](crate::simulation::World::start_node).
//!
//! A process can have a name that all nodes see: a [shared](Cluster::claim) one, which is always available, or a
//! [unique](Cluster::claim_unique) one, which never has two holders.
//!
//! The file `docs/cluster.md` of the repository has the protocols.

mod builder;
mod codec;
mod connection;
mod driver;
mod event_queue;
mod events;
mod failures;
mod far_relations;
mod frame;
mod groups;
mod guarded;
mod leases;
pub(crate) mod link;
mod lives;
mod member;
mod members;
mod memory_network;
mod node;
mod output;
mod peer;
mod peer_limits;
mod questions;
mod remote;
mod remote_spawn;
mod room;
pub(crate) mod scope;
mod shape;
pub(crate) mod simulated;
mod spawn;
mod unique;
mod wire;
#[cfg(feature = "zenoh")]
mod security;
#[cfg(feature = "zenoh")]
mod zenoh_link;

pub use self::builder::{Cluster, ClusterBuilder, ClusterError};
pub use self::events::{NodeEvent, NodeEvents, NodeIdentity};
pub use self::groups::{Claim, ClaimEnd, ClusterNameError, GroupMember, MemberEvent, MemberEvents};
pub use self::link::LinkError;
pub use self::memory_network::MemoryNetwork;
pub use self::peer::DownReason;
#[cfg(all(test, not(loom)))]
pub(crate) use self::peer::PROTOCOL;
pub use self::remote::{Remote, RemoteProcess};
#[cfg(feature = "zenoh")]
pub use self::security::{Certificates, Security};
pub use self::unique::{UniqueClaim, UniqueClaimEnd};
pub use self::wire::{Wire, WireError};
pub use crate::process::{NodeError, Shared};
