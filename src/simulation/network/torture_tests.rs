//! Five nodes with everything that they can do, in all weather: `docs/guarantees/cluster.md`, 49.
//!
//! Processes send, ask, monitor, link, join a group and claim a name, while nodes are cut, crash and are started again.
//! The processes write a history, which is checked when the weather is over.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::{Claim, GroupMember, MemberEvent, MemberEvents, Wire};
use crate::counts::counts;
use crate::pid::Address;
use crate::primitives::Mutex;
use crate::process::{
    CommandError, DeadLetter, DeadLetterReason, Event, Events, Monitor, NodeError, Observer, Process, Reply,
    SpawnOptions, Step, StepOutput, StepResult, Tag,
};
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// How many things happen in a run.
const ROUNDS: u32 = 60;

#[derive(Serialize, Deserialize)]
enum Letter {
    /// The number of the sender, and that of its message.
    Note(u64, u64),
    Ask(u64, Reply<u64>),
    /// Is not answered before the receiver ends.
    Keep(Reply<u64>),
    /// The receiver sends as many notes to the process with this number, and as many questions to another one of its
    /// node.
    Write(u64, (u64, Address<Letter>), Address<Letter>),
    Watch(Address<Letter>),
    Link(Address<Letter>),
    Unlink(Address<Letter>),
}

crate::remote!(Letter, "torture::Letter", 1);

/// The sender and the receiver of messages. The numbers of processes are never used again.
type Pair = (u64, u64);

/// The events of a run.
#[derive(Default)]
struct History {
    /// The numbers that have come, in order.
    taken: BTreeMap<Pair, Vec<u64>>,
    /// How many notes were sent, and how many of them are dead letters.
    sent: BTreeMap<Pair, u64>,
    dead: BTreeMap<Pair, u64>,
    /// For each process: the questions that are open, and the monitors and links of which it was not told the end.
    open: BTreeMap<u64, u64>,
    monitors: BTreeMap<u64, u64>,
    links: BTreeMap<u64, i64>,
    /// The process with a PID, as its node sees it, and as the node sees it that sends to it.
    processes: BTreeMap<(u64, Pid), u64>,
    other_letters: Vec<DeadLetterReason>,
    /// The pairs of processes that one of the two has linked. If both did, the end of the link by one of them would end
    /// that of the other one, too, who is not told.
    linked: BTreeSet<[u64; 2]>,
    /// The processes whose nodes have crashed, and the nodes.
    crashed: BTreeSet<u64>,
}

impl History {
    /// A process, and another one by its PID there.
    fn pair(&self, number: u64, other: Pid) -> [u64; 2] {
        let mut pair = [number, self.processes[&(number, other)]];
        pair.sort_unstable();
        pair
    }
}

type Shelf = Arc<Mutex<History>>;

/// Counts the dead letters of the processes of a node, which has a number.
struct Graves(Shelf, u64);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        let history = &mut *lock(&self.0);
        if history.crashed.contains(&self.1) {
            return;
        }
        let of = |pid| history.processes.get(&(self.1, pid)).copied();
        match (letter.reason, letter.from.and_then(of), of(letter.to)) {
            (DeadLetterReason::NodeDown, Some(from), Some(to)) => *history.dead.entry((from, to)).or_default() += 1,
            // A question, whose asker is told.
            (DeadLetterReason::NodeDown, ..) => {}
            (reason, ..) => history.other_letters.push(reason),
        }
    }
}

struct Peer {
    number: u64,
    history: Shelf,
    /// The number of the last note to each process. The open questions: those that are answered have a number.
    sent: BTreeMap<u64, u64>,
    asks: Vec<(Tag<u64>, Option<u64>)>,
    kept: Vec<Reply<u64>>,
    monitors: BTreeSet<Monitor>,
    links: BTreeSet<Pid>,
}

