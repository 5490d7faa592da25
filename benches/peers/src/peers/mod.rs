//! The same workloads with other libraries, each used as its own documentation recommends for speed. Every program
//! does the same as Procession's: the same counts, the same batches, the same check of the result.

pub(crate) mod with_tokio;
pub(crate) mod with_actix;
pub(crate) mod with_ractor;
pub(crate) mod with_kameo;
pub(crate) mod with_xtra;

use std::sync::mpsc::Receiver;

use tokio::runtime::{Builder, Runtime};

use crate::ours::measure::{Outcome, PATIENCE, Setting, Tally};

/// Counts the actors that report before the clock stops: each that ends, or each that waits.
pub(crate) static REPORTS: Tally = Tally::new();
/// Counts the actors that end after the clock has stopped, so that a loss is noticed.
pub(crate) static ENDS: Tally = Tally::new();

/// The runtime of all libraries on tokio, with its multi-threaded scheduler. No driver is started, for the network or
/// for timers. That saves a system call or two whenever a thread parks.
pub(crate) fn tokio_runtime(setting: &Setting) -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(setting.workers).build()?)
}

/// As `tokio_runtime`, for programs that set timers.
pub(crate) fn tokio_runtime_with_timers(setting: &Setting) -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(setting.workers).enable_time().build()?)
}

/// Receives the report of an actor.
pub(crate) fn report<T>(from: &Receiver<T>) -> Outcome<T> {
    Ok(from.recv_timeout(PATIENCE).map_err(|problem| format!("no report: {problem}"))?)
}
