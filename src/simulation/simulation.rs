//! A simulation: a scenario, and the runs of it that are tried.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::decider::Decider;
use super::faults::Faults;
use super::one_run::{Outcome, RunOptions, Scenario, run_once};
use super::schedule::Schedule;
use super::shared::Limits;
use super::tape::{self, Replayed, Tape};
use super::world::World;
use crate::outcome::BoxError;

/// The default number of seeds.
pub const DEFAULT_SEEDS: u64 = 1_000;

/// The default for the most turns of a run.
pub const DEFAULT_MAX_TURNS: u32 = 100_000;

/// The default for the most virtual time of a run: a day.
pub const DEFAULT_MAX_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// How many of the first runs are run twice.
const FIRST_TWICE: u64 = 16;

/// One of this many runs is run twice.
const TWICE: u64 = 64;

/// By how much the clock of a second run is ahead.
const AHEAD: Duration = Duration::from_secs(987_654);

/// A scenario, and the runs of it that are tried. See the [module](super).
#[must_use = "a simulation does nothing until `check` is called"]
pub struct Simulation {
    scenario: Box<Scenario>,
    seeds: Range<u64>,
    schedule: Schedule,
    options: RunOptions,
    threads: Option<usize>,
}

/// A run that has failed.
#[derive(Clone, Debug)]
pub struct FailedRun {
    seed: u64,
    check: String,
    what: String,
    turn: u32,
    text: String,
}

/// What a simulation has found.
#[derive(Clone, Debug)]
pub struct SimulationReport {
    runs: u64,
    failed: Option<FailedRun>,
}

impl Simulation {
    /// Makes a simulation of this scenario. It is called once for each run, each time with a new [`World`].
    ///
    /// The scenario must not keep anything from one run to the next. An error that it returns fails the run.
    pub fn new(scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
        Simulation {
            scenario: Box::new(scenario),
            seeds: 0..DEFAULT_SEEDS,
            schedule: Schedule::default(),
            options: RunOptions {
                faults: Faults::none(),
                limits: Limits { turns: DEFAULT_MAX_TURNS, time: DEFAULT_MAX_TIME },
                without: Vec::new(),
            },
            threads: None,
        }
    }

    /// Sets the seeds. Each is a run. The default is the first [`DEFAULT_SEEDS`].
    pub fn seeds(mut self, seeds: Range<u64>) -> Simulation {
        self.seeds = seeds;
        self
    }

    /// Sets the schedule. The default is [`Schedule::mixed`].
    pub fn schedule(mut self, schedule: Schedule) -> Simulation {
        self.schedule = schedule;
        self
    }

    /// Sets the faults that may be injected. The default is none.
    pub fn faults(mut self, faults: Faults) -> Simulation {
        self.options.faults = faults;
        self
    }

    /// Sets the most turns of a run. A run that has more fails. The default is [`DEFAULT_MAX_TURNS`].
    pub fn max_turns(mut self, turns: u32) -> Simulation {
        self.options.limits.turns = turns;
        self
    }

    /// Sets the most virtual time of a run. A run that takes more fails. The default is [`DEFAULT_MAX_TIME`].
    pub fn max_time(mut self, time: Duration) -> Simulation {
        self.options.limits.time = time;
        self
    }

    /// Sets the number of threads that run seeds. The default is the number of processors. The result does not depend
    /// on it.
    pub fn threads(mut self, threads: usize) -> Simulation {
        self.threads = Some(threads);
        self
    }

    /// Switches a check off that is always made: `"no step panics"`, `"no process waits for what cannot come"`, or
    /// `"every message is accounted for"`.
    pub fn without(mut self, check: impl Into<String>) -> Simulation {
        self.options.without.push(check.into());
        self
    }

    /// Runs all seeds.
    ///
    /// # Panics
    /// A run has failed. The message is the report, with the lowest seed that fails.
    pub fn check(self) {
        if let Some(failed) = self.run().failed {
            panic!("{}", failed.text);
        }
    }

