//! The beginning of a process: its `init` and its `start`, before the first step.
//!
//! For most processes nothing is to be done between the two. One call does all that is to be done for them. The others
//! begin in stages: see [`Begun`].

use super::cell::Cell;
use super::ending::end;
use super::engine::Engine;
use super::road::Executor;
use crate::outcome::{Exit, Failure};
use crate::process::{Completion, StepActivity};
use crate::sched::body::{Begun, Ready, Stage, StartReport, StepOutput};

/// Calls `init`, and mostly also `start`.
#[inline(always)]
pub(super) fn enter<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    body: &mut Ready,
) -> Begun {
    let is_shown = executor.sight().is_some() || tracing::level_enabled!(tracing::Level::TRACE);
    if body.head.stage == Stage::Initialised {
        body.head.stage = Stage::Open;
        // The turn has found that the process was not terminated. No user code has run since.
        if is_shown || body.head.begins_in_stages() {
            return Begun::Initialised;
        }
        return body.machine.start(&mut body.head, out);
    }
    if let Err(why) = engine.begins(&mut body.head) {
        out.failure = Some(Exit::Failed(Failure::new(why)));
        return Begun::NotEntered;
    }
    body.head.stage = Stage::Open;
    if is_shown {
        return enter_shown(executor, out, body);
    }
    body.machine.begin(&mut body.head, out, &engine.road().dooms)
}

/// Calls `init` alone, and shows that.
#[inline(never)]
fn enter_shown<H: Executor>(executor: &mut H, out: &mut StepOutput, body: &mut Ready) -> Begun {
    executor.shows(StepActivity::Init);
    match body.machine.enter() {
        Ok(()) => Begun::Entered,
        Err(exit) => {
            out.failure = Some(exit);
            executor.not_begun(body, out);
            Begun::NotEntered
        }
    }
}

/// Handles the return of `init`, for a process with rare fields: it joins its groups, and its parent is notified.
#[inline(never)]
pub(super) fn entered<E: Engine, H: Executor>(engine: &E, executor: &mut H, body: &mut Ready) {
    let pid = body.head.pid;
    let Some(rare) = &mut body.head.rare else { return };
    if let Some(given) = &mut rare.given {
        engine.joins(std::mem::take(&mut given.groups), pid, executor);
    }
    let monitor = rare.bond.and_then(|bond| bond.monitor);
    if let Some(StartReport { to, tag, answer }) = rare.begun.take() {
        engine.road().complete(executor, to, Completion::from(Some(pid), tag, Ok(answer(pid, monitor))));
        // If that woke the parent, it must not wait for the first step.
        executor.let_go();
    }
}

/// Ends a process that may have been initialised and not have had a turn.
#[cold]
pub(super) fn end_initialised<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
    exit: Exit,
) {
    if body.head.stage == Stage::Initialised {
        // So that it is closed.
        body.head.stage = Stage::Open;
    }
    end(engine, executor, out, body, exit);
}

/// Gives a new process the events that have arrived since its beginning.
#[inline(always)]
pub(super) fn hand_over<H: Executor>(executor: &mut H, cell: &Cell, body: &mut Ready) {
    if let Some(inbox) = cell.hand_over(body) {
        drop(inbox);
        if body.head.rare.is_none() {
            executor.given(body);
        }
    }
}

/// Calls `start`, after an `init` that was called before.
#[inline(never)]
pub(super) fn start(out: &mut StepOutput, body: &mut Ready) -> Begun {
    let process = body.machine.kind().process;
    // With a propagator, all yields of `start` would be within the trace of this span.
    let has_span = tracing::level_enabled!(tracing::Level::TRACE) && !out.outbox.has_traces();
    let _entered = has_span.then(|| tracing::trace_span!("start", pid = %body.head.pid, process = process()).entered());
    out.load_draws(&body.head);
    body.machine.start(&mut body.head, out)
}
