//! Flags of a process, and the properties that it has from its birth.

use crate::outcome::Reason;
use crate::sched::mailbox::Bound;

/// The properties that a process has from its birth.
#[derive(Clone, Copy, Default)]
pub(crate) struct Birth {
    /// The bound of its mailbox.
    pub(crate) bound: Option<Bound>,
    /// The number of messages that are in its mailbox already.
    pub(crate) queued: u32,
    pub(crate) marks: Marks,
}

/// Properties that few processes have: one bit each, in the lowest ten.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks(u16);

impl Marks {
    /// The process is to be ended instead of stepped.
    pub(crate) const DOOMED: Marks = Marks(1 << 2);
    /// The process is to be ended because the runtime shuts down.
    pub(super) const BY_SHUTDOWN: Marks = Marks(1 << 3);
    /// The shutdown waits for its end.
    pub(crate) const WATCHED: Marks = Marks(1 << 4);
    /// The process is to be ended because there is no thread for its blocking step.
    pub(super) const NO_THREAD: Marks = Marks(1 << 5);
    /// The process traps the exits of linked processes.
    pub(crate) const TRAPS: Marks = Marks(1 << 6);
    /// Other processes may have to be notified of its end, or it may have names.
    pub(crate) const RELATED: Marks = Marks(1 << 7);

    /// Returns the flags in the lowest bits of a word.
    pub(super) fn of(bits: u64) -> Marks {
        Marks(bits as u16)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The reason why the process is to be ended, if it is.
    pub(crate) fn doom(self) -> Option<Reason> {
        self.has(Marks::DOOMED).then_some(if self.has(Marks::NO_THREAD) {
            Reason::NoThread
        } else if self.has(Marks::BY_SHUTDOWN) {
            Reason::Shutdown
        } else {
            Reason::Terminated
        })
    }

    pub(crate) fn with(self, other: Marks, on: bool) -> Marks {
        if on { Marks(self.0 | other.0) } else { self }
    }

    #[inline]
    pub(crate) fn has(self, any: Marks) -> bool {
        self.0 & any.0 != 0
    }
}
