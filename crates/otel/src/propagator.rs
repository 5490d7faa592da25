//! Traces along messages with the contexts of OpenTelemetry.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, ContextGuard, InstrumentationScope, KeyValue};
use procession::Exit;
use procession::observe::{DeadLetter, Propagator, StepEnd, StepSpan, TraceContext, TracedEvent, TracedStep};

/// Follows the traces of OpenTelemetry.
///
/// A message that is sent while a span is current carries the span context, and the values of the [`Context`], for
/// example baggage. It does not carry the span. So the span of the sender ends as it would without messages, however
/// long the message waits.
///
/// # Spans of steps
///
/// A traced message has a step of its own. The span of the step is a child of the span in which the message was sent.
/// Its name follows the conventions of OpenTelemetry for messaging: the operation, and then a destination that has few
/// different values. So it is `step` and the type of the process, for example `step shop::Order`. It never has a PID or
/// the name of a process. The kind is `Consumer`. The step that takes the answer to a command has such a span, too. Its
/// kind is `Internal`, because no message was sent.
///
/// | attribute | value |
/// |---|---|
/// | `procession.pid` | the PID of the process |
/// | `procession.process` | its type |
/// | `procession.name` | its name, if it has one |
/// | `procession.message` | the type of the message |
/// | `procession.sender` | the PID of the sender, unless the message was sent from outside |
/// | `procession.command` | the tag of the command that was answered |
/// | `messaging.system` | `procession`, if the event is a message |
/// | `messaging.operation.name` | `step`, if the event is a message |
/// | `messaging.operation.type` | `process`, if the event is a message |
/// | `messaging.destination.template` | the type of the process, if the event is a message |
///
/// The span of a failed step has the status `Error` with the text of the exit. Its attribute `error.type` is `failed`,
/// `panicked` or `terminated`. The status of all other steps is `Unset`, as the conventions ask.
///
/// Blocking closures, futures and handlers run within the context in which they were yielded. They have no spans of
/// their own. The program can begin some there.
///
/// # Dead letters
///
/// A traced message that becomes a dead letter is a span `dead letter` without duration. It is a child of the span in
/// which the message was sent. It is never an event, because the span of the sender has usually ended, and a span that
/// has ended takes no events. Its status is `Error` with the reason, which is also the attribute `error.type`. It has
/// the attributes `procession.pid`, `.name`, `.message` and `.sender` of a step that would have taken the message.
///
/// # Sampling
///
/// The sampler of the tracer decides about each span. A trace that is not sampled stays one trace: its messages carry
/// the context with its flags. If the tracer gives a span without an identity, because its provider was shut down or
/// telemetry is suppressed, the trace goes on in the parent of this span.
#[derive(Clone)]
pub struct OtelPropagator {
    tracer: Arc<OnceLock<BoxedTracer>>,
}

impl OtelPropagator {
    /// Begins the spans of steps with this tracer.
    pub fn new<T>(tracer: T) -> OtelPropagator
    where
        T: Tracer + Send + Sync + 'static,
        T::Span: Send + Sync + 'static,
    {
        OtelPropagator { tracer: Arc::new(OnceLock::from(BoxedTracer::new(Box::new(tracer)))) }
    }
}

impl Default for OtelPropagator {
    /// Begins the spans of steps with a tracer of the global provider.
    ///
    /// The tracer is called `procession`. The propagator gets it when the first traced message is stepped. So the
    /// program may install its provider after it has started the runtime.
    fn default() -> OtelPropagator {
        OtelPropagator { tracer: Arc::new(OnceLock::new()) }
    }
}

impl fmt::Debug for OtelPropagator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtelPropagator").finish_non_exhaustive()
    }
}

impl Propagator for OtelPropagator {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        let context = Context::map_current(|current| {
            let span = current.span().span_context().clone();
            // This takes the place of the span itself, which would stay open in a clone of the context.
            span.is_valid().then(|| current.with_remote_span_context(span))
        })?;
        Some(Arc::new(OtelContext { context, tracer: self.tracer.clone() }))
    }
}

