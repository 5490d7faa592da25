//! The report of a shutdown, and the error of a refused shutdown.

use std::fmt;
use std::time::Duration;

use super::inspect::ProcessInfo;
use crate::process::ProcessIdentity;

/// The report of a shutdown.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of processes that lived when the shutdown began, and ended within the limit.
    pub ended: usize,
    /// The number of durable processes that have left memory. The next run of their store goes on with them.
    pub asleep: usize,
    /// The number of processes that had to be terminated.
    pub terminated: usize,
    /// Processes that had not ended. Either a step or a `close` of the process has not returned, or the shutdown did
    /// not reach the process (see [`hangs`](Self::hangs)).
    pub stuck: Vec<ProcessInfo>,
    /// The number of processes that are partly ended. A destructor, or the observer of the exit, has not returned.
    pub ending: usize,
    /// The number of calls of `spawn` from outside that have not returned. Their `init` or the observer has not
    /// returned. When `init` returns, the process is closed, and the spawn is refused.
    pub spawning: usize,
    /// The number of jobs on the pool that had not returned. Jobs are blocking closures and blocking steps.
    pub jobs_running: usize,
    /// The number of jobs on the pool that were never begun. They still waited for a thread when the limit was over.
    pub jobs_abandoned: usize,
    /// The stage in which user code hangs, if it does. The rest of this stage may not be done.
    pub hangs: Option<ShutdownStage>,
    /// The reason why the store does not have on disk what its durable processes have done. `None` if it has, and
    /// without a store.
    pub unstored: Option<String>,
    /// The duration of the shutdown.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether all processes and jobs have ended within the limit, no user code hangs, and the store has everything on
    /// disk.
    pub fn is_clean(&self) -> bool {
        let forced = self.terminated + self.jobs_abandoned;
        let left = self.stuck.len() + self.ending + self.spawning + self.jobs_running;
        forced == 0 && left == 0 && self.hangs.is_none() && self.unstored.is_none()
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended, {} terminated, {} stuck", self.ended, self.terminated, self.stuck.len())?;
        for process in &self.stuck {
            write!(f, "; {}", in_words(process))?;
        }
        if self.asleep > 0 {
            write!(f, "; {} durable processes sleep", self.asleep)?;
        }
        if self.ending > 0 {
            write!(f, "; {} half-way through their end", self.ending)?;
        }
        if self.jobs_running > 0 {
            write!(f, "; {} blocking jobs still run", self.jobs_running)?;
        }
        if self.jobs_abandoned > 0 {
            let what = if self.jobs_running > 0 { "" } else { "blocking jobs " };
            write!(f, "; {} {what}were never begun", self.jobs_abandoned)?;
        }
        if self.spawning > 0 {
            write!(f, "; {} spawns have not returned", self.spawning)?;
        }
        if let Some(why) = &self.unstored {
            write!(f, "; not all is on disk: {why}")?;
        }
        if let Some(stage) = &self.hangs {
            write!(f, "; hangs in user code: {stage}")?;
        }
        Ok(())
    }
}

/// The text that describes a process in a report.
pub(super) fn in_words(process: &ProcessInfo) -> String {
    let ProcessInfo { pid, type_name, name, state, in_step, .. } = process;
    let time = in_step.map_or(String::new(), |time| format!(" for {time:?}"));
    let process = ProcessIdentity { pid: *pid, type_name, name: name.clone() };
    format!("{process} ({state}{time})")
}

/// A stage of a shutdown. The stages come in this order.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum ShutdownStage {
    /// The processes are asked to stop. Processes that do not stop within the limit are terminated.
    #[default]
    Processes,
    /// Timers are stopped. Asks from outside are given up, and their wakers are called.
    Timers,
    /// Running jobs are asked to stop. Waiting jobs are dropped.
    Jobs,
    /// The workers exit.
    Workers,
    /// A process that no worker has ended is ended. `close`, destructors, the observer and wakers are called.
    Process(ProcessIdentity),
    /// Threads are joined. The destructors of their thread-locals are called.
    Threads,
}

impl fmt::Display for ShutdownStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShutdownStage::Processes => f.write_str("while the processes are asked to stop"),
            ShutdownStage::Timers => f.write_str("while timers are dropped"),
            ShutdownStage::Jobs => f.write_str("while jobs are asked to stop or dropped"),
            ShutdownStage::Workers => f.write_str("while the workers exit"),
            ShutdownStage::Process(process) => write!(f, "while {process} is ended"),
            ShutdownStage::Threads => f.write_str("while threads are joined"),
        }
    }
}

/// Why a shutdown was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownError {
    /// The caller runs on a worker of any runtime. For example, it is a step, an `init`, a `close` or an observer.
    #[error("a step cannot wait for a shutdown, for it would block its worker: request it from another thread")]
    InsideStep,
    /// The caller would wait for itself. It is a job, an `init` or a timer's action of this runtime, or user code that
    /// the shutdown calls.
    #[error("an `init`, job or timer of this runtime cannot wait for its shutdown: request it from another thread")]
    Inside,
}
