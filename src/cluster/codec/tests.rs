//! Messages and answers between two sides without a network.

mod header_tests;

use std::any::Any;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::*;
use crate::cluster::failures::FarCommandError;
use crate::cluster::lives::Lives;
use crate::cluster::peer::PROTOCOL;
use crate::cluster::questions::{AnswerTypes, Questions};
use crate::cluster::remote::{MAX_BYTES, Remote};
use crate::cluster::wire::{Kind, NotEncoded, NotTaken, Taken, Takes, Wire, WireError};
use crate::latch::Latch;
use crate::pid::Address;
use crate::primitives::{Mutex, lock};
use crate::process::far_asker::AnswersElsewhere;
use crate::process::host::{Clerk, CountedHost, Host};
use crate::process::{Ask, CommandError, Reply};
use crate::sched::outbox::Outbox;

#[derive(Debug, Serialize, Deserialize)]
enum Message {
    Number(u64),
    Text(String),
    Processes(Pid, Address<Message>, Vec<Pid>),
    Ask(Reply<u64>),
    AskTwice(Vec<Reply<Pid>>),
    SameTwice(Twice),
    /// Both the encoder and the decoder fail on request.
    Fickle(Option<Reply<u64>>, Fickle),
}

crate::remote!(Message, "test::Message", 1);

/// Encodes its reply twice.
#[derive(Debug)]
struct Twice(Reply<u64>, Option<Reply<u64>>);

impl Serialize for Twice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (&self.0, &self.0).serialize(to)
    }
}

impl<'a> Deserialize<'a> for Twice {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Twice, D::Error> {
        let (one, same) = Deserialize::deserialize(from)?;
        Ok(Twice(one, Some(same)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fickle {
    Fine,
    FailsToEncode,
    PanicsInEncoder,
    FailsToDecode,
    PanicsInDecoder,
}

impl Serialize for Fickle {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Fickle::FailsToEncode => Err(serde::ser::Error::custom("on purpose")),
            Fickle::PanicsInEncoder => panic!("on purpose: in an encoder"),
            other => (*other as u8).serialize(to),
        }
    }
}

impl<'a> Deserialize<'a> for Fickle {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Fickle, D::Error> {
        match u8::deserialize(from)? {
            3 => Err(serde::de::Error::custom("on purpose")),
            4 => panic!("on purpose: in a decoder"),
            _ => Ok(Fickle::Fine),
        }
    }
}

/// Decodes a value.
fn decode<R>(side: &Arc<Side>, bytes: &[u8], read: impl FnOnce(&[u8]) -> Result<R, BoxError>) -> Result<R, BoxError> {
    let opened = open(side, bytes)?;
    opened.decode(Some(reader()), || read(opened.value))
}

/// Decodes a message of this kind.
fn decode_message(side: &Arc<Side>, bytes: &[u8], kind: &Kind) -> Result<Box<dyn Any + Send>, BoxError> {
    let mut outbox = Outbox::default();
    let lane = decode(side, bytes, |bytes| match &kind.takes {
        Takes::Message(decode) => decode(bytes, &mut outbox),
        Takes::Process(_) => Err("a process".into()),
    })?;
    Ok(outbox.lane(lane).pop().unwrap().message)
}

/// One node: its side of the connection, and what it has sent back.
struct Node {
    side: Arc<Side>,
    wire: Wire,
    clerk: Arc<Clerk>,
    closed: Arc<Mutex<Vec<u64>>>,
    answers: Arc<Desk>,
}

/// The number of a question, the process that has answered, and the encoded answer.
type Sent = (u64, Option<Pid>, Result<Vec<u8>, Vec<u8>>);

/// Keeps the answers for the other node, as they are encoded.
#[derive(Default)]
struct Desk {
    side: Mutex<Option<std::sync::Weak<Side>>>,
    sent: Mutex<Vec<Sent>>,
}

impl AnswersElsewhere for Desk {
    fn answered(&self, number: u64, from: Option<Pid>, answer: Result<Box<dyn Any + Send>, CommandError>) {
        let side = lock(&self.side).as_ref().and_then(|side| side.upgrade()).unwrap();
        let sent = match answer {
            Ok(value) => {
                let write = side.answers.of(&*value).unwrap();
                Ok(encode(&side, (0, MAX_BYTES), |to| write(&*value, to).map_err(NotEncoded::Failed)).unwrap().1.bytes)
            }
            Err(why) => {
                let why = FarCommandError::of(&why, PROTOCOL);
                Err(encode(&side, (0, MAX_BYTES), |to| to.encode(&why).map_err(NotEncoded::Failed)).unwrap().1.bytes)
            }
        };
        lock(&self.sent).push((number, from, sent));
    }
}

const ME: u64 = 100;
const OTHER: u64 = 200;
const THIRD: u64 = 300;

fn node(life: u64, here: u32, (other, wish): (u64, u32)) -> Node {
    let lives = Arc::new(Lives::new(Life::Node(life), here, Arc::default()));
    let there = lives.number(Life::Node(other), wish).unwrap();
    let (closed, clerk, answers) =
        (Arc::<Mutex<Vec<u64>>>::default(), Arc::new(Clerk::default()), Arc::<Desk>::default());
    let (notes, host) = (closed.clone(), clerk.clone());
    let counted = move || Some(Arc::new(host.clone() as Arc<dyn Host>) as CountedHost);
    let side = Arc::new(Side {
        lives,
        here,
        there,
        peer: "".into(),
        questions: Questions::new(move |number, _| lock(&notes).push(number)),
        answers: Arc::new(AnswerTypes::default()),
        desk: answers.clone(),
        host: Box::new(counted),
    });
    *lock(&answers.side) = Some(Arc::downgrade(&side));
    Node { side, wire: Wire::new().message::<Message>(), clerk, closed, answers }
}

/// Two nodes that have the same number, so each has another one for the other.
fn two() -> (Node, Node) {
    (node(ME, 7, (OTHER, 7)), node(OTHER, 7, (ME, 7)))
}

fn pid(node: u32, slot: u32) -> Pid {
    Pid::new(node, slot, 1).unwrap()
}

/// The process that gets messages.
fn reader() -> Pid {
    pid(7, 1)
}

impl Node {
    fn taken(&self, other: &Node) -> Taken {
        self.wire.taken_by(&other.wire.list().unwrap()).unwrap()
    }

