//! What a process's cell is asked for, and what comes back.

use crate::latch::Latch;
use crate::outcome::Reason;
use crate::process::Pid;
use crate::sched::body::{Kind, Ready};
use crate::sched::mailbox::{AnyMailbox, Bound, Control, Signal};

/// Why a PID names no living process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No process has had it.
    Never,
    /// Its process has ended, or is being ended.
    Ended,
}

/// What a process wants after a step that did not end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// To be stepped again.
    Again,
    /// To be stepped again on the pool.
    AgainOnPool,
    /// To be stepped when there is an event that it has not been shown.
    AnyEvent,
    /// To be stepped when there is an event that has come since the step was given its events: it took none of those.
    NewEvent,
    /// To be stepped when there is a signal.
    Signal,
}

/// What came of a step.
#[must_use]
pub(crate) enum Settled {
    /// The body is at rest.
    Resting,
    /// It is at rest, and waits for one answer, of this process.
    AskFuture(Pid),
    /// It is to be stepped again.
    Again(Ready),
    /// It is to be ended.
    Doomed(Ready),
    /// It waits for a signal, and none can come.
    WaitsForNothing(Ready),
}

/// What a mailbox with a bound has let go of.
#[derive(Default)]
#[must_use]
pub(crate) struct Freed {
    /// Messages that were pushed out.
    pub(crate) oldest: Option<Box<dyn AnyMailbox>>,
    /// Senders that wait for room, if there is some.
    pub(crate) waiting: Vec<Latch<()>>,
}

/// What came of dooming a process.
#[must_use]
pub(crate) enum Doomed {
    /// It was at rest: whoever has the body now must see to its end.
    Woken(Ready),
    /// Whoever has the body will find out.
    Noted,
    /// It was doomed before.
    Already,
}

/// What a process has from its birth.
#[derive(Clone, Copy, Default)]
pub(crate) struct Birth {
    /// The bound of its mailbox.
    pub(crate) bound: Option<Bound>,
    /// Messages that are in its mailbox already.
    pub(crate) queued: u32,
    pub(crate) marks: Marks,
}

/// What few processes have: a bit for each, of the lowest ten.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks(u16);

impl Marks {
    /// The process is to be ended instead of stepped.
    pub(crate) const DOOMED: Marks = Marks(1 << 2);
    /// It is to be ended because the runtime shuts down.
    pub(super) const BY_SHUTDOWN: Marks = Marks(1 << 3);
    /// The shutdown waits for its end.
    pub(crate) const WATCHED: Marks = Marks(1 << 4);
    /// It is to be ended because there is no thread for its blocking step.
    pub(super) const NO_THREAD: Marks = Marks(1 << 5);
    /// The process traps the exits of those that it is linked to.
    pub(crate) const TRAPS: Marks = Marks(1 << 6);
    /// Somebody may have to be told of its end, or it may have names.
    pub(crate) const RELATED: Marks = Marks(1 << 7);

    /// Those in the lowest bits of a word.
    pub(super) fn of(bits: u64) -> Marks {
        Marks(bits as u16)
    }

    pub(super) const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Why the process is to be ended, if it is.
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

/// What came of telling a process that one to which it is linked has ended.
#[must_use]
pub(crate) enum LinkTold {
    /// It traps exits, and this was put into its mailbox. With its body, if that woke it.
    Trapped(Option<Ready>),
    /// It is to be ended. With its body, if it was at rest.
    Doomed(Option<Ready>),
    /// It has ended, or is being ended, or does not mind.
    Refused(Control),
}

/// What is left in the cell of a process that has ended.
pub(crate) struct Vacated {
    pub(crate) inbox: Option<Box<dyn AnyMailbox>>,
    pub(crate) marks: Marks,
    pub(crate) untold: Untold,
    /// Messages that no step had taken.
    pub(crate) queued: u32,
}

/// The right to tell of the end of a process. It is there when the cell is vacant, and not before: see the table of
/// `relations.rs`.
#[must_use]
pub(crate) struct Untold {
    /// There is somebody to be told.
    is_related: bool,
}

impl Untold {
    pub(super) fn of(marks: Marks) -> Untold {
        Untold { is_related: marks.has(Marks::RELATED) }
    }

    /// Tells, with this function, all that are related to the process.
    #[inline]
    pub(crate) fn tell(self, tell: impl FnOnce()) {
        if self.is_related {
            tell();
        }
    }
}

/// What a state machine leaves behind that has failed, and was replaced.
pub(crate) struct LeftBehind {
    /// The process that has spawned this one with a link was told that it goes on.
    pub(crate) told: bool,
    /// What has arrived for the process, and is for its successor.
    pub(crate) inbox: Option<Box<dyn AnyMailbox>>,
    /// What waited for the failed one alone. To be dropped elsewhere.
    pub(crate) signals: Vec<Signal>,
}

/// What an onlooker sees.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) generation: u32,
    pub(crate) kind: &'static Kind,
    pub(crate) rest: Rest,
    pub(crate) steps: u64,
    pub(crate) queued: u32,
    /// Microseconds since the runtime was started, to within 1,024 of them.
    pub(crate) born: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Idle,
    Waiting,
    Out,
}
