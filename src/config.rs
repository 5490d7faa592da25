//! The configuration of a runtime.

pub use crate::runtime::{
    BuildError, DEFAULT_BLOCKING_THREADS, DEFAULT_MAX_PROCESSES, DEFAULT_SHUTDOWN_LIMIT, DEFAULT_STEP_EVENTS,
    RuntimeBuilder, Watchdog,
};