    fn encode<M: Any>(&self, other: &Node, message: &M) -> Result<(u32, Encoded), NotEncoded> {
        let taken = self.taken(other);
        let outgoing = self.wire.outgoing(message, &taken)?;
        let (_, encoded) = encode(&self.side, (0, outgoing.limit), |to| outgoing.encode(message, to))?;
        Ok((outgoing.index, encoded))
    }

    fn decode(&self, (index, bytes): (u32, &[u8])) -> Result<Message, BoxError> {
        let kind = self.wire.kind(index).unwrap();
        let message = decode_message(&self.side, bytes, kind)?;
        Ok(*message.downcast::<Message>().unwrap())
    }

    /// Sends a message, and drops it here.
    fn send(&self, other: &Node, message: Message) -> Message {
        let (index, encoded) = self.encode(other, &message).unwrap();
        drop(message);
        other.decode((index, &encoded.bytes)).unwrap()
    }

    /// A question of a thread of this node.
    fn ask<T: Send + 'static>(&self) -> (Arc<Ask>, Reply<T>, Latch<Result<(), CommandError>>) {
        let (host, decided) = ((self.side.host)().unwrap(), Latch::new());
        let ask = Arc::new(Ask::from_outside::<T>(host, decided.clone(), pid(8, 1)));
        (ask.clone(), Reply::new(ask), decided)
    }

