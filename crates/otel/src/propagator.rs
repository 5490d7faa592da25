//! Traces along messages with the contexts of OpenTelemetry.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, ContextGuard, InstrumentationScope, KeyValue};
use procession::observe::{DeadLetter, Propagator, StepEnd, StepSpan, TraceContext, TracedEvent, TracedStep};
use procession::{Exit, Pid};

use crate::traceparent;

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
/// # The end of a trace
///
/// A trace goes on as long as its steps yield something. For example, a process that sets its next timer in the step of
/// the last one stays in the trace of the first timer. A step leaves its trace with a context that has no span:
///
/// ```
/// # use std::time::Duration;
/// # use procession::{StepOutput, Tag};
/// # use procession::command::TimerFired;
/// # fn step(out: &mut StepOutput) -> Tag<TimerFired> {
/// let _outside = opentelemetry::Context::new().attach();
/// out.after(Duration::from_secs(60))
/// # }
/// ```
///
/// # Other nodes and stores
///
/// A message to another node, or to a durable process, carries the identity of the span in the format of W3C:
/// `traceparent` and `tracestate`. So the trace goes on there, and after a restart of the store. If the `tracestate`
/// has more than 512 bytes, it stays behind. So do the other values of the [`Context`], for example baggage.
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
/// The sampler of the tracer decides about each span. It knows the name, the kind, the types, and the attributes with
/// the prefix `messaging`. PIDs, names of processes and tags are written only for spans that are recorded.
///
/// A trace that is not sampled stays one trace: its messages carry the context with its flags. If the tracer gives a
/// span without an identity, because its provider was shut down or telemetry is suppressed, the trace goes on in the
/// parent of this span.
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

    fn decode(&self, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
        let context = Context::new().with_remote_span_context(traceparent::read(bytes)?);
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
        let name = ["step ", step.type_name].concat();
        let span = SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes_of_type(step));
        let mut span = self.begin(span);
        if span.is_recording() {
            span.set_attributes(attributes_of_step(step));
        }
        let has_identity = span.span_context().is_valid();
        let context = if has_identity { self.context.with_span(span) } else { self.context.clone() };
        Box::new(OtelStep { entered: context.clone().attach(), context })
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(self.context.clone().attach())
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let now = SystemTime::now();
        let span = SpanBuilder::from_name("dead letter").with_start_time(now);
        let mut span = self.begin(span.with_attributes([KeyValue::new("procession.message", letter.type_name)]));
        if span.is_recording() {
            let reason = letter.reason.to_string();
            span.set_attributes(identity(letter.to, letter.name, letter.from));
            span.set_attribute(KeyValue::new("error.type", reason.clone()));
            span.set_status(Status::error(reason));
        }
        span.end_with_timestamp(now);
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(traceparent::write(self.context.span().span_context()))
    }
}

/// The attributes that are the same for all such steps of all processes of a type. A sampler knows them.
fn attributes_of_type(step: &TracedStep<'_>) -> Vec<KeyValue> {
    let mut attributes = vec![KeyValue::new("procession.process", step.type_name)];
    if let TracedEvent::Message { type_name, .. } = step.event {
        attributes.extend([
            KeyValue::new("procession.message", type_name),
            KeyValue::new("messaging.system", "procession"),
            KeyValue::new("messaging.operation.name", "step"),
            KeyValue::new("messaging.operation.type", "process"),
            KeyValue::new("messaging.destination.template", step.type_name),
        ]);
    }
    attributes
}

/// The other attributes. They are texts that must be written, which a span that is not recorded does not need.
fn attributes_of_step<'a>(step: &TracedStep<'a>) -> impl Iterator<Item = KeyValue> + use<'a> {
    let (from, tag) = match step.event {
        TracedEvent::Message { from, .. } => (from, None),
        // An integer of OpenTelemetry has a sign, so this is a text.
        TracedEvent::Completed { tag, .. } => (None, Some(KeyValue::new("procession.command", tag.to_string()))),
        _ => (None, None),
    };
    identity(step.pid, step.name, from).chain(tag)
}

fn identity(pid: Pid, name: Option<&str>, from: Option<Pid>) -> impl Iterator<Item = KeyValue> + use<'_> {
    let pid = KeyValue::new("procession.pid", pid.to_string());
    let name = name.map(|name| KeyValue::new("procession.name", name.to_string()));
    let sender = from.map(|from| KeyValue::new("procession.sender", from.to_string()));
    std::iter::once(pid).chain(name).chain(sender)
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
