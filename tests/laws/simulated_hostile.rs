//! Small worlds with hostile values: an error whose destructor panics, and a message whose clone does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use procession::simulation::{Simulation, World, ensure};
use procession::{Address, BoxError, Event, Events, Pid, Process, SpawnOptions, Step, StepOutput, StepResult};

use crate::helpers::*;

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..100)
}

/// An error whose destructor panics.
#[derive(Debug, thiserror::Error)]
#[error("hostile")]
struct Hostile;

impl Drop for Hostile {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// Sends a message to the process that it is told, and fails in the next step.
#[derive(Default)]
struct Failing {
    has_sent: bool,
}

impl Process for Failing {
    type Message = Address<u64>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Address<u64>>, out: &mut StepOutput) -> StepResult<()> {
        if self.has_sent {
            return Err(Hostile.into());
        }
        let Some(Event::Message(to)) = events.next() else { return Ok(Step::Idle) };
        out.send(to, 1);
        self.has_sent = true;
        Ok(Step::Continue)
    }
}

/// Monitors a process, takes one message, and is done in the next step.
struct Monitoring {
    of: Option<Pid>,
    has_taken: bool,
}

impl Process for Monitoring {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(of) = self.of.take() {
            out.monitor(of);
            return Ok(Step::Idle);
        }
        if self.has_taken {
            return Ok(Step::Done(()));
        }
        self.has_taken = events.next().is_some();
        Ok(Step::Idle)
    }
}

#[test]
fn an_end_is_reported_although_the_error_of_another_is_hostile() {
    worlds("hostile errors", |world| {
        let runtime = world.start(builder())?;
        let failing = runtime.spawn(Failing::default())?.address();
        let monitoring = runtime.spawn(Monitoring { of: Some(failing.pid()), has_taken: false })?;
        world.run()?;
        // The end of the one waits behind its message, which the other one does not take.
        runtime.send(&monitoring, 0)?;
        runtime.send(failing, monitoring.address())?;
        let exit = monitoring.join()?;
        ensure(exit.is_done(), || format!("{exit}"))?;
        world.run()?;
        ensure(runtime.stats().processes == 0, || "a process is left".into())?;
        Ok(())
    })
    .check();
}

/// A message whose second clone panics, if it is hostile.
struct Copied {
    number: u64,
    clones: Option<Arc<AtomicU64>>,
}

impl Clone for Copied {
    fn clone(&self) -> Copied {
        let before = self.clones.as_ref().map_or(0, |clones| clones.fetch_add(1, Ordering::SeqCst));
        assert!(before == 0, "on purpose");
        Copied { number: self.number, clones: self.clones.clone() }
    }
}

#[test]
fn a_broadcast_whose_clone_panics_leaves_no_message() {
    worlds("hostile clones", |world| {
        let (runtime, taken) = (world.start(builder())?, Log::new());
        let members = (0..4).map(|_| {
            let taken = taken.clone();
            let member = script(move |events: &mut Events<'_, Copied>, _: &mut StepOutput| {
                for event in events {
                    if let Event::Message(Copied { number, .. }) = event {
                        taken.push(number);
                    }
                }
                Ok(Step::<()>::Idle)
            });
            runtime.spawn_with(member, SpawnOptions::new().group("all"))
        });
        let to = members.collect::<Result<Vec<_>, _>>()?[0].address();
        world.run()?;
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            let hostile = Copied { number: 1, clones: Some(Arc::default()) };
            let panicked = catch_unwind(AssertUnwindSafe(|| out.broadcast("all", hostile)));
            out.send(to, Copied { number: if panicked.is_err() { 2 } else { 3 }, clones: None });
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        ensure(taken.to_vec() == [2], || format!("{:?}", taken.to_vec()))?;
        Ok(())
    })
    .check();
}
