//! The frame of all Procession workloads: start a runtime, run processes, end the runtime, and check all counts.

use std::fmt::Debug;

use procession::observe::MetricsOptions;
use procession::{Exit, Handle, Process, Runtime};

use super::measure::{Outcome, PATIENCE, Setting, check};

impl Setting {
    pub(crate) fn runtime(&self) -> Outcome<Runtime> {
        let mut builder = Runtime::builder().workers(self.workers);
        if self.metrics {
            builder = builder.metrics(MetricsOptions::new());
        }
        #[cfg(feature = "durable")]
        if self.store {
            use procession::durable::Store;
            use procession::durable::journal::{MemoryDisk, MemoryJournal};

            return Ok(Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).start(builder)?.1);
        }
        Ok(builder.start()?)
    }
}

/// Waits for a process that must end with `Done`, and returns its output.
pub(crate) fn done<P: Process<Output: Clone + Debug>>(handle: &Handle<P>) -> Outcome<P::Output> {
    match handle.join_timeout(PATIENCE) {
        Ok(Exit::Done(output)) => Ok(P::Output::clone(&output)),
        Ok(other) => Err(format!("{} ended otherwise than done: {other:?}", handle.pid()).into()),
        Err(error) => Err(format!("{}: {error} ({PATIENCE:?})", handle.pid()).into()),
    }
}

/// Ends the runtime. No message may have been lost, and every process must end on request. Returns how many there
/// were.
pub(crate) fn finish(runtime: &Runtime) -> Outcome<u64> {
    check("dead letters", runtime.stats().messages.dead(), 0)?;
    let report = runtime.shutdown(PATIENCE)?;
    if !report.is_clean() {
        return Err(format!("shutdown: {report}").into());
    }
    let messages = runtime.stats().messages;
    check("messages accounted for", messages.stepped + messages.dead() + messages.queued, messages.accepted)?;
    Ok(report.ended as u64)
}
