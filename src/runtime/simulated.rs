//! The hooks by which a simulation drives a runtime.
//!
//! A runtime of a simulation has no threads. The simulation does the work of other threads: it runs the jobs of
//! the pool and the parts of the shutdown, it passes the answers of handlers on, and it goes on while its thread waits
//! (see [`Drive`](crate::clock::Drive)). All other code of the runtime is the same.

use std::any::TypeId;

use crate::clock::Deadline;
use crate::primitives::Arc;
use crate::process::{Answer, CommandError, Duty, Pid};
use crate::sched::residents::BoxedFuture;

/// The message of a panic that a simulation injects.
pub(crate) const INJECTED: &str = "injected by the simulation";

/// Work that a thread would do.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The fate of a blocking closure.
pub(crate) enum BlockingFate {
    Runs,
    /// It panics in the place of its code.
    Panics,
}

/// The simulation of a runtime.
pub(crate) trait SimulationHost: Send + Sync {
    /// Runs a blocking closure of this process later.
    fn job(&self, of: Pid, job: Job);

    /// Decides about the next blocking closure of this process.
    fn blocking_fate(&self, of: Pid) -> BlockingFate;

    /// Steps this process later, outside of a step. Its body is in `Core::for_pool`.
    fn blocking_step(&self, of: Pid);

    /// Runs a part of the shutdown later.
    fn helper(&self, work: Job);

    /// Records that a shutdown had time to end in order, and has not. `report` says what was forced.
    fn was_forced(&self, report: String);

    /// Whether the calling code is a job or a part of the shutdown.
    fn is_in_job(&self) -> bool;

    /// Goes on until no job is left, or until the deadline has passed.
    fn drain(&self, deadline: Deadline);

    /// Goes on until nothing can happen without a timer, and no handler has an open command. Returns whether that was
    /// before the deadline.
    fn wait_idle(&self, deadline: Deadline) -> bool;

    /// Returns the future to poll for the command of this process and this tag. An error is the answer in the place of
    /// a future.
    fn relay_future(
        &self,
        of: (Pid, u64),
        command: (TypeId, &'static str),
        future: BoxedFuture,
    ) -> Result<BoxedFuture, CommandError>;

    /// Called before an answer to this process is delivered outside of the yields of a step.
    fn answers(&self, to: Pid, answer: &Answer);

    /// Takes the jobs that have not begun.
    fn abandon(&self) -> Vec<Job>;

    /// Returns the duty that the handler of a command is given. Its answer is passed on to `duty`. An error is the
    /// answer in the place of a call of the handler.
    fn relay(&self, duty: &Arc<Duty>, command: (TypeId, &'static str)) -> Result<Arc<Duty>, CommandError>;
}
