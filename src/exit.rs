//! The causes of exits, and the events that report exits to other processes.

pub use crate::outcome::{Failure, LinkedExit, Panic};
pub use crate::process::{EventBox, ExitSignal, Recovered, RecoveredBy};
