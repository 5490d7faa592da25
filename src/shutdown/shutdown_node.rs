//! The public methods of a node of the shutdown tree.

use std::io;
use std::ops::ControlFlow::{Break, Continue};
use std::time::Duration;

use super::builder::ShutdownNodeBuilder;
use super::cascade;
use super::error::{NodeError, NotReadyError};
use super::guards::{Counter, ErrorGuard, Group, Job, JobGuard, ReadyGuard};
use super::key::{Key, Pair};
use super::node::{Condition, Life, Ready, ShutdownNode};
use super::report::{Report, ShutdownTimeout};
use super::spec::Kind;
use super::wait::{self, ClosedFuture, Subscription};
use super::walk::{self, walk};
use crate::inside::WaitError;
use crate::outcome::{BoxError, Failure, Rejected};
use crate::primitives::Arc;

/// Making nodes.
impl ShutdownNode {
    /// Returns a builder, for options such as a name, a clock and limits.
    pub fn builder() -> ShutdownNodeBuilder {
        ShutdownNodeBuilder::new(Kind::Merge, [])
    }

    /// Makes an empty node: closed, ready, without error or value. Use it if there is nothing to shut down.
    pub fn empty() -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Empty, []).make_node()
    }

    /// Makes one node of several. Use `flatten` to skip absent ones:
    ///
    /// ```
    /// use procession::ShutdownNode;
    ///
    /// let metrics: Option<ShutdownNode> = None;
    /// let all = ShutdownNode::merge([Some(ShutdownNode::empty()), metrics].into_iter().flatten());
    /// # all.shutdown().unwrap();
    /// ```
    pub fn merge(children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Merge, children).make_node()
    }

    /// Makes a job: background work that is told to end when its children are done. Its guard reports its end.
    pub fn job(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, JobGuard) {
        ShutdownNode::builder().children(children).job()
    }

    /// Makes a [`job`](Self::job) that is done by a thread called `name`.
    ///
    /// [`ShutdownNodeBuilder::thread`] does the same with options, such as children.
    ///
    /// # Errors
    /// Returns the closure if the operating system gives no thread, or if the name contains a NUL.
    pub fn thread<F>(name: impl Into<String>, work: F) -> Result<ShutdownNode, Rejected<F, io::Error>>
    where
        F: FnOnce(Job) -> Result<(), BoxError> + Send + 'static,
    {
        ShutdownNode::builder().name(name).thread(work)
    }

    /// Makes a group that accepts nodes while it runs. The children given here stay as long as the group.
    pub fn group(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, Group) {
        ShutdownNode::builder().children(children).group()
    }

    /// Makes a node with a count. [`wait`](Self::wait) returns when the count is zero.
    pub fn counted(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, Counter) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Counted, children).make_held();
        (node, Counter { hold })
    }

    /// Makes a node that is not ready until its guard says so.
    pub fn readiness(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ReadyGuard) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Readiness, children).unready().make_held();
        (node, ReadyGuard { hold })
    }

    /// Makes a node that has an error. A function that fails to start its work can return it.
    pub fn error(error: impl Into<BoxError>, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNode::result(Err::<(), _>(error), children)
    }

    /// Makes a node from a result. The node has an error if the result is one.
    pub fn result<T>(
        result: Result<T, impl Into<BoxError>>,
        children: impl IntoIterator<Item = ShutdownNode>,
    ) -> ShutdownNode {
        let node = ShutdownNodeBuilder::new(Kind::Error, children).make_node();
        if let Err(error) = result {
            cascade::set_error(&node.node, Failure::from(error.into()));
        }
        node
    }

    /// Makes a node whose error may be set later.
    pub fn errors(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ErrorGuard) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Errors, children).make_held();
        (node, ErrorGuard { hold })
    }

    /// Makes a node with a value, which [`get`](Self::get) finds from above.
    pub fn value<K: Key>(key: K, value: K::Value, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Value, children)
            .value(Box::new(Pair { key, value: Arc::new(value) }))
            .make_node()
    }

    /// Gives the node a name, which precedes errors that come from it: `name: error`. An empty name adds nothing.
    pub fn annotate(self, name: impl Into<String>) -> ShutdownNode {
        let name = name.into();
        if name.is_empty() {
            return self;
        }
        ShutdownNodeBuilder::new(Kind::Annotation, [self]).name(name).make_node()
    }

    /// Makes a node in which this one closes after the given ones are closed.
    ///
    /// This node and the given ones are unchanged, and may be used in other places, too.
    ///
    /// If a node depends on several, name them in one call, or chain the calls. Two nodes that are made from the same
    /// one in separate calls do not know each other. In a shutdown of both, this node ends after the first of the
    /// two.
    pub fn depends_on(&self, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        let mut builder = ShutdownNodeBuilder::new(Kind::Dependency, children);
        builder.after = Some(self.clone());
        builder.make_node()
    }
}

/// Shutting down.
impl ShutdownNode {
    /// Closes this node and all below it, in order, and waits until they are closed.
    ///
    /// Several threads may call this at the same time. After the node is closed, every call succeeds at once. A job
    /// must not wait for the end of a tree that it belongs to. It calls [`request_shutdown`](Self::request_shutdown)
    /// instead.
    ///
    /// # Errors
    /// The limit was over before, or a job was given up. The error names the nodes that hang. The shutdown goes on by
    /// itself.
    ///
    /// The call does not wait in a step of any process. It does not wait either if the calling thread is known to
    /// belong to the tree that is to end. Such a thread is that of [`ShutdownNode::thread`], or runs a job, task or
    /// tasklet below a [`Runtime::shutdown_node`](crate::Runtime::shutdown_node),
    /// [`Pool::shutdown_node`](crate::pool::Pool::shutdown_node) and so on. [`ShutdownTimeout::why`] tells these
    /// cases apart.
    pub fn shutdown(&self) -> Result<(), ShutdownTimeout> {
        wait::shutdown(&self.node, None)
    }

