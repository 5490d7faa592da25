//! The heads of frames between two nodes. The value of a user follows its head.

use serde::{Deserialize, Serialize};

use super::failures::FarCommandError;
use crate::pid::Pid;

/// The head of a frame.
#[derive(Serialize, Deserialize)]
pub(crate) enum Head {
    /// A message of the type with this index in the receiver's list. The message follows.
    Message { to: Pid, from: Option<Pid>, kind: u32 },
    /// The answer to a question of the receiver. The answer follows.
    Answer { number: u64, from: Option<Pid> },
    /// There is no answer to a question of the receiver.
    NoAnswer { number: u64, from: Option<Pid>, why: FarCommandError },
    /// The asker of a question waits no longer.
    Closed { number: u64 },
}
