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
//! all.shutdown_timeout(Duration::from_secs(20))?;
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

mod builder;
mod cascade;
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
