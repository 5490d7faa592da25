//! How a process has ended, and the events that report it to other processes.

pub use crate::outcome::{Failure, LinkedExit, Panic};
pub use crate::process::{ExitSignal, Recovered, RecoveredBy};
