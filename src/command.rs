//! Commands of a user's own, and the events of commands.

pub use crate::process::{CancelRequest, Command, Cycle, Responder, TimerFired};
