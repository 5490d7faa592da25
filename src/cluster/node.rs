//! This node, as the seam of the runtime to the processes of others.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use dashmap::DashMap;

use super::connection::{Carrier, Connection, Letter, Numbers, end_unreported};
use super::events::NodeWatch;
use super::groups::Groups;
use super::lives::{Life, Lives};
use super::peer::{Bound, Room};
use super::peer_limits::PeerLimits;
use super::remote_spawn::SpawnOrder;
use super::room::{Waiting, tell_down};
use super::unique::UniqueNames;
use super::wire::Wire;
use crate::clock::{Clock, Deadline};
use crate::outcome::{BoxError, Reason, drop_contained};
use crate::pid::Pid;
use crate::primitives::{Arc, Mutex, OnceLock, Weak, lock};
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::{Ask, CancelRequest, CommandError, Completion, ExitSignal, NodeError, SendError};
use crate::runtime::Core;
use crate::sched::cell::{Missed, Missing};
use crate::sched::mailbox::{Control, Signal};
use crate::sched::non_local::{AnyMessage, NeedsRoom, NonLocal, Permit, Settled, Stop, Waiter};
use crate::sched::trace_marks::Context;

/// Ends the connections of a node.
pub(crate) trait Leave: Send + Sync {
    /// Leaves the cluster. Waits for at most a second until the peers have everything, and know it.
    fn leave(&self, clock: &Clock, deadline: Deadline);

    /// Leaves the cluster without a wait.
    fn leave_at_once(&self);
}

/// The announcement of another node when it is up: its name, as the link knows it, its life, and its store. The last
/// two come with the numbers that they wish here.
pub(crate) struct Announced {
    pub(crate) name: Arc<str>,
    pub(crate) life: (Life, u32),
    pub(crate) store: Option<(u64, u32)>,
    /// The version of the protocol that both nodes speak.
    pub(crate) protocol: u16,
}

#[cfg(test)]
impl From<(Life, u32)> for Announced {
    fn from(life: (Life, u32)) -> Announced {
        Announced { name: "".into(), life, store: None, protocol: super::peer::PROTOCOL }
    }
}

/// This node.
pub(crate) struct Node {
    wire: Arc<Wire>,
    lives: Arc<Lives>,
    limits: Arc<PeerLimits>,
    here: u32,
    /// The store of the runtime, and its number.
    store: Option<(u64, u32)>,
    core: Weak<Core>,
    /// The names of the nodes that were up.
    names: Mutex<HashMap<Life, Arc<str>>>,
    /// The connections that are up, by the numbers of the other nodes and of their stores.
    connections: DashMap<u32, Arc<Connection>>,
    groups: Arc<Groups<Connection>>,
    /// The senders that wait for room.
    waiting: Waiting,
    unique: Arc<UniqueNames<Connection>>,
    watch: Arc<NodeWatch>,
    /// Set when the connections can be made.
    leaves: OnceLock<Arc<dyn Leave>>,
}

impl Node {
    /// Makes a node without a name and without voters.
    #[cfg(test)]
    pub(crate) fn new(life: Life, wire: Wire, core: &Arc<Core>) -> Result<Node, BoxError> {
        Node::with_voters(life, ("", &[]), wire, core)
    }

    /// Makes the node of a runtime, with its name and the names of the voters. If the runtime has a store, that is open
    /// already.
    pub(crate) fn with_voters(
        life: Life,
        (name, voters): (&str, &[String]),
        wire: Wire,
        core: &Arc<Core>,
    ) -> Result<Node, BoxError> {
        let here = core.road.table.node();
        let limits = Arc::<PeerLimits>::default();
        let lives = Arc::new(Lives::new(life, here, limits.clone()));
        let store = core.road.non_local.get().and_then(|store| store.store());
        if let Some((id, number)) = store {
            // No other life may have the number of the store: its PIDs would be taken for those of the store.
            let given = lives.number(Life::Store(id), number)?;
            if given != number {
                return Err(format!("the node and the store of the runtime have the same number, {number}").into());
            }
        }
        let groups = Arc::new(Groups::new(incarnation(life), core.road.clock.clone()));
        let unique = UniqueNames::new((incarnation(life), name), voters, core, &groups);
        let watch = Arc::new(NodeWatch::new(core.road.clock.clone()));
        let (wire, core, connections) = (Arc::new(wire), Arc::downgrade(core), DashMap::new());
        let (names, waiting, leaves) = (Mutex::default(), Waiting::default(), OnceLock::new());
        Ok(Node { wire, lives, limits, here, store, core, names, connections, groups, unique, watch, waiting, leaves })
    }

