//! A cluster whose nodes are restarted one after the other with newer programs, while they send to each other.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::{NodeEvent, PROTOCOL, Remote, Wire};
use crate::counts::counts;
use crate::primitives::Mutex;
use crate::process::{
    DeadLetter, Event, Events, NodeError, Observer, Process, SendError, Step, StepOutput, StepResult,
};
use crate::simulation::Simulation;

const SECOND: Duration = Duration::from_secs(1);

/// A message, in the type of one of the programs.
trait Order: Remote + Serialize + DeserializeOwned {
    fn new(from: u64, number: u64) -> Self;
    fn read(&self) -> (u64, u64);
}

#[derive(Serialize, Deserialize)]
struct First {
    from: u64,
    number: u64,
}

/// The numbers have changed their places, and there is a text.
#[derive(Serialize, Deserialize)]
struct Second {
    number: u64,
    from: u64,
    text: String,
}

crate::remote!(First, "test::Order", 1);
crate::remote!(Second, "test::Order", 2);

impl Order for First {
    fn new(from: u64, number: u64) -> First {
        First { from, number }
    }

    fn read(&self) -> (u64, u64) {
        (self.from, self.number)
    }
}

impl Order for Second {
    fn new(from: u64, number: u64) -> Second {
        Second { number, from, text: "an order".into() }
    }

    fn read(&self) -> (u64, u64) {
        (self.from, self.number)
    }
}

#[derive(Default)]
struct History {
    /// How many orders were sent, by sender and receiver.
    sent: BTreeMap<(u64, u64), u64>,
    /// The numbers that have come, by sender and receiver.
    taken: BTreeMap<(u64, u64), Vec<u64>>,
    /// The numbers of the receivers, by their PIDs on each node.
    receivers: BTreeMap<(u64, Pid), u64>,
    /// How many orders are dead letters, at their senders or at their receivers, by sender and receiver.
    dead: BTreeMap<(u64, u64), u64>,
}

type Shelf = Arc<Mutex<History>>;

/// Counts the dead letters of a node.
struct Graves(u64, Shelf);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let history = &mut *lock(&self.1);
        let receiver = history.receivers[&(self.0, letter.to)];
        // A sender reports an order that has no answer, and no longer has the order itself.
        let order = letter.message().map(First::read).or_else(|| letter.message().map(Second::read));
        let sender = order.map_or(self.0, |(from, _)| from);
        assert!(sender != receiver, "{letter:?} without its order");
        *history.dead.entry((sender, receiver)).or_default() += 1;
    }
}

/// Notes the orders that come.
struct Clerk<O> {
    number: u64,
    history: Shelf,
    takes: std::marker::PhantomData<fn(O)>,
}

