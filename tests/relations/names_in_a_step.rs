//! Names that a step gives and takes, looked up later in the same step.

use std::sync::Arc;

use procession::testing::{Driver, Status};
use procession::{
    Event, Events, Exit, ExitError, Pid, Process, SpawnError, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;
use crate::support::node::*;
use crate::wait::Mutex;

fn named(name: &'static str) -> SpawnOptions {
    SpawnOptions::new().name(name)
}

/// Gives and takes names in its first step. It looks them up there, and once more in the next step. `holder` has
/// "held" and "old" from the beginning.
struct Clerk {
    holder: Pid,
    seen: Vec<(&'static str, Option<Pid>, Option<Pid>)>,
}

impl Clerk {
    /// Notes who should be found by a name now.
    fn expects(&mut self, out: &StepOutput, name: &'static str, pid: impl Into<Option<Pid>>) {
        self.seen.push((name, out.whereis(name), pid.into()));
    }

    fn gives_and_takes(&mut self, out: &mut StepOutput) -> Result<[Pid; 4], Box<dyn std::error::Error + Send + Sync>> {
        let (me, holder) = (out.pid(), self.holder);
        self.expects(out, "mine", None);
        out.register("mine", me);
        self.expects(out, "mine", me);
        // Another process that has the name keeps it, whatever the step does.
        out.register("held", me);
        self.expects(out, "held", holder);
        out.spawn_with(sink::<u8>(), named("held"))?;
        self.expects(out, "held", holder);
        // A name that was taken away is free until it is given again. The first process to get it has it.
        let child = out.spawn(sink::<u8>())?.pid();
        out.unregister("old");
        self.expects(out, "old", None);
        out.register("old", child);
        out.register("old", me);
        self.expects(out, "old", child);
        out.register("brief", me);
        out.unregister("brief");
        self.expects(out, "brief", None);
        out.register("", me);
        self.expects(out, "", None);
        // All ways to spawn.
        let one = out.spawn_with(sink::<u8>(), named("one"))?.pid();
        let two = out.spawn_with(sink::<u8>(), named("two").monitor())?;
        let three = out.spawn_with(sink::<u8>(), named("three").link())?.pid();
        let four = out.spawn_with(sink::<u8>(), named("four").link().report_started())?;
        for (name, pid) in ["one", "two", "three", "four"].into_iter().zip([one, two.pid(), three, four.pid()]) {
            self.expects(out, name, pid);
            out.send(name, 7_u8);
        }
        Ok([one, two.pid(), three, four.pid()])
    }
}

impl Process for Clerk {
    type Message = ();
    type Output = Vec<(&'static str, Option<Pid>, Option<Pid>)>;

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<Self::Output> {
        if self.seen.is_empty() {
            self.gives_and_takes(out)?;
            return Ok(Step::Continue);
        }
        // From now on it is as the first step expected last, also for children that have not begun.
        let mut last: Vec<(&'static str, Option<Pid>)> = Vec::new();
        for (name, _, expected) in self.seen.clone() {
            last.retain(|(other, _)| *other != name);
            last.push((name, expected));
        }
        last.into_iter().for_each(|(name, pid)| self.expects(out, name, pid));
        Ok(Step::Done(std::mem::take(&mut self.seen)))
    }
}

fn check(seen: &[(&str, Option<Pid>, Option<Pid>)]) {
    assert_eq!(seen.len(), 12 + 9, "12 in the first step, and the 9 names once more in the next");
    for (name, found, expected) in seen {
        assert_eq!(found, expected, "{name:?} in {seen:#?}");
    }
}

#[test]
fn what_a_step_names_is_found_in_it_and_what_it_frees_is_not() {
    let runtime = runtime(1);
    let holder = node_with(&runtime, named("held"));
    runtime.register("old", holder.pid()).unwrap();
    let clerk = runtime.spawn(Clerk { holder: holder.pid(), seen: Vec::new() }).unwrap();
    check(&output(&clerk));
    // It has ended, and the next process that is stepped there finds nothing of what it had written.
    until("its names are free", || runtime.whereis("mine").is_none());
    let looks = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| Ok(Step::Done(out.whereis("mine"))));
    assert_eq!(*output(&runtime.spawn(looks).unwrap()), None);
    assert_accounted(&runtime);
}

#[test]
fn a_driven_step_finds_what_it_names_in_the_same_way() {
    let holder: Pid = "<0.99.1>".parse().unwrap();
    let mut driver = Driver::new(Clerk { holder, seen: Vec::new() });
    driver.name("held", holder).name("old", holder);
    assert_eq!(driver.run(), Status::Ended);
    check(driver.exit().unwrap().output().unwrap());
    assert_eq!(driver.unread(), 4);
    // A name that a step frees can be given again.
    let mut driver = Driver::new(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if events.any(|event| matches!(event, Event::Message(()))) {
            return Ok(Step::Done(out.whereis("old")));
        }
        if out.whereis("old").is_some() {
            out.unregister("old");
        }
        Ok(Step::Idle)
    }));
    driver.name("old", holder).run();
    driver.name("old", holder).message(());
    assert_eq!((driver.run(), **driver.exit().unwrap().output().unwrap()), (Status::Ended, Some(holder)));
}

#[test]
fn of_two_children_with_one_name_the_first_to_be_spawned_has_it() {
    let runtime = runtime(1);
    let mut first = None;
    let parent = script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if let (Some(first), Some(Event::Down(down))) = (first, events.next()) {
            return Ok(Step::Done((first, down.into_inner().exit)));
        }
        let child = out.spawn_with(sink::<()>(), named("one").monitor())?;
        first = Some(child.pid());
        out.spawn_with(sink::<()>(), named("one").monitor())?;
        assert_eq!(out.whereis("one"), first);
        Ok(Step::Idle)
    });
    let (first, refused) = output(&runtime.spawn(parent).unwrap()).as_ref().clone();
    let Err(ExitError::Failed(failure)) = refused.into_result() else { panic!("the second is refused") };
    let why = failure.error().downcast_ref::<SpawnError>();
    assert!(matches!(why, Some(SpawnError::NameTaken { holder, .. }) if *holder == first), "{failure}");
    assert_eq!(runtime.whereis("one"), Some(first));
    assert!(runtime.cancel(first, "enough").unwrap());
    until("its name is free", || runtime.whereis("one").is_none());
}

