//! The interface of the runtime to steps, questions and handlers. A test may take its place.

#[cfg(feature = "durable")]
use std::any::TypeId;
use std::ops::Range;
use std::time::{Instant, SystemTime};

use super::command::Answer;
use super::dead_letter::DeadLetter;
use super::propagation::Propagator;
use crate::clock::Clock;
use crate::outcome::{Failure, Panic, Reason};
use crate::pid::Pid;
use crate::primitives::{Arc, OnceLock};
use crate::sched::wait_sampler::WaitSampler;
use crate::timer::TimerId;

/// The calls of steps, questions and handlers to the runtime.
pub(crate) trait Host: Send + Sync {
    /// Delivers the answer to the command `tag` of process `to`.
    fn answer(&self, to: Pid, tag: u64, answer: Answer) {
        self.answer_from(None, to, tag, answer);
    }

    /// As `answer`. `from` is the process that has answered, if a process has. The event of its end comes after the
    /// answer.
    fn answer_from(&self, from: Option<Pid>, to: Pid, tag: u64, answer: Answer);

    fn is_alive(&self, pid: Pid) -> bool;

    /// Whether the store of this runtime knows processes of this type.
    #[cfg(feature = "durable")]
    fn stores(&self, process: TypeId) -> bool {
        let _ = process;
        false
    }

    /// Whether somebody looks at the counts of steps.
    fn counts(&self) -> bool {
        false
    }

    /// Finds the trace of a yield, if the runtime propagates traces.
    fn propagator(&self) -> Option<Arc<dyn Propagator>> {
        None
    }

    /// Decides which messages are measured, if the runtime measures the waits of messages.
    fn wait_sampler(&self) -> Option<WaitSampler> {
        None
    }

    /// Counts a reply that came too late.
    fn late_reply(&self);

    /// Counts a message that was sent outside of a step as accepted, and as a dead letter.
    fn bury_unsent(&self, letter: &DeadLetter<'_>);

    /// Calls `run`, a poll, in the context that the builder was given.
    fn surround(&self, run: &mut dyn FnMut()) {
        run();
    }

    /// Counts an answer to a command that was given up.
    fn discarded_answer(&self);

    fn forget_timer(&self, timer: TimerId);

    /// Ends a child whose output no longer is the answer to a command.
    fn end_run(&self, child: Pid, reason: Reason);

    /// A PID that no process has.
    fn nobody(&self) -> Pid;

    fn clock(&self) -> &Clock;

    /// The current time, for a step.
    fn now(&self) -> Instant {
        self.clock().now()
    }

    /// The current wall-clock time, for a step.
    fn system_time(&self) -> SystemTime {
        wall_time(self.clock())
    }

    /// The seed of the random numbers of all processes.
    fn seed(&self) -> u64;

    /// Adds PIDs for new processes to `stock`: at least one, if any is vacant.
    fn vacancies(&self, stock: &mut Vec<Pid>) -> Result<(), SpawnError>;

    /// Takes back the slot of a PID that no process will have.
    fn give_back_after(&self, pid: Pid);

    /// Whether new processes are refused.
    fn is_shutting_down(&self) -> bool;

    /// The process that has this name.
    fn holder(&self, name: &str) -> Option<Pid>;

    /// The process that has this shared name of a cluster.
    fn shared_holder(&self, name: &str) -> Option<Pid> {
        let _ = name;
        None
    }

    /// The member of this group whose turn it is.
    fn next_member(&self, group: &str) -> Option<Pid>;

    /// The members of this group, in order, each as often as it has joined.
    fn group(&self, name: &str) -> Vec<Pid>;

    /// The members of this group, in order, each once. `None` if there is no member.
    fn receivers(&self, group: &str) -> Option<Arc<[Pid]>>;

    /// Numbers for monitors that no other step gets.
    fn monitor_numbers(&self) -> Range<u64>;
}

/// The wall-clock time. That of a manual clock moves with the clock. It begins near the system's time.
fn wall_time(clock: &Clock) -> SystemTime {
    static BEGIN: OnceLock<(Instant, SystemTime)> = OnceLock::new();
    if !clock.is_manual() {
        return SystemTime::now();
    }
    if let Some(time) = clock.simulated_time() {
        return time;
    }
    let (begin, time) = *BEGIN.get_or_init(|| (Clock::system().now(), SystemTime::now()));
    let now = clock.now();
    let time_at = |moment: Instant| match moment.checked_duration_since(begin) {
        Some(after) => time.checked_add(after),
        None => time.checked_sub(begin.saturating_duration_since(moment)),
    };
    time_at(now).unwrap_or(time)
}

/// A host with its own reference count.
///
/// Every question holds its host. If all questions shared the runtime's count, the processors that make and drop
/// questions would all write to it at once.
pub(crate) type CountedHost = Arc<Arc<dyn Host>>;

/// Why a process was not spawned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The runtime is at its limit of processes.
    #[error("the runtime has its limit of {limit} processes; see `RuntimeBuilder::max_processes`")]
    Limit {
        /// The limit.
        limit: u32,
    },
    /// The runtime is shutting down.
    #[error("the runtime is shutting down and takes no new process")]
    ShuttingDown,
    /// Another process has the name.
    #[error("the name {name:?} is taken by {holder}")]
    NameTaken {
        /// The name.
        name: Arc<str>,
        /// The process that has it.
        holder: Pid,
    },
    /// The name of the process or of a group is empty.
    #[error("a name may not be empty")]
    EmptyName,
    /// The function given to [`SpawnOptions::recover_with`](super::SpawnOptions::recover_with) returns processes with
    /// another type of output.
    #[error("`recover_with` returns processes with the output {given}, and the output of this process is {output}")]
    WrongRecovery {
        /// The output of the process that was to be spawned.
        output: &'static str,
        /// The output of the state machines that the function returns.
        given: &'static str,
    },
    /// The options relate the process to its spawner, but the spawn is from outside, or a
    /// [`run`](super::StepOutput::run).
    #[error(
        "`link`, `monitor` and `report_started` need a process that spawns: use them with `StepOutput::spawn_with`"
    )]
    OutsideStep,
    /// The process is to be the child of a supervisor, and the store of the runtime knows its type. As a child, it
    /// would not be stored. It needs no supervisor, because the store repeats its failed steps.
    #[cfg(feature = "durable")]
    #[error(
        "a durable process cannot be the child of a supervisor: use `Store::begin`, or `StepOutput::run` in a step"
    )]
    Durable,
    /// The process is to be spawned on another node, and this option cannot be sent there.
    #[cfg(feature = "cluster")]
    #[error("`{option}` cannot be sent to another node: put the values that the process needs into its argument")]
    StaysHere {
        /// The option.
        option: &'static str,
    },
    /// The bound of the mailbox is zero. No message could ever be delivered.
    #[error("the mailbox's limit is 0; at least one message must find room")]
    ZeroMailbox,
    /// The limit of events for one step is zero. No event could ever be taken.
    #[error("the limit of events for one step is 0; a step must be given at least one")]
    ZeroStepEvents,
    /// `init` returned an error, and the process has been closed.
    #[error("`init` failed: {0}")]
    Init(#[source] Failure),
    /// `init` panicked, and the process has been closed.
    #[error("`init` {0}")]
    InitPanicked(#[source] Panic),
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use self::tests::Clerk;
