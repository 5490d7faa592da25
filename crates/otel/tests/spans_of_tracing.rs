//! Messages that are sent within spans of `tracing`, which a layer of `tracing-opentelemetry` exports.

// The subscriber is that of the whole program, so this file has one test.
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use procession::sync::Latch;
use procession::{Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use procession_otel::OtelPropagator;
use tracing_subscriber::layer::SubscriberExt;

/// The limit of each wait. Only broken code reaches it.
const LIMIT: Duration = Duration::from_secs(120);

/// Waits in its step for the latch, and is done after one message.
struct Packer(Latch<()>);

impl Process for Packer {
    type Message = u32;
    type Output = ();

    fn type_name() -> &'static str {
        "packer"
    }

    fn step(&mut self, events: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(_) = event {
                self.0.wait_timeout(LIMIT).expect("the latch is set");
                tracing::info_span!("packing").in_scope(|| ());
                return Ok(Step::Done(()));
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn spans_of_tracing_are_in_the_trace_and_are_not_kept_open() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer)).unwrap();
    let propagator = OtelPropagator::new(provider.tracer("procession"));
    let runtime = Runtime::builder().workers(1).propagate(propagator).start().unwrap();
    let release = Latch::new();
    let packer = runtime.spawn(Packer(release.clone())).unwrap();
    tracing::info_span!("order").in_scope(|| packer.send(17)).unwrap();

    let ended = || exporter.get_finished_spans().unwrap();
    let names = |spans: &[SpanData]| spans.iter().map(|span| span.name.to_string()).collect::<Vec<_>>();
    // The message has not been taken, or its step has not returned.
    let before = ended();
    release.set(()).unwrap();
    assert_eq!(names(&before), ["order"]);
    packer.join_timeout(LIMIT).unwrap();
    let spans = ended();
    assert_eq!(names(&spans), ["order", "packing", "step packer"]);
    let id = |place: usize| spans[place].span_context.span_id();
    assert_eq!((spans[2].parent_span_id, spans[1].parent_span_id), (id(0), id(2)));
    assert!(spans.iter().all(|span| span.span_context.trace_id() == spans[0].span_context.trace_id()));
}
