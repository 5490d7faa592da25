//! Messages that do not reach a step. If a send from outside is refused, the message comes back to its sender. All
//! other such messages become dead letters.

use std::any::Any;
use std::fmt;

use super::no_such_process::NoSuchProcessError;
#[cfg(feature = "cluster")]
use super::node_error::NodeError;
use crate::pid::Pid;

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no process at the target.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The process takes messages of another type.
    #[error("{pid} takes messages of type {takes}, and was sent a {sent}")]
    WrongType {
        /// The process to which the message was sent.
        pid: Pid,
        /// The type that the process takes.
        takes: &'static str,
        /// The type of the message.
        sent: &'static str,
    },
    /// The mailbox is full: it holds as many messages as its bound allows.
    #[error("the mailbox of {pid} is full: it holds its limit of {limit} messages")]
    Full {
        /// The process to which the message was sent.
        pid: Pid,
        /// The bound.
        limit: usize,
    },
    /// The receiver is durable, and its store has not taken the message.
    #[error("a message to {pid} cannot be stored: {why}")]
    NotStored {
        /// The process to which the message was sent.
        pid: Pid,
        /// The reason, for example a full disk, or a message that cannot be encoded.
        why: String,
    },
    /// The receiver lives on another node, and the message was not sent there.
    #[cfg(feature = "cluster")]
    #[error("a message to {pid} was not sent: {why}")]
    Node {
        /// The process to which the message was sent.
        pid: Pid,
        /// The reason.
        why: NodeError,
    },
    /// The caller is a step, which must not block its worker.
    #[error("a step cannot wait for room in the mailbox of {pid}: yield the message with `StepOutput::send`")]
    InsideStep {
        /// The process to which the message was sent.
        pid: Pid,
    },
}

/// Why a message became a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterReason {
    /// A process sent it to a PID that no process has.
    NoSuchProcess,
    /// A process sent it to an unused name, or to a group without members.
    NoSuchName,
    /// Its receiver does not take messages of its type. The receiver may have been upgraded since.
    WrongType,
    /// A process sent it to a full mailbox that refuses further messages.
    Full,
    /// A later message pushed it out of a full mailbox.
    DroppedOldest,
    /// The mailbox was full, and it drops further messages.
    DroppedNewest,
    /// Its receiver ended before the message was stepped.
    Ended,
    /// The step that had taken it failed or panicked.
    StepFailed,
    /// An async process sent it outside of its steps. See [`Context`](crate::async_process::Context).
    OutsideStep,
    /// Its receiver is durable, and the store has not taken the message.
    NotStored,
    /// The node of its receiver is down, or the connection broke before that node confirmed the message. Then the
    /// message is in doubt: it may have been stepped there.
    #[cfg(feature = "cluster")]
    NodeDown,
    /// It could not be sent to the node of its receiver. See [`NodeError`].
    #[cfg(feature = "cluster")]
    NotSent,
    /// Another node has sent it, and it cannot be decoded here.
    #[cfg(feature = "cluster")]
    NotDecoded,
    /// Too much waits for the node of its receiver. See [`NodeError::Busy`].
    #[cfg(feature = "cluster")]
    Busy,
}

impl DeadLetterReason {
    pub(crate) const ALL: &'static [DeadLetterReason] = &[
        DeadLetterReason::NoSuchProcess,
        DeadLetterReason::NoSuchName,
        DeadLetterReason::WrongType,
        DeadLetterReason::Full,
        DeadLetterReason::DroppedOldest,
        DeadLetterReason::DroppedNewest,
        DeadLetterReason::Ended,
        DeadLetterReason::StepFailed,
        DeadLetterReason::OutsideStep,
        DeadLetterReason::NotStored,
        #[cfg(feature = "cluster")]
        DeadLetterReason::NodeDown,
        #[cfg(feature = "cluster")]
        DeadLetterReason::NotSent,
        #[cfg(feature = "cluster")]
        DeadLetterReason::NotDecoded,
        #[cfg(feature = "cluster")]
        DeadLetterReason::Busy,
    ];

    /// The name in small letters, as figures have it.
    pub(crate) fn label(self) -> String {
        let mut label = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !label.is_empty() {
                label.push('_');
            }
            label.push(letter.to_ascii_lowercase());
        }
        label
    }
}

impl fmt::Display for DeadLetterReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeadLetterReason::NoSuchProcess => "no such process",
            DeadLetterReason::NoSuchName => "no such name",
            DeadLetterReason::WrongType => "wrong type",
            DeadLetterReason::Full => "mailbox full",
            DeadLetterReason::DroppedOldest => "pushed out by a later message",
            DeadLetterReason::DroppedNewest => "dropped by a full mailbox",
            DeadLetterReason::Ended => "the receiver has ended",
            DeadLetterReason::StepFailed => "the step that had taken it failed",
            DeadLetterReason::OutsideStep => "sent outside of a step",
            DeadLetterReason::NotStored => "not taken by the store of its receiver",
            #[cfg(feature = "cluster")]
            DeadLetterReason::NodeDown => "the node of the receiver is down",
            #[cfg(feature = "cluster")]
            DeadLetterReason::NotSent => "not sent to the node of the receiver",
            #[cfg(feature = "cluster")]
            DeadLetterReason::NotDecoded => "not decoded on the node of the receiver",
            #[cfg(feature = "cluster")]
            DeadLetterReason::Busy => "too much waits for the node of the receiver",
        })
    }
}

/// An accepted message that no successful step has taken, and none will take.
pub struct DeadLetter<'a> {
    /// The process to which the message was sent. If the reason is [`DeadLetterReason::NoSuchName`], this is a PID
    /// that no process has.
    pub to: Pid,
    /// The name or the group to which the message was sent. `None` unless the reason is
    /// [`DeadLetterReason::NoSuchName`].
    pub name: Option<&'a str>,
    /// The sender. `None` if the message was sent from outside. Also `None` if a failed step had taken the message,
    /// because the sender is then no longer known.
    pub from: Option<Pid>,
    /// The reason.
    pub reason: DeadLetterReason,
    /// The type of the message.
    pub type_name: &'static str,
    /// The type of messages that the receiver takes, if the reason is [`DeadLetterReason::WrongType`].
    pub takes: Option<&'static str>,
    pub(crate) message: Option<&'a dyn Any>,
    /// The refusal of a process that lives elsewhere.
    pub(crate) refused: Option<&'a SendError>,
    /// Tells the trace of the message, if it has one.
    pub(crate) tell_trace: Option<&'a dyn Fn(&DeadLetter<'_>)>,
}

impl DeadLetter<'_> {
    /// A dead letter with this receiver and this reason. Nothing else is known of it.
    pub(crate) fn new(to: Pid, reason: DeadLetterReason) -> DeadLetter<'static> {
        DeadLetter {
            to,
            name: None,
            from: None,
            reason,
            type_name: "",
            takes: None,
            message: None,
            refused: None,
            tell_trace: None,
        }
    }

    /// The message, if it is of this type and still exists. `None` if a failed step had taken it.
    pub fn message<M: 'static>(&self) -> Option<&M> {
        self.message?.downcast_ref()
    }
}

impl fmt::Debug for DeadLetter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetter")
            .field("to", &self.to)
            .field("name", &self.name)
            .field("from", &self.from)
            .field("reason", &self.reason)
            .field("type_name", &self.type_name)
            .field("takes", &self.takes)
            .finish_non_exhaustive()
    }
}
