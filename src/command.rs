//! Commands that the user defines, and the events of commands.

pub use crate::process::{
    AnsweredLater, Attempt, CancelRequest, Command, CommandKey, Cycle, ParseCommandKeyError, Responder, Retry,
    TimerFired,
};
