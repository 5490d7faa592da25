//! The hash of a run covers the types and the targets of yields. Statement 1.

use std::collections::BTreeMap;
use std::time::Duration;

use procession::command::Command;
use procession::simulation::Simulation;
use procession::{Address, Events, Pid, Process, Reply, Runtime, SpawnOptions, Step, StepOutput, StepResult};

use crate::programs::SECOND;

/// Takes no message of the types that are sent here. So each message is a dead letter, and no turn follows it.
struct Quiet;

/// As `Quiet`.
struct Other;

macro_rules! quiet {
    ($process:ident) => {
        impl Process for $process {
            type Message = ();
            type Output = ();

            fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
                events.for_each(drop);
                Ok(Step::Idle)
            }
        }
    };
}

quiet!(Quiet);
quiet!(Other);

struct One;
struct Two;

impl Command for One {
    type Output = ();
}

impl Command for Two {
    type Output = ();
}

struct Question(Reply<()>);
struct OtherQuestion(Reply<()>);

type Yields = fn(&mut StepOutput, [Pid; 3]);

/// Yields in its first step. The events that follow make no difference to it.
struct Yielder {
    yields: Option<Yields>,
    others: [Pid; 3],
}

impl Process for Yielder {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        events.for_each(drop);
        self.yields.take().into_iter().for_each(|yields| yields(out, self.others));
        Ok(Step::Idle)
    }
}

fn hash_of(yields: Yields) -> u64 {
    let report = Simulation::new(move |world| {
        let runtime = world.start(Runtime::builder())?;
        let spawn = |groups: [&str; 2]| {
            let options = groups.into_iter().fold(SpawnOptions::new(), SpawnOptions::group);
            runtime.spawn_with(Quiet, options).map(|quiet| quiet.pid())
        };
        let others = [spawn(["one", "two"])?, spawn(["one", "three"])?, spawn(["two", "three"])?];
        world.run()?;
        runtime.spawn(Yielder { yields: Some(yields), others })?;
        world.run_for(10 * SECOND)
    })
    .seeds(0..1)
    .run();
    assert!(report.failed().is_none());
    report.hash()
}

fn u8s(pid: Pid) -> Address<u8> {
    pid.typed()
}

fn u16s(pid: Pid) -> Address<u16> {
    pid.typed()
}

#[test]
fn another_type_or_target_of_one_yield_makes_another_hash() {
    const SHORT: Duration = Duration::from_millis(1);
    let yields: &[(&str, Yields)] = &[
        ("send", |out, [a, ..]| out.send(u8s(a), 1)),
        ("send to another", |out, [_, b, _]| out.send(u8s(b), 1)),
        ("send another type", |out, [a, ..]| out.send(u16s(a), 1)),
        ("ask", |out, [a, ..]| _ = out.ask(a.typed(), Question, SHORT)),
        ("ask another", |out, [_, b, _]| _ = out.ask(b.typed(), Question, SHORT)),
        ("ask another type", |out, [a, ..]| _ = out.ask(a.typed(), OtherQuestion, SHORT)),
        ("broadcast", |out, _| _ = out.broadcast("one", 1_u8)),
        ("broadcast to others", |out, _| _ = out.broadcast("two", 1_u8)),
        ("broadcast another type", |out, _| _ = out.broadcast("one", 1_u16)),
        ("send to no name", |out, _| out.send("nobody", 1_u8)),
        ("send to another one", |out, _| out.send("somebody", 1_u8)),
        ("send another type to no name", |out, _| out.send("nobody", 1_u16)),
        ("send with a limit", |out, [a, ..]| _ = out.send_timeout(u8s(a), 1, SHORT)),
        ("send to another with a limit", |out, [_, b, _]| _ = out.send_timeout(u8s(b), 1, SHORT)),
        ("spawn", |out, _| _ = out.spawn(Quiet)),
        ("spawn another type", |out, _| _ = out.spawn(Other)),
        ("spawn with a name", |out, _| _ = out.spawn_with(Quiet, SpawnOptions::new().name("a"))),
        ("spawn with another name", |out, _| _ = out.spawn_with(Quiet, SpawnOptions::new().name("b"))),
        ("command", |out, _| _ = out.command(One)),
        ("another command", |out, _| _ = out.command(Two)),
        ("command with a limit", |out, _| _ = out.command_timeout(One, SHORT)),
        ("another command with a limit", |out, _| _ = out.command_timeout(Two, SHORT)),
        ("register", |out, [a, ..]| _ = out.register("a", a)),
        ("register another", |out, [_, b, _]| _ = out.register("a", b)),
        ("register another name", |out, [a, ..]| _ = out.register("b", a)),
        ("unregister", |out, _| _ = out.unregister("a")),
        ("unregister another name", |out, _| _ = out.unregister("b")),
        ("join", |out, [a, ..]| _ = out.join_group("a", a)),
        ("join another group", |out, [a, ..]| _ = out.join_group("b", a)),
        ("join by another", |out, [_, b, _]| _ = out.join_group("a", b)),
        ("subscribe", |out, _| _ = out.subscribe("a")),
        ("subscribe to another group", |out, _| _ = out.subscribe("b")),
        ("monitor", |out, [a, ..]| {
            let monitor = out.monitor(a);
            out.demonitor(monitor);
        }),
        ("monitor another", |out, [_, b, _]| {
            let monitor = out.monitor(b);
            out.demonitor(monitor);
        }),
        ("link", |out, [a, ..]| {
            out.link(a);
            out.unlink(a);
        }),
        ("link to another", |out, [_, b, _]| {
            out.link(b);
            out.unlink(b);
        }),
        ("after many sends", |out, [a, ..]| (0..20_000).for_each(|_| out.send(u8s(a), 1))),
        ("after many sends to others", |out, [a, b, _]| {
            for number in 0..10_000 {
                out.send(u8s(a), number as u8);
                out.send(u8s(b), number as u8);
            }
        }),
        ("after many sends to others, the other one first", |out, [a, b, _]| {
            for number in 0..10_000 {
                out.send(u8s(if number == 0 { b } else { a }), number as u8);
                out.send(u8s(if number == 0 { a } else { b }), number as u8);
            }
        }),
    ];
    let mut found = BTreeMap::<u64, Vec<&str>>::new();
    for (name, yields) in yields {
        found.entry(hash_of(*yields)).or_default().push(name);
    }
    found.retain(|_, names| names.len() > 1);
    assert!(found.is_empty(), "these have one hash: {:?}", found.values());
}
