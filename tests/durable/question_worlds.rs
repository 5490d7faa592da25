//! Stored questions in simulated worlds that kill and whose disks fail.

use std::time::Duration;

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::simulation::{Faults, Simulation, World};
use procession::{BoxError, Runtime};

use crate::clerk::{Clerk, ClerkMessage, Price, in_a_row};
use crate::places::store_in;
use crate::script::counts;

/// By the clock of the world.
const LIMIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

const OTHERS: usize = 6;

/// Tries something that the disk may refuse. If it refuses for long, the program is started again.
fn persist<T>(world: &World, mut attempt: impl FnMut() -> Option<T>) -> Result<T, BoxError> {
    for _ in 0..30 {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        world.run_for(SECOND)?;
    }
    world.kill()
}

/// One run of a program in which one process asks the others, and all sleep if they rest.
fn ask_all(world: &World, disk: &MemoryDisk) -> Result<(), BoxError> {
    let store = || store_in(MemoryJournal::new(disk)).kind::<Clerk>().answers::<Price>("price");
    let store = || store().sleep_after(Duration::from_millis(300));
    let (store, runtime) = persist(world, || world.start_store(store(), Runtime::builder()).ok())?;
    let mut all = Vec::new();
    for id in 0..=OTHERS {
        let begin = || store.begin(&id.to_string(), Clerk::default()).ok().filter(|begun| begun.wait(LIMIT).is_ok());
        all.push(persist(world, begin)?.address());
    }
    let asker = all.remove(0);
    let ask = || store.send_once(asker, "ask", ClerkMessage::InARow(all.clone(), true)).ok()?.wait(LIMIT).ok();
    persist(world, ask)?;
    let notes = |enough: usize| {
        let notes = runtime.ask(asker, ClerkMessage::Look, LIMIT).wait().ok();
        notes.filter(|notes| notes.len() >= enough)
    };
    persist(world, || notes(OTHERS))?;
    // If an answer comes twice, it has come by then.
    world.run_for(SECOND * 10)?;
    let notes = persist(world, || notes(OTHERS))?;
    let expected = in_a_row(OTHERS, true);
    if notes == expected { Ok(()) } else { Err(format!("{notes:?} and not {expected:?}").into()) }
}

#[track_caller]
fn passes(simulation: Simulation) {
    let report = simulation.run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// The most records of the program, about.
const RECORDS: u64 = 60;

#[test]
fn a_kill_behind_any_record_leaves_each_question_one_answer() {
    passes(
        Simulation::new(|world| {
            let disk = MemoryDisk::with_seed(world.seed());
            world.kill_behind_commit(world.seed() % RECORDS);
            world.program(|_| ask_all(world, &disk))
        })
        .seeds(0..RECORDS * counts("rounds", 1, 50)),
    );
}

#[test]
fn each_question_is_answered_once_in_worlds_that_kill() {
    let faults = Faults::none()
        .kill(0.01)
        .disk(Fault::Error, 0.02)
        .disk(Fault::Full, 0.02)
        .disk(Fault::Crash, 0.01)
        .disk(Fault::CrashBehind, 0.01)
        .at_most(8);
    let program = |world: &World| {
        let disk = MemoryDisk::with_seed(world.seed());
        world.program(|_| ask_all(world, &disk))
    };
    passes(Simulation::new(program).faults(faults).seeds(0..counts("seeds", 200, 2_000)));
}
