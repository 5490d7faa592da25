//! The ups and downs of nodes, and those who are told of them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;
#[cfg(feature = "stream")]
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::peer::{DownReason, Refusal};
use crate::clock::{Clock, Deadline};
use crate::inside::{WaitError, refuse_step_timeout};
use crate::latch::Latch;
#[cfg(feature = "stream")]
use crate::latch::LatchFuture;
use crate::primitives::{Arc, Mutex, Weak, lock};

/// A node of a cluster, from its start to its end.
///
/// A node that is started again under its name has another incarnation, and is another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIdentity {
    name: Arc<str>,
    incarnation: u64,
}

impl NodeIdentity {
    pub(crate) fn new(name: &str, incarnation: u64) -> NodeIdentity {
        NodeIdentity { name: name.into(), incarnation }
    }

    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The random number that the node has drawn at its start.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:016x})", self.name, self.incarnation)
    }
}

/// Something that has happened to the connection with another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NodeEvent {
    /// The node is connected.
    Up(NodeIdentity),
    /// The connection has broken. All open questions to the node were answered with an error.
    Down(NodeIdentity, DownReason),
    /// A node was not connected, or is not connected any more, because the two differ.
    Refused {
        /// The name of the node.
        name: String,
        /// The difference, with the values of both nodes.
        why: String,
    },
}

/// The nodes that are up, and the subscribers.
pub(super) struct NodeWatch {
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Default)]
struct State {
    up: BTreeMap<Arc<str>, NodeIdentity>,
    subscribers: Vec<Weak<Mutex<Queue>>>,
    is_closed: bool,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<NodeEvent>,
    is_closed: bool,
    /// Set when something was added, and then replaced.
    added: Latch<()>,
}

impl NodeWatch {
    pub(super) fn new(clock: Clock) -> NodeWatch {
        NodeWatch { state: Mutex::default(), clock }
    }

    pub(super) fn up(&self, node: &NodeIdentity) {
        self.tell(&NodeEvent::Up(node.clone()));
    }

    pub(super) fn down(&self, node: &NodeIdentity, reason: DownReason) {
        self.tell(&NodeEvent::Down(node.clone(), reason));
    }

    pub(super) fn refused(&self, name: &str, refusal: &Refusal) {
        self.tell(&NodeEvent::Refused { name: name.into(), why: refusal.to_string() });
    }

    /// The nodes that are up, by name.
    pub(super) fn nodes(&self) -> Vec<NodeIdentity> {
        lock(&self.state).up.values().cloned().collect()
    }

    /// The incarnation of the node of this name, if it is up.
    pub(super) fn incarnation(&self, name: &str) -> Option<u64> {
        lock(&self.state).up.get(name).map(NodeIdentity::incarnation)
    }

    /// Begins with an up for each node that is up.
    pub(super) fn subscribe(&self) -> NodeEvents {
        let mut state = lock(&self.state);
        let events = state.up.values().cloned().map(NodeEvent::Up).collect();
        let queue = Queue { events, is_closed: state.is_closed, added: Latch::new() };
        let queue = Arc::new(Mutex::new(queue));
        state.subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        state.subscribers.push(Arc::downgrade(&queue));
        NodeEvents {
            queue,
            clock: self.clock.clone(),
            #[cfg(feature = "stream")]
            waiting: None,
        }
    }

    /// This node has left. Nodes that are up still, because their connections could not be ended in time, are down.
    /// There are no more events.
    pub(super) fn close(&self) {
        self.add(|state| {
            state.is_closed = true;
            let up = std::mem::take(&mut state.up);
            up.into_values().map(|node| NodeEvent::Down(node, DownReason::Left)).collect()
        });
    }

    fn tell(&self, event: &NodeEvent) {
        self.add(|state| {
            match event {
                _ if state.is_closed => return Vec::new(),
                NodeEvent::Up(node) => _ = state.up.insert(node.name.clone(), node.clone()),
                NodeEvent::Down(node, _) => _ = state.up.remove(&node.name),
                NodeEvent::Refused { .. } => {}
            }
            vec![event.clone()]
        });
    }

