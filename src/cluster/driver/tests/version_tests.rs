//! The versions of the protocol: their frames, and nodes of different versions.

use std::any::Any;
use std::fmt::Write as _;
use std::rc::Rc;

use super::*;
use crate::cluster::frame::Head;
use crate::cluster::remote::RemoteProcess;
use crate::cluster::remote_spawn::{FarOptions, SpawnOrder};
use crate::cluster::scope::{Scope, within};
use crate::cluster::shape::Shape;
use crate::process::propagation::{StepSpan, TraceContext, TracedStep};
use crate::process::{DeadLetter, Overflow, Reply, SpawnOptions};
use crate::sched::trace_marks::Context;

/// The frames of version 2. They must never change: nodes of the next version read and write them, too. A change that
/// breaks this test needs a new version, and both ways to read and write.
const VERSION_2: &str = include_str!("../../../../tests/protocol/version_2.txt");

/// The frames of version 3, in which nodes ask each other about nodes that are down.
const VERSION_3: &str = include_str!("../../../../tests/protocol/version_3.txt");

/// A context of a propagator that writes it so.
struct Written;

impl TraceContext for Written {
    fn begin_step(&self, _: &TracedStep<'_>) -> Box<dyn StepSpan> {
        unreachable!("no runtime of the test has a propagator")
    }

    fn enter(&self) -> Box<dyn Any> {
        Box::new(())
    }

    fn dead_letter(&self, _: &DeadLetter<'_>) {}

    fn encode(&self) -> Option<Vec<u8>> {
        Some(b"a trace".into())
    }
}

/// The bytes of a frame, in hexadecimal digits. A byte that is repeated is written once, with its number.
fn shown(frame: &[u8]) -> String {
    let mut text = String::new();
    for run in frame.chunk_by(|one, next| one == next) {
        match run.len() {
            count @ ..8 => (0..count).for_each(|_| _ = write!(text, "{:02x}", run[0])),
            count => _ = write!(text, "({:02x}*{count})", run[0]),
        }
    }
    text
}

impl World {
    /// Sends a message of the first node within a trace.
    fn post_in_trace(&self, far: Address<Message>, message: Message) {
        let connection = &self.ends[0].inward.up.as_ref().unwrap().connection;
        let trace: Context = Arc::new(Written);
        assert!(connection.post((None, far.pid()), (Box::new(message), Some(&trace)), false).is_ok());
    }

