//! What a shutdown says when it is over, and why one is refused.

use std::fmt;
use std::time::Duration;

use super::inspect::ProcessInfo;

/// How a runtime ended.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Processes that lived when the shutdown began, and ended within the limit: by themselves, or because somebody else had
    /// them ended.
    pub ended: usize,
    /// Processes that had to be terminated.
    pub terminated: usize,
    /// Processes that could not be ended, because a step, or `close`, did not return. When it does, they are ended.
    pub stuck: Vec<ProcessInfo>,
    /// Processes that are ended for everybody else, but a destructor of theirs, or the hook that is told of it, has not
    /// returned.
    pub ending: usize,
    /// Calls of `spawn` from outside that have not returned: from an `init`, or from the hook that is told of it. What an
    /// `init` prepares after this is closed, and refused to whoever spawns it.
    pub spawning: usize,
    /// Jobs on the pool (blocking closures and blocking steps) that had not returned.
    pub jobs_running: usize,
    /// Jobs on the pool that still waited for a thread when the limit was over, and were never begun.
    pub jobs_abandoned: usize,
    /// How long it took.
    pub took: Duration,
}

impl ShutdownReport {
    /// Whether nothing had to be forced, and nothing is left.
    pub fn is_clean(&self) -> bool {
        let forced = self.terminated + self.jobs_abandoned;
        let left = self.stuck.len() + self.ending + self.spawning + self.jobs_running;
        forced == 0 && left == 0
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended, {} terminated, {} stuck", self.ended, self.terminated, self.stuck.len())?;
        for process in &self.stuck {
            write!(f, "; {} {}", process.pid, process.type_name)?;
            if let Some(name) = &process.name {
                write!(f, " {name:?}")?;
            }
            write!(f, " ({})", process.state)?;
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
        Ok(())
    }
}

/// Why a shutdown was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShutdownError {
    /// The caller is a step, or an `init`, a `close` or a hook, on a worker of this or another runtime.
    #[error("a step cannot wait for a shutdown, for it would block its worker: request it from another thread")]
    InsideStep,
    /// The caller is a job of the same runtime, a spawn whose `init` runs on this thread, or a waker on the thread of its
    /// timers, and would have waited for itself.
    #[error("an `init`, job or timer of this runtime cannot wait for its shutdown: request it from another thread")]
    Inside,
}
