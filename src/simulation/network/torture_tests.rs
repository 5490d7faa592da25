//! Five nodes with everything that they can do, in all weather: `docs/guarantees/cluster.md`, 49.
//!
//! Processes send, ask, monitor, link, spawn others, look for names, join a group and claim a name. Meanwhile they end
//! or fail, and nodes are cut, crash, leave and are started again. The processes write a history, which is checked when
//! the weather is over.

mod history;
mod letter;
mod peer;

use std::collections::{BTreeMap, BTreeSet};

use self::history::{Graves, Place, Shelf, place};
use self::letter::{Letter, Other, Question, SECOND};
use self::peer::{Peer, wire};
use super::*;
use crate::cluster::{Claim, DownReason, GroupMember, MemberEvent, MemberEvents, NodeEvent, NodeEvents, NodeIdentity};
use crate::counts::counts;
use crate::pid::Address;
use crate::process::SpawnOptions;
use crate::simulation::{Faults, Simulation};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// How many things happen in a run.
const ROUNDS: u32 = 80;

/// When the last cuts and pauses begin, and the longest time that they take.
const WEATHER: Duration = Duration::from_secs(15);
const LONGEST: Duration = Duration::from_secs(5);

/// How many times the writers of a run write more than there is room for. The messages of a held process may fill the
/// room eight times. Then they are refused.
const FLOODS: u32 = 4;

/// A process of a node.
#[derive(Clone, Copy)]
struct Local {
    number: u64,
    address: Address<Letter>,
    answers: bool,
}

/// A node of a world, with two processes.
struct Member {
    number: u64,
    name: &'static str,
    runtime: Runtime,
    node: Cluster,
    /// Sends, asks and has relations.
    writer: Local,
    /// Answers questions.
    answerer: Local,
    /// The processes of nodes of this name that have ended, with the incarnations of the nodes.
    ended: Vec<(u64, Local)>,
    /// The labels and the processes that have joined the group.
    joined: BTreeSet<(String, u64)>,
    /// The last claim of each process.
    claims: BTreeMap<u64, Claim>,
    events: MemberEvents,
    seen: BTreeSet<String>,
    node_events: NodeEvents,
    up: BTreeSet<NodeIdentity>,
    downs: usize,
}

/// A run.
struct Torture<'w> {
    world: &'w World,
    members: Vec<Member>,
    history: Shelf,
    /// The last number of a node, a process or a broadcast.
    last: u64,
    /// How many times a writer was told to write more than there is room for.
    floods: u32,
}

