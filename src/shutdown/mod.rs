//! The shutdown tree: background jobs that end in the order in which they depend on each other.
//!
//! A [`ShutdownNode`] is a node of a tree. Its *children* close before it. A function that starts background work makes
//! a node. The work keeps the node's *guard*, and the function returns the node. An application combines the nodes. So
//! it has one node to shut down, to wait for, to check for errors, and to inspect:
//!
//! ```
//! use procession::ShutdownNode;
//! use std::time::Duration;
//!
//! /// Starts the background work of a store, and returns its node.
//! fn store() -> Result<ShutdownNode, Box<dyn std::error::Error>> {
//!     Ok(ShutdownNode::thread("store", |job| {
//!         job.end().wait();
//!         // The users of the store have ended. Write what is left.
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
//! // The server ends first. Then the store has no user, and ends.
//! let all = store()?.depends_on([server()?]);
//!
//! all.shutdown_timeout(Duration::from_secs(20))?;
//! assert!(all.err().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The order
//!
//! A node that is asked to close first asks its children, all at the same time. When the children are done, the node is
//! told to end. It is done when its guard reports the end, or is dropped. `a.depends_on([b, c])` is a new node: `b` and
//! `c` close together, then `a` closes, with all nodes below it. A node may have several parents. It closes once.
//!
//! **Closed** means that a node and all nodes below it have ended, whether they were asked to or not. A job may end by
//! itself. If nothing below it is open then, it is closed, and a shutdown does not tell it to end.
//!
//! # Threads
//!
//! A tree has no thread, and neither has a node. Changes are, for example, a request for a shutdown, and the drop of a
//! guard. The thread that makes a change also makes the changes that follow from it, and calls the callbacks. No lock
//! is held while your code runs. A callback of an end signal should be short. If it hangs, it blocks its thread, and
//! the jobs that this thread would tell next are not told. So a callback must not wait for a job that the same thread
//! tells later.
//!
//! Limits of single jobs need a thread that keeps the time. A shutdown starts this thread when it comes to such a job.
//! The thread also calls the callbacks of these limits.
//!
//! # The parts
//!
//! | node | guard | for |
//! |---|---|---|
//! | [`ShutdownNode::job`], [`ShutdownNode::thread`], [`ShutdownNodeBuilder::future`] | [`JobGuard`], [`Job`] | jobs |
//! | [`ShutdownNode::depends_on`], [`ShutdownNode::merge`], [`ShutdownNode::annotate`] | | order, merging, names |
//! | [`ShutdownNode::group`] | [`Group`] | jobs that come and go |
//! | [`ShutdownNode::counted`] | [`Counter`] | a count of work, and waits until it is zero |
//! | [`ShutdownNode::readiness`], [`ShutdownNodeBuilder::unready`] | [`ReadyGuard`], [`Job::ready`] | readiness |
//! | [`ShutdownNode::error`], [`ShutdownNode::result`], [`ShutdownNode::errors`] | [`ErrorGuard`] | errors |
//! | [`ShutdownNode::value`] | | a value that the nodes above find |
//! | [`ShutdownNode::empty`] | | a part that has nothing to shut down |
//! | [`Runtime::shutdown_node`], [`Pool::shutdown_node`] | | a runtime, a pool |
//! | [`TaskScheduler::shutdown_node`], [`Loop::shutdown_node`] | | a task scheduler, a loop |
//!
//! [`Runtime::shutdown_node`]: crate::Runtime::shutdown_node
//! [`Pool::shutdown_node`]: crate::pool::Pool::shutdown_node
//! [`TaskScheduler::shutdown_node`]: crate::task::TaskScheduler::shutdown_node
//! [`Loop::shutdown_node`]: crate::tasklet::Loop::shutdown_node

mod builder;
mod cascade;
mod closing;
mod error;
mod guards;
mod key;
#[cfg(all(test, loom))]
mod models;
mod node;
mod part;
mod report;
mod shutdown_node;
#[cfg(feature = "signals")]
mod signals;
mod spec;
#[cfg(all(test, not(loom)))]
mod tests;
mod wait;
mod walk;

pub use self::builder::{JobFuture, ShutdownNodeBuilder};
pub use self::error::{AddError, JobPanicError, NodeError, NotReadyError, NotReadyNode};
pub use self::guards::{CountGuard, Counter, ErrorGuard, Group, Job, JobGuard, ReadyGuard};
pub use self::key::Key;
pub use self::node::ShutdownNode;
pub(crate) use self::part::{Part, Role, describe_left};
pub use self::report::{NodeReport, OpenNode, Phase, Report, ShutdownTimeout};
#[cfg(feature = "signals")]
pub use self::signals::{Signal, SignalError, Signals};
pub use self::spec::Kind;
pub use self::wait::{ClosedFuture, Subscription};
