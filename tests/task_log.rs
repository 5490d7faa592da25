//! What a scheduler of tasks logs, in a program of its own: the subscriber that all threads log to can only be the global one.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use procession::task::TaskScheduler;
use tracing::span;
use tracing::{Level, Metadata};

/// Keeps the warnings of the library.
struct Warnings(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("procession") && *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut text = event.metadata().level().to_string();
        event.record(&mut Text(&mut text));
        self.0.lock().unwrap().push(text);
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

/// Submits tasks that all run until the scheduler is stopped.
fn fill(tasks: &TaskScheduler, count: usize) {
    for _ in 0..count {
        drop(tasks.submit(|cancel| Err::<(), _>(cancel.wait())).unwrap());
    }
}

/// Until so many tasks run, each on a thread of its own.
fn until_running(tasks: &TaskScheduler, count: u64) {
    let began = Instant::now();
    while tasks.stats().running < count {
        // A bound for broken code only.
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", tasks.stats());
        std::thread::yield_now();
    }
}

#[test]
fn an_unlimited_scheduler_warns_once_at_1_000_threads() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::set_global_default(Warnings(warnings.clone())).unwrap();
    let limited = TaskScheduler::with_limit(4);
    fill(&limited, 2_000);
    let free = TaskScheduler::new();
    fill(&free, 999);
    until_running(&free, 999);
    assert_eq!(*warnings.lock().unwrap(), [""; 0]);
    fill(&free, 60);
    until_running(&free, 1_059);
    until_running(&limited, 4);
    let logged = warnings.lock().unwrap().clone();
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with("WARN") && logged[0].contains("threads=1000"), "{logged:?}");
    assert_eq!((limited.stats().running, limited.stats().scheduled), (4, 1_996));
    free.stop();
    limited.stop();
}