impl Torture<'_> {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn member(&mut self, at: usize) -> Result<Member, BoxError> {
        let (name, number) = (NAMES[at], self.number());
        let runtime = self.world.start(Runtime::builder().observer(Graves(self.history.clone(), number)))?;
        let node = self.world.start_node(Cluster::named(name, wire()), &runtime)?;
        lock(&self.history).nodes.insert(node.here().incarnation(), number);
        let writer = self.spawn((number, &runtime, &node), false)?;
        let answerer = self.spawn((number, &runtime, &node), true)?;
        Ok(Member {
            number,
            name,
            runtime,
            writer,
            answerer,
            ended: Vec::new(),
            joined: BTreeSet::new(),
            claims: BTreeMap::new(),
            events: node.group_events("g"),
            seen: BTreeSet::new(),
            node_events: node.events(),
            up: BTreeSet::new(),
            downs: 0,
            node,
        })
    }

    fn spawn(&mut self, (node, runtime, cluster): (u64, &Runtime, &Cluster), answers: bool) -> Result<Local, BoxError> {
        let number = self.number();
        let options = SpawnOptions::new().trap_exits().name(number.to_string());
        let address = runtime.spawn_with(Peer::new(number, node, cluster, &self.history), options)?.address();
        lock(&self.history).begins(node, address.pid(), number);
        Ok(Local { number, address, answers })
    }

    /// The address at a node of a process of the node of this incarnation.
    fn far(&self, at: usize, incarnation: u64, local: Local) -> Other {
        let member = &self.members[at];
        if incarnation == member.node.here().incarnation() {
            return (local.number, local.address);
        }
        let (pid, number) = (local.address.pid(), member.node.number_of(incarnation));
        let pid = Pid::new(number, pid.slot(), pid.generation()).unwrap();
        lock(&self.history).sees(member.number, pid, local.number);
        (local.number, pid.typed())
    }

    /// The addresses at a node of the two processes of another one, which may be that node itself.
    fn pair(&self, at: usize, other: usize) -> [Other; 2] {
        let other = &self.members[other];
        [other.writer, other.answerer].map(|local| self.far(at, other.node.here().incarnation(), local))
    }

    /// A process of another node: the writer, the answerer, or one that has ended.
    fn any(&self, at: usize, other: usize, answers: bool) -> Other {
        let ended: Vec<_> = self.members[other].ended.iter().filter(|(_, it)| it.answers || !answers).collect();
        match self.world.random(0..3) {
            0 if !ended.is_empty() => {
                let (incarnation, local) = ended[self.world.random(0..ended.len() as u64) as usize];
                self.far(at, *incarnation, *local)
            }
            1 if !answers => self.pair(at, other)[0],
            _ => self.pair(at, other)[1],
        }
    }

    fn tell(&self, at: usize, letter: Letter) -> Result<(), BoxError> {
        let member = &self.members[at];
        Ok(member.runtime.send(member.writer.address, letter)?)
    }

    /// A question of any kind, of a process of another node, perhaps over a third one.
    fn inquire(&mut self, at: usize, other: usize) -> Result<(), BoxError> {
        let number = self.number();
        let question = match self.world.random(0..8) {
            0..3 => Question::Answered(number),
            3 => Question::Hurried(number),
            4..7 => Question::Kept,
            _ => Question::Dropped,
        };
        let [_, answerer] = self.pair(at, other);
        // Questions to writers would be taken for notes when they are dead letters.
        let of = if self.world.random(0..4) == 0 { self.any(at, other, true) } else { answerer };
        let third = (self.world.random(0..4) == 0).then(|| self.pair(at, self.world.random(0..5) as usize)[1]);
        self.tell(at, Letter::Inquire(question, of, third))
    }

    fn join(&mut self, at: usize) {
        let label = format!("{}/{}", NAMES[at], self.world.random(0..3));
        let member = &mut self.members[at];
        let of = if self.world.random(0..2) == 0 { member.writer } else { member.answerer };
        if member.node.join_group("g", &label, of.address).is_ok() {
            member.joined.insert((label, of.number));
        }
    }

    fn leave(&mut self, at: usize) {
        let member = &mut self.members[at];
        let of = if self.world.random(0..2) == 0 { member.writer } else { member.answerer };
        member.node.leave_group("g", of.address);
        member.joined.retain(|(_, number)| *number != of.number);
    }

    fn claim(&mut self, at: usize) {
        let member = &mut self.members[at];
        let of = if self.world.random(0..2) == 0 { member.writer } else { member.answerer };
        // It may be held by another process.
        if let Ok(claim) = member.node.claim("name", of.address) {
            member.claims.insert(of.number, claim);
        }
    }

    fn release(&mut self, at: usize) {
        let member = &mut self.members[at];
        for of in [member.writer, member.answerer] {
            member.node.release("name", of.address);
        }
    }

    /// A process of a node ends, and there is another one in its place.
    fn process_ends(&mut self, at: usize) -> Result<(), BoxError> {
        let is_writer = self.world.random(0..2) == 0;
        let member = &self.members[at];
        let (runtime, cluster, number) = (member.runtime.clone(), member.node.clone(), member.number);
        let ends = if is_writer { member.writer } else { member.answerer };
        lock(&self.history).ended.insert(ends.number);
        // A writer ends together with its children.
        if is_writer || self.world.random(0..2) == 0 {
            runtime.terminate(ends.address)?;
        } else {
            runtime.cancel(ends.address, "enough")?;
        }
        let begins = self.spawn((number, &runtime, &cluster), !is_writer)?;
        let member = &mut self.members[at];
        member.ended.push((cluster.here().incarnation(), ends));
        *(if is_writer { &mut member.writer } else { &mut member.answerer }) = begins;
        Ok(())
    }

    /// A node crashes or leaves, and is started again.
    fn node_ends(&mut self, at: usize) -> Result<(), BoxError> {
        let member = &self.members[at];
        let is_crash = self.world.random(0..3) > 0;
        {
            let history = &mut *lock(&self.history);
            history.node_ends(member.number);
            if is_crash {
                history.crashed.insert(member.number);
            }
        }
        if is_crash {
            self.world.crash(&member.node, &member.runtime);
        } else {
            // Longer than a pause.
            member.runtime.shutdown(20 * SECOND)?;
        }
        let incarnation = member.node.here().incarnation();
        let mut ended = member.ended.clone();
        ended.extend([member.writer, member.answerer].map(|local| (incarnation, local)));
        self.members[at] = Member { ended, ..self.member(at)? };
        Ok(())
    }

    /// One thing happens.
    fn happens(&mut self) -> Result<(), BoxError> {
        let world = self.world;
        let at = world.random(0..5) as usize;
        let other = (at + world.random(1..5) as usize) % 5;
        let [writer, _] = self.pair(at, other);
        // So that the other node knows whom it is told of.
        self.pair(other, at);
        match world.random(0..40) {
            0..6 => {
                let (count, length) = match world.random(0..16) {
                    // More than there is room for, so that the writer is held.
                    0 if self.floods < FLOODS => {
                        self.floods += 1;
                        (20, 1 << 20)
                    }
                    1..3 => (world.random(1..8), world.random(0..200_000)),
                    _ => (world.random(1..8), 0),
                };
                self.tell(at, Letter::Write(count, length, writer))?;
            }
            6..14 => self.inquire(at, other)?,
            14..16 => self.tell(at, Letter::Watch(self.any(at, other, false)))?,
            16 => self.tell(at, Letter::Unwatch)?,
            17..20 => self.tell(at, Letter::Link(self.any(at, other, false)))?,
            20 => self.tell(at, Letter::Unlink)?,
            21 => self.join(at),
            22 => self.leave(at),
            23 => self.claim(at),
            24 => self.release(at),
            25..28 => {
                let limit = if world.random(0..4) == 0 { 0 } else { 10_000 };
                let letter = Letter::Spawn(self.number(), NAMES[other].into(), limit, world.random(0..2) == 0);
                self.tell(at, letter)?;
            }
            28..30 => self.tell(at, Letter::Stop(world.random(0..2) == 0))?,
            30 => self.tell(at, Letter::Find(NAMES[other].into(), writer))?,
            31 => {
                let news = self.number();
                self.members[at].node.broadcast("g", Letter::News(self.members[at].number, news));
            }
            32..34 => self.process_ends(at)?,
            34 => self.members[at].runtime.send(self.members[at].answerer.address, Letter::Fail)?,
            35 => world.network().cut(NAMES[at], NAMES[other]),
            36 => world.network().cut_one_way(NAMES[at], NAMES[other]),
            37..39 => world.network().heal_all(),
            _ => self.node_ends(at)?,
        }
        Ok(())
    }

    /// All processes do something, when the weather is over.
    fn all_do_something(&mut self) -> Result<(), BoxError> {
        for (at, other) in (0..5).flat_map(|at| (0..5).map(move |other| (at, other))).filter(|(at, other)| at != other)
        {
            let [writer, answerer] = self.pair(at, other);
            self.tell(at, Letter::Write(2, 0, writer))?;
            self.tell(at, Letter::Inquire(Question::Answered(1), answerer, None))?;
            self.tell(at, Letter::Find(NAMES[other].into(), writer))?;
        }
        for at in 0..5 {
            self.join(at);
            self.claim(at);
        }
        // Less than until tables are compared.
        self.world.run_for(SECOND / 10)?;
        check_groups(self);
        let news = self.number();
        for member in &self.members {
            let count = member.node.broadcast("g", Letter::News(member.number, news));
            assert_eq!(count, member.processes_of_group().len(), "{}", member.name);
            member.runtime.send(member.answerer.address, Letter::Count)?;
        }
        self.world.run_for(SECOND)?;
        let history = lock(&self.history);
        for (member, other) in self.members.iter().flat_map(|one| self.members.iter().map(move |other| (one, other))) {
            for (_, number) in &other.joined {
                let has_heard = || history.heard.get(&(member.number, *number))?.last().copied();
                let is_gone = history.ended.contains(number);
                assert!(is_gone || has_heard() == Some(news), "{} has not told {number}", member.name);
            }
        }
        Ok(())
    }
}

