//! A propagator that notes the spans of steps.

// No suite uses all of it. The unit tests of the library see all variants of its enums.
#![allow(dead_code, unreachable_patterns)]

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use procession::Pid;
use procession::observe::{
    DeadLetter, DeadLetterReason, Propagator, StepEnd, StepSpan, TraceContext, TracedEvent, TracedStep,
};

use crate::wait::Mutex;

/// The span of a step, or a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) number: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) pid: Option<Pid>,
    /// The sender of the message, if it was a process.
    pub(crate) from: Option<Pid>,
    pub(crate) process: String,
    pub(crate) name: Option<String>,
    /// The type of the message, or the tag of the command.
    pub(crate) event: String,
    /// How it ended. Empty while it lasts.
    pub(crate) end: String,
}

/// Notes spans. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Traces(Arc<Noted>);

#[derive(Default)]
struct Noted {
    spans: Mutex<Vec<Span>>,
    dead: Mutex<Vec<(usize, DeadLetterReason)>>,
    /// The number of contexts that exist.
    contexts: AtomicUsize,
    /// If it is not zero, one yield in so many begins a trace if it is outside of any.
    begins_one_in: usize,
    yields: AtomicUsize,
}

/// Whether a span has ended on another thread, or while one within it lasted.
static ARE_MIXED_UP: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The spans in which the thread is, the innermost one last.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

impl Traces {
    pub(crate) fn new() -> Traces {
        Traces::default()
    }

    /// One yield in so many begins a trace.
    pub(crate) fn beginning_one_in(begins_one_in: usize) -> Traces {
        Traces(Arc::new(Noted { begins_one_in, ..Noted::default() }))
    }

    /// Runs this within a new trace. Returns its root.
    pub(crate) fn root(&self, run: impl FnOnce()) -> usize {
        let root = self.note(Span { pid: None, ..empty() });
        let _entered = Entered::new(root);
        run();
        root
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.0.spans.lock().unwrap().clone()
    }

    /// The spans whose parent this is.
    pub(crate) fn children(&self, parent: usize) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.parent == Some(parent)).collect()
    }

    /// The span or the root within which this span is.
    pub(crate) fn parent(&self, span: usize) -> Option<usize> {
        self.0.spans.lock().unwrap()[span].parent
    }

    /// The dead letters, each with the span within which it was sent.
    pub(crate) fn dead(&self) -> Vec<(usize, DeadLetterReason)> {
        self.0.dead.lock().unwrap().clone()
    }

    /// The number of contexts that exist.
    pub(crate) fn contexts(&self) -> usize {
        assert!(!ARE_MIXED_UP.load(Ordering::SeqCst), "spans end in the reverse order, on their thread");
        self.0.contexts.load(Ordering::SeqCst)
    }

    /// The span in which the calling thread is.
    pub(crate) fn current() -> Option<usize> {
        CURRENT.with_borrow(|current| current.last().copied())
    }

    fn place(&self, span: usize) -> Arc<dyn TraceContext> {
        self.0.contexts.fetch_add(1, Ordering::SeqCst);
        Arc::new(Place { span, traces: self.clone() })
    }

    fn note(&self, span: Span) -> usize {
        let mut spans = self.0.spans.lock().unwrap();
        let number = spans.len();
        spans.push(Span { number, ..span });
        number
    }
}

fn empty() -> Span {
    Span {
        number: 0,
        parent: None,
        pid: None,
        from: None,
        process: String::new(),
        name: None,
        event: String::new(),
        end: String::new(),
    }
}

impl Propagator for Traces {
    fn current(&self) -> Option<Arc<dyn TraceContext>> {
        let begins = || {
            let every = self.0.begins_one_in;
            every > 0 && self.0.yields.fetch_add(1, Ordering::Relaxed).is_multiple_of(every)
        };
        let span = Traces::current().or_else(|| begins().then(|| self.root(|| ())))?;
        Some(self.place(span))
    }

    fn decode(&self, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
        let span: usize = str::from_utf8(bytes).ok()?.strip_prefix("span ")?.parse().ok()?;
        (span < self.spans().len()).then(|| self.place(span))
    }
}

/// A context.
struct Place {
    span: usize,
    traces: Traces,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.traces.0.contexts.fetch_sub(1, Ordering::SeqCst);
    }
}

impl TraceContext for Place {
    fn begin_step(&self, step: &TracedStep<'_>) -> Box<dyn StepSpan> {
        let event = match step.event {
            TracedEvent::Message { type_name, .. } => type_name.to_string(),
            TracedEvent::Completed { tag, .. } => format!("command {tag}"),
            TracedEvent::Continued => String::from("continued"),
            _ => String::from("another event"),
        };
        let from = if let TracedEvent::Message { from, .. } = step.event { from } else { None };
        let number = self.traces.note(Span {
            parent: Some(self.span),
            pid: Some(step.pid),
            from,
            process: step.type_name.into(),
            name: step.name.map(String::from),
            event,
            ..empty()
        });
        Box::new(Step { number, traces: self.traces.clone(), entered: Entered::new(number) })
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(Entered::new(self.span))
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.traces.0.dead.lock().unwrap().push((self.span, letter.reason));
    }

    fn encode(&self) -> Option<Vec<u8>> {
        Some(format!("span {}", self.span).into_bytes())
    }
}

struct Step {
    number: usize,
    traces: Traces,
    entered: Entered,
}

impl StepSpan for Step {
    fn end(self: Box<Self>, end: StepEnd<'_>) {
        let end = match end {
            StepEnd::Succeeded => String::from("succeeded"),
            StepEnd::Failed(exit) => exit.to_string(),
            _ => String::from("another end"),
        };
        self.traces.0.spans.lock().unwrap()[self.number].end = end;
        drop(self.entered);
    }
}

/// The thread is in a span, until this is dropped.
struct Entered(usize);

impl Entered {
    fn new(span: usize) -> Entered {
        CURRENT.with_borrow_mut(|current| current.push(span));
        Entered(span)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let left = CURRENT.with_borrow_mut(|current| current.pop());
        // The library contains panics of propagators. So the tests look at this when they end.
        if left != Some(self.0) {
            ARE_MIXED_UP.store(true, Ordering::SeqCst);
        }
    }
}
