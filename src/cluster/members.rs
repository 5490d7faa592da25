//! The peers of a node, as its link reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::driver::{Parts, PeerDriver};
use super::events::NodeWatch;
use super::link::{CLOSE, Link, Upward, is_name};
use super::member::{Bells, Member, PeerCounts};
use super::node::{Leave, Node};
use super::peer::{Difference, Identity, Refusal};
use super::simulated::{NodeHost, Turns as _, WorldBells};
use crate::clock::{Clock, Deadline};
use crate::outcome::tell_log;
use crate::pool::Parker;
use crate::primitives::{Arc, Mutex, Weak, lock};
use crate::runtime::PeerStats;

/// The most names of peers that are known at once.
const MOST: usize = 1_024;

/// How long a node that leaves waits until its peers have everything, by the system's clock.
const DRAIN: Duration = Duration::from_millis(400);

/// How long it waits for its threads then.
const EXIT: Duration = Duration::from_millis(150);

/// A node leaves within a second of the end of its processes, also beside a peer that stands still.
const _: () = assert!(DRAIN.as_millis() + EXIT.as_millis() + CLOSE.as_millis() <= 1_000);

/// The peers of a node.
pub(super) struct Members {
    here: Identity,
    node: Weak<Node>,
    link: Arc<dyn Link>,
    clock: Clock,
    /// The start of the time of all connections.
    start: Instant,
    nonce: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The world of a simulation.
    world: Option<Arc<dyn NodeHost>>,
    pub(super) watch: Arc<NodeWatch>,
    known: Mutex<Known>,
    /// Woken by the in threads while the node leaves.
    quiet: Parker,
}

#[derive(Default)]
struct Known {
    members: BTreeMap<Arc<str>, Arc<Member>>,
    /// The counts of members that were removed, so that they never go down. Each of these members was up once. So there
    /// are no more than lives, of which a node sees 16,383.
    removed: BTreeMap<Arc<str>, PeerCounts>,
    /// The nodes of other clusters that subscribers were told of: the names of the cluster and of the node.
    foreign: BTreeSet<(String, String)>,
    /// Whether the log says that there are too many nodes.
    is_full: bool,
    has_left: bool,
}

impl Members {
    pub(super) fn new(
        here: Identity,
        node: &Arc<Node>,
        (link, world): (Arc<dyn Link>, Option<Arc<dyn NodeHost>>),
        clock: Clock,
        nonce: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Arc<Members> {
        let watch = node.node_watch().clone();
        let reports = watch.clone();
        node.limits().report_to(Box::new(move |peer, why| reports.limit_reached(peer, why)));
        let (node, known, quiet) = (Arc::downgrade(node), Mutex::default(), Parker::new());
        let start = clock.now();
        Arc::new(Members { here, node, link, clock, start, nonce, world, watch, known, quiet })
    }

    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.node.upgrade()
    }

    /// Whether there are threads for the peer of this name.
    #[cfg(all(test, not(loom)))]
    pub(super) fn runs(&self, name: &str) -> bool {
        self.member(name).is_some_and(|member| member.is_running())
    }

    /// Whether there are more peers than these.
    #[cfg(all(test, not(loom)))]
    pub(super) fn has_more_than(&self, count: usize) -> bool {
        lock(&self.known).members.len() > count
    }

    fn member(&self, name: &str) -> Option<Arc<Member>> {
        lock(&self.known).members.get(name).cloned()
    }

    /// The counts of all known peers, by name.
    pub(super) fn stats(&self) -> Vec<PeerStats> {
        let members: Vec<Arc<Member>> = lock(&self.known).members.values().cloned().collect();
        let up: BTreeSet<String> = self.watch.nodes().iter().map(|node| node.name().to_string()).collect();
        members.iter().map(|member| member.stats(up.contains(member.name()))).collect()
    }

    /// The member of this name. It is made if there is none, and room for it.
    fn member_or_new(&self, known: &mut Known, name: &str) -> Option<Arc<Member>> {
        if let Some(member) = known.members.get(name) {
            return Some(member.clone());
        }
        if known.has_left {
            return None;
        }
        if known.members.len() >= MOST {
            let gone = known.members.iter().find(|(_, member)| member.is_over()).map(|(name, _)| name.clone());
            let (name, member) = known.members.remove_entry(&gone?)?;
            known.removed.extend(member.counts().map(|counts| (name, counts)));
            known.is_full = false;
        }
        let name: Arc<str> = name.into();
        let bells = match &self.world {
            None => Bells::of_threads(self.quiet.clone()),
            Some(world) => {
                let names = (self.here.name.as_str().into(), name.clone());
                Bells::World(WorldBells::new(world.clone(), names, self.clock.clone()))
            }
        };
        let nonce = self.nonce.clone();
        let parts = Parts {
            here: self.here.clone(),
            name: name.clone(),
            watch: self.watch.clone(),
            clock: self.clock.clone(),
            start: self.start,
            nonce: Box::new(move || nonce()),
            wake: bells.wakes(),
        };
        let driver = PeerDriver::new(self.node.clone(), parts);
        let member = Member::new(name.clone(), (driver, bells), self.link.clone(), self.clock.clone());
        known.removed.remove(&name).into_iter().for_each(|counts| member.go_on_from(counts));
        known.members.insert(name, member.clone());
        Some(member)
    }
}

