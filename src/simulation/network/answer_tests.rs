//! Nodes that ask each other for more than there is room for, while connections break and processes end.

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
const NAMES: [&str; 3] = ["a", "b", "c"];

/// How many questions a process asks each other one, and the bytes of each answer. They have more bytes than there is
/// room for.
const QUESTIONS: usize = 24;
const SIZE: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
enum Letter {
    /// Asks these processes.
    Begin(Vec<Address<Letter>>),
    Ask(Reply<String>),
    /// An answer is given to each question that was asked before.
    Answer,
}

crate::remote!(Letter, "answers::Letter", 1);

#[derive(Default)]
struct Seen {
    asked: usize,
    good: usize,
    errors: Vec<CommandError>,
}

type Notes = Arc<Mutex<Seen>>;

#[derive(Default)]
struct Library {
    notes: Notes,
    open: Vec<Tag<String>>,
    kept: Vec<Reply<String>>,
    /// Whether it answers several questions in one step.
    keeps: bool,
}

impl Process for Library {
    type Message = Letter;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Letter>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            match event {
                Event::Message(Letter::Begin(others)) => {
                    for other in others {
                        self.open.extend((0..QUESTIONS).map(|_| out.ask(other, Letter::Ask, HOUR)));
                        lock(&self.notes).asked += QUESTIONS;
                    }
                }
                Event::Message(Letter::Ask(reply)) if self.keeps && self.kept.len() < 8 => self.kept.push(reply),
                Event::Message(Letter::Ask(reply)) => out.reply(reply, "x".repeat(SIZE)),
                Event::Message(Letter::Answer) => {
                    self.kept.drain(..).for_each(|reply| out.reply(reply, "x".repeat(SIZE)));
                }
                Event::Completed(done) => {
                    let place = self.open.iter().position(|tag| done.is(*tag)).expect("each is answered once");
                    let answer = done.take(self.open.swap_remove(place)).expect("it is its question");
                    let seen = &mut *lock(&self.notes);
                    match answer {
                        Ok(text) => {
                            assert_eq!(text.len(), SIZE);
                            seen.good += 1;
                        }
                        Err(why) => seen.errors.push(why),
                    }
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
    libraries: Vec<(Address<Letter>, Notes)>,
}

impl Member {
    fn far(&self, other: &Member, at: usize) -> Address<Letter> {
        let (number, pid) = (self.node.number_of(other.node.here().incarnation()), other.libraries[at].0.pid());
        Pid::new(number, pid.slot(), pid.generation()).unwrap().typed()
    }
}

fn run(world: &World, breaks: bool) -> Result<usize, BoxError> {
    let start = |name: &&str| {
        let runtime = world.start(Runtime::builder())?;
        let node = world.start_node(Cluster::named(*name, Wire::new().message::<Letter>()), &runtime)?;
        let spawn = |keeps| {
            let notes = Notes::default();
            let library = Library { notes: notes.clone(), keeps, ..Library::default() };
            Ok::<_, BoxError>((runtime.spawn(library)?.address(), notes))
        };
        let libraries = vec![spawn(false)?, spawn(true)?];
        Ok::<_, BoxError>(Member { runtime, node, libraries })
    };
    let members = NAMES.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    world.run_for(5 * SECOND)?;
    assert!(members.iter().all(|member| member.node.nodes().len() == 2), "the nodes are connected");
    for (at, member) in members.iter().enumerate() {
        for place in 0..2 {
            let others = (0..3).filter(|other| *other != at).map(|other| member.far(&members[other], place));
            member.runtime.send(member.libraries[place].0, Letter::Begin(others.collect()))?;
        }
    }
    let (mut held, mut ended) = (0, None);
    for _ in 0..30 {
        world.run_for(Duration::from_micros(200))?;
        held = held.max(members.iter().map(|member| member.node.stats().held_processes).sum());
        match world.random(0..if breaks { 12 } else { 2 }) {
            0 => members.iter().for_each(|member| {
                let _ = member.runtime.send(member.libraries[1].0, Letter::Answer);
            }),
            3 => {
                let at = world.random(0..3) as usize;
                world.network().cut(NAMES[at], NAMES[(at + 1) % 3]);
            }
            4 => {
                let at = world.random(0..3) as usize;
                world.network().cut_one_way(NAMES[at], NAMES[(at + 1) % 3]);
            }
            5 => world.network().heal_all(),
            6 => world.run_for(2 * SECOND)?,
            7 if ended.is_none() => {
                let (at, place) = (world.random(0..3) as usize, world.random(0..2) as usize);
                members[at].runtime.terminate(members[at].libraries[place].0)?;
                ended = Some((at, place));
            }
            _ => {}
        }
    }
    world.network().heal_all();
    for _ in 0..2 {
        world.run_for(10 * SECOND)?;
        for member in &members {
            let _ = member.runtime.send(member.libraries[1].0, Letter::Answer);
        }
    }
    world.run_for(10 * SECOND)?;
    for (at, member) in members.iter().enumerate() {
        assert_eq!((member.node.stats().held_processes, member.node.stats().waiting_sends), (0, 0));
        for (place, (_, notes)) in member.libraries.iter().enumerate() {
            let Seen { asked, good, errors } = &*lock(notes);
            if ended != Some((at, place)) {
                assert_eq!(good + errors.len(), *asked, "{place} of {at}, {ended:?}: {errors:?}");
            }
            let is_known = |why: &CommandError| match why {
                CommandError::Node { why: NodeError::NodeDown, .. } => breaks,
                CommandError::Ended(_) | CommandError::NoSuchProcess(_) => ended.is_some(),
                _ => false,
            };
            assert!(errors.iter().all(is_known), "{errors:?}");
        }
        assert_eq!(member.node.left(), (0, 0));
    }
    Ok(held)
}

#[test]
fn questions_with_large_answers_are_answered_once_whatever_breaks() {
    for breaks in [false, true] {
        Simulation::new(move |world| {
            let held = run(world, breaks)?;
            assert!(breaks || held > 0, "nobody was ever held");
            Ok(())
        })
        .faults(Faults::none().delay_frames(0.1, SECOND / 20))
        .seeds(0..counts(if breaks { 20 } else { 3 }, 100))
        .check();
    }
}
