//! Traces along messages, exported to memory.

use std::fmt;
use std::time::Duration;

use opentelemetry::baggage::BaggageExt;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceId, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue, global};
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample, Span, SpanData, SpanExporter,
    SpanProcessor,
};
use procession::clock::ManualClock;
use procession::sync::Latch;
use procession::{Address, Event, Process, Runtime, SpawnOptions, Step, StepOutput};
use procession_otel::OtelPropagator;

mod elsewhere;
mod helpers;

use helpers::*;

#[test]
fn three_processes_a_timer_and_a_closure_are_one_trace() {
    let (spans, clock) = (Spans::new(), ManualClock::new());
    let runtime = spans.start(Runtime::builder().workers(2).clock(clock.clock()));
    let third = runtime.spawn(script::<2, &str, _>(|_, _| Ok(Step::Idle))).unwrap();
    let (to, tracer) = (third.address(), spans.tracer.clone());
    let second = script::<1, u32, _>(move |event, out| {
        match event {
            Event::Message(_) => {
                let tracer = tracer.clone();
                let _ = out.blocking(move || tracer.in_span("in the closure", |_| ()));
            }
            Event::Completed(_) => out.send(to, "done"),
            _ => {}
        }
        Ok(Step::Idle)
    });
    let second = runtime.spawn(second).unwrap();
    let to = second.address();
    let first = script::<0, (), _>(move |event, out| {
        if let Event::Message(()) = event {
            out.send(to, 1);
            let _ = out.after(60 * SECOND);
        }
        Ok(Step::Idle)
    });
    let first = runtime.spawn(first).unwrap();
    let root = spans.root(|| runtime.send(first.address(), ()).unwrap());
    rest(&runtime);

    let one = spans.child(root, "step first");
    let two = spans.child(id(&one), "step second");
    spans.child(id(&two), "in the closure");
    let answer = spans.child(id(&two), "step second");
    let three = spans.child(id(&answer), "step third");
    assert_eq!(spans.ended().len(), 6, "the timer has not fired: {:#?}", spans.ended());
    clock.advance(60 * SECOND);
    rest(&runtime);
    let timer = spans.child(id(&one), "step first");

    let all = spans.ended();
    assert_eq!(all.len(), 7, "{all:#?}");
    let trace = one.span_context.trace_id();
    assert!(all.iter().all(|span| span.span_context.trace_id() == trace), "{all:#?}");
    assert!(all.iter().all(|span| !span.parent_span_is_remote && span.status == Status::Unset), "{all:#?}");
    for (span, pid) in [(&one, first.pid()), (&two, second.pid()), (&three, third.pid())] {
        assert_eq!(span.span_kind, SpanKind::Consumer);
        assert_eq!(attribute(span, "procession.pid"), Some(pid.to_string()));
    }
    for span in [&answer, &timer] {
        assert_eq!(span.span_kind, SpanKind::Internal);
    }
}

