//! Small worlds of durable processes, about their relations.

use std::time::Duration;

use procession::durable::journal::{MemoryDisk, MemoryJournal};
use procession::durable::{Durable, Store};
use procession::simulation::{Simulation, ensure};
use procession::{Event, Events, Pid, Process, Step, StepOutput, StepResult};
use serde::{Deserialize, Serialize};

use crate::helpers::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Links itself to each process that it is sent.
#[derive(Serialize, Deserialize)]
struct Knot;

impl Process for Knot {
    type Message = Pid;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Pid>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(pid) => out.link(pid),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

impl Durable for Knot {
    const NAME: &str = "knot";
}

#[test]
fn a_durable_process_ends_with_a_link_to_an_ended_process() {
    Simulation::new(|world| {
        let store = Store::with_journal(MemoryJournal::new(&MemoryDisk::with_seed(world.seed()))).kind::<Knot>();
        let (store, runtime) = world.start_store(store, builder())?;
        let other = runtime.spawn(sink::<()>())?;
        let knots = ["before", "after"].map(|id| -> Result<_, procession::BoxError> {
            let begun = store.begin(id, Knot).map_err(|refused| refused.into_parts().1)?;
            begun.wait(MINUTE)?;
            Ok(begun.address())
        });
        let [before, after] = knots;
        let (before, after) = (before?, after?);
        runtime.send(before, other.pid())?;
        world.run_for(MINUTE)?;
        ensure(runtime.is_alive(before), || "the other one has not ended yet".into())?;
        runtime.terminate(other.pid())?;
        world.run_for(MINUTE)?;
        runtime.send(after, other.pid())?;
        world.run_for(MINUTE)?;
        let living = [before, after].map(|knot| runtime.is_alive(knot));
        ensure(living == [false, false], || format!("they live: {living:?}"))?;
        Ok(())
    })
    .name("links of durable processes")
    .seeds(0..50)
    .check();
}
