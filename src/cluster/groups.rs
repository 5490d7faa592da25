//! Groups and shared names of the whole cluster: the table with its lock, the processes of this node that have
//! entries, and the subscribers.
//!
//! Each call changes the table, hands the shares to the connections, and puts the changes into the queues of the
//! subscribers, under one lock. So all have the same order. Wakers, and the watchers of processes, are left for the
//! moment when the lock is free.

pub(crate) mod entries;
pub(crate) mod table;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use self::entries::{Entry, LONGEST, Role};
use self::table::{Change, Effects, Loss, Share, Table, To};
use super::event_queue::{EventQueue, Publisher, Woken};
use super::leases::MOST;
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::latch::{Latch, LatchFuture};
use crate::outcome::BoxError;
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::NoSuchProcessError;
use crate::runtime::{Core, ExitWatcher};

/// A member of a group of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct GroupMember {
    /// Its label.
    pub label: String,
    /// Its process, which may live on another node.
    pub pid: Pid,
}

/// A change of a group of the whole cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A process is a member, under this label.
    Joined(GroupMember),
    /// A process is no member under this label any more: it has left, or has ended, or its node is down.
    Left(GroupMember),
}

/// Why a process is not a member of a group of the whole cluster, or has not claimed a shared or unique name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterNameError {
    /// The name of the group, its label, or the shared name, is empty or too long.
    #[error("the {what} has {length} bytes: choose one of 1 to {LONGEST} bytes")]
    Length {
        /// The text that was refused.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// The shared name has a holder.
    #[error("the shared name {name:?} is taken by {holder}")]
    Taken {
        /// The name.
        name: String,
        /// The process that has it.
        holder: Pid,
    },
    /// There is no process at the target.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The process lives on another node, and each node decides about its own processes.
    #[error("{pid} lives on {node}, not on this node: join and claim on that node")]
    OtherNode {
        /// The process.
        pid: Pid,
        /// Its node, by its name if it is connected.
        node: String,
    },
    /// The process is durable. A durable process cannot join a group of the whole cluster, or claim a shared name.
    #[error("{0} is a durable process, which cannot join a group of the whole cluster or claim a shared name")]
    Durable(Pid),
    /// The group members and claims of this node would take more than 8 MiB. That is about 16,000 with short names.
    #[error("this node has too many group members and claims: the limit is 8 MiB, about 16,000 with short names")]
    TooMany,
    /// There are no voters, so there is never a majority that grants a unique name.
    #[error("no majority can grant a unique name, because the cluster has no voters: see `ClusterBuilder::voters`")]
    NoMajority,
    /// This node has as many claims to unique names as it may have.
    #[error("this node has {MOST} claims to unique names, which is the limit: release one, or claim on another node")]
    TooManyClaims,
    /// This node shuts down, or has left the cluster.
    #[error("this node shuts down, or has left the cluster")]
    Left,
}

/// How a claim to a shared name has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimEnd {
    /// A process of another node has claimed the name earlier, while the two nodes were not connected or had not heard
    /// of each other's claims.
    Lost {
        /// The process that has the name.
        holder: Pid,
    },
    /// The claim was released, its process has ended, or its node has left the cluster.
    Released,
}

/// A claim to a shared name. Made by [`Cluster::claim`](super::Cluster::claim).
///
/// It is a future that resolves when the claim ends. A process that must know that it has lost the name passes it to
/// [`StepOutput::future`](crate::StepOutput::future). Dropping this value does not release the name.
#[derive(Debug)]
pub struct Claim {
    end: LatchFuture<ClaimEnd>,
    clock: Clock,
}

impl Claim {
    /// The end of the claim. `None` as long as the process has the name, as far as its node knows.
    pub fn end(&self) -> Option<ClaimEnd> {
        self.end.latch().get()
    }

    /// Blocks the calling thread until the claim has ended.
    ///
    /// # Errors
    /// The caller is a step.
    pub fn wait(&self) -> Result<ClaimEnd, WaitError> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits for at most `limit`.
    ///
    /// # Errors
    /// The limit is over, or the caller is a step.
    pub fn wait_timeout(&self, limit: Duration) -> Result<ClaimEnd, WaitError> {
        self.end.latch().join(&self.clock, limit)
    }
}

impl Future for Claim {
    type Output = ClaimEnd;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ClaimEnd> {
        Pin::new(&mut self.end).poll(context)
    }
}

/// The changes of a group of the whole cluster, from a snapshot on. Made by
/// [`Cluster::group_events`](super::Cluster::group_events).
///
/// The first events are one join for each present member. Then each join and each leave follows, once. Events of
/// processes of one node come in the order in which they happened.
///
/// Events are kept until they are taken. Drop this value if you no longer read it.
///
/// With the feature `stream` it is a stream. So a process can take the events as messages: see
/// [`StepOutput::stream`](crate::StepOutput::stream).
pub struct MemberEvents(EventQueue<MemberEvent>);

