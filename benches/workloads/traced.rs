//! Workloads with a `tracing` subscriber that ignores events and spans. So they measure only the cost of emitting them.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

use super::measure::{Beside, Measured, Outcome, Setting, Workload};
use super::messages;

pub(crate) const TRACED: [Workload; 3] = [
    Workload {
        name: "pingpong_logged",
        counts: "messages between 2 processes, with a subscriber at level INFO",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pingpong_logged,
    },
    Workload {
        name: "pingpong_traced",
        counts: "messages between 2 processes, with a subscriber at level TRACE",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pingpong_traced,
    },
    Workload {
        name: "pingpong_spans",
        counts: "messages between 2 processes, each within a span of `tracing`",
        op: "message",
        n: 2_000_000,
        smoke: 20_000,
        run: pingpong_spans,
    },
];

/// Accepts events and spans up to a level, and ignores them.
struct Discards(LevelFilter);

impl Subscriber for Discards {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.0
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Runs `pingpong` with a subscriber at this level. The subscriber is global, so each workload runs in its own
/// program.
fn pingpong_at(level: LevelFilter, setting: &Setting) -> Outcome<Measured> {
    tracing::subscriber::set_global_default(Discards(level))?;
    messages::pingpong(setting)
}

pub(crate) fn pingpong_logged(setting: &Setting) -> Outcome<Measured> {
    pingpong_at(LevelFilter::INFO, setting)
}

pub(crate) fn pingpong_traced(setting: &Setting) -> Outcome<Measured> {
    pingpong_at(LevelFilter::TRACE, setting)
}

/// Accepts spans and ignores them. After the first one, every thread counts as inside it.
struct OneSpan(OnceLock<&'static Metadata<'static>>);

impl Subscriber for OneSpan {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.get_or_init(|| span.metadata());
        Id::from_u64(1)
    }

    fn current_span(&self) -> Current {
        self.0.get().map_or_else(Current::none, |metadata| Current::new(Id::from_u64(1), metadata))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

pub(crate) fn pingpong_spans(setting: &Setting) -> Outcome<Measured> {
    tracing::subscriber::set_global_default(OneSpan(OnceLock::new()))?;
    let _span = tracing::info_span!("pingpong").entered();
    messages::pingpong(&Setting { beside: Beside::Spans, ..*setting })
}
