//! Ten planted bugs, each in a small system as a user would write it. Statements 33 to 42.
//!
//! Each system has a version with the bug and one without. The simulation must find the bug within a stated number of
//! seeds, in each of many disjoint batches of that size, and must find nothing in the other version.
//! `PROCESSION_FULL=1` tries the full numbers of batches and seeds.

mod asks;
mod names;
mod restarts;
mod timers;

use std::sync::OnceLock;
use std::time::Duration;

use procession::simulation::{FailedRun, Schedule, Simulation, World};
use procession::{
    Address, BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult, Tag, command::TimerFired,
};

use crate::golden::compare_report;
use crate::programs::is_full;

/// Which version of a system is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    WithBug,
    Corrected,
}

impl Version {
    fn is_corrected(self) -> bool {
        self == Version::Corrected
    }
}

/// A planted bug.
struct PlantedBug {
    system: fn(Version) -> Simulation,
    /// The invariant that it breaks.
    breaks: &'static str,
    /// The number of seeds within which it must be found.
    seeds: u64,
}

impl PlantedBug {
    /// The bug is found in each batch, and breaks its invariant.
    fn is_found_in_each_batch(&self) {
        let batches = if is_full() { 100 } else { 2 };
        for batch in 0..batches {
            let seeds = batch * self.seeds..(batch + 1) * self.seeds;
            let report = (self.system)(Version::WithBug).seeds(seeds.clone()).run();
            let Some(failed) = report.failed() else { panic!("not found by the seeds {seeds:?}") };
            assert_eq!(failed.check(), self.breaks, "seed {}: {}", failed.seed(), failed.what());
        }
    }

    /// Nothing is found in the corrected system.
    fn is_not_found_when_corrected(&self) {
        let seeds = if is_full() { 20_000 } else { 60 };
        (self.system)(Version::Corrected).seeds(0..seeds).check();
    }

    /// The lowest seed with which it is found.
    fn found(&self, name: &str) -> FailedRun {
        let report = (self.system)(Version::WithBug).seeds(0..self.seeds).name(name).run();
        report.failed().cloned().unwrap_or_else(|| panic!("{} is not found", self.breaks))
    }

    /// Prints how often the bug is found. `PROCESSION_RATES=4000` gives the number of seeds.
    fn print_rates(&self, name: &str) {
        let seeds = std::env::var("PROCESSION_RATES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_u64);
        let schedules = [Schedule::random(), Schedule::pct(2), Schedule::pos(), Schedule::mixed()];
        let mut line = format!("{name:32}");
        for schedule in schedules {
            let mut found = 0_u64;
            let mut next = 0;
            while next < seeds {
                let report = (self.system)(Version::WithBug).schedule(schedule).seeds(next..seeds).run();
                let Some(failed) = report.failed() else { break };
                assert_eq!(failed.check(), self.breaks, "seed {}: {}", failed.seed(), failed.what());
                found += 1;
                next = failed.seed() + 1;
            }
            let rate =
                if found == 0 { String::from("never") } else { format!("1 in {:.1}", seeds as f64 / found as f64) };
            line += &format!(" {schedule} {rate};");
        }
        println!("{line}");
    }
}

/// All of them, by the names of their traces.
const ALL: [(&str, &PlantedBug); 10] = [
    ("lost_at_restart", &restarts::LOST_AT_RESTART),
    ("ask_cycle", &asks::ASK_CYCLE),
    ("stale_pid", &names::STALE_PID),
    ("double_charge", &asks::DOUBLE_CHARGE),
    ("aba_of_a_name", &names::ABA_OF_A_NAME),
    ("lost_update", &asks::LOST_UPDATE),
    ("timer_after_cancel", &timers::TIMER_AFTER_CANCEL),
    ("restart_storm", &restarts::RESTART_STORM),
    ("join_after_read", &names::JOIN_AFTER_READ),
    ("back_from_the_dead", &restarts::BACK_FROM_THE_DEAD),
];

/// A system whose bug needs a fault.
pub fn back_from_the_dead(is_corrected: bool) -> Simulation {
    (restarts::BACK_FROM_THE_DEAD.system)(if is_corrected { Version::Corrected } else { Version::WithBug })
}

/// The failure of each planted bug, with the lowest seed. They are looked for once.
fn found() -> &'static [FailedRun] {
    static FOUND: OnceLock<Vec<FailedRun>> = OnceLock::new();
    FOUND.get_or_init(|| ALL.iter().map(|(name, bug)| bug.found(name)).collect())
}

