//! Nodes whose threads do not run for a while.

use super::*;
use crate::cluster::{NodeEvent, Wire};
use crate::primitives::Mutex;
use crate::process::{Event, Events, Process, Step, StepOutput, StepResult};
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(10);

type Times = Arc<Mutex<Vec<Duration>>>;

/// Steps each 10 ms, and notes the time of each step since its first one.
struct Ticker(Times, Option<std::time::Instant>);

impl Process for Ticker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        let now = out.now();
        let start = *self.1.get_or_insert(now);
        lock(&self.0).push(now - start);
        if events.any(|event| matches!(event, Event::Cancel(_))) {
            return Ok(Step::Done(()));
        }
        out.after(MOMENT);
        Ok(Step::Idle)
    }
}

fn two(world: &World) -> Result<Vec<(Runtime, Cluster)>, BoxError> {
    let mut nodes = Vec::new();
    for name in ["a", "b"] {
        let runtime = world.start(Runtime::builder())?;
        let node = world.start_node(Cluster::named(name, Wire::new()), &runtime)?;
        nodes.push((runtime, node));
    }
    world.run_for(2 * SECOND)?;
    assert!(nodes.iter().all(|(_, node)| node.nodes().len() == 1));
    Ok(nodes)
}

/// The longest time between two steps.
fn longest(times: &[Duration]) -> Duration {
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[test]
fn a_node_does_nothing_while_it_is_paused_and_goes_on() {
    Simulation::new(|world| {
        let nodes = two(world)?;
        let ticks = [Times::default(), Times::default()];
        let spawn = |(ticks, (runtime, _)): (&Times, &(Runtime, Cluster))| runtime.spawn(Ticker(ticks.clone(), None));
        let _tickers = ticks.iter().zip(&nodes).map(spawn).collect::<Result<Vec<_>, _>>()?;
        let mut events = nodes.iter().map(|(_, node)| node.events()).collect::<Vec<_>>();
        world.run_for(SECOND)?;
        // A node may be silent for a second.
        world.network().pause("a", SECOND);
        world.run_for(3 * SECOND)?;
        let (paused, other) = (longest(&lock(&ticks[0])), longest(&lock(&ticks[1])));
        assert!(paused >= SECOND - 2 * MOMENT && paused < SECOND + 2 * MOMENT, "{paused:?}");
        assert!(other < 2 * MOMENT, "{other:?}");
        for events in &mut events {
            assert!(matches!(events.recv_timeout(Duration::ZERO), Ok(Some(NodeEvent::Up(_)))));
            assert!(events.recv_timeout(Duration::ZERO).is_err(), "no node has seen a down");
        }
        // Silence for longer is a down, and the two find each other again.
        world.network().pause("a", 10 * SECOND);
        world.run_for(2 * SECOND)?;
        assert_eq!((nodes[0].1.nodes().len(), nodes[1].1.nodes().len()), (1, 0));
        world.run_for(10 * SECOND)?;
        assert!(nodes.iter().all(|(_, node)| node.nodes().len() == 1));
        let paused = longest(&lock(&ticks[0]));
        assert!(paused >= 10 * SECOND - 2 * MOMENT && paused < 10 * SECOND + 2 * MOMENT, "{paused:?}");
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_node_that_crashes_or_shuts_down_in_a_pause_is_gone() {
    Simulation::new(|world| {
        let nodes = two(world)?;
        let ticker = nodes[0].0.spawn(Ticker(Times::default(), None))?;
        world.run_for(SECOND)?;
        world.network().pause("a", 20 * SECOND);
        world.run_for(MOMENT)?;
        if world.random(0..2) == 0 {
            world.crash(&nodes[0].1, &nodes[0].0);
        } else {
            assert!(nodes[0].0.shutdown(30 * SECOND)?.is_clean());
        }
        assert!(ticker.is_finished());
        world.run_for(2 * SECOND)?;
        assert!(nodes[1].1.nodes().is_empty());
        Ok(())
    })
    .seeds(0..20)
    .check();
}

#[test]
fn a_failure_that_needs_a_pause_is_shrunk_to_one_and_says_so() {
    let run = || {
        Simulation::new(|world| {
            let nodes = two(world)?;
            let ticks = Times::default();
            let _ticker = nodes[0].0.spawn(Ticker(ticks.clone(), None))?;
            world.run_for(10 * SECOND)?;
            let longest = longest(&lock(&ticks));
            crate::simulation::ensure(longest < SECOND, || format!("no step for {longest:?}"))?;
            Ok(())
        })
        .faults(Faults::none().pause_nodes(0.01, 3 * SECOND).delay_frames(0.1, SECOND / 4))
        // A deviation names a pause by the number of the frame at which it begins. The failure of seed 4 needs two
        // pauses. The first one makes the nodes connect again. Their frames for that bring the frame of the second
        // pause forward. Without the first, the second pause ends after the run.
        .seeds(5..55)
        .name("pause")
        .run()
    };
    let report = run();
    let failed = report.failed().expect("a pause is a failure");
    assert_eq!(failed.deviations(), Some(1), "{}", failed.report());
    assert!(failed.trace().contains("is paused, for up to 3s"), "{}", failed.trace());
    // The same seeds are the same runs.
    assert_eq!(run().failed().map(|again| (again.seed(), again.shrunk())), Some((failed.seed(), failed.shrunk())));
}
