//! Small worlds about the order of two effects: of an end or a recovery, of the yields of a step, and of the marks of
//! traced messages.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use procession::command::{Command, Responder};
use procession::observe::{DeadLetterReason, ExitWatcher};
use procession::simulation::{Simulation, World, ensure};
use procession::spawn::Overflow;
use procession::supervisor::{ChildError, ChildSpec, Supervisor, SupervisorMessage};
use procession::sync::CancelCallback;
use procession::{
    Address, BoxError, Event, Events, Exit, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult,
    Tag, Upgrade, WeakRuntime,
};

use crate::helpers::*;
use crate::traces::Traces;

const SECOND: Duration = Duration::from_secs(1);

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..300)
}

/// Writes its name down when it is dropped.
struct Dropped(&'static str, Log<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.push(self.0);
    }
}

/// A command that is never answered. The list gets a word when it is cancelled.
struct Watched(Log<&'static str>);

impl Command for Watched {
    type Output = ();
}

/// Has a future and a command. Its second step is done, fails or recovers, as `ends` says.
struct Owner {
    ends: Option<Ending>,
    is_new: bool,
    log: Log<&'static str>,
    _dropped: Dropped,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Done,
    Fails,
    Recovers,
}

impl Owner {
    fn new(ends: Ending, log: &Log<&'static str>) -> Owner {
        Owner { ends: Some(ends), is_new: true, log: log.clone(), _dropped: Dropped("state", log.clone()) }
    }
}

impl Process for Owner {
    type Message = Dropped;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Dropped>, out: &mut StepOutput) -> StepResult<()> {
        if std::mem::take(&mut self.is_new) {
            let held = Dropped("future", self.log.clone());
            out.future(async move {
                let _held = held;
                pending::<()>().await;
            });
            out.command(Watched(self.log.clone()));
            return Ok(Step::Continue);
        }
        let Some(ends) = self.ends else { return Ok(Step::Idle) };
        out.send(out.own_address::<Owner>(), Dropped("message", self.log.clone()));
        if matches!(ends, Ending::Done) { Ok(Step::Done(())) } else { Err("on purpose".into()) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        let log = Log::new();
        let next = Owner { ends: None, is_new: false, log: log.clone(), _dropped: Dropped("next state", log) };
        matches!(self.ends, Some(Ending::Recovers)).then(|| Upgrade::to(next))
    }

    fn close(&mut self) {
        self.log.push("close");
    }
}

#[test]
fn a_process_that_ends_or_recovers_drops_its_parts_in_order() {
    worlds("ends", |world| {
        let callbacks = Arc::<Mutex<Vec<(CancelCallback, Responder<()>)>>>::default();
        let kept = callbacks.clone();
        let runtime = world.start(builder().handler(move |command: Watched, done: Responder<()>| {
            let callback = done.cancel().on_cancel(move |_| command.0.push("command"));
            callbacks.lock().unwrap().push((callback, done));
            Ok(())
        }))?;
        for (ending, expected) in [
            (Ending::Done, ["close", "future", "command", "message", "state"]),
            (Ending::Fails, ["close", "message", "future", "command", "state"]),
            (Ending::Recovers, ["message", "close", "future", "command", "state"]),
        ] {
            let log = Log::new();
            runtime.spawn(Owner::new(ending, &log))?;
            world.run()?;
            ensure(log.to_vec() == expected, || format!("{ending:?}: {:?}", log.to_vec()))?;
        }
        // An open command keeps its runtime, and the handler of the runtime keeps the command.
        kept.lock().unwrap().clear();
        Ok(())
    })
    .check();
}

/// Draws a number in each step. The first one fails.
struct Draws {
    fails: bool,
    drawn: Log<u64>,
}

impl Process for Draws {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        self.drawn.push(out.random());
        if self.fails { Err("on purpose".into()) } else { Ok(Step::Done(())) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        Some(Upgrade::to(Draws { fails: false, drawn: self.drawn.clone() }))
    }
}

#[test]
fn the_numbers_of_a_failed_step_are_not_drawn_again() {
    worlds("numbers of failed steps", |world| {
        let runtime = world.start(builder())?;
        let all: Vec<Log<u64>> = (0..3).map(|_| Log::new()).collect();
        for drawn in &all {
            runtime.spawn(Draws { fails: true, drawn: drawn.clone() })?;
        }
        world.run()?;
        for drawn in all {
            let drawn = drawn.to_vec();
            ensure(drawn.len() == 2 && drawn[0] != drawn[1], || format!("it has drawn {drawn:?}"))?;
        }
        Ok(())
    })
    .check();
}

/// Calls `sees` with the runtime in a few steps.
fn onlooker(
    runtime: WeakRuntime,
    mut sees: impl FnMut(&Runtime) + Send + 'static,
) -> impl Process<Message = (), Output = ()> {
    let mut steps = 0;
    script(move |_: &mut Events<'_, ()>, _: &mut StepOutput| {
        runtime.upgrade().iter().for_each(&mut sees);
        steps += 1;
        Ok(if steps < 8 { Step::Continue } else { Step::Done(()) })
    })
}