impl fmt::Debug for MemberEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("MemberEvents", f)
    }
}

impl MemberEvents {
    /// Makes the events of a node that has left: there are none.
    pub(super) fn none() -> MemberEvents {
        MemberEvents(Publisher::default().subscribe(&Clock::system(), VecDeque::new(), true))
    }

    /// Takes the next event, or waits for it. Returns `None` when this node has left the cluster.
    ///
    /// # Errors
    /// The caller is a step, which must not wait.
    pub fn recv(&mut self) -> Result<Option<MemberEvent>, WaitError> {
        self.recv_timeout(Duration::MAX)
    }

    /// As [`recv`](Self::recv), but waits for at most `limit`.
    ///
    /// # Errors
    /// The limit is over, or the caller is a step.
    pub fn recv_timeout(&mut self, limit: Duration) -> Result<Option<MemberEvent>, WaitError> {
        self.0.recv_timeout(limit)
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for MemberEvents {
    type Item = MemberEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<MemberEvent>> {
        self.0.poll_next(context)
    }
}

/// The connection to another node.
pub(crate) trait Shares: Send + Sync {
    /// Sends a share, behind those before it. If the connection is down, nothing happens.
    fn share(&self, share: &Share);
}

/// The groups and shared names of the whole cluster, as this node sees them.
pub(crate) struct Groups<C> {
    state: Mutex<State<C>>,
    clock: Clock,
}

struct State<C> {
    table: Table,
    /// The connections, by incarnation. It has a node if and only if the table has it.
    connections: BTreeMap<u64, Arc<C>>,
    /// The processes of this node that have entries.
    watchers: BTreeMap<Pid, ExitWatcher>,
    /// The claims of this node that have not ended, by name and process.
    claims: BTreeMap<(String, Pid), Latch<ClaimEnd>>,
    /// By group.
    publishers: BTreeMap<String, Publisher<MemberEvent>>,
    /// Whether processes of this node join no groups and claim no names any more.
    is_closed: bool,
    has_left: bool,
}

/// The calls and drops that wait until the lock is free.
#[derive(Default)]
struct Later {
    woken: Woken,
    ended: Vec<(Latch<ClaimEnd>, ClaimEnd)>,
    watchers: Vec<ExitWatcher>,
}

impl Later {
    fn carry_out(self) {
        self.woken.wake();
        self.ended.into_iter().for_each(|(latch, end)| _ = latch.set(end));
        drop(self.watchers);
    }
}

impl<C: Shares> State<C> {
    /// Adds an entry, unless another process has the name that it claims.
    fn enter(&mut self, entry: Entry, effects: &mut Effects) -> Result<Latch<ClaimEnd>, ClusterNameError> {
        let claim = matches!(entry.role, Role::Claimant { .. }).then(|| (entry.name.clone(), entry.pid));
        if self.is_closed || self.has_left {
            return Err(ClusterNameError::Left);
        }
        if let Some((name, pid)) = &claim
            && let Some(holder) = self.table.holder(name)
        {
            let own = self.claims.get(&(name.clone(), *pid)).filter(|_| holder == *pid);
            return own.cloned().ok_or(ClusterNameError::Taken { name: name.clone(), holder });
        }
        self.table.insert(entry, effects).map_err(|_| ClusterNameError::TooMany)?;
        let latch = Latch::new();
        self.claims.extend(claim.map(|claim| (claim, latch.clone())));
        Ok(latch)
    }

    /// Sends the shares, and tells those who are to be told.
    fn carry_out(&mut self, effects: Effects, later: &mut Later) {
        for (to, share) in effects.shares {
            match to {
                To::All => self.connections.values().for_each(|connection| connection.share(&share)),
                To::One(peer) => self.connections.get(&peer).into_iter().for_each(|one| one.share(&share)),
            }
        }
        for Loss { name, pid, holder } in effects.lost {
            let claim = self.claims.remove(&(name, pid));
            later.ended.extend(claim.map(|claim| (claim, ClaimEnd::Lost { holder })));
        }
        for Change { entry: Entry { name, role, pid }, is_there } in effects.changes {
            if !is_there && !self.table.has(pid) {
                later.watchers.extend(self.watchers.remove(&pid));
            }
            match role {
                Role::Member { label } => {
                    let member = GroupMember { label, pid };
                    let event = if is_there { MemberEvent::Joined(member) } else { MemberEvent::Left(member) };
                    if let Some(publisher) = self.publishers.get(&name) {
                        publisher.tell(&event, &mut later.woken);
                    }
                }
                Role::Claimant { .. } if !is_there => {
                    let claim = self.claims.remove(&(name, pid));
                    later.ended.extend(claim.map(|claim| (claim, ClaimEnd::Released)));
                }
                Role::Claimant { .. } | Role::Holder { .. } => {}
            }
        }
    }
}

impl<C: Shares + 'static> Groups<C> {
    pub(crate) fn new(here: u64, clock: Clock) -> Groups<C> {
        let (connections, watchers, claims, publishers) = Default::default();
        let (table, is_closed, has_left) = (Table::new(here), false, false);
        let state = State { table, connections, watchers, claims, publishers, is_closed, has_left };
        Groups { state: Mutex::new(state), clock }
    }

    /// Changes the table, and carries out the effects.
    fn change<R>(&self, change: impl FnOnce(&mut State<C>, &mut Effects, &mut Later) -> R) -> R {
        let (result, later) = self.change_and_leave(change);
        later.carry_out();
        result
    }

    /// As `change`. Returns the calls that may run code of users.
    fn change_and_leave<R>(&self, change: impl FnOnce(&mut State<C>, &mut Effects, &mut Later) -> R) -> (R, Later) {
        let (mut effects, mut later) = (Effects::default(), Later::default());
        let state = &mut *lock(&self.state);
        let result = change(state, &mut effects, &mut later);
        state.carry_out(effects, &mut later);
        (result, later)
    }

    /// Adds an entry of a process of this node, which is removed when the process ends. Returns the latch of the claim,
    /// if it is one.
    fn enter(self: &Arc<Self>, core: &Core, entry: Entry) -> Result<Latch<ClaimEnd>, ClusterNameError> {
        let pid = entry.pid;
        if !core.road.is_alive(pid) {
            return Err(NoSuchProcessError::Pid(pid).into());
        }
        let watcher = core.watch(&pid);
        let ended = watcher.latch().clone();
        let (latch, is_watched) = self.change(|state, effects, later| {
            // Not dropped under the lock, whatever comes.
            later.watchers.push(watcher);
            let latch = state.enter(entry, effects)?;
            let watcher = if state.watchers.contains_key(&pid) { None } else { later.watchers.pop() };
            let is_watched = watcher.is_some();
            state.watchers.extend(watcher.map(|watcher| (pid, watcher)));
            Ok::<_, ClusterNameError>((latch, is_watched))
        })?;
        if is_watched {
            // If it has ended in between, its entries are removed now.
            let me = Arc::downgrade(self);
            ended.on_set(move |_| me.upgrade().into_iter().for_each(|me| _ = me.remove(pid, |_| true))).keep();
        }
        Ok(latch)
    }

    /// Has a process of this node join a group.
    pub(crate) fn join(
        self: &Arc<Self>,
        core: &Core,
        (group, label): (&str, &str),
        pid: Pid,
    ) -> Result<(), ClusterNameError> {
        check_length("name of the group", group)?;
        check_length("label", label)?;
        let entry = Entry { name: group.into(), role: Role::Member { label: label.into() }, pid };
        self.enter(core, entry).map(drop)
    }

    /// Has a process of this node claim a name, at this time.
    pub(crate) fn claim(
        self: &Arc<Self>,
        core: &Core,
        name: &str,
        (pid, since): (Pid, u64),
    ) -> Result<Claim, ClusterNameError> {
        check_length("name", name)?;
        let entry = Entry { name: name.into(), role: Role::Claimant { since }, pid };
        let end = LatchFuture::new(self.enter(core, entry)?);
        Ok(Claim { end, clock: self.clock.clone() })
    }

    fn remove(&self, pid: Pid, matches: impl Fn(&Entry) -> bool) -> bool {
        self.change(|state, effects, _| state.table.remove(pid, matches, effects))
    }

    /// Has a process leave a group. Returns whether it was a member.
    pub(crate) fn leave(&self, group: &str, pid: Pid) -> bool {
        self.remove(pid, |entry| entry.name == group && matches!(entry.role, Role::Member { .. }))
    }

    /// Releases a name. Returns whether this process of this node had claimed it.
    pub(crate) fn release(&self, name: &str, pid: Pid) -> bool {
        self.remove(pid, |entry| entry.name == name && matches!(entry.role, Role::Claimant { .. }))
    }

    /// The members of a group, by label.
    pub(crate) fn members(&self, group: &str) -> Vec<GroupMember> {
        let member = |(label, pid): (&str, Pid)| GroupMember { label: label.into(), pid };
        let mut members: Vec<GroupMember> = lock(&self.state).table.members(group).map(member).collect();
        members.sort_by(|one, other| one.label.cmp(&other.label));
        members
    }

    /// The member of a group that has this key.
    pub(crate) fn pick(&self, group: &str, key: u64) -> Option<Pid> {
        lock(&self.state).table.pick(group, key)
    }

    /// The process that has a shared name.
    pub(crate) fn holder(&self, name: &str) -> Option<Pid> {
        lock(&self.state).table.holder(name)
    }

    /// A process of this node holds a unique name now. Returns whether there is room to tell others.
    pub(super) fn holds(&self, name: &str, pid: Pid, token: u64) -> bool {
        let entry = Entry { name: name.into(), role: Role::Holder { token }, pid };
        self.change(|state, effects, _| state.has_left || state.table.insert(entry, effects).is_ok())
    }

    /// A process of this node does not hold a unique name any more.
    pub(super) fn holds_no_more(&self, name: &str, pid: Pid) {
        self.remove(pid, |entry| entry.name == name && matches!(entry.role, Role::Holder { .. }));
    }

    /// The process that holds a unique name.
    pub(crate) fn unique_holder(&self, name: &str) -> Option<Pid> {
        lock(&self.state).table.unique_holder(name)
    }

    /// Subscribes to the changes of a group.
    pub(crate) fn subscribe(&self, group: &str) -> MemberEvents {
        let state = &mut *lock(&self.state);
        state.publishers.retain(|_, publisher| publisher.tidy());
        let member = |(label, pid): (&str, Pid)| MemberEvent::Joined(GroupMember { label: label.into(), pid });
        let events = state.table.members(group).map(member).collect();
        let publisher = state.publishers.entry(group.into()).or_default();
        MemberEvents(publisher.subscribe(&self.clock, events, state.has_left))
    }

    /// A node is connected.
    pub(crate) fn up(&self, peer: u64, connection: &Arc<C>) {
        self.change(|state, effects, _| {
            state.connections.insert(peer, connection.clone());
            state.table.up(peer, effects);
        });
    }

    /// This connection to a node is down.
    pub(crate) fn down(&self, peer: u64, connection: &Arc<C>) {
        self.change(|state, effects, _| {
            if state.connections.get(&peer).is_some_and(|up| Arc::ptr_eq(up, connection)) {
                state.connections.remove(&peer);
                state.table.down(peer, effects);
            }
        });
    }

    /// Tells a node the digest of the entries of this one.
    pub(crate) fn compare(&self, peer: u64) {
        self.change(|state, effects, _| state.table.compare(peer, effects));
    }

    /// Takes a share of another node.
    pub(crate) fn receive(&self, peer: u64, share: Share) -> Result<(), BoxError> {
        self.change(|state, effects, _| state.table.receive(peer, share, effects))
    }

    /// This node begins to shut down. Its processes leave their groups and shared names, and get no new ones. The
    /// holders of unique names keep them until they end. Returns the calls that may run code of users.
    pub(crate) fn close(&self) -> impl FnOnce() + Send + use<C> {
        let ((), later) = self.change_and_leave(|state, effects, _| {
            state.is_closed = true;
            state.table.remove_all(|entry| !matches!(entry.role, Role::Holder { .. }), effects);
        });
        move || later.carry_out()
    }

    /// This node has left the cluster.
    pub(crate) fn left(&self) {
        self.change(|state, _, later| {
            state.has_left = true;
            state.publishers.values().for_each(|publisher| publisher.close(&mut later.woken));
            later.watchers.extend(std::mem::take(&mut state.watchers).into_values());
            let claims = std::mem::take(&mut state.claims).into_values();
            later.ended.extend(claims.map(|claim| (claim, ClaimEnd::Released)));
        });
    }
}

#[cfg(all(test, not(loom)))]
impl<C: Shares> Groups<C> {
    /// The number of nodes of which there are entries, with this one.
    pub(crate) fn nodes(&self) -> usize {
        lock(&self.state).table.digests().len()
    }

    /// Drops the first member of a node, and invents another one for its process.
    pub(crate) fn spoil(&self, peer: u64, group: &str, invented: &str) -> String {
        let state = &mut *lock(&self.state);
        let entries = state.table.entries_of(peer).unwrap();
        let dropped = entries.iter().find(|entry| entry.name == group).unwrap();
        let role = Role::Member { label: invented.into() };
        assert!(entries.remove(&dropped) && entries.insert(&Entry { role, ..dropped.clone() }).unwrap());
        match dropped.role {
            Role::Member { label } => label,
            Role::Claimant { .. } | Role::Holder { .. } => String::new(),
        }
    }
}

pub(super) fn check_length(what: &'static str, text: &str) -> Result<(), ClusterNameError> {
    let is_valid = (1..=LONGEST).contains(&text.len());
    if is_valid { Ok(()) } else { Err(ClusterNameError::Length { what, length: text.len() }) }
}

#[cfg(all(test, loom))]
mod models;