impl Peer {
    fn write(
        &mut self,
        out: &mut StepOutput,
        count: u64,
        (other, to): (u64, Address<Letter>),
        answers: Address<Letter>,
    ) {
        let last = self.sent.entry(other).or_default();
        for _ in 0..count {
            *last += 1;
            out.send(to, Letter::Note(self.number, *last));
            let question = *last;
            let ask = out.ask(answers, move |reply| Letter::Ask(question, reply), HOUR);
            self.asks.push((ask, Some(question)));
        }
        self.asks.push((out.ask(answers, Letter::Keep, 3 * SECOND), None));
        let history = &mut *lock(&self.history);
        *history.sent.entry((self.number, other)).or_default() += count;
        *history.open.entry(self.number).or_default() += count + 1;
    }

    fn answered(&mut self, done: &crate::process::Completion) {
        let at = self.asks.iter().position(|(tag, _)| done.is(*tag)).expect("each question is answered once");
        let (tag, asked) = self.asks.remove(at);
        let history = &mut *lock(&self.history);
        *history.open.entry(self.number).or_default() -= 1;
        match (done.take(tag).expect("it is its tag"), asked) {
            (Ok(answer), Some(question)) => assert_eq!(answer, question + 1, "the answer is of this question"),
            (Ok(_), None) => panic!("nobody answers it"),
            (Err(CommandError::Node { why: NodeError::NodeDown, .. }), _) => {}
            (Err(CommandError::TimedOut | CommandError::Dropped), None) => {}
            (Err(error), _) => panic!("another error: {error}"),
        }
    }

    fn count(&self, of: impl FnOnce(&mut History)) {
        of(&mut lock(&self.history));
    }

    /// Notes a link to another process. Returns whether the two were not linked.
    fn begins_link(&mut self, other: Pid) -> bool {
        let history = &mut *lock(&self.history);
        let pair = history.pair(self.number, other);
        let begins = history.linked.insert(pair);
        if begins {
            self.links.insert(other);
            *history.links.entry(self.number).or_default() += 1;
        }
        begins
    }

    /// Notes that a link of this process has ended. Returns whether there was one.
    fn ends_link(&mut self, other: Pid) -> bool {
        let ends = self.links.remove(&other);
        if ends {
            let history = &mut *lock(&self.history);
            let pair = history.pair(self.number, other);
            history.linked.remove(&pair);
            *history.links.entry(self.number).or_default() -= 1;
        }
        ends
    }
}

