//! Observers, dead letters, statistics, figures, and watchers of exits.
//!
//! An [`Observer`] is notified of events. [`Runtime::stats`](crate::Runtime::stats) has counts, which are always there.
//! [`Runtime::snapshot`](crate::Runtime::snapshot) has all figures of a runtime. [`MetricsOptions`] add figures by type
//! of process to it. A [`Propagator`] makes traces follow messages from process to process.

pub use crate::process::{
    DeadLetter, DeadLetterReason, Observer, ProcessEvent, ProcessIdentity, Propagator, SpanPropagator, StepActivity,
    StepEnd, StepSpan, StuckStep, TraceContext, TracedEvent, TracedStep, WaitedForNothing,
};
pub use crate::runtime::{
    Bucket, ClusterStats, ExitCounts, ExitWatcher, Histogram, LongestMailbox, MailboxFigures, MessageCounts,
    MetricsOptions, NotIdleError, PeerStats, ProcessInfo, ProcessState, ProcessTrace, ShutdownStage, ShutdownStats,
    Snapshot, Stats, StoreStats, StuckProcess, TypeFigures, UncleanShutdown, WorkerStats,
};

#[cfg(feature = "metrics")]
pub use crate::runtime::MetricsPublisher;
