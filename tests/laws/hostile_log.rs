//! A subscriber of the log that panics, and values that write down when they are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::{Metadata, span};

use crate::helpers::Log;

/// Panics once, at the next exit from a span, if it is asked to.
pub struct Hostile(pub Arc<AtomicBool>);

impl tracing::Subscriber for Hostile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("procession")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "in a subscriber");
    }
}

/// A second subscriber, which is nobody's default. If there were one alone, `tracing` would ask the default subscriber
/// of the thread that comes to a place of the log first. That may be a thread of another test, which has none.
pub fn second_subscriber() -> tracing::Dispatch {
    tracing::Dispatch::new(Hostile(Arc::default()))
}

/// A message, an error, or a part of a state machine. Writes its name down when it is dropped. If it is hostile, its
/// destructor panics then.
#[derive(thiserror::Error)]
#[error("{name}")]
pub struct Dropped {
    pub name: &'static str,
    pub log: Log<&'static str>,
    pub is_hostile: bool,
}

impl Dropped {
    pub fn new(name: &'static str, log: &Log<&'static str>) -> Dropped {
        Dropped { name, log: log.clone(), is_hostile: false }
    }
}

impl std::fmt::Debug for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.log.push(self.name);
        assert!(!self.is_hostile, "on purpose");
    }
}
