//! Random numbers of durable processes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use procession::durable::Durable;
use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::simulation::Simulation;
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::places::store_in;
use crate::script::counts;

const LIMIT: Duration = Duration::from_secs(60);

/// Draws a number in each step.
#[derive(Default, Serialize, Deserialize)]
struct Dice {
    drawn: Vec<u64>,
}

#[derive(Serialize, Deserialize)]
enum DiceMessage {
    Draw,
    Look(Reply<Vec<u64>>),
}

impl Process for Dice {
    type Message = DiceMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, DiceMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(DiceMessage::Draw) => self.drawn.push(out.random()),
                Event::Message(DiceMessage::Look(reply)) => out.reply(reply, self.drawn.clone()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Dice {
    const NAME: &str = "dice";
}

#[test]
fn no_step_draws_the_numbers_of_another_one() {
    let report = Simulation::new(|world| {
        let disk = MemoryDisk::new();
        world.program(|run| {
            let store = store_in(MemoryJournal::new(&disk)).kind::<Dice>();
            let (store, runtime) = world.start_store(store, Runtime::builder())?;
            let dice = store.begin("it", Dice::default())?.address();
            for draws in 0..6 {
                store.send(dice, DiceMessage::Draw)?.wait(LIMIT)?;
                if draws == 3 {
                    // All is loaded anew, in the same run.
                    disk.fail_at(disk.calls(), Fault::Error);
                    drop(store.send(dice, DiceMessage::Draw)?.wait(LIMIT));
                    world.run_for(LIMIT)?;
                }
            }
            if run == 0 {
                world.kill();
            }
            let drawn = runtime.ask(dice, DiceMessage::Look, LIMIT).wait()?;
            assert!(drawn.len() >= 12, "{drawn:?}");
            assert_eq!(drawn.iter().collect::<BTreeSet<_>>().len(), drawn.len(), "{drawn:?}");
            Ok(())
        })
    })
    .seeds(0..20)
    .run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}

/// Draws a number, reads the time, and decides by both whether to draw another one.
#[derive(Default, Serialize, Deserialize)]
struct Gambler {
    /// The numbers, and the times at which they were drawn.
    drawn: Vec<(u64, SystemTime)>,
    /// How often it has decided to draw again.
    again: u64,
}

#[derive(Serialize, Deserialize)]
enum GamblerMessage {
    Draw,
    Look(Reply<(Vec<(u64, SystemTime)>, u64)>),
}

thread_local! {
    /// The run of the program in a simulation of this thread. The code differs in each run.
    static RUN: Cell<u64> = const { Cell::new(0) };
}

impl Process for Gambler {
    type Message = GamblerMessage;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, GamblerMessage>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(GamblerMessage::Draw) => {
                    let (number, time) = (out.random(), out.system_time());
                    self.drawn.push((number, time));
                    let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_millis());
                    if (number ^ RUN.get() ^ u64::from(millis)).is_multiple_of(3) {
                        self.again += 1;
                        out.send(out.pid().typed(), GamblerMessage::Draw);
                    }
                }
                Event::Message(GamblerMessage::Look(reply)) => out.reply(reply, (self.drawn.clone(), self.again)),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Gambler {
    const NAME: &str = "gambler";
}

/// Each seed kills the program once, behind one of 20 commits.
#[test]
fn a_process_that_decides_by_chance_and_time_goes_on_after_each_kill() {
    let report = Simulation::new(|world| {
        let (disk, sent, acknowledged) = (MemoryDisk::new(), Cell::new(0), Cell::new(0));
        world.kill_behind_commit(1 + world.seed() % 20);
        let runs = world.program(|run| {
            RUN.set(run.into());
            let store = store_in(MemoryJournal::new(&disk)).kind::<Gambler>();
            let (store, runtime) = world.start_store(store, Runtime::builder())?;
            let gambler = store.begin("it", Gambler::default()).map_err(|why| why.into_parts().1)?.address();
            while acknowledged.get() < 12 {
                sent.set(sent.get() + 1);
                let receipt = store.send(gambler, GamblerMessage::Draw).map_err(|why| why.into_parts().1)?;
                receipt.wait(LIMIT)?;
                acknowledged.set(acknowledged.get() + 1);
                world.run_for(Duration::from_millis(world.seed() % 7 + acknowledged.get()))?;
            }
            world.run_for(LIMIT)?;
            let (drawn, again) = runtime.ask(gambler, GamblerMessage::Look, LIMIT).wait()?;
            let numbers: BTreeSet<_> = drawn.iter().map(|(number, _)| number).collect();
            let times: BTreeSet<_> = drawn.iter().map(|(_, time)| time).collect();
            assert_eq!(numbers.len(), drawn.len(), "{drawn:?}");
            assert!(times.len() as u64 >= acknowledged.get() && drawn.is_sorted_by_key(|(_, time)| time), "{drawn:?}");
            let taken = drawn.len() as u64 - again;
            assert!((acknowledged.get()..=sent.get()).contains(&taken), "{taken} of {} were taken", sent.get());
            Ok(run)
        })?;
        assert_eq!(runs, 1, "it was killed once");
        Ok(())
    })
    .seeds(0..counts("kills", 40, 1_000))
    .run();
    if let Some(failed) = report.failed() {
        panic!("{}", failed.report());
    }
}
