//! Random programs of durable processes in simulated worlds: kills after each record, and a disk that fails.

use std::time::Duration;

use procession::durable::journal::{Fault, JournalError, MemoryDisk, MemoryJournal};
use procession::durable::{Store, StoreError};
use procession::simulation::{Faults, Simulation, World};
use procession::{Address, BoxError, Runtime};

use crate::neighbours::{Partner, PartnerMessage};
use crate::operators::{answer_later, check_end, check_ties, end_hermit, give_orders, is_killed_behind};
use crate::places::store_in;
use crate::script::{counts, draw};
use crate::town::{self, Child, Citizen, HERMIT, Note, Report, outside};

/// By the clock of the world.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A time in which everything is done, with all pauses.
const LONG: Duration = Duration::from_secs(600);

/// After so many rounds of the operator, everything is done. Each of the 12 faults may cost a round, and a payment that
/// is made late is answered in the next round.
const ROUNDS: u64 = 20;

/// Tries something that the disk may refuse. If it refuses for long, the program is started again.
fn persist<T, E>(world: &World, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, BoxError> {
    for _ in 0..20 {
        if let Ok(done) = attempt() {
            return Ok(done);
        }
        world.run_for(Duration::from_secs(1))?;
    }
    world.kill()
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), BoxError> {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// Checks that each message that the store has ever accepted is stepped, a dead letter, or waits.
fn count_mail(world: &World, store: &Store) -> Result<(), BoxError> {
    let counts = persist(world, || match store.mail_counts() {
        Err(StoreError::Journal(JournalError::Damaged(damage))) => Ok(Err(damage)),
        counts => counts.map(Ok),
    })??;
    check(counts.accepted == counts.stepped + counts.dead_letters + counts.queued, || format!("{counts:?}"))?;
    check(counts.stepped > 0, || format!("nothing was stepped: {counts:?}"))
}

struct Town {
    program: u64,
    citizens: u32,
    disk: MemoryDisk,
}

impl Town {
    /// One run of the program, from its start to its end, unless it is killed.
    fn run(&self, world: &World) -> Result<(), BoxError> {
        let start = || {
            let store = town::kinds(store_in(MemoryJournal::new(&self.disk)));
            world.start_store(store, town::handlers())
        };
        let (store, runtime) = persist(world, start)?;
        let begun = |number: u32| -> Result<Address<Note>, BoxError> {
            persist(world, || {
                let citizen = Citizen::new(self.program, number, self.citizens);
                let begun = store.begin(&number.to_string(), citizen).map_err(|why| why.into_parts().1)?;
                let was_begun = outside(|outside| outside.begun.contains(&number));
                if was_begun && !begun.was_there() {
                    outside(|outside| outside.wrong.push(format!("{number} was begun, and is lost")));
                }
                begun.wait(LIMIT)?;
                outside(|outside| outside.begun.insert(number));
                Ok::<_, StoreError>(begun.address())
            })
        };
        let peers: Vec<_> = (0..self.citizens).map(begun).collect::<Result<_, _>>()?;
        let hermit = persist(world, || {
            let begun = store.begin("hermit", Partner::alone()).map_err(|why| why.into_parts().1)?;
            begun.wait(LIMIT).map(|()| begun.address())
        })?;
        if !outside(|outside| outside.is_over) {
            self.live(world, (&store, &runtime), (&peers, hermit))?;
            outside(|outside| outside.is_over = true);
        }
        for (number, citizen) in (0..self.citizens).zip(&peers) {
            if outside(|outside| outside.outputs.contains_key(&number)) {
                continue;
            }
            let output = persist(world, || {
                let _ = runtime.send(*citizen, Note::Over);
                store.result::<Citizen>(&number.to_string())?.wait(LIMIT)
            })?;
            check(output == u64::from(number), || format!("{number} has the output {output}"))?;
            world.run_for(LIMIT)?;
            for watcher in &peers[number as usize + 1..] {
                let report = persist(world, || runtime.ask(*watcher, Note::Report, LIMIT).wait())?;
                let watched = report.watched.iter().filter(|other| **other == number).count() as u32;
                let downs = report.downs.get(&number).copied().unwrap_or_default();
                check(downs == watched, || format!("{downs} downs of {number} for {watched} monitors"))?;
                let of = peers.iter().position(|peer| peer == watcher).unwrap_or_default() as u32;
                check_end((&runtime, (number, citizen.pid())), (of, &report))?;
            }
            outside(|outside| outside.outputs.insert(number, output));
        }
        for number in 0..self.citizens {
            let output = persist(world, || store.result::<Citizen>(&number.to_string())?.wait(LIMIT))?;
            check(output == u64::from(number), || format!("{number} has the output {output}"))?;
        }
        count_mail(world, &store)?;
        let hermit = store.result::<Partner>("hermit")?.wait(LIMIT);
        check(matches!(hermit, Err(StoreError::Terminated)), || format!("the hermit has {hermit:?}"))?;
        let _ = runtime.shutdown(LIMIT);
        let _ = store.close();
        Ok(())
    }

    /// Kills some programs behind an order that was just acknowledged.
    fn kill_behind(&self, world: &World, place: u64, is_acknowledged: bool) -> Result<(), BoxError> {
        if is_acknowledged && is_killed_behind(self.program, place) { world.kill() } else { Ok(()) }
    }

    /// All that the citizens do before they end.
    fn live(
        &self,
        world: &World,
        (store, runtime): (&Store, &Runtime),
        (peers, hermit): (&[Address<Note>], Address<PartnerMessage>),
    ) -> Result<(), BoxError> {
        let gone = persist(world, || {
            let begun = store.begin("gone", Citizen::new(self.program, HERMIT, 1)).map_err(|why| why.into_parts().1)?;
            let _ = runtime.send(begun.address(), Note::Over);
            store.result::<Citizen>("gone")?.wait(LIMIT).map(|_| begun.address())
        })?;
        for citizen in peers {
            persist(world, || {
                let note = Note::Peers(peers.to_vec(), hermit, gone);
                store.send(*citizen, note).map_err(drop)?.wait(LIMIT).map_err(drop)
            })?;
        }
        for number in 0..2 * u64::from(self.citizens) {
            let to = number as u32 % self.citizens;
            if outside(|outside| outside.sent.contains_key(&(to, number))) {
                // It is not made again: a kill may have lost it, or the answer.
                continue;
            }
            outside(|outside| outside.sent.insert((to, number), false));
            if let Ok(receipt) = store.send(peers[to as usize], Note::FromOutside(number))
                && (number % 2 == 0 || receipt.wait(LIMIT).is_ok())
                && number % 2 == 1
            {
                outside(|outside| outside.sent.insert((to, number), true));
            }
        }
        for (number, citizen) in (0..).zip(peers) {
            for mark in 0..3 {
                if runtime.ask(*citizen, |reply| Note::Mark(mark, reply), LIMIT).wait().is_ok() {
                    outside(|outside| outside.marked.insert((number, mark)));
                }
            }
        }
        if outside(|outside| std::mem::take(&mut outside.is_to_restart)) {
            // In order, and in the middle of everything.
            world.run_for(Duration::from_millis(draw(self.program, 0, 8, 3_000)))?;
            let _ = runtime.shutdown(LIMIT);
            let _ = store.close();
            world.kill();
        }
        // Everything that can be done is done, and what is answered from outside is answered.
        let mut reports = Vec::new();
        let hermit_ends = draw(self.program, 0, 12, 3);
        for round in 0.. {
            world.run_for(if round == 0 { Duration::from_secs(20) } else { LONG })?;
            self.kill_behind(world, 0, answer_later(store))?;
            // Steps that fail five times have parked their processes.
            give_orders(store, (self.program, round), peers);
            self.kill_behind(world, 1, true)?;
            if round >= hermit_ends {
                persist(world, || end_hermit(store, hermit.pid()))?;
                self.kill_behind(world, 2, true)?;
            }
            world.run_for(Duration::from_secs(30))?;
            reports = Vec::new();
            for citizen in peers {
                let ask = || runtime.ask(*citizen, Note::Report, LIMIT).wait();
                match ask() {
                    Ok(report) => reports.push(report),
                    // One that is parked answers nothing.
                    Err(_) if round < ROUNDS => break,
                    Err(_) => reports.push(persist(world, ask)?),
                }
            }
            let is_over = reports.len() == peers.len() && reports.iter().all(|report: &Report| report.open.is_empty());
            if is_over && outside(|outside| outside.orders.hermit_has_ended) || round == ROUNDS {
                break;
            }
        }
        for (number, report) in (0..).zip(&reports) {
            check(report.open.is_empty(), || format!("{number} is stuck: {:?}; {store:?}", report.open))?;
            for (to, greeted) in &report.greeted {
                let heard = reports[*to as usize].heard.get(&number).copied().unwrap_or_default();
                check(heard == *greeted, || format!("{to} has heard {heard} of {greeted} greetings of {number}"))?;
            }
            for (by, order) in outside(|outside| outside.payments.keys().copied().collect::<Vec<_>>()) {
                let is_known = report.answered.contains_key(&format!("payment {order}"));
                check(by != number || is_known, || format!("a lost step of {number} has made the payment {order}"))?;
            }
            let marked = outside(|outside| outside.marked.clone());
            for (_, mark) in marked.iter().filter(|(to, _)| *to == number) {
                check(report.marks.contains(mark), || format!("{number} has answered {mark}, and lost it"))?;
            }
            let told = outside(|outside| outside.sent.clone());
            for ((to, message), is_told) in told {
                let has = report.from_outside.contains(&message);
                check(to != number || !is_told || has, || format!("{number} has lost {message} from outside"))?;
            }
        }
        count_mail(world, store)?;
        check_ties(runtime, &reports, (peers, hermit.pid()))?;
        outside(|outside| outside.seen = reports.into_iter().map(|report| report.seen).collect());
        Ok(())
    }
}

fn scenario(world: &World, program: u64, (is_killed_behind, after): (Option<u64>, u64)) -> Result<(), BoxError> {
    town::reset(program);
    let citizens = 2 + draw(program, 0, 0, 3) as u32;
    let town = Town { program, citizens, disk: MemoryDisk::with_seed(program + after) };
    is_killed_behind.into_iter().for_each(|number| world.kill_behind_commit(number));
    world.program(|_| town.run(world))?;
    let wrong = outside(|outside| outside.wrong.clone());
    check(wrong.is_empty(), || wrong.join("; "))
}

#[track_caller]
fn passes(simulation: Simulation) {
    // So the lines of a report repeat the failure.
    if std::env::var_os("PROCESSION_SEED").is_some() {
        return simulation.check();
    }
    let report = simulation.run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// Fails if the timer of a process that sleeps is forgotten because the tables could not be read.
#[test]
fn a_process_that_sleeps_is_woken_whichever_call_of_the_disk_fails() {
    passes(
        Simulation::new(|world| {
            town::reset(0);
            let disk = MemoryDisk::new();
            let store = town::kinds(store_in(MemoryJournal::new(&disk)));
            let store = store.sleep_after(Duration::from_millis(20));
            let (store, _runtime) = world.start_store(store, town::handlers())?;
            let begun = store.begin("it", Child::new(7, 3)).map_err(|why| why.into_parts().1)?;
            begun.wait(LIMIT)?;
            disk.fail_at(disk.calls() + world.seed(), Fault::Error);
            check(store.result::<Child>("it")?.wait(LIMIT)? == 7, || "it has another output".into())
        })
        .seeds(0..60),
    );
}

/// The most records of a program, about.
const RECORDS: u64 = 150;

#[test]
fn a_program_that_is_killed_after_any_record_goes_on() {
    let programs = counts("programs", 2, 200);
    passes(
        Simulation::new(|world| {
            let (program, behind) = (world.seed() / RECORDS, world.seed() % RECORDS);
            scenario(world, program, (Some(behind), behind))
        })
        .seeds(0..programs * RECORDS)
        .name("a_program_that_is_killed_after_any_record_goes_on"),
    );
}

/// More programs than those above, with one kill each.
#[test]
fn programs_that_are_killed_once_go_on() {
    let programs = counts("programs with one kill", 50, 10_000);
    passes(
        Simulation::new(|world| {
            let behind = draw(world.seed(), 0, 20, RECORDS);
            scenario(world, world.seed(), (Some(behind), behind))
        })
        .seeds(0..programs)
        .name("programs_that_are_killed_once_go_on"),
    );
}

#[test]
fn programs_that_are_killed_at_any_turn_on_a_disk_that_fails_go_on() {
    let seeds = counts("seeds", 200, 10_000);
    let faults = Faults::none()
        .kill(0.01)
        .disk(Fault::Error, 0.005)
        .disk(Fault::Full, 0.005)
        .disk(Fault::Crash, 0.005)
        .disk(Fault::CrashBehind, 0.005)
        .at_most(12);
    passes(
        Simulation::new(|world| scenario(world, world.seed(), (None, 0)))
            .seeds(0..seeds)
            .faults(faults)
            // The third fault in a row closes the store, so a shutdown may not be clean.
            .without("every shutdown is clean")
            .name("programs_that_are_killed_at_any_turn_on_a_disk_that_fails_go_on"),
    );
}
