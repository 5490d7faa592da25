//! The calls of a program about groups and names of the whole cluster.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::time::SystemTime;

use super::Cluster;
use crate::cluster::connection::Connection;
use crate::cluster::groups::{Claim, ClusterNameError, GroupMember, Groups, MemberEvents};
use crate::cluster::node::Node;
use crate::cluster::unique::UniqueClaim;
use crate::pid::{Address, Pid};
use crate::primitives::Arc;
use crate::process::host::Host as _;
use crate::process::{NoSuchProcessError, Target};
use crate::router::rendezvous::hash_of;
use crate::runtime::Core;

impl Cluster {
    /// Adds a process of this node to a group of the whole cluster, under a label.
    ///
    /// All nodes that are connected see it at once. It leaves the group when it ends, and when its node is down. A call
    /// within a step takes effect at once, also if the step fails.
    ///
    /// A process may be in many groups, and in one group under several labels. [`pick`](Self::pick) gives the keys of a
    /// group to labels. So use labels that a process has again when it is restarted.
    ///
    /// # Errors
    /// See [`ClusterNameError`]. A process of another node joins on its own node.
    ///
    /// ```
    /// # use procession::cluster::{Cluster, MemoryNetwork, Wire};
    /// # use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult, remote};
    /// # use serde::{Deserialize, Serialize};
    /// # use std::time::Duration;
    /// #[derive(Serialize, Deserialize)]
    /// enum Count { Add(String), Read(Reply<u64>) }
    /// remote!(Count, "demo::Count", 1);
    ///
    /// struct Shard(u64);
    ///
    /// impl Process for Shard {
    ///     type Message = Count;
    ///     type Output = ();
    ///
    ///     fn step(&mut self, events: &mut Events<'_, Count>, out: &mut StepOutput) -> StepResult<()> {
    ///         for event in events {
    ///             match event {
    ///                 Event::Message(Count::Add(_)) => self.0 += 1,
    ///                 Event::Message(Count::Read(reply)) => out.reply(reply, self.0),
    ///                 _ => {}
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
    /// let mut changes = a.group_events("counters");
    /// a.join_group("counters", "a/0", &here.spawn(Shard(0))?)?;
    /// b.join_group("counters", "b/0", &there.spawn(Shard(0))?)?;
    ///
    /// changes.recv_timeout(limit)?;
    /// changes.recv_timeout(limit)?;
    /// for key in ["one", "two", "three"] {
    ///     let shard = a.pick::<Count>("counters", key).ok_or("there is a member")?;
    ///     here.send(shard, Count::Add(key.into()))?;
    /// }
    /// let mut counted = 0;
    /// for member in a.group_members("counters") {
    ///     counted += here.ask(member.pid.typed(), Count::Read, limit).wait()?;
    /// }
    /// assert_eq!(counted, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join_group(&self, group: &str, label: &str, target: impl Target) -> Result<(), ClusterNameError> {
        let (node, core, pid) = self.own_process(&target)?;
        node.groups().join(&core, (group, label), pid)
    }

    /// Removes a process of this node from a group of the whole cluster, with all its labels. Returns whether it was in
    /// the group.
    pub fn leave_group(&self, group: &str, target: impl Target) -> bool {
        self.own_process(&target).is_ok_and(|(node, _, pid)| node.groups().leave(group, pid))
    }

    /// The members of a group of the whole cluster, by label: those of this node, and of all nodes that are connected.
    pub fn group_members(&self, group: &str) -> Vec<GroupMember> {
        self.groups().map_or_else(Vec::new, |groups| groups.members(group))
    }

    /// Subscribes to the changes of a group of the whole cluster.
    pub fn group_events(&self, group: &str) -> MemberEvents {
        self.groups().map_or_else(MemberEvents::none, |groups| groups.subscribe(group))
    }

    /// The member of a group that has this key. `None` if the group has no members.
    ///
    /// Nodes that see the same members pick the same one. Each label has the same share of the keys, and it keeps its
    /// keys when a process leaves and another one joins under it. When the last member with a label leaves, only the
    /// keys of that label move.
    ///
    /// This is a look-up in a table of this node. Two nodes may differ for a moment after a change, and as long as they
    /// are not connected. The type of the messages is checked at delivery.
    pub fn pick<M>(&self, group: &str, key: &(impl Hash + ?Sized)) -> Option<Address<M>> {
        self.groups()?.pick(group, hash_of(key)).map(Pid::typed)
    }

    /// Sends a message to each process in a group of the whole cluster, also to those of other nodes. A process that is
    /// a member under several labels gets it once. Returns the number of processes of this node that have accepted it,
    /// and of processes of other nodes to which it was sent.
    ///
    /// It costs one frame for each node, unless the copies for the processes of a node have more than 16 MiB. The
    /// message is not sent to a node if 8 MiB of messages wait for it, if the node does not take its type, or if the
    /// message has a [`Reply`](crate::Reply). It is cloned for each process of this node. If a clone panics, this call
    /// panics.
    pub fn broadcast<M: Clone + Send + 'static>(&self, group: &str, message: M) -> usize {
        let Some((node, core)) = self.members.node().and_then(|node| node.core().map(|core| (node, core))) else {
            return 0;
        };
        // In the order of their nodes.
        let members: BTreeSet<Pid> = node.groups().members(group).into_iter().map(|member| member.pid).collect();
        let members: Vec<Pid> = members.into_iter().collect();
        let send = |to: &[Pid]| match to.first() {
            Some(first) if first.node() == node.number() => {
                to.iter().filter(|to| core.road.send(**to, message.clone()).is_ok()).count()
            }
            _ => node.broadcast(to, &message),
        };
        members.chunk_by(|one, other| one.node() == other.node()).map(send).sum()
    }

    /// Claims a shared name for a process of this node. The process has the name until it is released, or the process
    /// ends, or the claim is [lost](Claim).
    ///
    /// A shared name is always available: also on a node that is cut off from the others. So two nodes that are not
    /// connected, or claim it at the same moment, may each have a holder. When they are connected, the earlier claim
    /// counts, by the clocks of the two nodes. The other process is told once, by its [`Claim`].
    ///
    /// A call within a step takes effect at once, also if the step fails.
    ///
    /// # Errors
    /// See [`ClusterNameError`]. A process of another node claims names on its own node.
    pub fn claim(&self, name: &str, target: impl Target) -> Result<Claim, ClusterNameError> {
        let (node, core, pid) = self.own_process(&target)?;
        let since = core.system_time().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        node.groups().claim(&core, name, (pid, since.as_micros() as u64))
    }

    /// Releases a shared name that a process of this node has claimed. Returns whether the process had claimed it.
    pub fn release(&self, name: &str, target: impl Target) -> bool {
        self.own_process(&target).is_ok_and(|(node, _, pid)| node.groups().release(name, pid))
    }

    /// The process that has a shared name, as far as this node knows.
    pub fn holder(&self, name: &str) -> Option<Pid> {
        self.groups()?.holder(name)
    }

    /// Claims a unique name for a process of this node. The name has at most one holder, also while the network is cut.
    ///
    /// A majority of the [voters](crate::cluster::ClusterBuilder::voters) decides. The claim waits until the name is
    /// free, and behind earlier claims. Then the process holds the name until it is released, the process ends, or the
    /// node loses the majority of the voters. In the last case the process is terminated with
    /// [`Reason::NameLost`](crate::Reason::NameLost) 2.75 to 4.25 s later. No step of it begins after that, even if its
    /// program was stopped and goes on. Then another process can have the name. So supervise the process, and claim the
    /// name for each new one. A process that [recovers](crate::Process::recover) keeps the name. To notify a process of
    /// the loss, link it to the holder of the name, and let it trap exits.
    ///
    /// The claim resolves with a token, which is greater than those of all earlier holdings. A step that has begun is
    /// not interrupted when the name is lost, and jobs, commands and `close` may begin later. So send the token along
    /// with what must not be done twice, and let the receiver refuse a token that is smaller than one that it has seen.
    ///
    /// `docs/cluster.md` of the repository has the conditions: the clocks of all nodes run at rates that differ by less
    /// than 5 %, and go on while a program is stopped. This is not so for a machine that is suspended.
    ///
    /// A claim that cannot reach a majority for 5 s ends with
    /// [`UniqueClaimEnd::NoMajority`](crate::cluster::UniqueClaimEnd::NoMajority). A process has one claim to a name: a
    /// second call returns the first claim.
    ///
    /// # Errors
    /// See [`ClusterNameError`]. A process of another node claims names on its own node.
    ///
    /// ```no_run
    /// # use procession::cluster::{Cluster, MemoryNetwork, Wire};
    /// # use procession::{Events, Process, Runtime, Step, StepOutput, StepResult};
    /// # use std::time::Duration;
    /// # struct Ledger;
    /// # impl Process for Ledger {
    /// #     type Message = ();
    /// #     type Output = ();
    /// #     fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
    /// #         events.for_each(drop);
    /// #         Ok(Step::Idle)
    /// #     }
    /// # }
    /// # let (network, limit) = (MemoryNetwork::new(), Duration::from_secs(60));
    /// let runtime = Runtime::start()?;
    /// let node = Cluster::named("a", Wire::new()).memory(&network).voters(["a"]).start(&runtime)?;
    /// let ledger = runtime.spawn(Ledger)?;
    ///
    /// let claim = node.claim_unique("ledger", &ledger)?;
    /// let token = claim.wait_timeout(limit)??;
    /// assert!(token > 0);
    /// assert_eq!(node.unique_holder("ledger"), Some(ledger.pid()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claim_unique(&self, name: &str, target: impl Target) -> Result<UniqueClaim, ClusterNameError> {
        let (node, core, pid) = self.own_process(&target)?;
        node.unique().claim(&core, name, pid)
    }

    /// Releases a unique name that a process of this node has claimed, or holds. Returns whether there was a claim.
    ///
    /// The process is not notified, and goes on. So call this in the holder, or after the holder knows of it.
    pub fn release_unique(&self, name: &str, target: impl Target) -> bool {
        self.own_process(&target).is_ok_and(|(node, _, pid)| node.unique().release(name, pid))
    }

    /// The process that holds a unique name, as far as this node knows.
    ///
    /// `None` if no process holds it, and if this node is not connected to that of the holder. The process may have
    /// lost the name less than 2 s ago. If this program was stopped and goes on, that may be longer ago.
    pub fn unique_holder(&self, name: &str) -> Option<Pid> {
        self.groups()?.unique_holder(name)
    }

    fn groups(&self) -> Option<Arc<Groups<Connection>>> {
        Some(self.members.node()?.groups().clone())
    }

    /// The process at a target, which must live on this node.
    fn own_process(&self, target: &impl Target) -> Result<(Arc<Node>, Arc<Core>, Pid), ClusterNameError> {
        let node = self.members.node().ok_or(ClusterNameError::Left)?;
        let core = node.core().ok_or(NoSuchProcessError::RuntimeEnded)?;
        let pid = core.resolve(target)?;
        if pid.node() == node.number() {
            return Ok((node, core, pid));
        }
        Err(match node.owner(pid) {
            Some(Some(incarnation)) => {
                let up = self.nodes().into_iter().find(|up| up.incarnation() == incarnation);
                let of_name = |up: super::NodeIdentity| format!("the node {:?}", up.name());
                ClusterNameError::OtherNode { pid, node: up.map_or_else(|| "a node that is down".into(), of_name) }
            }
            Some(None) => ClusterNameError::Durable(pid),
            None => NoSuchProcessError::Pid(pid).into(),
        })
    }

    /// Stops the work of this node on unique names, or has it go on, as if its program was stopped.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn stop_names(&self, is_stopped: bool) {
        self.members.node().unwrap().unique().stop(is_stopped);
    }

    /// Spoils the table of this node: a member of another node is dropped, and one is invented. Returns the label of
    /// the dropped one.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn spoil(&self, group: &str, of: &super::NodeIdentity, invented: &str) -> String {
        self.groups().unwrap().spoil(of.incarnation(), group, invented)
    }
}
