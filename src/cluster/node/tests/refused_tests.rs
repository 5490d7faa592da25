//! Messages that are refused where they are sent: from outside, in a step, and in a question.

use super::*;
use crate::process::Completion;

/// Only the first node knows it.
#[derive(Serialize, Deserialize)]
struct Unknown(Option<Reply<u64>>, u8);

crate::remote!(Unknown, "test::Unknown", 1);

/// No node knows it. Nobody reads its reply.
struct Home(#[allow(dead_code)] Option<Reply<u64>>, u8);

/// Its limit is low.
#[derive(Serialize, Deserialize)]
struct Short(Option<Reply<u64>>, String);

crate::remote!(Short, "test::Short", 1, max_bytes = 100);

/// Its limit is that of all types.
#[derive(Serialize, Deserialize)]
struct Long(Option<Reply<u64>>, String);

crate::remote!(Long, "test::Long", 1);

const MIB: usize = 1 << 20;

/// A text with which a message without a reply has 16 MiB when it is encoded.
const LONGEST: usize = 16 * MIB - 5;

/// Two nodes that are connected.
fn two_nodes() -> Two {
    let both = |wire: Wire| wire.message::<Short>().message::<Long>();
    two_with(|wire| wire.message::<Short>().message::<Long>().message::<Unknown>(), both)
}

type Begin = Box<dyn FnOnce(&mut StepOutput) + Send>;

/// Yields this in its first step, and notes the errors of its questions.
struct Asker(Option<Begin>, Arc<Mutex<Vec<String>>>);

impl Process for Asker {
    type Message = ();
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, ()>, out: &mut StepOutput) -> StepResult<()> {
        self.0.take().into_iter().for_each(|begin| begin(out));
        for event in events {
            if let Event::Completed(done) = event {
                self.note(&done);
            }
        }
        Ok(Step::Idle)
    }
}

impl Asker {
    fn note(&self, done: &Completion) {
        done.look(&mut |answer| {
            lock(&self.1).push(answer.as_ref().err().map_or("an answer".into(), |why| why.to_string()));
        });
    }
}

/// Sends the messages of `make` in every way, and returns the error.
///
/// A message from outside comes back. The message and the question of a step are dead letters. Each question is
/// answered with the error. Nothing is sent to the other node.
fn refused<M: Send + 'static>(two: &Two, make: impl Fn(Option<Reply<u64>>) -> M + Copy + Send + 'static) -> NodeError {
    let (_echo, far, _) = two.echo();
    let far: Address<M> = far.pid().typed();
    let refused = two.one.runtime.send(far, make(None)).unwrap_err();
    let SendError::Node { pid, why } = refused.reason().clone() else { panic!("{refused}") };
    assert_eq!(pid, far.pid());
    let _back: M = refused.into_inner();
    let asked = two.one.runtime.ask(far, move |reply| make(Some(reply)), LIMIT).wait().unwrap_err();
    assert_eq!(two.one.graves(), []);
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let begin = move |out: &mut StepOutput| {
        out.send(far, make(None));
        out.ask(far, move |reply| make(Some(reply)), LIMIT);
    };
    let _asker = two.one.runtime.spawn(Asker(Some(Box::new(begin)), seen.clone())).unwrap();
    until("the step has its answer", || two.one.runtime.is_idle());
    assert_eq!(*lock(&seen), [asked.to_string()]);
    assert_eq!(two.one.graves(), [(far.pid(), DeadLetterReason::NotSent); 2]);
    assert_eq!((lock(&two.one.cable.items).len(), two.open_questions()), (0, [(0, 0); 2]));
    two.all_accounted_for();
    // A question is larger than a message without a reply.
    let asked = why_node(Err(asked));
    let is_same = std::mem::discriminant(&asked) == std::mem::discriminant(&why);
    assert!(is_same, "{asked} and {why}");
    why
}

#[test]
fn a_type_that_does_not_travel_is_refused_in_every_call() {
    let two = two_nodes();
    let why = refused(&two, |reply| Home(reply, 1));
    let text = "does not travel: implement `Remote` for it, and register it with `Wire::message`";
    assert!(matches!(why, NodeError::NotRemote { type_name } if type_name.ends_with("::Home")), "{why}");
    assert!(why.to_string().ends_with(text), "{why}");
    let why = refused(&two, |reply| Unknown(reply, 1));
    let text = "\"test::Unknown\" in version 1: it does not know the name";
    assert!(matches!(why, NodeError::NotTaken { name: "test::Unknown", version: 1, .. }), "{why}");
    assert!(why.to_string().contains(text), "{why}");
}

#[test]
fn a_message_beyond_its_limit_is_refused_in_every_call_and_16_mib_pass() {
    let two = two_nodes();
    let why = refused(&two, |reply| Short(reply, "x".repeat(99)));
    assert_eq!(why, NodeError::TooLarge { size: 101, limit: 100 });
    let why = refused(&two, |reply| Long(reply, "x".repeat(LONGEST + 1)));
    assert_eq!(why, NodeError::TooLarge { size: 16 * MIB + 1, limit: 16 * MIB });
    // One byte less is sent, from outside and from a step. The process there takes another type.
    let (_echo, far, _) = two.echo();
    let to: Address<Long> = far.pid().typed();
    let long = || Long(None, "x".repeat(LONGEST));
    two.one.runtime.send(to, long()).unwrap();
    two.one.begins(move |out| out.send(to, long()));
    two.carry();
    assert_eq!(two.one.graves(), []);
    assert_eq!(two.other.graves().iter().map(|(_, why)| *why).collect::<Vec<_>>(), [DeadLetterReason::WrongType; 2]);
    two.all_accounted_for();
}

#[test]
fn a_message_that_cannot_be_sent_comes_back_or_is_a_dead_letter() {
    let two = two_nodes();
    let (_echo, far, notes) = two.echo();
    let refused = two.one.runtime.send(far.pid().typed(), Unknown(None, 3)).unwrap_err();
    assert_eq!(refused.into_inner().1, 3);
    let refused = two.one.runtime.send(far.pid().typed(), Home(None, 9)).unwrap_err();
    assert_eq!(refused.into_inner().1, 9);
    // While there is no room, a question is answered with the reason.
    *lock(&two.one.cable.refuses) = Some(Refused::Busy);
    let refused = two.one.runtime.send(far, Message::Note(5)).unwrap_err();
    assert!(matches!(refused.reason(), SendError::Node { why: NodeError::Busy, .. }));
    assert_eq!(why_node(two.one.runtime.ask(far, Message::Ask, LIMIT).wait()), NodeError::Busy);
    assert_eq!(two.open_questions(), [(0, 0); 2]);
    *lock(&two.one.cable.refuses) = None;
    two.one.runtime.send(far, refused.into_inner()).unwrap();
    two.carry();
    assert_eq!(*lock(&notes), [5]);
    two.all_accounted_for();
}
