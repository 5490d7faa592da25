//! Two runtimes of one program, and a cable between them.

mod lost_reply_tests;
mod refused_tests;

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::echo::{Begin, Echo, Message, Notes, Spoilt};
use super::*;
use crate::clock::ManualClock;
use crate::cluster::connection::{Item, Refused};
use crate::cluster::peer::PROTOCOL;
use crate::counts::counts;
use crate::latch::Latch;
use crate::pid::Address;
use crate::primitives::{Mutex, lock};
use crate::process::{
    CommandError, DeadLetter, DeadLetterReason, Event, Events, Observer, Overflow, Process, Reply, SpawnOptions, Step,
    StepOutput, StepResult,
};
use crate::runtime::{AskFuture, Handle, Runtime};
use crate::wait::{until, wait};

const LIMIT: Duration = Duration::from_secs(600);

/// Notes the dead letters of a runtime.
struct Graves(Arc<Mutex<Vec<(Pid, DeadLetterReason)>>>);

impl Observer for Graves {
    fn dead_letter(&self, letter: &DeadLetter<'_>) {
        lock(&self.0).push((letter.to, letter.reason));
    }
}

/// One end of the cable.
#[derive(Default)]
struct Cable {
    items: Mutex<VecDeque<Item>>,
    refuses: Mutex<Option<Refused>>,
}

impl Carrier for Cable {
    fn offer(&self, item: Item) -> Result<(), Refused> {
        match *lock(&self.refuses) {
            Some(Refused::Busy) if item.letter.is_none() => {}
            Some(refused) => return Err(refused),
            None => {}
        }
        lock(&self.items).push_back(item);
        Ok(())
    }
}

/// A runtime with its node, and its end of the cable.
pub(in crate::cluster) struct Side {
    pub(in crate::cluster) runtime: Runtime,
    pub(in crate::cluster) node: Arc<Node>,
    graves: Arc<Mutex<Vec<(Pid, DeadLetterReason)>>>,
    cable: Arc<Cable>,
    /// The number of the other node, and the connection.
    there: u32,
    connection: Option<Arc<Connection>>,
    clock: ManualClock,
}

fn side(life: u64, wire: Wire) -> Side {
    side_with(life, wire, ManualClock::new())
}

/// A runtime with its node, on this clock.
pub(in crate::cluster) fn side_with(life: u64, wire: Wire, clock: ManualClock) -> Side {
    let graves = Arc::<Mutex<Vec<_>>>::default();
    let builder = Runtime::builder().workers(1).node(7).clock(clock.clock());
    let runtime = builder.observer(Graves(graves.clone())).start().unwrap();
    let node = Arc::new(Node::new(Life::Node(life), wire, runtime.core()).unwrap());
    assert!(runtime.core().road.nodes.set(node.clone()).is_ok());
    Side { runtime, node, graves, cable: Arc::default(), there: 0, connection: None, clock }
}

struct Two {
    one: Side,
    other: Side,
}

/// Two nodes that are connected.
fn two() -> Two {
    two_with(|wire| wire, |wire| wire)
}

/// Two nodes that are connected, with more types.
fn two_with(one: fn(Wire) -> Wire, other: fn(Wire) -> Wire) -> Two {
    let wire = || Wire::new().message::<Message>();
    let mut two = Two { one: side(1, one(wire())), other: side(2, other(wire())) };
    two.connect(2);
    two
}

impl Two {
    /// Connects the two. The other one is a node of this life.
    fn connect(&mut self, life: u64) {
        let Two { one, other } = self;
        (one.cable, other.cable) = (Arc::default(), Arc::default());
        let up = |side: &Side, life, list: Vec<u8>| side.node.up((life, 7), &list, side.cable.clone()).unwrap();
        let connection = up(one, Life::Node(life), other.node.list().unwrap());
        (one.there, one.connection) = (connection.there().node, Some(connection));
        let connection = up(other, Life::Node(1), one.node.list().unwrap());
        (other.there, other.connection) = (connection.there().node, Some(connection));
    }

    /// Carries all frames, until nothing moves any more.
    fn carry(&self) {
        let quiet = || {
            let moved = carry_from(&self.one, &self.other) + carry_from(&self.other, &self.one);
            moved == 0 && self.one.runtime.is_idle() && self.other.runtime.is_idle()
        };
        // A process that was idle may just have sent something.
        until("nothing moves between the nodes", || quiet() && quiet());
    }

    /// Carries the frames that are there.
    fn carry_frames(&self) {
        while carry_from(&self.one, &self.other) + carry_from(&self.other, &self.one) > 0 {}
    }

