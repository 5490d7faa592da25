//! Descriptions that processes give of themselves. `docs/observability.md` has the protocol.

use std::fmt::{self, Write};

use super::cell::Cell;
use super::handed::Handed;
use super::road::{Executor, Road};
use crate::outcome::{Panic, contain};
use crate::pid::Pid;
use crate::primitives::{Arc, Weak};
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
        let local = match self.elsewhere(pid) {
            None => pid,
            Some(elsewhere) => match elsewhere.in_memory(pid) {
                Some(local) => local,
                None if elsewhere.is_alive(pid) => return answer(ask, NOT_IN_MEMORY.into()),
                None => return refuse(ask, pid),
            },
        };
        let Some(cell) = self.table.cell(local) else { return refuse(ask, pid) };
        let is_wanted = |ask: &Weak<Ask>| ask.upgrade().is_some_and(|ask| !ask.is_decided());
        let (woken, refused) = hand(&self.questions, cell, local, Arc::downgrade(ask), is_wanted);
        woken.into_iter().for_each(|ready| self.inject(ready));
        refused.iter().filter_map(Weak::upgrade).for_each(|ask| refuse(&ask, pid));
    }

    /// Answers those that have asked for a description. Called by the owner of the body, between two steps.
    pub(super) fn describe<H: Executor>(&self, executor: &mut H, body: &Ready) {
        let asked = self.questions.take(body.head.pid);
        let mut open = asked.iter().filter_map(Weak::upgrade).filter(|ask| !ask.is_decided()).peekable();
        if open.peek().is_none() {
            return;
        }
        // A description is user code, and may take long. So may the wakers of those that have asked.
        executor.let_go();
        executor.shows(StepActivity::Describe);
        let described = text_of(&body.machine);
        executor.shows(StepActivity::AfterStep);
        open.for_each(|ask| match &described {
            Ok(text) => answer(&ask, text.clone()),
            Err(panic) => ask.give_up(CommandError::Panicked(panic.clone())),
        });
    }

    /// Tells those that have asked for a description that there will be none. Called when the process has ended.
    #[inline]
    pub(super) fn forget_questions(&self, pid: Pid) {
        self.questions.take(pid).iter().filter_map(Weak::upgrade).for_each(|ask| ask.abandon());
    }
}

/// Hands a question to the owner of the body. Also returns the body, if it was at rest, and the questions that nobody
/// takes, because the process has ended.
pub(super) fn hand<T>(
    questions: &Handed<T>,
    cell: &Cell,
    pid: Pid,
    question: T,
    is_wanted: impl Fn(&T) -> bool,
) -> (Option<Ready>, Vec<T>) {
    questions.add(pid, question, |_, question| is_wanted(question));
    let woken = cell.request_poll(pid);
    // A process that ends after this look finds the question.
    let refused = if cell.check(pid).is_ok() { Vec::new() } else { questions.take(pid) };
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
