//! Processes on several nodes.
//!
//! This part is being built. It has the types that travel, their encoding, and the connection of two nodes. It has no
//! threads and no link to other programs yet.

// The connections that use it are not here yet.
#![allow(dead_code)]

mod builder;
mod codec;
mod connection;
mod driver;
mod events;
mod failures;
mod far_relations;
mod frame;
mod guarded;
pub(crate) mod link;
mod lives;
mod member;
mod members;
mod memory_network;
mod node;
mod output;
mod peer;
mod questions;
mod remote;
pub(crate) mod scope;
mod shape;
pub(crate) mod simulated;
mod wire;

pub use self::builder::{Cluster, ClusterBuilder, ClusterError};
pub use self::events::{NodeEvent, NodeEvents, NodeIdentity};
pub use self::link::LinkError;
pub use self::memory_network::MemoryNetwork;
pub use self::peer::DownReason;
pub use self::remote::Remote;
pub use self::wire::{Wire, WireError};
pub use crate::process::NodeError;
