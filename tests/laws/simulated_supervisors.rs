//! Small worlds about supervisors: requests that fail, children with full mailboxes, and invalid specifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::supervisor::{
    AutoShutdown, Backoff, ChildError, ChildInfo, ChildSpec, ChildState, Restart, Shutdown, SpecError, Strategy,
    Supervisor, SupervisorBuilder, SupervisorMessage,
};
use procession::{
    BoxError, CommandError, EntryArgs, Event, Events, InitResult, Process, Reply, SpawnOptions, Step, StepOutput,
    StepResult, Tag,
};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn worlds(
    name: &str,
    seeds: u64,
    scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static,
) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..seeds)
}

/// Starts if it may.
struct Starts(bool);

impl Process for Starts {
    type Message = ();
    type Output = ();

    fn init(&mut self, _: EntryArgs) -> InitResult {
        if self.0 { Ok(()) } else { Err("it does not start".into()) }
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        let is_asked = events.any(|event| matches!(event, Event::Cancel(_)));
        Ok(if is_asked { Step::Done(()) } else { Step::Idle })
    }
}

#[test]
fn a_child_that_does_not_start_on_request_is_removed_only_if_it_is_new() {
    worlds("requests that fail", 100, |world| {
        let (runtime, starts) = (world.start(builder())?, Arc::<AtomicBool>::default());
        let supervisor = runtime.spawn(Supervisor::builder().build()?)?.address();
        let states = || {
            let children: Vec<ChildInfo> = runtime.ask(supervisor, SupervisorMessage::children, SECOND).wait()?;
            Ok::<_, BoxError>(children.iter().map(|child| child.state).collect::<Vec<_>>())
        };
        let add = || {
            let starts = starts.clone();
            let spec = ChildSpec::new("child", move || Starts(starts.load(Ordering::SeqCst)));
            runtime.ask(supervisor, SupervisorMessage::add(spec), SECOND).wait()
        };
        ensure(add()?.is_err(), || "it has started".into())?;
        ensure(states()?.is_empty(), || "it is still there".into())?;
        starts.store(true, Ordering::SeqCst);
        ensure(add()?.is_ok(), || "it has not started".into())?;
        ensure(states()? == [ChildState::Up], || "it is not up".into())?;
        starts.store(false, Ordering::SeqCst);
        let restarted = runtime.ask(supervisor, SupervisorMessage::restart("child"), SECOND).wait()?;
        ensure(restarted.is_err(), || "it has started again".into())?;
        ensure(states()? == [ChildState::Down], || "it is gone".into())?;
        let missing = runtime.ask(supervisor, SupervisorMessage::stop("other"), SECOND).wait()?;
        ensure(matches!(missing, Err(ChildError::NoSuchChild { .. })), || format!("{missing:?}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn all_children_that_wait_for_a_restart_are_shown_as_delayed() {
    worlds("delays of all children", 50, |world| {
        let runtime = world.start(builder())?;
        let child = |id: &str| ChildSpec::new(id, sink::<()>);
        let supervisor = Supervisor::builder()
            .strategy(Strategy::OneForAll)
            .backoff(Backoff::exponential(SECOND, SECOND))
            .child(child("one"))
            .child(child("two"))
            .build()?;
        let supervisor = runtime.spawn(supervisor)?.address();
        let children = || runtime.ask(supervisor, SupervisorMessage::children, SECOND).wait();
        world.run_for(SECOND)?;
        children()?[0].pid.map(|pid| runtime.terminate(pid)).transpose()?;
        for (time, state) in [(SECOND / 2, ChildState::Delayed), (SECOND, ChildState::Up)] {
            world.run_for(time)?;
            let states: Vec<ChildState> = children()?.iter().map(|child| child.state).collect();
            ensure(states == [state; 2], || format!("{states:?} at {:?}", world.now()))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_supervisor_asks_a_full_child_again() {
    let is_found = Arc::<AtomicBool>::default();
    let found = is_found.clone();
    worlds("full children", 100, move |world| {
        let runtime = world.start(builder())?;
        let inner = || Supervisor::builder().build().unwrap_or_else(|error| unreachable!("{error}"));
        let options = || SpawnOptions::new().name("inner").mailbox(1, Overflow::Refuse);
        let child = ChildSpec::supervisor("inner", inner).options(options);
        let outer = runtime.spawn(Supervisor::builder().child(child).build()?)?;
        let mut steps = 0;
        runtime.spawn(script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
            events.for_each(drop);
            out.ask("inner", SupervisorMessage::children, SECOND);
            steps += 1;
            Ok(if steps < 12 { Step::Continue } else { Step::Done(()) })
        }))?;
        runtime.ask(&outer, SupervisorMessage::started, 10 * SECOND).wait()?;
        found.fetch_or(world.now() > 5 * MILLISECOND, Ordering::SeqCst);
        ensure(world.now() < SECOND, || format!("it was up at {:?}", world.now()))?;
        Ok(())
    })
    .check();
    assert!(is_found.load(Ordering::SeqCst), "in no world the child was full");
}

/// Makes the specification of a supervisor invalid.
type Change = fn(SupervisorBuilder, ChildSpec) -> SupervisorBuilder;

#[test]
fn a_specification_that_cannot_work_is_refused() {
    let child = || ChildSpec::new("child", sink::<()>);
    let significant = move || child().significant();
    let wrong: [(&str, Change); 7] = [
        ("delays that are zero", |all, _| all.backoff(Backoff::exponential(Duration::ZERO, SECOND))),
        ("delays above their cap", |all, _| all.backoff(Backoff::exponential(2 * SECOND, SECOND))),
        ("too much jitter", |all, _| all.backoff(Backoff::exponential(SECOND, SECOND).jitter(1.5))),
        ("no time to stop", |all, child| all.child(child.shutdown(Shutdown::Within(Duration::ZERO)))),
        ("significant and permanent", |all, child| {
            all.auto_shutdown(AutoShutdown::AnySignificant).child(child.significant())
        }),
        ("more children than the limit", |all, child| all.limit(0).child(child)),
        ("significant for nothing", |all, child| all.child(child.significant().restart(Restart::Temporary))),
    ];
    worlds("specifications", 4, move |world| {
        let runtime = world.start(builder())?;
        for (what, change) in wrong {
            let built = change(Supervisor::builder(), child()).build();
            ensure(built.is_err(), || format!("{what}: {built:?}"))?;
        }
        let twice = Supervisor::builder().child(child()).child(child()).build();
        ensure(matches!(twice, Err(SpecError::TwoWithOneId { .. })), || format!("{twice:?}"))?;
        let right = Supervisor::builder()
            .backoff(Backoff::exponential(SECOND, SECOND).jitter(1.0))
            .auto_shutdown(AutoShutdown::AnySignificant)
            .limit(1)
            .child(significant().restart(Restart::Temporary).shutdown(Shutdown::Within(SECOND)))
            .build()?;
        runtime.spawn(right)?;
        world.run()?;
        Ok(())
    })
    .check();
}

/// Asks another one, and waits for the answer. It never answers.
struct Stubborn {
    other: &'static str,
    asked: Option<Tag<()>>,
    answers: Log<String>,
    kept: Vec<Reply<()>>,
}

impl Process for Stubborn {
    type Message = Reply<()>;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Reply<()>>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(reply) => self.kept.push(reply),
                Event::Completed(done) => {
                    let answer = done.take(self.asked);
                    let is_cycle = matches!(answer, Some(Err(CommandError::Cycle(_))));
                    self.answers.push(if is_cycle { "cycle".into() } else { format!("{answer:?}") });
                    return Ok(Step::Done(()));
                }
                _ => {}
            }
        }
        if self.asked.is_none() {
            self.asked = Some(out.ask(self.other, |reply: Reply<()>| reply, 3_600 * SECOND));
        }
        Ok(Step::Wait)
    }
}

#[test]
fn two_processes_that_ask_each_other_do_not_wait_for_their_limits() {
    worlds("cycles", 300, |world| {
        let (runtime, answers) = (world.start(builder())?, Log::new());
        for (name, other) in [("one", "two"), ("two", "one")] {
            let stubborn = Stubborn { other, asked: None, answers: answers.clone(), kept: Vec::new() };
            runtime.spawn_with(stubborn, SpawnOptions::new().name(name))?;
        }
        world.run()?;
        let answers = answers.to_vec();
        // The second question may find no process with the name: the first one has ended then.
        ensure(world.now() < SECOND, || format!("they have waited until {:?}: {answers:?}", world.now()))?;
        Ok(())
    })
    .check();
}
