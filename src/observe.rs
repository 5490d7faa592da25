//! Observers, dead letters, statistics, figures, and watchers of exits.
//!
//! An [`Observer`] is notified of events. [`Runtime::stats`](crate::Runtime::stats) has counts, which are always there.
//! [`Runtime::snapshot`](crate::Runtime::snapshot) has all figures of a runtime. [`MetricsOptions`] add figures by type
//! of process to it.

pub use crate::process::{
    DeadLetter, DeadLetterReason, Observer, ProcessEvent, ProcessIdentity, StepActivity, StuckStep, WaitedForNothing,
};
pub use crate::runtime::{
    Bucket, ClusterStats, ExitCounts, ExitWatcher, Histogram, LongestMailbox, MailboxFigures, MessageCounts,
    MetricsOptions, NotIdleError, PeerStats, ProcessInfo, ProcessState, ProcessTrace, ShutdownStage, ShutdownStats,
    Snapshot, Stats, StoreStats, StuckProcess, TypeFigures, UncleanShutdown, WorkerStats,
};

#[cfg(feature = "metrics")]
pub use crate::runtime::MetricsPublisher;