impl Upward for Members {
    fn seen(&self, name: &str, incarnation: u64) {
        if incarnation == self.here.incarnation || !is_name(name) {
            return;
        }
        let mut known = lock(&self.known);
        // Under the lock, so that the member is not removed in between.
        let seen = self.member_or_new(&mut known, name).map(|member| (member.seen(incarnation), member));
        let is_new_limit = seen.is_none() && !known.has_left && !std::mem::replace(&mut known.is_full, true);
        drop(known);
        match seen {
            Some((begun, member)) => member.tell(begun),
            None if is_new_limit => tell_log(|| {
                tracing::error!(peer = name, limit = MOST, "there are too many nodes: no others are connected")
            }),
            None => {}
        }
    }

    fn foreign(&self, cluster: &str, name: &str) {
        if !is_name(cluster) || !is_name(name) {
            return;
        }
        let is_new = {
            let known = &mut *lock(&self.known);
            !known.has_left && known.foreign.len() < MOST && known.foreign.insert((cluster.into(), name.into()))
        };
        if is_new {
            let refusal = Refusal::new(Difference::Cluster, &self.here.cluster, cluster);
            tell_log(|| tracing::warn!(peer = name, %refusal, "a connection was refused"));
            self.watch.refused(name, &refusal);
        }
    }

    fn gone(&self, name: &str, incarnation: u64) {
        if let Some(member) = self.member(name) {
            member.gone(incarnation);
        }
    }

    fn frame(&self, from: &str, frame: Vec<u8>) {
        if let Some(member) = self.member(from) {
            member.frame(frame);
        }
    }
}

impl Members {
    /// No peer is added any more. Returns those that there are, unless the node has left before.
    fn close(&self) -> Option<Vec<Arc<Member>>> {
        let mut known = lock(&self.known);
        let has_left = std::mem::replace(&mut known.has_left, true);
        (!has_left).then(|| known.members.values().cloned().collect())
    }

    /// Ends the connections without a wait.
    fn end(&self, members: &[Arc<Member>]) {
        for member in members {
            member.leave();
            if self.world.is_some() {
                member.turn_out();
                while member.turn_in() {}
            }
        }
        self.link.close();
        self.watch.close();
    }
}

impl Leave for Members {
    fn leave(&self, clock: &Clock, deadline: Deadline) {
        let Some(members) = self.close() else { return };
        if let Some(world) = clock.driver() {
            // The world goes on in the meantime. It has no threads to wait for.
            let is_drained = || members.iter().all(|member| member.driver.is_drained());
            world.drive(&mut || is_drained() || deadline.has_passed(clock), clock.deadline(DRAIN));
            return self.end(&members);
        }
        // By the system's clock, because a program might not move a manual one.
        let patience = Clock::system();
        let drained = patience.deadline(DRAIN);
        // A manual clock rings when it is moved. The system's has the earlier of the two moments.
        let _watch = self.quiet.watch(clock);
        let drained = match (drained, deadline) {
            (Deadline(Some(drained)), Deadline(Some(at))) if !clock.is_manual() => Deadline(Some(drained.min(at))),
            _ => drained,
        };
        members.iter().for_each(|member| member.announce_leave());
        while !members.iter().all(|member| member.driver.is_drained()) {
            if drained.has_passed(&patience) || deadline.has_passed(clock) {
                break;
            }
            self.quiet.park(&patience, drained);
        }
        let left: Vec<_> = members.iter().flat_map(|member| member.leave()).collect();
        let exited = patience.deadline(EXIT);
        let late = left.iter().filter(|left| !left.wait_until(&patience, exited)).count();
        if late > 0 {
            tell_log(|| tracing::warn!(threads = late, "threads of connections did not exit in time"));
        }
        self.link.close();
        self.watch.close();
    }

    fn leave_at_once(&self) {
        if let Some(members) = self.close() {
            self.end(&members);
        }
    }
}
