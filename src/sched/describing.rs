//! Descriptions that processes give of themselves, and traces of single processes. `docs/observability.md` has the
//! protocol.

use std::fmt;

use super::cell::Cell;
use super::handed::Handed;
use super::marks::POLLS;
use super::road::{Executor, Road};
use super::traced::{note_end, sink, trace, untrace};
use super::visit::Visit;
use crate::outcome::Exit;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::cut_text::cut_text;
use crate::process::process_trace::TraceSink;
use crate::process::{Ask, CommandError, NoSuchProcessError, Reply, StepActivity};
use crate::sched::body::{Machine, Rare, Ready};

/// The most bytes of a description, with the note that it is cut.
const MOST: usize = 16 * 1024;

const NOT_IN_MEMORY: &str = "The process is not in the memory of this runtime.";

impl Road {
    /// Asks a process for its description, which is a `String`.
    pub(crate) fn ask_description(&self, pid: Pid, ask: &Arc<Ask>) {
        match self.in_memory(pid) {
            Some(local) if self.visit(local, Visit::Describe(Arc::downgrade(ask))) => {}
            None if self.elsewhere(pid).is_some_and(|elsewhere| elsewhere.is_alive(pid)) => {
                answer(ask, NOT_IN_MEMORY.into());
            }
            _ => refuse(ask, pid),
        }
    }

    /// Has the events of a process noted. Returns whether it lives.
    pub(crate) fn trace(&self, pid: Pid, sink: Arc<TraceSink>) -> bool {
        self.visit(pid, Visit::Trace(sink))
    }

    /// A trace of the process is over.
    pub(crate) fn untrace(&self, pid: Pid) {
        self.visit(pid, Visit::Untrace);
    }

    /// The PID of this process in the table, if it is in the memory of this runtime.
    pub(crate) fn in_memory(&self, pid: Pid) -> Option<Pid> {
        self.elsewhere(pid).map_or(Some(pid), |elsewhere| elsewhere.in_memory(pid))
    }

    /// Returns whether the process lives.
    fn visit(&self, pid: Pid, visit: Visit) -> bool {
        let Some(cell) = self.table.cell(pid).filter(|cell| cell.check(pid).is_ok()) else { return false };
        // One end of traces is enough: it looks at the trace that there is then.
        let is_end = matches!(visit, Visit::Untrace);
        let replaces = |old: &Visit| is_end && matches!(old, Visit::Untrace);
        let (woken, refused) = hand(&self.visits, cell, pid, visit, (replaces, Visit::is_wanted));
        woken.into_iter().for_each(|ready| self.inject(ready));
        let lives = refused.is_empty();
        refused.into_iter().for_each(Visit::comes_too_late);
        lives
    }

    /// Answers those that have asked for a description, and begins and ends traces. Called by the owner of the body,
    /// between two steps. Returns whether there were any.
    pub(super) fn receive_visits<H: Executor>(&self, executor: &mut H, body: &mut Ready) -> bool {
        let visits = self.visits.take(body.head.pid);
        !visits.is_empty() && {
            receive(executor, body, visits);
            true
        }
    }

    /// The process has ended, so nobody takes its visits. Call it when all others were told of the end.
    #[cold]
    pub(super) fn refuse_visits<H: Executor>(&self, executor: &mut H, pid: Pid) {
        let refused = self.visits.take(pid);
        if !refused.is_empty() {
            // Wakers of those that have asked may take long.
            executor.let_go();
            refused.into_iter().for_each(Visit::comes_too_late);
        }
    }
}

/// Whether visits may wait for a process that has ended, by its marks and its body. A visitor asks for a poll when its
/// visit is in the list. If the process has ended before, the visitor takes the visit out again.
#[inline]
pub(super) fn may_have_visits(marks: u64, body: &Ready) -> bool {
    marks & POLLS != 0 || body.head.is_poll_requested()
}

/// Ends the trace of a process that has ended, if there is one, and makes the body as it was before.
pub(super) fn end_trace<H: Executor>(executor: &mut H, body: &mut Ready, exit: &Exit) {
    if let Some(sink) = untrace(body) {
        // The text of an error is user code, and may take long.
        executor.let_go();
        note_end(&sink, exit);
    }
}

impl Visit {
    fn is_wanted(&self) -> bool {
        match self {
            Visit::Describe(ask) => ask.upgrade().is_some_and(|ask| !ask.is_decided()),
            Visit::Trace(sink) => !sink.is_over(),
            Visit::Untrace => true,
        }
    }

