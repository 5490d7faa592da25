//! Replies that are on a third or a fourth node, while one of the nodes on their way goes down.

use serde::{Deserialize, Serialize};

use super::*;
use crate::cluster::Wire;
use crate::counts::counts;
use crate::pid::Address;
use crate::primitives::Mutex;
use crate::process::{CommandError, Event, Events, NodeError, Process, Reply, Step, StepOutput, StepResult, Tag};
use crate::simulation::{Faults, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

#[derive(Serialize, Deserialize)]
enum Letter {
    /// Asks the first of these processes, which hands the reply on to the next one.
    Ask(Vec<Address<Letter>>),
    /// The last one keeps the reply.
    Hand(Vec<Address<Letter>>, Reply<u64>),
    /// The replies that were kept are answered.
    Answer,
}

crate::remote!(Letter, "reply::Letter", 1);

/// The notes of a process.
#[derive(Default)]
struct Seen {
    answers: Vec<Result<u64, CommandError>>,
    /// Whether each of the replies was open when it was answered.
    open: Vec<bool>,
    kept: usize,
}

type Notes = Arc<Mutex<Seen>>;

#[derive(Default)]
struct Peer {
    notes: Notes,
    asked: Option<Tag<u64>>,
    kept: Vec<Reply<u64>>,
}

impl Process for Peer {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Letter::Ask(mut way)) => {
                    let first = way.remove(0);
                    self.asked = Some(out.ask(first, move |reply| Letter::Hand(way, reply), HOUR));
                }
                Event::Message(Letter::Hand(mut way, reply)) if !way.is_empty() => {
                    let next = way.remove(0);
                    out.send(next, Letter::Hand(way, reply));
                }
                Event::Message(Letter::Hand(_, reply)) => {
                    self.kept.push(reply);
                    lock(&self.notes).kept += 1;
                }
                Event::Message(Letter::Answer) => {
                    for reply in self.kept.drain(..) {
                        lock(&self.notes).open.push(reply.is_open());
                        out.reply(reply, 42);
                    }
                }
                Event::Completed(done) => {
                    let tag = self.asked.expect("it has asked");
                    lock(&self.notes).answers.push(done.take(tag).expect("it is its question"));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}

struct Member {
    runtime: Runtime,
    node: Cluster,
    peer: Address<Letter>,
    notes: Notes,
}

/// Connected nodes with one process each.
fn members(world: &World, count: usize) -> Result<Vec<Member>, BoxError> {
    let start = |name: &&str| {
        let runtime = world.start(Runtime::builder())?;
        let node = world.start_node(Cluster::named(*name, Wire::new().message::<Letter>()), &runtime)?;
        let notes = Notes::default();
        let peer = runtime.spawn(Peer { notes: notes.clone(), ..Peer::default() })?.address();
        Ok::<_, BoxError>(Member { runtime, node, peer, notes })
    };
    let members = NAMES[..count].iter().map(start).collect::<Result<Vec<_>, _>>()?;
    world.run_for(5 * SECOND)?;
    assert!(members.iter().all(|member| member.node.nodes().len() == count - 1), "the nodes are connected");
    Ok(members)
}

impl Member {
    fn far(&self, other: &Member) -> Address<Letter> {
        let (number, pid) = (self.node.number_of(other.node.here().incarnation()), other.peer.pid());
        Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
    }

    /// Has the process of this node ask, and the reply handed on over the others.
    fn asks(&self, others: &[Member]) -> Result<(), BoxError> {
        let way = others.iter().map(|other| self.far(other)).collect();
        Ok(self.runtime.send(self.peer, Letter::Ask(way))?)
    }

    fn answers(&self) -> Result<(), BoxError> {
        Ok(self.runtime.send(self.peer, Letter::Answer)?)
    }
}

fn is_node_down(answers: &[Result<u64, CommandError>]) -> bool {
    matches!(answers, [Err(CommandError::Node { why: NodeError::NodeDown, .. })])
}

/// Checks that no question is left on these nodes.
fn nothing_is_left<'m>(members: impl IntoIterator<Item = &'m Member>) {
    for member in members {
        assert_eq!(member.node.left(), (0, 0), "{}", member.node.here());
    }
}