    /// Changes the state, and tells all subscribers, in one order. They are woken with no lock.
    fn add(&self, change: impl FnOnce(&mut State) -> Vec<NodeEvent>) {
        let mut state = lock(&self.state);
        let events = change(&mut state);
        let is_closed = state.is_closed;
        let mut added = Vec::new();
        state.subscribers.retain(|subscriber| {
            let Some(queue) = subscriber.upgrade() else { return false };
            let mut queue = lock(&queue);
            queue.events.extend(events.iter().cloned());
            queue.is_closed = is_closed;
            added.push(std::mem::take(&mut queue.added));
            true
        });
        drop(state);
        added.into_iter().for_each(|latch| _ = latch.set(()));
    }
}

/// The ups and downs of nodes, from a snapshot on. Made by [`Cluster::events`](super::Cluster::events).
///
/// It begins with an up for each node that is up. Then come all changes, in order, and each once. They are kept until
/// they are taken, so a program that does not want them any more drops this value.
///
/// With the feature `stream` it is a stream. So a process can take the events as messages: see
/// [`StepOutput::stream`](crate::StepOutput::stream).
pub struct NodeEvents {
    queue: Arc<Mutex<Queue>>,
    clock: Clock,
    /// The latch of the poll that found nothing.
    #[cfg(feature = "stream")]
    waiting: Option<LatchFuture<()>>,
}

impl fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeEvents").field("waiting", &lock(&self.queue).events).finish_non_exhaustive()
    }
}

impl NodeEvents {
    /// Takes the next event, or waits for it. Returns `None` when this node has left the cluster.
    ///
    /// # Errors
    /// The caller is a step, which must not wait.
    pub fn recv(&mut self) -> Result<Option<NodeEvent>, WaitError> {
        self.recv_timeout(Duration::MAX)
    }

    /// As [`recv`](Self::recv), but waits for at most `limit`.
    ///
    /// # Errors
    /// The limit is over, or the caller is a step.
    pub fn recv_timeout(&mut self, limit: Duration) -> Result<Option<NodeEvent>, WaitError> {
        let deadline = self.clock.deadline(limit);
        loop {
            let added = match self.take() {
                Ok(event) => return Ok(event),
                Err(added) => added,
            };
            refuse_step_timeout(limit)?;
            if !added.wait_until(&self.clock, deadline) {
                return Err(WaitError::TimedOut);
            }
        }
    }

    /// Takes the next event. Otherwise returns the latch that is set when there is one.
    fn take(&self) -> Result<Option<NodeEvent>, Latch<()>> {
        let mut queue = lock(&self.queue);
        match queue.events.pop_front() {
            None if !queue.is_closed => Err(queue.added.clone()),
            event => Ok(event),
        }
    }

    /// Waits until a node of this name is up.
    pub(super) fn wait_for(mut self, name: &str, limit: Duration) -> Result<(), WaitError> {
        let deadline = self.clock.deadline(limit);
        loop {
            let rest = match deadline {
                Deadline(Some(at)) => at.saturating_duration_since(self.clock.now()),
                Deadline::NEVER => Duration::MAX,
            };
            match self.recv_timeout(rest)? {
                Some(NodeEvent::Up(node)) if node.name() == name => return Ok(()),
                Some(_) => {}
                None => return Err(WaitError::TimedOut),
            }
        }
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for NodeEvents {
    type Item = NodeEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<NodeEvent>> {
        loop {
            match self.take() {
                Ok(event) => return Poll::Ready(event),
                Err(added) => {
                    let waiting = self.waiting.get_or_insert_with(|| LatchFuture::new(added));
                    ready!(Pin::new(waiting).poll(context));
                    self.waiting = None;
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