impl Member {
    /// Takes the events of the group and of the nodes. Each is news.
    fn hear(&mut self) {
        while let Ok(Some(event)) = self.events.recv_timeout(Duration::ZERO) {
            let key = |member: &GroupMember| format!("{} {}", member.label, member.pid);
            let is_news = match &event {
                MemberEvent::Joined(member) => self.seen.insert(key(member)),
                MemberEvent::Left(member) => self.seen.remove(&key(member)),
            };
            assert!(is_news, "{event:?} is told twice at {}", self.name);
        }
        while let Ok(Some(event)) = self.node_events.recv_timeout(Duration::ZERO) {
            let is_right = match &event {
                NodeEvent::Up(node) => self.up.insert(node.clone()),
                NodeEvent::Down(node, reason) => {
                    self.downs += 1;
                    self.up.remove(node) && *reason != DownReason::Protocol
                }
                NodeEvent::UpElsewhere { node, at } => !self.up.contains(node) && self.up.contains(at),
                NodeEvent::Refused { .. } => true,
                NodeEvent::LimitReached { .. } => false,
            };
            assert!(is_right, "{event:?} at {}, where these are up: {:?}", self.name, self.up);
        }
    }

    fn labels(&self) -> Vec<String> {
        self.node.group_members("g").into_iter().map(|member| member.label).collect()
    }