#[test]
fn a_message_is_counted_when_it_is_delivered() {
    worlds("counts between yields", |world| {
        let runtime = world.start(builder())?;
        let sums = Log::new();
        let seen = sums.clone();
        runtime.spawn(onlooker(runtime.downgrade(), move |runtime| {
            let messages = runtime.stats().messages;
            seen.push((messages.accepted, messages.stepped + messages.dead() + messages.queued));
        }))?;
        let to = runtime.spawn(sink::<u64>())?.address();
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            out.send(to, 1);
            Ok(Step::Done(()))
        }))?;
        world.run()?;
        let wrong = sums.to_vec().into_iter().find(|(accepted, sum)| accepted != sum);
        ensure(wrong.is_none(), || format!("accepted messages, and their sum: {wrong:?}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn others_may_be_stepped_before_a_question_arrives() {
    let is_found = Arc::<AtomicBool>::default();
    let found = is_found.clone();
    worlds("a question that comes later", move |world| {
        let runtime = world.start(builder())?;
        let log = Log::new();
        let (asks, answers, found) = (log.clone(), log.clone(), found.clone());
        let asked = runtime.spawn(script(move |events: &mut Events<'_, Reply<()>>, out: &mut StepOutput| {
            let Some(Event::Message(reply)) = events.next() else { return Ok(Step::Idle) };
            answers.push("answered");
            out.reply(reply, ());
            Ok(Step::Done(()))
        }))?;
        let (to, log) = (asked.address(), log.clone());
        runtime.spawn(onlooker(runtime.downgrade(), move |runtime| {
            let waits = runtime.processes().iter().any(|process| process.pid == to.pid() && process.mailbox > 0);
            found.fetch_or(log.to_vec() == ["asked"] && !waits, Ordering::SeqCst);
        }))?;
        let mut has_asked = false;
        runtime.spawn(script(move |_: &mut Events<'_, ()>, out: &mut StepOutput| {
            if std::mem::replace(&mut has_asked, true) {
                return Ok(Step::Done(()));
            }
            asks.push("asked");
            out.ask(to, |reply| reply, SECOND);
            Ok(Step::Wait)
        }))?;
        world.run()?;
        Ok(())
    })
    .check();
    assert!(is_found.load(Ordering::SeqCst), "in no world a question was on its way");
}

/// Asks a supervisor to stop a child and to restart it, and writes the answers down.
struct Indecisive {
    supervisor: Address<SupervisorMessage>,
    stopped: Option<Tag<Result<(), ChildError>>>,
    restarted: Option<Tag<Result<Pid, ChildError>>>,
    answers: Log<String>,
}

impl Process for Indecisive {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.stopped = Some(out.ask(self.supervisor, SupervisorMessage::stop("child"), 10 * SECOND));
        self.restarted = Some(out.ask(self.supervisor, SupervisorMessage::restart("child"), 10 * SECOND));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Completed(done) = event {
                self.answers.push(match done.take(self.stopped) {
                    Some(stopped) => format!("stopped: {}", stopped?.is_ok()),
                    None => format!("restarted: {}", !matches!(done.take(self.restarted), Some(Ok(Err(_))))),
                });
            }
        }
        Ok(Step::Idle)
    }
}