    /// Does one thing, and carries what follows. Then nothing is left to be acknowledged.
    fn record(&mut self, text: &mut String, what: &str, does: impl FnOnce(&mut World)) {
        self.sent.clear();
        does(self);
        self.run();
        self.pass(20 * MILLIS, &mut || true);
        let _ = writeln!(text, "# {what}");
        for (from, frame) in self.sent.drain(..) {
            let _ = writeln!(text, "{}: {}", ["one", "other"][from], shown(&frame));
        }
    }
}

/// Two nodes that speak these versions, and all that they send.
fn conversation(versions: [RangeInclusive<u16>; 2]) -> String {
    let mut world = apart(versions);
    let mut text = String::new();
    world.record(&mut text, "The nodes connect.", World::connect);
    let (echo, far, notes) = world.echo();
    world.record(&mut text, "A message from outside.", |world| {
        world.ends[0].side.runtime.send(far, Message::Note(300)).unwrap();
    });
    world.record(&mut text, "A question, and its answer.", |world| {
        let asked = world.ends[0].side.runtime.ask(far, Message::Ask, LIMIT);
        world.run();
        assert_eq!(asked.wait().unwrap(), 7);
    });
    world.record(&mut text, "A question without an answer.", |world| {
        let asked = world.ends[0].side.runtime.ask(far, Message::Drop, LIMIT);
        world.run();
        assert!(matches!(asked.wait(), Err(CommandError::Dropped)));
    });
    world.record(&mut text, "A question whose asker gives up.", |world| {
        let asked = world.ends[0].side.runtime.ask(far, Message::Keep, LIMIT);
        world.run();
        world.pass(20 * MILLIS, &mut || true);
        drop(asked);
    });
    world.record(&mut text, "A message of a process, with its address, and one back.", |world| {
        world.ends[0].side.begins(move |out| {
            let me = out.pid().typed();
            out.send(far, Message::Ball(1, me));
        });
    });
    world.record(&mut text, "A large message.", |world| {
        let sink = world.ends[1].side.runtime.spawn(Sink(notes.clone())).unwrap();
        let sink = world.far(sink.address());
        world.ends[0].side.runtime.send(sink, Large(9, vec![9; 33_000])).unwrap();
    });
    world.record(&mut text, "A message within a trace.", |world| world.post_in_trace(far, Message::Note(2)));
    assert_eq!(lock(&notes).pop(), Some(2));
    world.record(&mut text, "A monitor.", |world| {
        world.ends[0].side.begins(move |out| _ = out.monitor(far.pid()));
    });
    world.record(&mut text, "The end of the process.", |world| {
        world.ends[0].side.runtime.send(far, Message::Stop).unwrap();
    });
    let (_linked, linked, _) = world.echo();
    world.record(&mut text, "A link.", |world| {
        world.ends[0].side.begins(move |out| out.link(linked.pid()));
    });
    world.record(&mut text, "The end of the process.", |world| {
        world.ends[0].side.runtime.send(linked, Message::Stop).unwrap();
    });
    let (_cancelled, cancelled, _) = world.echo();
    world.record(&mut text, "A request to cancel.", |world| {
        world.ends[0].side.begins(move |out| _ = out.cancel(cancelled.pid(), "enough"));
    });
    let (_terminated, terminated, _) = world.echo();
    world.record(&mut text, "A request to terminate.", |world| {
        world.ends[0].side.begins(move |out| _ = out.terminate(terminated.pid()));
    });
    assert_eq!(*lock(&notes), [300, 1, 9]);
    drop(echo);
    world.record(&mut text, "A frame is lost, and the nodes connect again.", |world| {
        world.ends[0].side.runtime.send(far, Message::Note(1)).unwrap();
        world.run_in(&mut || false);
        world.pass(Duration::from_secs(1), &mut || true);
        world.connect();
    });
    world.record(&mut text, "A node leaves.", |world| world.ends[1].driver.leave());
    text
}

/// Two nodes that speak these versions: a name, a group, a broadcast, and a process that one spawns on the other.
fn company(versions: [RangeInclusive<u16>; 2]) -> String {
    let spoken_by_both = *versions[0].end().min(versions[1].end());
    let mut world = apart_with(versions, || wire().process::<Guest>());
    let mut text = String::new();
    world.record(&mut text, "The nodes connect, with a type of processes.", World::connect);
    let (echo, far, notes) = world.echo();
    world.record(&mut text, "A name is looked up.", |world| {
        world.ends[1].side.runtime.register("echo", &echo).unwrap();
        let up = world.ends[0].inward.up.as_ref().unwrap();
        assert!(up.connection.send_head(0, &Head::Whereis { number: 7, name: "echo".into() }));
    });
    if spoken_by_both >= 3 {
        world.record(&mut text, "A node is asked whether another one is up there.", |world| {
            let asks = |incarnation| world.ends[0].inward.up.as_ref().unwrap().connection.inquire(5, incarnation);
            [1, 9].into_iter().for_each(asks);
        });
    }
    let groups = |world: &World, at: usize| world.ends[at].side.node.groups().clone();
    world.record(&mut text, "A process joins a group.", |world| {
        let core = world.ends[1].side.runtime.core().clone();
        groups(world, 1).join(&core, ("group", "label"), echo.pid()).unwrap();
    });
    assert_eq!(groups(&world, 0).members("group")[0].pid, far.pid());
    world.record(&mut text, "A broadcast.", |world| {
        assert_eq!(world.ends[0].side.node.broadcast(&[far.pid()], &Message::Note(5)), 1);
    });
    let there = Pid::new(far.pid().node(), 0, 1).unwrap();
    let answers = Arc::new(Mutex::new(None));
    world.record(&mut text, "A process is spawned, with a monitor.", |world| {
        let options = SpawnOptions::new().name("guest").group("guests").mailbox(3, Overflow::Refuse).monitor();
        *lock(&answers) = Some(world.ends[0].side.begins(move |out| {
            let options = FarOptions::of(&options, || out.new_number()).unwrap();
            out.ask(there.typed(), |reply| SpawnOrder::new::<Guest>(9, options, reply), LIMIT);
        }));
    });
    let guest = world.ends[1].side.runtime.whereis("guest").unwrap();
    world.record(&mut text, "It ends.", |world| {
        assert!(world.ends[1].side.runtime.terminate(guest).unwrap());
    });
    world.record(&mut text, "The process leaves its group, because it ends.", |world| {
        world.ends[0].side.runtime.send(far, Message::Stop).unwrap();
    });
    assert_eq!((groups(&world, 0).members("group").len(), &lock(&notes)[..]), (0, &[5][..]));
    let other = world.ends[1].side.runtime.spawn(OfOtherType).unwrap();
    let other = world.far(other.pid().typed());
    world.record(&mut text, "A question of a type that its receiver does not take.", |world| {
        let asked: AskFuture<u64> = world.ends[0].side.runtime.ask(other, Message::Ask, LIMIT);
        world.run();
        // An older node has no such answer, and gets its text.
        match (asked.wait().unwrap_err(), spoken_by_both) {
            (CommandError::WrongType { takes, .. }, 3..) => assert_eq!(takes, "u32"),
            (CommandError::Failed(failure), ..3) => assert!(failure.to_string().contains("u32"), "{failure}"),
            (error, version) => panic!("{error:?} with version {version}"),
        }
    });
    text
}

/// A process that takes other messages.
struct OfOtherType;

impl Process for OfOtherType {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

/// A process that other nodes spawn.
struct Guest;

impl RemoteProcess for Guest {
    const NAME: &'static str = "test::Guest";
    const VERSION: u32 = 1;
    type Argument = u64;