    /// The numbers of sends from outside and of processes that wait for room at a node.
    pub(super) fn waiting_counts(&self) -> (usize, usize) {
        self.waiting.counts(|pid| self.is_alive_here(pid))
    }

    /// The limits that peers have reached.
    pub(crate) fn limits(&self) -> &Arc<PeerLimits> {
        &self.limits
    }

    /// The nodes that are up, and those who are told of them.
    pub(super) fn node_watch(&self) -> &Arc<NodeWatch> {
        &self.watch
    }

    /// Asks a node whether nodes are up there that are down here, if it is time.
    pub(crate) fn inquire(&self, peer: u64) {
        for (number, incarnation) in self.watch.inquiries_to(peer) {
            let connection = self.connected(peer).and_then(|node| self.connection(node));
            connection.into_iter().for_each(|connection| connection.inquire(number, incarnation));
        }
    }

    /// Has the connections end with the runtime.
    pub(crate) fn leaves_by(&self, leaves: Arc<dyn Leave>) {
        let _ = self.leaves.set(leaves);
    }

    /// The number with which the PIDs of this node begin.
    pub(crate) fn number(&self) -> u32 {
        self.here
    }

    /// The number here of a node that was connected once.
    #[cfg(all(test, not(loom)))]
    pub(in crate::cluster) fn number_of(&self, incarnation: u64) -> u32 {
        self.lives.number(Life::Node(incarnation), 0).unwrap()
    }

    /// The versions of the protocol that are spoken with the nodes which are up, sorted.
    #[cfg(all(test, not(loom)))]
    pub(in crate::cluster) fn protocols(&self) -> Vec<u16> {
        let up = self.connections.iter().filter(|entry| *entry.key() == entry.there().node);
        let mut spoken: Vec<u16> = up.map(|connection| connection.protocol()).collect();
        spoken.sort_unstable();
        spoken
    }

    /// The list of the types that this node takes, for other nodes.
    pub(crate) fn list(&self) -> Result<Vec<u8>, BoxError> {
        self.wire.list()
    }

    /// The store of the runtime, and its number, for other nodes.
    pub(crate) fn store(&self) -> Option<(u64, u32)> {
        self.store
    }

    /// A node is up, and has sent its list of types. Returns the connection.
    pub(crate) fn up(
        &self,
        peer: impl Into<Announced>,
        list: &[u8],
        carrier: Arc<dyn Carrier>,
    ) -> Result<Arc<Connection>, BoxError> {
        let Announced { name, life: (life, wish), store, protocol } = peer.into();
        // First, so that there are no more names than numbers.
        let there = self.lives.number_through(&name, life, wish)?;
        // An incarnation is no secret. Only the link knows that a node has its name.
        match lock(&self.names).entry(life) {
            Entry::Occupied(known) if *known.get() != name => {
                return Err(format!("its incarnation is that of the node {:?}", known.get()).into());
            }
            known => _ = known.or_insert(name.clone()),
        }
        if there == self.here {
            return Err("a node cannot connect to itself".into());
        }
        if let (Some((own, _)), Some((other, _))) = (self.store, store)
            && own == other
        {
            // PIDs of the two could not be told apart.
            return Err("its store is a copy of this node's store".into());
        }
        let store = store.map(|(id, wish)| self.lives.number_through(&name, Life::Store(id), wish)).transpose()?;
        let here = Numbers { node: self.here, store: self.store.map(|(_, number)| number) };
        let numbers = (here, Numbers { node: there, store });
        let (lives, limits) = (self.lives.clone(), self.limits.clone());
        let connection = Connection::new(
            numbers,
            (name.clone(), lives, limits),
            (self.wire.clone(), list),
            (carrier, protocol),
            self.core.clone(),
        )?;
        // The down of the one before ends the halves of its links. No new one has begun by then.
        if let Some((_, before)) = self.connections.remove(&there) {
            self.forget(&before);
            before.down([]);
        }
        self.connections.insert(there, connection.clone());
        if let Some(store) = store {
            // It may have moved from another node, whose silence was not found yet. Monitors over that connection are
            // told now, so that its down does not tell those over the new one.
            if let Some((_, before)) = self.connections.remove(&store) {
                before.store_has_gone(store);
            }
            self.connections.insert(store, connection.clone());
        }
        connection.share_with(&self.groups, &self.unique, &self.watch, incarnation(life));
        self.groups.up(incarnation(life), &connection);
        self.unique.up((incarnation(life), &name), &connection);
        Ok(connection)
    }

