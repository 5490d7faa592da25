//! Traces along messages: the interface between the runtime and the tracing of the program.
//!
//! A message that is sent within a trace carries its *context*. It has a step of its own, and that step has a span. The
//! yields of that step carry the context of the span, and so on. `sched/trace_marks.rs` has the protocol.

use std::any::Any;
use std::cell::{Cell, RefCell};

use super::dead_letter::DeadLetter;
use crate::outcome::{Exit, contain, drop_contained, tell_log};
use crate::pid::Pid;
use crate::primitives::Arc;

/// Finds the trace in which a message or a command is yielded.
///
/// Give it to [`RuntimeBuilder::propagate`](crate::config::RuntimeBuilder::propagate).
/// [`SpanPropagator`](crate::observe::SpanPropagator) follows the spans of `tracing`. The crate `procession-otel` has
/// one for OpenTelemetry.
///
/// A trace goes on as long as its steps yield something. A process that sets its next timer in the step of the last one
/// stays in the trace of the first timer for ever. A step leaves its trace by yielding while
/// [`current`](Self::current) returns `None`. How to do this depends on the propagator.
pub trait Propagator: Send + Sync + 'static {
    /// The context of the code that runs on this thread now. `None` outside of any trace.
    ///
    /// The runtime calls this for each message and each command, in the step that yields it, and for each message from
    /// outside, on the thread that sends it. It may call this several times for one of them.
    fn current(&self) -> Option<Arc<dyn TraceContext>>;

    /// Reads a context that [`TraceContext::encode`] has written, on another node or in an earlier run of a store.
    ///
    /// The bytes may come from another node, so they may be anything. If they are no context, the message is outside
    /// of any trace. This is what the default implementation says.
    fn decode(&self, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
        let _ = bytes;
        None
    }
}

/// A place in a trace. A message or a command carries it.
///
/// A panic in one of these calls is contained and logged. If a thread sees many of them, it logs the first, the second,
/// the fourth, the eighth, and so on.
pub trait TraceContext: Send + Sync + 'static {
    /// Begins the span of a step. Its parent is this context.
    ///
    /// The span is the [current](Propagator::current) one of this thread until its [`end`](StepSpan::end). A runtime
    /// begins it when the step takes the event, and ends it on the same thread when the step has returned.
    fn begin_step(&self, step: &TracedStep<'_>) -> Box<dyn StepSpan>;

    /// Makes this context the current one of this thread, until the returned value is dropped on the same thread.
    ///
    /// The runtime calls this before it runs a blocking closure, a handler or an attempt of a retry, or polls a future,
    /// that was yielded in this context. It begins no span.
    fn enter(&self) -> Box<dyn Any>;

    /// Records that a message with this context became a dead letter.
    fn dead_letter(&self, letter: &DeadLetter<'_>);

    /// Writes the context, so that it travels to another node or into a store. [`Propagator::decode`] reads it there.
    ///
    /// `None` if it cannot travel, as the default implementation says. Then the message is outside of any trace there.
    /// This is also so if there are more than 1,024 bytes, or none. The runtime calls this for each message to another
    /// node or into a store, and for each command of a durable process. It may call this on any thread, and several
    /// times.
    fn encode(&self) -> Option<Vec<u8>> {
        None
    }
}

/// The span of one step, from [`TraceContext::begin_step`].
pub trait StepSpan {
    /// Ends the span. The step has returned.
    fn end(self: Box<Self>, end: StepEnd<'_>);
}

/// A step that has taken a traced event.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TracedStep<'a> {
    /// The process.
    pub pid: Pid,
    /// The type of the process.
    pub type_name: &'static str,
    /// The name of the process, if it has one.
    pub name: Option<&'a str>,
    /// The event.
    pub event: TracedEvent,
}

/// The traced event of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TracedEvent {
    /// A message.
    #[non_exhaustive]
    Message {
        /// The type of the message.
        type_name: &'static str,
        /// The sender. `None` if the message was sent from outside.
        from: Option<Pid>,
    },
    /// The answer to a command.
    #[non_exhaustive]
    Completed {
        /// The tag of the command.
        tag: u64,
    },
    /// The event of the step before. An async process goes on with it in another step, whose span is below that of the
    /// step before.
    Continued,
}

