//! Traces along messages with the spans of `tracing`.

use std::any::Any;

use super::dead_letter::DeadLetter;
use super::propagation::{Propagator, StepEnd, StepSpan, TraceContext, TracedEvent, TracedStep};
use crate::outcome::tell_log;
use crate::primitives::Arc;

/// Follows the spans of `tracing`.
///
/// A message that is sent within a span gets a step with a span of its own, `step`, at the level `INFO`. The parent of
/// this span is the span in which the message was sent. Its fields are `pid`, `process`, `name`, `message` or
/// `command`, and `outcome`.
///
/// If the subscriber does not want these spans, the trace goes on without them.
///
/// A message keeps the span of its sender open until it is stepped, as `tracing` requires of the parent of a span. So
/// does a command until it is answered. The propagator of `procession-otel` does not.
///
/// Spans do not travel: a message to another node leaves its trace. So does the mail of a store when it is read from
/// the disk. With `procession-otel`, traces go on there.
///
/// A process that sets its next timer in the step of the last one stays in the trace of the first timer for ever. A
/// step begins another trace if it yields within a span without a parent, for example
/// `info_span!(parent: None, "tick")`.
///
/// The spans `step` and `start` at the level `TRACE`, which all steps have otherwise, are not there in a runtime with a
/// propagator. Each of them would begin a trace.
///
/// ```
/// use procession::Runtime;
/// use procession::observe::SpanPropagator;
///
/// let runtime = Runtime::builder().workers(1).propagate(SpanPropagator).start()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanPropagator;

impl Propagator for SpanPropagator {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        let span = tracing::Span::current();
        if span.is_none() { None } else { Some(Arc::new(SpanContext(span))) }
    }
}

struct SpanContext(tracing::Span);

impl TraceContext for SpanContext {
    fn begin_step(&self, step: &TracedStep<'_>) -> Box<dyn StepSpan> {
        let (message, command) = match step.event {
            TracedEvent::Message { type_name, .. } => (Some(type_name), None),
            TracedEvent::Completed { tag } => (None, Some(tag)),
            TracedEvent::Continued => (None, None),
        };
        let span = tracing::info_span!(
            parent: &self.0,
            "step",
            pid = %step.pid,
            process = step.type_name,
            name = step.name,
            message,
            command,
            outcome = tracing::field::Empty,
        );
        // The subscriber may not want such spans. Then the trace goes on in its parent.
        let is_own = !span.is_disabled();
        let span = if is_own { span } else { self.0.clone() };
        Box::new(EnteredStep { span: span.entered(), is_own })
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(self.0.clone().entered())
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        tell_log(|| {
            tracing::warn!(
                parent: &self.0,
                to = %letter.to,
                name = letter.name,
                reason = %letter.reason,
                message = letter.type_name,
                "a message of this trace is a dead letter"
            );
        });
    }
}

struct EnteredStep {
    span: tracing::span::EnteredSpan,
    is_own: bool,
}

impl StepSpan for EnteredStep {
    fn end(self: Box<Self>, end: StepEnd<'_>) {
        match end {
            _ if !self.is_own => {}
            StepEnd::Succeeded => _ = self.span.record("outcome", "succeeded"),
            StepEnd::Failed(exit) => _ = self.span.record("outcome", tracing::field::display(exit)),
        }
    }
}
