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

    /// Makes an empty node. It is closed and ready, and has no error and no value.
    ///
    /// Use it if there is nothing to shut down.
    pub fn empty() -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Empty, []).make_node()
    }

    /// Makes one node of several. They close in no particular order.
    ///
    /// Use `flatten` if some nodes are optional:
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

    /// Makes a job, which is background work. The guard reports the end of the work.
    ///
    /// In a shutdown, the job is told to end when the children are done.
    pub fn job(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, JobGuard) {
        ShutdownNode::builder().children(children).job()
    }

    /// Makes a [`job`](Self::job) on a new thread with this name.
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

    /// Makes a group. Nodes can be added to it while it runs. The children given here stay as long as the group.
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

    /// Makes a node that has this error. A function can return it if its work does not start.
    pub fn error(error: impl Into<BoxError>, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNode::result(Err::<(), _>(error), children)
    }

    /// Makes a node that has the error of a result, if it has one.
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

    /// Makes a node with a value. [`get`](Self::get) finds the value from this node and from all nodes above.
    pub fn value<K: Key>(key: K, value: K::Value, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Value, children)
            .value(Box::new(Pair { key, value: Arc::new(value) }))
            .make_node()
    }

    /// Gives the node a name. Errors that come from it read `name: error`. An empty name adds nothing.
    pub fn annotate(self, name: impl Into<String>) -> ShutdownNode {
        let name = name.into();
        if name.is_empty() {
            return self;
        }
        ShutdownNodeBuilder::new(Kind::Annotation, [self]).name(name).make_node()
    }

    /// Makes a new node: first the given nodes close, and then this node.
    ///
    /// This node and the given ones do not change. They can be used in other places, too.
    ///
    /// If a node depends on several others, give them in one call, or chain the calls. Two separate calls on the same
    /// node make two independent dependencies. A shutdown of both closes this node as soon as the nodes of one of the
    /// two calls are closed.
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
    /// must not wait for the end of a tree to which it belongs. It calls [`request_shutdown`](Self::request_shutdown)
    /// instead.
    ///
    /// # Errors
    /// A job was given up, or the call did not wait. The error names the nodes that hang. The shutdown goes on by
    /// itself.
    ///
    /// The call does not wait in a step of a process. It does not wait either if the tree is known to wait for the
    /// calling thread. That is so for the thread of a [`ShutdownNode::thread`]. It is also so for a thread that runs a
    /// job, task or tasklet below a [`Runtime::shutdown_node`](crate::Runtime::shutdown_node),
    /// [`Pool::shutdown_node`](crate::pool::Pool::shutdown_node) and so on. [`ShutdownTimeout::why`] distinguishes
    /// these cases.
    pub fn shutdown(&self) -> Result<(), ShutdownTimeout> {
        self.shutdown_timeout(Duration::MAX)
    }

    /// As [`shutdown`](Self::shutdown), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), or the limit was over before the node was closed.
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), ShutdownTimeout> {
        wait::shutdown(&self.node, limit)
    }

    /// Asks this node and all below it to close, without waiting.
    pub fn request_shutdown(&self) {
        cascade::ask(&self.node);
    }

    /// Whether the node has been asked to close.
    pub fn is_shutting_down(&self) -> bool {
        self.node.lock().times.asked.is_some()
    }

    /// Whether the node and all below it have ended or were given up. It need not have been asked to close.
    pub fn is_closed(&self) -> bool {
        self.node.lock().life == Life::Done
    }

    /// Waits until the node is closed, without asking it to close.
    ///
    /// # Errors
    /// The node is not closed, and the call does not wait. Either the caller is a step ([`WaitError::InsideStep`]), or
    /// the node is known to wait for the calling thread ([`WaitError::Inside`]).
    pub fn wait_closed(&self) -> Result<(), WaitError> {
        self.wait_closed_timeout(Duration::MAX)
    }

    /// As [`wait_closed`](Self::wait_closed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_closed`](Self::wait_closed), or the limit was over before the node was closed.
    pub fn wait_closed_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::closed(&self.node, limit)
    }

    /// Returns a future that completes when the node is closed. It does not ask the node to close.
    pub fn closed(&self) -> ClosedFuture {
        ClosedFuture::new(&self.node)
    }

    /// Calls `callback` when the node is asked to close, or at once if it was asked already.
    ///
    /// The thread that asks the node calls it, before it tells any job below the node to end.
    pub fn on_shutdown(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        Subscription::new(self.node.latch(Condition::Asked), Some(&self.node), callback)
    }
}

