//! The decisions of a run: what is next, whether a fault happens, which number a program draws.
//!
//! A world makes no decision itself. It asks a [`Choose`] about each, and says with a [`Place`] what the decision is
//! about. A schedule decides by a seed. A tape repeats the decisions of an earlier run. Every decision has a *dull*
//! answer: the oldest candidate, no fault, the least value. A run of dull decisions is the run that a reader expects,
//! and a shrunk failure is told by the decisions that are not dull.

use crate::pid::Pid;

/// Something that can happen next in a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Item {
    /// A turn of this process.
    Turn(Pid),
    /// The timer with this number, in the order in which the timers of the run were found due.
    Timer(u64),
    /// The job with this number, in the order in which the jobs of the run were submitted.
    Job(u64),
    /// The oldest message from one process to another that is held back.
    Delivery(Pid, Pid),
}

/// An item that can be next, and how often it has happened before in this run.
///
/// A pair names one moment of a run: the third turn of a process stays the third turn if other decisions change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Candidate {
    pub(crate) item: Item,
    pub(crate) nth: u32,
}

/// The longest time that a turn takes, in microseconds. The least is one.
pub(crate) const LONGEST_TURN: u64 = 100;

/// The subject of a decision that is not about the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Place {
    /// A fault: the number of its rule, and the moment.
    Fault { rule: u32, of: Pid, nth: u32 },
    /// How many turns others have before this yield of this step is performed.
    Pause { of: Pid, nth: u32, index: u32 },
    /// How many new events this step is given. Zero stands for all that it may be given.
    Events { of: Pid, nth: u32 },
    /// Whether this message is held back.
    Hold { from: Pid, to: Pid, nth: u32 },
    /// The number that the scenario draws at this position.
    Value { nth: u32 },
    /// The time that passes with this turn, in microseconds beyond the least.
    Time { turn: u32 },
}

/// The possible answers to a decision. The dull answer is zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Odds {
    /// One with this probability, and otherwise zero.
    Chance(f64),
    /// Any number below this one, which is not zero. All are equally likely.
    Below(u64),
    /// One or more with this probability, and otherwise zero. Each number is half as likely as the one below it.
    Several(f64),
}

/// Makes the decisions of a run.
pub(crate) trait Choose {
    /// Returns the place of the candidate that is next. There is at least one. They are in the order in which they
    /// became possible: the first one is the dull answer.
    fn next(&mut self, candidates: &[Candidate]) -> usize;

    /// Decides anything else.
    fn decide(&mut self, place: Place, odds: Odds) -> u64;
}
