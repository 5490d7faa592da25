//! A simulation: a scenario, and the runs of it that are tried.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use super::coverage::Coverage;
use super::decider::Decider;
use super::failure::Failure;
use super::faults::Faults;
use super::one_run::{Outcome, RunOptions, Scenario, run_once};
use super::progress::Progress;
use super::recorder::TurnRecord;
use super::regressions::{Regression, Regressions};
use super::replay_seed::ReplaySeed;
use super::report::{SEED_VARIABLE, TRACE_VARIABLE, report};
use super::schedule::Schedule;
use super::shared::Limits;
use super::shrink::{self, shrink};
use super::tape::{self, Replayed, Tape};
use super::told::trace_of;
use super::trace::{self, Finding, ShrunkRun};
use super::world::World;
use crate::clock::Clock;
use crate::outcome::BoxError;
use crate::primitives::{AtomicU64, Mutex, Ordering, lock, thread};

/// The version of the crate.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// How often a seed is run again to find the first turn in which two runs differ.
const MOST_COMPARISONS: u32 = 64;

/// The most runs that shrinking takes.
const MOST_SHRINKING_RUNS: u32 = 2_000;

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
    name: Option<String>,
}

/// A run that has failed.
#[derive(Clone, Debug)]
pub struct FailedRun {
    seed: u64,
    check: String,
    what: String,
    turn: u32,
    shrunk: Option<ReplaySeed>,
    /// The number of deviations of the shrunk run.
    deviations: Option<usize>,
    shrinking_runs: u32,
    /// The number of turns of the shrunk run until the failure.
    shown_turns: u32,
    text: String,
}

/// How a seed has failed.
enum Failed {
    Check(Failure),
    /// Two runs of it were different.
    Differs,
}

