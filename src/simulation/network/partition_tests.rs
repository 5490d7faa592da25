//! Partitions that overlap: two nodes do not see each other, and others see both.

use std::collections::BTreeSet;

use super::*;
use crate::cluster::{NodeEvent, NodeEvents, NodeIdentity, PROTOCOL, Wire};
use crate::counts::counts;
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

struct Member {
    name: &'static str,
    runtime: Runtime,
    node: Cluster,
    events: NodeEvents,
}

/// Nodes that see each other. `older` speaks the version before.
fn members(world: &World, older: Option<&str>) -> Result<Vec<Member>, BoxError> {
    let start = |name| {
        let runtime = world.start(Runtime::builder())?;
        let protocol = if older == Some(name) { PROTOCOL - 1 } else { PROTOCOL };
        let node = world.start_node(Cluster::named(name, Wire::new()).protocol(protocol), &runtime)?;
        let events = node.events();
        Ok::<_, BoxError>(Member { name, runtime, node, events })
    };
    let members = NAMES.into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
    connect(world, &members)?;
    Ok(members)
}

fn connect(world: &World, members: &[Member]) -> Result<(), BoxError> {
    for _ in 0..1_000 {
        if members.iter().all(|member| member.node.nodes().len() == members.len() - 1) {
            return Ok(());
        }
        world.run_for(Duration::from_millis(50))?;
    }
    Err("the nodes are not connected".into())
}

impl Member {
    fn here(&self) -> &NodeIdentity {
        self.node.here()
    }

    /// The events since the last call.
    fn new_events(&mut self) -> Vec<NodeEvent> {
        std::iter::from_fn(|| self.events.recv_timeout(Duration::ZERO).ok().flatten()).collect()
    }
}

/// Cuts two nodes from each other, in both directions or in one.
fn cut(world: &World, one: &str, other: &str) {
    match world.random(0..3) {
        0 => world.network().cut(one, other),
        1 => world.network().cut_one_way(one, other),
        _ => world.network().cut_one_way(other, one),
    }
}

/// Cuts `a` from `b` for this time, and heals them. Returns the events of all nodes.
fn events_of_a_cut(world: &World, members: &mut [Member], time: Duration) -> Result<Vec<Vec<NodeEvent>>, BoxError> {
    members.iter_mut().for_each(|member| _ = member.new_events());
    cut(world, "a", "b");
    world.run_for(time)?;
    world.network().heal_all();
    connect(world, members)?;
    world.run_for(10 * SECOND)?;
    for member in &*members {
        assert_eq!(member.node.inquiries(), 0, "{}: nothing is left", member.name);
    }
    Ok(members.iter_mut().map(Member::new_events).collect())
}

/// Fails if a node is not asked, does not answer, or is not named; if one of the two ends is not told; if a node is
/// named twice; or if a node ends a connection because another one has.
#[test]
fn both_ends_of_a_cut_are_told_once_who_sees_the_other_end() {
    Simulation::new(|world| {
        let mut members = members(world, None)?;
        let others = [2, 3].map(|at| members[at].here().clone());
        for _ in 0..2 {
            let events = events_of_a_cut(world, &mut members, 8 * SECOND)?;
            for (at, there) in [(0, 1), (1, 0)] {
                let node = members[there].here();
                let [NodeEvent::Down(down, _), told @ .., NodeEvent::Up(up)] = &events[at][..] else {
                    return Err(format!("{:?}", events[at]).into());
                };
                assert_eq!([down, up], [node; 2]);
                let expected = others.clone().map(|at| NodeEvent::UpElsewhere { node: node.clone(), at });
                assert_eq!((told.len(), told.iter().cloned().collect::<BTreeSet<_>>()), (2, expected.into()));
            }
            assert_eq!(events[2..], [vec![], vec![]], "they see all, and are disconnected from nobody");
        }
        Ok(())
    })
    .faults(Faults::none().delay_frames(0.1, Duration::from_millis(400)))
    .seeds(0..40)
    .check();
}

/// Fails if inquiries are not forgotten when the node is up again.
#[test]
fn nobody_is_told_of_a_node_that_is_up_again_soon() {
    Simulation::new(|world| {
        let mut members = members(world, None)?;
        let time = Duration::from_millis(1_800 + world.random(0..2_500));
        let events = events_of_a_cut(world, &mut members, time)?;
        for events in &events[..2] {
            assert!(matches!(events[..], [NodeEvent::Down(..), NodeEvent::Up(_)]), "{events:?}");
        }
        assert_eq!(events[2..], [vec![], vec![]]);
        Ok(())
    })
    .seeds(0..100)
    .check();
}

/// Some of them have lost it just before it dies, and the others have not: they do not see the cut. So the others still
/// see it when the first ones find that it is down.
///
/// Fails if others are asked soon after the down, or if they answer without a look.
#[test]
fn a_node_that_has_died_is_named_by_nobody_in_any_weather() {
    let faults = Faults::none()
        .lose_frames(0.01)
        .repeat_frames(0.01)
        .delay_frames(0.2, Duration::from_millis(800))
        .cut_nodes(0.002, 5 * SECOND)
        .pause_nodes(0.001, Duration::from_millis(300));
    Simulation::new(|world| {
        let mut members = members(world, None)?;
        world.run_for(Duration::from_millis(world.random(0..1_000)))?;
        let dead = members.remove(world.random(0..4) as usize);
        for member in &members[..world.random(0..3) as usize] {
            cut(world, member.name, dead.name);
        }
        world.run_for(Duration::from_millis(world.random(0..1_500)))?;
        // If a node has lost it before, others are right to name it.
        let is_up = |member: &Member| member.node.nodes().contains(dead.here());
        members.iter_mut().for_each(|member| _ = member.new_events());
        members.retain(is_up);
        world.crash(&dead.node, &dead.runtime);
        world.run_for(10 * SECOND)?;
        for member in &mut members {
            let events = member.new_events();
            let named = |event: &NodeEvent| matches!(event, NodeEvent::UpElsewhere { node, .. } if node == dead.here());
            let is_down = |event: &NodeEvent| matches!(event, NodeEvent::Down(node, _) if node == dead.here());
            assert!(events.iter().any(is_down) && !events.iter().any(named), "{}: {events:?}", member.name);
        }
        Ok(())
    })
    .faults(faults)
    .seeds(0..counts(100, 10_000))
    .check();
}

/// Fails if a node of the version before is asked: it would refuse the connection.
#[test]
fn a_node_of_the_version_before_names_nobody_and_stays_connected() {
    Simulation::new(|world| {
        let mut members = members(world, Some("c"))?;
        let events = events_of_a_cut(world, &mut members, 8 * SECOND)?;
        for events in &events[..2] {
            let [NodeEvent::Down(..), NodeEvent::UpElsewhere { at, .. }, NodeEvent::Up(_)] = &events[..] else {
                return Err(format!("{events:?}").into());
            };
            assert_eq!(at, members[3].here());
        }
        assert_eq!(events[2..], [vec![], vec![]]);
        Ok(())
    })
    .seeds(0..20)
    .check();
}