/// The hashes of the runs of three systems. Statement 1: 10,000 seeds of each.
pub fn hashes() -> Vec<u64> {
    let seeds = if is_full() { 10_000 } else { 40 };
    let systems = [asks::LOST_UPDATE, names::ABA_OF_A_NAME, restarts::BACK_FROM_THE_DEAD];
    systems.map(|bug| (bug.system)(Version::Corrected).seeds(0..seeds).run().hash()).to_vec()
}

/// Each report of a planted bug is checked in. So the form of the trace is, too.
#[test]
fn the_shrunk_traces_of_the_planted_bugs_stay_the_same() {
    for ((name, _), found) in ALL.iter().zip(found()) {
        compare_report(name, found);
    }
}

/// Statement 28: at most 3 deviations and 15 turns shown in the median, 6 and 30 at most, and at most 2,000 runs.
#[test]
fn the_planted_bugs_are_shrunk_to_a_few_turns() {
    let found = found();
    let sorted = |of: &dyn Fn(&FailedRun) -> usize| {
        let mut all: Vec<usize> = found.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    let deviations = sorted(&|failed| failed.deviations().expect("it was shrunk"));
    let turns = sorted(&FailedRun::shown_turns);
    let runs = sorted(&|failed| failed.shrinking_runs() as usize);
    println!("deviations {deviations:?}, turns shown {turns:?}, runs {runs:?}");
    // With the time of each.
    let lines = found.iter().flat_map(|failed| failed.report().lines().filter(|line| line.starts_with("shrunk to")));
    lines.for_each(|line| println!("{line}"));
    assert!(deviations[0] > 0, "each bug needs a deviation: {deviations:?}");
    assert!(deviations[5] <= 3 && deviations[9] <= 6, "{deviations:?}");
    assert!(turns[5] <= 15 && turns[9] <= 30, "{turns:?}");
    assert!(runs[9] <= 2_000, "{runs:?}");
}

/// Statement 28: without any one of its deviations, a shrunk run passes, or fails another check.
#[test]
fn no_deviation_of_a_shrunk_planted_bug_can_be_left_out() {
    for ((name, bug), found) in ALL.iter().zip(found()) {
        let simulation = (bug.system)(Version::WithBug);
        let shrunk = found.shrunk().expect("it was shrunk");
        assert_eq!(simulation.failing_check(&shrunk).as_deref(), Some(bug.breaks), "{name}");
        for part in found.without_one_deviation() {
            assert_ne!(simulation.failing_check(&part).as_deref(), Some(bug.breaks), "{name}: {part} of {shrunk}");
        }
    }
}

/// Prints the table of the rates. It asserts only that a bug that is found breaks its invariant.
#[test]
#[ignore = "it measures"]
fn rates_of_the_planted_bugs() {
    restarts::LOST_AT_RESTART.print_rates("33 lost at restart");
    asks::ASK_CYCLE.print_rates("34 ask cycle");
    names::STALE_PID.print_rates("35 stale PID");
    asks::DOUBLE_CHARGE.print_rates("36 double charge");
    names::ABA_OF_A_NAME.print_rates("37 ABA of a name");
    asks::LOST_UPDATE.print_rates("38 lost update");
    timers::TIMER_AFTER_CANCEL.print_rates("39 timer after cancel");
    restarts::RESTART_STORM.print_rates("40 restart storm");
    names::JOIN_AFTER_READ.print_rates("41 split of join and send");
    restarts::BACK_FROM_THE_DEAD.print_rates("42 back from the dead");
}

/// Starts the runtime of a system, with three processes that have no part in the bug: two clerks, and the journal to
/// which they write.
fn start(world: &World) -> Result<Runtime, BoxError> {
    let runtime = world.start(Runtime::builder())?;
    let journal = runtime.spawn_with(Journal::default(), procession::SpawnOptions::new().name("journal"))?.address();
    for _ in 0..2 {
        runtime.spawn(Clerk { journal, left: 4, timer: None })?;
    }
    Ok(runtime)
}

/// Writes down what it is sent.
#[derive(Default)]
struct Journal {
    lines: Vec<String>,
}

impl Process for Journal {
    type Message = String;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, String>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(line) => self.lines.push(line),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Writes some lines to the journal, with pauses.
struct Clerk {
    journal: Address<String>,
    left: u32,
    timer: Option<Tag<TimerFired>>,
}

impl Process for Clerk {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => self.timer = None,
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        if self.timer.is_some() {
            return Ok(Step::Idle);
        }
        if self.left == 0 {
            return Ok(Step::Done(()));
        }
        self.left -= 1;
        out.send(self.journal, format!("{} lines are left", self.left));
        if self.left.is_multiple_of(2) {
            return Ok(Step::Continue);
        }
        self.timer = Some(out.after(Duration::from_millis(1)));
        Ok(Step::Idle)
    }
}
