//! The same random programs in a simulation: under a schedule, with faults. The laws are the same, and a monitor
//! checks that each run is one that real workers could have had.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use procession::actor::ActorProcess;
use procession::command::Responder;
use procession::observe::{DeadLetter, MetricsOptions, Observer, ProcessIdentity};
use procession::simulation::{Delivery, Fault, Faults, Simulation, World};
use procession::{BoxError, Exit, Process, Runtime};
use proptest::prelude::*;
use proptest::test_runner::Config;
use tracing::subscriber::with_default;

use crate::actor::Actor;
use crate::acts::{Do, DoSoon, Letter, Outcome};
use crate::helpers::*;
use crate::logged::Logged;
use crate::monitor::{self, Note, Part};
use crate::observations::{Observations, Owned};
use crate::otherwise::Written;
use crate::parcels::{spawn_sinks, stamp_of};
use crate::records::{Simulated, World as Records, WrittenAs};
use crate::seeded::random_programs;
use crate::traces::Traces;
use crate::{Program, act_from_outside, check, check_traces, program, spawn_roots};

/// The most virtual time that a program needs if it is not shut down.
const LONG: Duration = Duration::from_secs(3_600);

/// Of this number of programs, at least one has a fault.
const ENOUGH: u64 = 30;

/// A program, and the run of it that is simulated.
#[derive(Clone, Debug)]
struct Case {
    program: Program,
    seed: u64,
    /// The probability of each fault.
    chance: f64,
    /// Whether messages to different processes may overtake each other.
    per_pair: bool,
}

impl Case {
    fn is_logged(&self) -> bool {
        self.program.plans.len() == 2
    }

    fn has_figures(&self) -> bool {
        !self.program.step_events.is_multiple_of(3)
    }

    /// Whether the messages of some steps are traced.
    fn has_traces(&self, written_as: WrittenAs) -> bool {
        // An async process and an actor may look at an event when the next one is taken.
        matches!(written_as, WrittenAs::Machine) && self.program.step_events % 4 < 2
    }
}

/// As `Watcher`. It notes ends and dead letters among all that happens, too.
struct Notes {
    records: Arc<Records>,
    watcher: Watcher,
    logged: Option<Logged>,
}

impl Observer for Notes {
    fn spawned(&self, process: &ProcessIdentity) {
        self.watcher.spawned(process);
    }

    fn exited(&self, process: &ProcessIdentity, exit: &Exit) {
        self.records.failed(process.pid, exit);
        self.records.note(|| Note::Ended(process.pid));
        self.logged.iter().for_each(|logged| logged.observer_is_told("the end of", process.pid));
        self.watcher.exited(process, exit);
    }

    fn restarted(&self, process: &ProcessIdentity, _: &Exit) {
        self.logged.iter().for_each(|logged| logged.observer_is_told("the recovery of", process.pid));
    }

    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        self.records.observe(|seen| {
            seen.dead(letter);
            seen.balance(true)
        });
        if stamp_of(letter).is_some() {
            return self.watcher.dead_letter(letter);
        }
        letter.message::<Letter>().into_iter().for_each(|letter| self.records.forget_room(letter.number));
        self.records.note(|| match letter.message::<Letter>() {
            Some(one) => Note::Dead { number: one.number, reason: letter.reason },
            None => Note::DeadInStep(letter.to),
        });
        self.watcher.dead_letter(letter);
    }
}

/// Carries out a command, or leaves it to another process.
fn handler(records: &Arc<Records>, command: Do, done: Responder<u32>) -> Result<(), BoxError> {
    records.note(|| Note::Carried(command.of));
    match (command.outcome, &records.simulated) {
        (Outcome::Elsewhere, Some(simulated)) => {
            let owned = Owned::new(records, done.pid(), Part::Command);
            simulated.callbacks.lock().unwrap().push(done.cancel().on_cancel(move |_| drop(owned)));
            simulated.open.lock().unwrap().push(done);
        }
        (Outcome::AtOnce | Outcome::Elsewhere, _) => done.ok(1),
        (Outcome::Fails, _) => return Err("by plan".into()),
        (Outcome::Panics, _) => panic!("on purpose"),
        (Outcome::Drops, _) => {}
    }
    Ok(())
}

