//! An async process as a process.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};

use super::context::Context;
use super::state::{Inner, Later, Listening, SharedState};
use super::wake_flag::{Listener, WakeFlag};
use crate::outcome::{contain, drop_contained, tell_log};
use crate::primitives::{Arc, BriefGuard};
use crate::process::propagation::{TraceContext, begin_deferred};
use crate::{BoxError, CommandError, Events, Process, Step, StepOutput, StepResult};

/// Makes a process of an `async fn`. See [the module](mod@crate::async_process).
pub fn async_process<M, O, F, Fut>(begin: F) -> AsyncProcess<M, F, Fut>
where
    M: Send + 'static,
    O: Send + Sync + 'static,
    F: FnOnce(Context<M>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    AsyncProcess { stage: Stage::New(begin), shared: None }
}

/// An `async fn` as a [`Process`], made with [`async_process`].
///
/// Its type in the log and in reports is that of the function.
pub struct AsyncProcess<M, F, Fut> {
    stage: Stage<F, Fut>,
    /// Made by the first step.
    shared: Option<Shared<M>>,
}

enum Stage<F, Fut> {
    New(F),
    Running(Pin<Box<Fut>>),
    Over,
}

struct Shared<M> {
    state: Arc<SharedState<M>>,
    flag: Arc<WakeFlag>,
    waker: Waker,
}

/// The owners of a wake flag, except for foreign ones: the process, its waker, and the state's.
const OWNERS: usize = 3;

impl<M> Shared<M> {
    fn new(out: &StepOutput) -> Shared<M> {
        let flag = Arc::<WakeFlag>::default();
        let waker = Waker::from(flag.clone());
        let state = Arc::new(SharedState::new(out.pid(), out.link.clone(), waker.clone()));
        Shared { state, flag, waker }
    }
}

/// The step that is lent to a poll. It comes back when this is dropped, also if the poll panics.
struct LentStep<'a, 'e, M> {
    state: &'a SharedState<M>,
    events: &'a mut Events<'e, M>,
    out: &'a mut StepOutput,
    is_over: bool,
}

impl<M> Drop for LentStep<'_, '_, M> {
    fn drop(&mut self) {
        if !self.is_over {
            self.state.open().take_back(self.events, self.out);
        }
    }
}

impl<M, F, Fut, O> Process for AsyncProcess<M, F, Fut>
where
    M: Send + 'static,
    O: Send + Sync + 'static,
    F: FnOnce(Context<M>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<O, BoxError>> + Send + 'static,
{
    type Message = M;
    type Output = O;

    fn step(&mut self, events: &mut Events<'_, M>, out: &mut StepOutput) -> StepResult<O> {
        let AsyncProcess { stage, shared } = self;
        let shared = shared.get_or_insert_with(|| Shared::new(out));
        events.continue_in_trace();
        let mut inner = shared.state.open();
        let later = inner.arrive(events);
        if !later.is_empty() {
            drop(inner);
            later.run();
            inner = shared.state.open();
        }
        if !(shared.flag.take() | inner.is_woken | matches!(stage, Stage::New(_))) {
            return rest(inner, shared, events, out, None);
        }
        inner.lend(events, out);
        drop(inner);
        if out.outbox.has_traces() {
            begin_deferred();
        }
        let mut lent = LentStep { state: &shared.state, events, out, is_over: false };
        match poll(stage, shared) {
            Some(Poll::Ready(Ok(output))) => Ok(Step::Done(output)),
            Some(Poll::Ready(Err(error))) => Err(error),
            Some(Poll::Pending) => {
                // Before the lock, because this is the user's code.
                let trace = lent.out.current_trace();
                let mut inner = shared.state.open();
                inner.take_back(lent.events, lent.out);
                lent.is_over = true;
                // A traced event may have ended a wait that the poll had passed already.
                if lent.events.is_sealed() && (inner.is_woken || shared.flag.is_set()) {
                    lent.out.continues_in(trace.as_ref());
                }
                let rests = rest(inner, shared, lent.events, lent.out, Some(trace.as_ref()));
                drop_contained(trace);
                rests
            }
            // The context that the builder was given has not called the poll.
            None => Err(CommandError::Dropped.into()),
        }
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shared) = &self.shared else { return f.write_str("It has not begun.") };
        let waits = shared.state.open().waits();
        match waits {
            (true, 0) => f.write_str("It waits for an event."),
            (true, answers) => write!(f, "It waits for an event, and for the answers to {answers} commands."),
            (false, answers) => write!(f, "It waits for the answers to {answers} commands."),
        }
    }

    fn type_name() -> &'static str {
        type_name::<F>()
    }

    fn close(&mut self) {
        let mut stage = Some(std::mem::replace(&mut self.stage, Stage::Over));
        let Some(shared) = &self.shared else { return };
        // First, because a destructor of the future may panic.
        shared.state.close();
        let closed = contain(|| shared.state.link.surround(&mut || drop(stage.take())));
        // The context may not have called it.
        drop_contained(stage);
        if let Err(panic) = closed {
            tell_log(|| tracing::error!(process = type_name::<F>(), %panic, "an async process panicked in its drop"));
        }
    }
}

