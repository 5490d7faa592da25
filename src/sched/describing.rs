//! Descriptions that processes give of themselves, and traces of single processes. `docs/observability.md` has the
//! protocol.

use std::fmt::{self, Write};

use super::cell::Cell;
use super::handed::Handed;
use super::road::{Executor, Road};
use super::traced::{sink, trace, untrace};
use super::visit::Visit;
use crate::outcome::{Panic, contain};
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::process::process_trace::TraceSink;
use crate::process::{Ask, CommandError, NoSuchProcessError, Reply, StepActivity};
use crate::sched::body::{Machine, Ready};

/// The most bytes of a description, with the note that it is cut.
const MOST: usize = 16 * 1024;

const CUT: &str = "… (cut)";

const FAILED: &str = "… (it has returned an error)";

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
    /// between two steps.
    pub(super) fn receive_visits<H: Executor>(&self, executor: &mut H, body: &mut Ready) {
        let mut asked = Vec::new();
        for visit in self.visits.take(body.head.pid) {
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

    /// The process has ended, so nobody takes its visits.
    #[inline]
    pub(super) fn refuse_visits(&self, pid: Pid) {
        if !self.visits.is_empty() {
            self.refuse_visits_now(pid);
        }
    }

    #[cold]
    fn refuse_visits_now(&self, pid: Pid) {
        self.visits.take(pid).into_iter().for_each(Visit::comes_too_late);
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

fn describe<H: Executor>(executor: &mut H, body: &Ready, asked: &[Arc<Ask>]) {
    // A description is user code, and may take long. So may the wakers of those that have asked.
    executor.let_go();
    executor.shows(StepActivity::Describe);
    let described = text_of(&body.machine);
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

/// The description, cut at the limit. A panic in it is contained.
fn text_of(machine: &dyn Machine) -> Result<String, Panic> {
    let mut text = Text { text: String::new(), is_cut: false };
    let written = contain(|| write!(text, "{}", Described(machine)))?;
    let note = match written {
        _ if text.is_cut => CUT,
        Err(fmt::Error) => FAILED,
        Ok(()) => "",
    };
    let mut described = text.text;
    described.truncate(described.floor_char_boundary(MOST - note.len()));
    described.push_str(note);
    Ok(described)
}

/// Keeps as much as is allowed. After that it is an error to write, so that an endless description ends.
struct Text {
    text: String,
    is_cut: bool,
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let kept = more.floor_char_boundary(MOST - self.text.len());
        self.text.push_str(&more[..kept]);
        self.is_cut |= kept < more.len();
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}

struct Described<'a>(&'a dyn Machine);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.describe(f)
    }
}
