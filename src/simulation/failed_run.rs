//! A run that has failed, as a program sees it.

use super::replay_seed::ReplaySeed;

/// A run that has failed.
#[derive(Clone, Debug)]
pub struct FailedRun {
    pub(super) seed: u64,
    pub(super) check: String,
    pub(super) what: String,
    pub(super) turn: u32,
    pub(super) shrunk: Option<ReplaySeed>,
    /// The number of deviations of the shrunk run.
    pub(super) deviations: Option<usize>,
    pub(super) shrinking_runs: u32,
    /// The number of turns of the shrunk run until the failure.
    pub(super) turns: u32,
    /// The number of turns in the table of the report.
    pub(super) shown_turns: usize,
    /// The table of the report.
    pub(super) table: String,
    pub(super) text: String,
}

impl FailedRun {
    /// The seed of the run.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The name of the check that failed.
    pub fn check(&self) -> &str {
        &self.check
    }

    /// The finding of the check.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The report: the check, the shrunk run as a table, and how to run it again.
    pub fn report(&self) -> &str {
        &self.text
    }

    /// The table of the report alone: the turns of the shrunk run. It is empty if two runs of the seed were different.
    pub fn trace(&self) -> &str {
        &self.table
    }

    /// The seed with the shrunk run, as the environment variable `PROCESSION_SEED` takes it. `None` if the run could
    /// not be shrunk.
    pub fn shrunk(&self) -> Option<String> {
        self.shrunk.as_ref().map(ToString::to_string)
    }

    /// The shrunk run without each one of its deviations. For tests.
    #[doc(hidden)]
    pub fn without_one_deviation(&self) -> Vec<String> {
        let Some(ReplaySeed { seed, tape: Some(tape) }) = &self.shrunk else { return Vec::new() };
        let without = |place| {
            let mut tape = tape.clone();
            tape.deviations.remove(place);
            ReplaySeed { seed: *seed, tape: Some(tape) }.to_string()
        };
        (0..tape.deviations.len()).map(without).collect()
    }

    /// The number of decisions in which the shrunk run differs from the run that a reader expects.
    pub fn deviations(&self) -> Option<usize> {
        self.deviations
    }

    /// The number of runs that shrinking took.
    pub fn shrinking_runs(&self) -> u32 {
        self.shrinking_runs
    }

    /// The number of turns of the shrunk run until the check failed.
    pub fn shrunk_turns(&self) -> u32 {
        self.turns
    }

    /// The number of turns that the table of the report shows. It leaves out turns in order that are far from the
    /// others.
    pub fn shown_turns(&self) -> usize {
        self.shown_turns
    }

    /// The number of the turn after which the check failed.
    pub fn turn(&self) -> u32 {
        self.turn
    }
}
