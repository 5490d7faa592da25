//! Relations between processes: monitors and links, and the events of both.

use std::fmt;

use super::names::Subscription;
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;

/// The identifier of one monitor. The [`Down`] event of the monitor contains it.
/// [`StepOutput::demonitor`](super::StepOutput::demonitor) removes the monitor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monitor {
    id: u64,
    pid: Pid,
}

impl Monitor {
    pub(crate) fn new(id: u64, pid: Pid) -> Monitor {
        Monitor { id, pid }
    }

    /// The process that is monitored.
    pub fn pid(self) -> Pid {
        self.pid
    }

    /// The number of the monitor. No other monitor of the same runtime has it.
    pub fn id(self) -> u64 {
        self.id
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Monitor({} of {})", self.id, self.pid)
    }
}

/// A monitored process has ended.
#[derive(Clone, Debug)]
pub struct Down {
    /// The monitor to which the event belongs.
    pub monitor: Monitor,
    /// The process that has ended.
    pub pid: Pid,
    /// How it ended. The reason is [`Reason::NoSuchProcess`] if it had ended before it was monitored, or never
    /// existed.
    pub exit: Exit,
}

impl Down {
    pub(crate) fn nobody(monitor: Monitor) -> Down {
        Down { monitor, pid: monitor.pid, exit: Exit::Terminated(Reason::NoSuchProcess) }
    }

    /// Whether there was no such process when the monitor was set.
    pub fn is_no_such_process(&self) -> bool {
        matches!(self.exit, Exit::Terminated(Reason::NoSuchProcess))
    }
}

/// A linked process has ended, and the receiver traps exits.
#[derive(Clone, Debug)]
pub struct ExitSignal {
    /// The process that has ended.
    pub pid: Pid,
    /// How it ended. The reason is [`Reason::NoSuchProcess`] if it had ended before it was linked, or never existed.
    pub exit: Exit,
}

/// A process has failed and recovered. Its state machine was replaced in place. The receiver has linked itself to the
/// process, and traps exits.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The process that has recovered.
    pub pid: Pid,
    /// How its state machine failed.
    pub exit: Exit,
    /// The origin of the state machine that replaced the failed one.
    pub by: RecoveredBy,
}

/// The origin of a state machine that replaced a failed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveredBy {
    /// [`Process::recover`](super::Process::recover) of the state machine itself.
    Process,
    /// The function given to [`SpawnOptions::recover_with`](super::SpawnOptions::recover_with).
    SpawnOption,
}

/// The processes that have made a link, as seen from one end. Linking twice is one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkedBy {
    /// Whether the other end has made the link. If it has, this end may have made it, too. If it has not, this end has
    /// made it.
    pub(crate) other: bool,
    /// Only for an exit: the other end lives. It has recovered from a failure, and it alone had made the link.
    pub(crate) recovered: bool,
}

impl LinkedBy {
    pub(crate) const ME: LinkedBy = LinkedBy { other: false, recovered: false };
    pub(crate) const OTHER: LinkedBy = LinkedBy { other: true, recovered: false };

    /// The same value for the exit that a recovery sends.
    pub(crate) fn of_recovery(self) -> LinkedBy {
        LinkedBy { recovered: true, ..self }
    }
}

/// A relation that a step begins or ends.
pub(crate) enum Relate {
    Monitor(Monitor),
    Demonitor(Monitor),
    Link(Pid),
    Unlink(Pid),
    TrapExits(bool),
    Subscribe(Subscription),
    Unsubscribe(Subscription),
}

/// The relation of a process, from its birth, to the process that spawned it.
#[derive(Clone, Copy)]
pub(crate) struct Bond {
    pub(crate) parent: Pid,
    pub(crate) monitor: Option<Monitor>,
    /// The PID by which the parent gets the event of the monitor. That of a durable parent is the one of this run.
    pub(crate) watcher: Pid,
    pub(crate) link: bool,
    /// If the parent runs the child: a number for the relation by which the child is told the parent's end, and what
    /// it is told.
    pub(crate) run: Option<(u64, ParentEndPolicy)>,
}

/// The fate of a child of [`StepOutput::run`](super::StepOutput::run) when its parent ends.
/// [`SpawnOptions::parent_end`](super::SpawnOptions::parent_end) sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParentEndPolicy {
    /// The child is terminated. If it traps exits, it gets an [`Event::Exit`](super::Event::Exit) instead.
    #[default]
    Terminate,
    /// The child gets a cancel request with [`Reason::Ended`].
    Cancel,
    /// The child goes on. Its output is dropped.
    Leave,
}
