//! Commands, the tags that name them, and their completions.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Instant;

use super::cycle::Cycle;
use super::dead_letter::{DeadLetter, DeadLetterReason, SendError};
use super::no_such_process::NoSuchProcessError;
#[cfg(feature = "cluster")]
use super::node_error::NodeError;
use crate::outcome::{BoxError, Exit, Failure, Panic, Reason};
use crate::pid::{Pid, plain_value};

/// A command that the user defines: a value that describes an action.
///
/// A process yields the command with [`StepOutput::command`](super::StepOutput::command). The handler of its type
/// performs the action and answers. Register the handler with
/// [`RuntimeBuilder::handler`](crate::config::RuntimeBuilder::handler).
pub trait Command: Send + 'static {
    /// The value of a successful answer.
    type Output: Send + 'static;
}

/// The number of a command, with the type of its answer. The number is unique within the process that yielded the
/// command.
pub struct Tag<T> {
    id: u64,
    answers: PhantomData<fn() -> T>,
}

impl<T> Tag<T> {
    pub(crate) fn new(id: u64) -> Tag<T> {
        Tag { id, answers: PhantomData }
    }

    /// The number of the command. The first command of a process has 1, the next one 2. A state machine that replaces
    /// a failed one has its own range of numbers. So no two commands of a process have the same number.
    pub fn id(self) -> u64 {
        self.id
    }
}

/// The upper 16 bits of a tag's number are the *incarnation* of its process. A process begins as incarnation 0. A
/// recovery after a failure begins the next one. Answers to an earlier incarnation are late, and are refused.
pub(crate) const INCARNATION_SHIFT: u32 = 48;

plain_value!(Tag, id);

impl<T> fmt::Debug for Tag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({}: {})", self.id, type_name::<T>())
    }
}

/// A [`Tag`], or an `Option` of one.
pub trait AsTag: Copy {
    /// The value of a successful answer.
    type Answer: 'static;

    /// The number of the tag, if there is one.
    fn id(self) -> Option<u64>;
}

impl<T: 'static> AsTag for Tag<T> {
    type Answer = T;

    fn id(self) -> Option<u64> {
        Some(self.id)
    }
}

impl<T: 'static> AsTag for Option<Tag<T>> {
    type Answer = T;

    fn id(self) -> Option<u64> {
        self.map(|tag| tag.id)
    }
}

/// A request to a process to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// The reason for the request.
    pub reason: Reason,
    /// The time by which the process should have stopped. `None` if the caller has set no limit.
    pub deadline: Option<Instant>,
}

/// The answer of a timer when its delay has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerFired;

