//! The shutdown tree: background jobs that end in the order in which they depend on each other.
//!
//! A [`ShutdownNode`] is a node of a tree; its *children* close before it. Who starts background work makes a node, keeps its
//! *tail*, and returns the state. An application puts the states together and has one thing to shut down, to wait for, to
//! ask for errors, and to look at:
//!
//! ```
//! use procession::ShutdownNode;
//! use std::time::Duration;
//!
//! /// Starts the background work of a store, and returns its state.
//! fn store() -> Result<ShutdownNode, Box<dyn std::error::Error>> {
//!     Ok(ShutdownNode::thread("store", |job| {
//!         job.end().wait();
//!         // All who use the store have ended. Write what is left.
//!         Ok(())
//!     })?)
//! }
//!
//! /// The same for a server.
//! fn server() -> Result<ShutdownNode, Box<dyn std::error::Error>> {
//!     Ok(ShutdownNode::thread("server", |job| {
//!         job.end().wait();
//!         Ok(())
//!     })?)
//! }
//!
//! // The server ends first. Then nobody uses the store any more, and it ends.
//! let all = store()?.depends_on([server()?]);
//!
//! all.shutdown(Some(Duration::from_secs(20)))?;
//! assert!(all.err().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The order
//!
//! A node closes its children first, all at the same time; when they are done, it is told to end; when it says that it is
//! done, it is. `a.depends_on([b, c])` is a new node: `b` and `c` close together, then `a` with all below it. The same state
//! may be in several places, and closes once. **Closed** means that a node and all below it have ended, whether they were
//! asked to or not: a job that has ended by itself, with nothing open below it, is closed, and a shutdown does not tell it.
//!
//! # Who does the work
//!
//! Nobody: there is no thread for a tree, nor one for a node. Whoever makes a change (who asks, who drops a tail, whose
//! limit is over) goes through what follows from it, with no lock held while code of yours runs. Callbacks of signals
//! should be short: what the same thread tells next waits for them. Limits of single jobs need a thread that keeps the time;
//! there is one for a shutdown that comes to such a job, and it ends with it. The library's own parts use threads while they
//! end, so that nobody waits for code of yours that they have to run.
//!
//! # The parts
//!
//! | state | tail | for |
//! |---|---|---|
//! | [`ShutdownNode::job`], [`ShutdownNode::thread`], [`ShutdownNodeBuilder::future`] | [`JobGuard`], [`Job`] | background work |
//! | [`ShutdownNode::depends_on`], [`ShutdownNode::merge`], [`ShutdownNode::annotate`] | | order, several in one, names |
//! | [`ShutdownNode::group`] | [`Group`] | jobs that come and go |
//! | [`ShutdownNode::counted`] | [`Counter`] | work that is waited for |
//! | [`ShutdownNode::readiness`], [`ShutdownNodeBuilder::unready`] | [`ReadyGuard`], [`Job::ready`] | "it has started" |
//! | [`ShutdownNode::error`], [`ShutdownNode::result`], [`ShutdownNode::errors`] | [`ErrorGuard`] | errors |
//! | [`ShutdownNode::value`] | | something to be found from above |
//! | [`ShutdownNode::empty`] | | nothing |
//! | [`Runtime::shutdown_node`](crate::Runtime::shutdown_node), [`Pool::shutdown_node`](crate::pool::Pool::shutdown_node), [`TaskScheduler::shutdown_node`](crate::task::TaskScheduler::shutdown_node), [`Loop::shutdown_node`](crate::tasklet::Loop::shutdown_node) | | the library's own |

mod build;
mod drive;
mod error;
mod face;
mod handle;
mod key;
#[cfg(all(test, loom))]
mod models;
mod node;
mod part;
mod parts;
mod report;
#[cfg(feature = "signals")]
mod signals;
mod tail;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;
mod walk;

use std::io;
use std::time::Duration;

pub use self::build::{JobFuture, ShutdownNodeBuilder};
pub use self::error::{AddError, JobPanicked, StateError};
pub use self::face::Kind;
pub use self::handle::{AsState, ShutdownNode};
pub use self::key::Key;
pub(crate) use self::part::{Part, Role};
pub use self::report::{NodeReport, OpenNode, Phase, Report, ShutdownTimeout};
#[cfg(feature = "signals")]
pub use self::signals::{Signal, SignalError, Signals};
pub use self::tail::{CountGuard, Counter, ErrorGuard, Group, Job, JobGuard, ReadyGuard};
pub use self::wait::{NotReady, NotReadyYet, Subscription};

use self::build::Plan;
use self::key::Stored;
use self::parts::{Bell, Closing, Life, Own, Ready};
use crate::inside::{WaitError, deadline_here, is_step, refuse_step_timeout, why_not_over};
use crate::outcome::{BoxError, Failure, Rejected};
use crate::sync::Arc;

