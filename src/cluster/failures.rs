//! How exits and errors travel between nodes.
//!
//! An error keeps its text and those of its causes. A panic keeps its text. Neither can be downcast on the other node,
//! because it may not know their types.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::outcome::{Exit, Failure, LinkedExit, Panic, Reason, contain};
use crate::pid::Pid;
use crate::process::no_such_process::NoSuchProcessError;
use crate::process::{CommandError, NodeError};

/// The most bytes of one text. Longer ones are cut.
const TEXT: usize = 16 << 10;
/// The most causes of one error.
const CAUSES: usize = 16;

/// An error of another node, with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarError {
    text: String,
    cause: Option<Box<FarError>>,
}

impl FarError {
    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> FarError {
        // These are calls of users.
        let texts = contain(|| -> Vec<String> {
            let causes = std::iter::successors(Some(error), |error| error.source()).take(CAUSES + 1);
            causes.map(|cause| cut(cause.to_string())).collect()
        });
        let texts = texts.unwrap_or_else(|panic| vec![format!("an error whose text cannot be had: {panic}")]);
        let fold = |cause, text| Some(Box::new(FarError { text, cause }));
        let error = texts.into_iter().rev().fold(None, fold);
        error.map_or_else(|| FarError { text: String::new(), cause: None }, |error| *error)
    }
}

impl fmt::Display for FarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for FarError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}

/// Cuts a text that is too long, between two characters.
fn cut(mut text: String) -> String {
    if text.len() > TEXT {
        text.truncate(text.floor_char_boundary(TEXT));
        text.push('…');
    }
    text
}

/// A [`Reason`]. New ones come last, because the number of a variant travels.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum FarReason {
    Cancelled,
    TimedOut,
    Terminated,
    Shutdown,
    Ended,
    NoThread,
    NoSuchProcess,
    NodeDown,
    Linked(Pid, Box<FarExit>),
    Other(String),
    NameLost,
}

impl FarReason {
    pub(crate) fn of(reason: &Reason) -> FarReason {
        match reason {
            Reason::Cancelled => FarReason::Cancelled,
            Reason::TimedOut => FarReason::TimedOut,
            Reason::Terminated => FarReason::Terminated,
            Reason::Shutdown => FarReason::Shutdown,
            Reason::Ended => FarReason::Ended,
            Reason::NoThread => FarReason::NoThread,
            Reason::NoSuchProcess => FarReason::NoSuchProcess,
            Reason::NodeDown => FarReason::NodeDown,
            Reason::NameLost => FarReason::NameLost,
            Reason::Linked(linked) => FarReason::Linked(linked.pid(), Box::new(FarExit::of(linked.exit()))),
            Reason::Other(text) => FarReason::Other(cut(text.to_string())),
        }
    }

    pub(crate) fn here(self) -> Reason {
        match self {
            FarReason::Cancelled => Reason::Cancelled,
            FarReason::TimedOut => Reason::TimedOut,
            FarReason::Terminated => Reason::Terminated,
            FarReason::Shutdown => Reason::Shutdown,
            FarReason::Ended => Reason::Ended,
            FarReason::NoThread => Reason::NoThread,
            FarReason::NoSuchProcess => Reason::NoSuchProcess,
            FarReason::NodeDown => Reason::NodeDown,
            FarReason::NameLost => Reason::NameLost,
            FarReason::Linked(pid, exit) => Reason::Linked(LinkedExit::new(pid, exit.here())),
            FarReason::Other(text) => Reason::from(text),
        }
    }
}

/// An [`Exit`] without its output.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) enum FarExit {
    Done,
    Failed(FarError),
    Panicked(String),
    Terminated(FarReason),
}

impl FarExit {
    /// The same, as a text: it names no process.
    pub(crate) fn as_text(&self) -> FarExit {
        FarExit::Terminated(FarReason::Other(cut(self.clone().here().to_string())))
    }

    pub(crate) fn of(exit: &Exit) -> FarExit {
        match exit {
            Exit::Done(()) => FarExit::Done,
            Exit::Failed(failure) => FarExit::Failed(FarError::of(failure.error())),
            Exit::Panicked(panic) => FarExit::Panicked(cut(panic.message().into())),
            Exit::Terminated(reason) => FarExit::Terminated(FarReason::of(reason)),
        }
    }

    pub(crate) fn here(self) -> Exit {
        match self {
            FarExit::Done => Exit::Done(()),
            FarExit::Failed(error) => Exit::Failed(Failure::new(error)),
            FarExit::Panicked(text) => Exit::Panicked(Panic::new(Box::new(text))),
            FarExit::Terminated(reason) => Exit::Terminated(reason.here()),
        }
    }
}

/// The first version of the protocol that has the errors `WrongType` and `Busy`. In earlier ones, they are `Failed`.
const FIRST_WITH_WRONG_TYPE: u16 = 3;

