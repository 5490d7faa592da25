//! The guide: a page for each part of the library.
//!
#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../docs/guide/README.md")]

// The pages are the files of `docs/guide/`. Each page ends with definitions of its links, which name files. `links.md`
// defines the same links as modules. It comes first here, and Markdown takes the first definition of a link. So the
// links work in a browser of the repository and in the documentation, and rustdoc checks them.

/// State machines with a mailbox: the contract, events, steps, yields, endings.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/processes.md")]
pub mod processes {}

/// States that handle one message after the other, and a comparison with OTP, actix, ractor and kameo.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/actors.md")]
pub mod actors {}

/// Processes that are notified of ends, and processes that restart others.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/supervision.md")]
pub mod supervision {}

/// Commands and their answers, futures, feeds, and calls from async code.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/commands.md")]
pub mod commands {}

/// Names, groups and targets: how processes find each other.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/names.md")]
pub mod names {}

/// A chat server in five steps.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/tutorial.md")]
pub mod tutorial {}

/// Timers, limits and clocks.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/time.md")]
pub mod time {}

/// Processes that are written as an `async fn`.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/async.md")]
pub mod async_processes {}

/// Bounded mailboxes, and senders that are faster than their receivers.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/backpressure.md")]
pub mod backpressure {}

/// Tests without threads, without sleeping, and with a clock that the test moves.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/testing.md")]
pub mod testing {}

/// A whole program under a seed: its order, its time and its faults are chosen.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/simulation.md")]
pub mod simulation {}

/// The log of the library, dead letters, and observers.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/logging.md")]
pub mod logging {}

/// Figures of a running program, by type of process.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/observability.md")]
pub mod observability {}

/// Threads for work that may block.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/worker-pool.md")]
pub mod worker_pool {}

/// Closures with a status, a timeout and one outcome.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/tasks.md")]
pub mod tasks {}

/// Work in several steps, on the thread that owns a state and on a pool.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/tasklets.md")]
pub mod tasklets {}

/// The end of a program, part by part.
///
#[doc = include_str!("guide/links.md")]
#[doc = include_str!("../docs/guide/shutdown.md")]
pub mod shutdown {}

/// Processes that survive the end of their program. The page is built with the feature `sqlite`.
///
#[doc = include_str!("guide/links.md")]
#[cfg_attr(feature = "sqlite", doc = include_str!("../docs/guide/durable.md"))]
pub mod durable {}

/// Processes of several nodes. The page is built with the feature `zenoh`.
///
#[doc = include_str!("guide/links.md")]
#[cfg_attr(feature = "zenoh", doc = include_str!("../docs/guide/cluster.md"))]
pub mod cluster {}
