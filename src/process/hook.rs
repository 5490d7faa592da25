//! Seeing from outside what happens to processes.

use std::sync::Arc;

use super::pid::Pid;
use super::refusal::DeadLetter;
use crate::outcome::Exit;

/// A process, to somebody who looks on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessRef {
    /// Its PID.
    pub pid: Pid,
    /// The type of the process.
    pub type_name: &'static str,
    /// Its name, if it has one.
    pub name: Option<Arc<str>>,
}

/// Is told of spawns, exits and dead letters. Each method does nothing unless it is implemented.
///
/// Hooks are called on the threads where the things happen, with no lock held; what they do holds up a worker, so it
/// should be short. A panic in a hook is contained and logged.
pub trait Hook: Send + Sync + 'static {
    /// A process was spawned.
    fn spawned(&self, process: &ProcessRef) {
        let _ = process;
    }

    /// A process has ended, and was closed.
    fn exited(&self, process: &ProcessRef, exit: &Exit) {
        let _ = (process, exit);
    }

    /// A message was accepted and will not be stepped.
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let _ = letter;
    }
}
