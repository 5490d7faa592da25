//! One child, as its supervisor records it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::contained::tell_log;
use super::message::{ChildError, ChildInfo, ChildState};
use super::spec::ChildSpec;
use crate::command::TimerFired;
use crate::{Exit, Pid, Reply, StepOutput, Tag};

/// A child with its state.
///
/// | from | by | to |
/// |---|---|---|
/// | `Down` | it is to be started | `Queued` |
/// | `Queued` | its turn: no child of its batch stops or is before it, and there is no delay | `Starting` |
/// | `Starting` | its `init` has returned (of a supervisor: its children are up) | `Up` |
/// | `Up` | it has failed in place | `Delayed` |
/// | `Delayed` | the delay is over | `Up` |
/// | `Starting`, `Up`, `Delayed` | it is to be stopped | `ToStop` |
/// | `ToStop` | its turn: those after it have stopped | `Stopping` |
/// | any with a process | that has ended | `Down`, `Queued`, or gone |
pub(super) struct Child {
    pub(super) spec: ChildSpec,
    /// The name and the PID of its last process, if there was one.
    pub(super) name: Option<Arc<str>>,
    pub(super) pid: Option<Pid>,
    pub(super) state: ChildState,
    /// The timer of its process: its time to stop, the delay of its restart in place, or the time until it is asked
    /// again whether its children are up.
    pub(super) timer: Option<Tag<TimerFired>>,
    /// The children of one batch are first stopped in reverse order, and then started in order.
    pub(super) batch: u64,
    /// The state of the child after it has stopped.
    pub(super) goal: Goal,
    /// Failures in a row, without a stable time between them.
    pub(super) failures: u32,
    /// The time since which the child is up, if it is up.
    pub(super) up_since: Option<Instant>,
    /// A request has added the child, and it has not started yet. If it does not start, it is forgotten.
    pub(super) is_new: bool,
    pub(super) restarts: u64,
    /// Requests to be answered when the child is up.
    pub(super) starters: Vec<Reply<Result<Pid, ChildError>>>,
    /// Requests to be answered when the child has stopped.
    pub(super) stoppers: Vec<Reply<Result<(), ChildError>>>,
}

/// Whether a child is to be started or stopped.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Moves {
    /// The child is to be started.
    Up,
    /// The child is to be stopped.
    Down,
    Not,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Goal {
    Start,
    Stay,
    Forget,
}

impl Child {
    pub(super) fn new(spec: ChildSpec, batch: u64) -> Child {
        Child {
            spec,
            name: None,
            pid: None,
            state: ChildState::Queued,
            timer: None,
            batch,
            goal: Goal::Start,
            failures: 0,
            up_since: None,
            is_new: false,
            restarts: 0,
            starters: Vec::new(),
            stoppers: Vec::new(),
        }
    }

    /// Whether it has a process.
    pub(super) fn has_process(&self) -> bool {
        !matches!(self.state, ChildState::Down | ChildState::Queued)
    }

    pub(super) fn is_to_stop(&self) -> bool {
        self.moves() == Moves::Down
    }

    /// Whether the child is to be started or stopped.
    pub(super) fn moves(&self) -> Moves {
        match self.state {
            ChildState::ToStop | ChildState::Stopping => Moves::Down,
            ChildState::Queued | ChildState::Starting => Moves::Up,
            ChildState::Down | ChildState::Up | ChildState::Delayed => Moves::Not,
        }
    }

    /// Writes to the log that the child is restarted, or has recovered.
    pub(super) fn tell_of_restart(&self, exit: &Exit, what: &'static str) {
        let (child, name, attempt) = (&*self.spec.id, self.name.as_deref(), self.restarts);
        let pid = self.pid.map(tracing::field::display);
        tell_log(|| tracing::warn!(child, name, pid, attempt, error = %exit, "{what}"));
    }

    /// Ends the time during which the child was up: it has failed, or is to be stopped. Time spent waiting is not
    /// stable.
    pub(super) fn is_up_no_more(&mut self, now: Instant, stable: Option<Duration>) {
        if let (Some(since), Some(stable)) = (self.up_since.take(), stable)
            && now.saturating_duration_since(since) >= stable
        {
            self.failures = 0;
        }
    }

    /// Describes the child. `is_delayed`: its batch waits for a delay.
    pub(super) fn info(&self, is_delayed: bool) -> ChildInfo {
        ChildInfo {
            id: self.spec.id.clone(),
            pid: self.pid.filter(|_| self.has_process()),
            state: if is_delayed && self.state == ChildState::Queued { ChildState::Delayed } else { self.state },
            restart: self.spec.restart,
            supervises: self.spec.supervises,
            restarts: self.restarts,
        }
    }

    /// Answers the requests that wait until the child is up.
    pub(super) fn tell_up(&mut self, told: &Result<Pid, ChildError>, out: &mut StepOutput) {
        self.starters.drain(..).for_each(|reply| out.reply(reply, told.clone()));
    }

    /// Answers the requests that wait until the child has stopped.
    pub(super) fn tell_stopped(&mut self, out: &mut StepOutput) {
        self.stoppers.drain(..).for_each(|reply| out.reply(reply, Ok(())));
    }

    /// Answers all requests. The child has stopped and is not to be started.
    pub(super) fn tell_down(&mut self, out: &mut StepOutput) {
        self.tell_stopped(out);
        self.tell_up(&Err(ChildError::Stopped), out);
    }
}
