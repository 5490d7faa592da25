//! The end of a process: it releases everything it had, and joiners, links and monitors are notified.

use super::cell::{Cell, DOOMED, Inbox, RELATED, Vacated, WATCHED};
use super::counters::Counters;
use super::describing::{end_trace, may_have_visits};
use super::engine::Engine;
use super::marks::doom;
use super::polling::drop_futures;
use super::road::{Executor, Road};
use crate::outcome::{Exit, Panic, Reason, drop_contained, tell_log};
use crate::primitives::{Arc, AtomicUsize, Ordering};
use crate::process::{CommandError, Completion, DeadLetter, DeadLetterReason, Pid, ProcessIdentity};
use crate::sched::body::{Ready, Stage, StartReport, StepOutput};
use crate::sched::bounded_mailbox::WaitingSender;
use crate::sched::doorway::ToldSends;
use crate::sched::mailbox::AnyMailbox;
use crate::sched::room_queue::{RoomQueue, SendEnd};

/// Reports to the log, the figures and the observer that a process was spawned.
#[inline(always)]
pub(crate) fn told_of_spawn(road: &Road, counters: &Counters, body: &mut Ready) {
    if tracing::level_enabled!(tracing::Level::DEBUG) || road.is_observed {
        tell_of_spawn(road, counters, body);
    }
}

#[cold]
fn tell_of_spawn(road: &Road, counters: &Counters, body: &mut Ready) {
    if let Some(figures) = &counters.figures {
        figures.spawned(body.machine.kind());
    }
    if let Some(recorder) = &road.recorder {
        recorder.record(body, None);
    }
    if tracing::level_enabled!(tracing::Level::DEBUG) {
        let (pid, process, name) = (body.head.pid, body.machine.kind().process, body.head.name());
        tell_log(|| tracing::debug!(%pid, process = process(), name = name.map(|name| &**name), "spawned"));
    }
    road.tell_observer(|observer| observer.spawned(&identity(body)));
}

pub(crate) fn identity(body: &Ready) -> ProcessIdentity {
    ProcessIdentity { pid: body.head.pid, type_name: (body.machine.kind().process)(), name: body.head.name().cloned() }
}

/// Calls `close`, if `init` was called and `close` was not.
#[inline]
pub(super) fn close<H: Executor>(executor: &mut H, body: &mut Ready) {
    if body.head.stage == Stage::Open {
        body.head.stage = Stage::Closed;
        executor.let_go();
        body.machine.close();
    }
}

/// Gives back the messages that wait for room in the mailbox of a process that has ended.
fn hand_back<H: Executor>(road: &Road, executor: &mut H, pid: Pid, waiting: RoomQueue<Arc<dyn WaitingSender>>) {
    let (sends, outside) = waiting.take_all();
    let ended = sends.into_iter().map(|send| (send, SendEnd::NoReceiver)).collect();
    road.tell_senders(executor, pid, ToldSends { ended, ..ToldSends::default() });
    // The senders outside may have wakers. They try again, and learn of the end then.
    executor.let_go();
    outside.into_iter().for_each(|sender| sender.try_again());
}

/// Reports every message in a mailbox that no step will see, and drops it.
#[inline]
pub(super) fn bury<H: Executor>(
    road: &Road,
    executor: &mut H,
    pid: Pid,
    mailbox: &mut dyn AnyMailbox,
    reason: DeadLetterReason,
) {
    if mailbox.messages() > 0 {
        bury_as(road, executor, mailbox, &DeadLetter::new(pid, reason));
    }
}

/// As `bury`, with properties that all these messages share.
pub(super) fn bury_as<H: Executor>(road: &Road, executor: &mut H, mailbox: &mut dyn AnyMailbox, all: &DeadLetter<'_>) {
    if mailbox.messages() == 0 {
        return;
    }
    executor.let_go();
    let counters = executor.counters();
    mailbox.bury(&mut |dead| dead.tell(all, |letter| road.dead_letter(counters, letter)));
}

/// Ends the feeds of a process, and reports every item that no step has taken.
#[cold]
fn bury_feeds<H: Executor>(road: &Road, executor: &mut H, body: &mut Ready) {
    executor.let_go();
    let (all, counters) = (DeadLetter::new(body.head.pid, DeadLetterReason::Ended), executor.counters());
    if let Some(feeds) = body.machine.feeds() {
        feeds.bury(&mut |dead| dead.tell(&all, |letter| road.dead_letter(counters, letter)));
    }
}

/// Reports and drops what has arrived for a process that has ended.
fn bury_inbox<H: Executor>(road: &Road, executor: &mut H, pid: Pid, mut inbox: Inbox) {
    bury(road, executor, pid, &mut *inbox.mailbox, DeadLetterReason::Ended);
    if let Some(waiting) = inbox.waiting.take() {
        hand_back(road, executor, pid, *waiting);
    }
    inbox.mailbox.drop_signals();
}

