//! Tests of the calls of a propagator.

use tracing::{Event, Metadata, Subscriber, span};

use super::*;
use crate::primitives::{AtomicUsize, Mutex, Ordering, lock, thread};
use crate::wait::wait;

/// Counts the lines of the log.
struct Lines(Arc<AtomicUsize>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// Panics when it reads a context, and counts that.
struct Panics(AtomicUsize);

impl Propagator for Panics {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        None
    }

    fn decode(&self, _: &[u8]) -> Option<Arc<dyn TraceContext>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        panic!("on purpose: it reads no context")
    }
}

#[test]
fn a_propagator_that_always_panics_does_not_fill_the_log() {
    // If there were one subscriber alone, a thread of another test that has none could come to a line of the log first.
    // Then `tracing` would never ask for that line again.
    let _second = tracing::Dispatch::new(Lines(Arc::default()));
    let lines = Arc::new(AtomicUsize::new(0));
    let count = lines.clone();
    // A thread of its own has contained no panic before.
    let reads = wait(thread::spawn(move || {
        let panics = Panics(AtomicUsize::new(0));
        tracing::subscriber::with_default(Lines(count), || {
            (0..1_000).for_each(|_| assert!(decode(&panics, b"a context").is_none()));
        });
        panics.0.load(Ordering::SeqCst)
    }));
    // At 1, 2, 4, …, 512.
    assert_eq!((reads.unwrap(), lines.load(Ordering::SeqCst)), (1_000, 10));
}

#[test]
fn bytes_that_are_empty_or_too_long_are_not_shown_to_the_propagator() {
    let panics = Panics(AtomicUsize::new(0));
    for (length, reads) in [(0, 0), (1, 1), (LONGEST_CONTEXT, 2), (LONGEST_CONTEXT + 1, 2)] {
        assert!(decode(&panics, &vec![b'x'; length]).is_none());
        assert_eq!(panics.0.load(Ordering::SeqCst), reads, "{length} bytes");
    }
}

#[test]
fn a_step_keeps_its_span_while_others_run_on_its_thread() {
    let seen = Arc::new(Mutex::new(Vec::new()));

    struct Named(&'static str, Arc<Mutex<Vec<String>>>);

    impl TraceContext for Named {
        fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
            Box::new(Named(self.0, self.1.clone()))
        }

        fn enter(&self) -> Box<dyn Any> {
            Box::new(())
        }

        fn dead_letter(&self, _: &DeadLetter<'_>) {}
    }

    impl StepSpan for Named {
        fn end(self: Box<Self>, end: StepEnd<'_>) {
            let what = if matches!(end, StepEnd::Succeeded) { "ended" } else { "failed" };
            lock(&self.1).push(format!("{} {what}", self.0));
        }
    }

    let begins = |name| {
        step_begins(Pid::FIRST, || "a process", None);
        begin_span(Arc::new(Named(name, seen.clone())), TracedEvent::Continued);
    };
    // No step is around this one, and its body is lost.
    beside_step(|| begins("lost"));
    end_span(StepEnd::Succeeded);
    assert_eq!(*lock(&seen), [""; 0], "its span is over");
    begins("outer");
    beside_step(|| {
        begins("inner");
        end_span(StepEnd::Succeeded);
        // The body of this one is lost.
        begins("lost");
    });
    end_span(StepEnd::Succeeded);
    assert_eq!(*lock(&seen), ["inner ended", "outer ended"]);
}