/// The result of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationReport {
    runs: u64,
    distinct: u64,
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
            name: None,
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

    /// Sets the name, which the report and the regression file have. The default is the name of the calling thread:
    /// the path of the test.
    pub fn name(mut self, name: impl Into<String>) -> Simulation {
        self.name = Some(name.into());
        self
    }

    /// Runs all seeds. Those of the regression file come first.
    ///
    /// A failure is added to the file `simulation-regressions/NAME.txt` of the package. With the environment variable
    /// `PROCESSION_SEED`, only that seed is run, or that shrunk run. With `PROCESSION_TRACE=full`, the report shows all
    /// turns.
    ///
    /// # Panics
    /// A run has failed. The message is the report, with the lowest seed that fails. It also panics if the environment
    /// variable or the regression file cannot be read.
    pub fn check(self) {
        let turns = match self.run_dull() {
            Ok(turns) => turns,
            Err(failed) => panic!("{}", failed.text),
        };
        if let Ok(text) = std::env::var(SEED_VARIABLE) {
            match text.parse::<ReplaySeed>() {
                Ok(seed) => match self.replay(&seed, turns) {
                    Some(failed) => panic!("{}", failed.text),
                    None => return eprintln!("simulation `{}`: seed {seed} passes", self.shown_name()),
                },
                Err(error) => panic!("{SEED_VARIABLE}: {error}"),
            }
        }
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        let mut regressions = match Regressions::load(&package, &self.shown_name()) {
            Ok(regressions) => regressions,
            Err(error) => panic!("{error}"),
        };
        for regression in regressions.entries() {
            match self.replay(&regression.seed, turns) {
                Some(failed) => panic!("{}", failed.text),
                None => eprintln!("{}", regressions.passes_again(regression)),
            }
        }
        let Some(failed) = self.explore(turns).failed else { return };
        let seed = failed.shrunk.clone().unwrap_or(ReplaySeed { seed: failed.seed, tape: None });
        let regression = Regression { seed, check: failed.check.clone(), version: VERSION.to_owned() };
        match regressions.add(regression) {
            Ok(_) => panic!("{}", failed.text),
            Err(error) => panic!("{}\n{error}", failed.text),
        }
    }

    /// Runs all seeds, and returns what was found. The first failure ends it: that of the lowest seed. Neither
    /// environment variables nor regression files count.
    pub fn run(self) -> SimulationReport {
        let turns = self.run_tape(0, &Tape::default(), 0).turns;
        self.explore(turns)
    }

    fn shown_name(&self) -> String {
        let thread = thread::current();
        let name = self.name.as_deref().or(thread.name()).unwrap_or("simulation");
        name.rsplit("::").next().unwrap_or(name).to_owned()
    }

    /// Runs all seeds. `turns` is the number of turns of the run without deviations.
    fn explore(&self, turns: u32) -> SimulationReport {
        let lowest = AtomicU64::new(u64::MAX);
        let next = AtomicU64::new(self.seeds.start);
        let total = self.seeds.end.saturating_sub(self.seeds.start);
        let seen = Mutex::new((Coverage::default(), Progress::new(&self.shown_name(), total), BTreeMap::new()));
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
        let works = || {
            loop {
                // Ordering: Relaxed: the numbers only have to be unique.
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= self.seeds.end || seed > lowest.load(Ordering::Relaxed) {
                    return;
                }
                let (order, failed) = self.try_seed(seed, turns);
                let (coverage, progress, failures) = &mut *lock(&seen);
                coverage.count(order);
                progress.show(coverage);
                if let Some(failed) = failed {
                    lowest.fetch_min(seed, Ordering::Relaxed);
                    failures.insert(seed, failed);
                }
            }
        };
        thread::scope(|scope| {
            (1..threads.max(1)).for_each(|_| _ = scope.spawn(works));
            works();
        });
        let (coverage, _, failures) = &*lock(&seen);
        let failed = failures.first_key_value().map(|(seed, failed)| match failed {
            Failed::Check(failure) => {
                let seed = ReplaySeed { seed: *seed, tape: None };
                self.describe(&seed, failure, turns, coverage)
            }
            Failed::Differs => self.differs(*seed, turns),
        });
        SimulationReport { runs: coverage.runs(), distinct: coverage.distinct(), failed }
    }

    /// Runs the scenario without any deviation. Returns the number of turns.
    fn run_dull(&self) -> Result<u32, Box<FailedRun>> {
        let outcome = self.run_tape(0, &Tape::default(), 0);
        match &outcome.failure {
            None => Ok(outcome.turns),
            Some(failure) => {
                let seed = ReplaySeed { seed: 0, tape: Some(Tape::default()) };
                Err(Box::new(self.describe(&seed, failure, outcome.turns, &Coverage::default())))
            }
        }
    }

    fn run_tape(&self, seed: u64, tape: &Tape, turns: u32) -> Outcome {
        let decider = Decider::Replayed(Replayed::new(tape, turns));
        run_once(&*self.scenario, &self.options, seed, decider, (false, Duration::ZERO))
    }

    fn run_seed(&self, seed: u64, turns: u32, ahead: Duration) -> Outcome {
        let decider = Decider::Seeded(self.schedule.chooser(seed, turns));
        run_once(&*self.scenario, &self.options, seed, decider, (false, ahead))
    }

    fn record_seed(&self, seed: u64, turns: u32, ahead: Duration) -> Outcome {
        let decider = Decider::Noted(tape::Recorder::new(self.schedule.chooser(seed, turns)));
        run_once(&*self.scenario, &self.options, seed, decider, (true, ahead))
    }

    /// Runs a seed, perhaps twice. Returns the name of its partial order, and the failure.
    fn try_seed(&self, seed: u64, turns: u32) -> (u64, Option<Failed>) {
        let outcome = self.run_seed(seed, turns, Duration::ZERO);
        let is_again = seed - self.seeds.start < FIRST_TWICE || seed.is_multiple_of(TWICE) || outcome.failure.is_some();
        if is_again {
            let again = self.run_seed(seed, turns, AHEAD);
            if again.hash != outcome.hash || again.failure != outcome.failure {
                return (outcome.order, Some(Failed::Differs));
            }
        }
        (outcome.order, outcome.failure.map(Failed::Check))
    }

    /// Runs one seed, or one shrunk run.
    fn replay(&self, seed: &ReplaySeed, turns: u32) -> Option<FailedRun> {
        let failure = match &seed.tape {
            Some(tape) => self.run_tape(seed.seed, tape, turns).failure?,
            None => match self.try_seed(seed.seed, turns).1? {
                Failed::Check(failure) => failure,
                Failed::Differs => return Some(self.differs(seed.seed, turns)),
            },
        };
        Some(self.describe(seed, &failure, turns, &Coverage::default()))
    }

    /// Shrinks a failed run, and describes it.
    fn describe(&self, seed: &ReplaySeed, failure: &Failure, turns: u32, coverage: &Coverage) -> FailedRun {
        let (clock, began) = (Clock::system(), Clock::system().now());
        let recorded = self.record_seed(seed.seed, turns, Duration::ZERO);
        let tape = seed.tape.clone().unwrap_or(recorded.tape);
        let is_same = |outcome: &Outcome| outcome.failure.as_ref().is_some_and(|other| other.check == failure.check);
        // If the tape alone does not fail in the same way, the run is shown as it was.
        let shrunk = is_same(&self.run_tape(seed.seed, &tape, turns)).then(|| {
            shrink(&tape, MOST_SHRINKING_RUNS, |tape| {
                let outcome = self.run_tape(seed.seed, tape, turns);
                match &outcome.failure {
                    None => shrink::Verdict::Passes,
                    Some(_) if is_same(&outcome) => shrink::Verdict::Same,
                    Some(_) => shrink::Verdict::Other,
                }
            })
        });
        let shown = shrunk.as_ref().map(|shrunk| {
            let decider = Decider::ReplayNoted(tape::Recorder::new(Replayed::new(&shrunk.tape, turns)));
            run_once(&*self.scenario, &self.options, seed.seed, decider, (true, Duration::ZERO))
        });
        let (records, last) = match shown {
            Some(shown) => (shown.records, shown.failure.as_ref().map_or(failure.turn, |failure| failure.turn)),
            None => (recorded.records, failure.turn),
        };
        let records: Vec<_> = records.into_iter().filter(|record| record.number <= last).collect();
        let shrunk_seed = shrunk.as_ref().map(|shrunk| ReplaySeed { seed: seed.seed, tape: Some(shrunk.tape.clone()) });
        let deviations = shrunk.as_ref().map(|shrunk| shrunk.tape.deviations.len());
        let told = trace::Failure {
            name: self.shown_name(),
            seed: seed.clone(),
            turn: u64::from(failure.turn),
            run: coverage.runs().max(1),
            runs: self.seeds.end.saturating_sub(self.seeds.start).max(1),
            schedule: self.schedule.of_seed(seed.seed).to_string(),
            faults: u64::from(recorded.injected),
            version: VERSION.to_owned(),
            finding: Finding { check: failure.check.clone(), kind: failure.kind, detail: failure.what.clone() },
            shrunk: shrunk.as_ref().zip(shrunk_seed.clone()).map(|(shrunk, seed)| ShrunkRun {
                seed,
                runs: u64::from(shrunk.runs),
                took: clock.now().saturating_duration_since(began),
                is_minimal: shrunk.is_minimal,
            }),
            trace: trace_of(records),
            coverage: coverage.clone(),
        };
        let is_full = std::env::var(TRACE_VARIABLE).is_ok_and(|value| value == "full");
        FailedRun {
            seed: seed.seed,
            check: failure.check.clone(),
            what: failure.what.clone(),
            turn: failure.turn,
            shrunk: shrunk_seed,
            deviations,
            shrinking_runs: shrunk.map_or(0, |shrunk| shrunk.runs),
            shown_turns: last,
            text: report(&told, is_full),
        }
    }

    /// Names the first turn in which two runs of one seed differ.
    fn differs(&self, seed: u64, turns: u32) -> FailedRun {
        let one = self.record_seed(seed, turns, Duration::ZERO);
        // Two more runs may be the same by chance.
        let others = (1..=MOST_COMPARISONS).map(|times| self.record_seed(seed, turns, AHEAD * times));
        let first = others.filter_map(|other| first_difference(&one.records, &other.records)).next();
        let (turn, where_) = match first {
            Some((number, who, one, other)) => (number, format!("turn {number}, {who}: first {one}; then {other}")),
            None => (0, String::from("the runs differ, but not in what a turn takes and yields")),
        };
        let what = format!(
            "{where_}. It reads something of its own: the order of a HashMap, the real clock, own random numbers. \
             Use BTreeMap, out.now(), out.random()"
        );
        let check = String::from("a seed is one run");
        let text = format!("seed {seed}: {check:?} does not hold: {what}");
        FailedRun {
            seed,
            check,
            what,
            turn,
            shrunk: None,
            deviations: None,
            shrinking_runs: 0,
            shown_turns: turn,
            text,
        }
    }
}

/// The number of the first turn that differs, its process, and its yields in both runs.
fn first_difference(one: &[TurnRecord], other: &[TurnRecord]) -> Option<(u32, String, String, String)> {
    let told = |record: &TurnRecord| (record.process, record.took.clone(), record.yields.clone(), record.verdict);
    let (one, other) = one.iter().zip(other).find(|(one, other)| told(one) != told(other))?;
    let who = one.process.map_or(String::from("a timer or a job"), |(pid, name)| format!("{pid} {name}"));
    Some((one.number, who, one.yields.join(", "), other.yields.join(", ")))
}

impl SimulationReport {
    /// The number of seeds that were run.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The number of distinct interleavings among the runs.
    pub fn distinct(&self) -> u64 {
        self.distinct
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

    /// The finding of the check.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// The report: the check, the shrunk run as a table, and how to run it again.
    pub fn report(&self) -> &str {
        &self.text
    }

    /// The seed with the shrunk run, as the environment variable `PROCESSION_SEED` takes it. `None` if the run could
    /// not be shrunk.
    pub fn shrunk(&self) -> Option<String> {
        self.shrunk.as_ref().map(ToString::to_string)
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
        self.shown_turns
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