/// Fails in its first step, with names given and taken, and is replaced.
struct Fails {
    seen: Arc<Mutex<Vec<Option<Pid>>>>,
    fails: bool,
}

impl Process for Fails {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if self.fails {
            out.register("mine", out.pid());
            out.unregister("held");
            out.spawn_with(sink::<()>(), named("child"))?;
            assert!(out.whereis("mine").is_some() && out.whereis("held").is_none() && out.whereis("child").is_some());
            return Err("it fails".into());
        }
        *self.seen.lock().unwrap() = ["mine", "held", "child"].map(|name| out.whereis(name)).to_vec();
        let stops = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if stops { Step::Done(()) } else { Step::Idle })
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Fails { seen: self.seen.clone(), fails: false }))
    }
}

#[test]
fn names_of_a_step_that_fails_are_forgotten_with_its_other_yields() {
    let runtime = runtime(1);
    let holder = node_with(&runtime, named("held"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let fails = runtime.spawn(Fails { seen: seen.clone(), fails: true }).unwrap();
    until("it is replaced and stepped", || !seen.lock().unwrap().is_empty());
    assert_eq!(*seen.lock().unwrap(), [None, Some(holder.pid()), None]);
    runtime.cancel(fails.pid(), "enough").unwrap();
    output(&fails);
    // The same without a successor: the next process that is stepped there knows nothing of it.
    let fails = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| {
        out.register("mine", out.pid());
        if out.whereis("mine").is_some() { Err("it fails".into()) } else { Ok(Step::Done(())) }
    });
    join(&runtime.spawn(fails).unwrap());
    let looks = script(|_: &mut Events<'_, ()>, out: &mut StepOutput| Ok(Step::Done(out.whereis("mine"))));
    assert_eq!(*output(&runtime.spawn(looks).unwrap()), None);

    let mut driver = Driver::new(Fails { seen: seen.clone(), fails: true });
    driver.name("held", holder.pid());
    assert_eq!(driver.run(), Status::Idle);
    assert_eq!(*seen.lock().unwrap(), [None, Some(holder.pid()), None]);
}