impl<O: Order> Process for Clerk<O> {
    type Message = O;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, O>, _: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(order) => {
                    let (from, number) = order.read();
                    lock(&self.history).taken.entry((from, self.number)).or_default().push(number);
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// Sends an order, which is its sender and its number.
type SendOrder = fn(&Runtime, Pid, (u64, u64)) -> Result<(), SendError>;

/// A version of the program: the protocol that it speaks, and the types that it sends and takes.
#[derive(Clone, Copy)]
struct Program {
    protocol: u16,
    wire: fn() -> Wire,
    spawn: fn(&Runtime, u64, &Shelf) -> Result<Pid, BoxError>,
    send: SendOrder,
}

fn program<O: Order>(protocol: u16, wire: fn() -> Wire) -> Program {
    Program {
        protocol,
        wire,
        spawn: |runtime, number, history| {
            let clerk = Clerk::<O> { number, history: history.clone(), takes: std::marker::PhantomData };
            Ok(runtime.spawn(clerk)?.pid())
        },
        send: |runtime, to, (from, number)| {
            runtime.send(to.typed(), O::new(from, number)).map_err(|refused| refused.into_parts().1)
        },
    }
}

/// The versions of the program, from the oldest to the newest. A node of one talks with nodes of the one before.
fn programs() -> [Program; 4] {
    [
        program::<First>(PROTOCOL - 1, || Wire::new().message::<First>()),
        // It takes the second type, and does not send it yet.
        program::<First>(PROTOCOL, || {
            Wire::new().message::<First>().accepts(|Second { from, number, .. }| First { from, number })
        }),
        program::<Second>(PROTOCOL, || {
            Wire::new().message::<Second>().accepts(|First { from, number }| Second::new(from, number))
        }),
        program::<Second>(PROTOCOL + 1, || Wire::new().message::<Second>()),
    ]
}

struct Member {
    program: Program,
    runtime: Runtime,
    node: Cluster,
    clerk: Pid,
    number: u64,
    history: Shelf,
}

fn member(world: &World, name: &str, number: u64, program: Program, history: &Shelf) -> Result<Member, BoxError> {
    let runtime = world.start(Runtime::builder().observer(Graves(number, history.clone())))?;
    let clerk = (program.spawn)(&runtime, number, history)?;
    lock(history).receivers.insert((number, clerk), number);
    let node = world.start_node(Cluster::named(name, (program.wire)()).protocol(program.protocol), &runtime)?;
    Ok(Member { program, runtime, node, clerk, number, history: history.clone() })
}

/// The PID of the process of another node, as a node sees it.
fn far(here: &Member, there: &Member) -> Result<Pid, BoxError> {
    let number = here.node.number_of(there.node.here().incarnation());
    Ok(Pid::new(number, there.clerk.slot(), there.clerk.generation()).ok_or("a PID")?)
}

/// Each node sends some orders to each other one.
fn send(members: &[Member]) -> Result<(), BoxError> {
    for (from, to) in pairs(members) {
        let (pid, pair) = (far(from, to)?, (from.number, to.number));
        lock(&from.history).receivers.insert((from.number, pid), to.number);
        for _ in 0..3 {
            let before = lock(&from.history).sent.get(&pair).copied().unwrap_or(0);
            match (from.program.send)(&from.runtime, pid, (from.number, before + 1)) {
                Ok(()) => _ = lock(&from.history).sent.insert(pair, before + 1),
                Err(SendError::Node { why: NodeError::NodeDown, .. }) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
    Ok(())
}

/// All senders, each with all receivers.
fn pairs(members: &[Member]) -> impl Iterator<Item = (&Member, &Member)> {
    let pairs = members.iter().flat_map(|from| members.iter().map(move |to| (from, to)));
    pairs.filter(|(from, to)| from.number != to.number)
}

/// Checks that the nodes which run have taken all orders that they have sent to each other, and nothing else. Each
/// order of or to a node that has ended was taken, or is a dead letter.
fn check(history: &History, members: &[Member]) {
    for (pair, numbers) in &history.taken {
        let sent = history.sent.get(pair).copied().unwrap_or(0);
        let is_right = numbers.is_sorted_by(|one, next| one < next) && numbers.last().is_some_and(|last| *last <= sent);
        assert!(is_right, "{pair:?}: {sent} were sent, and {numbers:?} taken");
    }
    for (pair, sent) in &history.sent {
        let (taken, dead) =
            (history.taken.get(pair).map_or(0, Vec::len), history.dead.get(pair).map_or(0, |dead| *dead));
        assert!(taken as u64 + dead >= *sent, "{pair:?}: {sent} were sent, {taken} taken, and {dead} dead");
    }
    for (from, to) in pairs(members) {
        let pair = (from.number, to.number);
        let sent = history.sent.get(&pair).copied().unwrap_or(0);
        let taken = history.taken.get(&pair).map_or(&[][..], |taken| taken);
        assert!(taken.iter().copied().eq(1..=sent), "{pair:?}: {sent} were sent, and {taken:?} taken");
        assert!(sent >= 3, "{pair:?}: {sent} were sent");
    }
}

/// Runs until all are connected, and checks the versions that they speak.
fn connect(world: &World, members: &[Member]) -> Result<(), BoxError> {
    let expected = |member: &Member| {
        let others = members.iter().filter(|other| other.number != member.number);
        let mut expected: Vec<u16> = others.map(|other| other.program.protocol.min(member.program.protocol)).collect();
        expected.sort_unstable();
        expected
    };
    for _ in 0..200 {
        if members.iter().all(|member| member.node.protocols() == expected(member)) {
            return Ok(());
        }
        world.run_for(Duration::from_millis(50))?;
    }
    let spoken: Vec<_> = members.iter().map(|member| (member.node.protocols(), expected(member))).collect();
    Err(format!("the nodes speak other versions than expected: {spoken:?}").into())
}

/// Restarts a node with a newer program, while all send.
fn upgrade(
    world: &World,
    members: &mut Vec<Member>,
    (at, program): (usize, Program),
    history: &Shelf,
) -> Result<(), BoxError> {
    send(members)?;
    world.run_for(Duration::from_millis(world.random(0..30)))?;
    let name = members[at].node.here().name().to_string();
    // In half of the runs the node gets none of the last orders.
    let is_cut = world.random(0..2) == 0;
    if is_cut {
        let others = ["a", "b", "c"].into_iter().filter(|other| *other != name);
        others.for_each(|other| world.network().cut_one_way(other, &name));
    }
    send(members)?;
    let old = members.remove(at);
    assert!(old.runtime.shutdown(SECOND)?.is_clean() || is_cut);
    world.network().heal_all();
    send(members)?;
    world.run_for(Duration::from_millis(world.random(0..500)))?;
    let number = old.number + 100;
    members.insert(at, member(world, &name, number, program, history)?);
    send(members)?;
    connect(world, members)?;
    send(members)?;
    world.run_for(SECOND)
}

#[test]
fn a_cluster_that_is_upgraded_node_by_node_loses_only_the_restarted_node() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let [first, newer @ ..] = programs();
        let start = |(name, number)| member(world, name, number, first, &history);
        let mut members = [("a", 1), ("b", 2), ("c", 3)].into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
        connect(world, &members)?;
        for program in newer {
            for at in 0..3 {
                let before = lock(&history).dead.clone();
                let mut events: Vec<_> = members.iter().map(|member| member.node.events()).collect();
                let (restarted, ended) = (members[at].node.here().clone(), members[at].number);
                events.remove(at);
                upgrade(world, &mut members, (at, program), &history)?;
                for events in &mut events {
                    while let Ok(Some(event)) = events.recv_timeout(Duration::ZERO) {
                        let is_expected = match &event {
                            NodeEvent::Up(_) => true,
                            NodeEvent::Down(node, _) => *node == restarted,
                            _ => false,
                        };
                        assert!(is_expected, "{event:?} while {restarted} was restarted");
                    }
                }
                let history = lock(&history);
                let is_expected = |(pair, dead): (&(u64, u64), &u64)| {
                    pair.0 == ended || pair.1 == ended || before.get(pair) == Some(dead)
                };
                assert!(history.dead.iter().all(is_expected), "{:?}, and only {ended} has ended", history.dead);
                check(&history, &members);
            }
        }
        Ok(())
    })
    .seeds(0..counts(40, 2_000))
    .check();
}

/// Two versions apart, two nodes refuse each other. Both are told what to do, and neither tries again at once.
#[test]
fn nodes_that_are_two_versions_apart_say_so_on_both_sides() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let [first, .., last] = programs();
        let members = [
            member(world, "a", 1, first, &history)?,
            member(world, "b", 2, Program { wire: first.wire, ..last }, &history)?,
        ];
        let mut events: Vec<_> = members.iter().map(|member| member.node.events()).collect();
        world.run_for(12 * SECOND)?;
        let [older, newer] = [PROTOCOL - 1, PROTOCOL + 1].map(|newest| format!("{} to {newest}", newest - 1));
        for (at, (here, there)) in [(&older, &newer), (&newer, &older)].into_iter().enumerate() {
            let mut count = 0;
            while let Ok(Some(event)) = events[at].recv_timeout(Duration::ZERO) {
                let NodeEvent::Refused { name, why } = event else { return Err(format!("{event:?}").into()) };
                let text = format!(
                    "the range of protocols keeps two nodes from connecting: {here:?} here, {there:?} there: a node \
                     speaks its version and the one before, so update the program with the older ones, one version \
                     after the other"
                );
                assert_eq!((&*name, why), (["b", "a"][at], text));
                count += 1;
            }
            assert!((1..=3).contains(&count), "it is told once in 5 s: {count}");
            assert_eq!(members[at].node.nodes(), []);
        }
        Ok(())
    })
    .seeds(0..counts(40, 2_000))
    .check();
}