/// The messages are in the mailbox of a process that is held up. One was sent by a process, one from outside.
#[test]
fn a_message_that_waits_does_not_keep_its_senders_span_open() {
    let (spans, clock) = (Spans::new(), ManualClock::new());
    let runtime = spans.start(Runtime::builder().workers(2).clock(clock.clock()));
    let (begun, holder) = (Latch::new(), Holder::new());
    let (begins, held) = (begun.clone(), holder.held());
    let slow = runtime.spawn(script::<1, bool, _>(move |event, _: &mut StepOutput| {
        if let Event::Message(true) = event {
            let _ = begins.set(());
            wait(&held);
        }
        Ok(Step::Idle)
    }));
    let slow = slow.unwrap();
    let to = slow.address();
    let sends = script::<0, (), _>(move |event, out| {
        if let Event::Message(()) = event {
            out.send(to, false);
        }
        Ok(Step::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    runtime.send(to, true).unwrap();
    wait(&begun);
    let root = spans.root(|| {
        runtime.send(to, false).unwrap();
        runtime.send(sends.address(), ()).unwrap();
    });
    let waiting = || runtime.process(&slow).map(|slow| slow.mailbox);
    // The message of the step that runs counts, too.
    until("two messages wait", || waiting() == Some(3));
    clock.advance(60 * SECOND);
    let sender = spans.child(root, "step first");
    assert_eq!(spans.ended().len(), 2, "the root has ended, too: {:#?}", spans.ended());
    drop(holder);
    rest(&runtime);
    spans.child(root, "step second");
    let receiver = spans.child(id(&sender), "step second");
    assert!(receiver.start_time >= sender.end_time, "{sender:#?}, {receiver:#?}");
}

/// A process that passes a number on to the next one, and notes the context of each of its steps.
fn passes<const N: usize>(next: Option<Address<u32>>, seen: &Log<Context>) -> impl Process<Message = u32, Output = ()> {
    let seen = seen.clone();
    script::<N, u32, _>(move |event, out| {
        if let Event::Message(number) = event {
            seen.push(Context::current());
            next.into_iter().for_each(|next| out.send(next, number));
        }
        Ok(Step::Idle)
    })
}

/// Three processes, each of which passes numbers on to the next. Returns the address of the first.
fn chain(runtime: &Runtime, seen: &Log<Context>) -> Address<u32> {
    let third = runtime.spawn(passes::<2>(None, seen)).unwrap().address();
    let second = runtime.spawn(passes::<1>(Some(third), seen)).unwrap().address();
    runtime.spawn(passes::<0>(Some(second), seen)).unwrap().address()
}

fn contexts(seen: &Log<Context>) -> Vec<SpanContext> {
    seen.take().iter().map(|context| context.span().span_context().clone()).collect()
}

#[test]
fn a_span_has_the_names_and_attributes_of_the_conventions() {
    let spans = Spans::new();
    let runtime = spans.start(Runtime::builder().workers(1));
    let to = runtime.spawn_with(passes::<1>(None, &Log::new()), SpawnOptions::new().name("till")).unwrap().address();
    let sends = runtime.spawn(script::<0, (), _>(move |event, out: &mut StepOutput| {
        match event {
            Event::Message(()) => _ = out.after(Duration::ZERO),
            Event::Completed(_) => out.send(to, 1),
            _ => {}
        }
        Ok(Step::Idle)
    }));
    let sends = sends.unwrap();
    let root = spans.root(|| runtime.send(sends.address(), ()).unwrap());
    until("the timer has fired", || spans.ended().len() == 4);
    let from_outside = spans.child(root, "step first");
    let answered = spans.child(id(&from_outside), "step first");
    let last = spans.child(id(&answered), "step second");
    let (pid, sender) = (to.pid().to_string(), sends.pid().to_string());
    let expected = [
        ("procession.process", "second"),
        ("procession.message", "u32"),
        ("messaging.system", "procession"),
        ("messaging.operation.name", "step"),
        ("messaging.operation.type", "process"),
        ("messaging.destination.template", "second"),
        ("procession.pid", &*pid),
        ("procession.name", "till"),
        ("procession.sender", &sender),
    ];
    assert_eq!(last.attributes, expected.map(|(key, value)| KeyValue::new(key, value.to_string())));
    assert_eq!(attribute(&from_outside, "procession.sender"), None);
    assert_eq!(attribute(&from_outside, "procession.name"), None);
    let keys: Vec<_> = answered.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(keys, ["procession.process", "procession.pid", "procession.command"]);
    assert_eq!((answered.span_kind, last.span_kind), (SpanKind::Internal, SpanKind::Consumer));
}

#[test]
fn messages_outside_of_any_trace_have_no_spans() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = spans.start(Runtime::builder().workers(1));
    let first = chain(&runtime, &seen);
    runtime.send(first, 1).unwrap();
    spans.root(|| runtime.send(first, 2).unwrap());
    rest(&runtime);
    runtime.send(first, 3).unwrap();
    rest(&runtime);
    let contexts = contexts(&seen);
    assert_eq!(contexts.len(), 9);
    assert_eq!(contexts.iter().filter(|context| context.is_valid()).count(), 3, "those of one message");
    assert_eq!(spans.ended().len(), 4, "with the root");
}

#[test]
fn a_failed_step_has_the_status_of_an_error() {
    let spans = Spans::new();
    let runtime = spans.start(Runtime::builder().workers(1));
    quiet_panics();
    for (panics, kind) in [(false, "failed"), (true, "panicked")] {
        let fails = script::<0, (), _>(move |event, _: &mut StepOutput| match event {
            Event::Message(()) if panics => panic!("on purpose"),
            Event::Message(()) => Err("on purpose".into()),
            _ => Ok(Step::Idle),
        });
        let fails = runtime.spawn(fails).unwrap();
        let root = spans.root(|| runtime.send(fails.address(), ()).unwrap());
        let exit = fails.join_timeout(LIMIT).unwrap();
        let step = spans.child(root, "step first");
        assert_eq!(step.status, Status::error(exit.without_output().to_string()));
        assert_eq!(attribute(&step, "error.type").as_deref(), Some(kind));
        // The message is a dead letter, beside the step that has failed.
        until("the message is dead", || spans.children(root).len() == 2);
        let letter = spans.child(root, "dead letter");
        assert_eq!(letter.status, Status::error("the step that had taken it failed"));
    }
}

#[test]
fn a_dead_letter_is_a_span_in_its_trace() {
    let spans = Spans::new();
    let runtime = spans.start(Runtime::builder().workers(1));
    let gone = runtime.spawn(passes::<2>(None, &Log::new())).unwrap();
    runtime.terminate(gone.pid()).unwrap();
    gone.join_timeout(LIMIT).unwrap();
    let to = gone.address();
    let sends = script::<0, (), _>(move |event, out| {
        if let Event::Message(()) = event {
            out.send(to, 1);
            out.send("nobody", 2);
        }
        Ok(Step::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    let root = spans.root(|| runtime.send(sends.address(), ()).unwrap());
    rest(&runtime);
    let step = spans.child(root, "step first");
    let letters = spans.children(id(&step));
    assert_eq!(letters.len(), 2, "{letters:#?}");
    let reasons = ["no such process", "no such name"];
    for (letter, reason) in letters.iter().zip(reasons) {
        assert_eq!(letter.name, "dead letter");
        assert_eq!(letter.start_time, letter.end_time);
        assert_eq!(letter.status, Status::error(reason));
        assert_eq!(attribute(letter, "error.type").as_deref(), Some(reason));
        assert_eq!(attribute(letter, "procession.sender"), Some(sends.pid().to_string()));
        assert!(attribute(letter, "procession.message").unwrap().ends_with("32"), "{letter:#?}");
    }
    assert_eq!(attribute(&letters[0], "procession.pid"), Some(to.pid().to_string()));
    assert_eq!(attribute(&letters[1], "procession.name").as_deref(), Some("nobody"));
}

/// The decision of a root holds for its trace, which is not broken into several.
#[test]
fn a_trace_that_is_not_sampled_stays_one_trace() {
    let seen = Log::new();
    let sampler = Sampler::ParentBased(Box::new(Sampler::AlwaysOff));
    let spans = Spans::with(SdkTracerProvider::builder().with_sampler(sampler));
    let runtime = spans.start(Runtime::builder().workers(1));
    let first = chain(&runtime, &seen);
    let mut root = SpanContext::NONE;
    spans.tracer.in_span("root", |context| {
        root = context.span().span_context().clone();
        runtime.send(first, 1).unwrap();
    });
    rest(&runtime);
    let contexts = contexts(&seen);
    assert_eq!(contexts.len(), 3);
    assert!(root.is_valid() && !root.is_sampled());
    for context in &contexts {
        assert!(context.is_valid() && !context.is_sampled());
        assert_eq!(context.trace_id(), root.trace_id());
    }
    assert!(spans.ended().is_empty(), "{:#?}", spans.ended());
}

#[test]
fn a_trace_goes_on_when_its_provider_was_shut_down() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = spans.start(Runtime::builder().workers(1));
    let first = chain(&runtime, &seen);
    let other = SdkTracerProvider::builder().build();
    spans.provider.shutdown().unwrap();
    let mut root = SpanId::INVALID;
    other.tracer("other").in_span("root", |_| {
        root = current();
        runtime.send(first, 1).unwrap();
    });
    rest(&runtime);
    let contexts = contexts(&seen);
    assert_eq!(contexts.iter().map(SpanContext::span_id).collect::<Vec<_>>(), [root; 3]);
}

#[test]
fn baggage_goes_along_with_messages() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = spans.start(Runtime::builder().workers(1));
    let first = chain(&runtime, &seen);
    spans.tracer.in_span("root", |context| {
        let _entered = context.with_baggage([KeyValue::new("customer", "17")]).attach();
        runtime.send(first, 1).unwrap();
    });
    rest(&runtime);
    let contexts = seen.take();
    assert_eq!(contexts.len(), 3);
    for context in contexts {
        assert_eq!(context.baggage().get("customer").map(ToString::to_string).as_deref(), Some("17"));
    }
}

#[test]
fn a_step_leaves_its_trace_with_an_empty_context() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = spans.start(Runtime::builder().workers(1));
    let to = runtime.spawn(passes::<1>(None, &seen)).unwrap().address();
    let sends = script::<0, (), _>(move |event, out| {
        if let Event::Message(()) = event {
            out.send(to, 1);
            let outside = Context::new().attach();
            out.send(to, 2);
            drop(outside);
            out.send(to, 3);
        }
        Ok(Step::Idle)
    });
    let sends = runtime.spawn(sends).unwrap();
    let root = spans.root(|| runtime.send(sends.address(), ()).unwrap());
    rest(&runtime);
    assert_eq!(contexts(&seen).iter().map(SpanContext::is_valid).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(spans.children(id(&spans.child(root, "step first"))).len(), 2);
}

/// Notes what it knows of spans of steps.
#[derive(Clone, Debug)]
struct Notes(Log<(String, SpanKind, usize)>);

impl ShouldSample for Notes {
    fn should_sample(
        &self,
        _: Option<&Context>,
        _: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        _: &[Link],
    ) -> SamplingResult {
        self.0.push((name.into(), kind.clone(), attributes.len()));
        SamplingResult {
            decision: SamplingDecision::RecordAndSample,
            attributes: Vec::new(),
            trace_state: TraceState::NONE,
        }
    }
}

#[test]
fn a_sampler_knows_the_types_of_a_step() {
    let (noted, seen) = (Log::new(), Log::new());
    let spans = Spans::with(SdkTracerProvider::builder().with_sampler(Notes(noted.clone())));
    let runtime = spans.start(Runtime::builder().workers(1));
    let to = runtime.spawn(passes::<0>(None, &seen)).unwrap().address();
    spans.root(|| runtime.send(to, 1).unwrap());
    rest(&runtime);
    assert_eq!(noted.take(), [("root".into(), SpanKind::Internal, 0), ("step first".into(), SpanKind::Consumer, 6)]);
}

/// Panics when the span of a step begins, or when it ends. The SDK would not survive both.
#[derive(Debug)]
struct Panics {
    at_start: bool,
}

impl SpanProcessor for Panics {
    fn on_start(&self, span: &mut Span, _: &Context) {
        let is_step = span.exported_data().is_some_and(|span| span.name.starts_with("step"));
        assert!(!(self.at_start && is_step), "on purpose");
    }

    fn on_end(&self, span: SpanData) {
        assert!(self.at_start || !span.name.starts_with("step"), "on purpose");
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[test]
fn a_processor_that_panics_costs_no_message() {
    quiet_panics();
    for at_start in [false, true] {
        let seen = Log::new();
        let spans = Spans::with(SdkTracerProvider::builder().with_span_processor(Panics { at_start }));
        let runtime = spans.start(Runtime::builder().workers(1));
        let first = chain(&runtime, &seen);
        for _ in 0..10 {
            spans.root(|| runtime.send(first, 1).unwrap());
        }
        rest(&runtime);
        let contexts = contexts(&seen);
        assert_eq!(contexts.len(), 30);
        // Without a span, a step has no trace to pass on. A span that was not exported has passed it on.
        assert!(contexts.iter().all(|context| context.is_valid() != at_start));
        // The worker has left all contexts.
        runtime.send(first, 2).unwrap();
        rest(&runtime);
        assert!(self::contexts(&seen).iter().all(|context| !context.is_valid()));
    }
}

/// Panics when it exports.
#[derive(Debug)]
struct PanickingExporter;

impl SpanExporter for PanickingExporter {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        panic!("on purpose")
    }
}

#[test]
fn an_exporter_that_panics_costs_no_message_and_no_trace() {
    quiet_panics();
    let seen = Log::new();
    let provider = SdkTracerProvider::builder().with_simple_exporter(PanickingExporter).build();
    let propagator = OtelPropagator::new(provider.tracer("test"));
    let runtime = Runtime::builder().workers(1).propagate(propagator).start().unwrap();
    let first = chain(&runtime, &seen);
    // The root is of another provider, so that its end does not panic here.
    let spans = Spans::new();
    let root = spans.root(|| runtime.send(first, 1).unwrap());
    rest(&runtime);
    let contexts = contexts(&seen);
    assert_eq!(contexts.len(), 3);
    let trace = spans.ended().iter().find(|span| id(span) == root).unwrap().span_context.trace_id();
    assert!(contexts.iter().all(|context| context.trace_id() == trace));
}

#[test]
fn messages_of_suppressed_telemetry_have_no_spans() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = spans.start(Runtime::builder().workers(1));
    let first = chain(&runtime, &seen);
    let root = spans.root(|| {
        let _suppressed = Context::enter_telemetry_suppressed_scope();
        runtime.send(first, 1).unwrap();
    });
    rest(&runtime);
    let contexts = seen.take();
    assert!(contexts.len() == 3 && contexts.iter().all(Context::is_telemetry_suppressed));
    assert!(contexts.iter().all(|context| context.span().span_context().span_id() == root));
    assert_eq!(spans.ended().len(), 1, "the root");
}

/// An error whose text cannot be had.
#[derive(Debug)]
struct Textless;

impl std::error::Error for Textless {}

impl fmt::Display for Textless {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("on purpose")
    }
}

#[test]
fn an_error_and_a_processor_that_both_panic_do_not_end_the_program() {
    quiet_panics();
    for panics_at_end in [false, true] {
        let builder = SdkTracerProvider::builder();
        let spans = Spans::with(match panics_at_end {
            true => builder.with_span_processor(Panics { at_start: false }),
            false => builder,
        });
        let runtime = spans.start(Runtime::builder().workers(1));
        let fails = runtime.spawn(script::<0, (), _>(|event, _: &mut StepOutput| match event {
            Event::Message(()) => Err(Textless.into()),
            _ => Ok(Step::Idle),
        }));
        let fails = fails.unwrap();
        let root = spans.root(|| runtime.send(fails.address(), ()).unwrap());
        fails.join_timeout(LIMIT).unwrap();
        if !panics_at_end {
            let step = spans.child(root, "step first");
            assert_eq!(step.status, Status::error(""));
            assert_eq!(attribute(&step, "error.type").as_deref(), Some("failed"));
        }
    }
}

/// The only test with the global provider.
#[test]
fn the_global_provider_may_be_installed_after_the_start() {
    let (spans, seen) = (Spans::new(), Log::new());
    let runtime = Runtime::builder().workers(1).propagate(OtelPropagator::default()).start().unwrap();
    let first = chain(&runtime, &seen);
    runtime.send(first, 0).unwrap();
    rest(&runtime);
    global::set_tracer_provider(spans.provider.clone());
    let root = spans.root(|| runtime.send(first, 1).unwrap());
    rest(&runtime);
    let step = spans.child(root, "step first");
    assert_eq!(step.instrumentation_scope.name(), "procession");
    assert_eq!(spans.ended().len(), 4);
}