/// Waiting, readiness, errors, values, and reports.
impl ShutdownNode {
    /// Waits until all counters of this node and below are zero at the same time. It shuts down nothing.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_timeout(Duration::MAX)
    }

    /// As [`wait`](Self::wait), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), or the limit was over before the counters were zero.
    pub fn wait_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::counters(&self.node, limit)
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
    /// group. So a call takes time in proportion to the size of the tree. If a program adds many nodes to a group, it
    /// should wait for each added node, and not each time for the whole group.
    ///
    /// # Errors
    /// The node was shut down, or there was an error. Or the guard of a job or a [`ReadyGuard`] was dropped before it
    /// reported that the node is ready. Or the caller is a step ([`NotReadyError::InsideStep`]).
    pub fn wait_ready(&self) -> Result<(), NotReadyError> {
        self.wait_ready_timeout(Duration::MAX)
    }

    /// As [`wait_ready`](Self::wait_ready), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_ready`](Self::wait_ready), or the limit was over before the nodes were ready.
    pub fn wait_ready_timeout(&self, limit: Duration) -> Result<(), NotReadyError> {
        wait::ready(&self.node, limit)
    }

    /// Returns the first error of this node or below. The node's own error comes before errors below it.
    ///
    /// Below it, the order is from left to right. In a dependency, the dependent node comes before the nodes that it
    /// depends on.
    pub fn err(&self) -> Option<NodeError> {
        walk::error(&self.node)
    }

    /// Waits until there is an error in this node or below, and returns the first.
    ///
    /// # Errors
    /// The caller is a step ([`WaitError::InsideStep`]).
    pub fn failed(&self) -> Result<NodeError, WaitError> {
        self.failed_timeout(Duration::MAX)
    }

    /// As [`failed`](Self::failed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`failed`](Self::failed), or the limit was over before there was an error.
    pub fn failed_timeout(&self, limit: Duration) -> Result<NodeError, WaitError> {
        wait::failed(&self.node, limit)
    }

    /// Calls `callback` with the first error in this node or below.
    ///
    /// If there is an error already, the call is made at once. Otherwise the thread that sets the error makes it.
    pub fn on_error(&self, callback: impl FnOnce(&NodeError) + Send + 'static) -> Subscription {
        let weak = Arc::downgrade(&self.node);
        Subscription::new(self.node.latch(Condition::Failed), Some(&self.node), move || {
            if let Some(error) = weak.upgrade().and_then(|node| walk::error(&node)) {
                callback(&error);
            }
        })
    }

    /// Shuts this node down at the first error in this node or below.
    ///
    /// This is as [`request_shutdown`](Self::request_shutdown). If there is an error already, it happens at once.
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

    /// Returns the first value under this key. The node's own value comes before values below it.
    ///
    /// Below it, the order is from left to right. In a dependency, the dependent node comes before the nodes that it
    /// depends on.
    pub fn get<K: Key>(&self, key: &K) -> Option<Arc<K::Value>> {
        walk(&self.node, |place| {
            match place.node.spec.value.as_ref().and_then(|stored| stored.downcast_ref::<Pair<K>>()) {
                // The key's `eq` is user code.
                Some(pair) if pair.key == *key => Break(pair.value.clone()),
                _ => Continue(place.node.lock().below()),
            }
        })
    }

    /// Reports on this node and all below it. The report has each node's phase, the time in it, and the error.
    pub fn report(&self) -> Report {
        Report::of(&self.node)
    }
}
