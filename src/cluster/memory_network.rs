//! The link between nodes of one program.

use std::collections::BTreeSet;
use std::fmt;

use super::link::{Link, LinkError, Upward};
use crate::outcome::BoxError;
use crate::primitives::{Arc, Mutex, Weak, lock};

/// A network in memory, for several nodes of one program. Tests use it.
///
/// Clones are the same network. [`cut`](Self::cut) loses all frames between two nodes, as a broken cable does: neither
/// side is told.
///
/// ```
/// use procession::Runtime;
/// use procession::cluster::{Cluster, MemoryNetwork, Wire};
/// use std::time::Duration;
///
/// let network = MemoryNetwork::new();
/// let start = |name: &str| -> Result<_, Box<dyn std::error::Error>> {
///     let runtime = Runtime::builder().workers(1).start()?;
///     let cluster = Cluster::named(name, Wire::new()).memory(&network).start(&runtime)?;
///     Ok((runtime, cluster))
/// };
/// let (one, a) = start("a")?;
/// let (other, _b) = start("b")?;
/// let limit = Duration::from_secs(5);
/// a.wait_for("b", limit)?;
/// other.shutdown(limit)?;
/// one.shutdown(limit)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct MemoryNetwork {
    shared: Arc<Mutex<Network>>,
}

#[derive(Default)]
struct Network {
    ends: Vec<End>,
    /// The pairs of names between which frames are lost: from, to.
    cuts: BTreeSet<(String, String)>,
}

struct End {
    name: Arc<str>,
    incarnation: u64,
    upward: Weak<dyn Upward>,
}

impl MemoryNetwork {
    /// Makes a network without nodes.
    pub fn new() -> MemoryNetwork {
        MemoryNetwork::default()
    }

    /// Loses all frames between two nodes from now on, in both directions.
    pub fn cut(&self, one: &str, other: &str) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Loses all frames of one node to another from now on.
    pub fn cut_one_way(&self, from: &str, to: &str) {
        lock(&self.shared).cuts.insert((from.into(), to.into()));
    }

    /// Carries frames between two nodes again, in both directions.
    pub fn heal(&self, one: &str, other: &str) {
        let cuts = &mut lock(&self.shared).cuts;
        for (from, to) in [(one, other), (other, one)] {
            cuts.remove(&(from.to_string(), to.to_string()));
        }
    }

    /// The link of a node of this network.
    pub(crate) fn link(&self, name: &str, incarnation: u64) -> MemoryLink {
        MemoryLink { network: self.shared.clone(), name: name.into(), incarnation }
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = lock(&self.shared);
        let nodes: Vec<_> = network.ends.iter().map(|end| end.name.clone()).collect();
        f.debug_struct("MemoryNetwork").field("nodes", &nodes).field("cuts", &network.cuts).finish()
    }
}

/// The link of one node.
pub(crate) struct MemoryLink {
    network: Arc<Mutex<Network>>,
    name: Arc<str>,
    incarnation: u64,
}

impl Link for MemoryLink {
    fn open(&self, upward: Arc<dyn Upward>) -> Result<(), LinkError> {
        let mut network = lock(&self.network);
        if network.ends.iter().any(|end| end.incarnation == self.incarnation) {
            return Err(BoxError::from("a node of this incarnation is in the network already").into());
        }
        // Under the lock, so that each node gets the reports of all others in their order.
        for end in &network.ends {
            if let Some(other) = end.upward.upgrade() {
                other.seen(&self.name, self.incarnation);
                upward.seen(&end.name, end.incarnation);
            }
        }
        let (name, incarnation) = (self.name.clone(), self.incarnation);
        network.ends.push(End { name, incarnation, upward: Arc::downgrade(&upward) });
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let receivers: Vec<_> = {
            let network = lock(&self.network);
            let is_cut = !network.cuts.is_empty() && network.cuts.contains(&(self.name.to_string(), to.to_string()));
            let is_open = network.ends.iter().any(|end| end.incarnation == self.incarnation);
            let named = |end: &&End| *end.name == *to && end.incarnation != self.incarnation && is_open && !is_cut;
            network.ends.iter().filter(named).filter_map(|end| end.upward.upgrade()).collect()
        };
        for receiver in receivers {
            receiver.frame(&self.name, frame.to_vec());
        }
    }

    fn close(&self) {
        let mut network = lock(&self.network);
        let before = network.ends.len();
        network.ends.retain(|end| end.incarnation != self.incarnation);
        if network.ends.len() < before {
            for other in network.ends.iter().filter_map(|end| end.upward.upgrade()) {
                other.gone(&self.name, self.incarnation);
            }
        }
    }
}
