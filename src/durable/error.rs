//! Why a call of a store fails.

use std::path::PathBuf;

use super::journal::JournalError;
use super::repair::NotRepaired;
use crate::config::BuildError;
use crate::inside::WaitError;
use crate::process::CommandKey;

/// Why a call of a [`Store`](super::Store) failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The journal could not be opened, read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The runtime could not be started.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Two kinds, or two commands, have the same name.
    #[error("two kinds or commands have the name {0:?}")]
    SameName(&'static str),
    /// The id belongs to a process of another kind.
    #[error("the id {id:?} belongs to a process of the kind {holder:?}")]
    OtherKind {
        /// The id.
        id: String,
        /// The kind of its process.
        holder: String,
    },
    /// The program did not name this kind before it started the store.
    #[error("the kind {0:?} is not known to the store: call `kind` before `start`")]
    UnknownKind(&'static str),
    /// No process has this id. It was never begun, or was removed some time after its end.
    #[error("no process has the id {0:?}: it was never begun, or is kept no longer")]
    NoSuchId(String),
    /// The process, the message or the answer was not stored, for this reason.
    #[error("it cannot be stored: {0}")]
    NotStored(String),
    /// No command with this key waits for an answer: its process has taken the answer, or has ended, or there never was
    /// one.
    #[error("no command with the key {0} waits for an answer")]
    NoSuchCommand(CommandKey),
    /// The command of this key is of another type.
    #[error("the command with the key {key} is of the type {holder:?}")]
    OtherCommand {
        /// The key.
        key: CommandKey,
        /// The name of its type.
        holder: String,
    },
    /// The command was answered before.
    #[error("the command with the key {0} was answered before")]
    AlreadyAnswered(CommandKey),
    /// The record is not on disk, and will not be: the store had to open its files again after an error.
    #[error("it was not stored: the disk had an error")]
    Lost,
    /// The store was closed before the record was known to be on disk. The next start shows whether it is.
    #[error("the store was closed before it was known whether this is on disk")]
    Unknown,
    /// The process has ended without an output.
    #[error("the process was terminated")]
    Terminated,
    /// The stored output cannot be read.
    #[error("the output cannot be read: {0}")]
    Output(String),
    /// The folder has no store.
    #[error("there is no store in {}", .0.display())]
    NoStore(PathBuf),
    /// A request of an operator cannot be carried out, for this reason.
    #[error("{0}")]
    Refused(String),
    /// The process was not changed.
    #[error(transparent)]
    NotRepaired(#[from] NotRepaired),
    /// The wait has ended without a result.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// The calling thread is in a step, which must not wait for a disk.
    #[error("a step cannot wait for the disk of a store: call this from outside of the runtime")]
    InsideStep,
}

impl StoreError {
    /// A request of an operator cannot be carried out.
    pub(super) fn refused(why: impl std::fmt::Display) -> StoreError {
        StoreError::Refused(why.to_string())
    }
}
