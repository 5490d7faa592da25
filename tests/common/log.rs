//! A subscriber that keeps what the library logs.

use std::sync::Arc;

use tracing::level_filters::LevelFilter;
use tracing::{Level, Metadata, span};

use crate::wait::Mutex;

/// Keeps the library's spans and events as text, from `level` on.
pub struct Recorder {
    pub level: Level,
    pub records: Arc<Mutex<Vec<String>>>,
    /// Called with each record before it is kept. It may panic.
    pub check: fn(&str),
}

impl Recorder {
    fn keep(&self, text: String) {
        (self.check)(&text);
        self.records.lock().unwrap().push(text);
    }
}

impl tracing::Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("procession") && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::from_level(self.level))
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut text = format!("{} span {}", span.metadata().level(), span.metadata().name());
        span.record(&mut Text(&mut text));
        self.keep(text);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Text(&mut text));
        self.keep(text);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Text<'a>(&'a mut String);

impl tracing::field::Visit for Text<'_> {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {}={value:?}", field.name()));
    }
}
