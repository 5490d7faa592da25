//! Traces along messages with the spans of `tracing`, in a program of its own: the subscriber of the workers' threads
//! can only be the global one.

#![allow(unreachable_pub, dead_code)]

#[path = "common/blocker.rs"]
mod blocker;
#[path = "process/helpers.rs"]
mod helpers;
#[path = "common/panics.rs"]
mod panics;
#[path = "common/script.rs"]
mod script;
#[path = "common/wait.rs"]
mod wait;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use procession::observe::SpanPropagator;
use procession::{Event, Events, Step, StepOutput};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber, subscriber};

use crate::helpers::*;

thread_local! {
    static ENTERED: RefCell<Vec<(Id, &'static Metadata<'static>)>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Debug, Default)]
struct Noted {
    parent: Option<u64>,
    text: String,
    /// The handles of the span that exist.
    handles: usize,
    events: Vec<String>,
}

/// All spans, by their numbers.
static SPANS: LazyLock<Mutex<HashMap<u64, (&'static Metadata<'static>, Noted)>>> = LazyLock::new(Mutex::default);

/// Notes spans and what happens to them.
struct Notes;

impl Notes {
    fn change(id: &Id, change: impl FnOnce(&mut Noted)) {
        change(&mut SPANS.lock().unwrap().get_mut(&id.into_u64()).unwrap().1);
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() || *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut spans = SPANS.lock().unwrap();
        let number = spans.len() as u64 + 1;
        let here = || ENTERED.with_borrow(|entered| entered.last().map(|(id, _)| id.into_u64()));
        let parent = if span.is_contextual() { here() } else { span.parent().map(Id::into_u64) };
        let mut text = String::from(span.metadata().name());
        span.record(&mut Text(&mut text));
        spans.insert(number, (span.metadata(), Noted { parent, text, handles: 1, events: Vec::new() }));
        Id::from_u64(number)
    }

    fn record(&self, id: &Id, record: &Record<'_>) {
        Notes::change(id, |span| record.record(&mut Text(&mut span.text)));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if let Some(parent) = event.parent() {
            let mut text = String::new();
            event.record(&mut Text(&mut text));
            Notes::change(parent, |span| span.events.push(text));
        }
    }

    fn enter(&self, id: &Id) {
        let metadata = SPANS.lock().unwrap()[&id.into_u64()].0;
        ENTERED.with_borrow_mut(|entered| entered.push((id.clone(), metadata)));
    }

    fn exit(&self, id: &Id) {
        let left = ENTERED.with_borrow_mut(|entered| entered.pop());
        assert_eq!(left.map(|(left, _)| left).as_ref(), Some(id));
    }

    fn clone_span(&self, id: &Id) -> Id {
        Notes::change(id, |span| span.handles += 1);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        Notes::change(&id, |span| span.handles -= 1);
        SPANS.lock().unwrap()[&id.into_u64()].1.handles == 0
    }

    fn current_span(&self) -> tracing_core::span::Current {
        ENTERED.with_borrow(|entered| match entered.last() {
            Some((id, metadata)) => tracing_core::span::Current::new(id.clone(), metadata),
            None => tracing_core::span::Current::none(),
        })
    }
}

struct Text<'a>(&'a mut String);

impl tracing::field::Visit for Text<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}

/// The spans below this one.
fn below(parent: u64) -> Vec<(u64, Noted)> {
    let spans = SPANS.lock().unwrap();
    let mut below: Vec<_> = spans
        .iter()
        .filter(|(_, span)| span.1.parent == Some(parent))
        .map(|(id, span)| (*id, span.1.clone()))
        .collect();
    below.sort_by_key(|(id, _)| *id);
    below
}

#[test]
fn the_spans_of_steps_are_below_the_span_in_which_the_message_was_sent() {
    subscriber::set_global_default(Notes).unwrap();
    let runtime = builder().workers(1).propagate(SpanPropagator).start().unwrap();
    let last = runtime.spawn(sink::<u32>()).unwrap();
    let (to, me) = (last.address(), last.pid());
    let first = runtime
        .spawn(script(move |events: &mut Events<'_, u32>, out: &mut StepOutput| {
            for event in events {
                match event {
                    Event::Message(0) => {
                        out.send(to, 1);
                        out.send("nobody", 2_u32);
                        out.after(Duration::ZERO);
                    }
                    Event::Message(_) => return Err("on purpose".into()),
                    Event::Cancel(_) => return Ok(Step::Done(())),
                    _ => {}
                }
            }
            Ok(Step::Idle)
        }))
        .unwrap();
    // Outside of any span, a step has none.
    runtime.send(to, 9).unwrap();
    until("all rest", || runtime.is_idle());
    assert!(SPANS.lock().unwrap().is_empty(), "not even one of the runtime");
    let root = tracing::info_span!("request");
    root.in_scope(|| runtime.send(first.address(), 0)).unwrap();
    let root_id = root.id().unwrap().into_u64();
    until("the timer has fired", || below(root_id).first().is_some_and(|(step, _)| below(*step).len() == 2));
    until("all rest", || runtime.is_idle());
    let steps = below(root_id);
    assert_eq!(steps.len(), 1);
    let (step, noted) = &steps[0];
    let text = &noted.text;
    assert!(text.starts_with("step pid=") && text.contains("message=\"u32\""), "{text}");
    assert!(text.ends_with("outcome=\"succeeded\"") && noted.events.len() == 1, "{noted:?}");
    assert!(noted.events[0].contains("no such name"), "{noted:?}");
    let next = below(*step);
    assert!(next.iter().any(|(_, noted)| noted.text.contains(&format!("pid={me} "))), "{next:?}");
    assert!(next.iter().any(|(_, noted)| noted.text.contains("command=1 ")), "{next:?}");
    root.in_scope(|| runtime.send(first.address(), 1)).unwrap();
    join(&first);
    until("all rest", || runtime.is_idle());
    let failed = below(root_id).pop().unwrap().1;
    assert!(failed.text.contains("outcome=") && failed.text.contains("on purpose"), "{failed:?}");
    assert!(runtime.shutdown(LIMIT).unwrap().is_clean());
    drop((root, runtime));
    let spans = SPANS.lock().unwrap();
    assert!(spans.values().all(|span| span.1.handles == 0), "a span is open: {spans:?}");
}
