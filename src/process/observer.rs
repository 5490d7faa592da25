//! Observers, which are notified about all processes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::dead_letter::DeadLetter;
use super::step_activity::StepActivity;
use crate::outcome::Exit;
use crate::pid::Pid;

/// The identity of a process in calls of observers and in reports.
///
/// Its text is the PID, the type, and the name in quotation marks if there is one.
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

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.type_name)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(f, " {name:?}"))
    }
}

/// A step that runs longer than the limit of the runtime's [`Watchdog`](crate::config::Watchdog).
///
/// Other code that the worker calls for the process counts as part of the step. This is `init` and `start` before the
/// first step, and handlers, `close`, destructors and observers after a step.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckStep {
    /// The process that is being stepped.
    pub process: ProcessIdentity,
    /// The type of its messages.
    pub message_type: &'static str,
    /// The event that the step had taken last when the watchdog found it stuck.
    pub doing: StepActivity,
    /// The time for which the step has run. With
    /// [`RuntimeBuilder::exact_step_times`](crate::config::RuntimeBuilder::exact_step_times) the time counts from the
    /// beginning of the step. Otherwise it counts from the moment at which the watchdog first saw the step. The
    /// watchdog looks four times within its limit, at most once in a millisecond and at least once in a second.
    pub running_for: Duration,
}

impl fmt::Display for StuckStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}, for {:?}", self.process, self.doing, self.running_for)
    }
}

/// Is notified of spawns, exits, restarts in place, dead letters and stuck steps. By default each method does nothing.
///
/// A method is called on the thread on which the event happens. No lock is held. Most of these threads are workers, so
/// a method should return soon. A panic in a method is contained and logged.
pub trait Observer: Send + Sync + 'static {
    /// A process was spawned.
    fn spawned(&self, process: &ProcessIdentity) {
        let _ = process;
    }

    /// A process has ended, and was closed.
    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        let _ = (process, exit);
    }

    /// The state machine of a process has failed, and another one has replaced it in place: the process has
    /// [recovered](crate::Process::recover). The process is described as it is now. `exit` is the failure.
    fn restarted(&self, process: &ProcessIdentity, exit: &Exit) {
        let _ = (process, exit);
    }

    /// A message has become a dead letter.
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let _ = letter;
    }

    /// A step has run longer than the limit of the [`Watchdog`](crate::config::Watchdog). This is called once for each
    /// such step, while the step runs. Without a watchdog it is never called. The calls are made on a thread for
    /// reports. So slow code here delays only the next reports.
    fn stuck(&self, step: &StuckStep) {
        let _ = step;
    }

    /// A step that was reported to [`stuck`](Self::stuck) is over, or its process has ended. `step` has the time that
    /// the step took.
    fn unstuck(&self, step: &StuckStep) {
        let _ = step;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_identity_has_the_pid_the_type_and_the_name() {
        let mut process = ProcessIdentity { pid: "<0.1.1>".parse().unwrap(), type_name: "Counter", name: None };
        assert_eq!(process.to_string(), "<0.1.1> Counter");
        process.name = Some("ledger".into());
        assert_eq!(process.to_string(), "<0.1.1> Counter \"ledger\"");
    }
}
