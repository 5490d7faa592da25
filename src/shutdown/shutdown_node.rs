//! What programs do with a node of the shutdown tree.

use std::io;
use std::time::Duration;

use super::builder::ShutdownNodeBuilder;
use super::cascade;
use super::error::{NodeError, NotReadyError};
use super::guards::{Counter, ErrorGuard, Group, Job, JobGuard, ReadyGuard};
use super::key::{Key, Stored};
use super::node::{Condition, Life, Own, ShutdownNode};
use super::report::{Report, ShutdownTimeout};
use super::spec::Kind;
use super::wait::{self, ClosedFuture, Subscription};
use super::walk;
use crate::inside::WaitError;
use crate::outcome::{BoxError, Failure, Rejected};
use crate::primitives::Arc;

/// Making states.
impl ShutdownNode {
    /// Options of a node: a name, a clock, limits, and the rest.
    pub fn builder() -> ShutdownNodeBuilder {
        ShutdownNodeBuilder::new(Kind::Merge, Own::Nothing, [])
    }

    /// Nothing: closed, ready, without error, without value. It can stand wherever a state is asked for.
    pub fn empty() -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Empty, Own::Nothing, []).make_node()
    }

    /// One state for several. What may be absent is skipped with `flatten`, at any place:
    ///
    /// ```
    /// use procession::ShutdownNode;
    ///
    /// let metrics: Option<ShutdownNode> = None;
    /// let all = ShutdownNode::merge([Some(ShutdownNode::empty()), metrics].into_iter().flatten());
    /// # all.shutdown().unwrap();
    /// ```
    pub fn merge(children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Merge, Own::Nothing, children).make_node()
    }

    /// Background work that is told to end when its children are done, and says when it is done itself.
    pub fn job(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, JobGuard) {
        ShutdownNode::builder().children(children).job()
    }

    /// A [`job`](Self::job) that is done by a thread of its own, which is called `name`.
    /// [`ShutdownNodeBuilder::thread`] is the same with options, such as children.
    ///
    /// # Errors
    /// The closure comes back if the operating system gives no thread, or the name has a NUL in it.
    pub fn thread<F>(name: impl Into<String>, work: F) -> Result<ShutdownNode, Rejected<F, io::Error>>
    where
        F: FnOnce(Job) -> Result<(), BoxError> + Send + 'static,
    {
        ShutdownNode::builder().name(name).thread(work)
    }

    /// A group that takes states in while it runs. The children given here stay as long as the group.
    pub fn group(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, Group) {
        ShutdownNode::builder().children(children).group()
    }

    /// Something that is counted: [`wait`](Self::wait) returns when the count is zero.
    pub fn counted(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, Counter) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Counted, Own::Held, children).make_held();
        (node, Counter { hold })
    }

    /// A node that is not ready until its guard says so.
    pub fn readiness(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ReadyGuard) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Readiness, Own::Held, children).unready().make_held();
        (node, ReadyGuard { hold })
    }

    /// A state that has an error. What fails to start can return it in place of its state.
    pub fn error(error: impl Into<BoxError>, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNode::result(Err::<(), _>(error), children)
    }

    /// A state that has an error if the result is one.
    pub fn result<T>(
        result: Result<T, impl Into<BoxError>>,
        children: impl IntoIterator<Item = ShutdownNode>,
    ) -> ShutdownNode {
        let node = ShutdownNodeBuilder::new(Kind::Error, Own::Nothing, children).make_node();
        if let Err(error) = result {
            cascade::set_error(node.node(), Failure::from(error.into()));
        }
        node
    }

    /// A place for an error that may come later.
    pub fn errors(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ErrorGuard) {
        let (node, hold) = ShutdownNodeBuilder::new(Kind::Errors, Own::Held, children).make_held();
        (node, ErrorGuard { hold })
    }

    /// A value, to be found from above with [`get`](Self::get).
    pub fn value<K: Key>(key: K, value: K::Value, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNodeBuilder::new(Kind::Value, Own::Nothing, children).value(Stored::new(key, value)).make_node()
    }

    /// The same state under a name, which stands before errors that come from it: `name: error`. An empty name adds
    /// nothing.
    pub fn annotate(self, name: impl Into<String>) -> ShutdownNode {
        let name = name.into();
        if name.is_empty() {
            return self;
        }
        ShutdownNodeBuilder::new(Kind::Annotation, Own::Nothing, [self]).name(name).make_node()
    }

    /// A new state in which this one closes after the given ones are closed. This one and the given ones stay as they
    /// are, and can be used in other places, too.
    ///
    /// If a node depends on several, name them in one call, or make one call after the other. Two nodes made from the
    /// same one in separate calls know nothing of each other: in a shutdown of both, this one ends after the first of
    /// the two.
    pub fn depends_on(&self, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        let mut builder = ShutdownNodeBuilder::new(Kind::Dependency, Own::Nothing, children);
        builder.after = Some(self.clone());
        builder.make_node()
    }
}

/// Shutting down.
impl ShutdownNode {
    /// Closes this state and all below it, in order, and waits for that. Several callers may do so at the same time,
    /// and once it is closed every call succeeds at once. A job cannot wait for the end of what it is itself a part
    /// of: it asks with [`request_shutdown`](Self::request_shutdown).
    ///
    /// # Errors
    /// The limit was over before, or a job was given up. The error names what hangs. The shutdown goes on by itself.
    /// Where it is known that the calling thread belongs to what is to end (the thread of [`ShutdownNode::thread`], a
    /// job, task or tasklet below a [`Runtime::shutdown_node`](crate::Runtime::shutdown_node),
    /// [`Pool::shutdown_node`](crate::pool::Pool::shutdown_node) and so on), the call does not wait, nor does it in a
    /// step of any process. [`ShutdownTimeout::why`] says which.
    pub fn shutdown(&self) -> Result<(), ShutdownTimeout> {
        wait::shutdown(self.node(), None)
    }

