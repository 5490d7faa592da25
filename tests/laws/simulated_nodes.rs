//! Small worlds of two nodes, about relations between their processes.

use std::time::Duration;

use procession::cluster::{Cluster, RemoteProcess, Wire};
use procession::simulation::{Simulation, World, ensure};
use procession::{
    BoxError, Event, Events, Exit, Pid, Process, Runtime, SpawnOptions, Step, StepOutput, StepResult, Upgrade,
};

use crate::helpers::*;

const SECOND: Duration = Duration::from_secs(1);

fn worlds(name: &str, scenario: impl Fn(&World) -> Result<(), BoxError> + Send + Sync + 'static) -> Simulation {
    Simulation::new(scenario).name(name).seeds(0..30)
}

/// Links itself to a process, if it has one, and fails at its first message. Then it may recover.
struct Far {
    link: Option<Pid>,
    recovers: bool,
}

impl RemoteProcess for Far {
    const NAME: &'static str = "test::Far";
    const VERSION: u32 = 1;
    type Argument = (Option<Pid>, bool);

    fn begin((link, recovers): (Option<Pid>, bool)) -> Result<Far, BoxError> {
        Ok(Far { link, recovers })
    }
}

impl Process for Far {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        self.link.take().into_iter().for_each(|pid| out.link(pid));
        if events.any(|event| matches!(event, Event::Message(()))) { Err("on purpose".into()) } else { Ok(Step::Idle) }
    }

    fn recover(&mut self, _: &Exit) -> Option<Upgrade<()>> {
        self.recovers.then(|| Upgrade::to(Far { link: None, recovers: false }))
    }
}

/// Spawns a process on the other node, and writes down what it is told of it.
struct Near {
    cluster: Cluster,
    options: Option<SpawnOptions>,
    argument: (Option<Pid>, bool),
    log: Log<&'static str>,
}

impl Process for Near {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        if let Some(options) = self.options.take() {
            out.spawn_on::<Far>(&self.cluster, "b", self.argument, options, SECOND);
        }
        for event in events {
            self.log.push(match event {
                Event::Completed(_) => "spawned",
                Event::Exit(_) => "exit",
                Event::Down(_) => "down",
                Event::Recovered(_) => "recovered",
                _ => "another event",
            });
        }
        Ok(Step::Idle)
    }
}

/// Two nodes. Those that are dropped have ended.
struct Nodes {
    cluster: Cluster,
    a: Runtime,
    _other: Cluster,
    b: Runtime,
}

impl Nodes {
    fn start(world: &World) -> Result<Nodes, BoxError> {
        let start = |name| {
            let runtime = world.start(builder())?;
            let wire = Wire::new().process::<Far>();
            Ok::<_, BoxError>((world.start_node(Cluster::named(name, wire), &runtime)?, runtime))
        };
        let ((cluster, a), (other, b)) = (start("a")?, start("b")?);
        // Until they are connected.
        world.run_for(SECOND)?;
        Ok(Nodes { cluster, a, _other: other, b })
    }

    /// Spawns a process on `a`, which spawns one on `b`.
    fn spawn(
        &self,
        world: &World,
        argument: (Option<Pid>, bool),
        options: SpawnOptions,
    ) -> Result<(Pid, Pid, Log<&'static str>), BoxError> {
        let log = Log::new();
        let near = Near { cluster: self.cluster.clone(), options: Some(options), argument, log: log.clone() };
        let near = self.a.spawn_with(near, SpawnOptions::new().trap_exits())?.pid();
        world.run()?;
        let far = self.b.processes().first().map(|process| process.pid).ok_or("nothing was spawned")?;
        ensure(log.take() == ["spawned"], || "the spawn was not answered".into())?;
        Ok((near, far, log))
    }
}

#[test]
fn a_spawner_is_told_of_its_process_on_another_node() {
    worlds("spawners of another node", |world| {
        let nodes = Nodes::start(world)?;
        let both = || SpawnOptions::new().link().monitor();
        for (recovers, options, expected) in [
            (false, both(), vec!["down", "exit"]),
            (false, SpawnOptions::new().link(), vec!["exit"]),
            (false, SpawnOptions::new().monitor(), vec!["down"]),
            (true, both(), vec!["recovered"]),
        ] {
            let (near, far, log) = nodes.spawn(world, (None, recovers), options)?;
            nodes.b.send(far, ())?;
            world.run()?;
            let mut told = log.take();
            told.sort_unstable();
            ensure(told == expected, || format!("it was told {told:?}, and not {expected:?}"))?;
            // A linked process ends with it.
            nodes.a.terminate(near)?;
            world.run()?;
            ensure(nodes.b.processes().is_empty(), || format!("{:?} is left", nodes.b.processes()))?;
        }
        Ok(())
    })
    .check();
}

#[test]
fn a_link_from_another_node_ends_both_processes() {
    worlds("links from another node", |world| {
        let nodes = Nodes::start(world)?;
        for ends_far in [false, true] {
            let partner = nodes.a.spawn_with(sink::<()>(), SpawnOptions::new())?.pid();
            let (near, far, _) = nodes.spawn(world, (Some(partner), false), SpawnOptions::new())?;
            if ends_far {
                nodes.b.terminate(far)?
            } else {
                nodes.a.terminate(partner)?
            };
            world.run()?;
            let left = [nodes.a.is_alive(partner), nodes.b.is_alive(far)];
            ensure(left == [false, false], || format!("the partner and the other live: {left:?}"))?;
            nodes.a.terminate(near)?;
            world.run()?;
        }
        Ok(())
    })
    .check();
}