    /// As [`shutdown`](Self::shutdown), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), or the limit was over before.
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), ShutdownTimeout> {
        wait::shutdown(&self.node, Some(limit))
    }

    /// Asks this node and all below it to close, without waiting.
    pub fn request_shutdown(&self) {
        cascade::ask(&self.node);
    }

    /// Whether the node has been asked to close.
    pub fn is_shutting_down(&self) -> bool {
        self.node.lock().times.asked.is_some()
    }

    /// Whether the node and all below it have ended or were given up.
    pub fn is_closed(&self) -> bool {
        self.node.lock().life == Life::Done
    }

    /// Waits until the node is closed, without asking it to close.
    ///
    /// # Errors
    /// The limit was over before. Or the node is not closed and the call does not wait: the caller is a step
    /// ([`WaitError::InsideStep`]), or the node is known to wait for the calling thread ([`WaitError::Inside`]).
    pub fn wait_closed(&self) -> Result<(), WaitError> {
        wait::closed(&self.node, None)
    }

    /// As [`wait_closed`](Self::wait_closed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_closed`](Self::wait_closed), or the limit was over before.
    pub fn wait_closed_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::closed(&self.node, Some(limit))
    }

    /// Returns a future that completes when the node is closed. It does not ask the node to close.
    pub fn closed(&self) -> ClosedFuture {
        ClosedFuture::new(&self.node)
    }

    /// Calls `callback` when the node is asked to close. If it was asked already, that is at once.
    ///
    /// The thread that asks calls it, before it tells any job below the node to end.
    pub fn on_shutdown(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        Subscription::new(self.node.latch(Condition::Asked), Some(&self.node), callback)
    }
}

/// Waiting, readiness, errors, values, and reports.
impl ShutdownNode {
    /// Waits until all counters of this node and below are zero at the same time. It shuts down nothing.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<(), WaitError> {
        wait::counters(&self.node, None)
    }

    /// As [`wait`](Self::wait), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), or the limit was over before.
    pub fn wait_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::counters(&self.node, Some(limit))
    }

    /// Whether the node and all below it are ready. Visits each node below once.
    pub fn is_ready(&self) -> bool {
        let not = walk(&self.node, |place| {
            let inner = place.node.lock();
            if inner.ready == Ready::Yes { Continue(inner.below()) } else { Break(()) }
        });
        not.is_none()
    }

    /// Waits until the node and all below it are ready.
    ///
    /// The call visits each node below once. In a group it visits the nodes that are there when it comes to the
    /// group. So a call takes time in proportion to the tree. A program that adds many nodes to a group, and waits
    /// for each to be ready, should wait for the node that it has added and not for the group.
    ///
    /// # Errors
    /// The limit was over, the node was shut down, or there was an error. Or a `ReadyGuard` or a job was dropped
    /// before it said that it is ready. Or the caller is a step ([`NotReadyError::InsideStep`]).
    pub fn wait_ready(&self) -> Result<(), NotReadyError> {
        wait::ready(&self.node, None)
    }

    /// As [`wait_ready`](Self::wait_ready), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_ready`](Self::wait_ready), or the limit was over before.
    pub fn wait_ready_timeout(&self, limit: Duration) -> Result<(), NotReadyError> {
        wait::ready(&self.node, Some(limit))
    }

    /// Returns the first error. A node's own error comes before errors below it. Below it, the order is from left to
    /// right.
    ///
    /// In a dependency, the dependent node comes before the nodes that it depends on.
    pub fn err(&self) -> Option<NodeError> {
        walk::error(&self.node)
    }

    /// Waits until there is an error here or below, and returns the first.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn failed(&self) -> Result<NodeError, WaitError> {
        wait::failed(&self.node, None)
    }

    /// As [`failed`](Self::failed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`failed`](Self::failed), or the limit was over before.
    pub fn failed_timeout(&self, limit: Duration) -> Result<NodeError, WaitError> {
        wait::failed(&self.node, Some(limit))
    }

    /// Calls `callback` with the first error here or below. If there is one, that is at once. The thread that sets the
    /// error calls it.
    pub fn on_error(&self, callback: impl FnOnce(&NodeError) + Send + 'static) -> Subscription {
        let weak = Arc::downgrade(&self.node);
        Subscription::new(self.node.latch(Condition::Failed), Some(&self.node), move || {
            if let Some(error) = weak.upgrade().and_then(|node| walk::error(&node)) {
                callback(&error);
            }
        })
    }

    /// Shuts this node down at the first error here or below, as [`request_shutdown`](Self::request_shutdown) would.
    ///
    /// If there is an error already, it does so at once.
    pub fn shutdown_on_error(self) -> ShutdownNode {
        let failed = {
            let mut inner = self.node.lock();
            inner.closes_on_error = true;
            inner.failed
        };
        if failed {
            cascade::ask(&self.node);
        }
        self
    }

    /// Returns the first value under a key: from the top, and of the nodes below, from the left.
    ///
    /// In a dependency, the dependent node comes before the nodes that it depends on.
    pub fn get<K: Key>(&self, key: &K) -> Option<Arc<K::Value>> {
        walk(&self.node, |place| {
            match place.node.spec.value.as_ref().and_then(|stored| stored.downcast_ref::<Pair<K>>()) {
                // The key's `eq` is user code.
                Some(pair) if pair.key == *key => Break(pair.value.clone()),
                _ => Continue(place.node.lock().below()),
            }
        })
    }

    /// Reports on this node and all below it: each with its phase, the time in it, and its error.
    pub fn report(&self) -> Report {
        Report::of(&self.node)
    }
}