/// Ends a process: closes it, vacates its PID, releases everything it had, and notifies the waiters.
#[inline(never)]
pub(crate) fn end<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    mut body: Ready,
    mut exit: Exit,
) {
    let road = engine.road();
    let pid = body.head.pid;
    close(executor, &mut body);
    let Some(cell) = road.table.cell(pid) else { return };
    let vacated = vacate(&road.dooms, cell, &mut body, &mut exit);
    let marks = vacated.marks;
    let may_have_visits = may_have_visits(marks, &body);
    #[cfg(feature = "cluster")]
    if matches!(exit, Exit::Terminated(Reason::Terminated)) && road.has_lost_name(&body) {
        exit = Exit::Terminated(Reason::NameLost);
    }
    if road.observer.is_some() || body.head.rare.as_ref().is_some_and(|rare| rare.work.is_some()) {
        // The observer and the exit callbacks may take long.
        executor.let_go();
    }
    // The counts of a step were added or dropped when it returned. The driver of a test adds them after the turn.
    debug_assert!(out.counted.is_empty() || executor.counters().figures.is_none());
    // Its yields are dropped only now, if it has failed. A reply among them tells its asker that the process has ended.
    if !out.orders.is_empty() {
        out.clear();
    }
    if body.head.rare.is_some() {
        end_trace(executor, &mut body, &exit);
        if let Some(StartReport { to, tag, .. }) = body.head.rare.as_mut().and_then(|rare| rare.begun.take()) {
            road.complete(executor, to, Completion::from(Some(pid), tag, Err(not_begun(pid, &exit))));
        }
        drop_futures(engine, executor, &mut body.head);
        engine.ended(&mut body.head);
        out.output = take_output(&mut body, &exit);
    }
    bury(road, executor, pid, body.machine.left(), DeadLetterReason::Ended);
    if body.head.rare.as_ref().is_some_and(|rare| rare.has_feeds) {
        bury_feeds(road, executor, &mut body);
    }
    if let Some(mut inbox) = vacated.into_inbox() {
        if body.head.rare.as_ref().is_some_and(|rare| rare.known_as.is_some()) {
            body.machine.keep_stored(&mut *inbox.mailbox);
        }
        bury_inbox(road, executor, pid, inbox);
    }
    body.machine.mailbox().drop_signals();
    let counters = executor.counters();
    counters.ended(&exit);
    told_of_exit(road, counters, &body, &exit);
    let last_word = body.machine.last_word(&exit);
    out.spares.keep(body);
    match pid.successor() {
        Some(next) if out.stock.len() < road.stock => out.stock.push(next),
        _ => road.table.give_back_after(pid),
    }
    // The state is dropped and the slot is free. A notified process may already spawn another process there.
    if marks & RELATED != 0 {
        // A process that is run by another is related to it.
        if let Some(output) = out.output.take() {
            road.complete(executor, output.0, output.1);
        }
        engine.tell_related(pid, &exit, executor);
    }
    drop_contained(exit);
    if let Some(calls) = last_word.and_then(|set_exit| set_exit()) {
        // Wakers and callbacks of joiners may take long.
        executor.let_go();
        calls();
    }
    if may_have_visits {
        road.refuse_visits(executor, pid);
    }
    if marks & WATCHED != 0 {
        road.roll.count_out();
    }
}

/// Takes the process out of its cell. From now on its PID names no process.
///
/// Returns the contents of the cell. `exit` becomes the exit of the process.
#[inline(always)]
pub(crate) fn vacate(dooms: &AtomicUsize, cell: &Cell, body: &mut Ready, exit: &mut Exit) -> Vacated {
    let mut vacated = cell.vacate();
    if let Some(reason) = doom(vacated.marks) {
        dooms.fetch_sub(1, Ordering::SeqCst);
        // It was terminated while its last step ran. The caller was told that there was a process to end.
        if matches!(exit, Exit::Done(()) | Exit::Terminated(_)) {
            *exit = Exit::Terminated(killer(&mut vacated, body).unwrap_or(reason));
        }
    }
    vacated
}

/// Returns the answer to the parent that runs this process, with the command.
#[cold]
fn take_output(body: &mut Ready, exit: &Exit) -> Option<Box<(Pid, Completion)>> {
    let (parent, tag) = body.head.take_answer()?.take(matches!(exit, Exit::Done(())))?;
    let output = match exit {
        Exit::Done(()) => body.machine.take_output().ok_or(CommandError::Dropped),
        exit => Err(CommandError::ChildExit { pid: body.head.pid, exit: exit.clone() }),
    };
    Some(Box::new((parent, Completion::from(Some(body.head.pid), tag, output))))
}