/// A child that needs a second to stop.
fn slow() -> impl Process<Message = (), Output = ()> {
    let mut stops = None;
    script(move |events: &mut Events<'_, ()>, out: &mut StepOutput| {
        for event in events {
            match event {
                Event::Cancel(_) => stops = Some(out.after(SECOND)),
                Event::Completed(done) if done.is(stops) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    })
}

#[test]
fn a_stopped_child_is_reported_before_its_restart_is_refused() {
    worlds("answers of a supervisor that ends", |world| {
        let runtime = world.start(builder())?;
        let supervisor = runtime.spawn(Supervisor::builder().child(ChildSpec::new("child", slow)).build()?)?;
        world.run()?;
        let (answers, supervisor) = (Log::new(), supervisor.address());
        runtime.spawn(Indecisive { supervisor, stopped: None, restarted: None, answers: answers.clone() })?;
        world.run_for(SECOND / 2)?;
        runtime.cancel(supervisor, "enough")?;
        world.run()?;
        let answers = answers.to_vec();
        ensure(answers == ["stopped: true", "restarted: false"], || format!("{answers:?}"))?;
        Ok(())
    })
    .check();
}

/// Writes down each message with the parent of the span in which it is, and sends it on.
struct Reader {
    to: Option<Address<u64>>,
    traces: Traces,
    read: Log<(u64, Option<usize>)>,
}

impl Process for Reader {
    type Message = u64;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, u64>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(number) = event {
                let span = Traces::current();
                self.read.push((number, span.and_then(|span| self.traces.spans()[span].parent)));
                self.to.iter().for_each(|to| (0..2).for_each(|_| out.send(*to, span.unwrap_or_default() as u64)));
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn each_message_has_the_trace_in_which_it_was_sent() {
    worlds("traces", |world| {
        let traces = Traces::new();
        let step_events = 1 + world.random(0..4) as usize;
        let runtime = world.start(builder().propagate(traces.clone()).step_events(step_events))?;
        let (first, last) = (Log::new(), Log::new());
        let options = || match step_events.is_multiple_of(2) {
            true => SpawnOptions::new().mailbox(20, Overflow::Refuse),
            false => SpawnOptions::new(),
        };
        let reader = Reader { to: None, traces: traces.clone(), read: last.clone() };
        let to = runtime.spawn_with(reader, options())?.address();
        let reader = Reader { to: Some(to), traces: traces.clone(), read: first.clone() };
        let reader = runtime.spawn_with(reader, options())?;
        let mut sent = Vec::new();
        for number in 0..4 {
            let is_traced = world.random(0..4) > 0;
            let root = is_traced.then(|| traces.root(|| _ = runtime.send(&reader, number)));
            if root.is_none() {
                runtime.send(&reader, number)?;
            }
            sent.push((number, root));
            if world.random(0..4) == 0 {
                world.run()?;
            }
        }
        world.run()?;
        ensure(first.to_vec() == sent, || format!("{:?}, and {sent:?} were sent", first.to_vec()))?;
        // The number of a message is its span.
        let last = last.to_vec();
        let is_right = |(number, parent): &(u64, Option<usize>)| parent.unwrap_or_default() as u64 == *number;
        ensure(last.len() == 8 && last.iter().all(is_right), || format!("{last:?}"))?;
        drop(runtime);
        Ok(())
    })
    .check();
}

#[test]
fn a_message_that_is_pushed_out_is_dead_in_its_own_trace() {
    worlds("traces of dead letters", |world| {
        let traces = Traces::new();
        let runtime = world.start(builder().propagate(traces.clone()).step_events(1))?;
        let read = Log::new();
        let reader = Reader { to: None, traces: traces.clone(), read: read.clone() };
        let reader = runtime.spawn_with(reader, SpawnOptions::new().mailbox(3, Overflow::DropOldest))?;
        world.run()?;
        let mut roots = Vec::new();
        for number in 0..12 {
            roots.push(traces.root(|| _ = runtime.send(&reader, number)));
            // The reader may take one of several messages meanwhile.
            if world.random(0..3) == 0 {
                world.run_for(Duration::from_micros(world.random(1..4)))?;
            }
        }
        world.run()?;
        let (read, dead) = (read.to_vec(), traces.dead());
        for (number, root) in roots.into_iter().enumerate() {
            let is_read = read.contains(&(number as u64, Some(root)));
            let is_dead = dead.contains(&(root, DeadLetterReason::DroppedOldest));
            ensure(is_read != is_dead, || format!("{number} with {root}: {read:?} and {dead:?}"))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_call_that_terminates_says_whether_there_was_a_process() {
    worlds("terminated", |world| {
        let runtime = world.start(builder())?;
        let process = runtime.spawn(sink::<()>())?;
        let never: Pid = "<1.900.1>".parse()?;
        let first = runtime.terminate(&process);
        world.run()?;
        let (again, never) = (runtime.terminate(&process), runtime.terminate(never));
        let is_right = first == Ok(true) && again == Ok(false) && never.is_err();
        ensure(is_right, || format!("{first:?}, {again:?} and {never:?}"))?;
        Ok(())
    })
    .check();
}

#[test]
fn a_watcher_outside_is_told_when_its_world_ends() {
    let watchers = Arc::<Mutex<Vec<ExitWatcher>>>::default();
    let kept = watchers.clone();
    worlds("watchers", move |world| {
        let runtime = world.start(builder())?;
        let process = runtime.spawn(sink::<()>())?;
        world.run()?;
        kept.lock().unwrap().push(runtime.watch(&process));
        Ok(())
    })
    .check();
    let watchers = watchers.lock().unwrap();
    assert!(watchers.len() >= 300 && watchers.iter().all(|watcher| watcher.down().is_some()));
}

/// A command without a handler. Its answer comes at once, and says so.
struct Unknown;

impl Command for Unknown {
    type Output = ();
}

/// Writes down how many answers each step takes. Its `start` yields commands.
struct Starting {
    answers: Log<usize>,
}

impl Process for Starting {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        out.command(Unknown);
        out.command(Unknown);
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        self.answers.push(events.filter(|event| matches!(event, Event::Completed(_))).count());
        Ok(Step::Idle)
    }
}

#[test]
fn the_first_step_is_given_answers_that_came_at_once() {
    worlds("answers that come at once", |world| {
        let (runtime, answers) = (world.start(builder())?, Log::new());
        runtime.spawn(Starting { answers: answers.clone() })?;
        world.run()?;
        ensure(answers.to_vec() == [2], || format!("{:?}", answers.to_vec()))?;
        Ok(())
    })
    .check();
}
