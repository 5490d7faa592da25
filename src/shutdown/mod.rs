//! The shutdown tree: background jobs that end in the order in which they depend on each other.
//!
//! A [`ShutdownNode`] is a node of a tree; its *children* close before it. A function that starts background work
//! makes a node, keeps its *guard*, and returns the node. An application puts the nodes together. So it has one thing
//! to shut down, to wait for, to ask for errors, and to look at:
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
//! A node closes its children first, all at the same time. When they are done, it is told to end. When its guard says
//! done, it is done. `a.depends_on([b, c])` is a new node: `b` and `c` close together, then `a` with all below it.
//! The same node may be in several places, and closes once. **Closed** means that a node and all below it have ended,
//! whether they were asked to or not. A job that has ended by itself, with nothing open below it, is closed, and a
//! shutdown does not tell it.
//!
//! # Threads
//!
//! A tree has no thread, and neither has a node. The thread that makes a change (it asks for the shutdown, or drops a
//! guard) also carries out its consequences. No lock is held while your code runs. A callback of a signal should
//! be short: if it hangs, it blocks its thread, and what that thread tells next waits. So a callback must not wait
//! for a job that the same thread tells later. Limits of single jobs need a thread that keeps the time. A shutdown
//! that comes to such a job starts one, which also calls the callbacks of these limits.
//!
//! # The parts
//!
//! | node | guard | for |
//! |---|---|---|
//! | [`ShutdownNode::job`], [`ShutdownNode::thread`], [`ShutdownNodeBuilder::future`] | [`JobGuard`], [`Job`] | jobs |
//! | [`ShutdownNode::depends_on`], [`ShutdownNode::merge`], [`ShutdownNode::annotate`] | | order, merging, names |
//! | [`ShutdownNode::group`] | [`Group`] | jobs that come and go |
//! | [`ShutdownNode::counted`] | [`Counter`] | work that is waited for |
//! | [`ShutdownNode::readiness`], [`ShutdownNodeBuilder::unready`] | [`ReadyGuard`], [`Job::ready`] | readiness |
//! | [`ShutdownNode::error`], [`ShutdownNode::result`], [`ShutdownNode::errors`] | [`ErrorGuard`] | errors |
//! | [`ShutdownNode::value`] | | a value that is found from above |
//! | [`ShutdownNode::empty`] | | nothing |
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
pub(crate) use self::part::{Part, Role};
pub use self::report::{NodeReport, OpenNode, Phase, Report, ShutdownTimeout};
#[cfg(feature = "signals")]
pub use self::signals::{Signal, SignalError, Signals};
pub use self::spec::Kind;
pub use self::wait::{ClosedFuture, Subscription};
