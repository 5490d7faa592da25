//! The heads of frames between two nodes. The value of a user follows its head.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failures::{FarCommandError, FarExit, FarReason};
use super::groups::table::Share;
use super::leases::LeaseFrame;
use super::remote_spawn::FarOptions;
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
    /// A process of the receiver is asked to end itself. If there is a number, its asker waits for an answer.
    Cancel { to: Pid, number: Option<u64>, reason: FarReason, limit: Option<Duration> },
    /// A process of the receiver is to be ended.
    Terminate { to: Pid, number: Option<u64> },
    /// The sender wants to know when a process of the receiver ends.
    Watch { pid: Pid },
    /// The sender does not want to know that any more.
    Unwatch { pid: Pid },
    /// A process of the sender that the receiver watches has ended.
    Ended { pid: Pid, exit: FarExit },
    /// A process of the sender has linked itself to one of the receiver.
    Link { from: Pid, to: Pid, number: u64 },
    /// A process of the sender has ended its link to one of the receiver. If there is an exit, its state machine has
    /// failed, and was replaced.
    Unlink { from: Pid, to: Pid, number: u64, exit: Option<FarExit> },
    /// The answer to an `Unlink`.
    Unlinked { from: Pid, to: Pid, number: u64 },
    /// A process of the sender has recovered, and one of the receiver has linked itself to it.
    Recovered { from: Pid, to: Pid, exit: FarExit, by_itself: bool },
    /// A process of the sender that is linked to one of the receiver has ended.
    Exit { from: Pid, to: Pid, exit: FarExit },
    /// The sender asks which process of the receiver has this name.
    Whereis { number: u64, name: String },
    /// The sender spawns a process of the type with this index in the receiver's list. Its argument follows. `from` is
    /// the process that spawns it, if one does.
    Spawn { number: u64, from: Option<Pid>, kind: u32, options: FarOptions },
    /// A process that the receiver has spawned has started. The value for the asker follows.
    Started { number: u64, child: Pid },
    /// The sender tells of its members of groups and its claims to names.
    Share(Share),
    /// The sender claims unique names, or votes.
    Lease(LeaseFrame),
    /// A message for each of these processes, of the type with this index in the receiver's list. The message follows.
    Broadcast { to: Vec<Pid>, from: Option<Pid>, kind: u32 },
    /// The sender asks whether the node of this incarnation is up at the receiver. Since version 3.
    IsUp { number: u64, incarnation: u64 },
    /// The node that the receiver has asked about is up at the sender. Since version 3.
    StillUp { number: u64 },
}
