//! What a process's cell is asked for, and what comes back.

use crate::outcome::Reason;
use crate::process::body::{Kind, Ready};
use crate::process::mailbox::AnyMailbox;

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
    /// To be stepped when there is an event.
    AnyEvent,
    /// To be stepped when there is a signal.
    Signal,
}

/// What came of a step.
#[must_use]
pub(crate) enum Settled {
    /// The body is at rest.
    Resting,
    /// It is to be stepped again.
    Again(Ready),
    /// It is to be ended.
    Doomed(Ready),
    /// It waits for a signal, and none can come.
    WaitsForNothing(Ready),
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

/// What is left in the cell of a process that has ended.
pub(crate) struct Vacated {
    pub(crate) inbox: Option<Box<dyn AnyMailbox>>,
    pub(crate) watched: bool,
    /// Why it was to be ended, if it was.
    pub(crate) doom: Option<Reason>,
    /// Messages that no step had taken.
    pub(crate) queued: u32,
}

/// What an onlooker sees.
#[derive(Clone, Copy)]
pub(crate) struct Look {
    pub(crate) generation: u32,
    pub(crate) kind: &'static Kind,
    pub(crate) rest: Rest,
    pub(crate) steps: u64,
    pub(crate) queued: u32,
    /// Microseconds since the runtime was started.
    pub(crate) born: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    Idle,
    Waiting,
    Out,
}
