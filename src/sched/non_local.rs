//! The seam to processes that live elsewhere: their PIDs have the number of another node.
//!
//! The table of processes has no cell for such a PID. Each call that finds no cell asks here before it says that there
//! is no such process. A message, a signal or an answer to a process of this runtime never comes here, so it pays
//! nothing.
//!
//! **The other side's part.** It counts the messages that it takes: a message that was handed over is no longer an
//! accepted message of this runtime. It hands back the others, and then this runtime treats them as if the seam were
//! not there. If it says that it [watches](NonLocal::watch) a process, it reports the end of the process once, by
//! `Relations::ended`.
//!
//! No call panics: it contains the user code that it runs. A signal about the end of a process comes after the
//! messages and the answers of that process. The other side holds no strong reference to the runtime.
//!
//! **Locks.** [`signal`](NonLocal::signal), [`linked`](NonLocal::linked) and [`watch`](NonLocal::watch) are called
//! under the locks of relations and groups. So they call none of the three, run and drop nothing of the user's, and
//! take no lock that is held during such a call. The others are called with no lock.

use std::any::{Any, TypeId};

use super::cell::{Missed, Missing};
use super::mailbox::Signal;
use crate::clock::{Clock, Deadline};
use crate::process::{Completion, Pid, SendError};

/// A link that begins or ends, as seen from one of its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkChange {
    pub(crate) other: Pid,
    pub(crate) begins: bool,
    /// Whether this end has made the change.
    pub(crate) by_me: bool,
}

/// A message without its type.
pub(crate) type AnyMessage = Box<dyn Any + Send>;

/// The other side when the processes of this runtime have ended.
#[derive(Default)]
pub(crate) struct Settled {
    /// The number of processes that have left memory since the shutdown began, and have not ended.
    pub(crate) asleep: usize,
    /// The reason why not everything is on disk. `None` if everything is.
    pub(crate) unstored: Option<String>,
}

/// Reaches processes that live elsewhere. None of these calls waits, but for `settle`.
pub(crate) trait NonLocal: Send + Sync {
    /// Whether PIDs of this node belong to it.
    #[cfg(feature = "cluster")]
    fn has_node(&self, node: u32) -> bool {
        let _ = node;
        true
    }

    /// The identifier of the store that it is, and the node of the store's PIDs. `None` if it is no store.
    #[cfg(feature = "cluster")]
    fn store(&self) -> Option<(u64, u32)> {
        None
    }

    /// Takes a message. Messages of one sender to one receiver keep their order. A refusal hands the message back.
    fn post(&self, from: Option<Pid>, to: Pid, message: AnyMessage) -> Result<(), (AnyMessage, SendError)>;

    /// Whether a process takes messages of this type, as far as that is known here.
    fn takes(&self, pid: Pid, message: TypeId) -> Result<(), Missed>;

    /// Takes a control signal, which overtakes messages.
    fn signal(&self, to: Pid, signal: Signal) -> Result<(), (Missing, Signal)>;

    /// A link of a process begins or ends. The end of a linked process is a signal.
    fn linked(&self, pid: Pid, change: LinkChange) {
        let LinkChange { other, begins, by_me } = change;
        let _ = (pid, other, begins, by_me);
    }

    /// Takes the answer to a command of a process.
    fn complete(&self, to: Pid, completion: Completion) -> Result<(), Completion>;

    /// Ends a process. Returns whether it lived.
    fn terminate(&self, pid: Pid) -> Result<bool, Missing>;

    /// A process of this runtime was lost to a panic of the runtime. It may be one that is known by another PID.
    fn body_lost(&self, pid: Pid);

    /// Whether a process lives, as far as that is known here.
    fn is_alive(&self, pid: Pid) -> bool;

    /// Watches a process, so that its end is reported once. Returns whether it lives, as far as that is known here. It
    /// may be called several times for one process.
    fn watch(&self, pid: Pid) -> bool;

    /// The process elsewhere that has this name. It is asked for names that nobody has here.
    fn whereis(&self, name: &str) -> Option<Pid>;

    /// The processes of this runtime have ended. Waits until everything that they have done is stored, or the deadline
    /// has passed.
    fn settle(&self, clock: &Clock, deadline: Deadline) -> Settled;
}
