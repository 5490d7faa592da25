//! The nodes of a world, and the frames between them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use crate::cluster::link::Upward;
use crate::primitives::{Arc, Weak};

/// The nodes of a world, and the frames on their way.
#[derive(Default)]
pub(super) struct Network {
    pub(super) ends: Vec<End>,
    /// The nodes by the names of their cluster and their own, in the order of their first start.
    pub(super) names: Vec<(Arc<str>, Arc<str>)>,
    /// The pairs of names between which frames are lost, from and to, and until when.
    pub(super) cuts: BTreeMap<(String, String), Option<Instant>>,
    /// The frames on their way, by the numbers of the names: from, to.
    pub(super) on_the_way: BTreeMap<(usize, usize), OnTheWay>,
    pub(super) draws: u64,
}

#[derive(Default)]
pub(super) struct OnTheWay {
    pub(super) frames: VecDeque<Vec<u8>>,
    /// No frame arrives before this moment.
    pub(super) last: Option<Instant>,
}

#[derive(Clone)]
pub(super) struct End {
    pub(super) cluster: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) incarnation: u64,
    /// The number of its runtime.
    pub(super) runtime: usize,
    pub(super) upward: Weak<dyn Upward>,
}

impl Network {
    /// The number of a node.
    pub(super) fn number(&mut self, cluster: &Arc<str>, name: &str) -> usize {
        self.names.iter().position(|known| (&known.0, &*known.1) == (cluster, name)).unwrap_or_else(|| {
            self.names.push((cluster.clone(), name.into()));
            self.names.len() - 1
        })
    }

    /// Takes a node out. Returns the others of its cluster.
    pub(super) fn remove(&mut self, incarnation: u64) -> Vec<Weak<dyn Upward>> {
        let Some(at) = self.ends.iter().position(|end| end.incarnation == incarnation) else { return Vec::new() };
        let gone = self.ends.remove(at);
        self.ends.iter().filter(|end| end.cluster == gone.cluster).map(|end| end.upward.clone()).collect()
    }
}
