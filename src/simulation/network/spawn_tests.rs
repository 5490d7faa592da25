//! Processes that nodes of a world spawn on each other, in bad weather.

use super::*;
use crate::cluster::{Cluster, RemoteProcess, Wire};
use crate::counts::counts;
use crate::outcome::BoxError;
use crate::primitives::Mutex;
use crate::process::{
    CommandError, Event, Events, NodeError, Process, SpawnOptions, Spawned, Step, StepOutput, StepResult, Tag,
    TimerFired,
};
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);

/// Lives until it is ended.
struct Child;

impl RemoteProcess for Child {
    const NAME: &'static str = "test::Child";
    const VERSION: u32 = 1;
    type Argument = ();

    fn begin((): ()) -> Result<Child, BoxError> {
        Ok(Child)
    }
}

impl Process for Child {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[derive(Default)]
struct Counts {
    started: u64,
    refused: u64,
    exits: u64,
}

/// Spawns one child after the other, linked, on the node `b`, and one more for each message.
struct Spawner {
    cluster: Cluster,
    left: u32,
    timer: Option<Tag<TimerFired>>,
    children: Vec<Tag<Spawned<()>>>,
    counts: Arc<Mutex<Counts>>,
}

impl Process for Spawner {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        self.timer = Some(out.after(Duration::from_millis(100)));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Completed(done) if done.is(self.timer) => {
                    let options = SpawnOptions::new().link();
                    let limit = if self.left.is_multiple_of(7) { Duration::from_millis(5) } else { 10 * SECOND };
                    self.children.push(out.spawn_on::<Child>(&self.cluster, "b", (), options, limit));
                    self.left -= 1;
                    self.timer = (self.left > 0).then(|| out.after(Duration::from_millis(100)));
                }
                Event::Message(()) => {
                    let options = SpawnOptions::new().link();
                    self.children.push(out.spawn_on::<Child>(&self.cluster, "b", (), options, 10 * SECOND));
                }
                Event::Completed(done) => {
                    let answer = self.children.iter().find_map(|tag| done.take(*tag));
                    let mut counts = lock(&self.counts);
                    match answer.expect("each spawn is answered once") {
                        Ok(_) => counts.started += 1,
                        Err(CommandError::Node { why: NodeError::NodeDown, .. } | CommandError::TimedOut) => {
                            counts.refused += 1;
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Event::Exit(_) => lock(&self.counts).exits += 1,
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn in_bad_weather_no_linked_child_is_left_that_its_spawner_does_not_know() {
    let faults = Faults::none()
        .lose_frames(0.02)
        .repeat_frames(0.02)
        .delay_frames(0.1, Duration::from_millis(400))
        .cut_nodes(0.01, 5 * SECOND)
        .until(8 * SECOND);
    Simulation::new(|world| {
        let counts = Arc::<Mutex<Counts>>::default();
        let nodes = ["a", "b"].map(|name| {
            let runtime = world.start(Runtime::builder())?;
            let wire = Wire::new().process::<Child>();
            Ok::<_, BoxError>((world.start_node(Cluster::named(name, wire), &runtime)?, runtime))
        });
        let [a, b] = nodes;
        let ((cluster, a), (_b, b)) = (a?, b?);
        let counted = counts.clone();
        let spawner =
            Spawner { cluster: cluster.clone(), left: 60, timer: None, children: Vec::new(), counts: counted };
        let spawner = a.spawn_with(spawner, SpawnOptions::new().trap_exits())?;
        world.run_for(30 * SECOND)?;
        world.network().heal_all();
        world.run_for(10 * SECOND)?;
        {
            let counts = lock(&counts);
            assert_eq!(counts.started + counts.refused, 60, "each spawn is answered");
            let living = b.processes().len() as u64;
            assert_eq!(living, counts.started - counts.exits, "{} started", counts.started);
        }
        // In good weather a child starts. So there is one that ends with its spawner.
        let before = (lock(&counts).started, b.processes().len());
        a.send(&spawner, ())?;
        world.run_for(SECOND)?;
        assert_eq!((lock(&counts).started, b.processes().len()), (before.0 + 1, before.1 + 1));
        let (at, is_crash) = (world.now(), world.random(0..2) == 0);
        if is_crash {
            world.crash(&cluster, &a);
        } else {
            a.terminate(spawner.pid())?;
        }
        while !b.processes().is_empty() {
            world.run_for(Duration::from_millis(10))?;
            let limit = if is_crash { Duration::from_secs(2) } else { Duration::from_secs(1) };
            assert!(world.now() - at <= limit, "they end with their spawner, or with its node: {is_crash}");
        }
        Ok(())
    })
    .faults(faults)
    .seeds(0..counts(200, 10_000))
    .check();
}
