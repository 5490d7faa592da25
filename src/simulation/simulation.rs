//! A simulation: a scenario, and the runs of it that are tried.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::time::Duration;

use super::coverage::Coverage;
use super::decider::Decider;
use super::delivery::Delivery;
use super::failed_run::FailedRun;
use super::failure::Failure;
use super::faults::Faults;
use super::fold::Fold;
use super::one_run::{Outcome, RunOptions, Scenario, run_once};
use super::progress::Progress;
use super::recorder::TurnRecord;
use super::regressions::{Regression, Regressions};
use super::replay_seed::ReplaySeed;
use super::report::{SEED_VARIABLE, TRACE_VARIABLE, again, report, shown_turns, table};
use super::schedule::Schedule;
use super::shared::{INVARIANTS_CHANGE_NOTHING, Limits};
use super::shrink::{self, shrink};
use super::tape::{self, Replayed, Tape};
use super::trace::{self, Finding, FindingKind, RunNumber, ShrunkRun};
use super::trace_builder::{trace_of, who};
use super::world::World;
use crate::clock::Clock;
use crate::outcome::BoxError;
use crate::primitives::{Arc, AtomicU64, Mutex, Ordering, lock, thread};

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

/// The checks that can be switched off.
const CAN_BE_OFF: [&str; 5] = [
    "no step panics",
    "no process waits for what cannot come",
    "every message is accounted for",
    "every shutdown is clean",
    INVARIANTS_CHANGE_NOTHING,
];

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

/// The result of a seed.
struct Run {
    hash: u64,
    /// The name of its partial order.
    order: u64,
    injected: u32,
    failed: Option<Failed>,
}

/// The runs that were tried, in the order of their seeds. So the number of threads does not matter.
struct Tried {
    coverage: Coverage,
    progress: Progress,
    /// The lowest seed that is not counted yet.
    next: u64,
    /// The hash of the runs that are counted.
    hash: Fold,
    /// The faults of the runs that are counted.
    faults: u64,
    /// Runs that are not counted yet, because one of a lower seed is not over.
    later: BTreeMap<u64, Run>,
    /// The lowest seed that has failed. No run after it is counted.
    failed: Option<(u64, Failed)>,
}

impl Tried {
    fn new(first: u64, progress: Progress) -> Tried {
        Tried {
            coverage: Coverage::default(),
            progress,
            next: first,
            hash: Fold::default(),
            faults: 0,
            later: BTreeMap::new(),
            failed: None,
        }
    }

    fn add(&mut self, seed: u64, run: Run) {
        self.later.insert(seed, run);
        while self.failed.is_none()
            && let Some(run) = self.later.remove(&self.next)
        {
            self.coverage.count(run.order);
            self.hash.add(&[run.hash]);
            self.faults += u64::from(run.injected);
            self.progress.show(&self.coverage);
            self.failed = run.failed.map(|failed| (self.next, failed));
            self.next += 1;
        }
    }
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
    last_new: u64,
    hash: u64,
    faults: u64,
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
                delivery: Delivery::default(),
                without: Vec::new(),
                formatter: Arc::default(),
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

