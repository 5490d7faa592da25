//! Small worlds with a log: the lines of a recovery, and a subscriber that panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::observe::{MetricsOptions, Observer, ProcessIdentity};
use procession::simulation::{Simulation, World, ensure};
use procession::supervisor::{ChildSpec, Supervisor};
use procession::{
    Address, BoxError, Event, Events, Exit, Process, Reply, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};
use tracing::Level;
use tracing::subscriber::with_default;

use crate::helpers::*;
use crate::hostile_log::{Dropped, Hostile, second_subscriber};
use crate::log::Recorder;

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..100)
}

/// Fails once, and recovers.
struct Fragile {
    fails: bool,
}

impl Process for Fragile {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        if self.fails { Err("on purpose".into()) } else { Ok(Step::Idle) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Fragile { fails: false }))
    }
}

/// Writes recoveries among the lines of the log.
struct Notes(Arc<Mutex<Vec<String>>>);

impl Observer for Notes {
    fn restarted(&self, _: &ProcessIdentity, _: &Exit) {
        self.0.lock().unwrap().push("observer".into());
    }
}

#[test]
fn a_recovery_is_logged_once_and_after_the_observer() {
    let _second = second_subscriber();
    worlds("the log of a recovery", |world| {
        let records = Arc::<Mutex<Vec<String>>>::default();
        let recorder = Recorder { level: Level::WARN, records: records.clone(), check: |_| () };
        with_default(recorder, || {
            let runtime = world.start(builder().observer(Notes(records.clone())))?;
            let children = [
                None,
                Some(ChildSpec::new("child", || Fragile { fails: true })),
                // It recovers before it asks its supervisor.
                Some(ChildSpec::in_place("child", || Fragile { fails: true })),
            ];
            for child in children {
                let is_child = child.is_some();
                let text = if is_child { "a child has failed and has recovered" } else { "recovered from a failure" };
                match child {
                    Some(child) => drop(runtime.spawn(Supervisor::builder().child(child).build()?)?),
                    None => drop(runtime.spawn(Fragile { fails: true })?),
                }
                world.run()?;
                let records = std::mem::take(&mut *records.lock().unwrap());
                let is_right = records.len() == 2 && records[0] == "observer" && records[1].contains(text);
                ensure(is_right, || format!("{records:?}"))?;
            }
            Ok(())
        })
    })
    .check();
}

enum Letter {
    Question(Reply<()>),
    Number,
}

/// Fails at its first message. The subscriber takes its body away then.
struct Doomed {
    is_asked: Arc<AtomicBool>,
    log: Log<&'static str>,
    to: Address<Dropped>,
}

impl Process for Doomed {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        let Some(Event::Message(Letter::Question(reply))) = events.next() else { return Ok(Step::Idle) };
        self.is_asked.store(true, Ordering::SeqCst);
        out.reply(reply, ());
        out.send(self.to, Dropped::new("yield", &self.log));
        Err(Dropped::new("error", &self.log).into())
    }
}

/// Asks a process, sends it more messages, and writes down what it gets.
fn asker(to: Address<Letter>, got: Log<String>) -> impl Process<Message = (), Output = ()> {
    let mut is_new = true;
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        if std::mem::take(&mut is_new) {
            out.monitor(to);
            out.ask(to, Letter::Question, Duration::from_secs(1));
            (0..3).for_each(|_| out.send(to, Letter::Number));
        }
        events.for_each(|event| {
            got.push(match event {
                Event::Completed(_) => "answer".into(),
                Event::Down(down) => down.exit.to_string(),
                _ => "another event".into(),
            });
        });
        Ok(Step::Idle)
    })
}

#[test]
fn a_process_whose_body_is_lost_ends_as_far_as_it_can() {
    let _second = second_subscriber();
    worlds("lost bodies", |world| {
        let is_asked = Arc::<AtomicBool>::default();
        with_default(Hostile(is_asked.clone()), || {
            let (watcher, log, got) = (Watcher::new(), Log::new(), Log::new());
            let runtime =
                world.start(builder().observer(watcher.clone()).metrics(MetricsOptions::new()).max_processes(3))?;
            let to = runtime.spawn(sink::<Dropped>())?.address();
            let doomed = Doomed { is_asked, log: log.clone(), to };
            let doomed = runtime.spawn_with(doomed, SpawnOptions::new().name("doomed"))?;
            runtime.spawn(asker(doomed.address(), got.clone()))?;
            world.run()?;
            ensure(log.to_vec() == ["yield", "error"], || format!("{:?} were dropped", log.to_vec()))?;
            let (got, exits) = (got.to_vec(), watcher.exits.to_vec());
            let is_told = got.len() == 2 && got[0] == "answer" && got[1].contains("in a subscriber");
            ensure(is_told, || format!("the asker got {got:?}"))?;
            ensure(exits.len() == 1 && exits[0].0 == doomed.pid(), || format!("{exits:?}"))?;
            let (stats, name) = (runtime.stats(), runtime.whereis("doomed"));
            let messages = &stats.messages;
            let sum = messages.stepped + messages.dead() + messages.queued;
            ensure(messages.accepted == sum, || format!("{messages:?}"))?;
            ensure((stats.ended.panicked, stats.processes, name) == (1, 2, None), || format!("{stats:?}, {name:?}"))?;
            // Its place is free.
            runtime.spawn(sink::<()>())?;
            Ok(())
        })
    })
    .check();
}
