//! Panics outside of steps. Statement 25.

use procession::command::{Command, Responder};
use procession::simulation::Simulation;
use procession::{BoxError, EntryArgs, Event, Events, Process, Runtime, Step, StepOutput, StepResult};

use crate::script::script;

/// The code that panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Init,
    Start,
    Handler,
    AsyncHandler,
    Future,
    Blocking,
    /// The process ends in the same step.
    LastBlocking,
}

const PLACES: [Place; 7] = [
    Place::Init,
    Place::Start,
    Place::Handler,
    Place::AsyncHandler,
    Place::Future,
    Place::Blocking,
    Place::LastBlocking,
];

/// A command whose handler panics.
struct Burst;

impl Command for Burst {
    type Output = ();
}

/// A command whose asynchronous handler panics.
struct LateBurst;

impl Command for LateBurst {
    type Output = ();
}

/// Lets code panic, and ends when it has an answer.
struct Clumsy(Place);

impl Clumsy {
    fn panics_at(&self, place: Place) {
        assert_ne!(self.0, place, "on purpose");
    }
}

impl Process for Clumsy {
    type Message = ();
    type Output = ();

    fn init(&mut self, entry: EntryArgs) -> Result<(), BoxError> {
        self.panics_at(Place::Init);
        entry.method("main", |()| Ok(())).finish()
    }

    fn start(&mut self, _: &mut StepOutput) -> Result<(), BoxError> {
        self.panics_at(Place::Start);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if events.any(|event| matches!(event, Event::Completed(_))) {
            return Ok(Step::Done(()));
        }
        match self.0 {
            Place::Handler => _ = out.command(Burst),
            Place::AsyncHandler => _ = out.command(LateBurst),
            Place::Future => _ = out.future(async { panic!("on purpose") }),
            Place::Blocking | Place::LastBlocking => _ = out.blocking(|| panic!("on purpose")),
            Place::Init | Place::Start => {}
        }
        Ok(if self.0 == Place::LastBlocking { Step::Done(()) } else { Step::Wait })
    }
}

/// Spawns a process whose code panics at this place. A step spawns it, because a panic of an `init` in a `spawn` of the
/// scenario is the error of that call.
fn panics_at(place: Place) -> Simulation {
    Simulation::new(move |world| {
        let builder = Runtime::builder()
            .handler(|_: Burst, _: Responder<()>| panic!("on purpose"))
            .handler_async(async |_: LateBurst| -> Result<(), BoxError> { panic!("on purpose") });
        let mut clumsy = Some(Clumsy(place));
        world.start(builder)?.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            clumsy.take().into_iter().for_each(|clumsy| _ = out.spawn(clumsy));
            Ok(Step::Done(()))
        }))?;
        world.run()
    })
    .seeds(0..10)
}

#[test]
fn a_panic_outside_of_steps_fails_the_run_unless_switched_off() {
    for place in PLACES {
        let report = panics_at(place).run();
        let failed = report.failed().unwrap_or_else(|| panic!("{place:?}"));
        assert_eq!(failed.check(), "no step panics", "{place:?}");
        let what = failed.what();
        assert!(what.contains("<1.1.1>") && what.contains("on purpose"), "{place:?}: {what}");
        panics_at(place).without("no step panics").check();
    }
}
