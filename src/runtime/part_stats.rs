//! The counts of the parts of a program beside the processes of a runtime.

use std::time::Duration;

use crate::shutdown::{Phase, Report};

/// The number of nodes of a shutdown tree, by [phase](Phase).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct ShutdownStats {
    /// Nodes that have not been asked to close.
    pub running: usize,
    /// Nodes that have been asked to close, and wait for their children.
    pub closing: usize,
    /// Nodes that have been told to end.
    pub told: usize,
    /// Nodes that have been told to drop unfinished work.
    pub cancelled: usize,
    /// Nodes for which the shutdown has stopped waiting.
    pub given_up: usize,
    /// Nodes that have ended.
    pub done: usize,
}

impl From<&Report> for ShutdownStats {
    fn from(report: &Report) -> ShutdownStats {
        ShutdownStats {
            running: report.count(Phase::Running),
            closing: report.count(Phase::Closing),
            told: report.count(Phase::Told),
            cancelled: report.count(Phase::Cancelled),
            given_up: report.count(Phase::GivenUp),
            done: report.count(Phase::Done),
        }
    }
}

/// Counts of a store of durable processes, as `Store::stats` returns them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct StoreStats {
    /// Processes that are in memory.
    pub in_memory: usize,
    /// How often a process has come into memory in this run: it was begun, or was loaded.
    pub loaded: u64,
    /// The number of parked processes. `None` if the tables of the store could not be read. Then `Store::count` returns
    /// the error.
    pub parked: Option<u64>,
    /// The position of the last record that is on disk. It grows by one with each record, also over runs.
    pub stored: u64,
    /// Records that wait until they are on disk.
    pub unstored: u64,
    /// The bytes of the records that wait until they are on disk.
    pub unstored_bytes: u64,
    /// The commits of this run. Each stores the records that wait, as far as they fit into one batch.
    pub commits: u64,
    /// The bytes of all commits of this run.
    pub commit_bytes: u64,
    /// The time that all commits of this run took together.
    pub commit_time: Duration,
    /// How often the store has opened its files again after an error in this run. Each time, all processes are loaded
    /// again as they are on disk.
    pub rewinds: u64,
    /// Records in the log that the tables do not have yet.
    pub unapplied: u64,
    /// The bytes of the records that the tables do not have yet.
    pub unapplied_bytes: u64,
}

/// Counts of a node of a cluster, as `Cluster::stats` returns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct ClusterStats {
    /// Processes that are held because they have sent to a node that has no room.
    pub held_processes: usize,
    /// Sends from outside of processes that wait for room at a node.
    pub waiting_sends: usize,
    /// PIDs that could not be shown because a node had named too many nodes and stores. Values that have them were not
    /// decoded.
    pub refused_lives: u64,
    /// Monitors and links of other nodes that were refused because these had too many.
    pub refused_relations: u64,
    /// The peers that the node knows, by name: at most 1,024.
    pub peers: Vec<PeerStats>,
}

/// Counts of a node's connections with a peer, over all its incarnations.
///
/// They never go down while the node lives. They are 0 until the peer was connected once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct PeerStats {
    /// The name of the peer.
    pub name: String,
    /// Whether the peer is connected.
    pub is_up: bool,
    /// Frames that were given to the link. Those that only say that the node lives are among them.
    pub frames_sent: u64,
    /// The bytes of these frames.
    pub bytes_sent: u64,
    /// Frames that came from the link.
    pub frames_received: u64,
    /// The bytes of these frames.
    pub bytes_received: u64,
}