    /// Breaks the connection. The frames in the cable were not confirmed.
    fn cut(&self) {
        for side in [&self.one, &self.other] {
            *lock(&side.cable.refuses) = Some(Refused::Down);
        }
        for side in [&self.one, &self.other] {
            let items = std::mem::take(&mut *lock(&side.cable.items));
            let connection = side.connection.as_ref().unwrap();
            side.node.down(connection, items.into_iter().filter_map(|item| item.letter));
        }
    }

    /// A process of the other node, and its address on the first one.
    fn echo(&self) -> (Handle<Echo>, Address<Message>, Notes) {
        let (echo, notes) = self.other.echo(vec![]);
        (echo.0, self.far(echo.1), notes)
    }

    /// The address on the first node of a process of the other.
    fn far(&self, address: Address<Message>) -> Address<Message> {
        let pid = address.pid();
        Pid::new(self.one.there, pid.slot(), pid.generation()).unwrap().typed()
    }

    fn open_questions(&self) -> [(usize, usize); 2] {
        [&self.one, &self.other].map(|side| side.connection.as_ref().unwrap().open_questions())
    }

    /// Checks that each node has stepped or buried all messages that it has accepted.
    fn all_accounted_for(&self) {
        for side in [&self.one, &self.other] {
            let messages = side.runtime.stats().messages;
            let dead: u64 = messages.dead_by_reason.values().sum();
            assert_eq!(messages.accepted, messages.stepped + dead + messages.queued, "{messages:?}");
        }
    }
}

fn carry_from(from: &Side, to: &Side) -> usize {
    let items = std::mem::take(&mut *lock(&from.cable.items));
    let count = items.len();
    items.into_iter().for_each(|item| to.connection.as_ref().unwrap().receive(&item.bytes).unwrap());
    count
}

impl Side {
    pub(in crate::cluster) fn echo(&self, begin: Begin) -> ((Handle<Echo>, Address<Message>), Notes) {
        let notes = Notes::default();
        let echo = Echo { notes: notes.clone(), kept: Vec::new(), begin };
        let echo = self.runtime.spawn(echo).unwrap();
        let address = echo.address();
        ((echo, address), notes)
    }

    /// A process that yields this in its first step.
    pub(in crate::cluster) fn begins(&self, begin: impl FnOnce(&mut StepOutput) + Send + 'static) -> Notes {
        self.echo(vec![Box::new(begin)]).1
    }

    pub(in crate::cluster) fn graves(&self) -> Vec<(Pid, DeadLetterReason)> {
        std::mem::take(&mut *lock(&self.graves))
    }
}

fn why_node(answer: Result<u64, CommandError>) -> NodeError {
    match answer {
        Err(CommandError::Node { why, .. }) => why,
        other => panic!("another answer: {other:?}"),
    }
}

#[test]
fn messages_of_one_sender_arrive_once_in_order_and_are_counted_there() {
    let two = two();
    let (_echo, far, notes) = two.echo();
    let from_step = two.one.begins(move |out| (0..1_000).for_each(|number| out.send(far, Message::Note(number))));
    two.carry();
    (1_000..2_000).for_each(|number| two.one.runtime.send(far, Message::Note(number)).unwrap());
    two.carry();
    assert_eq!(*lock(&notes), (0..2_000).collect::<Vec<_>>());
    let counts = |side: &Side| (side.runtime.stats().messages.accepted, side.runtime.stats().messages.stepped);
    assert_eq!((counts(&two.one), counts(&two.other)), ((0, 0), (2_000, 2_000)));
    assert!(lock(&from_step).is_empty());
}

#[test]
fn an_address_in_a_message_leads_back_to_its_process() {
    let two = two();
    let (_echo, far, notes) = two.echo();
    let ((_near, near), near_notes) = two.one.echo(vec![]);
    two.one.runtime.send(far, Message::Ball(10, near)).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [10, 8, 6, 4, 2]);
    assert_eq!(*lock(&near_notes), [9, 7, 5, 3, 1]);
    two.all_accounted_for();
}

