//! A runtime whose spans an exporter in memory collects, processes from closures, and waits with a limit.

use std::panic;
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use opentelemetry::trace::{SpanId, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracer, SdkTracerProvider, SpanData, TracerProviderBuilder};
use procession::config::RuntimeBuilder;
use procession::sync::Latch;
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use procession_otel::OtelPropagator;

/// The limit of each wait. Only broken code reaches it.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Waits for a condition by looking again and again.
#[track_caller]
pub(crate) fn until(what: &str, is_reached: impl Fn() -> bool) {
    let (end, never) = (Instant::now() + LIMIT, Latch::<()>::new());
    while !is_reached() {
        assert!(Instant::now() < end, "waited longer than {LIMIT:?}: {what}");
        never.wait_timeout(Duration::from_micros(100));
    }
}

#[track_caller]
pub(crate) fn rest(runtime: &Runtime) {
    until("all rest", || runtime.wait_idle_timeout(Duration::ZERO).is_ok());
}

/// Waits for a latch that a step sets, or for one that a test sets.
#[track_caller]
pub(crate) fn wait(latch: &Latch<()>) {
    latch.wait_timeout(LIMIT).expect("the latch is set");
}

/// Has panics of processes and propagators not fill the screen.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let is_expected = info.payload_as_str().is_some_and(|text| text.contains("on purpose"));
            if !is_expected {
                before(info);
            }
        }));
    });
}

/// Holds a step up until it is dropped, also by a test that fails.
pub(crate) struct Holder(Latch<()>);

impl Holder {
    pub(crate) fn new() -> Holder {
        Holder(Latch::new())
    }

    /// The latch for which the step waits.
    pub(crate) fn held(&self) -> Latch<()> {
        self.0.clone()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.set(());
    }
}

/// The spans of a provider that exports to memory.
pub(crate) struct Spans {
    pub(crate) provider: SdkTracerProvider,
    pub(crate) tracer: SdkTracer,
    exporter: InMemorySpanExporter,
}

impl Spans {
    pub(crate) fn new() -> Spans {
        Spans::with(SdkTracerProvider::builder())
    }

    pub(crate) fn with(builder: TracerProviderBuilder) -> Spans {
        let exporter = InMemorySpanExporter::default();
        let provider = builder.with_simple_exporter(exporter.clone()).build();
        Spans { tracer: provider.tracer("test"), provider, exporter }
    }

    pub(crate) fn start(&self, builder: RuntimeBuilder) -> Runtime {
        builder.propagate(OtelPropagator::new(self.tracer.clone())).start().unwrap()
    }

    /// Runs this within a span, which has ended when this returns. Returns its identity.
    pub(crate) fn root(&self, run: impl FnOnce()) -> SpanId {
        self.tracer.in_span("root", |context| {
            run();
            context.span().span_context().span_id()
        })
    }

    /// All spans that have ended.
    pub(crate) fn ended(&self) -> Vec<SpanData> {
        self.exporter.get_finished_spans().unwrap()
    }

    /// The spans below this one that have ended.
    pub(crate) fn children(&self, parent: SpanId) -> Vec<SpanData> {
        self.ended().into_iter().filter(|span| span.parent_span_id == parent).collect()
    }

    /// The single span with this name below this one.
    #[track_caller]
    pub(crate) fn child(&self, parent: SpanId, name: &str) -> SpanData {
        let mut children = self.children(parent);
        children.retain(|span| span.name == name);
        assert_eq!(children.len(), 1, "{name} below {parent}: {:#?}", self.ended());
        children.remove(0)
    }
}

/// The identity of a span.
pub(crate) fn id(span: &SpanData) -> SpanId {
    span.span_context.span_id()
}

/// The text of an attribute. `None` if the span does not have it.
pub(crate) fn attribute(span: &SpanData, key: &str) -> Option<String> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == key)?;
    Some(match &found.value {
        Value::String(text) => text.to_string(),
        other => panic!("{key} is {other:?}"),
    })
}

/// The identity of the current span.
pub(crate) fn current() -> SpanId {
    Context::current().span().span_context().span_id()
}

/// A process of a type with a name, whose step is called for each event. It is done when it is asked to stop.
pub(crate) struct Script<const N: usize, M, F> {
    step: F,
    messages: std::marker::PhantomData<fn(M)>,
}

/// The names of the types of [`Script`].
const NAMES: [&str; 3] = ["first", "second", "third"];

pub(crate) fn script<const N: usize, M, F>(step: F) -> Script<N, M, F>
where
    F: FnMut(Event<M>, &mut StepOutput) -> StepResult<()> + Send + 'static,
    M: Send + 'static,
{
    Script { step, messages: std::marker::PhantomData }
}

impl<const N: usize, M, F> Process for Script<N, M, F>
where
    F: FnMut(Event<M>, &mut StepOutput) -> StepResult<()> + Send + 'static,
    M: Send + 'static,
{
    type Message = M;
    type Output = ();

    fn type_name() -> &'static str {
        NAMES[N]
    }

    fn step(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Cancel(_) = event {
                return Ok(Step::Done(()));
            }
            (self.step)(event, out)?;
        }
        Ok(Step::Idle)
    }
}

/// A list that several threads write. Clones are the same list.
#[derive(Clone, Debug)]
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Log<T> {
    pub(crate) fn new() -> Log<T> {
        Log(Arc::new(Mutex::new(Vec::new())))
    }

    pub(crate) fn push(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