    fn processes_of_group(&self) -> BTreeSet<Pid> {
        self.node.group_members("g").into_iter().map(|member| member.pid).collect()
    }

    fn numbers(&self) -> [u64; 2] {
        [self.writer.number, self.answerer.number]
    }

    /// The processes here that are none of the two.
    fn children(&self) -> BTreeSet<Place> {
        let own = [self.writer, self.answerer].map(|local| local.address.pid());
        let others = self.runtime.processes().into_iter().map(|process| process.pid).filter(|pid| !own.contains(pid));
        others.map(|pid| place(self.number, pid)).collect()
    }

    /// Ends the processes. A writer ends together with its children.
    fn end(&self) -> Result<(), BoxError> {
        self.runtime.terminate(self.writer.address)?;
        self.runtime.cancel(self.answerer.address, "the end")?;
        Ok(())
    }
}

/// Checks that all nodes know the members of the group and the holder of the name.
fn check_groups(torture: &mut Torture<'_>) {
    torture.members.iter_mut().for_each(Member::hear);
    (0..5).for_each(|at| (0..5).for_each(|other| _ = torture.pair(at, other)));
    let (members, history) = (&torture.members, lock(&torture.history));
    let joined = members.iter().flat_map(|member| &member.joined);
    let mut labels: Vec<_> = joined.filter(|(_, number)| !history.ended.contains(number)).map(|it| &it.0).collect();
    labels.sort_unstable();
    for member in members {
        assert_eq!(member.labels().iter().collect::<Vec<_>>(), labels, "at {}", member.name);
        let here = member.node.group_members("g").iter().map(|it| format!("{} {}", it.label, it.pid)).collect();
        assert_eq!(member.seen, here, "the subscriber of {}", member.name);
        let holder_at = |at: &Member| at.node.holder("name").map(|pid| history.number(at.number, pid));
        let holder = holder_at(member);
        assert_eq!(holder, holder_at(&members[0]));
        assert!(holder.is_none_or(|holder| holder.is_some_and(|it| !history.ended.contains(&it))), "{holder:?}");
        for (number, claim) in &member.claims {
            assert_eq!(claim.end().is_none(), holder == Some(Some(*number)), "{number}: {:?}", claim.end());
        }
    }
}

/// Checks what all nodes must agree on, when the weather is over.
fn check_nodes(torture: &mut Torture<'_>) {
    let history = torture.history.clone();
    check_groups(torture);
    let (members, history) = (&torture.members, lock(&history));
    for member in members {
        assert_eq!(member.node.nodes().len(), 4, "{} sees all", member.name);
        assert_eq!(member.up.iter().cloned().collect::<Vec<_>>(), member.node.nodes(), "the events of {}", member.name);
        assert_eq!(member.children(), history.children_on(member.number), "the children at {}", member.name);
        assert_eq!(member.node.inquiries(), 0, "{}: no inquiry is left", member.name);
        assert_eq!(member.node.stats().held_processes, 0, "{}: nobody is held", member.name);
        for other in members {
            let ((watching, watched, links), questions) = member.node.tables(other.name);
            let (there, _) = other.node.tables(member.name);
            assert_eq!((watched, watching, links), there, "the tables of {} and {}", member.name, other.name);
            assert_eq!(questions, (0, 0), "the questions of {} and {}", member.name, other.name);
        }
    }
}

