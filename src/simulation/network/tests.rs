//! Nodes in a world: their processes, in bad weather.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::{NodeEvent, Wire};
use crate::counts::counts;
use crate::pid::Address;
use crate::primitives::Mutex;
use crate::process::{
    CommandError, DeadLetter, DeadLetterReason, Event, Events, NodeError, Observer, Process, Reply, Step, StepOutput,
    StepResult, Tag,
};
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

#[derive(Debug, Serialize, Deserialize)]
enum Letter {
    /// The number of the sender, and that of its message.
    Note(u64, u64),
    Ask(u64, Reply<u64>),
    /// Is never answered by its receiver.
    Keep(Reply<u64>),
    /// As many more messages and questions to this receiver.
    Go(u64, Address<Letter>),
}

crate::remote!(Letter, "test::Letter", 1);

/// The events of a run, as the checker reads them.
#[derive(Default)]
struct History {
    /// For each sender and receiver, the numbers that have come, in order.
    taken: BTreeMap<(u64, u64), Vec<u64>>,
    sent: BTreeMap<u64, u64>,
    /// Dead letters of this reason, in all nodes.
    dead: u64,
    others: Vec<DeadLetterReason>,
    answered: u64,
    /// For each asker, the number of its questions without an answer or an error.
    open: BTreeMap<u64, u64>,
    /// The number of the process whose node has crashed.
    crashed: Option<u64>,
}

type Shelf = Arc<Mutex<History>>;

/// Counts the dead letters of the node of this process.
struct Graves(Shelf, u64);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let history = &mut *lock(&self.0);
        match letter.reason {
            _ if history.crashed == Some(self.1) => {}
            DeadLetterReason::NodeDown => history.dead += 1,
            other => history.others.push(other),
        }
    }
}

/// Sends, asks, answers, and notes.
struct Peer {
    number: u64,
    history: Shelf,
    asks: BTreeMap<u64, Tag<u64>>,
    kept: Vec<Reply<u64>>,
    sent: u64,
}

impl Process for Peer {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Letter::Note(from, number)) => {
                    lock(&self.history).taken.entry((from, self.number)).or_default().push(number);
                }
                Event::Message(Letter::Ask(number, reply)) => out.reply(reply, number + 1),
                Event::Message(Letter::Keep(reply)) => self.kept.push(reply),
                Event::Message(Letter::Go(count, to)) => {
                    for _ in 0..count {
                        self.sent += 1;
                        out.send(to, Letter::Note(self.number, self.sent));
                        let number = self.sent;
                        let ask = out.ask(to, move |reply| Letter::Ask(number, reply), HOUR);
                        self.asks.insert(number, ask);
                    }
                    let keeps = out.ask(to, Letter::Keep, 20 * SECOND);
                    self.asks.insert(u64::MAX - self.sent, keeps);
                    let history = &mut *lock(&self.history);
                    history.sent.insert(self.number, self.sent);
                    *history.open.entry(self.number).or_default() += count + 1;
                }
                Event::Completed(done) => {
                    let found = self.asks.iter().find_map(|(number, tag)| Some((*number, done.take(*tag)?)));
                    let (number, answer) = found.expect("each question is answered once");
                    self.asks.remove(&number);
                    let history = &mut *lock(&self.history);
                    *history.open.entry(self.number).or_default() -= 1;
                    match answer {
                        Ok(answer) => {
                            assert_eq!(answer, number + 1, "the answer is of this question");
                            history.answered += 1;
                        }
                        Err(CommandError::Node { why: NodeError::NodeDown, .. } | CommandError::TimedOut) => {}
                        Err(error) => panic!("another error: {error}"),
                    }
                }
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A node of a world, with one process.
struct Member {
    runtime: Runtime,
    node: Cluster,
    peer: Address<Letter>,
}

fn member(world: &World, name: &str, number: u64, history: &Shelf) -> Result<Member, BoxError> {
    let runtime = world.start(Runtime::builder().observer(Graves(history.clone(), number)))?;
    let node = world.start_node(Cluster::named(name, Wire::new().message::<Letter>()), &runtime)?;
    let peer = Peer { number, history: history.clone(), asks: BTreeMap::new(), kept: Vec::new(), sent: 0 };
    let peer = runtime.spawn(peer)?.address();
    Ok(Member { runtime, node, peer })
}