/// Polls the future once. `None` if the context of polls has not called it.
fn poll<M, F, Fut>(stage: &mut Stage<F, Fut>, shared: &Shared<M>) -> Option<Poll<Fut::Output>>
where
    F: FnOnce(Context<M>) -> Fut,
    Fut: Future,
{
    let mut polled = None;
    shared.state.link.surround(&mut || {
        if polled.is_some() {
            return;
        }
        if matches!(stage, Stage::New(_))
            && let Stage::New(begin) = std::mem::replace(stage, Stage::Over)
        {
            *stage = Stage::Running(Box::pin(begin(Context { state: shared.state.clone() })));
        }
        if let Stage::Running(future) = stage {
            polled = Some(future.as_mut().poll(&mut TaskContext::from_waker(&shared.waker)));
        }
    });
    polled
}

/// Decides what wakes a process that waits. If it was polled, `trace` is the trace of the poll.
fn rest<'a, M, O>(
    mut inner: BriefGuard<'a, Inner<M>>,
    shared: &'a Shared<M>,
    events: &mut Events<'_, M>,
    out: &mut StepOutput,
    trace: Option<Option<&Arc<dyn TraceContext>>>,
) -> StepResult<O> {
    if inner.is_woken || shared.flag.is_set() {
        // The signals keep their places among the messages.
        return Ok(Step::Continue);
    }
    let mut later = Later::new();
    let receives = inner.leave(events, &mut later);
    if !later.is_empty() {
        drop(inner);
        later.run();
        inner = shared.state.open();
    }
    let listener = inner.take_listener();
    let owners = OWNERS + usize::from(matches!(listener, Listening::Yes(_) | Listening::Ending(_)));
    // Before the look at the wake flag.
    let is_held = WakeFlag::is_held(&shared.flag, owners);
    let is_woken = inner.is_woken || shared.flag.is_set();
    let listener = match listener {
        Listening::Failed(error) => return Err(error.into()),
        Listening::No if is_held && !is_woken => Listening::Yes(out.listener(Listener(shared.flag.clone()))),
        Listening::Yes(tag) if !is_held && !is_woken && !receives => {
            out.cancel_future(tag);
            Listening::Ending(tag)
        }
        listener => listener,
    };
    if let (Listening::Yes(tag), Some(trace)) = (&listener, trace) {
        // If the process receives, the next event may have nothing to do with this step.
        out.goes_on_within(*tag, trace.filter(|_| !receives));
    }
    inner.put_listener(listener);
    drop(inner);
    Ok(match (is_woken, receives) {
        (true, _) => Step::Continue,
        (false, true) => Step::Idle,
        (false, false) => Step::Wait,
    })
}

impl<M, F, Fut> fmt::Debug for AsyncProcess<M, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncProcess").field("type", &type_name::<F>()).finish_non_exhaustive()
    }
}
