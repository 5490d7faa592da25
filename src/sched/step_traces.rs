//! The spans of steps, in a runtime with a propagator of traces.

use super::road::{Executor, Road};
use crate::process::propagation::{StepEnd, end_span, step_begins};
use crate::sched::body::{Ready, StepOutput, Stepped};
use crate::sched::signals::Signals;
use crate::sched::trace_marks::TraceMarks;

impl Road {
    /// Prepares a step for the span that it may begin.
    #[inline]
    pub(crate) fn prepare_span(&self, body: &mut Ready) {
        if self.propagator.is_some() {
            prepare_span(body);
        }
    }

    /// Ends the span of a step that has returned. Its yields are not performed yet.
    #[inline]
    pub(crate) fn finish_span(&self, body: &mut Ready, out: &mut StepOutput) {
        if self.propagator.is_some() {
            finish_span(body, out);
        }
    }
}

#[cold]
fn prepare_span(body: &mut Ready) {
    step_begins(body.head.sender(), body.machine.kind().process, body.head.name());
    next_step(body);
}

#[cold]
fn finish_span(body: &mut Ready, out: &mut StepOutput) {
    match &out.failure {
        Some(exit) => end_span(StepEnd::Failed(exit)),
        None => end_span(StepEnd::Succeeded),
    }
    note_commands(body, out);
    next_step(body);
}

fn traces_of(body: &mut Ready) -> &mut TraceMarks {
    body.machine.mailbox().signals().get_or_insert_default().traces.get_or_insert_default()
}

/// Drops all that no step needs any more.
fn next_step(body: &mut Ready) {
    let signals = body.machine.mailbox().signals();
    let Some(Signals { traces: traces @ Some(_), .. }) = signals.as_deref_mut() else { return };
    traces.iter_mut().for_each(|traces| traces.next_step());
    traces.take_if(|traces| traces.is_empty());
    signals.take_if(|signals| signals.is_needless());
}

/// Moves the contexts of commands from the output of a step to its process. If the step has failed, drops them.
pub(super) fn note_commands(body: &mut Ready, out: &mut StepOutput) {
    let has_failed = out.failure.is_some();
    let Some(yields) = out.outbox.traces() else { return };
    if has_failed {
        return yields.clear();
    }
    if let Some(context) = yields.continues.take() {
        traces_of(body).continue_in(context);
    }
    let signals = body.machine.mailbox().signals();
    for (tag, context) in yields.commands.drain(..) {
        let is_there = signals.as_ref().is_some_and(|signals| signals.traces.is_some());
        if is_there || context.is_some() {
            signals.get_or_insert_default().traces.get_or_insert_default().note_command(tag, context);
        }
    }
}

/// Steps a process in a span of the level `TRACE`.
#[cold]
pub(super) fn step_traced<H: Executor>(executor: &H, out: &mut StepOutput, body: &mut Ready, budget: u32) -> Stepped {
    // With a propagator, a step has a span only if its event is traced. All yields would be within this one.
    let is_propagated = out.outbox.has_traces();
    let process = (body.machine.kind().process)();
    let _entered = (!is_propagated).then(|| tracing::trace_span!("step", pid = %body.head.pid, process).entered());
    body.machine.step(&mut body.head, out, budget, executor.sight())
}