    fn forget(&self, connection: &Arc<Connection>) {
        let Numbers { node, store } = connection.there();
        for number in [Some(node), store].into_iter().flatten() {
            self.connections.remove_if(&number, |_, up| Arc::ptr_eq(up, connection));
        }
        // Those that begin to wait from now on find that the connection is down.
        self.waiting.take_outside(node).iter().for_each(tell_down);
        Bound::ALL.into_iter().for_each(|bound| self.let_processes_go(node, bound));
    }

    /// Called when there was room for items of this bound at the node of this connection. The processes that wait for
    /// it go on, also if others have filled the room since.
    pub(crate) fn has_room(&self, connection: &Connection, bound: Bound) {
        // Processes go on first, because messages from outside may fill the room again and again.
        self.let_processes_go(connection.there().node, bound);
        if bound != Bound::Answers {
            self.offer_outside(connection);
        }
    }

    /// Whether the next room is for others: for messages from outside that wait, and for processes that are held. So a
    /// caller that tries again and again holds them up no longer than their turn.
    fn has_waiting(&self, node: u32) -> bool {
        self.waiting.has_outside(node) || self.waiting.has_processes(node, Bound::Small)
    }

    fn offer_outside(&self, connection: &Connection) {
        let node = connection.there().node;
        let is_up = || self.connections.get(&node).is_some_and(|up| std::ptr::eq(&**up, connection));
        let has_room = || matches!(connection.carrier().room(), Room::All | Room::Down);
        // If there is no room, this is called again. After a down, others have told them.
        while self.waiting.offer_outside(node, |sender| sender.offer(self)) && is_up() && has_room() {}
    }

    /// Whether a process of this runtime lives.
    fn is_alive_here(&self, pid: Pid) -> bool {
        self.core.upgrade().is_some_and(|core| core.road.is_alive(pid))
    }

    fn let_processes_go(&self, node: u32, bound: Bound) {
        let processes = self.waiting.take_processes(node, bound);
        if let Some(core) = self.core.upgrade() {
            processes.into_iter().for_each(|pid| core.road.let_go(pid));
        }
    }

    /// This connection is down.
    pub(crate) fn down(&self, connection: &Arc<Connection>, unconfirmed: impl IntoIterator<Item = Letter>) {
        self.forget(connection);
        let peer = self.lives.life(connection.there().node).map_or(0, incarnation);
        self.groups.down(peer, connection);
        self.unique.down(peer, connection);
        connection.down(unconfirmed);
    }

    /// The groups and shared names of the cluster.
    pub(crate) fn groups(&self) -> &Arc<Groups<Connection>> {
        &self.groups
    }

