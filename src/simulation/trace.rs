//! Traces: what happened in a run, turn by turn, as data.

use std::time::Duration;

use super::coverage::Coverage;
use super::replay_seed::ReplaySeed;

/// The turns of a run, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) turns: Vec<TraceTurn>,
}

/// One turn: a step of a process, a timer, a blocking closure, or a late answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceTurn {
    /// The first turn of a run is 1.
    pub(crate) number: u64,
    /// The virtual time since the run began.
    pub(crate) time: Duration,
    /// The process with its type and its name, if it has one: `<1.1.1> Account "a"`. Or a timer, a blocking closure, a
    /// late answer.
    pub(crate) who: String,
    /// The events of the step: `Transfer of <1.5.1>`.
    pub(crate) took: Vec<String>,
    /// The yields of the step, and how it ended if it did not succeed: `send <1.2.1> Deposit(10)`, `panicked`.
    pub(crate) yielded: Vec<String>,
    /// Whether this turn was the oldest one, and others went before it.
    pub(crate) is_late: bool,
    /// Whether a fault was injected into this turn.
    pub(crate) is_injected: bool,
    /// Further lines: dead letters, ended processes.
    pub(crate) notes: Vec<String>,
}

impl TraceTurn {
    /// Whether a reader has to see this turn.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_late || self.is_injected
    }
}

/// Which check failed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The name of the invariant or of the built-in check.
    pub(crate) check: String,
    pub(crate) kind: FindingKind,
    /// The details of the failure. The text may be empty.
    pub(crate) detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindingKind {
    /// An invariant does not hold.
    DoesNotHold,
    /// A condition did not hold within this virtual time after the last fault. `held` says when it held last.
    DidNotHold { within: Duration, held: Option<Duration> },
    /// A check that is always made, or an error of the scenario, has found something.
    Failed,
}

/// A failed run and all that is said about it.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The name of the simulation.
    pub(crate) name: String,
    /// The name of its test. `None` if it is not in a test.
    pub(crate) test: Option<String>,
    pub(crate) seed: ReplaySeed,
    /// The number of the turn after which the check failed.
    pub(crate) turn: u64,
    /// Which run failed. `None` if it is the only one.
    pub(crate) run: Option<RunNumber>,
    /// The schedule of this seed: `pct(3)`.
    pub(crate) schedule: String,
    /// How many faults were injected.
    pub(crate) faults: u64,
    /// The version of the crate.
    pub(crate) version: String,
    pub(crate) finding: Finding,
    /// The shrunk run. `None` if the run was not shrunk.
    pub(crate) shrunk: Option<ShrunkRun>,
    /// The trace of the shrunk run, or else of the run that failed.
    pub(crate) trace: Trace,
}

/// The number of a run among all runs of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct RunNumber {
    /// The first one is 1.
    pub(crate) run: u64,
    /// How many runs there were to be.
    pub(crate) of: u64,
    /// The interleavings of the runs up to this one.
    pub(crate) coverage: Coverage,
}

/// The shrunk run of a failure.
#[derive(Clone, Debug)]
pub(crate) struct ShrunkRun {
    /// The seed with the tape.
    pub(crate) seed: ReplaySeed,
    /// How many runs the shrinking took.
    pub(crate) runs: u64,
    /// How long the shrinking took, by the real clock.
    pub(crate) took: Duration,
    /// Whether no deviation can be left out.
    pub(crate) is_minimal: bool,
}
