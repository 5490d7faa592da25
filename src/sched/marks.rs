//! Properties that few processes have, and the properties that a process has from its birth.

use crate::outcome::Reason;
use crate::sched::mailbox::Bound;

/// The properties that a process has from its birth.
#[derive(Clone, Copy, Default)]
pub(crate) struct Birth {
    /// The bound of its mailbox.
    pub(crate) bound: Option<Bound>,
    /// The number of messages that are in its mailbox already.
    pub(crate) queued: u32,
    /// [`TRAPS`], [`RELATED`] and [`NEVER_HELD`], if they hold.
    pub(crate) marks: u64,
}

/// The process rests until a command is answered. Messages do not wake it.
pub(super) const WAITS: u64 = 1;
/// The mailbox has a bound.
pub(super) const BOUNDED: u64 = 1 << 1;
/// The process is to be ended instead of stepped.
pub(crate) const DOOMED: u64 = 1 << 2;
/// The process is to be ended because the runtime shuts down.
pub(crate) const BY_SHUTDOWN: u64 = 1 << 3;
/// The shutdown waits for its end.
pub(crate) const WATCHED: u64 = 1 << 4;
/// The process is to be ended because there is no thread for its blocking step.
pub(crate) const NO_THREAD: u64 = 1 << 5;
/// The process traps the exits of linked processes.
pub(crate) const TRAPS: u64 = 1 << 6;
/// Other processes may have to be notified of its end, or it may have names.
pub(crate) const RELATED: u64 = 1 << 7;
/// The process has recovered from a failure, or is about to. Linked processes may have been notified.
pub(super) const HAS_FAILED: u64 = 1 << 8;
/// A future of the process was woken while the body was out, and is to be polled.
pub(super) const POLLS: u64 = 1 << 9;
/// The process is to be held when its step is over.
pub(super) const HELD: u64 = 1 << 10;
/// The process is never held.
pub(crate) const NEVER_HELD: u64 = 1 << 11;
/// The bits of a word that are marks.
pub(super) const FLAGS: u64 = 0xfff;

/// The reason why a process with these marks is to be ended, if it is.
pub(super) fn doom(marks: u64) -> Option<Reason> {
    (marks & DOOMED != 0).then_some(if marks & NO_THREAD != 0 {
        Reason::NoThread
    } else if marks & BY_SHUTDOWN != 0 {
        Reason::Shutdown
    } else {
        Reason::Terminated
    })
}
