//! Processes that are spawned on the nodes of a network in memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::{MemoryNetwork, Wire};
use crate::latch::Latch;
use crate::outcome::BoxError;
use crate::primitives::{Mutex, lock};
use crate::process::{CommandError, Event, Events, NodeError, Process, Reply, Step, StepResult, Upgrade};
use crate::runtime::Runtime;
use crate::wait::{until, wait};

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
enum Letter {
    Count(Reply<u64>),
    Fail,
}

crate::remote!(Letter, "test::Letter", 1);

struct Counter(u64);

impl RemoteProcess for Counter {
    const NAME: &'static str = "test::Counter";
    const VERSION: u32 = 1;
    type Argument = u64;

    fn begin(from: u64) -> Result<Counter, BoxError> {
        assert!(from != 666, "on purpose");
        if from == 13 {
            return Err("unlucky".into());
        }
        Ok(Counter(from))
    }
}

impl Process for Counter {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Letter::Count(reply)) => {
                    self.0 += 1;
                    out.reply(reply, self.0);
                }
                Event::Message(Letter::Fail) => return Err("a letter".into()),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// The same name and version, with another argument.
struct OtherCounter;

impl RemoteProcess for OtherCounter {
    const NAME: &'static str = "test::Counter";
    const VERSION: u32 = 1;
    type Argument = (u64, u64);

    fn begin(_: (u64, u64)) -> Result<OtherCounter, BoxError> {
        Ok(OtherCounter)
    }
}

impl Process for OtherCounter {
    type Message = ();
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

struct Member {
    runtime: Runtime,
    cluster: Cluster,
}

fn member(name: &str, wire: Wire, network: &MemoryNetwork) -> Member {
    let runtime = Runtime::builder().workers(1).start().unwrap();
    let cluster = Cluster::named(name, wire).memory(network).start(&runtime).unwrap();
    Member { runtime, cluster }
}

fn two(network: &MemoryNetwork, wires: [Wire; 2]) -> [Member; 2] {
    let [one, other] = wires;
    let two = [member("a", one, network), member("b", other, network)];
    two[0].cluster.wait_for("b", LIMIT).unwrap();
    two[1].cluster.wait_for("a", LIMIT).unwrap();
    two
}

fn wire() -> Wire {
    Wire::new().message::<Letter>().process::<Counter>()
}

#[test]
fn a_process_is_spawned_by_the_name_of_a_node_which_may_be_this_one() {
    let [a, b] = two(&MemoryNetwork::new(), [wire(), wire()]);
    for (node, at) in [("b", &b), ("a", &a)] {
        let options = SpawnOptions::new().name("counter");
        let counter = a.cluster.spawn::<Counter>(node, 40, options, LIMIT).wait().unwrap();
        assert_eq!(a.runtime.ask(counter.address, Letter::Count, LIMIT).wait().unwrap(), 41);
        assert!(counter.monitor.is_none() && counter.started.is_none());
        assert_eq!((at.runtime.whereis("counter").is_some(), at.runtime.processes().len()), (true, 1), "{node}");
        // The name is taken.
        let options = SpawnOptions::new().name("counter");
        let refused = a.cluster.spawn::<Counter>(node, 0, options, LIMIT).wait().unwrap_err();
        assert!(refused.to_string().contains("is taken by"), "{refused}");
        for (from, text) in [(13, "failed: unlucky"), (666, "panicked: on purpose")] {
            let failed = a.cluster.spawn::<Counter>(node, from, SpawnOptions::new(), LIMIT).wait().unwrap_err();
            assert_eq!(failed.to_string(), text, "{node}");
        }
    }
}

#[test]
fn a_spawn_that_cannot_be_says_why() {
    let others = [Wire::new().process::<OtherCounter>(), Wire::new()];
    for (other, text) in others.into_iter().zip(["has other fields or variants", "it does not know the name"]) {
        let [a, _b] = two(&MemoryNetwork::new(), [wire(), other]);
        let refused = a.cluster.spawn::<Counter>("b", 1, SpawnOptions::new(), LIMIT).wait().unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
        let unlisted = a.cluster.spawn::<OtherCounter>("b", (1, 2), SpawnOptions::new(), LIMIT).wait().unwrap_err();
        assert!(unlisted.to_string().contains("register it with `Wire::process`"), "{unlisted}");
    }
    let [a, b] = two(&MemoryNetwork::new(), [wire(), wire()]);
    let refuse = |node: &str, options: SpawnOptions| {
        a.cluster.spawn::<Counter>(node, 1, options, LIMIT).wait().unwrap_err().to_string()
    };
    for node in ["a", "b"] {
        assert!(refuse(node, SpawnOptions::new().entry("from", 7)).starts_with("failed: `entry` cannot be sent"));
        let recover = SpawnOptions::new().recover_with(|_| None::<Upgrade<()>>);
        assert!(refuse(node, recover).starts_with("failed: `recover_with` cannot be sent"));
        assert!(refuse(node, SpawnOptions::new().link()).contains("need a process that spawns"));
    }
    // The options are no part of the argument, and have a limit, too.
    let long = SpawnOptions::new().name("x".repeat(20 << 20));
    let refused = a.cluster.spawn::<Counter>("b", 1, long, LIMIT).wait().map(|_| ()).unwrap_err();
    let CommandError::Node { why: NodeError::TooLarge { size, .. }, .. } = refused else { panic!("{refused}") };
    assert!(size > 20 << 20);
    assert_eq!(a.cluster.nodes().len(), 1, "the connection stays");
    assert!(refuse("c", SpawnOptions::new()).ends_with("its node is down"));
    b.runtime.shutdown(LIMIT).unwrap();
    until("it has left", || a.cluster.nodes().is_empty());
    assert!(refuse("b", SpawnOptions::new()).ends_with("its node is down"));
    assert_eq!(a.runtime.processes().len(), 0);
}

/// Spawns one process, and notes its events.
struct Keeper {
    cluster: Cluster,
    node: &'static str,
    child: Option<Tag<Spawned<Letter>>>,
    seen: Arc<Mutex<Vec<String>>>,
    address: Latch<Spawned<Letter>>,
}

impl Process for Keeper {
    type Message = ();
    type Output = ();

