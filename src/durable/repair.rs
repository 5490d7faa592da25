//! Changes of a process that an operator orders.

use super::coding::Format;
use crate::latch::Latch;

/// An order of an operator to a process.
#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A parked process tries again.
    Retry,
    /// A parked process goes on without the event that it cannot take.
    Skip,
    /// A parked process gets another state, of this version and in this format. `None` if it is of the old ones.
    Replace { state: Vec<u8>, of: Option<(u32, Format)> },
    /// The process is asked to stop. Only for a store that is closed: see `requests`.
    #[cfg(feature = "sqlite")]
    Cancel,
    /// The process ends.
    Terminate,
    /// The process gets this dead letter again.
    Resend(u64),
}

/// Why a process was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotRepaired {
    /// There is no such process, or it has ended.
    #[error("there is no such process, or it has ended")]
    NoSuchProcess,
    /// The process is not parked.
    #[error("the process is not parked")]
    NotParked,
    /// The step fails without a message or an answer, so there is nothing to skip.
    #[error("its step fails without a message or an answer, so there is nothing to skip: replace the state, or retry")]
    NothingToSkip,
    /// The new state cannot be decoded as a state of the kind.
    #[error("the new state cannot be read: {0}")]
    State(String),
    /// The process has no dead letter of this number.
    #[error("the process has no dead letter of this number")]
    NoDeadLetter,
    /// The disk had an error, and the change is not stored.
    #[error("the change is not stored: the disk had an error")]
    Lost,
    /// The store was closed meanwhile. The next start shows whether the change was made.
    #[error("the store was closed meanwhile, and the change may not be stored")]
    Closed,
}

/// An order to a process of a store that is open.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) action: Action,
    pub(super) done: Latch<Result<(), NotRepaired>>,
}

impl Repair {
    pub(super) fn refuse(self, why: NotRepaired) {
        let _ = self.done.set(Err(why));
    }
}
