//! Observers, dead letters, statistics, and watchers of exits.

pub use crate::process::{
    DeadLetter, DeadLetterReason, Observer, ProcessIdentity, StepActivity, StuckStep, WaitedForNothing,
};
pub use crate::runtime::{
    ExitCounts, ExitWatcher, MessageCounts, NotIdleError, ProcessInfo, ProcessState, ShutdownStage, Stats,
    UncleanShutdown, WorkerStats,
};
