//! The error of a call if there is no process at its target.

use crate::pid::Pid;
use crate::primitives::Arc;

/// The error of a call if there is no process at its [`Target`](super::Target).
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoSuchProcessError {
    /// The process has ended, or has never been in this runtime.
    #[error("no such process: {0} (it has ended, or never was in this runtime)")]
    Pid(Pid),
    /// No process has the name.
    #[error("no process has the name {0:?}")]
    Name(Arc<str>),
    /// No process has the shared name, as this node of the cluster sees it.
    #[error("no process has the shared name {0:?}")]
    SharedName(Arc<str>),
    /// The group has no members.
    #[error("the group {0:?} has no members")]
    Group(Arc<str>),
    /// The process belongs to a store that opens its files again after an error of the disk. It may live, and a later
    /// call can succeed.
    #[error("the process {0} cannot be reached now: its store opens its files again after an error: try again")]
    NotNow(Pid),
    /// The process belongs to another node, and there is no connection to that node. It may live.
    #[error("the process {0} cannot be reached: the connection to its node has broken")]
    NodeDown(Pid),
    /// The runtime has ended, and all its processes with it.
    #[error("the runtime has ended")]
    RuntimeEnded,
}

impl NoSuchProcessError {
    /// The name, or the group, if the target was one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            NoSuchProcessError::Pid(_)
            | NoSuchProcessError::NotNow(_)
            | NoSuchProcessError::NodeDown(_)
            | NoSuchProcessError::RuntimeEnded => None,
            NoSuchProcessError::Name(name) | NoSuchProcessError::SharedName(name) | NoSuchProcessError::Group(name) => {
                Some(name)
            }
        }
    }
}
