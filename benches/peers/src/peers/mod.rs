//! The same workloads with other libraries, each used as its own documentation says for speed. Every program does what
//! ours does: the same counts, the same batches, the same check of what came of it.

pub(crate) mod with_tokio;
pub(crate) mod with_actix;
pub(crate) mod with_ractor;
pub(crate) mod with_kameo;
pub(crate) mod with_xtra;

use std::sync::mpsc::Receiver;

use tokio::runtime::{Builder, Runtime};

use crate::ours::measure::{Outcome, PATIENCE, Setting, Tally};

/// The actors that report before the clock stops: each actor that ends, or each that waits.
pub(crate) static REPORTS: Tally = Tally::new();
/// The actors that end after the clock has stopped, so that nothing is lost unseen.
pub(crate) static ENDS: Tally = Tally::new();

/// The runtime of all libraries on tokio: its scheduler of many threads. No driver for the network is started, which
/// spares each thread that parks a system call or two; timers are there, as some of the libraries ask for them.
pub(crate) fn tokio_runtime(setting: &Setting) -> Outcome<Runtime> {
    Ok(Builder::new_multi_thread().worker_threads(setting.workers).build()?)
}

/// The report of an actor to the thread that waits for it.
pub(crate) fn report<T>(from: &Receiver<T>) -> Outcome<T> {
    Ok(from.recv_timeout(PATIENCE).map_err(|problem| format!("no report: {problem}"))?)
}
