//! The replacement of a state machine by another one under the same PID.
//!
//! An upgrade keeps all that the process has. A recovery follows a failure. `Process::recover` says what it keeps.

use super::cell::{Cell, Freed, Inbox};
use super::ending::{bury, bury_as, close, end, identity};
use super::engine::Engine;
use super::polling::drop_futures;
use super::road::{Executor, Road};
use super::traced::{trace, untrace};
use crate::outcome::{Exit, Reason, drop_contained, tell_log};
use crate::primitives::Arc;
use crate::process::process_trace::TraceSink;
use crate::process::propagation::{take_failed, with_trace};
use crate::process::{DeadLetter, DeadLetterReason, Recovered, RecoveredBy};
use crate::sched::body::{Ready, StepOutput, Successor};
use crate::sched::mailbox::{AnyMailbox, Signal};

/// Replaces the state machine by the successor that a step has given. Messages of a type that the new one does not
/// take are dead letters.
pub(super) fn upgrade<H: Executor>(
    road: &Road,
    executor: &mut H,
    mut body: Ready,
    successor: Successor,
    taken: u32,
) -> Ready {
    let sink = untrace(&mut body);
    let (mut body, refused) = succeed(successor, body);
    let Some(cell) = road.table.cell(body.head.pid) else { return body };
    let inbox = cell.upgrade(&mut body, taken);
    take_over(road, executor, cell, &mut body, inbox, refused);
    trace_successor(&mut body, sink);
    body
}

/// Handles a failed step: the process recovers, or it ends. Returns the body if the process goes on.
#[cold]
pub(super) fn failed<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
    taken: u32,
) -> Option<Ready> {
    let (road, pid, kind) = (engine.road(), body.head.pid, body.machine.kind());
    lost(road, executor, &body, taken);
    let exit = out.failure.take().unwrap_or(Exit::Terminated(Reason::Terminated));
    let recovery = road.table.cell(pid).and_then(|cell| Some((cell, recovery(cell, &mut body, &exit)?)));
    let Some((cell, (mut successor, by))) = recovery else {
        end(engine, executor, out, body, exit);
        return None;
    };
    out.renounce();
    out.note_draws(&mut body.head);
    out.clear();
    // The signals that the failed state machine has taken are not taken again.
    successor.given_back.drain(..).for_each(drop_contained);
    close(executor, &mut body);
    drop_futures(engine, executor, &mut body.head);
    engine.abandons(&mut body.head);
    let sink = untrace(&mut body);
    // The failed state machine is dropped here, with the replies that it held.
    let (mut body, refused) = succeed(*successor, body);
    let recovered = Recovered { pid, exit, by };
    let told = engine.recovers(&recovered, &body, executor);
    let (inbox, signals) = cell.recover(&mut body, taken);
    executor.let_go();
    for signal in signals {
        if let Signal::Completed(_) = signal {
            executor.count(|counters| &counters.discarded_answers, 1);
        }
        drop_contained(signal);
    }
    body.machine.mailbox().signals().iter_mut().for_each(|signals| signals.ask_to_stop_again());
    take_over(road, executor, cell, &mut body, inbox, refused);
    trace_successor(&mut body, sink);
    if let Some(figures) = &executor.counters().figures {
        figures.recovered(kind);
        figures.replaced(kind, body.machine.kind());
    }
    road.tell_observer(|observer| observer.restarted(&identity(&body), &recovered.exit));
    tell_of_recovery(&recovered, (kind.process)(), body.head.name().map(|name| &**name), told);
    drop_contained(recovered);
    Some(body)
}

/// Returns the successor of a state machine that has failed, if there is one.
fn recovery(cell: &Cell, body: &mut Ready, exit: &Exit) -> Option<(Box<Successor>, RecoveredBy)> {
    let (successor, by) = match body.machine.recover(exit) {
        Some(successor) => (successor, RecoveredBy::Process),
        None => {
            let with = body.head.rare.as_mut()?.given.as_mut()?.recover.as_mut()?;
            ((with.recover)(exit)?, RecoveredBy::SpawnOption)
        }
    };
    let mut is_asked_to_stop = || body.machine.mailbox().is_asked_to_stop() || cell.is_asked_to_stop();
    if cell.doomed().is_some() || !successor.even_if_stopping && is_asked_to_stop() {
        drop_contained(successor);
        return None;
    }
    Some((successor, by))
}