    /// The unique names of the cluster.
    pub(crate) fn unique(&self) -> &Arc<UniqueNames<Connection>> {
        &self.unique
    }

    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        self.core.upgrade()
    }

    /// The incarnation of the node of a process, which is `None` for a store. Returns `None` if neither is known.
    pub(crate) fn owner(&self, pid: Pid) -> Option<Option<u64>> {
        self.lives.life(pid.node()).map(|life| match life {
            Life::Node(incarnation) => Some(incarnation),
            Life::Store(_) => None,
        })
    }

    /// A PID that stands for a node which is connected: its number, and no process.
    pub(crate) fn connected(&self, incarnation: u64) -> Option<Pid> {
        let number = self.lives.known(Life::Node(incarnation))?;
        Pid::new(number, 0, 1).filter(|pid| self.connections.contains_key(&pid.node()))
    }

    /// Asks the node of this PID which of its processes has this name.
    pub(crate) fn whereis_at(&self, node: Pid, name: &str, ask: &Arc<Ask>) {
        match self.connection(node) {
            Some(connection) => connection.whereis(name, ask),
            None => ask.give_up(CommandError::Node { pid: node, why: NodeError::NodeDown }),
        }
    }

    /// Sends a message to processes of one other node. Returns to how many it was sent.
    pub(crate) fn broadcast(&self, to: &[Pid], message: &dyn Any) -> usize {
        let connection = to.first().and_then(|first| self.connection(*first));
        let connection = connection.filter(|connection| !self.has_waiting(connection.there().node));
        connection.map_or(0, |connection| connection.broadcast(to, message))
    }

    fn connection(&self, pid: Pid) -> Option<Arc<Connection>> {
        self.connections.get(&pid.node()).map(|connection| connection.clone())
    }

    fn why_none(&self, pid: Pid) -> SendError {
        match self.lives.life(pid.node()) {
            Some(_) => SendError::Node { pid, why: NodeError::NodeDown },
            None => NoSuchProcessError::Pid(pid).into(),
        }
    }
}

impl NonLocal for Node {
    fn has_node(&self, node: u32) -> bool {
        let life = self.lives.life(node);
        life.is_some() && life != self.store.map(|(id, _)| Life::Store(id))
    }

    fn post(
        &self,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let Some(connection) = self.connection(to) else { return Err((message, self.why_none(to))) };
        let is_order = message.is::<SpawnOrder>();
        if from.is_none() && !is_order && self.has_waiting(connection.there().node) {
            return Err((message, SendError::Node { pid: to, why: NodeError::Busy }));
        }
        connection.post_or_spawn((from, to), (message, trace), false)
    }

    fn post_in_turn(
        &self,
        permit: Permit,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let connection = if from.is_some() { self.connection(to) } else { permitted(permit) };
        let Some(connection) = connection else { return Err((message, self.why_none(to))) };
        connection.post_or_spawn((from, to), (message, trace), from.is_some())
    }

