//! Messages of durable processes to an ordinary one, in worlds whose disks fail.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use procession::durable::Durable;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::simulation::{Faults, Simulation, World};
use procession::{Address, BoxError, Event, Events, Process, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::counts;
use crate::wait::Mutex;

/// By the clock of the world.
const SECOND: Duration = Duration::from_secs(1);

/// Counts its events, and tells each new number to an ordinary process.
#[derive(Serialize, Deserialize)]
struct Herald {
    me: u64,
    told: u64,
    to: Address<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
enum HeraldMessage {
    /// Goes on to the next herald, so many times.
    Go(Vec<Address<HeraldMessage>>, u32),
    Over,
}

impl Process for Herald {
    type Message = HeraldMessage;
    type Output = u64;

    fn step(&mut self, events: &mut Events<'_, HeraldMessage>, out: &mut StepOutput) -> StepResult<u64> {
        for event in events {
            if let Event::Message(_) | Event::Completed(_) = &event {
                self.told += 1;
                out.send(self.to, (self.me, self.told));
            }
            match event {
                Event::Message(HeraldMessage::Go(mut all, hops)) => {
                    if hops % 3 == 0 {
                        out.after(Duration::from_millis(u64::from(hops) * 37));
                    }
                    all.rotate_left(1);
                    if let Some(next) = all.first().copied().filter(|_| hops > 0) {
                        out.send(next, HeraldMessage::Go(all, hops - 1));
                    }
                }
                Event::Message(HeraldMessage::Over) => return Ok(Step::Done(self.told)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Herald {
    const NAME: &str = "herald";
}

/// Notes what each herald has told.
struct Listener(Arc<Mutex<BTreeMap<u64, Vec<u64>>>>);

impl Process for Listener {
    type Message = (u64, u64);
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, (u64, u64)>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message((herald, number)) => self.0.lock().unwrap().entry(herald).or_default().push(number),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Tries something that the disk may refuse. After some time the store is closed, and there is an error.
fn persist<T>(world: &World, mut attempt: impl FnMut() -> Option<T>) -> Result<T, BoxError> {
    for _ in 0..30 {
        if let Some(done) = attempt() {
            return Ok(done);
        }
        world.run_for(SECOND)?;
    }
    Err(CLOSED.into())
}

const CLOSED: &str = "the store is closed";

/// Three heralds, to the end of each. Returns the numbers of those that have ended, and those that were heard.
fn heralds(world: &World) -> Result<Vec<(u64, Vec<u64>)>, BoxError> {
    let disk = MemoryDisk::with_seed(world.seed());
    let store = || store_in(MemoryJournal::new(&disk)).kind::<Herald>().sleep_after(Duration::from_millis(300));
    let (store, runtime) = persist(world, || world.start_store(store(), Runtime::builder()).ok())?;
    let heard = Arc::<Mutex<BTreeMap<u64, Vec<u64>>>>::default();
    let to = runtime.spawn(Listener(heard.clone())).map_err(|why| why.into_parts().1)?.address();
    let mut all = Vec::new();
    for me in 0..3 {
        let begin = || store.begin(&me.to_string(), Herald { me, told: 0, to }).ok();
        all.push(persist(world, || begin().filter(|begun| begun.wait(SECOND * 60).is_ok()))?.address());
    }
    for round in 0..4 {
        let go = || store.send(all[round % 3], HeraldMessage::Go(all.clone(), 9)).ok()?.wait(SECOND * 60).ok();
        persist(world, go)?;
        world.run_for(Duration::from_millis(150))?;
    }
    world.run_for(SECOND * 20)?;
    let mut both = Vec::new();
    for (me, herald) in (0..).zip(&all) {
        let over = || {
            let _ = runtime.send(*herald, HeraldMessage::Over);
            store.result::<Herald>(&format!("{me}")).ok()?.wait(SECOND * 10).ok()
        };
        let told = persist(world, over)?;
        world.run_for(SECOND)?;
        both.push((told, heard.lock().unwrap().get(&me).cloned().unwrap_or_default()));
    }
    Ok(both)
}

#[test]
fn each_message_of_a_stored_step_leaves_once_on_a_disk_that_fails() {
    let faults = Faults::none()
        .disk(Fault::Error, 0.03)
        .disk(Fault::Full, 0.02)
        .disk(Fault::Crash, 0.03)
        .disk(Fault::CrashBehind, 0.03)
        .at_most(8);
    let ended = Arc::<Mutex<u64>>::default();
    let ends = ended.clone();
    let scenario = move |world: &World| {
        let both = match heralds(world) {
            Err(why) if why.to_string() == CLOSED => return Ok(()),
            both => both?,
        };
        *ends.lock().unwrap() += 1;
        match both.into_iter().find(|(told, heard)| !heard.iter().copied().eq(1..=*told)) {
            Some((told, heard)) => Err(format!("{told} numbers were told, and heard as {heard:?}").into()),
            None => Ok(()),
        }
    };
    let seeds = counts("seeds", 200, 20_000);
    let report = Simulation::new(scenario).faults(faults).seeds(0..seeds).run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
    // The third error in a row closes a store.
    assert!(*ended.lock().unwrap() > seeds / 10, "many stores live");
}