    /// Shows the content of the messages of this type in the trace of a failed run, by its [`Debug`](std::fmt::Debug).
    ///
    /// This also applies to the values of replies. Without it, a trace has the name of the type.
    pub fn show<M: std::fmt::Debug + 'static>(mut self) -> Simulation {
        Arc::make_mut(&mut self.options.formatter).add::<M>();
        self
    }

    /// Sets when messages reach other processes. The default is [`Delivery::Immediate`].
    pub fn delivery(mut self, delivery: Delivery) -> Simulation {
        self.options.delivery = delivery;
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

    /// Switches off a check that is always made: `"no step panics"`, `"no process waits for what cannot come"`,
    /// `"every message is accounted for"`, `"every shutdown is clean"`, or `"invariants change nothing"`.
    ///
    /// # Panics
    /// No check that can be switched off has this name.
    pub fn without(mut self, check: impl Into<String>) -> Simulation {
        let check = check.into();
        assert!(CAN_BE_OFF.contains(&&*check), "{check:?} cannot be switched off: expected one of {CAN_BE_OFF:?}");
        self.options.without.push(check);
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
        let package = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(PathBuf::new, PathBuf::from);
        let turns = match self.run_dull() {
            Ok(turns) => turns,
            Err(failed) => match Regressions::load(&package, &self.shown_name()) {
                Ok(regressions) => keep_and_panic(regressions, &failed),
                Err(error) => panic!("{}\n{error}", failed.text),
            },
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
        let regressions = match Regressions::load(&package, &self.shown_name()) {
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
        keep_and_panic(regressions, &failed)
    }

    /// Runs all seeds, and returns what was found. The first failure ends it: that of the lowest seed. Neither
    /// environment variables nor regression files count.
    pub fn run(self) -> SimulationReport {
        let turns = self.run_tape(0, &Tape::default(), 0).turns;
        self.explore(turns)
    }

    /// Runs a shrunk run of a report once, without a report. Returns the name of the check that fails. For tests.
    #[doc(hidden)]
    pub fn failing_check(&self, shrunk: &str) -> Option<String> {
        let seed: ReplaySeed = shrunk.parse().ok()?;
        let turns = self.run_tape(0, &Tape::default(), 0).turns;
        self.run_tape(seed.seed, &seed.tape?, turns).failure.map(|failure| failure.check)
    }

    /// The name that was set, or else that of the test.
    fn shown_name(&self) -> String {
        self.name.clone().or_else(test_name).unwrap_or_else(|| String::from("simulation"))
    }

    /// Runs all seeds. `turns` is the number of turns of the run without deviations.
    fn explore(&self, turns: u32) -> SimulationReport {
        let lowest = AtomicU64::new(u64::MAX);
        let total = self.seeds.end.saturating_sub(self.seeds.start);
        let next = AtomicU64::new(0);
        let tried = Mutex::new(Tried::new(self.seeds.start, Progress::new(&self.shown_name(), total)));
        let threads = self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, NonZeroUsize::get));
        let works = || {
            loop {
                // Ordering: Relaxed: the numbers only have to be unique.
                let nth = next.fetch_add(1, Ordering::Relaxed);
                if nth >= total {
                    return;
                }
                let seed = self.seeds.start + nth;
                if seed > lowest.load(Ordering::Relaxed) {
                    return;
                }
                let run = self.try_seed(seed, turns);
                if run.failed.is_some() {
                    lowest.fetch_min(seed, Ordering::Relaxed);
                }
                lock(&tried).add(seed, run);
            }
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..threads.max(1)).map(|_| scope.spawn(works)).collect();
            works();
            // The end of the scope would wait, too. But the thread sanitizer sees a join only.
            for other in others {
                other.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        let Tried { coverage, failed, hash, faults, .. } = &*lock(&tried);
        let failed = failed.as_ref().map(|(seed, failed)| match failed {
            Failed::Check(failure) => {
                let run = RunNumber { run: coverage.runs(), of: total, coverage: coverage.clone() };
                self.describe(&ReplaySeed { seed: *seed, tape: None }, failure, turns, Some(run))
            }
            Failed::Differs => self.differs(*seed, turns),
        });
        SimulationReport {
            runs: coverage.runs(),
            distinct: coverage.distinct(),
            last_new: coverage.last_new(),
            hash: hash.value(),
            faults: *faults,
            failed,
        }
    }

    /// Runs the scenario without any deviation. Returns the number of turns.
    fn run_dull(&self) -> Result<u32, Box<FailedRun>> {
        let outcome = self.run_tape(0, &Tape::default(), 0);
        match &outcome.failure {
            None => Ok(outcome.turns),
            Some(failure) => {
                let seed = ReplaySeed { seed: 0, tape: Some(Tape::default()) };
                Err(Box::new(self.describe(&seed, failure, outcome.turns, None)))
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

    fn record_tape(&self, seed: u64, tape: &Tape, turns: u32) -> Outcome {
        let decider = Decider::ReplayNoted(tape::Recorder::new(Replayed::new(tape, turns)));
        run_once(&*self.scenario, &self.options, seed, decider, (true, Duration::ZERO))
    }

    /// Runs a seed, perhaps twice.
    fn try_seed(&self, seed: u64, turns: u32) -> Run {
        let run_of = |Outcome { hash, order, injected, .. }, failed| Run { hash, order, injected, failed };
        let mut outcome = self.run_seed(seed, turns, Duration::ZERO);
        // A seed that is run again may be outside of the range.
        let is_one_of_first = seed.checked_sub(self.seeds.start).is_none_or(|nth| nth < FIRST_TWICE);
        let is_again = is_one_of_first || seed.is_multiple_of(TWICE) || outcome.failure.is_some();
        if is_again {
            let again = self.run_seed(seed, turns, AHEAD);
            if again.hash != outcome.hash || again.failure != outcome.failure {
                return run_of(outcome, Some(Failed::Differs));
            }
        }
        let failed = outcome.failure.take().map(Failed::Check);
        run_of(outcome, failed)
    }

    /// Runs one seed, or one shrunk run.
    fn replay(&self, seed: &ReplaySeed, turns: u32) -> Option<FailedRun> {
        let failure = match &seed.tape {
            Some(tape) => self.run_tape(seed.seed, tape, turns).failure?,
            None => match self.try_seed(seed.seed, turns).failed? {
                Failed::Check(failure) => failure,
                Failed::Differs => return Some(self.differs(seed.seed, turns)),
            },
        };
        Some(self.describe(seed, &failure, turns, None))
    }

    /// Shrinks a failed run, and describes it.
    fn describe(&self, seed: &ReplaySeed, failure: &Failure, turns: u32, run: Option<RunNumber>) -> FailedRun {
        let (clock, began) = (Clock::system(), Clock::system().now());
        let recorded = match &seed.tape {
            Some(tape) => self.record_tape(seed.seed, tape, turns),
            None => self.record_seed(seed.seed, turns, Duration::ZERO),
        };
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
        let shown = shrunk.as_ref().map(|shrunk| self.record_tape(seed.seed, &shrunk.tape, turns));
        // The finding is that of the run whose turns are shown.
        let (records, found) = match shown {
            Some(Outcome { records, failure: Some(found), .. }) => (records, found),
            Some(Outcome { records, .. }) => (records, failure.clone()),
            None => (recorded.records, failure.clone()),
        };
        let last = found.turn;
        let records: Vec<_> = records.into_iter().filter(|record| record.number <= last).collect();
        let shrunk_seed = shrunk.as_ref().map(|shrunk| ReplaySeed { seed: seed.seed, tape: Some(shrunk.tape.clone()) });
        let deviations = shrunk.as_ref().map(|shrunk| shrunk.tape.deviations.len());
        let told = trace::Failure {
            name: self.shown_name(),
            test: test_name(),
            seed: seed.clone(),
            turn: u64::from(failure.turn),
            run,
            schedule: match &seed.tape {
                Some(tape) if tape.deviations.is_empty() => String::from("the run without deviations"),
                Some(_) => String::from("replayed"),
                None => self.schedule.of_seed(seed.seed).to_string(),
            },
            faults: u64::from(recorded.injected),
            version: VERSION.to_owned(),
            finding: found.finding(),
            shrunk: shrunk.as_ref().zip(shrunk_seed.clone()).map(|(shrunk, seed)| ShrunkRun {
                seed,
                runs: u64::from(shrunk.runs),
                took: clock.now().saturating_duration_since(began),
                is_minimal: shrunk.is_minimal,
            }),
            trace: trace_of(records),
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
            turns: last,
            shown_turns: shown_turns(&told.trace),
            table: table(&told.trace, is_full),
            text: report(&told, is_full),
        }
    }

    /// Names the first turn in which two runs of one seed differ.
    fn differs(&self, seed: u64, turns: u32) -> FailedRun {
        let one = self.record_seed(seed, turns, Duration::ZERO);
        let mut findings = None;
        // Two more runs may be the same by chance.
        let others = (1..=MOST_COMPARISONS).map(|times| self.record_seed(seed, turns, AHEAD * times));
        let mut differences = others.filter_map(|other| {
            if one.failure != other.failure {
                findings.get_or_insert_with(|| (finding_of(&one), finding_of(&other)));
            }
            first_difference(&one.records, &other.records)
        });
        let first = differences.next();
        drop(differences);
        let (turn, where_) = match (first, findings) {
            (Some((number, who, one, other)), _) => {
                (number, format!("turn {number}, {who}: first {one}; then {other}"))
            }
            (None, Some((one, other))) => (0, format!("the runs differ in what they find: first {one}; then {other}")),
            (None, None) => (0, String::from("the runs differ, but not in what a turn takes and yields")),
        };
        let what = format!(
            "{where_}. It reads something of its own: the order of a HashMap, the real clock, own random numbers. \
             Use BTreeMap, out.now(), out.random()"
        );
        let check = String::from("a seed is one run");
        let name = self.shown_name();
        let text = format!(
            "simulation `{name}` failed at seed {seed}, turn {turn} ({}; version {VERSION})\n  \
             {}\nagain:   {}\n",
            self.schedule.of_seed(seed),
            Finding { check: check.clone(), kind: FindingKind::Failed, detail: what.clone() },
            again(test_name().as_deref(), &ReplaySeed { seed, tape: None }),
        );
        FailedRun {
            seed,
            check,
            what,
            turn,
            shrunk: None,
            deviations: None,
            shrinking_runs: 0,
            turns: turn,
            shown_turns: 0,
            table: String::new(),
            text,
        }
    }
}

/// Adds a failure to the regression file. Then it panics with the report.
fn keep_and_panic(mut regressions: Regressions, failed: &FailedRun) -> ! {
    let seed = failed.shrunk.clone().unwrap_or(ReplaySeed { seed: failed.seed, tape: None });
    let regression = Regression { seed, check: failed.check.clone(), version: VERSION.to_owned() };
    match regressions.add(regression) {
        Ok(_) => panic!("{}", failed.text),
        Err(error) => panic!("{}\n{error}", failed.text),
    }
}

/// The path of the test that the calling thread runs.
fn test_name() -> Option<String> {
    thread::current().name().filter(|name| *name != "main").map(str::to_owned)
}

/// The finding of a run, in words.
fn finding_of(outcome: &Outcome) -> String {
    outcome.failure.as_ref().map_or_else(|| String::from("nothing"), |failure| failure.finding().to_string())
}

/// The number of the first turn that differs, its process, and its yields in both runs.
fn first_difference(one: &[TurnRecord], other: &[TurnRecord]) -> Option<(u32, String, String, String)> {
    let told =
        |record: &TurnRecord| (record.subject.clone(), record.took.clone(), record.yields.clone(), record.verdict);
    let (one, other) = one.iter().zip(other).find(|(one, other)| told(one) != told(other))?;
    let who = who(one);
    Some((one.number, who, one.yields.join(", "), other.yields.join(", ")))
}

impl SimulationReport {
    /// The number of seeds that were run, up to the first that failed.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The number of distinct interleavings among the runs.
    pub fn distinct(&self) -> u64 {
        self.distinct
    }

    /// The number of the run that brought the last new interleaving. The first run is 1. It is 0 if there was no run.
    pub fn last_new_run(&self) -> u64 {
        self.last_new
    }

    /// A hash of all runs: of all their choices, events, yields and times. It is the same wherever this code runs.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// The number of faults that were injected into all runs. If it is 0, no rule of the [`Faults`] has applied: check
    /// its type and its probability.
    pub fn faults(&self) -> u64 {
        self.faults
    }

    /// The failure of the lowest seed that fails. `None` if all runs have succeeded.
    pub fn failed(&self) -> Option<&FailedRun> {
        self.failed.as_ref()
    }
}

impl std::fmt::Debug for Simulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulation")
            .field("seeds", &self.seeds)
            .field("schedule", &self.schedule)
            .field("faults", &self.options.faults)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::process::{Events, Process, Step, StepOutput, StepResult};
    use crate::runtime::Runtime;

    struct Plain;

    impl Process for Plain {
        type Message = ();
        type Output = ();

        fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
            events.for_each(drop);
            Ok(Step::Idle)
        }
    }

    #[test]
    fn only_a_run_that_is_to_be_shown_keeps_its_turns() {
        let simulation = Simulation::new(|world| {
            let runtime = world.start(Runtime::builder())?;
            (0..3).try_for_each(|_| runtime.spawn(Plain).map(drop))?;
            world.run()
        });
        for seed in 0..10 {
            let plain = simulation.run_seed(seed, 0, Duration::ZERO);
            let recorded = simulation.record_seed(seed, 0, Duration::ZERO);
            assert!(plain.records.is_empty() && plain.tape == Tape::default());
            assert!(!recorded.records.is_empty());
            assert_eq!(plain.hash, recorded.hash);
        }
    }
}