    fn comes_too_late(self) {
        match self {
            Visit::Describe(ask) => ask.upgrade().into_iter().for_each(|ask| ask.abandon()),
            Visit::Trace(sink) => sink.end(),
            Visit::Untrace => {}
        }
    }
}

#[cold]
fn receive<H: Executor>(executor: &mut H, body: &mut Ready, visits: Vec<Visit>) {
    let mut asked = Vec::new();
    for visit in visits {
        match visit {
            Visit::Describe(ask) => asked.extend(ask.upgrade().filter(|ask| !ask.is_decided())),
            Visit::Trace(sink) => {
                untrace(body).into_iter().for_each(|sink| sink.end());
                trace(body, sink);
            }
            Visit::Untrace if sink(body).is_some_and(|sink| sink.is_over()) => drop(untrace(body)),
            Visit::Untrace => {}
        }
    }
    if !asked.is_empty() {
        describe(executor, body, &asked);
    }
}

/// Frees the rare fields of a process that has none of them any more, after its visits. A traced process keeps them,
/// so that its end looks for the trace.
#[cold]
pub(super) fn free_rare(body: &mut Ready) {
    if body.head.rare.as_ref().is_some_and(|rare| is_unused(rare)) && sink(body).is_none() {
        body.head.rare = None;
    }
}

/// Whether all fields have the values that they have in a process without rare fields.
fn is_unused(rare: &Rare) -> bool {
    // Every field is named, so that a new one is not forgotten.
    let Rare {
        asked,
        is_prepared,
        has_feeds,
        poll_requested,
        only_polls,
        step_events,
        work,
        residents,
        bounded,
        name,
        known_as,
        timers,
        bound,
        held_after,
        never_held,
        warned,
        traps,
        is_helper,
        is_named,
        given,
        bond,
        begun,
        #[cfg(feature = "cluster")]
        leases,
        draws,
    } = rare;
    #[cfg(feature = "cluster")]
    let has_leases = !leases.is_empty();
    #[cfg(not(feature = "cluster"))]
    let has_leases = false;
    let flags = [is_prepared, has_feeds, poll_requested, only_polls, never_held, warned, traps, is_helper, is_named];
    let has_parts = work.is_some() || residents.is_some() || bounded.is_some() || given.is_some() || begun.is_some();
    let is_known = name.is_some() || known_as.is_some() || bond.is_some();
    let has_limits = bound.is_some() || held_after.is_some() || *step_events > 0 || *draws > 0;
    let has_open = !asked.is_empty() || !timers.is_empty();
    !(has_leases || has_parts || is_known || has_limits || has_open || flags.into_iter().any(|flag| *flag))
}

fn describe<H: Executor>(executor: &mut H, body: &Ready, asked: &[Arc<Ask>]) {
    // A description is user code, and may take long. So may the wakers of those that have asked.
    executor.let_go();
    executor.shows(StepActivity::Describe);
    let described = cut_text(MOST, &Described(&body.machine));
    executor.shows(StepActivity::AfterStep);
    asked.iter().for_each(|ask| match &described {
        Ok(text) => answer(ask, text.clone()),
        Err(panic) => ask.give_up(CommandError::Panicked(panic.clone())),
    });
}

/// Hands a visit to the owner of the body. Also returns the body, if it was at rest, and the visits that nobody takes,
/// because the process has ended.
pub(super) fn hand<T>(
    visits: &Handed<T>,
    cell: &Cell,
    pid: Pid,
    visit: T,
    (replaces, is_wanted): (impl Fn(&T) -> bool, impl Fn(&T) -> bool),
) -> (Option<Ready>, Vec<T>) {
    visits.add(pid, visit, replaces, |_, visit| is_wanted(visit));
    let woken = cell.request_poll(pid);
    // A process that ends after this look finds the visit.
    let refused = if cell.check(pid).is_ok() { Vec::new() } else { visits.take(pid) };
    (woken, refused)
}

fn answer(ask: &Arc<Ask>, text: String) {
    Reply::new(ask.clone()).send(text);
}

fn refuse(ask: &Ask, pid: Pid) {
    ask.give_up(NoSuchProcessError::Pid(pid).into());
}

struct Described<'a>(&'a dyn Machine);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}

#[cfg(all(test, loom))]
mod models;