    /// Runs all seeds, and returns what was found. The first failure ends it: that of the lowest seed.
    pub fn run(self) -> SimulationReport {
        let turns = self.run_dull().turns;
        let lowest = AtomicU64::new(u64::MAX);
        let next = AtomicU64::new(self.seeds.start);
        let runs = AtomicU64::new(0);
        let failures = std::sync::Mutex::new(std::collections::BTreeMap::new());
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        let works = || {
            loop {
                // Ordering: Relaxed: the numbers only have to be unique.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end || seed > lowest.load(Ordering::Relaxed) {
                    return;
                }
                runs.fetch_add(1, Ordering::Relaxed);
                if let Some(failed) = self.try_seed(seed, turns) {
                    lowest.fetch_min(seed, Ordering::Relaxed);
                    failures.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(seed, failed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads.max(1) {
                scope.spawn(works);
            }
            works();
        });
        let failures = failures.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        SimulationReport { runs: runs.into_inner(), failed: failures.into_values().next() }
    }

    /// The run without any deviation.
    fn run_dull(&self) -> Outcome {
        let decider = Decider::Replayed(Replayed::new(&Tape::default(), 0));
        run_once(&*self.scenario, &self.options, 0, decider, (false, Duration::ZERO))
    }

    fn run_seed(&self, seed: u64, turns: u32, ahead: Duration) -> Outcome {
        let decider = Decider::Seeded(self.schedule.chooser(seed, turns));
        run_once(&*self.scenario, &self.options, seed, decider, (false, ahead))
    }

    fn record_seed(&self, seed: u64, turns: u32, ahead: Duration) -> Outcome {
        let decider = Decider::Noted(tape::Recorder::new(self.schedule.chooser(seed, turns)));
        run_once(&*self.scenario, &self.options, seed, decider, (true, ahead))
    }

    fn try_seed(&self, seed: u64, turns: u32) -> Option<FailedRun> {
        let outcome = self.run_seed(seed, turns, Duration::ZERO);
        let is_again = seed - self.seeds.start < FIRST_TWICE || seed % TWICE == 0 || outcome.failure.is_some();
        if is_again {
            let again = self.run_seed(seed, turns, AHEAD);
            if again.hash != outcome.hash || again.failure != outcome.failure {
                return Some(self.differs(seed, turns));
            }
        }
        let failure = outcome.failure?;
        let text = format!("seed {seed}, turn {}: {:?} does not hold: {}", failure.turn, failure.check, failure.what);
        Some(FailedRun { seed, check: failure.check, what: failure.what, turn: failure.turn, text })
    }

    /// Names the first turn in which two runs of one seed differ.
    fn differs(&self, seed: u64, turns: u32) -> FailedRun {
        let (one, other) = (self.record_seed(seed, turns, Duration::ZERO), self.record_seed(seed, turns, AHEAD));
        let first = one.records.iter().zip(&other.records).find(|(one, other)| {
            (one.process, &one.took, &one.yields, one.verdict)
                != (other.process, &other.took, &other.yields, other.verdict)
        });
        let (turn, where_) = match first {
            Some((one, other)) => {
                let who = one.process.map_or(String::from("a timer or a job"), |(pid, name)| format!("{pid} {name}"));
                let (one_did, other_did) = (one.yields.join(", "), other.yields.join(", "));
                (one.number, format!("turn {}, {who}: first {one_did}; then {other_did}", one.number))
            }
            None => (0, String::from("the runs differ, but not in what a turn takes and yields")),
        };
        let what = format!(
            "{where_}. It reads something of its own: the order of a HashMap, the real clock, own random numbers. \
             Use BTreeMap, out.now(), out.random()"
        );
        let check = String::from("a seed is one run");
        let text = format!("seed {seed}: {check:?} does not hold: {what}");
        FailedRun { seed, check, what, turn, text }
    }
}

impl SimulationReport {
    /// The number of seeds that were run.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The failure of the lowest seed that fails. `None` if all runs have succeeded.
    pub fn failed(&self) -> Option<&FailedRun> {
        self.failed.as_ref()
    }
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

    /// What the check has found.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The number of the turn after which the check failed.
    pub fn turn(&self) -> u32 {
        self.turn
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("seeds", &self.seeds)
            .field("schedule", &self.schedule)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
