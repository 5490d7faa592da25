//! The runtime: processes, workers, the pool, timers, and the program's handle to them.

pub(crate) mod timed;
pub(crate) mod simulated;
pub(crate) mod dispatch;
#[cfg(feature = "cluster")]
mod for_nodes;
mod command_work;
mod send_work;
mod futures;
mod related;
mod inspect;
mod metrics_options;
mod histogram;
#[cfg(feature = "serde")]
mod coded_figures;
mod report;
mod tree;
mod worker_threads;
mod watchdog;
mod shutdown;
mod access;
mod send_future;
mod ask;
mod watch;
mod process_node;
mod process_ref;
mod handle;
mod system;
mod part_stats;
mod snapshot;
#[cfg(feature = "console")]
mod top;
mod figure_list;
mod openmetrics;
#[cfg(feature = "metrics")]
mod metrics_publisher;
mod weak;
mod calls;
mod describe;
mod trace;
mod idle;
mod names;
mod recordings;
mod builder;
#[cfg(all(test, not(loom)))]
mod elsewhere_tests;
#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(feature = "cluster")]
pub(crate) use self::access::WeakAccess;
#[cfg(any(feature = "durable", feature = "cluster"))]
pub(crate) use self::dispatch::Core;
#[cfg(feature = "durable")]
pub(crate) use self::timed::Timed;
#[cfg(feature = "console")]
pub(crate) use self::top::{By, Filter};

pub use self::ask::AskFuture;
pub use self::builder::{
    BuildError, DEFAULT_BLOCKING_THREADS, DEFAULT_MAX_PROCESSES, DEFAULT_SHUTDOWN_LIMIT, DEFAULT_STEP_EVENTS,
    RuntimeBuilder,
};
pub use self::handle::Handle;
pub use self::histogram::{Bucket, Histogram};
pub use self::idle::NotIdleError;
pub use self::inspect::{ExitCounts, MessageCounts, ProcessInfo, ProcessState, Stats, WorkerStats};
pub use self::metrics_options::MetricsOptions;
#[cfg(feature = "metrics")]
pub use self::metrics_publisher::MetricsPublisher;
pub use self::part_stats::{ClusterStats, PeerStats, ShutdownStats, StoreStats};
pub use self::process_ref::ProcessRef;
pub use self::report::{ShutdownError, ShutdownReport, ShutdownStage};
pub use self::send_future::SendFuture;
pub use self::snapshot::{LongestMailbox, MailboxFigures, Snapshot, StuckProcess, TypeFigures};
pub use self::system::Runtime;
pub use self::trace::ProcessTrace;
pub use self::tree::UncleanShutdown;
pub use self::watch::ExitWatcher;
pub use self::watchdog::Watchdog;
pub use self::weak::WeakRuntime;