#[test]
fn a_question_to_another_node_gets_its_answer_or_the_reason_for_none() {
    let two = two();
    let (echo, far, _) = two.echo();
    let ask = |question: fn(Reply<u64>) -> Message| -> AskFuture<u64> { two.one.runtime.ask(far, question, LIMIT) };
    let (answered, dropped, kept) = (ask(Message::Ask), ask(Message::Drop), ask(Message::Keep));
    let notes = two.one.begins(move |out| {
        out.ask(far, Message::Ask, LIMIT);
        out.ask(far, Message::Drop, LIMIT);
    });
    two.carry();
    assert_eq!(answered.wait().unwrap(), 7);
    assert!(matches!(dropped.wait(), Err(CommandError::Dropped)));
    // The drop is known in the step, and the reply behind it. They may have had one step or two.
    lock(&notes).sort_unstable();
    assert_eq!(*lock(&notes), [0, 1]);
    // The process ends with a reply that it has kept.
    two.one.runtime.send(far, Message::Stop).unwrap();
    two.carry();
    assert!(wait(&echo).is_done());
    assert!(matches!(kept.wait(), Err(CommandError::Ended(pid)) if pid == far.pid()));
    // And now there is no such process.
    let missing = ask(Message::Ask);
    two.carry();
    let missing = missing.wait();
    assert!(matches!(&missing, Err(CommandError::NoSuchProcess(_))), "{missing:?}");
    two.one.runtime.send(far, Message::Note(1)).unwrap();
    two.carry();
    assert_eq!(two.other.graves().len(), 2, "the question and the message are dead letters there");
    assert_eq!(two.open_questions(), [(0, 0); 2]);
    two.all_accounted_for();
}

/// Takes numbers.
struct OfOtherType;

impl Process for OfOtherType {
    type Message = u32;
    type Output = ();

    fn step(&mut self, _: &mut Events<'_, u32>, _: &mut StepOutput) -> StepResult<()> {
        Ok(Step::Idle)
    }
}

#[test]
fn a_full_mailbox_and_a_wrong_type_are_answered_as_on_one_node() {
    let two = two();
    let other = two.other.runtime.spawn(OfOtherType).unwrap();
    let wrong = two.far(other.pid().typed());
    let full_asks = two.one.runtime.ask(wrong, Message::Ask, LIMIT);
    two.carry();
    let answer = full_asks.wait();
    match answer {
        Err(CommandError::WrongType { pid, takes, sent }) => {
            assert_eq!((pid, &*takes, &*sent), (wrong.pid(), "u32", std::any::type_name::<Message>()));
        }
        answer => panic!("{answer:?}"),
    }
    let (begun, go) = (Latch::new(), Latch::new());
    let options = SpawnOptions::new().mailbox(1, Overflow::Refuse);
    let waits = two.other.runtime.spawn_with(Waits(begun.clone(), go.clone()), options).unwrap();
    let far = two.far(waits.address());
    let ask = || {
        let asked = two.one.runtime.ask(far, Message::Ask, LIMIT);
        two.carry_frames();
        asked
    };
    let first = ask();
    wait(&begun);
    // One has room in the mailbox.
    let [second, third, fourth] = [(); 3].map(|()| ask());
    for refused in [third, fourth] {
        let answer = refused.wait();
        assert!(matches!(&answer, Err(CommandError::Full(pid)) if *pid == far.pid()), "{answer:?}");
    }
    assert!(two.one.runtime.send(far, Message::Note(1)).is_ok());
    two.carry_frames();
    go.set(()).unwrap();
    two.carry();
    assert_eq!((first.wait().unwrap(), second.wait().unwrap()), (7, 7));
    let full = (waits.pid(), DeadLetterReason::Full);
    assert_eq!(lock(&two.other.graves).iter().filter(|grave| **grave == full).count(), 3);
    two.all_accounted_for();
}

/// Answers, after its first step has waited.
struct Waits(Latch<()>, Latch<()>);

impl Process for Waits {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        for event in events {
            if let Event::Message(Message::Ask(reply)) = event {
                let _ = self.0.set(());
                wait(&self.1);
                out.reply(reply, 7);
            }
        }
        Ok(Step::Idle)
    }
}

