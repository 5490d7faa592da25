//! Relations between processes: who wants to be told of whose end.

use std::fmt;

use super::names::Subscription;
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;

/// Names one monitor: what its [`Down`] event will have with it, and what
/// [`StepOutput::demonitor`](super::StepOutput::demonitor) takes it back with.
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

    /// Its number, which no other monitor of the same runtime has.
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
    /// The monitor that tells of it.
    pub monitor: Monitor,
    /// The process.
    pub pid: Pid,
    /// How it ended; [`Reason::NoSuchProcess`] if it had ended before it was monitored, or never was.
    pub exit: Exit,
}

impl Down {
    pub(crate) fn nobody(monitor: Monitor) -> Down {
        Down { monitor, pid: monitor.pid, exit: Exit::Terminated(Reason::NoSuchProcess) }
    }

    /// Whether the process was not there when it was monitored.
    pub fn is_no_such_process(&self) -> bool {
        matches!(self.exit, Exit::Terminated(Reason::NoSuchProcess))
    }
}

/// A linked process has ended, and the one that is told traps exits.
#[derive(Clone, Debug)]
pub struct ExitSignal {
    /// The process.
    pub pid: Pid,
    /// How it ended; [`Reason::NoSuchProcess`] if it had ended before it was linked to, or never was.
    pub exit: Exit,
}

/// A process to which this one has linked itself has failed, and goes on: its state machine was replaced in place. The one
/// that is told traps exits.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The process.
    pub pid: Pid,
    /// How its state machine failed.
    pub exit: Exit,
    /// What replaced the state machine.
    pub by: RecoveredBy,
}

/// What replaced a state machine that had failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecoveredBy {
    /// [`Process::recover`](super::Process::recover) of the state machine itself.
    Process,
    /// The function given to [`SpawnOptions::recover_with`](super::SpawnOptions::recover_with).
    SpawnOption,
}

/// Who has made a link, as seen from one end of it. Linking twice is one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkedBy {
    /// The other end has made it; perhaps this end, too. If it has not, this end has.
    pub(crate) other: bool,
    /// In an exit: the other end lives. It has recovered from a failure, and the link was its own.
    pub(crate) recovered: bool,
}

impl LinkedBy {
    pub(crate) const ME: LinkedBy = LinkedBy { other: false, recovered: false };
    pub(crate) const OTHER: LinkedBy = LinkedBy { other: true, recovered: false };

    /// The same in the exit that a recovery tells.
    pub(crate) fn of_recovery(self) -> LinkedBy {
        LinkedBy { recovered: true, ..self }
    }
}

/// A relation that a step wants begun or ended.
pub(crate) enum Relate {
    Monitor(Monitor),
    Demonitor(Monitor),
    Link(Pid),
    Unlink(Pid),
    TrapExits(bool),
    Subscribe(Subscription),
    Unsubscribe(Subscription),
}

/// How a process is related from its birth to the one that spawned it.
#[derive(Clone, Copy)]
pub(crate) struct Bond {
    pub(crate) parent: Pid,
    pub(crate) monitor: Option<Monitor>,
    pub(crate) link: bool,
}