/// Making states.
impl ShutdownNode {
    /// Options of a node: a name, a clock, limits, and the rest.
    pub fn builder() -> ShutdownNodeBuilder {
        ShutdownNodeBuilder::new()
    }

    /// Nothing: closed, ready, without error, without value. It can stand wherever a state is asked for.
    pub fn empty() -> ShutdownNode {
        ShutdownNode::of(Plan::new(Kind::Empty, Own::Nothing, []).make())
    }

    /// One state for several. What may be absent is skipped with `flatten`, at any place:
    ///
    /// ```
    /// use procession::ShutdownNode;
    ///
    /// let metrics: Option<ShutdownNode> = None;
    /// let all = ShutdownNode::merge([Some(ShutdownNode::empty()), metrics].into_iter().flatten());
    /// # all.shutdown(None).unwrap();
    /// ```
    pub fn merge(children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        ShutdownNode::of(Plan::new(Kind::Merge, Own::Nothing, children).make())
    }

    /// Background work that is told to end when its children are done, and says when it is done itself.
    pub fn job(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, JobGuard) {
        Plan::new(Kind::Job, Own::Works, children).make_job()
    }

    /// A [`job`](Self::job) that is done by a thread of its own, which is called `name`. [`ShutdownNodeBuilder::thread`] is the
    /// same with options, such as children.
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
        let node = Plan::new(Kind::Counted, Own::Held, children).make();
        (ShutdownNode::of(node.clone()), Counter::new(node))
    }

    /// Something that is not ready until its tail says so.
    pub fn readiness(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ReadyGuard) {
        let node = Plan { ready: Ready::NotYet, ..Plan::new(Kind::Readiness, Own::Held, children) }.make();
        (ShutdownNode::of(node.clone()), ReadyGuard::new(node))
    }

    /// A state that has an error. What fails to start can return it in place of its state.
    pub fn error(error: impl Into<BoxError>, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        let node = Plan::new(Kind::Error, Own::Nothing, children).make();
        drive::set_error(&node, Failure::from(error.into()));
        ShutdownNode::of(node)
    }

    /// A state that has an error if the result is one.
    pub fn result<T>(
        result: Result<T, impl Into<BoxError>>,
        children: impl IntoIterator<Item = ShutdownNode>,
    ) -> ShutdownNode {
        match result {
            Ok(_) => ShutdownNode::of(Plan::new(Kind::Error, Own::Nothing, children).make()),
            Err(error) => ShutdownNode::error(error, children),
        }
    }

    /// A place for an error that may come later.
    pub fn errors(children: impl IntoIterator<Item = ShutdownNode>) -> (ShutdownNode, ErrorGuard) {
        let node = Plan::new(Kind::Errors, Own::Held, children).make();
        (ShutdownNode::of(node.clone()), ErrorGuard::new(node))
    }

    /// A value, to be found from above with [`get`](Self::get).
    pub fn value<K: Key>(key: K, value: K::Value, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        let value = Some(Stored::new(key, value));
        ShutdownNode::of(Plan { value, ..Plan::new(Kind::Value, Own::Nothing, children) }.make())
    }

    /// The same state under a name, which stands before errors that come from it: `name: error`. An empty name adds
    /// nothing.
    pub fn annotate(self, name: impl Into<String>) -> ShutdownNode {
        let name = name.into();
        if name.is_empty() {
            return self;
        }
        ShutdownNode::of(Plan { name: Some(name), ..Plan::new(Kind::Annotation, Own::Nothing, [self]) }.make())
    }

    /// A new state in which this one closes after the given ones are closed. This one and the given ones stay as they
    /// are, and can be used in other places, too.
    ///
    /// Who depends on several says so in one call, or one call after the other. Two states made from the same one in
    /// separate calls know nothing of each other: in a shutdown of both, this one ends after the first of the two.
    pub fn depends_on(&self, children: impl IntoIterator<Item = ShutdownNode>) -> ShutdownNode {
        let plan = Plan::new(Kind::Dependency, Own::Nothing, children);
        ShutdownNode::of(Plan { after: Some(self.clone()), ..plan }.make())
    }
}