#[test]
fn a_message_that_cannot_be_decoded_is_a_dead_letter_and_disturbs_nobody() {
    const COUNT: u64 = 1_000;
    let two = two();
    let (_echo, far, notes) = two.echo();
    let mut answers = Vec::new();
    for number in 0..COUNT {
        let spoilt = if number % 2 == 0 { Spoilt::Fails } else { Spoilt::Panics };
        // One reply is in front of the part that cannot be decoded, and one behind it.
        let (front, back) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let (put, put_too) = (front.clone(), back.clone());
        let ask = |put: Arc<Mutex<Option<Reply<u64>>>>| {
            two.one.runtime.ask(
                far,
                move |reply| {
                    *lock(&put) = Some(reply);
                    Message::Note(number)
                },
                LIMIT,
            )
        };
        answers.extend([ask(put), ask(put_too)]);
        let replies = (lock(&front).take().unwrap(), lock(&back).take().unwrap());
        two.one.runtime.send(far, Message::Spoilt(replies.0, spoilt, replies.1)).unwrap();
    }
    two.carry();
    let expected: Vec<u64> = (0..COUNT).flat_map(|number| [number, number]).collect();
    assert_eq!(*lock(&notes), expected);
    let graves = two.other.graves();
    assert!(graves.len() as u64 == COUNT && graves.iter().all(|(_, why)| *why == DeadLetterReason::NotDecoded));
    for (place, answer) in answers.into_iter().enumerate() {
        let answer = answer.wait();
        if place % 2 == 1 {
            assert!(matches!(why_node(answer), NodeError::NotDecoded { .. }));
        } else {
            assert!(answer.is_err());
        }
    }
    assert_eq!(two.open_questions(), [(0, 0); 2]);
    two.all_accounted_for();
}

#[test]
fn when_the_connection_breaks_all_is_accounted_for_and_answered() {
    const COUNT: u64 = 10_000;
    let mut two = two();
    let (echo, far, notes) = two.echo();
    let kept: Vec<_> = (0..COUNT).map(|_| two.one.runtime.ask(far, Message::Keep, LIMIT)).collect();
    two.carry();
    let on_the_way: Vec<_> = (0..COUNT).map(|_| two.one.runtime.ask(far, Message::Keep, LIMIT)).collect();
    two.one.runtime.send(far, Message::Note(1)).unwrap();
    two.cut();
    for answer in kept.into_iter().chain(on_the_way) {
        assert_eq!(why_node(answer.wait()), NodeError::NodeDown);
    }
    let graves = two.one.graves();
    assert_eq!(graves.len() as u64, COUNT + 1);
    assert!(graves.iter().all(|letter| *letter == (far.pid(), DeadLetterReason::NodeDown)));
    // From now on nothing is queued for the node.
    let refused = two.one.runtime.send(far, Message::Note(2)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::NodeDown, .. }));
    assert_eq!(why_node(two.one.runtime.ask(far, Message::Ask, LIMIT).wait()), NodeError::NodeDown);
    // The askers of the replies that are held there wait no longer.
    two.other.runtime.send(echo.address(), Message::Release).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [0]);
    // The same node is connected again: its PIDs work. A new life is another node.
    two.connect(2);
    two.one.runtime.send(far, Message::Note(3)).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [0, 3]);
    two.cut();
    two.connect(3);
    assert_ne!(two.one.there, far.pid().node());
    let refused = two.one.runtime.send(far, Message::Note(4)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::NodeDown, .. }), "{refused}");
    two.all_accounted_for();
}

#[test]
fn an_asker_that_gives_up_tells_the_other_node_and_leaves_nothing() {
    const COUNT: u64 = 10_000;
    let two = two();
    // The full count is a million questions between two nodes.
    for _ in 0..counts(1, 100) {
        give_up(&two, COUNT);
    }
}

/// An asker gives up this number of questions, and two more.
fn give_up(two: &Two, count: u64) {
    let (echo, far, notes) = two.echo();
    let notes_here = two.one.begins(move |out| {
        for _ in 0..count {
            out.ask(far, Message::Keep, Duration::from_secs(1));
        }
    });
    // Some are dropped outside, before and after their questions have arrived.
    let early = two.one.runtime.ask(far, Message::Keep, LIMIT);
    drop(early);
    let late = two.one.runtime.ask(far, Message::Keep, LIMIT);
    two.carry();
    assert_eq!(two.open_questions(), [(count as usize + 1, 0), (0, count as usize + 1)]);
    drop(late);
    two.one.clock.advance(Duration::from_secs(2));
    until("each question is answered", || {
        two.carry();
        lock(&notes_here).len() as u64 == count
    });
    assert_eq!(two.open_questions(), [(0, 0); 2]);
    assert!(lock(&notes_here).iter().all(|answer| *answer == 0));
    // None of the replies that the other node has kept is open.
    two.other.runtime.send(echo.address(), Message::Release).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [0]);
    two.all_accounted_for();
}

