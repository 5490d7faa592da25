//! Two nodes that flood each other, in a world and with threads.

use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::{MemoryNetwork, Wire};
use crate::pid::Address;
use crate::primitives::Mutex;
use crate::process::{
    DeadLetter, DeadLetterReason, Event, Events, Observer, Overflow, Process, SendError, SpawnOptions, Step,
    StepOutput, StepResult,
};
use crate::runtime::RuntimeBuilder;
use crate::simulation::Simulation;
use crate::wait::until;

const LIMIT: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
enum Flood {
    Text(String),
    /// Begins to send to this process.
    Begin(Address<Flood>),
}

crate::remote!(Flood, "test::Flood", 1);

/// The numbers of texts that were sent and taken, and of processes that have sent all, and the dead letters.
#[derive(Default)]
struct Counts {
    sent: u64,
    taken: u64,
    done: usize,
    full: u64,
    others: Vec<DeadLetterReason>,
}

type Shelf = Arc<Mutex<Counts>>;

struct Graves(Shelf);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let counts = &mut *lock(&self.0);
        match letter.reason {
            DeadLetterReason::Full => counts.full += 1,
            other => counts.others.push(other),
        }
    }
}

/// Sends this many texts, without a pause. Its mailbox has a bound.
struct Flooder {
    to: Option<Address<Flood>>,
    left: u32,
    size: usize,
    counts: Shelf,
}

impl Process for Flooder {
    type Message = Flood;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Flood>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Flood::Text(_)) => lock(&self.counts).taken += 1,
                Event::Message(Flood::Begin(to)) => self.to = Some(to),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        let Some(to) = self.to else { return Ok(Step::Idle) };
        let count = self.left.min(4);
        self.left -= count;
        (0..count).for_each(|_| out.send(to, Flood::Text("x".repeat(self.size))));
        let counts = &mut *lock(&self.counts);
        counts.sent += u64::from(count);
        if self.left > 0 {
            return Ok(Step::Continue);
        }
        counts.done += 1;
        self.to = None;
        Ok(Step::Idle)
    }
}

const EACH: usize = 50;

struct Side {
    runtime: Runtime,
    node: Cluster,
    flooders: Vec<Address<Flood>>,
}

impl Side {
    fn new(runtime: Runtime, node: Cluster, (left, size): (u32, usize), counts: &Shelf) -> Result<Side, BoxError> {
        let spawn = |_| {
            let flooder = Flooder { to: None, left, size, counts: counts.clone() };
            let spawned = runtime.spawn_with(flooder, SpawnOptions::new().mailbox(16, Overflow::Refuse));
            Ok::<_, BoxError>(spawned?.address())
        };
        let flooders = (0..EACH).map(spawn).collect::<Result<_, _>>()?;
        Ok(Side { runtime, node, flooders })
    }

    /// Each process begins to send to one of the other side.
    fn begin(&self, other: &Side) -> Result<(), BoxError> {
        let number = self.node.number_of(other.node.here().incarnation());
        for (from, to) in self.flooders.iter().zip(&other.flooders) {
            let to = Pid::new(number, to.pid().slot(), to.pid().generation()).ok_or("a PID has a number")?;
            let mut begin = Flood::Begin(to.typed());
            // The other side may have begun, and its texts may fill the mailbox for a moment.
            while let Err(refused) = self.runtime.send(*from, begin) {
                if !matches!(refused.reason(), SendError::Full { .. }) {
                    return Err(refused.into());
                }
                begin = refused.into_inner();
                std::thread::yield_now();
            }
        }
        Ok(())
    }
}

fn check(counts: &Shelf) -> Result<(), BoxError> {
    let Counts { sent, taken, done, full, others } = &*lock(counts);
    if *done != 2 * EACH || taken + full != *sent || !others.is_empty() {
        return Err(
            format!("{done} are done, {sent} were sent, {taken} taken, {full} found no room, {others:?}").into()
        );
    }
    Ok(())
}

fn builder(counts: &Shelf) -> RuntimeBuilder {
    Runtime::builder().observer(Graves(counts.clone()))
}

#[test]
fn two_nodes_of_a_world_that_flood_each_other_come_to_no_standstill() {
    Simulation::new(|world| {
        let counts = Shelf::default();
        let start = |name| {
            let runtime = world.start(builder(&counts))?;
            let node = world.start_node(Cluster::named(name, Wire::new().message::<Flood>()), &runtime)?;
            Side::new(runtime, node, (20, 30_000), &counts)
        };
        let (one, other) = (start("a")?, start("b")?);
        world.run_for(Duration::from_secs(2))?;
        one.begin(&other)?;
        other.begin(&one)?;
        let mut held = 0;
        for _ in 0..100 {
            world.run_for(Duration::from_micros(100))?;
            held = held.max(one.node.stats().held_processes);
        }
        world.run_for(Duration::from_secs(10))?;
        assert!(held > 0, "nobody was ever held");
        assert_eq!(one.node.stats().held_processes, 0);
        check(&counts)
    })
    .seeds(0..10)
    .check();
}

#[test]
fn two_nodes_with_threads_that_flood_each_other_come_to_no_standstill() {
    let (counts, network) = (Shelf::default(), MemoryNetwork::new());
    let start = |name: &str| {
        let runtime = builder(&counts).workers(2).start().unwrap();
        let node = Cluster::named(name, Wire::new().message::<Flood>()).memory(&network).start(&runtime).unwrap();
        Side::new(runtime, node, (400, 10_000), &counts).unwrap()
    };
    let (one, other) = (start("a"), start("b"));
    one.node.wait_for("b", LIMIT).unwrap();
    other.node.wait_for("a", LIMIT).unwrap();
    one.begin(&other).unwrap();
    other.begin(&one).unwrap();
    let mut held = 0;
    until("all have sent what they were to send, and it is taken or dead", || {
        held = held.max(one.node.stats().held_processes + other.node.stats().held_processes);
        check(&counts).is_ok()
    });
    assert!(held > 0, "nobody was ever held");
}