/// How a traced step has ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum StepEnd<'a> {
    /// The step has returned `Ok`. Its yields are performed now, or when they are on disk.
    Succeeded,
    /// The step has failed. Its yields are dropped, so the trace ends there. A durable process tries it again, in
    /// another span.
    Failed(&'a Exit),
}

/// The PID, the type and the name of a process.
type Identity = (Pid, fn() -> &'static str, Option<Arc<str>>);

/// The step that runs on a thread, for the span that it may begin.
#[derive(Default)]
struct Stepped {
    process: Option<Identity>,
    span: Option<Box<dyn StepSpan>>,
    /// The traced event that the step has taken, with its context.
    taken: Option<(Arc<dyn TraceContext>, TracedEvent)>,
    /// The span begins later, because a lock is held.
    defers: bool,
    deferred: Option<(Arc<dyn TraceContext>, TracedEvent)>,
}

thread_local! {
    static STEPPED: RefCell<Stepped> = RefCell::default();
    /// How many panics of propagators this thread has contained.
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

impl Stepped {
    fn is_empty(&self) -> bool {
        let Stepped { process, span, taken, defers, deferred } = self;
        process.is_none() && span.is_none() && taken.is_none() && !defers && deferred.is_none()
    }

    /// Drops the span and the events of a step one by one: the user's code has each destructor.
    fn drop_each(self) {
        let Stepped { span, taken, deferred, .. } = self;
        drop_contained(span);
        drop_contained(taken);
        drop_contained(deferred);
    }
}

/// Records which process the calling thread steps from now on.
pub(crate) fn step_begins(pid: Pid, type_name: fn() -> &'static str, name: Option<&Arc<str>>) {
    let stepped = Stepped { process: Some((pid, type_name, name.cloned())), ..Stepped::default() };
    // A step whose body was lost did not end its span.
    STEPPED.replace(stepped).drop_each();
}

/// Runs `run`, which may step other processes on the calling thread. The step that runs now keeps its span.
pub(crate) fn beside_step<R>(run: impl FnOnce() -> R) -> R {
    /// `None` if no step runs, as mostly in a simulation. Then nothing is moved.
    struct RestoreGuard(Option<Stepped>);

    impl Drop for RestoreGuard {
        fn drop(&mut self) {
            let outer = self.0.take();
            if outer.is_some() || !STEPPED.with_borrow(Stepped::is_empty) {
                STEPPED.replace(outer.unwrap_or_default()).drop_each();
            }
        }
    }

    let outer = STEPPED.with_borrow_mut(|stepped| (!stepped.is_empty()).then(|| std::mem::take(stepped)));
    let _restore = RestoreGuard(outer);
    run()
}

/// Begins the span of the step that runs on the calling thread.
pub(crate) fn begin_span(context: Arc<dyn TraceContext>, event: TracedEvent) {
    let process = STEPPED.with_borrow_mut(|stepped| match stepped.defers {
        true => {
            stepped.deferred = Some((context.clone(), event));
            None
        }
        false => stepped.process.clone(),
    });
    let Some((pid, type_name, name)) = process else { return };
    let step = TracedStep { pid, type_name: type_name(), name: name.as_deref(), event };
    let span = contained(|| context.begin_step(&step));
    let other = STEPPED.with_borrow_mut(|stepped| {
        stepped.span = span;
        stepped.taken.replace((context, event))
    });
    drop_contained(other);
}

/// Runs this, perhaps under a lock. A span begins only when [`begin_deferred`] is called.
pub(crate) fn defer_span<R>(run: impl FnOnce() -> R) -> R {
    /// Also ends the deferring if a predicate panics. It may be within another one.
    struct Deferring(bool);

    impl Drop for Deferring {
        fn drop(&mut self) {
            STEPPED.with_borrow_mut(|stepped| stepped.defers = self.0);
        }
    }

    let _deferring = Deferring(STEPPED.with_borrow_mut(|stepped| std::mem::replace(&mut stepped.defers, true)));
    run()
}

/// Corrects the sender of the message whose span was deferred. A stored message has its number in this place.
pub(crate) fn correct_sender(sender: Option<Pid>) {
    STEPPED.with_borrow_mut(|stepped| {
        if let Some((_, TracedEvent::Message { from, .. })) = &mut stepped.deferred {
            *from = sender;
        }
    });
}

/// Begins the span that was deferred, if one was, unless it is deferred still.
pub(crate) fn begin_deferred() {
    let take = |stepped: &mut Stepped| if stepped.defers { None } else { stepped.deferred.take() };
    if let Some((context, event)) = STEPPED.with_borrow_mut(take) {
        begin_span(context, event);
    }
}

/// Ends the span of the step that has returned on the calling thread, if it has one.
pub(crate) fn end_span(end: StepEnd<'_>) {
    begin_deferred();
    let has_failed = matches!(end, StepEnd::Failed(_));
    let (span, taken) = STEPPED.with_borrow_mut(|stepped| {
        // The event of a failed step is a dead letter, or is offered again.
        let taken = if has_failed { None } else { stepped.taken.take() };
        (stepped.span.take(), taken)
    });
    if let Some(span) = span {
        contained(|| span.end(end));
    }
    drop_contained(taken);
}

/// Takes the traced event of a step that has failed on the calling thread.
pub(crate) fn take_failed() -> Option<(Arc<dyn TraceContext>, TracedEvent)> {
    STEPPED.with_borrow_mut(|stepped| stepped.taken.take())
}

/// The most bytes of a context that is written. A context of W3C has 55, and its list of vendors at most 512.
#[cfg(any(feature = "cluster", feature = "durable"))]
pub(crate) const LONGEST_CONTEXT: usize = 1_024;

/// Writes a context, if it can travel.
#[cfg(any(feature = "cluster", feature = "durable"))]
pub(crate) fn encode(context: &dyn TraceContext) -> Option<Vec<u8>> {
    let bytes = contained(|| context.encode()).flatten();
    bytes.filter(|bytes| (1..=LONGEST_CONTEXT).contains(&bytes.len()))
}

/// Reads a context that came from elsewhere.
#[cfg(any(feature = "cluster", feature = "durable"))]
pub(crate) fn decode(propagator: &dyn Propagator, bytes: &[u8]) -> Option<Arc<dyn TraceContext>> {
    if !(1..=LONGEST_CONTEXT).contains(&bytes.len()) {
        return None;
    }
    contained(|| propagator.decode(bytes)).flatten()
}

/// The context in which the calling thread runs.
pub(crate) fn current(propagator: &dyn Propagator) -> Option<Arc<dyn TraceContext>> {
    contained(|| propagator.current()).flatten()
}

/// Runs `run` in a context.
pub(crate) fn in_trace<R>(context: Option<&dyn TraceContext>, run: impl FnOnce() -> R) -> R {
    let _entered = context.and_then(|context| contained(|| context.enter())).map(Entered);
    run()
}

/// Calls `bury` with a dead letter that tells the trace of its message.
pub(crate) fn with_trace(
    context: Option<&dyn TraceContext>,
    letter: &DeadLetter<'_>,
    bury: impl FnOnce(&DeadLetter<'_>),
) {
    match context {
        None => bury(letter),
        Some(context) => {
            let tell = |letter: &DeadLetter<'_>| tell_trace(Some(context), letter);
            bury(&DeadLetter { tell_trace: Some(&tell), ..*letter });
        }
    }
}

/// Notifies a trace of a dead letter. The observer was notified before.
pub(crate) fn tell_trace(context: Option<&dyn TraceContext>, letter: &DeadLetter<'_>) {
    context.and_then(|context| contained(|| context.dead_letter(letter)));
}

/// The guard of a context. Its destructor is the user's, so a panic in it is contained.
struct Entered(Box<dyn Any>);

impl Drop for Entered {
    fn drop(&mut self) {
        drop_contained(std::mem::replace(&mut self.0, Box::new(())));
    }
}

fn contained<R>(run: impl FnOnce() -> R) -> Option<R> {
    match contain(run) {
        Ok(result) => Some(result),
        Err(panic) => {
            // Logged at each power of two: a peer could make the propagator panic at each frame.
            let panics = PANICS.get() + 1;
            PANICS.set(panics);
            if panics.is_power_of_two() {
                tell_log(|| tracing::error!(%panic, panics, "a propagator of traces panicked on this thread"));
            }
            None
        }
    }
}

#[cfg(all(test, not(loom), any(feature = "cluster", feature = "durable")))]
mod tests;
