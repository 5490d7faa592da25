//! What a step needs from the runtime, or from a test in its place.

use std::ops::Range;

use super::command::{Answer, AnswerTo};
use super::reply::AskLink;
use super::target::sealed::Directory;
use crate::clock::Clock;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::timer::TimerKey;

/// What a step needs from the runtime: numbers for new processes, the time, and a way for answers to come.
pub(crate) trait Host: AskLink + Directory {
    /// A PID that no process has.
    fn nobody(&self) -> Pid;

    fn clock(&self) -> &Clock;

    /// Adds PIDs for new processes to `stock`, at least one if there are any.
    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), NoVacancy>;

    /// Takes back the slot of a PID that no process will have any more.
    fn give_back_after(&self, pid: Pid);

    /// Whether no process may begin any more.
    fn is_shutting_down(&self) -> bool;

    /// Who is in this group, in order, each as often as it has joined.
    fn group(&self, name: &str) -> Vec<Pid>;

    /// Numbers for monitors that nobody else has.
    fn monitor_numbers(&self) -> Range<u64>;
}

/// A runtime's link under a count of its own: every question holds its link, and those who make and drop them on several
/// processors at once would otherwise all write to the one count of the runtime.
pub(crate) struct Near(Arc<dyn Host>);

impl Near {
    pub(crate) fn new(link: Arc<dyn Host>) -> Near {
        Near(link)
    }
}

impl AnswerTo for Near {
    fn answer(&self, to: Pid, tag: u64, answer: Answer) {
        self.0.answer(to, tag, answer);
    }

    fn answer_from(&self, from: Pid, to: Pid, tag: u64, answer: Answer) {
        self.0.answer_from(from, to, tag, answer);
    }
}

impl AskLink for Near {
    fn is_alive(&self, pid: Pid) -> bool {
        self.0.is_alive(pid)
    }

    fn late_reply(&self) {
        self.0.late_reply();
    }

    fn forget_timer(&self, key: TimerKey) {
        self.0.forget_timer(key);
    }

    fn runtime(&self) -> *const () {
        self.0.runtime()
    }
}

/// Why there can be no new process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoVacancy {
    Limit(u32),
    ShuttingDown,
}