/// Shutting down.
impl ShutdownNode {
    /// Closes this state and all below it, in order, and waits for that. Several callers may do so at the same time, and
    /// once it is closed every call succeeds at once. A job cannot wait for the end of what it is itself a part of: it
    /// asks with [`request_shutdown`](Self::request_shutdown).
    ///
    /// # Errors
    /// The limit was over before, or a job was given up. The error names what hangs. The shutdown goes on by itself. Where it
    /// is known that the calling thread belongs to what is to end (the thread of [`ShutdownNode::thread`], a job, task or tasklet
    /// below a [`Runtime::shutdown_node`](crate::Runtime::shutdown_node), [`Pool::shutdown_node`](crate::pool::Pool::shutdown_node) and so on), the call does not
    /// wait, nor does it in a step of any process. [`ShutdownTimeout::why`] says which.
    pub fn shutdown(&self, limit: Option<Duration>) -> Result<(), ShutdownTimeout> {
        let clock = &self.node().face.clock;
        let deadline = wait::deadline(clock, limit);
        drive::ask(self.node());
        let inside = if is_step() { None } else { walk::inside(self.node()) };
        if inside.is_none() {
            let deadline = deadline_here(clock, deadline);
            self.node().bell(Bell::Done).wait_until(clock, deadline);
        }
        if self.has_ended() {
            return Ok(());
        }
        let error = ShutdownTimeout::of(self.node(), why_not_over(limit), inside);
        // It may have ended while the error was made.
        if self.has_ended() { Ok(()) } else { Err(error) }
    }

    /// The same without waiting.
    pub fn request_shutdown(&self) {
        drive::ask(self.node());
    }

    /// Closed, and nothing that was given up still runs.
    fn has_ended(&self) -> bool {
        let (life, forced) = {
            let inner = self.node().lock();
            (inner.life, inner.forced)
        };
        life == Life::Done && !(forced && walk::is_open(self.node()))
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
    pub fn wait_closed(&self, limit: Option<Duration>) -> Result<(), WaitError> {
        if self.is_closed() {
            return Ok(());
        }
        refuse_step_timeout(limit)?;
        if walk::inside(self.node()).is_some() {
            return Err(WaitError::Inside);
        }
        let clock = &self.node().face.clock;
        let in_time = self.node().bell(Bell::Done).wait_until(clock, wait::deadline(clock, limit));
        if in_time { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// A future of the moment in which it is closed. It does not ask for that.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + Unpin + use<> {
        wait::Closed::new(self.node())
    }

    /// Has `callback` called when it is asked to close, by the thread that asks, before that tells any job below it to end;
    /// at once if it was asked already.
    pub fn on_shutdown(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        Subscription::new(self.node().bell(Bell::Asked), Some(self.node()), callback)
    }
}

/// Waiting, readiness, errors, values, and looking.
impl ShutdownNode {
    /// Waits until all counters from here down are zero at the same time. Nothing is shut down.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn wait(&self, limit: Option<Duration>) -> Result<(), WaitError> {
        refuse_step_timeout(limit)?;
        if wait::counters(self.node(), limit) { Ok(()) } else { Err(WaitError::TimedOut) }
    }

    /// Whether it and all below it are ready. Looks at each node below once.
    pub fn is_ready(&self) -> bool {
        wait::is_ready(self.node())
    }

    /// Waits until it and all below it are ready.
    ///
    /// Looks at each node below once, and at the states of a group that are in it when it comes to the group. So a call takes
    /// time in proportion to the tree. A program that adds one state after the other to a group, and waits for each, waits for
    /// the state that it has added and not for the group.
    ///
    /// # Errors
    /// The limit was over, it was shut down, there was an error, or a `ReadyGuard` or job was dropped before it said that it is
    /// ready; or the caller is a step ([`NotReady::InsideStep`]).
    pub fn wait_ready(&self, limit: Option<Duration>) -> Result<(), NotReady> {
        refuse_step_timeout(limit).map_err(|_| NotReady::InsideStep)?;
        wait::ready(self.node(), limit)
    }

    /// The first error: a node's own before those below it, of those the left one. In a dependency the one that depends
    /// comes before those it depends on.
    pub fn err(&self) -> Option<StateError> {
        walk::error(self.node())
    }

    /// Waits until there is an error here or below, and returns the first.
    ///
    /// # Errors
    /// The limit was over before, or the caller is a step ([`WaitError::InsideStep`]).
    pub fn failed(&self, limit: Option<Duration>) -> Result<StateError, WaitError> {
        refuse_step_timeout(limit)?;
        wait::failed(self.node(), limit).ok_or(WaitError::TimedOut)
    }

    /// Has `callback` called with the first error here or below, by the thread that sets it; at once if there is one.
    pub fn on_error(&self, callback: impl FnOnce(&StateError) + Send + 'static) -> Subscription {
        let weak = Arc::downgrade(self.node());
        Subscription::new(self.node().bell(Bell::Failed), Some(self.node()), move || {
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
            let closing = Closing::new();
            drive::after(|moves| self.node().ask(&closing, moves));
        }
        self
    }

    /// The value under a key: the first one from the top, and of those below, from the left. In a dependency the one that
    /// depends comes before those it depends on.
    pub fn get<K: Key>(&self, key: &K) -> Option<Arc<K::Value>> {
        walk::value(self.node(), key)
    }

    /// All nodes from here down, each with its phase, for how long, and its error.
    pub fn report(&self) -> Report {
        Report::of(self.node())
    }
}