/// The answer to a parent whose child's `init` failed or was not called.
fn not_begun(pid: Pid, exit: &Exit) -> CommandError {
    match exit {
        Exit::Failed(failure) => CommandError::Failed(failure.clone()),
        Exit::Panicked(panic) => CommandError::Panicked(panic.clone()),
        Exit::Done(()) | Exit::Terminated(_) => CommandError::Ended(pid),
    }
}

/// Returns the link through which the process was ended, if there was one.
#[cold]
fn killer(vacated: &mut Vacated, body: &mut Ready) -> Option<Reason> {
    vacated.take_killer().or_else(|| body.machine.mailbox().take_killer()).map(Reason::Linked)
}

/// Ends a process whose body an unexpected panic has taken, as far as possible without a body.
///
/// The next process on this worker must not send its yields.
#[cold]
pub(crate) fn body_lost<E: Engine, H: Executor>(
    engine: &E,
    executor: &mut H,
    out: &mut StepOutput,
    pid: Pid,
    panic: Panic,
) {
    let road = engine.road();
    tell_log(|| tracing::error!(%pid, %panic, "a panic in the runtime has ended a process"));
    executor.let_go();
    out.clear();
    drop_contained(out.failure.take());
    drop_contained(out.successor.take());
    let Some((cell, vacated)) = road.table.cell(pid).and_then(|cell| Some((cell, cell.vacate_lost(pid)?))) else {
        return;
    };
    let (marks, mut unseen) = (vacated.marks, vacated.queued);
    if marks & DOOMED != 0 {
        road.dooms.fetch_sub(1, Ordering::SeqCst);
    }
    if let Some(inbox) = vacated.into_inbox() {
        unseen = unseen.saturating_sub(inbox.mailbox.messages() as u32);
        bury_inbox(road, executor, pid, inbox);
    }
    // The messages in the body are lost. They are counted all the same.
    let counters = executor.counters();
    let kind = cell.kind_of(pid);
    counters.dead(DeadLetterReason::StepFailed, u64::from(unseen));
    if let (Some(figures), Some(kind)) = (&counters.figures, kind) {
        figures.dead(kind, u64::from(unseen));
    }
    let exit = Exit::Panicked(panic);
    counters.ended(&exit);
    if let Some(figures) = &counters.figures {
        figures.ended(kind, &exit);
    }
    road.table.give_back_after(pid);
    // Also without relations: the name is lost with the head. Before the observer, so that it finds the name free.
    engine.tell_related(pid, &exit, executor);
    let type_name = kind.map_or("", |kind| (kind.process)());
    road.tell_observer(|observer| observer.exited(&ProcessIdentity { pid, type_name, name: None }, &exit));
    if let Some(elsewhere) = road.non_local.get() {
        elsewhere.body_lost(pid);
    }
    // The body may have been marked.
    road.refuse_visits(executor, pid);
    if marks & WATCHED != 0 {
        road.roll.count_out();
    }
}

/// Reports to the log, the figures and the observer that a process has ended.
#[inline(always)]
fn told_of_exit(road: &Road, counters: &Counters, body: &Ready, exit: &Exit) {
    let level = match exit {
        Exit::Done(()) => tracing::Level::DEBUG,
        Exit::Terminated(_) => tracing::Level::INFO,
        Exit::Failed(_) => tracing::Level::WARN,
        Exit::Panicked(_) => tracing::Level::ERROR,
    };
    let is_logged = tracing::level_enabled!(level);
    if is_logged || road.is_observed {
        tell_of_exit(road, counters, body, exit, is_logged);
    }
}

#[cold]
fn tell_of_exit(road: &Road, counters: &Counters, body: &Ready, exit: &Exit, is_logged: bool) {
    let kind = body.machine.kind();
    if let Some(figures) = &counters.figures {
        figures.ended(Some(kind), exit);
    }
    if is_logged {
        tell_log(|| tell_exit(body.head.pid, (kind.process)(), body.head.name().map(|name| &**name), exit));
    }
    road.tell_observer(|observer| observer.exited(&identity(body), exit));
}

fn tell_exit(pid: Pid, process: &str, name: Option<&str>, exit: &Exit) {
    match exit {
        Exit::Done(()) => tracing::debug!(%pid, process, name, "done"),
        Exit::Terminated(reason) => tracing::info!(%pid, process, name, %reason, "terminated"),
        Exit::Failed(error) => tracing::warn!(%pid, process, name, %error, "failed"),
        Exit::Panicked(panic) => tracing::error!(%pid, process, name, message = panic.message(), "panicked"),
    }
}
