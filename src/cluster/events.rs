//! The ups and downs of nodes, and those who are told of them.

mod inquiries;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
#[cfg(feature = "stream")]
use std::{
    pin::Pin,
    task::{Context, Poll},
};

use self::inquiries::Inquiries;
use super::event_queue::{EventQueue, Publisher, Woken};
use super::peer::{DownReason, Refusal};
use crate::clock::Clock;
use crate::inside::WaitError;
use crate::outcome::tell_log;
use crate::primitives::{Arc, Mutex, lock};

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
    /// A node that is down here is up at another node.
    ///
    /// So the node has not ended: the network may be cut between it and this node alone, or the two have refused each
    /// other. The event comes about 4 s after the [`Down`](Self::Down). It comes once for each node that still sees the
    /// node and has been connected to this node since the down. There is no event for a node that has left. Nodes with
    /// a protocol before version 3 are not asked. A subscriber that begins after the `Down` gets it, too.
    UpElsewhere {
        /// The node that is down here.
        node: NodeIdentity,
        /// The node at which it is up.
        at: NodeIdentity,
    },
    /// A node was not connected, or is not connected any more, because the two differ, or because one of
    /// them could not use something that the other one has sent.
    Refused {
        /// The name of the node.
        name: String,
        /// The difference with the values of both nodes, or the error.
        why: String,
    },
    /// A node has reached a limit. Its requests beyond the limit are refused, without more events.
    ///
    /// A node can have a million monitors and 131,072 links with processes of this node. This node shows PIDs of
    /// 16,383 other nodes and stores, over its whole life. At most 4,096 of them have come from one node. A value with
    /// a PID of another one cannot be decoded.
    LimitReached {
        /// The name of the node.
        name: String,
        /// The limit.
        why: String,
    },
}

/// The nodes that are up, and the subscribers.
pub(crate) struct NodeWatch {
    state: Mutex<State>,
    clock: Clock,
}

#[derive(Default)]
struct State {
    up: BTreeMap<Arc<str>, NodeIdentity>,
    publisher: Publisher<NodeEvent>,
    inquiries: Inquiries,
    is_closed: bool,
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

    pub(super) fn limit_reached(&self, name: &str, why: &str) {
        self.tell(&NodeEvent::LimitReached { name: name.into(), why: why.into() });
    }

    /// Whether the node of this incarnation is up.
    pub(super) fn is_up(&self, incarnation: u64) -> bool {
        lock(&self.state).up.values().any(|node| node.incarnation == incarnation)
    }

    /// The inquiries that are due at this node: their numbers, and the incarnations that they are about.
    pub(super) fn inquiries_to(&self, asked: u64) -> Vec<(u64, u64)> {
        let now = self.clock.now();
        lock(&self.state).inquiries.due(now, asked)
    }

    /// A node has answered an inquiry: the other node is up there.
    pub(super) fn still_up(&self, asked: u64, number: u64) {
        let mut woken = Woken::default();
        let told = {
            let state = &mut *lock(&self.state);
            // Under the lock, so that nobody is told of it when the node is up here.
            let told = state.inquiries.answered(asked, number);
            if let Some((node, at)) = &told {
                let event = NodeEvent::UpElsewhere { node: node.clone(), at: at.clone() };
                state.publisher.tell(&event, &mut woken);
            }
            told
        };
        woken.wake();
        if let Some((node, at)) = told {
            tell_log(|| tracing::warn!(%node, %at, "a node that is down here is up at another node"));
        }
    }

    /// The number of inquiries that are to be made, or that wait for an answer.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn inquiries(&self) -> usize {
        lock(&self.state).inquiries.len()
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
        let state = &mut *lock(&self.state);
        let events = state.up.values().cloned().map(NodeEvent::Up).collect();
        NodeEvents(state.publisher.subscribe(&self.clock, events, state.is_closed))
    }

    /// This node has left. Nodes that are up still, because their connections could not be ended in time, are down.
    /// There are no more events.
    pub(super) fn close(&self) {
        let mut woken = Woken::default();
        {
            let state = &mut *lock(&self.state);
            state.is_closed = true;
            state.inquiries.forget_all();
            let up = std::mem::take(&mut state.up);
            for node in up.into_values() {
                state.publisher.tell(&NodeEvent::Down(node, DownReason::Left), &mut woken);
            }
            state.publisher.close(&mut woken);
        }
        woken.wake();
    }

    /// Changes the state, and tells all subscribers, in one order.
    fn tell(&self, event: &NodeEvent) {
        let mut woken = Woken::default();
        {
            let state = &mut *lock(&self.state);
            match event {
                _ if state.is_closed => return,
                NodeEvent::Up(node) => {
                    state.up.insert(node.name.clone(), node.clone());
                    state.inquiries.forget(node);
                }
                NodeEvent::Down(node, reason) => {
                    state.up.remove(&node.name);
                    state.inquiries.forget(node);
                    if *reason != DownReason::Left {
                        state.inquiries.lost(self.clock.now(), node, state.up.values());
                    }
                }
                NodeEvent::UpElsewhere { .. } | NodeEvent::Refused { .. } | NodeEvent::LimitReached { .. } => {}
            }
            state.publisher.tell(event, &mut woken);
        }
        woken.wake();
    }
}

/// The ups and downs of nodes, from a snapshot on. Made by [`Cluster::events`](super::Cluster::events).
///
/// It begins with an up for each node that is up. Then come all changes, in order, and each once. They are kept until
/// they are taken, so a program that does not want them any more drops this value.
///
/// With the feature `stream` it is a stream. So a process can take the events as messages: see
/// [`StepOutput::stream`](crate::StepOutput::stream).
pub struct NodeEvents(EventQueue<NodeEvent>);

impl fmt::Debug for NodeEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("NodeEvents", f)
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
        self.0.recv_timeout(limit)
    }

    /// Waits until a node of this name is up.
    pub(super) fn wait_for(self, name: &str, limit: Duration) -> Result<(), WaitError> {
        self.0.wait_for(|event| matches!(event, NodeEvent::Up(node) if node.name() == name), limit)
    }
}

#[cfg(feature = "stream")]
impl futures_core::Stream for NodeEvents {
    type Item = NodeEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<NodeEvent>> {
        self.0.poll_next(context)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