/// The context of a message or a command.
struct OtelContext {
    /// It has the context of a span, and no span.
    context: Context,
    tracer: Arc<OnceLock<BoxedTracer>>,
}

impl OtelContext {
    fn begin(&self, span: SpanBuilder) -> global::BoxedSpan {
        let tracer = self.tracer.get_or_init(|| {
            let scope = InstrumentationScope::builder("procession").with_version(env!("CARGO_PKG_VERSION"));
            global::tracer_with_scope(scope.build())
        });
        tracer.build_with_context(span, &self.context)
    }
}

impl TraceContext for OtelContext {
    fn begin_step(&self, step: &TracedStep<'_>) -> Box<dyn StepSpan> {
        let kind = match step.event {
            TracedEvent::Message { .. } => SpanKind::Consumer,
            _ => SpanKind::Internal,
        };
        let name = format!("step {}", step.type_name);
        let span = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes_of_step(step));
        let span = self.begin(span);
        let has_identity = span.span_context().is_valid();
        let context = if has_identity { self.context.with_span(span) } else { self.context.clone() };
        Box::new(OtelStep { entered: context.clone().attach(), context })
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(self.context.clone().attach())
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let now = SystemTime::now();
        let reason = letter.reason.to_string();
        let mut attributes = attributes_of_process(letter.to.to_string(), letter.name);
        attributes.push(KeyValue::new("procession.message", letter.type_name));
        attributes.extend(letter.from.map(sender));
        attributes.push(KeyValue::new("error.type", reason.clone()));
        let span = SpanBuilder::from_name("dead letter").with_start_time(now).with_attributes(attributes);
        let mut span = self.begin(span);
        span.set_status(Status::error(reason));
        span.end_with_timestamp(now);
    }
}

fn attributes_of_process(pid: String, name: Option<&str>) -> Vec<KeyValue> {
    // Steps have the most attributes, ten at most.
    let mut attributes = Vec::with_capacity(10);
    attributes.push(KeyValue::new("procession.pid", pid));
    attributes.extend(name.map(|name| KeyValue::new("procession.name", name.to_string())));
    attributes
}

fn attributes_of_step(step: &TracedStep<'_>) -> Vec<KeyValue> {
    let mut attributes = attributes_of_process(step.pid.to_string(), step.name);
    attributes.push(KeyValue::new("procession.process", step.type_name));
    match step.event {
        TracedEvent::Message { type_name, from, .. } => {
            attributes.push(KeyValue::new("procession.message", type_name));
            attributes.extend(from.map(sender));
            attributes.extend([
                KeyValue::new("messaging.system", "procession"),
                KeyValue::new("messaging.operation.name", "step"),
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.destination.template", step.type_name),
            ]);
        }
        // A text, because an integer of OpenTelemetry has a sign.
        TracedEvent::Completed { tag, .. } => attributes.push(KeyValue::new("procession.command", tag.to_string())),
        _ => {}
    }
    attributes
}

fn sender(pid: procession::Pid) -> KeyValue {
    KeyValue::new("procession.sender", pid.to_string())
}

/// The span of a step. If it is dropped without its end, the span ends, too.
struct OtelStep {
    // Dropped first, so that the thread leaves the context before the span ends.
    entered: ContextGuard,
    context: Context,
}

impl StepSpan for OtelStep {
    fn end(self: Box<Self>, end: StepEnd<'_>) {
        let OtelStep { entered, context } = *self;
        // A processor of the program may panic when the span ends. Then the thread has left the context already.
        drop(entered);
        let span = context.span();
        let StepEnd::Failed(exit) = end else { return span.end() };
        let kind = match exit {
            Exit::Panicked(_) => "panicked",
            Exit::Terminated(_) => "terminated",
            _ => "failed",
        };
        // The error is the program's, and may panic. A span that ends while the thread panics aborts the program if a
        // processor panics as well.
        let text = catch_unwind(AssertUnwindSafe(|| exit.to_string()));
        span.set_attribute(KeyValue::new("error.type", kind));
        span.set_status(Status::error(text.as_deref().unwrap_or_default().to_string()));
        span.end();
        if let Err(panic) = text {
            resume_unwind(panic);
        }
    }
}