fn scenario(world: &World) -> Result<(), BoxError> {
    let torture = &mut Torture { world, members: Vec::new(), history: Shelf::default(), last: 0, floods: 0 };
    for at in 0..5 {
        let member = torture.member(at)?;
        torture.members.push(member);
    }
    for _ in 0..ROUNDS {
        torture.happens()?;
        world.run_for(world.random(0..400) as u32 * Duration::from_millis(1))?;
        torture.members.iter_mut().for_each(Member::hear);
        lock(&torture.history).check();
    }
    // The weather is over.
    world.run_for((WEATHER + LONGEST).saturating_sub(world.now()))?;
    world.network().heal_all();
    world.run_for(8 * SECOND)?;
    check_nodes(torture);
    let downs = |torture: &Torture<'_>| torture.members.iter().map(|member| member.downs).sum::<usize>();
    let before = downs(torture);
    torture.all_do_something()?;
    check_nodes(torture);
    lock(&torture.history).check_all();
    check_ends(torture)?;
    torture.members.iter_mut().for_each(Member::hear);
    assert_eq!(downs(torture), before, "without weather, no connection breaks");
    Ok(())
}

/// Checks that all relations end with the processes.
fn check_ends(torture: &mut Torture<'_>) -> Result<(), BoxError> {
    let history = torture.history.clone();
    let pairs = |numbers: BTreeSet<u64>, of: u64| numbers.into_iter().map(move |other| ((of, other), 1));
    lock(&history).recoveries.clear();
    for member in &torture.members {
        member.runtime.send(member.answerer.address, Letter::Fail)?;
    }
    torture.world.run_for(SECOND)?;
    {
        let history = lock(&history);
        let linked = |by: u64| history.linked.iter().filter(move |(_, it)| **it == by).flat_map(|(pair, _)| *pair);
        let answerers: BTreeSet<_> = torture.members.iter().map(|member| member.answerer.number).collect();
        let expected = torture.members.iter().flat_map(|member| {
            let by = member.writer.number;
            pairs(linked(by).filter(|number| answerers.contains(number)).collect(), by)
        });
        assert_eq!(history.recoveries, expected.collect(), "the recoveries that were told");
    }
    let watcher = torture.members.remove(0);
    let expected = {
        let history = &mut *lock(&history);
        history.exits.clear();
        let linked = [watcher.writer, watcher.answerer].map(|local| (history.linked_with(local.number), local.number));
        history.ended.extend(torture.members.iter().flat_map(Member::numbers));
        linked.into_iter().flat_map(|(linked, number)| pairs(linked, number)).collect()
    };
    for member in &torture.members {
        member.end()?;
    }
    torture.world.run_for(SECOND)?;
    let own = watcher.numbers();
    {
        let history = lock(&history);
        history.check_all();
        let mut exits = history.exits.clone();
        exits.retain(|(number, _), _| own.contains(number));
        assert_eq!(exits, expected, "the exits that were told to {own:?}");
    }
    lock(&history).ended.extend(own);
    watcher.end()?;
    torture.members.push(watcher);
    torture.world.run_for(SECOND)?;
    lock(&history).check_all();
    for member in &torture.members {
        assert_eq!(member.node.left(), (0, 0), "{}: nothing is left", member.name);
        assert!(member.runtime.processes().is_empty(), "{}: {:?}", member.name, member.runtime.processes());
    }
    Ok(())
}

#[test]
fn five_nodes_keep_their_promises_in_all_weather() {
    let seeds = counts(40, 100_000);
    let faults = Faults::none()
        .lose_frames(0.005)
        .repeat_frames(0.005)
        .delay_frames(0.1, Duration::from_millis(400))
        .cut_nodes(0.001, LONGEST)
        .pause_nodes(0.0005, LONGEST)
        .until(WEATHER);
    Simulation::new(scenario).faults(faults).seeds(0..seeds).check();
}
