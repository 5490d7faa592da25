//! The interface between a step and the runtime, or a test in its place.

use std::ops::Range;

use super::command::{Answer, AnswerTo};
use super::reply::AskLink;
use super::target::sealed::Directory;
use crate::clock::Clock;
use crate::pid::Pid;
use crate::primitives::Arc;
use crate::timer::TimerKey;

/// The calls that a step makes to the runtime. They give new PIDs and the time, and deliver answers.
pub(crate) trait Host: AskLink + Directory {
    /// A PID that no process has.
    fn nobody(&self) -> Pid;

    fn clock(&self) -> &Clock;

    /// Adds PIDs for new processes to `stock`, at least one if there are any.
    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), NoVacancy>;

    /// Takes back the slot of a PID that no process will have.
    fn give_back_after(&self, pid: Pid);

    /// Whether new processes are refused.
    fn is_shutting_down(&self) -> bool;

    /// The members of this group, in order, each as often as it has joined.
    fn group(&self, name: &str) -> Vec<Pid>;

    /// Numbers for monitors that no other step gets.
    fn monitor_numbers(&self) -> Range<u64>;
}

/// A runtime's link with a reference count of its own. Every question holds its link. If all questions shared the
/// runtime's count, the processors that make and drop questions would all write to it at once.
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

/// Why a new process is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoVacancy {
    Limit(u32),
    ShuttingDown,
}