    fn start(&mut self, out: &mut StepOutput) -> Result<(), BoxError> {
        let options = SpawnOptions::new().link().monitor();
        self.child = Some(out.spawn_on::<Counter>(&self.cluster, self.node, 9, options, LIMIT));
        Ok(())
    }

    fn step(&mut self, events: &mut Events<'_, ()>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let seen = match event {
                Event::Completed(done) => match done.take(self.child) {
                    Some(Ok(spawned)) => {
                        let _ = self.address.set(spawned);
                        continue;
                    }
                    other => format!("{other:?}"),
                },
                Event::Down(down) => {
                    let monitor = self.address.get().and_then(|spawned| spawned.monitor);
                    format!("down {} of mine: {}", down.exit, monitor == Some(down.monitor))
                }
                Event::Exit(exit) => format!("exit {}", exit.exit),
                _ => "another event".into(),
            };
            lock(&self.seen).push(seen);
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_step_spawns_on_a_node_with_a_link_and_a_monitor_also_on_its_own() {
    let [a, b] = two(&MemoryNetwork::new(), [wire(), wire()]);
    for (node, at) in [("b", &b), ("a", &a)] {
        for keeper_ends in [false, true] {
            let (seen, address) = (Arc::default(), Latch::new());
            let cluster = a.cluster.clone();
            let keeper = Keeper { cluster, node, child: None, seen: Arc::clone(&seen), address: address.clone() };
            let keeper = a.runtime.spawn_with(keeper, SpawnOptions::new().trap_exits()).unwrap();
            let child = wait(&address);
            assert_eq!(a.runtime.ask(child.address, Letter::Count, LIMIT).wait().unwrap(), 10);
            if keeper_ends {
                a.runtime.terminate(keeper.pid()).unwrap();
                until("it ends with its spawner", || at.runtime.processes().is_empty());
                continue;
            }
            a.runtime.send(child.address, Letter::Fail).unwrap();
            until("its end is told", || lock(&seen).len() == 2);
            let mut seen = std::mem::take(&mut *lock(&seen));
            seen.sort();
            assert_eq!(seen, ["down failed: a letter of mine: true", "exit failed: a letter"], "{node}");
            a.runtime.terminate(keeper.pid()).unwrap();
        }
    }
    // A node that has never been connected.
    let (seen, cluster) = (Arc::default(), a.cluster.clone());
    let keeper = Keeper { cluster, node: "c", child: None, seen: Arc::clone(&seen), address: Latch::new() };
    let _keeper = a.runtime.spawn(keeper).unwrap();
    until("it is refused", || !lock(&seen).is_empty());
    assert!(lock(&seen)[0].contains("NodeDown"), "{:?}", lock(&seen));
}