/// Each fault of processes of this type, with this probability.
fn faults_of<P: Process>(faults: Faults, chance: f64) -> Faults {
    faults
        .crash::<P>(chance)
        .stall::<P>(chance, Duration::from_secs(7))
        .blocking_late::<P>(chance, Duration::from_secs(7))
        .blocking_panics::<P>(chance)
}

fn faults(written_as: WrittenAs, chance: f64) -> Faults {
    // Only commands have faults here, so they have more of them.
    let chance = if let WrittenAs::AsyncProcess = written_as { 6.0 * chance } else { chance };
    let late = Fault::late(chance, Duration::from_secs(7));
    let faults = Faults::none()
        .command::<Do>(Fault::fail(chance))
        .command::<Do>(Fault::lost_before(chance))
        .command::<Do>(Fault::lost_after(chance))
        .command::<Do>(late)
        .command::<DoSoon>(Fault::never(chance))
        .command::<DoSoon>(late);
    match written_as {
        // The records of a program know the end of each step of a state machine. So they can take a step back.
        WrittenAs::Machine => faults_of::<Actor>(faults, chance).panic::<Actor>(chance),
        WrittenAs::Actor => faults_of::<ActorProcess<Written>>(faults, chance),
        WrittenAs::AsyncProcess => faults,
    }
}

/// Runs a program. Returns the number of faults that were injected.
fn run(case: &Case, written_as: WrittenAs) -> Result<u64, String> {
    // A failing run is run again. Each has traces of its own.
    let last = Arc::<Mutex<Option<Traces>>>::default();
    let (of_run, case_of_run) = (last.clone(), case.clone());
    let scenario = move |world: &World| {
        let traces = case_of_run.has_traces(written_as).then(Traces::new);
        of_run.lock().unwrap().clone_from(&traces);
        let (logged, run) = (Logged::default(), |logged| run_in(world, &case_of_run, written_as, traces, logged));
        let outcome = match case_of_run.is_logged() {
            true => with_default(logged.recorder(), || run(Some(logged.clone()))),
            false => run(None),
        };
        outcome.and_then(|()| logged.check()).map_err(BoxError::from)
    };
    let report = Simulation::new(scenario)
        .name("random programs")
        .seeds(case.seed..case.seed + 1)
        .threads(1)
        .faults(faults(written_as, case.chance))
        .delivery(if case.per_pair { Delivery::PerPair } else { Delivery::Immediate })
        .without("no step panics")
        .run();
    report.failed().map_or(Ok(()), |failed| Err(failed.report().to_owned()))?;
    last.lock().unwrap().as_ref().map_or(Ok(()), check_traces)?;
    Ok(report.faults())
}

/// Runs random programs. A few of them have no fault, but not all.
fn run_all(full: u32, written_as: WrittenAs) {
    let (programs, faults) = (Cell::new(0), Cell::new(0));
    let count = |case: &Case| {
        faults.set(faults.get() + run(case, written_as)?);
        programs.set(programs.get() + 1);
        Ok(())
    };
    random_programs(cases(full), Config::default(), case(), count);
    let (programs, faults) = (programs.get(), faults.get());
    println!("{faults} faults in {programs} programs");
    assert!(faults > 0 || programs < ENOUGH, "no fault was injected into {programs} programs");
}

fn run_in(
    world: &World,
    case: &Case,
    written_as: WrittenAs,
    traces: Option<Traces>,
    logged: Option<Logged>,
) -> Result<(), String> {
    let program = &case.program;
    let observations =
        Observations::new(world.clock(), (traces.clone(), logged.clone()), case.has_figures(), case.per_pair);
    let records = Arc::new(Records {
        written_as,
        plans: program.plans.clone(),
        simulated: Some(Simulated::new(world.clock().now(), observations)),
        ..Records::default()
    });
    let watcher = Watcher::new();
    let (of_do, of_soon) = (records.clone(), records.clone());
    let builder = match case.has_figures() {
        true => builder().metrics(MetricsOptions::new().time_one_in(1).wait_one_in(1)),
        false => builder(),
    };
    let builder = builder
        .step_events(program.step_events)
        .observer(Notes { records: records.clone(), watcher: watcher.clone(), logged })
        .handler(move |command: Do, done| handler(&of_do, command, done))
        .handler(move |command: DoSoon, done| handler(&of_soon, command.0, done));
    let builder = match traces {
        Some(traces) => builder.propagate(traces),
        None => builder,
    };
    let runtime = world.start(builder).map_err(|error| error.to_string())?;
    records.observations().into_iter().for_each(|seen| seen.observe(&runtime));
    let seen = records.clone();
    world.invariant("letters are taken, dead or waiting", move |state| {
        seen.note(|| Note::Waiting(state.messages::<Letter>().count()));
        seen.observations().into_iter().for_each(Observations::between_turns);
        Ok(())
    });
    let result = run_program(world, case, &runtime, &records, &watcher);
    // An open command holds the runtime.
    records.answer_open();
    result
}

