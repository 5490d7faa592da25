//! Commands that the user defines, and the events of commands.

pub use crate::process::{CancelRequest, Command, Cycle, Responder, Retry, TimerFired};