    /// Takes what the other node has answered.
    fn take_answers(&self, other: &Node) {
        for (number, _, answer) in std::mem::take(&mut *lock(&other.answers.sent)) {
            let answered = match answer {
                Ok(bytes) => self.side.questions.take(number, None).map(|question| {
                    let answer = decode(&self.side, &bytes, |bytes| question.decode(bytes)).unwrap();
                    question.answer(answer);
                }),
                Err(bytes) => {
                    let read = |bytes: &[u8]| Ok(super::super::guarded::decode::<FarCommandError>(bytes)?.here());
                    let why = decode(&self.side, &bytes, read).unwrap();
                    self.side.questions.take(number, None).map(|question| question.give_up(why))
                }
            };
            assert!(answered.is_some(), "the question was open");
        }
    }
}

#[test]
fn a_pid_that_comes_home_is_the_one_that_left_and_the_others_stay_apart() {
    let (one, other) = two();
    // One knows three lives: its own, the other's, and a third one. The other has seen neither its store nor the third.
    let third = one.side.lives.number(Life::Node(THIRD), 7).unwrap();
    let store = one.side.lives.number(Life::Store(ME), 500).unwrap();
    let all = [pid(7, 1), pid(one.side.there, 1), pid(third, 1), pid(store, 1), pid(third, 2)];
    let message = Message::Processes(all[0], all[1].typed(), all[2..].to_vec());
    let Message::Processes(mine, yours, rest) = one.send(&other, message) else { panic!("another message") };
    let there = [&[mine, yours.pid()], &rest[..]].concat();
    assert_eq!((there[0].node(), there[1], there[3].node()), (other.side.there, pid(7, 1), 500));
    let distinct: std::collections::HashSet<Pid> = there.iter().copied().collect();
    assert_eq!(distinct.len(), all.len());
    let back = Message::Processes(there[0], there[1].typed(), there[2..].to_vec());
    let Message::Processes(mine, yours, rest) = other.send(&one, back) else { panic!("another message") };
    assert_eq!([&[mine, yours.pid()], &rest[..]].concat(), all);
    // A PID of a node that was never seen says nothing elsewhere.
    let Err(error) = one.encode(&other, &Message::Processes(pid(9_000, 1), pid(7, 1).typed(), vec![])) else {
        panic!("it was encoded")
    };
    assert!(error.to_string().ends_with("<9000.1.1> is a PID of a node that this node does not know"), "{error}");
}

#[test]
fn a_reply_travels_and_the_asker_is_answered_once() {
    let (one, other) = two();
    let (ask, reply, decided) = one.ask::<u64>();
    let Message::Ask(far) = one.send(&other, Message::Ask(reply)) else { panic!("another message") };
    assert!(far.is_open() && decided.get().is_none() && one.side.questions.len() == 1);
    assert!(far.send(42), "the asker waits, as far as the other node knows");
    one.take_answers(&other);
    assert_eq!(ask.answered::<u64>(decided.take().unwrap()).unwrap(), 42);
    assert!(one.side.questions.take(0, None).is_none(), "it is answered already");
    assert_eq!((one.side.questions.len(), *lock(&one.clerk.late_replies)), (0, 0));
}

#[test]
fn a_reply_that_a_type_encodes_twice_is_one_question() {
    let (one, other) = two();
    let (ask, reply, decided) = one.ask::<u64>();
    let message = one.send(&other, Message::SameTwice(Twice(reply, None)));
    let Message::SameTwice(Twice(far, Some(same))) = message else { panic!("another message") };
    assert_eq!(one.side.questions.len(), 1);
    far.send(1);
    same.send(2);
    let answers = std::mem::take(&mut *lock(&other.answers.sent));
    assert_eq!((answers.len(), answers[0].0), (2, answers[1].0));
    *lock(&other.answers.sent) = answers.into_iter().take(1).collect();
    one.take_answers(&other);
    assert_eq!(ask.answered::<u64>(decided.take().unwrap()).unwrap(), 1);
}

#[test]
fn a_reply_is_sent_once_and_refused_if_it_is_not_in_the_table() {
    let (one, other) = two();
    let (_ask, reply, _decided) = one.ask::<u64>();
    let message = Message::Ask(reply);
    let (index, encoded) = one.encode(&other, &message).unwrap();
    let Err(error) = one.encode(&other, &message) else { panic!("it was encoded") };
    assert!(error.to_string().ends_with("was sent to another node before"), "{error}");
    // The first one is as it was.
    assert_eq!(one.side.questions.len(), 1);
    // A stranger leaves the number out of the table: the reply would cost more than its bytes.
    let bytes = &encoded.bytes;
    let value = &bytes[..bytes.len() - 12];
    assert!(other.decode((index, &[value, &[0; 4]].concat())).is_err());
    assert!(other.decode((index, bytes)).is_ok());
    encoded.into_parts().1.take_back();
    assert!(one.encode(&other, &message).is_ok());
}

#[test]
fn a_number_is_not_taken_for_a_reply_or_a_pid() {
    #[derive(Serialize, Deserialize)]
    #[serde(rename = "Value")]
    struct Value<T>(T);
    crate::remote!(Value<u64>, "test::Value", 1);
    crate::remote!(Value<Reply<u64>>, "test::Value", 1);
    crate::remote!(Value<(u32, u32, u32)>, "test::Triple", 1);
    crate::remote!(Value<Pid>, "test::Triple", 1);
    let wires = (
        Wire::new().message::<Value<u64>>().message::<Value<(u32, u32, u32)>>(),
        Wire::new().message::<Value<Reply<u64>>>().message::<Value<Pid>>(),
    );
    let taken = wires.0.taken_by(&wires.1.list().unwrap()).unwrap();
    let is_other = |message: &dyn Any| {
        let outgoing = wires.0.outgoing(message, &taken);
        matches!(outgoing, Err(NotEncoded::NotTaken { why: NotTaken::OtherShape, .. }))
    };
    assert!(is_other(&Value(1_u64)) && is_other(&Value((1_u32, 1_u32, 1_u32))));
}

#[test]
fn a_message_with_too_many_replies_is_refused_and_leaves_no_question() {
    let (one, other) = two();
    let asks: Vec<_> = std::iter::repeat_with(|| one.ask::<Pid>()).take(1_001).collect();
    let (replies, decided): (Vec<_>, Vec<_>) = asks.into_iter().map(|(_, reply, decided)| (reply, decided)).unzip();
    let mut message = Message::AskTwice(replies);
    let Err(error) = one.encode(&other, &message) else { panic!("it was encoded") };
    assert!(error.to_string().ends_with("one message cannot have more than 1000 replies"), "{error}");
    assert_eq!(one.side.questions.len(), 0);
    let Message::AskTwice(replies) = &mut message else { panic!("another message") };
    drop(replies.pop());
    assert!(matches!(decided[1_000].take(), Some(Err(CommandError::Dropped))));
    one.send(&other, message);
    assert_eq!(one.side.questions.len(), 1_000);
}

#[test]
fn answers_have_processes_and_errors_and_a_dropped_reply_says_so() {
    let (one, other) = two();
    let asks = [one.ask::<Pid>(), one.ask::<Pid>()];
    let [(first, one_reply, one_decided), (_, other_reply, other_decided)] = asks;
    let Message::AskTwice(mut far) = one.send(&other, Message::AskTwice(vec![one_reply, other_reply])) else {
        panic!("another message")
    };
    assert_eq!(one.side.questions.len(), 2);
    drop(far.pop());
    // Its own process, which is one of another node for the asker.
    far.pop().unwrap().send(pid(7, 3));
    one.take_answers(&other);
    assert_eq!(first.answered::<Pid>(one_decided.take().unwrap()).unwrap(), pid(one.side.there, 3));
    assert!(matches!(other_decided.take().unwrap(), Err(CommandError::Dropped)));
}

#[test]
fn a_reply_is_handed_on_to_a_third_node_and_comes_back_the_same_way() {
    let (one, other) = two();
    let (third, side_of_other) = (node(THIRD, 7, (OTHER, 7)), node(OTHER, 7, (THIRD, 7)));
    let (ask, reply, decided) = one.ask::<u64>();
    let far = one.send(&other, Message::Ask(reply));
    let Message::Ask(farther) = side_of_other.send(&third, far) else { panic!("another message") };
    assert!(lock(&other.answers.sent).is_empty(), "the emptied reply has answered nobody");
    farther.send(3);
    side_of_other.take_answers(&third);
    one.take_answers(&other);
    assert_eq!(ask.answered::<u64>(decided.take().unwrap()).unwrap(), 3);
}

#[test]
fn an_encoder_that_fails_or_panics_loses_no_question() {
    let (one, other) = two();
    for fickle in [Fickle::FailsToEncode, Fickle::PanicsInEncoder] {
        let (_ask, reply, decided) = one.ask::<u64>();
        let message = Message::Fickle(Some(reply), fickle);
        let Err(error) = one.encode(&other, &message) else { panic!("it was encoded") };
        assert!(error.to_string().starts_with("it cannot be encoded: "), "{error}");
        assert_eq!(one.side.questions.len(), 0);
        assert!(decided.get().is_none(), "the asker may be answered by others");
        // It answers as before.
        drop(message);
        assert!(decided.take().unwrap().is_err());
    }
    // A message that is handed back because there is no room.
    let (ask, reply, decided) = one.ask::<u64>();
    let message = Message::Ask(reply);
    let (_, encoded) = one.encode(&other, &message).unwrap();
    assert_eq!(one.side.questions.len(), 1);
    encoded.into_parts().1.take_back();
    assert_eq!(one.side.questions.len(), 0);
    let Message::Ask(reply) = message else { panic!("another message") };
    assert!(reply.send(9));
    assert_eq!(ask.answered::<u64>(decided.take().unwrap()).unwrap(), 9);
}

#[test]
fn a_message_that_cannot_be_decoded_is_an_error_and_no_panic() {
    let (one, other) = two();
    for fickle in [Fickle::FailsToDecode, Fickle::PanicsInDecoder] {
        let (_ask, reply, decided) = one.ask::<u64>();
        let message = Message::Fickle(Some(reply), fickle);
        let (index, encoded) = one.encode(&other, &message).unwrap();
        drop(message);
        assert!(other.decode((index, &encoded.bytes)).is_err());
        // The reply that was decoded before the error has told the asker.
        one.take_answers(&other);
        assert!(decided.take().unwrap().is_err());
        assert_eq!(one.side.questions.len(), 0);
    }
    // The table of lives is cut, or names a sort that does not exist.
    let (index, encoded) = one.encode(&other, &Message::Number(1)).unwrap();
    for bytes in [&[][..], &[0], &[1, 0], &[9, 9], &[0xff; 40], &[&encoded.bytes[..], &[1, 0]].concat()] {
        assert!(other.decode((index, bytes)).is_err(), "{bytes:?}");
    }
}

#[test]
fn when_the_asker_gives_up_the_connection_is_told_once() {
    let (one, other) = two();
    let (ask, reply, _decided) = one.ask::<u64>();
    let Message::Ask(far) = one.send(&other, Message::Ask(reply)) else { panic!("another message") };
    ask.give_up(CommandError::TimedOut);
    assert_eq!((&lock(&one.closed)[..], one.side.questions.len()), (&[0][..], 0));
    // An answer that is on its way finds no question.
    far.send(1);
    let number = lock(&other.answers.sent)[0].0;
    assert!(one.side.questions.take(number, None).is_none());
    // One that has given up before it is exported.
    let (ask, reply, _decided) = one.ask::<u64>();
    ask.give_up(CommandError::TimedOut);
    assert!(!reply.is_open());
    let _ = one.send(&other, Message::Ask(reply));
    assert_eq!((&lock(&one.closed)[..], one.side.questions.len()), (&[0, 1][..], 0));
}

#[test]
fn all_open_questions_of_a_broken_connection_are_answered() {
    let (one, other) = two();
    let asks: Vec<_> = std::iter::repeat_with(|| one.ask::<u64>()).take(1_000).collect();
    let (mut decided, mut far) = (Vec::new(), Vec::new());
    for (_, reply, latch) in asks {
        far.push(one.send(&other, Message::Ask(reply)));
        decided.push(latch);
    }
    one.side.questions.answer_all(|_| CommandError::Interrupted);
    let all = decided.iter().all(|decided| matches!(decided.take(), Some(Err(CommandError::Interrupted))));
    assert!(all && one.side.questions.len() == 0);
}

#[test]
fn a_message_that_is_too_large_is_refused_with_both_sizes() {
    #[derive(Serialize, Deserialize)]
    struct Short(String);
    crate::remote!(Short, "test::Short", 1, max_bytes = 100);
    let (mut one, other) = two();
    let Err(error) = one.encode(&other, &Message::Text("x".repeat(MAX_BYTES))) else { panic!("it was encoded") };
    let size = MAX_BYTES + 5;
    assert_eq!(error.to_string(), format!("it has {size} bytes when it is encoded, and the limit is {MAX_BYTES}"));
    let (index, encoded) = one.encode(&other, &Message::Text("x".repeat(MAX_BYTES - 5))).unwrap();
    assert!(matches!(other.decode((index, &encoded.bytes)), Ok(Message::Text(text)) if text.len() == MAX_BYTES - 5));
    one.wire = one.wire.message::<Short>();
    let taken = one.wire.taken_by(&one.wire.list().unwrap()).unwrap();
    let message = Short("x".repeat(100));
    let outgoing = one.wire.outgoing(&message, &taken).unwrap();
    let refused = encode(&one.side, (0, outgoing.limit), |to| outgoing.encode(&message, to));
    assert!(matches!(refused, Err(NotEncoded::TooLarge(_))));
}

#[test]
fn a_type_that_only_one_node_knows_is_refused_where_it_is_sent() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Local(u8);
    let (mut one, mut other) = two();
    assert!(matches!(one.encode(&other, &Local(1)), Err(NotEncoded::NotRemote)));
    crate::remote!(Local, "test::Local", 2);
    one.wire = one.wire.message::<Local>();
    let why = |one: &Node, other: &Node| match one.encode(other, &Local(1)) {
        Err(NotEncoded::NotTaken { why, .. }) => Some(why),
        _ => None,
    };
    assert_eq!(why(&one, &other), Some(NotTaken::OtherVersions(vec![])));
    // The other node has an older version, and then the same one with another field.
    #[derive(Debug, Serialize, Deserialize)]
    struct Older(u8);
    crate::remote!(Older, "test::Local", 1);
    other.wire = other.wire.message::<Older>();
    assert_eq!(why(&one, &other), Some(NotTaken::OtherVersions(vec![1])));
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(rename = "Local")]
    struct Other(u16);
    crate::remote!(Other, "test::Local", 2);
    let wire = std::mem::take(&mut other.wire);
    other.wire = wire.message::<Other>();
    assert_eq!(why(&one, &other), Some(NotTaken::OtherShape));
    // It takes version 2 as its version 1.
    other.wire = Wire::new().message::<Older>().accepts(|Local(number)| Older(number + 1));
    let (index, encoded) = one.encode(&other, &Local(1)).unwrap();
    let kind = other.wire.kind(index).unwrap();
    let older = decode_message(&other.side, &encoded.bytes, kind).unwrap();
    assert!(matches!(older.downcast_ref(), Some(Older(2))));
}

