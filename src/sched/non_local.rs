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
//! **Locks.** [`signal`](NonLocal::signal), [`watch`](NonLocal::watch), [`link`](NonLocal::link), their opposites, and
//! [`linked`](NonLocal::linked) are called under the locks of relations and groups. So they call none of these, run and
//! drop nothing of the user's, and take no lock that is held during such a call. The others are called with no lock.

use std::any::{Any, TypeId};
#[cfg(feature = "cluster")]
use std::time::Duration;

use super::cell::{Missed, Missing};
use super::mailbox::Signal;
use super::trace_marks::Context;
use crate::clock::{Clock, Deadline};
use crate::outcome::Reason;
#[cfg(feature = "cluster")]
use crate::outcome::drop_contained;
use crate::primitives::Arc;
#[cfg(feature = "cluster")]
use crate::primitives::Weak;
#[cfg(feature = "cluster")]
use crate::process::{Ask, CommandError};
use crate::process::{Completion, NoSuchProcessError, Pid, SendError};

/// A link that begins or ends, as seen from one of its ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkChange {
    pub(crate) other: Pid,
    pub(crate) begins: bool,
    /// Whether this end has made the change.
    pub(crate) by_me: bool,
}

/// The room that there must be at another node before a message for a process there is converted or offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NeedsRoom {
    /// None yet. The message needs no conversion, and comes back if there is no room when it is offered.
    #[cfg(feature = "cluster")]
    WhenOffered,
    /// As much as a message of a process that may be held. The sender is such a process.
    Held,
    /// Some. It is the turn of the message among those that wait, or a process sends it.
    #[cfg_attr(not(feature = "cluster"), allow(dead_code))]
    InTurn,
    /// Some, and no message from outside waits for it.
    Yes,
}

/// A message without its type.
pub(crate) type AnyMessage = Box<dyn Any + Send>;

/// The permission to convert a message for a process, or to offer it, and to send it. For a process of another node, it
/// is the connection that was up when it was given. So the message is not sent on a later connection, behind messages
/// that were sent meanwhile.
pub(crate) type Permit = Option<Arc<dyn Any + Send + Sync>>;

/// A request to a process of another node to end.
#[cfg(feature = "cluster")]
pub(crate) enum Stop {
    Cancel { reason: Reason, limit: Option<Duration> },
    Terminate,
}

/// A sender that waits for room at another node.
#[cfg(feature = "cluster")]
pub(crate) enum Waiter {
    /// A process that is held, and the PID under which it has sent. The two differ for a durable process. `sender` is
    /// `None` if the message was refused.
    Process { pid: Pid, sender: Option<Pid> },
    /// A process that is held because of its answers.
    Answers { pid: Pid },
    /// A message from outside. It is dropped with its sender's future.
    Outside(Weak<dyn WaitingOutside>),
}

/// A message from outside that waits for room at another node.
#[cfg(feature = "cluster")]
pub(crate) trait WaitingOutside: Send + Sync {
    /// Offers the message again. Returns whether it waits still, because there is no room.
    fn offer(&self, to: &dyn NonLocal) -> bool;

    /// The node is down. The message goes back to its sender.
    fn node_down(&self);

