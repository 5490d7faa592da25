//! The frame of all Procession workloads: start a runtime, run processes, end the runtime, and check all counts.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use procession::observe::{
    DeadLetter, MetricsOptions, Propagator, SpanPropagator, StepEnd, StepSpan, TraceContext, TracedStep,
};
use procession::{Exit, Handle, Process, Runtime};

use super::measure::{Beside, Outcome, PATIENCE, Setting, check};

impl Setting {
    pub(crate) fn runtime(&self) -> Outcome<Runtime> {
        let builder = Runtime::builder().workers(self.workers);
        match self.beside {
            Beside::Nothing => Ok(builder.start()?),
            Beside::Metrics => Ok(builder.metrics(MetricsOptions::new()).start()?),
            Beside::Traces => Ok(builder.propagate(Nothing).start()?),
            Beside::Spans => Ok(builder.propagate(SpanPropagator).start()?),
            #[cfg(feature = "durable")]
            Beside::Store => {
                use procession::durable::Store;
                use procession::durable::journal::{MemoryDisk, MemoryJournal};

                Ok(Store::with_journal(MemoryJournal::new(&MemoryDisk::new())).start(builder)?.1)
            }
            #[cfg(feature = "cluster")]
            Beside::Node => connected(builder.start()?),
            #[allow(unreachable_patterns)]
            beside => Err(format!("{:?} needs a feature that this build does not have", beside.option()).into()),
        }
    }
}

/// Traces all messages, and does nothing for it.
struct Nothing;

impl Propagator for Nothing {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        Some(Arc::new(Nothing))
    }
}

impl TraceContext for Nothing {
    fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
        Box::new(Nothing)
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(())
    }

    fn dead_letter(&self, _: &DeadLetter<'_>) {}
}

impl StepSpan for Nothing {
    fn end(self: Box<Self>, _: StepEnd<'_>) {}
}

/// Has a runtime be a node that is connected with another one.
#[cfg(feature = "cluster")]
fn connected(runtime: Runtime) -> Outcome<Runtime> {
    use std::sync::Mutex;

    use procession::cluster::{Cluster, MemoryNetwork, Wire};

    /// The other nodes live as long as the program.
    static OTHERS: Mutex<Vec<Runtime>> = Mutex::new(Vec::new());
    let (network, other) = (MemoryNetwork::new(), Runtime::builder().workers(1).start()?);
    let node = |name, runtime| Cluster::named(name, Wire::new()).memory(&network).start(runtime);
    let (here, _) = (node("a", &runtime)?, node("b", &other)?);
    here.wait_for("b", PATIENCE)?;
    OTHERS.lock().map_err(|_| "another start has panicked")?.push(other);
    Ok(runtime)
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