impl Process for Peer {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            let number = self.number;
            match event {
                Event::Message(Letter::Note(from, note)) => {
                    self.count(|history| history.taken.entry((from, number)).or_default().push(note));
                }
                Event::Message(Letter::Ask(question, reply)) => out.reply(reply, question + 1),
                Event::Message(Letter::Keep(reply)) => self.kept.push(reply),
                Event::Message(Letter::Write(count, to, answers)) => self.write(out, count, to, answers),
                Event::Message(Letter::Watch(to)) => {
                    self.monitors.insert(out.monitor(to));
                    self.count(|history| *history.monitors.entry(number).or_default() += 1);
                }
                // One link of a pair at a time, so that each has one end.
                Event::Message(Letter::Link(to)) if self.begins_link(to.pid()) => out.link(to),
                Event::Message(Letter::Unlink(to)) if self.ends_link(to.pid()) => out.unlink(to),
                Event::Completed(done) => self.answered(&done),
                Event::Down(down) => {
                    assert!(self.monitors.remove(&down.monitor), "a monitor tells once");
                    self.count(|history| *history.monitors.entry(number).or_default() -= 1);
                }
                // Others link themselves to this one, too.
                Event::Exit(exit) => _ = self.ends_link(exit.pid),
                Event::Cancel(_) => return Ok(Step::Done(())),
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

/// A node of a world, with one process.
struct Member {
    number: u64,
    name: &'static str,
    runtime: Runtime,
    node: Cluster,
    peer: Address<Letter>,
    /// Another process, which answers questions.
    answers: Address<Letter>,
    events: MemberEvents,
    seen: BTreeSet<String>,
    claim: Option<Claim>,
}

fn member(world: &World, at: usize, number: u64, history: &Shelf) -> Result<Member, BoxError> {
    let name = NAMES[at];
    let runtime = world.start(Runtime::builder().observer(Graves(history.clone(), number)))?;
    let node = world.start_node(Cluster::named(name, Wire::new().message::<Letter>()), &runtime)?;
    let spawn = || {
        let peer = Peer {
            number,
            history: history.clone(),
            sent: BTreeMap::new(),
            asks: Vec::new(),
            kept: Vec::new(),
            monitors: BTreeSet::new(),
            links: BTreeSet::new(),
        };
        Ok::<_, BoxError>(runtime.spawn_with(peer, SpawnOptions::new().trap_exits())?.address())
    };
    let (peer, answers) = (spawn()?, spawn()?);
    lock(history).processes.insert((number, peer.pid()), number);
    let events = node.group_events("g");
    Ok(Member { number, name, runtime, node, peer, answers, events, seen: BTreeSet::new(), claim: None })
}

impl Member {
    /// The addresses here of the processes of another node.
    fn far(&self, other: &Member, history: &Shelf) -> [Address<Letter>; 2] {
        let number = self.node.number_of(other.node.here().incarnation());
        let here = |pid: Pid| Pid::new(number, pid.slot(), pid.generation()).unwrap();
        let [peer, answers] = [here(other.peer.pid()), here(other.answers.pid())];
        lock(history).processes.insert((self.number, peer), other.number);
        [peer.typed(), answers.typed()]
    }

    fn end(&self) -> Result<(), BoxError> {
        for process in [self.peer, self.answers] {
            self.runtime.cancel(process, "the end")?;
        }
        Ok(())
    }

    /// Takes the events of the group. Each is news.
    fn hear(&mut self) {
        while let Ok(Some(event)) = self.events.recv_timeout(Duration::ZERO) {
            let key = |member: &GroupMember| format!("{} {}", member.label, member.pid);
            let is_news = match &event {
                MemberEvent::Joined(member) => self.seen.insert(key(member)),
                MemberEvent::Left(member) => self.seen.remove(&key(member)),
            };
            assert!(is_news, "{event:?} is told twice at {}", self.name);
        }
    }

    fn labels(&self) -> Vec<String> {
        self.node.group_members("g").into_iter().map(|member| member.label).collect()
    }

    /// The name of the node of the holder.
    fn holder(&self, members: &[Member]) -> Option<&'static str> {
        let pid = self.node.holder("name")?;
        let of = |other: &&Member| {
            let here = other.name == self.name && pid == self.peer.pid();
            here || pid.node() == self.node.number_of(other.node.here().incarnation()) && other.name != self.name
        };
        members.iter().find(of).map(|other| other.name)
    }
}

/// One thing happens.
fn happens(world: &World, members: &mut [Member], history: &Shelf, next: &mut u64) -> Result<(), BoxError> {
    let at = world.random(0..5) as usize;
    let other = (at + world.random(1..5) as usize) % 5;
    let [far, answers] = members[at].far(&members[other], history);
    let tell = |letter| members[at].runtime.send(members[at].peer, letter);
    match world.random(0..20) {
        0..8 => tell(Letter::Write(world.random(1..8), (members[other].number, far), answers))?,
        8..10 => tell(Letter::Watch(far))?,
        10..12 => tell(Letter::Link(far))?,
        12 => tell(Letter::Unlink(far))?,
        13 => {
            let label = format!("{}/{}", NAMES[at], world.random(0..3));
            let _ = members[at].node.join_group("g", &label, members[at].peer);
        }
        14 => _ = members[at].node.leave_group("g", members[at].peer),
        15 => {
            // It may be held by another process, or by this one.
            if let Ok(claim) = members[at].node.claim("name", members[at].peer) {
                members[at].claim = Some(claim);
            }
        }
        16 => world.network().cut(NAMES[at], NAMES[other]),
        17 => world.network().cut_one_way(NAMES[at], NAMES[other]),
        18 => world.network().heal_all(),
        _ => {
            let crashed = &members[at];
            lock(history).crashed.insert(crashed.number);
            world.crash(&crashed.node, &crashed.runtime);
            *next += 1;
            members[at] = member(world, at, *next, history)?;
        }
    }
    Ok(())
}

fn check(history: &History) {
    for ((from, to), notes) in &history.taken {
        assert!(notes.is_sorted_by(|one, next| one < next), "{from} to {to}: {notes:?}");
    }
    let is_gone = |number: &u64| history.crashed.contains(number);
    for (pair @ (from, to), sent) in &history.sent {
        // A node that has crashed has taken messages with it.
        if is_gone(from) || is_gone(to) {
            continue;
        }
        let taken = history.taken.get(pair).map_or(0, Vec::len) as u64;
        let dead = history.dead.get(pair).copied().unwrap_or_default();
        assert!(taken + dead >= *sent, "{from} to {to}: {taken} of {sent} were taken, {dead} are dead letters");
        assert!(
            taken <= *sent && dead <= *sent,
            "{from} to {to}: {taken} of {sent} were taken, {dead} are dead letters"
        );
    }
    let all_told = |counts: &BTreeMap<u64, u64>| counts.iter().all(|(number, left)| *left == 0 || is_gone(number));
    assert!(all_told(&history.open), "questions are open: {:?}", history.open);
    assert_eq!(history.other_letters, []);
}

fn scenario(world: &World) -> Result<(), BoxError> {
    let history = Shelf::default();
    let mut next = 4;
    let start = |number: u64| member(world, number as usize, number, &history);
    let mut members = (0..5).map(start).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..ROUNDS {
        happens(world, &mut members, &history, &mut next)?;
        world.run_for(world.random(0..400) as u32 * Duration::from_millis(1))?;
        members.iter_mut().for_each(Member::hear);
    }
    // The weather is over.
    world.run_for(20 * SECOND)?;
    world.network().heal_all();
    world.run_for(8 * SECOND)?;
    for member in &mut members {
        assert_eq!(member.node.nodes().len(), 4, "{} sees all", member.name);
        member.hear();
    }
    for member in &members {
        assert_eq!(member.labels(), members[0].labels());
        let here = member.node.group_members("g").iter().map(|it| format!("{} {}", it.label, it.pid)).collect();
        assert_eq!(member.seen, here, "the subscriber of {}", member.name);
        let holder = member.holder(&members);
        assert_eq!(holder, members[0].holder(&members));
        let is_open = member.claim.as_ref().is_some_and(|claim| claim.end().is_none());
        assert_eq!(is_open, holder == Some(member.name), "{:?}", member.claim.as_ref().and_then(Claim::end));
    }
    check(&lock(&history));
    // All monitors and links end with the processes.
    let watcher = members.remove(0);
    for member in &members {
        member.end()?;
    }
    world.run_for(SECOND)?;
    {
        let history = lock(&history);
        assert_eq!(history.monitors.get(&watcher.number).copied().unwrap_or_default(), 0, "all monitors have told");
        assert_eq!(history.links.get(&watcher.number).copied().unwrap_or_default(), 0, "all links have ended");
    }
    watcher.end()?;
    members.push(watcher);
    world.run_for(SECOND)?;
    for member in &members {
        assert_eq!(member.node.left(), (0, 0), "{}: nothing is left", member.name);
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
        .cut_nodes(0.001, 5 * SECOND)
        .pause_nodes(0.0005, 5 * SECOND)
        .until(15 * SECOND);
    Simulation::new(scenario).faults(faults).seeds(0..seeds).check();
}
