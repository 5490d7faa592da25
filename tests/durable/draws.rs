//! Random numbers of durable processes.

use std::collections::BTreeSet;
use std::time::Duration;

use procession::durable::journal::{Fault, MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::simulation::Simulation;
use procession::{Event, Events, Process, Reply, Runtime, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

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
            let store = Store::with_journal(MemoryJournal::new(&disk)).kind::<Dice>();
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