#[test]
fn when_the_node_of_a_handed_on_reply_goes_down_the_asker_is_told() {
    Simulation::new(|world| {
        let count = 3 + world.random(0..2) as usize;
        let members = members(world, count)?;
        members[0].asks(&members[1..])?;
        world.run_for(SECOND)?;
        assert_eq!((lock(&members[count - 1].notes).kept, lock(&members[0].notes).answers.len()), (1, 0));
        // The asker's node and that of the holder are not connected any more. Nothing depends on it.
        world.network().cut(NAMES[0], NAMES[count - 1]);
        world.run_for(3 * SECOND)?;
        assert!(lock(&members[0].notes).answers.is_empty());
        if world.random(0..2) == 0 {
            members[count - 1].answers()?;
            world.run_for(SECOND)?;
            assert!(matches!(lock(&members[0].notes).answers[..], [Ok(42)]));
        } else {
            world.crash(&members[count - 1].node, &members[count - 1].runtime);
            world.run_for(3 * SECOND)?;
            let answers = &lock(&members[0].notes).answers;
            assert!(is_node_down(answers), "{answers:?}");
        }
        nothing_is_left(&members[..count - 1]);
        Ok(())
    })
    .seeds(0..50)
    .check();
}

#[test]
fn when_a_node_goes_down_that_has_handed_a_reply_on_both_ends_are_told() {
    Simulation::new(|world| {
        let count = 3 + world.random(0..2) as usize;
        let members = members(world, count)?;
        members[0].asks(&members[1..])?;
        world.run_for(SECOND)?;
        let middle = 1 + world.random(0..count as u64 - 2) as usize;
        world.crash(&members[middle].node, &members[middle].runtime);
        world.run_for(3 * SECOND)?;
        let holder = &members[count - 1];
        {
            let answers = &lock(&members[0].notes).answers;
            assert!(is_node_down(answers), "{answers:?}");
        }
        holder.answers()?;
        world.run_for(SECOND)?;
        assert_eq!(lock(&holder.notes).open, [false], "the holder can see that nobody waits");
        assert_eq!(lock(&members[0].notes).answers.len(), 1);
        nothing_is_left(members.iter().enumerate().filter(|(at, _)| *at != middle).map(|(_, member)| member));
        Ok(())
    })
    .seeds(0..50)
    .check();
}

#[test]
fn a_handed_on_reply_is_answered_once_whatever_breaks_meanwhile() {
    let faults = Faults::none()
        .lose_frames(0.01)
        .repeat_frames(0.01)
        .delay_frames(0.2, Duration::from_millis(300))
        .until(12 * SECOND);
    Simulation::new(|world| {
        let members = members(world, 4)?;
        members[0].asks(&members[1..])?;
        let pause = || Duration::from_millis(world.random(0..300));
        world.run_for(pause())?;
        let broken = world.random(0..6) as usize;
        let is_gone = |at: usize| broken == at;
        match broken {
            1..4 => world.crash(&members[broken].node, &members[broken].runtime),
            4 => world.network().cut(NAMES[world.random(0..2) as usize], NAMES[2]),
            _ => {}
        }
        world.run_for(pause())?;
        if !is_gone(3) {
            members[3].answers()?;
        }
        world.run_for(10 * SECOND)?;
        world.network().heal_all();
        // The reply may have come after that.
        if !is_gone(3) {
            members[3].answers()?;
        }
        world.run_for(5 * SECOND)?;
        let answers = &lock(&members[0].notes).answers;
        assert!(is_node_down(answers) || matches!(answers[..], [Ok(42) | Err(CommandError::Dropped)]), "{answers:?}");
        nothing_is_left(members.iter().enumerate().filter(|(at, _)| !is_gone(*at)).map(|(_, member)| member));
        Ok(())
    })
    .faults(faults)
    .seeds(0..counts(50, 1_000))
    .check();
}
