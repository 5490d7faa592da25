//! The runtime: processes, workers, the pool, timers, and the program's handle to them.

mod timed;
mod dispatch;
mod command_work;
mod send_work;
mod related;
mod inspect;
mod report;
mod tree;
mod worker_threads;
mod watchdog;
mod shutdown;
mod handle;
mod system;
mod ask;
mod watch;
mod names;
mod builder;
#[cfg(all(test, not(loom)))]
mod tests;

pub use self::ask::AskFuture;
pub use self::builder::{
    BuildError, DEFAULT_BLOCKING_THREADS, DEFAULT_MAX_PROCESSES, DEFAULT_SHUTDOWN_LIMIT, DEFAULT_STEP_EVENTS,
    RuntimeBuilder,
};
pub use self::handle::Handle;
pub use self::inspect::{ExitCounts, MessageCounts, ProcessInfo, ProcessState, Stats, WorkerStats};
pub use self::report::{ShutdownError, ShutdownReport, ShutdownStage};
pub use self::system::Runtime;
pub use self::tree::UncleanShutdown;
pub use self::watch::ExitWatcher;
pub use self::watchdog::Watchdog;
