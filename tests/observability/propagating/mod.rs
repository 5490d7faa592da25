//! Traces along messages, answers, timers, futures, blocking closures and handlers.

use std::time::Duration;

use procession::config::RuntimeBuilder;
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput};

use crate::helpers::*;
use crate::traces::{Span, Traces};

mod messages;
mod commands;
mod bounds;
mod worlds;
#[cfg(feature = "cluster")]
mod nodes;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) fn traced(workers: usize) -> (Runtime, Traces) {
    traced_by(builder().workers(workers))
}

pub(super) fn traced_by(builder: RuntimeBuilder) -> (Runtime, Traces) {
    let traces = Traces::new();
    (builder.propagate(traces.clone()).start().unwrap(), traces)
}

pub(super) fn rest(runtime: &Runtime) {
    until("all rest", || runtime.is_idle());
}

/// The single span below this one.
#[track_caller]
pub(super) fn only_child(traces: &Traces, parent: usize) -> Span {
    let children = traces.children(parent);
    assert_eq!(children.len(), 1, "{children:?}");
    children.into_iter().next().unwrap()
}

/// Shuts down, and checks that every span has ended and no context is left.
pub(super) fn close(runtime: Runtime, traces: &Traces) {
    runtime.shutdown(60 * SECOND).unwrap();
    drop(runtime);
    assert_eq!(traces.contexts(), 0, "a context is left");
    let open: Vec<_> = traces.spans().into_iter().filter(|span| span.parent.is_some() && span.end.is_empty()).collect();
    assert!(open.is_empty(), "{open:?}");
}

/// Notes for each step the messages that it took, and whether it was in a trace.
pub(super) fn batches(seen: &Log<(Vec<u32>, bool)>) -> impl Process<Message = u32, Output = ()> {
    let seen = seen.clone();
    script(move |events: &mut Events<'_, u32>, _: &mut StepOutput| {
        let mut taken = Vec::new();
        for event in events {
            match event {
                Event::Message(number) => taken.push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if !taken.is_empty() {
            seen.push((taken, Traces::current().is_some()));
        }
        Ok(Step::Idle)
    })
}

pub(super) fn echo() -> impl Process<Message = Reply<u32>, Output = ()> {
    script(|events: &mut Events<'_, Reply<u32>>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Message(reply) => out.reply(reply, 1),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}
