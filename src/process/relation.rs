//! Relations between processes: monitors and links, and the events of both.

use std::fmt;

use super::names::Subscription;
use crate::outcome::{Exit, Reason};
use crate::pid::Pid;

/// Names one monitor. Its [`Down`] event carries it, and [`StepOutput::demonitor`](super::StepOutput::demonitor)
/// removes it.
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

    /// The number of the monitor, which no other monitor of the same runtime has.
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
    /// The process.
    pub pid: Pid,
    /// How it ended. [`Reason::NoSuchProcess`] if it had ended before it was monitored, or never was.
    pub exit: Exit,
}

impl Down {
    pub(crate) fn nobody(monitor: Monitor) -> Down {
        Down { monitor, pid: monitor.pid, exit: Exit::Terminated(Reason::NoSuchProcess) }
    }

    /// Whether there was no such process when it was monitored.
    pub fn is_no_such_process(&self) -> bool {
        matches!(self.exit, Exit::Terminated(Reason::NoSuchProcess))
    }
}

/// A linked process has ended. The receiver traps exits.
#[derive(Clone, Debug)]
pub struct ExitSignal {
    /// The process.
    pub pid: Pid,
    /// How it ended. [`Reason::NoSuchProcess`] if it had ended before it was linked to, or never was.
    pub exit: Exit,
}

/// A process to which the receiver has linked itself has failed and recovered. Its state machine was replaced in
/// place, and it goes on. The receiver traps exits.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The process.
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

/// The makers of a link, as seen from one end. Linking twice is one link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkedBy {
    /// The other end has made the link. This end may have made it, too. If the other end has not, this end has.
    pub(crate) other: bool,
    /// In an exit: the other end lives. It has recovered from a failure, and the link was its own.
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
    pub(crate) link: bool,
}