/// Logs a recovery. A supervisor that was notified logs it itself: it is the parent, and linked.
fn tell_of_recovery(recovered: &Recovered, process: &str, name: Option<&str>, parent_told: bool) {
    let Recovered { pid, exit, .. } = recovered;
    if parent_told {
        tell_log(|| tracing::debug!(%pid, process, name, %exit, "recovered from a failure"));
    } else {
        tell_log(|| tracing::warn!(%pid, process, name, %exit, "recovered from a failure"));
    }
}

/// Makes the body of the successor, and drops the old state machine. Also returns the waiting messages that it does not
/// take.
fn succeed(successor: Successor, old: Ready) -> (Ready, Option<Box<dyn AnyMailbox>>) {
    let (mut body, refused) = (successor.succeed)(old);
    if !successor.given_back.is_empty() {
        body.machine.mailbox().signals().get_or_insert_default().give_back(successor.given_back);
    }
    (body, refused)
}

/// The trace of a process goes on with the successor. A recorder has looked at the successor before.
fn trace_successor(body: &mut Ready, sink: Option<Arc<TraceSink>>) {
    if let Some(sink) = sink {
        sink.note("replaced", &(body.machine.kind().process)());
        trace(body, sink);
    }
}

/// Gives the successor the messages that have arrived in the meantime. Messages of a type that it does not take are
/// dead letters.
fn take_over<H: Executor>(
    road: &Road,
    executor: &mut H,
    cell: &Cell,
    body: &mut Ready,
    mut inbox: Option<Inbox>,
    refused: Option<Box<dyn AnyMailbox>>,
) {
    if let Some(Inbox { mailbox, .. }) = &mut inbox {
        let completions = body.machine.mailbox().absorb(&mut **mailbox, usize::MAX);
        body.head.answered(completions);
    }
    let mut dead = 0;
    for mut mailbox in [refused, inbox.map(|inbox| inbox.mailbox)].into_iter().flatten() {
        dead += mailbox.messages() as u32;
        let takes = Some((body.machine.kind().message_name)());
        let letter = DeadLetter { takes, ..DeadLetter::new(body.head.pid, DeadLetterReason::WrongType) };
        bury_as(road, executor, &mut *mailbox, &letter);
    }
    cell.forget_messages(dead);
    if let Some(recorder) = &road.recorder {
        recorder.record(body, None);
    }
    hold(road, executor, cell, body);
}

/// Counts the messages that a step under a bound has left. If the bound drops the oldest, these are dropped first.
#[cold]
pub(super) fn hold<H: Executor>(road: &Road, executor: &mut H, cell: &Cell, body: &mut Ready) {
    let freed = cell.hold(body);
    tell_of_freed(road, executor, body, freed);
}

/// Reports messages that have lost their place in a bounded mailbox, and puts messages that have waited into free
/// places.
pub(super) fn tell_of_freed<H: Executor>(road: &Road, executor: &mut H, body: &Ready, freed: Freed) {
    if let Some(mut oldest) = freed.oldest {
        bury(road, executor, body.head.pid, &mut *oldest, DeadLetterReason::DroppedOldest);
    }
    road.tell_senders(executor, body.head.pid, freed.told);
}

/// Counts the messages that a failed step had taken as dead letters. They are gone already.
fn lost<H: Executor>(road: &Road, executor: &mut H, body: &Ready, taken: u32) {
    executor.let_go();
    // A step that has taken a traced message has taken no other message. A step that has taken a traced answer has
    // taken no message.
    let (context, _) = road.propagator.as_ref().and_then(|_| take_failed()).unzip();
    for _ in 0..taken {
        let type_name = (body.machine.kind().message_name)();
        let letter = DeadLetter { type_name, ..DeadLetter::new(body.head.pid, DeadLetterReason::StepFailed) };
        with_trace(context.as_deref(), &letter, |letter| road.dead_letter(executor.counters(), letter));
    }
    drop_contained(context);
}
