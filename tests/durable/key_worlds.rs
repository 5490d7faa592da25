//! Messages with keys, and ids, in simulated worlds that kill and whose disks fail.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store, StoreBuilder, StoreError};
use procession::simulation::{Faults, Simulation, World};
use procession::{BoxError, Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::counts;

/// By the clock of the world.
const LIMIT: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Notes the numbers of its messages.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Notes(Vec<u32>);

#[derive(Serialize, Deserialize)]
pub(crate) enum NotesMessage {
    Note(u32),
    Look(Reply<Vec<u32>>),
}

impl Process for Notes {
    type Message = NotesMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, NotesMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(NotesMessage::Note(number)) => self.0.push(number),
                Event::Message(NotesMessage::Look(reply)) => out.reply(reply, self.0.clone()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Notes {
    const NAME: &str = "notes";
}

/// Ends at once, with its number.
#[derive(Serialize, Deserialize)]
struct Once(u32);

impl Process for Once {
    type Message = ();
    type Output = u32;

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<u32> {
        Ok(Step::Done(self.0))
    }
}

impl Durable for Once {
    const NAME: &str = "once";
}

/// Tries something that the disk may refuse. If it refuses for long, the program is started again.
fn persist<T>(world: &World, mut attempt: impl FnMut() -> Result<Option<T>, BoxError>) -> Result<T, BoxError> {
    for _ in 0..20 {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        world.run_for(SECOND)?;
    }
    world.kill()
}

fn start(world: &World, store: impl Fn() -> StoreBuilder) -> Result<(Store, Runtime), BoxError> {
    persist(world, || Ok(world.start_store(store(), Runtime::builder()).ok()))
}

#[track_caller]
fn passes(simulation: Simulation, kill: f64, seeds: u64, at_most: u32) {
    let faults = Faults::none()
        .kill(kill)
        .disk(Fault::Error, 0.02)
        .disk(Fault::Full, 0.02)
        .disk(Fault::Crash, 0.01)
        .disk(Fault::CrashBehind, 0.01)
        .at_most(at_most);
    let report = simulation.faults(faults).seeds(0..seeds).run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

const KEYS: u32 = 12;

/// One run of a program that sends each number to two processes. `told` has those that were acknowledged.
fn send_all(world: &World, disk: &MemoryDisk, told: &RefCell<BTreeSet<(usize, u32)>>) -> Result<(), BoxError> {
    let rest = Duration::from_millis(300);
    let (store, runtime) = start(world, || store_in(MemoryJournal::new(disk)).kind::<Notes>().sleep_after(rest))?;
    let mut both = Vec::new();
    for id in ["a", "b"] {
        let begin = || Ok(store.begin(id, Notes::default()).ok().filter(|begun| begun.wait(LIMIT).is_ok()));
        both.push(persist(world, begin)?.address());
    }
    for number in 0..KEYS {
        for (place, to) in both.iter().enumerate() {
            let send = || store.send_once(*to, &number.to_string(), NotesMessage::Note(number));
            persist(world, || {
                let was_told = told.borrow().contains(&(place, number));
                let (sent, second) = (send(), send());
                if was_told && sent.as_ref().is_ok_and(|sent| !sent.was_there()) {
                    return Err(format!("{number} was told to {place}, and was sent again").into());
                }
                if sent.is_ok() && second.as_ref().is_ok_and(|second| !second.was_there()) {
                    return Err(format!("{number} was sent twice to {place}").into());
                }
                match sent.map(|sent| sent.wait(LIMIT)) {
                    Ok(Ok(())) => {
                        told.borrow_mut().insert((place, number));
                        Ok(Some(()))
                    }
                    Ok(Err(StoreError::Wait(_))) => {
                        Err(format!("the receipt of {number} to {place} is told nothing").into())
                    }
                    _ => Ok(None),
                }
            })?;
            if world.seed().is_multiple_of(3) {
                // They fall asleep.
                world.run_for(Duration::from_millis(400))?;
            }
        }
    }
    for to in both {
        let seen = persist(world, || Ok(runtime.ask(to, NotesMessage::Look, LIMIT).wait().ok()))?;
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        if sorted != (0..KEYS).collect::<Vec<_>>() {
            return Err(format!("not each once: {seen:?}").into());
        }
    }
    Ok(())
}

#[test]
fn keyed_messages_are_taken_once_in_worlds_that_kill() {
    let simulation = Simulation::new(|world| {
        let (disk, told) = (MemoryDisk::with_seed(world.seed()), RefCell::default());
        world.program(|_| send_all(world, &disk, &told))
    });
    passes(simulation.name("keyed_messages_are_taken_once_in_worlds_that_kill"), 0.01, counts("seeds", 40, 5_000), 15);
}

/// The last id and the last key that were acknowledged, as the world outside knows them.
#[derive(Default)]
struct Known {
    id: Option<Sent>,
    key: Option<Sent>,
    round: u32,
}

/// The time before something was sent, and its number.
#[derive(Clone, Copy)]
struct Sent {
    at: Duration,
    number: u32,
}

const KEEP: Duration = Duration::from_secs(8);

impl Sent {
    /// Whether the store must know it. It may remove it a little before its time.
    fn is_kept(self, world: &World) -> bool {
        world.now() < self.at + KEEP - SECOND
    }
}

/// One run of a program that begins one id, and sends with one key, again and again.
fn begin_and_send(world: &World, disk: &MemoryDisk, known: &RefCell<Known>) -> Result<(), BoxError> {
    let kinds = || store_in(MemoryJournal::new(disk)).kind::<Notes>().kind::<Once>().keep(KEEP);
    let (store, _runtime) = start(world, kinds)?;
    for tries in 0.. {
        if tries > 200 {
            world.kill();
        }
        let mut known = known.borrow_mut();
        known.round += 1;
        if known.round > 40 {
            break;
        }
        world.run_for(Duration::from_millis(700))?;
        begin_again(world, &store, &mut known)?;
        send_again(world, &store, &mut known)?;
    }
    Ok(())
}

fn begin_again(world: &World, store: &Store, known: &mut Known) -> Result<(), BoxError> {
    let (before, at, number) = (known.id, world.now(), known.round);
    let Some(begun) = store.begin("x", Once(number)).ok().filter(|begun| begun.wait(LIMIT).is_ok()) else {
        return Ok(());
    };
    if !begun.was_there() {
        if let Some(sent) = before.filter(|sent| sent.is_kept(world)) {
            return Err(format!("the id of {} is gone before its time", sent.number).into());
        }
        known.id = Some(Sent { at, number });
    }
    let output = store.result::<Once>("x").ok().and_then(|result| result.wait(2 * SECOND).ok());
    if let (Some(output), Some(sent)) = (output, known.id)
        && begun.was_there()
        && sent.is_kept(world)
        && output != sent.number
    {
        return Err(format!("the output is {output} instead of {}", sent.number).into());
    }
    Ok(())
}

fn send_again(world: &World, store: &Store, known: &mut Known) -> Result<(), BoxError> {
    let Ok(notes) = store.begin("notes", Notes::default()) else { return Ok(()) };
    let (before, at, number) = (known.key.filter(|sent| sent.is_kept(world)), world.now(), known.round);
    let sent = store.send_once(notes.address(), "k", NotesMessage::Note(number)).ok();
    if sent.is_some_and(|sent| sent.wait(LIMIT).is_ok() && !sent.was_there()) {
        if let Some(sent) = before {
            return Err(format!("the key of {} is gone before its time, in round {number}", sent.number).into());
        }
        known.key = Some(Sent { at, number });
    }
    Ok(())
}

#[test]
fn ids_and_keys_are_kept_for_their_time_in_worlds_that_kill() {
    let simulation = Simulation::new(|world| {
        let (disk, known) = (MemoryDisk::with_seed(world.seed()), RefCell::default());
        world.program(|_| begin_and_send(world, &disk, &known))
    });
    let seeds = counts("seeds", 100, 5_000);
    passes(simulation.name("ids_and_keys_are_kept_for_their_time_in_worlds_that_kill"), 0.005, seeds, 20);
}