    /// Whether the message waits, or is offered at this moment.
    fn waits(&self) -> bool;
}

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

    /// Whether this is a store that knows processes of this type.
    #[cfg(feature = "durable")]
    fn stores(&self, process: TypeId) -> bool {
        let _ = process;
        false
    }

    /// Takes a message. Messages of one sender to one receiver keep their order. A refusal hands the message back.
    /// `trace` is the context of the message.
    fn post(
        &self,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)>;

    /// As `post`, for a sender whose turn it is. The message is one from outside that has waited and has a
    /// [permit](Self::permit), or one of a process that is held from now on. A message of such a process is taken even
    /// if there is no room.
    #[cfg(feature = "cluster")]
    fn post_in_turn(
        &self,
        permit: Permit,
        from: Option<Pid>,
        to: Pid,
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        drop(permit);
        self.post(from, to, message, trace)
    }

    /// Has a sender wait for room at the node of this PID. It is told when there is room, or when the node is down. It
    /// may be told sooner.
    #[cfg(feature = "cluster")]
    fn wait_for_room(&self, to: Pid, waiter: Waiter) {
        let _ = (to, waiter);
    }

    /// A sender outside waits no longer for room at the node of this PID. So those behind it may have room.
    #[cfg(feature = "cluster")]
    fn has_given_up(&self, to: Pid) {
        let _ = to;
    }

    /// Whether a process takes messages of this type, as far as that is known here.
    fn takes(&self, pid: Pid, message: TypeId) -> Result<(), Missed>;

    /// Permits the caller to convert a message to this type, or to offer a message of this type. The type is given with
    /// its name. Returns an error if it is known already that the message cannot be sent to the process now.
    fn permit(&self, to: Pid, (message, sent): (TypeId, &'static str), room: NeedsRoom) -> Result<Permit, SendError> {
        let _ = room;
        self.takes(to, message).map(|()| None).map_err(|missed| match missed {
            Missed::NoSuchProcess => NoSuchProcessError::Pid(to).into(),
            Missed::WrongType(takes) => SendError::WrongType { pid: to, takes: takes(), sent },
        })
    }

    /// As `post`, for a message that was converted with a [permit](Self::permit). It is taken even if others have
    /// filled the room since.
    fn post_converted(
        &self,
        permit: Permit,
        (from, to): (Option<Pid>, Pid),
        message: AnyMessage,
        trace: Option<&Context>,
    ) -> Result<(), (AnyMessage, SendError)> {
        drop(permit);
        self.post(from, to, message, trace)
    }

    /// Reports a converted message that was refused as a dead letter, with the name of its type and its context.
    #[cfg(feature = "cluster")]
    fn bury_converted(&self, to: Pid, refused: (AnyMessage, SendError), message: (&'static str, Option<&Context>)) {
        let _ = (to, message);
        drop_contained(refused.0);
    }

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

    /// The process of this runtime that steps a process elsewhere, if there is one.
    fn in_memory(&self, pid: Pid) -> Option<Pid> {
        let _ = pid;
        None
    }

    /// Whether a process lives, as far as that is known here.
    fn is_alive(&self, pid: Pid) -> bool;

    /// A process of this runtime asks one of another node to end. The answer is whether that one lived.
    #[cfg(feature = "cluster")]
    fn stop(&self, (from, to): (Pid, Pid), stop: Stop, ask: Arc<Ask>) {
        let _ = (from, to, stop);
        ask.give_up(CommandError::Dropped);
    }

    /// Watches a process, so that its end is reported once. Returns whether it lives, as far as that is known here. It
    /// may be called several times for one process.
    fn watch(&self, pid: Pid) -> bool;

    /// The last relation that watches a process has ended. The end of the process need not be reported any more.
    fn unwatch(&self, pid: Pid) {
        let _ = pid;
    }

    /// As `watch`, for a link that a process of this runtime makes to one elsewhere.
    fn link(&self, near: Pid, far: Pid) -> bool {
        let _ = near;
        self.watch(far)
    }

    /// A process of this runtime has ended its link to one elsewhere.
    fn unlink(&self, near: Pid, far: Pid) {
        let _ = (near, far);
    }

    /// Why a process that cannot be watched or linked is missing.
    fn why_missing(&self, pid: Pid) -> Reason {
        let _ = pid;
        Reason::NoSuchProcess
    }

    /// Whether exits of linked processes are handed over when all locks are free. Their errors are shown then, by code
    /// of users.
    #[cfg(feature = "cluster")]
    fn shows_errors(&self) -> bool {
        false
    }

    /// Whether a name of this runtime, or a group, may have one of its processes.
    fn may_be_named(&self) -> bool {
        true
    }

    /// The process elsewhere that has this name. It is asked for names that nobody has here.
    fn whereis(&self, name: &str) -> Option<Pid>;

    /// The runtime begins to shut down. Its processes were not asked to end yet. Returns the calls that may run code of
    /// users. They are made when the processes were asked.
    #[cfg(feature = "cluster")]
    fn closes(&self) -> Option<Box<dyn FnOnce() + Send>> {
        None
    }

    /// The processes of this runtime have ended. Waits until everything that they have done is stored, or the deadline
    /// has passed.
    fn settle(&self, clock: &Clock, deadline: Deadline) -> Settled;
}