/// A [`CommandError`].
#[derive(Serialize, Deserialize)]
pub(crate) enum FarCommandError {
    Failed(FarError),
    Panicked(String),
    Dropped,
    TimedOut,
    Cancelled(FarReason),
    Interrupted,
    NoSuchProcess(Pid),
    NoSuchName(String),
    NoSuchGroup(String),
    NotNow(Pid),
    RuntimeEnded,
    Ended(Pid),
    ChildExit(Pid, FarExit),
    Full(Pid),
    NotStored(Pid, String),
    NodeDown(Pid),
    NotDecoded(Pid, String),
    /// The type that the process takes, and the one that was sent.
    WrongType(Pid, String, String),
    Busy(Pid),
}

impl FarCommandError {
    /// Converts an error for this version of the protocol.
    pub(crate) fn of(error: &CommandError, protocol: u16) -> FarCommandError {
        let is_known = protocol >= FIRST_WITH_WRONG_TYPE;
        match error {
            CommandError::Failed(failure) => FarCommandError::Failed(FarError::of(failure.error())),
            CommandError::Panicked(panic) => FarCommandError::Panicked(cut(panic.message().into())),
            CommandError::Dropped => FarCommandError::Dropped,
            CommandError::TimedOut => FarCommandError::TimedOut,
            CommandError::Cancelled(reason) => FarCommandError::Cancelled(FarReason::of(reason)),
            CommandError::Interrupted => FarCommandError::Interrupted,
            CommandError::NoSuchProcess(NoSuchProcessError::Pid(pid)) => FarCommandError::NoSuchProcess(*pid),
            CommandError::NoSuchProcess(NoSuchProcessError::NodeDown(pid)) => FarCommandError::NodeDown(*pid),
            CommandError::NoSuchProcess(NoSuchProcessError::NotNow(pid)) => FarCommandError::NotNow(*pid),
            CommandError::NoSuchProcess(NoSuchProcessError::Name(name)) => {
                FarCommandError::NoSuchName(cut(name.to_string()))
            }
            CommandError::NoSuchProcess(NoSuchProcessError::Group(name)) => {
                FarCommandError::NoSuchGroup(cut(name.to_string()))
            }
            CommandError::NoSuchProcess(NoSuchProcessError::RuntimeEnded) => FarCommandError::RuntimeEnded,
            CommandError::Ended(pid) => FarCommandError::Ended(*pid),
            CommandError::ChildExit { pid, exit } => FarCommandError::ChildExit(*pid, FarExit::of(exit)),
            CommandError::Full(pid) => FarCommandError::Full(*pid),
            CommandError::NotStored { pid, why } => FarCommandError::NotStored(*pid, cut(why.clone())),
            CommandError::Node { pid, why: NodeError::NodeDown } => FarCommandError::NodeDown(*pid),
            CommandError::Node { pid, why: NodeError::NotDecoded { why } } => {
                FarCommandError::NotDecoded(*pid, cut(why.clone()))
            }
            CommandError::Node { pid, why: NodeError::Busy } if is_known => FarCommandError::Busy(*pid),
            CommandError::WrongType { pid, takes, sent } if is_known => {
                FarCommandError::WrongType(*pid, cut(takes.to_string()), cut(sent.to_string()))
            }
            // Their texts name threads of that node. The other node may see another holder of a name.
            CommandError::NoSuchProcess(NoSuchProcessError::SharedName(_))
            | CommandError::Unknown { .. }
            | CommandError::WrongType { .. }
            | CommandError::Cycle(_)
            | CommandError::Node { .. }
            | CommandError::InsideStep => FarCommandError::Failed(FarError::of(error)),
        }
    }

    pub(crate) fn here(self) -> CommandError {
        match self {
            FarCommandError::Failed(error) => CommandError::Failed(Failure::new(error)),
            FarCommandError::Panicked(text) => CommandError::Panicked(Panic::new(Box::new(text))),
            FarCommandError::Dropped => CommandError::Dropped,
            FarCommandError::TimedOut => CommandError::TimedOut,
            FarCommandError::Cancelled(reason) => CommandError::Cancelled(reason.here()),
            FarCommandError::Interrupted => CommandError::Interrupted,
            FarCommandError::NoSuchProcess(pid) => NoSuchProcessError::Pid(pid).into(),
            FarCommandError::NotNow(pid) => NoSuchProcessError::NotNow(pid).into(),
            FarCommandError::NoSuchName(name) => NoSuchProcessError::Name(name.into()).into(),
            FarCommandError::NoSuchGroup(name) => NoSuchProcessError::Group(name.into()).into(),
            FarCommandError::RuntimeEnded => NoSuchProcessError::RuntimeEnded.into(),
            FarCommandError::Ended(pid) => CommandError::Ended(pid),
            FarCommandError::ChildExit(pid, exit) => CommandError::ChildExit { pid, exit: exit.here() },
            FarCommandError::Full(pid) => CommandError::Full(pid),
            FarCommandError::NotStored(pid, why) => CommandError::NotStored { pid, why },
            FarCommandError::NodeDown(pid) => CommandError::Node { pid, why: NodeError::NodeDown },
            FarCommandError::NotDecoded(pid, why) => CommandError::Node { pid, why: NodeError::NotDecoded { why } },
            FarCommandError::WrongType(pid, takes, sent) => {
                CommandError::WrongType { pid, takes: takes.into(), sent: sent.into() }
            }
            FarCommandError::Busy(pid) => CommandError::Node { pid, why: NodeError::Busy },
        }
    }
}