impl Member {
    /// The address here of the process of another node.
    fn far(&self, other: &Member) -> Address<Letter> {
        let (number, pid) = (self.node.number_of(other.node.here().incarnation()), other.peer.pid());
        Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
    }

    fn names(&self) -> BTreeSet<String> {
        self.node.nodes().iter().map(|node| node.name().to_string()).collect()
    }
}

/// Runs until each of these nodes sees all others.
fn connect(world: &World, members: &[Member]) -> Result<(), BoxError> {
    for _ in 0..1_000 {
        let is_full = |member: &Member| member.names().len() == members.len() - 1;
        if members.iter().all(is_full) {
            return Ok(());
        }
        world.run_for(Duration::from_millis(50))?;
    }
    let seen: Vec<_> = members.iter().map(|member| (member.node.here().to_string(), member.names())).collect();
    Err(format!("the nodes are not connected: {seen:?}").into())
}

/// Checks the history when everything has come to rest.
fn check(history: &Shelf, is_lossless: bool) -> Result<(), BoxError> {
    let history = &*lock(history);
    let mut taken = 0;
    for ((from, to), numbers) in &history.taken {
        if !numbers.windows(2).all(|pair| pair[0] < pair[1]) {
            return Err(format!("the messages of {from} to {to} came out of order, or twice: {numbers:?}").into());
        }
        taken += numbers.len() as u64;
    }
    let sent: u64 = history.sent.values().sum();
    // A message in doubt may be taken and dead. A question is a message, too.
    if taken + history.answered + history.dead < sent {
        return Err(format!("{sent} were sent, but {taken} taken, and {} dead", history.dead).into());
    }
    if history.open.values().any(|open| *open > 0) {
        return Err(format!("questions are open: {:?}", history.open).into());
    }
    if is_lossless && (taken != sent || history.dead > 0) {
        return Err(format!("{sent} were sent, but {taken} taken, and {} dead", history.dead).into());
    }
    if !history.others.is_empty() {
        return Err(format!("dead letters of other reasons: {:?}", history.others).into());
    }
    Ok(())
}

/// Each of three nodes sends to all others, and asks them.
fn storm(world: &World, members: &[Member], count: u64) -> Result<(), BoxError> {
    for from in members {
        for to in members.iter().filter(|to| to.node.here() != from.node.here()) {
            from.runtime.send(from.peer, Letter::Go(count, from.far(to)))?;
        }
    }
    world.run_for(SECOND)
}

fn three(world: &World, history: &Shelf) -> Result<Vec<Member>, BoxError> {
    let start = |(name, number)| member(world, name, number, history);
    let members = [("a", 1), ("b", 2), ("c", 3)].into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
    connect(world, &members)?;
    Ok(members)
}

#[test]
fn nodes_of_a_world_find_each_other_and_lose_nothing() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let members = three(world, &history)?;
        storm(world, &members, 10)?;
        // It rests, though there are heartbeats.
        world.run()?;
        check(&history, true)?;
        let before = world.now();
        world.run()?;
        assert!(world.now() - before < SECOND, "it rests still");
        for member in &members {
            assert!(member.runtime.shutdown(SECOND)?.is_clean());
        }
        Ok(())
    })
    .seeds(0..counts(200, 10_000))
    .check();
}

