//! Names and groups of processes: their errors, events and pending changes.

use std::collections::HashMap;
use std::fmt;

use super::no_such_process::NoSuchProcessError;
use crate::pid::Pid;
use crate::primitives::Arc;

/// Why a process did not get a name, or did not join a group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// Another process has the name.
    #[error("the name {name:?} is taken by {holder}")]
    Taken {
        /// The name.
        name: Arc<str>,
        /// The process that has it.
        holder: Pid,
    },
    /// There is no process at the target.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The name is empty.
    #[error("a name may not be empty")]
    Empty,
    /// The process lives on another node.
    #[error("{0} lives on another node, and names and groups are local: register it, or let it join, on its own node")]
    OtherNode(Pid),
}

/// Why a target has no address of the wanted type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no process at the target.
    #[error(transparent)]
    NoSuchProcess(#[from] NoSuchProcessError),
    /// The process takes messages of another type.
    #[error("{pid} takes messages of type {takes}, not {wanted}")]
    WrongType {
        /// The process at the target.
        pid: Pid,
        /// The type that the process takes.
        takes: &'static str,
        /// The type of the address.
        wanted: &'static str,
    },
}

/// The identifier of one subscription of a process to a group.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Subscription {
    id: u64,
    group: Arc<str>,
}

impl Subscription {
    pub(crate) fn new(id: u64, group: Arc<str>) -> Subscription {
        Subscription { id, group }
    }

    /// The number of the subscription. No other subscription of the same runtime has it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn shared_group(&self) -> &Arc<str> {
        &self.group
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subscription({} to {:?})", self.id, self.group)
    }
}

/// An event of a group to which the process subscribes.
#[derive(Clone, Debug)]
pub struct GroupEvent {
    /// The subscription to which the event belongs.
    pub subscription: Subscription,
    /// The change.
    pub change: GroupChange,
}

/// A change of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupChange {
    /// The members when the subscription began, each as often as it had joined. Later changes come as later events.
    Members(Vec<Pid>),
    /// A process has joined. It may already have been a member.
    Joined(Pid),
    /// A process has left, or has ended. There is one such event for each time that it had joined.
    Left(Pid),
}

/// A change to names or groups that a step yields as a command.
pub(crate) enum Naming {
    Register { name: Arc<str>, pid: Pid },
    Unregister { name: Arc<str> },
    Join { group: Arc<str>, pid: Pid },
    Leave { group: Arc<str>, pid: Pid },
}

/// Names that the current step gives and takes. The runtime performs the yields when the step has succeeded, but the
/// step itself finds the names before.
///
/// There is one entry for each name, with the changes that are known before the yields are performed.
#[derive(Default)]
pub(crate) struct PendingNames(HashMap<Arc<str>, Pending>);

#[derive(Default)]
struct Pending {
    /// Whether the name is taken from the process that has it now.
    freed: bool,
    /// The process that is given the name, unless another process has it.
    given: Option<Pid>,
}

impl PendingNames {
    /// Records that the name is given to a process.
    pub(crate) fn give(&mut self, name: &Arc<str>, pid: Pid) {
        if !name.is_empty() {
            self.0.entry(name.clone()).or_default().given.get_or_insert(pid);
        }
    }

    /// Records that the name is taken from the process that has it by then.
    pub(crate) fn free(&mut self, name: &Arc<str>) {
        self.0.insert(name.clone(), Pending { freed: true, given: None });
    }

    /// The process that will have the name. `now` returns the process that has it now.
    pub(crate) fn holder(&self, name: &str, now: impl FnOnce() -> Option<Pid>) -> Option<Pid> {
        match self.0.get(name) {
            None => now(),
            Some(Pending { freed: true, given }) => *given,
            Some(Pending { freed: false, given }) => now().or(*given),
        }
    }
}
