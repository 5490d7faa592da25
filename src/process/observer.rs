//! Seeing from outside what happens to processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::dead_letter::DeadLetter;
use super::step_activity::StepActivity;
use crate::outcome::Exit;
use crate::pid::Pid;

/// A process, to somebody who looks on.
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

/// A step that runs for longer than the [`Watchdog`](crate::config::Watchdog) of its runtime was given as limit.
///
/// What belongs to the step is part of it: `init` before the first one, and afterwards the handlers, `close`, destructors
/// and hooks that the worker calls for the process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckStep {
    /// Whose step it is.
    pub process: ProcessIdentity,
    /// The type of its messages.
    pub message_type: &'static str,
    /// What it was doing when it was found to be stuck: the event that it had taken last.
    pub doing: StepActivity,
    /// For how long it runs, or ran. With [`RuntimeBuilder::exact_step_times`](crate::config::RuntimeBuilder::exact_step_times)
    /// since its begin; else since it was first seen, which is later by a quarter of the limit, or a second, at most.
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

/// Is told of spawns, exits, dead letters and stuck steps. Each method does nothing unless it is implemented.
///
/// Hooks are called on the threads where the things happen, with no lock held; what they do holds up a worker, so it
/// should be short. A panic in a hook is contained and logged.
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

    /// A step runs for longer than it should. Told once for each such step, while it runs. Only where there is a
    /// [`Watchdog`](crate::config::Watchdog); told on a thread of its own, which holds up nothing but the next reports.
    fn stuck(&self, step: &StuckStep) {
        let _ = step;
    }

    /// A step of which [`stuck`](Self::stuck) was told has come to its end, or its process has; with the time that it took.
    fn unstuck(&self, step: &StuckStep) {
        let _ = step;
    }
}