    fn permit(&self, to: Pid, (message, sent): (TypeId, &'static str), room: NeedsRoom) -> Result<Permit, SendError> {
        let Some(connection) = self.connection(to) else { return Err(self.why_none(to)) };
        let node = connection.there().node;
        let waits = || room == NeedsRoom::Yes && self.has_waiting(node);
        // The size of a message is not known before it is converted. A large message is taken as one that needs no
        // room. So none is converted while a process is held for such room.
        let needed = match room {
            NeedsRoom::WhenOffered => Room::None,
            NeedsRoom::Held => Room::Held,
            NeedsRoom::InTurn | NeedsRoom::Yes => Room::Small,
        };
        let is_kept =
            |there: Room| there == Room::Small && needed == there && self.waiting.has_processes(node, Bound::Large);
        let why = match connection.why_not_taken(message) {
            Some(NodeError::NotRemote { .. }) => NodeError::NotRemote { type_name: sent },
            Some(why) => why,
            None => match connection.carrier().room() {
                // The down is known here, and the node has still to carry it out.
                Room::Down => NodeError::NodeDown,
                there if there < needed || waits() || is_kept(there) => NodeError::Busy,
                _ => return Ok(Some(connection)),
            },
        };
        Err(SendError::Node { pid: to, why })
    }

    fn post_converted(
        &self,
        permit: Permit,
        (from, to): (Option<Pid>, Pid),
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        let Some(connection) = permitted(permit) else { return Err((message, self.why_none(to))) };
        let posted = connection.post((from, to), (message, trace), true);
        posted.map_err(|(message, why)| (message, SendError::Node { pid: to, why }))
    }

    fn bury_converted(&self, to: Pid, refused: (AnyMessage, SendError), message: (&'static str, Option<&Context>)) {
        match self.core.upgrade() {
            Some(core) => core.road.bury_converted(to, refused, message, |_| ()),
            None => drop_contained(refused),
        }
    }

    fn wait_for_room(&self, to: Pid, waiter: Waiter) {
        match (self.connection(to), waiter) {
            (Some(connection), waiter) => {
                let node = connection.there().node;
                let hold = |pid, bound| {
                    if self.waiting.push_process(node, bound, pid) {
                        self.waiting.forget_ended(|pid| self.is_alive_here(pid));
                    }
                    [Some(bound), None]
                };
                let needed = match waiter {
                    Waiter::Process { pid, sender } => {
                        hold(pid, connection.carrier().needed_by(sender.map(Pid::to_word)))
                    }
                    Waiter::Answers { pid } => hold(pid, Bound::Answers),
                    Waiter::Outside(sender) => {
                        self.waiting.push_outside(node, sender);
                        [Some(Bound::Small), Some(Bound::Large)]
                    }
                };
                // There may have been room in between, or the down. Otherwise it is told of from now on.
                for bound in needed.into_iter().flatten() {
                    if connection.carrier().has_room_for(bound) {
                        self.has_room(&connection, bound);
                    }
                }
            }
            (None, Waiter::Process { pid, .. } | Waiter::Answers { pid }) => {
                self.core.upgrade().into_iter().for_each(|core| core.road.let_go(pid))
            }
            (None, Waiter::Outside(sender)) => tell_down(&sender),
        }
    }

    fn has_given_up(&self, to: Pid) {
        let Some(connection) = self.connection(to) else { return };
        let (node, carrier) = (connection.there().node, connection.carrier());
        // An offer encodes a message, and this may be the thread of the timers. So none is offered in vain.
        let has_room = || carrier.has_room_for(Bound::Small) || carrier.has_room_for(Bound::Large);
        if self.waiting.forget_given_up(node) && (!self.waiting.has_outside(node) || has_room()) {
            self.offer_outside(&connection);
        }
    }

    fn takes(&self, pid: Pid, message: TypeId) -> Result<(), Missed> {
        // Only the other node knows which type its process takes.
        match self.connection(pid) {
            Some(connection) if connection.takes(message) => Ok(()),
            Some(_) => Err(Missed::WrongType(|| "the messages that its node takes")),
            None => Err(Missed::NoSuchProcess),
        }
    }

    fn signal(&self, to: Pid, signal: Signal) -> Result<(), (Missing, Signal)> {
        let Some(connection) = self.connection(to) else { return Err((Missing::NodeDown, signal)) };
        let is_sent = match &signal {
            Signal::Control(Control::Cancel(CancelRequest { reason, deadline })) => {
                let Some(core) = self.core.upgrade() else { return Err((Missing::Ended, signal)) };
                let limit = deadline.map(|deadline| deadline.saturating_duration_since(core.road.clock.now()));
                connection.stop(to, Stop::Cancel { reason: reason.clone(), limit }, None)
            }
            Signal::Control(Control::Exit(ExitSignal { pid, exit }, by)) if by.recovered => {
                let Some(core) = self.core.upgrade() else { return Err((Missing::Ended, signal)) };
                connection.recovered(&core, *pid, to, exit);
                true
            }
            Signal::Control(Control::Exit(ExitSignal { pid, exit }, _)) => connection.exit(*pid, to, exit),
            Signal::Control(Control::Recovered(recovered)) => {
                connection.tell_recovered(recovered, to);
                true
            }
            _ => return Err((Missing::Never, signal)),
        };
        if is_sent { Ok(()) } else { Err((Missing::NodeDown, signal)) }
    }

    fn complete(&self, to: Pid, completion: Completion) -> Result<(), Completion> {
        // The only commands of other nodes' processes that are answered here are spawns.
        let Some(core) = self.core.upgrade() else { return Err(completion) };
        match self.connection(to) {
            Some(connection) => connection.report_start(&core, &completion),
            None => end_unreported(&core, &completion),
        }
        drop_contained(completion);
        Ok(())
    }

    fn terminate(&self, pid: Pid) -> Result<bool, Missing> {
        let is_sent = self.connection(pid).is_some_and(|connection| connection.stop(pid, Stop::Terminate, None));
        if is_sent { Ok(true) } else { Err(Missing::NodeDown) }
    }

    fn stop(&self, (from, to): (Pid, Pid), stop: Stop, ask: Arc<Ask>) {
        match self.connection(to) {
            Some(connection) => _ = connection.stop(to, stop, Some((from, &ask))),
            None => ask.give_up(CommandError::Node { pid: to, why: NodeError::NodeDown }),
        }
    }

    fn body_lost(&self, _: Pid) {}

    fn is_alive(&self, pid: Pid) -> bool {
        // As far as that is known here.
        self.connections.contains_key(&pid.node())
    }

    fn watch(&self, pid: Pid) -> bool {
        self.connection(pid).is_some_and(|connection| connection.watch(pid))
    }

    fn unwatch(&self, pid: Pid) {
        self.connection(pid).into_iter().for_each(|connection| connection.unwatch(pid));
    }

    fn link(&self, near: Pid, far: Pid) -> bool {
        // Links of durable processes do not reach over nodes.
        near.node() == self.here
            && self
                .connection(far)
                .is_some_and(|connection| connection.there().node == far.node() && connection.link(near, far))
    }

    fn unlink(&self, near: Pid, far: Pid) {
        self.connection(far).into_iter().for_each(|connection| connection.unlink(near, far, None));
    }

    fn why_missing(&self, _: Pid) -> Reason {
        Reason::NodeDown
    }

    fn shows_errors(&self) -> bool {
        true
    }

    fn may_be_named(&self) -> bool {
        false
    }

    /// The process that has this shared name.
    fn whereis(&self, name: &str) -> Option<Pid> {
        self.groups.holder(name)
    }

    fn closes(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let (calls, unique) = (self.groups.close(), self.unique.clone());
        Some(Box::new(move || {
            calls();
            unique.close();
        }))
    }

    fn settle(&self, clock: &Clock, deadline: Deadline) -> Settled {
        // First, so that names which nobody holds any more are free at once.
        self.unique.left();
        if let Some(leaves) = self.leaves.get() {
            leaves.leave(clock, deadline);
        }
        self.groups.left();
        Settled::default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // The runtime may have ended without a shutdown in order.
        self.unique.left();
        if let Some(leaves) = self.leaves.get() {
            leaves.leave_at_once();
        }
        self.groups.left();
    }
}

/// The connection of a permit.
fn permitted(permit: Permit) -> Option<Arc<Connection>> {
    permit?.downcast().ok()
}

/// The number that was drawn at the start of the life.
fn incarnation(life: Life) -> u64 {
    match life {
        Life::Node(incarnation) | Life::Store(incarnation) => incarnation,
    }
}

#[cfg(all(test, not(loom)))]
pub(in crate::cluster) mod echo;
#[cfg(all(test, not(loom)))]
mod given_up_tests;
#[cfg(all(test, not(loom)))]
mod group_tests;
#[cfg(all(test, not(loom)))]
mod hostile_tests;
#[cfg(all(test, not(loom)))]
mod limit_tests;
#[cfg(all(test, not(loom)))]
mod link_tests;
#[cfg(all(test, not(loom)))]
mod net;
#[cfg(all(test, not(loom)))]
mod recipient_tests;
#[cfg(all(test, not(loom)))]
mod relation_tests;
#[cfg(all(test, not(loom)))]
mod room_tests;
#[cfg(all(test, not(loom)))]
mod spawn_tests;
#[cfg(all(test, not(loom)))]
mod trace_tests;
#[cfg(all(test, not(loom)))]
mod unique_tests;
#[cfg(all(test, not(loom)))]
pub(in crate::cluster) mod tests;
