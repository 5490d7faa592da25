//! The link between nodes of one program.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use super::link::{Link, LinkError, Upward, note_call};
use crate::outcome::{BoxError, contain, tell_log};
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
    /// The reports that were not made, the earliest first.
    reports: VecDeque<Report>,
    /// Whether a thread makes them.
    is_reporting: bool,
}

/// A report to a node.
struct Report {
    to: Weak<dyn Upward>,
    of: Named,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Seen,
    Gone,
    Foreign,
}

/// A node, as others see it.
#[derive(Clone)]
struct Named {
    cluster: Arc<str>,
    name: Arc<str>,
    incarnation: u64,
}

struct End {
    node: Named,
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
    pub(crate) fn link(&self, (cluster, name): (&str, &str), incarnation: u64) -> MemoryLink {
        let here = Named { cluster: cluster.into(), name: name.into(), incarnation };
        MemoryLink { network: self.shared.clone(), here }
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = lock(&self.shared);
        let nodes: Vec<_> = network.ends.iter().map(|end| end.node.name.clone()).collect();
        f.debug_struct("MemoryNetwork").field("nodes", &nodes).field("cuts", &network.cuts).finish()
    }
}

/// The link of one node.
pub(crate) struct MemoryLink {
    network: Arc<Mutex<Network>>,
    here: Named,
}

impl Network {
    fn report(&mut self, to: &Weak<dyn Upward>, of: &Named, what: What) {
        self.reports.push_back(Report { to: to.clone(), of: of.clone(), what });
    }
}

impl MemoryLink {
    /// Makes all reports, in their order. They may run user code, so no lock is held. Another thread that reports, or a
    /// call further down on this one, makes them all.
    fn report(&self) {
        if std::mem::replace(&mut lock(&self.network).is_reporting, true) {
            return;
        }
        loop {
            let Report { to, of, what } = {
                let network = &mut *lock(&self.network);
                let Some(report) = network.reports.pop_front() else {
                    network.is_reporting = false;
                    return;
                };
                report
            };
            let Some(to) = to.upgrade() else { continue };
            let made = contain(|| match what {
                What::Seen => to.seen(&of.name, of.incarnation),
                What::Gone => to.gone(&of.name, of.incarnation),
                What::Foreign => to.foreign(&of.cluster, &of.name),
            });
            if let Err(panic) = made {
                tell_log(|| tracing::error!(peer = &*of.name, %panic, "a report of the network panicked"));
            }
        }
    }
}

impl Link for MemoryLink {
    fn open(&self, upward: Arc<dyn Upward>) -> Result<(), LinkError> {
        note_call();
        {
            let network = &mut *lock(&self.network);
            if network.ends.iter().any(|end| end.node.incarnation == self.here.incarnation) {
                return Err(BoxError::from("a node of this incarnation is in the network already").into());
            }
            let upward = Arc::downgrade(&upward);
            let ends = std::mem::take(&mut network.ends);
            for End { node, upward: other } in &ends {
                let what = if node.cluster == self.here.cluster { What::Seen } else { What::Foreign };
                network.report(other, &self.here, what);
                network.report(&upward, node, what);
            }
            network.ends = ends;
            network.ends.push(End { node: self.here.clone(), upward });
        }
        self.report();
        Ok(())
    }

    fn send(&self, to: &str, frame: &[u8]) {
        note_call();
        let receivers: Vec<_> = {
            let network = lock(&self.network);
            let Named { cluster, name, incarnation } = &self.here;
            let is_cut = !network.cuts.is_empty() && network.cuts.contains(&(name.to_string(), to.to_string()));
            let is_open = network.ends.iter().any(|end| end.node.incarnation == *incarnation);
            let is_other = |node: &Named| *node.name == *to && node.cluster == *cluster;
            let named = |end: &&End| is_other(&end.node) && end.node.incarnation != *incarnation && is_open && !is_cut;
            network.ends.iter().filter(named).filter_map(|end| end.upward.upgrade()).collect()
        };
        for receiver in receivers {
            receiver.frame(&self.here.name, frame.to_vec());
        }
    }

    fn close(&self) {
        note_call();
        {
            let network = &mut *lock(&self.network);
            let before = network.ends.len();
            network.ends.retain(|end| end.node.incarnation != self.here.incarnation);
            let ends = std::mem::take(&mut network.ends);
            if ends.len() < before {
                let others = ends.iter().filter(|end| end.node.cluster == self.here.cluster);
                others.for_each(|end| network.report(&end.upward, &self.here, What::Gone));
            }
            network.ends = ends;
        }
        self.report();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