#[test]
fn in_bad_weather_all_is_accounted_for_and_all_questions_are_answered() {
    let faults = Faults::none()
        .lose_frames(0.02)
        .repeat_frames(0.02)
        .delay_frames(0.1, Duration::from_millis(400))
        .cut_nodes(0.005, 5 * SECOND)
        .until(20 * SECOND);
    Simulation::new(|world| {
        let history = Shelf::default();
        let members = three(world, &history)?;
        let mut watched: Vec<_> = members.iter().map(|member| member.node.events()).collect();
        for _ in 0..5 {
            storm(world, &members, 5)?;
            world.run_for(world.random(0..4) as u32 * SECOND)?;
        }
        world.run_for(20 * SECOND)?;
        world.network().heal_all();
        connect(world, &members)?;
        storm(world, &members, 1)?;
        world.run_for(25 * SECOND)?;
        for (member, events) in members.iter().zip(&mut watched) {
            let events: Vec<_> = std::iter::from_fn(|| events.recv_timeout(Duration::ZERO).ok().flatten()).collect();
            let mut up = BTreeSet::new();
            for event in &events {
                let is_in_turn = match event {
                    NodeEvent::Up(node) => up.insert(node.clone()),
                    NodeEvent::Down(node, _) => up.remove(node),
                    NodeEvent::UpElsewhere { node, at } => !up.contains(node) && up.contains(at),
                    NodeEvent::Refused { .. } | NodeEvent::LimitReached { .. } => false,
                };
                assert!(is_in_turn, "{event:?} of {events:?}");
            }
            assert_eq!(up.into_iter().collect::<Vec<_>>(), member.node.nodes());
        }
        check(&history, false)
    })
    .faults(faults)
    .seeds(0..counts(200, 10_000))
    .check();
}

#[test]
fn a_node_that_crashes_is_down_for_all_and_another_one_when_it_comes_back() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let mut members = three(world, &history)?;
        storm(world, &members, 3)?;
        let mut events = members[0].node.events();
        let crashed = members.pop().ok_or("there are three")?;
        // Questions are open when it happens.
        for member in &members {
            member.runtime.send(member.peer, Letter::Go(5, member.far(&crashed)))?;
        }
        world.run_for(Duration::from_millis(world.random(0..100)))?;
        let at = world.now();
        // Nothing that it has done or is told counts any more.
        lock(&history).crashed = Some(3);
        world.crash(&crashed.node, &crashed.runtime);
        lock(&history).open.remove(&3);
        while members.iter().any(|member| member.names().contains("c")) {
            world.run_for(Duration::from_millis(10))?;
        }
        assert!(world.now() - at <= Duration::from_millis(1_800), "it is known after {:?}", world.now() - at);
        let old = members[0].far(&crashed);
        members.push(member(world, "c", 4, &history)?);
        connect(world, &members)?;
        let asked = members[0].runtime.ask(old, |reply| Letter::Ask(1, reply), SECOND);
        let asked = asked.wait();
        assert!(matches!(asked, Err(CommandError::Node { why: NodeError::NodeDown, .. })), "{asked:?}");
        storm(world, &members, 3)?;
        world.run_for(25 * SECOND)?;
        let again = members[2].node.here().clone();
        let of_c: Vec<_> = std::iter::from_fn(|| events.recv_timeout(Duration::ZERO).ok().flatten())
            .filter(|event| !matches!(event, NodeEvent::Up(node) if node.name() == "b"))
            .collect();
        let is_expected = match &of_c[..] {
            [NodeEvent::Up(first), NodeEvent::Down(down, _), NodeEvent::Up(last)] => {
                first == down && first == crashed.node.here() && *last == again
            }
            _ => false,
        };
        assert!(is_expected, "{of_c:?}");
        check(&history, false)
    })
    .seeds(0..counts(200, 10_000))
    .check();
}

/// Whether or not the other nodes are told: the seed decides that.
#[test]
fn the_time_of_a_condition_begins_again_with_a_crash() {
    for seed in 0..16 {
        let report = Simulation::new(|world| {
            let mut members = three(world, &Shelf::default())?;
            let crashed = members.pop().ok_or("there are three")?;
            let end = world.now() + SECOND;
            world.eventually("it is early", SECOND, move |state| state.now() <= end);
            world.run_for(2 * SECOND)?;
            world.crash(&crashed.node, &crashed.runtime);
            world.run_for(2 * SECOND)
        })
        .seeds(seed..seed + 1)
        .run();
        assert_eq!(report.failed().map(|failed| failed.check()), Some("it is early"), "{seed}");
    }
}