#[test]
fn a_wire_that_cannot_work_says_so() {
    #[derive(Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        inner: Inner,
    }
    #[derive(Serialize, Deserialize)]
    struct Inner {
        a: u8,
    }
    crate::remote!(Flat, "test::Flat", 1);
    crate::remote!(Inner, "test::Message", 1);
    assert_eq!(Wire::new().message::<Message>().check(), Ok(()));
    let error = Wire::new().message::<Message>().message::<Inner>().check().unwrap_err();
    assert!(matches!(error, WireError::SameName { name: "test::Message", version: 1, .. }), "{error}");
    let error = Wire::new().message::<Flat>().check().unwrap_err();
    assert!(matches!(error, WireError::NeedsDescription { type_name } if type_name.ends_with("Flat")), "{error}");
    assert!(error.to_string().contains("Remove `flatten`"), "{error}");
}

#[test]
fn a_list_of_types_from_a_stranger_is_refused_or_read() {
    let (one, _) = two();
    assert!(one.wire.taken_by(&[0xff; 9]).is_err());
    assert!(one.wire.taken_by(&[]).is_err());
    let list = postcard::to_stdvec(&vec![(0_u8, "test::Message", 1_u32, 0_u64); 1_000]).unwrap();
    let taken = one.wire.taken_by(&list).unwrap();
    assert!(matches!(one.wire.outgoing(&Message::Number(1), &taken), Err(NotEncoded::NotTaken { .. })));
    assert_eq!(<Message as Remote>::MAX_BYTES, MAX_BYTES);
}