#[test]
fn a_reply_whose_asker_has_given_up_is_closed_where_it_arrives() {
    let two = two();
    let (echo, far, notes) = two.echo();
    let kept = Arc::new(Mutex::new(None));
    let put = kept.clone();
    let (_near, near) = (two.one.echo(vec![]), far);
    let asked = two.one.runtime.ask(
        near,
        move |reply| {
            *lock(&put) = Some(reply);
            Message::Note(0)
        },
        LIMIT,
    );
    drop(asked);
    let reply = lock(&kept).take().unwrap();
    two.one.runtime.send(far, Message::Keep(reply)).unwrap();
    two.carry();
    assert_eq!(two.open_questions(), [(0, 0); 2]);
    two.other.runtime.send(echo.address(), Message::Release).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [0, 0], "a note, and no reply that is open");
}

#[test]
fn a_reply_in_an_answer_is_answered_also_if_the_answer_comes_too_late() {
    let two = two();
    let (echo, far, _) = two.echo();
    let ask_there = || two.other.runtime.ask(echo.address(), Message::Keep, LIMIT);
    let first = ask_there();
    two.carry();
    let introduced = two.one.runtime.ask(far, Message::Introduce, LIMIT);
    two.carry();
    assert!(introduced.wait().unwrap().send(5));
    two.carry();
    assert_eq!(first.wait().unwrap(), 5);
    // The next one is given up while its answer is on the way.
    let second = ask_there();
    two.carry();
    let introduced = two.one.runtime.ask(far, Message::Introduce, LIMIT);
    carry_from(&two.one, &two.other);
    until("the answer is on the way", || !lock(&two.other.cable.items).is_empty());
    drop(introduced);
    two.carry();
    assert!(matches!(second.wait(), Err(CommandError::Dropped)));
    assert_eq!(two.open_questions(), [(0, 0); 2]);
}

#[test]
fn a_message_for_or_from_another_node_ends_the_connection() {
    let two = two();
    let (_echo, far, _) = two.echo();
    let ((_near, near), _) = two.one.echo(vec![]);
    let connection = two.one.connection.as_ref().unwrap();
    let receive = || {
        let item = lock(&two.one.cable.items).pop_front().unwrap();
        two.other.connection.as_ref().unwrap().receive(&item.bytes)
    };
    // To a process of the sender's node, and from a process of the receiver's.
    connection.post((None, near.pid()), (Box::new(Message::Note(1)), None), false).unwrap();
    assert!(receive().unwrap_err().to_string().ends_with("a message has a sender or a receiver of another node"));
    connection.post((Some(far.pid()), far.pid()), (Box::new(Message::Note(1)), None), false).unwrap();
    assert!(receive().is_err());
    connection.post((Some(near.pid()), far.pid()), (Box::new(Message::Note(1)), None), false).unwrap();
    assert!(receive().is_ok());
}

#[test]
fn a_connection_that_is_replaced_answers_its_questions() {
    let mut two = two();
    let (_echo, far, _) = two.echo();
    let asked = two.one.runtime.ask(far, Message::Keep, LIMIT);
    two.carry();
    let before = two.one.connection.clone().unwrap();
    two.connect(2);
    assert_eq!(why_node(asked.wait()), NodeError::NodeDown);
    // The down of the first one does not touch the second one.
    two.one.node.down(&before, []);
    let asked = two.one.runtime.ask(far, Message::Ask, LIMIT);
    two.carry();
    assert_eq!(asked.wait().unwrap(), 7);
    let own = two.one.node.up((Life::Node(1), 7), &two.one.node.list().unwrap(), two.one.cable.clone());
    assert!(own.err().unwrap().to_string().contains("cannot connect to itself"));
}

#[test]
fn a_node_with_the_incarnation_of_another_one_does_not_take_its_place() {
    let two = two();
    let (_echo, far, notes) = two.echo();
    let impostor = Announced { name: "impostor".into(), life: (Life::Node(2), 7), store: None, protocol: PROTOCOL };
    let refused = two.one.node.up(impostor, &two.other.node.list().unwrap(), Arc::<Cable>::default());
    assert!(refused.err().unwrap().to_string().contains("is that of the node"));
    two.one.runtime.send(far, Message::Note(1)).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [1]);
}

#[test]
fn a_frame_that_nobody_understands_ends_the_connection_and_nothing_else() {
    let two = two();
    let connection = two.other.connection.as_ref().unwrap();
    for bytes in [&[][..], &[0; 4], &[0xff; 64], &[9, 0, 0, 0, 0], &[0, 0, 5, 1, 0, 99, 0, 0, 0, 0]] {
        assert!(connection.receive(bytes).is_err(), "{bytes:?}");
    }
    assert!(two.other.graves().is_empty());
    let (_echo, far, notes) = two.echo();
    two.one.runtime.send(far, Message::Note(1)).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [1]);
}