#[test]
fn thirty_two_nodes_form_a_full_mesh_within_two_seconds() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let start = |number| member(world, &format!("n{number}"), number, &history);
        let members = (0..32).map(start).collect::<Result<Vec<_>, _>>()?;
        world.run_for(2 * SECOND)?;
        for member in &members {
            assert_eq!(member.names().len(), 31, "{:?}", member.node);
        }
        Ok(())
    })
    .seeds(0..2)
    .check();
}

#[test]
fn a_node_with_thirty_one_idle_peers_sends_only_heartbeats() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let start = |number| member(world, &format!("n{number}"), number, &history);
        let members = (0..32).map(start).collect::<Result<Vec<_>, _>>()?;
        connect(world, &members)?;
        world.run_for(SECOND)?;
        let frames = || -> Vec<u64> {
            let of = |member: &Member| member.node.stats().peers.iter().map(|peer| peer.frames_sent).sum();
            members.iter().map(of).collect()
        };
        let before = frames();
        world.run_for(5 * SECOND)?;
        for (before, after) in before.into_iter().zip(frames()) {
            let frames = after - before;
            assert!(frames <= 31 * 21, "{frames} frames in 5 s: one each 250 ms for each peer, and one at the edge");
        }
        Ok(())
    })
    .seeds(0..1)
    .max_turns(1_000_000)
    .check();
}

#[test]
fn heartbeats_to_peers_that_came_at_different_times_are_sent_at_once() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let mut members = vec![member(world, "n0", 0, &history)?, member(world, "n1", 1, &history)?];
        world.run_for(SECOND / 10)?;
        members.push(member(world, "n2", 2, &history)?);
        connect(world, &members)?;
        world.run_for(SECOND)?;
        let sent = || members[0].node.stats().peers.iter().map(|peer| peer.frames_sent).collect::<Vec<_>>();
        let mut moments = 0;
        for _ in 0..100 {
            let before = sent();
            world.run_for(SECOND / 100)?;
            let has_sent: Vec<bool> = before.iter().zip(sent()).map(|(before, after)| *before < after).collect();
            assert!(has_sent == [true, true] || has_sent == [false, false], "{has_sent:?}");
            moments += usize::from(has_sent[0]);
        }
        assert_eq!(moments, 4, "in a second");
        Ok(())
    })
    .seeds(0..5)
    .check();
}

#[test]
fn a_world_that_has_rested_goes_on_when_the_scenario_sends() {
    Simulation::new(|world| {
        let history = Shelf::default();
        let members = three(world, &history)?;
        world.run()?;
        members[0].runtime.send(members[0].peer, Letter::Go(5, members[0].far(&members[1])))?;
        world.run()?;
        assert_eq!(lock(&history).answered, 5);
        members[0].runtime.send(members[0].far(&members[1]), Letter::Note(9, 1))?;
        world.run()?;
        assert_eq!(lock(&history).taken.get(&(9, 2)), Some(&vec![1]));
        Ok(())
    })
    .seeds(0..5)
    .check();
}

#[test]
fn a_world_does_not_rest_in_a_cut_that_ends() {
    let is_cut = Faults::none().cut_nodes(1.0, 20 * SECOND).at_most(1);
    Simulation::new(|world| {
        let history = Shelf::default();
        let start = |(name, number)| member(world, name, number, &history);
        let members = [("a", 1), ("b", 2)].into_iter().map(start).collect::<Result<Vec<_>, _>>()?;
        world.run()?;
        for member in &members {
            assert_eq!(member.names().len(), 1, "the cut is over, and the nodes are up");
        }
        Ok(())
    })
    .faults(is_cut)
    .seeds(0..20)
    .check();
}

#[test]
fn a_runtime_of_no_world_is_no_node_of_a_world() {
    Simulation::new(|world| {
        let elsewhere = Runtime::builder().workers(1).start()?;
        let refused = world.start_node(Cluster::named("a", Wire::new()), &elsewhere);
        assert!(matches!(refused, Err(ClusterError::NotStarted(_))), "{refused:?}");
        elsewhere.shutdown(SECOND)?;
        Ok(())
    })
    .seeds(0..1)
    .check();
}