    /// As [`shutdown`](Self::shutdown), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`shutdown`](Self::shutdown), or the limit was over before.
    pub fn shutdown_timeout(&self, limit: Duration) -> Result<(), ShutdownTimeout> {
        wait::shutdown(self.node(), Some(limit))
    }

    /// Asks this node and all below it to close, without waiting for that.
    pub fn request_shutdown(&self) {
        cascade::ask(self.node());
    }

    /// Whether it has been asked to close.
    pub fn is_shutting_down(&self) -> bool {
        self.node().lock().times.asked.is_some()
    }

    /// Whether it and all below it have ended (or were given up).
    pub fn is_closed(&self) -> bool {
        self.node().lock().life == Life::Done
    }

    /// Waits until it is closed, without asking for that.
    ///
    /// # Errors
    /// The limit was over before; or it is not closed, and there is no waiting: the caller is a step
    /// ([`WaitError::InsideStep`]), or it is known that the state waits for the calling thread ([`WaitError::Inside`]).
    pub fn wait_closed(&self) -> Result<(), WaitError> {
        wait::closed(self.node(), None)
    }

    /// As [`wait_closed`](Self::wait_closed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_closed`](Self::wait_closed), or the limit was over before.
    pub fn wait_closed_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::closed(self.node(), Some(limit))
    }

    /// A future of the moment in which it is closed. It does not ask for that.
    pub fn closed(&self) -> ClosedFuture {
        ClosedFuture::new(self.node())
    }

    /// Has `callback` called when it is asked to close, by the thread that asks, before that tells any job below it
    /// to end; at once if it was asked already.
    pub fn on_shutdown(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        Subscription::new(self.node().latch(Condition::Asked), Some(self.node()), callback)
    }
}

/// Waiting, readiness, errors, values, and looking.
impl ShutdownNode {
    /// Waits until all counters from here down are zero at the same time. Nothing is shut down.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn wait(&self) -> Result<(), WaitError> {
        wait::counters(self.node(), None)
    }

    /// As [`wait`](Self::wait), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), or the limit was over before.
    pub fn wait_timeout(&self, limit: Duration) -> Result<(), WaitError> {
        wait::counters(self.node(), Some(limit))
    }

    /// Whether it and all below it are ready. Looks at each node below once.
    pub fn is_ready(&self) -> bool {
        wait::is_ready(self.node())
    }

    /// Waits until it and all below it are ready.
    ///
    /// Looks at each node below once, and at the states of a group that are in it when it comes to the group. So a
    /// call takes time in proportion to the tree. A program that adds one state after the other to a group, and waits
    /// for each, waits for the state that it has added and not for the group.
    ///
    /// # Errors
    /// The limit was over, it was shut down, there was an error, or a `ReadyGuard` or job was dropped before it said
    /// that it is ready; or the caller is a step ([`NotReadyError::InsideStep`]).
    pub fn wait_ready(&self) -> Result<(), NotReadyError> {
        wait::ready(self.node(), None)
    }

    /// As [`wait_ready`](Self::wait_ready), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`wait_ready`](Self::wait_ready), or the limit was over before.
    pub fn wait_ready_timeout(&self, limit: Duration) -> Result<(), NotReadyError> {
        wait::ready(self.node(), Some(limit))
    }

    /// The first error: a node's own before those below it, of those the left one. In a dependency the one that depends
    /// comes before those it depends on.
    pub fn err(&self) -> Option<NodeError> {
        walk::error(self.node())
    }

    /// Waits until there is an error here or below, and returns the first.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn failed(&self) -> Result<NodeError, WaitError> {
        wait::failed(self.node(), None)
    }

    /// As [`failed`](Self::failed), but waits no longer than `limit`.
    ///
    /// # Errors
    /// As [`failed`](Self::failed), or the limit was over before.
    pub fn failed_timeout(&self, limit: Duration) -> Result<NodeError, WaitError> {
        wait::failed(self.node(), Some(limit))
    }

    /// Has `callback` called with the first error here or below, by the thread that sets it; at once if there is one.
    pub fn on_error(&self, callback: impl FnOnce(&NodeError) + Send + 'static) -> Subscription {
        let weak = Arc::downgrade(self.node());
        Subscription::new(self.node().latch(Condition::Failed), Some(self.node()), move || {
            if let Some(error) = weak.upgrade().and_then(|node| walk::error(&node)) {
                callback(&error);
            }
        })
    }

    /// From now on the first error here or below shuts this state down, as [`request_shutdown`](Self::request_shutdown)
    /// would. There may be one already.
    pub fn shutdown_on_error(self) -> ShutdownNode {
        let failed = {
            let mut inner = self.node().lock();
            inner.closes_on_error = true;
            inner.failed
        };
        if failed {
            cascade::ask(self.node());
        }
        self
    }

    /// The value under a key: the first one from the top, and of those below, from the left. In a dependency the one
    /// that depends comes before those it depends on.
    pub fn get<K: Key>(&self, key: &K) -> Option<Arc<K::Value>> {
        walk::value(self.node(), key)
    }

    /// All nodes from here down, each with its phase, for how long, and its error.
    pub fn report(&self) -> Report {
        Report::of(self.node())
    }
}