fn run_program(
    world: &World,
    case: &Case,
    runtime: &Runtime,
    records: &Arc<Records>,
    watcher: &Watcher,
) -> Result<(), String> {
    let program = &case.program;
    if program.plans.len() == 3 {
        *records.sinks.lock().unwrap() = spawn_sinks(runtime, records)?;
    }
    spawn_roots(program, runtime, records)?;
    for (at, act) in program.outside.iter().enumerate() {
        world.run_for(Duration::from_micros(world.random(0..50))).map_err(|error| error.to_string())?;
        act_from_outside(*act, runtime, records);
        if at % 8 == 0 {
            records.observations().map_or(Ok(()), |seen| seen.check_sums(runtime))?;
            if let WrittenAs::Machine = records.written_as {
                records.check_states(&runtime.processes())?;
            }
        }
    }
    if program.rests {
        rest(world, runtime, records, watcher)?;
    }
    let report = runtime.shutdown(LONG).map_err(|error| error.to_string())?;
    records.settle_last();
    if !report.stuck.is_empty() || runtime.stats().processes != 0 {
        return Err(format!("law 9: {report}"));
    }
    if let (WrittenAs::Machine, Some(simulated)) = (records.written_as, &records.simulated) {
        monitor::check(&simulated.notes.lock().unwrap(), case.per_pair)?;
    }
    records.observations().map_or(Ok(()), |seen| seen.check(runtime, records))?;
    check(runtime, watcher, records)
}

/// Law 2, and law 6 for the living: the program comes to rest with nothing left to do.
fn rest(world: &World, runtime: &Runtime, records: &Records, watcher: &Watcher) -> Result<(), String> {
    loop {
        world.run().map_err(|error| error.to_string())?;
        if !records.answer_open() {
            break;
        }
    }
    records.settle_last();
    let processes = runtime.processes();
    let alive = records.without_idlers(processes.iter().map(|info| info.pid).collect());
    if let Some(left) = processes.iter().find(|info| info.mailbox > 0 && alive.contains(&info.pid)) {
        return Err(format!("law 2: {left:?} rests"));
    }
    let answered: HashSet<_> = records.answered.lock().unwrap().iter().copied().collect();
    let asked = records.asked.lock().unwrap();
    if let Some(open) = asked.iter().find(|question| alive.contains(&question.0) && !answered.contains(question)) {
        return Err(format!("law 6: {open:?} is open at rest"));
    }
    let ended = watcher.exits.to_vec().into_iter().collect();
    records.relations.check_at_rest(&alive, &ended)
}

fn case() -> impl Strategy<Value = Case> {
    let chance = prop_oneof![Just(0.0), Just(0.01), Just(0.05)];
    (program(), any::<u32>(), chance, any::<bool>()).prop_map(|(program, seed, chance, per_pair)| Case {
        program,
        seed: seed.into(),
        chance,
        per_pair,
    })
}

/// The number of programs: a part of the full number, unless `PROCESSION_FULL` is set.
pub fn cases(full: u32) -> u32 {
    if std::env::var_os("PROCESSION_FULL").is_some() {
        return full;
    }
    // A run has one thread, so a sanitizer sees with a few programs what it can see.
    let part = if cfg!(any(procession_sanitize_thread, procession_sanitize_address)) { 5_000 } else { 500 };
    println!("{} of {full} programs; PROCESSION_FULL=1 runs all", full / part);
    full / part
}

#[test]
fn simulated_programs_keep_the_laws() {
    run_all(70_000, WrittenAs::Machine);
}

#[test]
fn simulated_programs_of_async_processes_keep_the_laws() {
    run_all(15_000, WrittenAs::AsyncProcess);
}

#[test]
fn simulated_programs_of_actors_keep_the_laws() {
    run_all(15_000, WrittenAs::Actor);
}
