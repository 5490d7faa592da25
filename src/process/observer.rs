//! Observers, which receive events of all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::dead_letter::DeadLetter;
use super::step_activity::StepActivity;
use crate::outcome::Exit;
use crate::pid::Pid;

/// A process, as observers and reports name it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessIdentity {
    /// Its PID.
    pub pid: Pid,
    /// The type of the process.
    pub type_name: &'static str,
    /// Its name, if it has one.
    pub name: Option<Arc<str>>,
}

/// A step that runs longer than the limit of the runtime's [`Watchdog`](crate::config::Watchdog).
///
/// Other code that the worker calls for the process is part of the step: `init` before the first step, and handlers,
/// `close`, destructors and observers afterwards.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckStep {
    /// The process that is being stepped.
    pub process: ProcessIdentity,
    /// The type of its messages.
    pub message_type: &'static str,
    /// The event that the step had taken last when it was found to be stuck.
    pub doing: StepActivity,
    /// How long the step runs, or ran. With
    /// [`RuntimeBuilder::exact_step_times`](crate::config::RuntimeBuilder::exact_step_times) the time counts from the
    /// begin of the step. Otherwise it counts from the first look that saw the step. That look is later by a quarter
    /// of the limit, or a second, at most.
    pub running_for: Duration,
}

impl fmt::Display for StuckStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.process.pid, self.process.type_name)?;
        if let Some(name) = &self.process.name {
            write!(f, " {name:?}")?;
        }
        write!(f, ": {}, for {:?}", self.doing, self.running_for)
    }
}

/// Receives spawns, exits, dead letters and stuck steps. Each method does nothing unless it is implemented.
///
/// The methods are called on the threads where the events happen, with no lock held. They hold up a worker, so they
/// should be short. A panic in a method is contained and logged.
pub trait Observer: Send + Sync + 'static {
    /// A process was spawned.
    fn spawned(&self, process: &ProcessIdentity) {
        let _ = process;
    }

    /// A process has ended, and was closed.
    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        let _ = (process, exit);
    }

    /// A message was accepted and will not be stepped.
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let _ = letter;
    }

    /// A step runs longer than the limit. This is called once for each such step, while it runs. It needs a
    /// [`Watchdog`](crate::config::Watchdog), and is called on a thread of its own. Slow code here delays only the
    /// next reports.
    fn stuck(&self, step: &StuckStep) {
        let _ = step;
    }

    /// A step that [`stuck`](Self::stuck) was called for is over, or its process has ended. `step` has the time that
    /// it took.
    fn unstuck(&self, step: &StuckStep) {
        let _ = step;
    }
}