/// Why a command or an ask was answered with an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The handler of the command returned this error.
    #[error("failed: {0}")]
    Failed(#[source] Failure),
    /// The handler of the command, or the blocking closure, panicked.
    #[error("{0}")]
    Panicked(#[source] Panic),
    /// The handler dropped the responder, or the asked process dropped the reply. A process that fails or panics, and
    /// recovers, also drops the replies that it holds.
    #[error("dropped without an answer")]
    Dropped,
    /// No answer came in time.
    #[error("timed out")]
    TimedOut,
    /// The command was cancelled. The reason says why.
    #[error("cancelled ({0})")]
    Cancelled(#[source] Reason),
    /// The command was outstanding when the program was killed, or when the store of its process could not be written.
    /// It may have been performed or not. A durable process gets this answer when it is loaded again.
    #[error("interrupted by the end of the program or an error of the store")]
    Interrupted,
    /// No handler was registered for this type of command.
    #[error("unknown command {name}: no handler was registered for it when the runtime was built")]
    Unknown {
        /// The type of the command.
        name: &'static str,
    },
    /// There is no process at the target. If the target is a PID, no process of this runtime has ever had it, or the
    /// process had ended before the message arrived.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The asked process ended before it replied.
    #[error("{0} ended before it replied")]
    Ended(Pid),
    /// The child that the command ran has ended without an output. See [`StepOutput::run`](super::StepOutput::run).
    #[error("child {pid} {exit}")]
    ChildExit {
        /// The child.
        pid: Pid,
        /// How it ended.
        exit: Exit,
    },
    /// The mailbox of the asked process is full.
    #[error("the mailbox of {0} is full")]
    Full(Pid),
    /// The asked process is durable, and its store has not taken the question.
    #[error("a question to {pid} cannot be stored: {why}")]
    NotStored {
        /// The asked process.
        pid: Pid,
        /// The reason.
        why: String,
    },
    /// The asked process lives on another node, and the question or its answer did not get through.
    #[cfg(feature = "cluster")]
    #[error("{pid} was not reached: {why}")]
    Node {
        /// The asked process.
        pid: Pid,
        /// The reason.
        why: NodeError,
    },
    /// The asked process takes messages of another type.
    #[error("{pid} takes messages of type {takes}, and was asked with {sent}")]
    WrongType {
        /// The asked process.
        pid: Pid,
        /// The type that it takes.
        takes: Cow<'static, str>,
        /// The type of the question.
        sent: Cow<'static, str>,
    },
    /// The asks form a cycle, so no answer would ever have come. The asker waits for this answer only. The asked
    /// process waits for the asker in the same way, directly or through other processes. Before the asker asks again,
    /// it should take the messages that wait for it. Otherwise the same cycle forms again.
    #[error("the asks form a cycle: {0}")]
    Cycle(Cycle),
    /// The caller is a step, which must not block its worker. Use `StepOutput::ask` in a step.
    #[error("a step cannot wait for an answer by blocking: yield the question with `StepOutput::ask`")]
    InsideStep,
}

impl CommandError {
    /// Makes the error of a handler. It is for tests that answer in place of a handler.
    pub fn failed(error: impl Into<BoxError>) -> CommandError {
        CommandError::Failed(Failure::from(error.into()))
    }

    /// The error that the handler returned, if it is of this type.
    pub fn downcast_ref<E: std::error::Error + 'static>(&self) -> Option<&E> {
        match self {
            CommandError::Failed(failure) => failure.error().downcast_ref(),
            _ => None,
        }
    }
}

impl From<SendError> for CommandError {
    fn from(error: SendError) -> CommandError {
        match error {
            SendError::NoSuchProcess(error) => CommandError::NoSuchProcess(error),
            SendError::WrongType { pid, takes, sent } => {
                CommandError::WrongType { pid, takes: takes.into(), sent: sent.into() }
            }
            SendError::Full { pid, .. } => CommandError::Full(pid),
            SendError::NotStored { pid, why } => CommandError::NotStored { pid, why },
            #[cfg(feature = "cluster")]
            SendError::Node { pid, why } => CommandError::Node { pid, why },
            SendError::InsideStep { .. } => CommandError::InsideStep,
        }
    }
}

/// The error for a process whose question is this dead letter. `None` if the question is not dead: a message that was
/// dropped to make room belongs to another sender.
pub(crate) fn why_dead(letter: &DeadLetter<'_>) -> Option<CommandError> {
    let pid = letter.to;
    Some(match (letter.reason, letter.takes) {
        (DeadLetterReason::DroppedOldest, _) => return None,
        (DeadLetterReason::NoSuchProcess, _) => NoSuchProcessError::Pid(pid).into(),
        (_, Some(takes)) => SendError::WrongType { pid, takes, sent: letter.type_name }.into(),
        _ if letter.refused.is_some() => letter.refused?.clone().into(),
        (DeadLetterReason::NotStored, _) => CommandError::NotStored { pid, why: letter.reason.to_string() },
        _ => CommandError::Full(pid),
    })
}

/// An answer before it is taken. Only the tag knows its type.
pub(crate) type Answer = Result<Box<dyn Any + Send>, CommandError>;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_handler_can_be_made_and_read() {
        let error = CommandError::failed(std::io::Error::other("disk"));
        assert_eq!(error.downcast_ref::<std::io::Error>().unwrap().to_string(), "disk");
        assert!(CommandError::Dropped.downcast_ref::<std::io::Error>().is_none());
    }
}