    fn begin(_: u64) -> Result<Guest, BoxError> {
        Ok(Guest)
    }
}

impl Process for Guest {
    type Message = Message;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, Message>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn the_frames_of_each_version_are_as_they_were_recorded() {
    for (version, recorded) in [(2, VERSION_2), (3, VERSION_3)] {
        let both = || [version..=version, version..=version];
        let shape = match recorded.lines().nth(1) {
            // It was the shape before the next version had more heads.
            Some(shape) if version < PROTOCOL => shape.into(),
            _ => format!("{:016x}", within(&Rc::new(Scope::Probing), Shape::of::<Head>).hash),
        };
        let mut now = format!("# The heads of items have this shape.\n{shape}\n");
        now += &(conversation(both()) + &company(both()));
        let mut world = apart([version..=version, version + 1..=version + 1]);
        world.record(&mut now, "A node refuses another one.", |world| world.pass(300 * MILLIS, &mut || true));
        // Shown if it fails. This is how a new version is recorded.
        println!("{now}");
        for (line, (recorded, now)) in recorded.lines().zip(now.lines()).enumerate() {
            assert_eq!(recorded, now, "line {line} of version {version}");
        }
        assert_eq!(recorded.lines().count(), now.lines().count());
    }
}

#[test]
fn nodes_of_different_versions_speak_the_newest_that_both_know() {
    let (newest, before) = (spoken(PROTOCOL), spoken(PROTOCOL - 1));
    let ranges = [(newest.clone(), newest, PROTOCOL), (before, spoken(PROTOCOL), PROTOCOL - 1)];
    for (one, other, common) in
        ranges.into_iter().flat_map(|(one, other, common)| [(one.clone(), other.clone(), common), (other, one, common)])
    {
        let mut world = apart([one, other]);
        world.connect();
        let versions = world.ends.each_ref().map(|end| end.inward.up.as_ref().unwrap().connection.protocol());
        assert_eq!(versions, [common; 2]);
        let (_echo, far, _) = world.echo();
        let asked: AskFuture<u64> = world.ends[0].side.runtime.ask(far, |reply: Reply<u64>| Message::Ask(reply), LIMIT);
        world.run();
        assert_eq!(asked.wait().unwrap(), 7);
    }
    let mut world = apart([spoken(PROTOCOL - 2), spoken(PROTOCOL)]);
    world.pass(Duration::from_secs(2), &mut || true);
    assert_eq!(world.is_up(), [false; 2], "two versions apart");
}

/// Only the range of versions in the `Hello` differs from what two nodes of the older version say.
#[test]
fn a_newer_node_sends_an_older_one_only_the_frames_of_its_version() {
    let frames = |versions: [RangeInclusive<u16>; 2]| -> Vec<String> {
        let is_hello = |line: &str| line.contains(": c0");
        let all = conversation(versions.clone()) + &company(versions);
        all.lines().filter(|line| !is_hello(line)).map(String::from).collect()
    };
    let old = frames([2..=2, 2..=2]);
    assert!(old.len() > 70, "{} lines", old.len());
    for versions in [[2..=3, 2..=2], [2..=2, 2..=3]] {
        let mixed = frames(versions);
        for (line, (old, mixed)) in old.iter().zip(&mixed).enumerate() {
            assert_eq!(old, mixed, "line {line}");
        }
        assert_eq!(old.len(), mixed.len());
    }
}

/// Fails if a node of the version before is asked: it has no head for that.
#[test]
fn a_node_of_an_older_version_is_not_asked_about_others() {
    for (other, frames) in [(spoken(2), 0), (spoken(3), 1)] {
        let mut world = apart([spoken(3), other]);
        world.connect();
        world.sent.clear();
        world.ends[0].inward.up.as_ref().unwrap().connection.inquire(5, 9);
        world.run();
        assert_eq!((world.sent.len(), world.is_up()), (frames, [true; 2]));
    }
}

#[test]
fn a_node_speaks_its_version_and_the_one_before() {
    assert_eq!((spoken(1), spoken(2), spoken(7)), (1..=1, 1..=2, 6..=7));
}
