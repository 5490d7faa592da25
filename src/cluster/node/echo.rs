//! The process of the tests: it notes numbers, and answers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::pid::Address;
use crate::primitives::{Arc, Mutex, lock};
use crate::process::{Event, Events, Process, Reply, Step, StepOutput, StepResult};

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::cluster) enum Message {
    Note(u64),
    Ask(Reply<u64>),
    Keep(Reply<u64>),
    Drop(Reply<u64>),
    /// Is answered with a reply that was kept.
    Introduce(Reply<Reply<u64>>),
    /// Answers the replies that were kept, and notes how many were still open.
    Release,
    Ball(u64, Address<Message>),
    /// The reply is behind a part that cannot be decoded, and in front of one.
    Spoilt(Reply<u64>, Spoilt, Reply<u64>),
    Stop,
}

crate::remote!(Message, "test::Message", 1);

/// Cannot be decoded. The panic is on purpose.
#[derive(Debug)]
pub(in crate::cluster) enum Spoilt {
    Fails,
    Panics,
}

impl Serialize for Spoilt {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        matches!(self, Spoilt::Panics).serialize(to)
    }
}

impl<'a> Deserialize<'a> for Spoilt {
    fn deserialize<D: Deserializer<'a>>(from: D) -> Result<Spoilt, D::Error> {
        if bool::deserialize(from)? {
            panic!("on purpose: in a decoder");
        }
        Err(serde::de::Error::custom("on purpose"))
    }
}

pub(in crate::cluster) type Begin = Vec<Box<dyn FnOnce(&mut StepOutput) + Send>>;

pub(in crate::cluster) type Notes = Arc<Mutex<Vec<u64>>>;

/// Notes numbers, and answers.
pub(in crate::cluster) struct Echo {
    pub(in crate::cluster) notes: Notes,
    pub(in crate::cluster) kept: Vec<Reply<u64>>,
    pub(in crate::cluster) begin: Begin,
}

impl Process for Echo {
    type Message = Message;
    type Output = ();

    fn step(&mut self, events: &mut Events<'_, Message>, out: &mut StepOutput) -> StepResult<()> {
        self.begin.drain(..).for_each(|begin| begin(out));
        for event in events {
            match event {
                Event::Message(Message::Note(number)) => lock(&self.notes).push(number),
                Event::Message(Message::Ask(reply)) => out.reply(reply, 7),
                Event::Message(Message::Keep(reply)) => self.kept.push(reply),
                Event::Message(Message::Drop(reply)) => drop(reply),
                Event::Message(Message::Introduce(reply)) => {
                    if let Some(kept) = self.kept.pop() {
                        out.reply(reply, kept);
                    }
                }
                Event::Message(Message::Release) => {
                    let open = self.kept.iter().filter(|reply| reply.is_open()).count();
                    lock(&self.notes).push(open as u64);
                    self.kept.drain(..).for_each(|reply| out.reply(reply, 8));
                }
                Event::Message(Message::Ball(0, _) | Message::Spoilt(..)) => {}
                Event::Message(Message::Ball(count, from)) => {
                    lock(&self.notes).push(count);
                    let me: Address<Message> = out.pid().typed();
                    out.send(from, Message::Ball(count - 1, me));
                }
                Event::Message(Message::Stop) | Event::Cancel(_) => return Ok(Step::Done(())),
                Event::Completed(done) => {
                    done.look(&mut |answer| lock(&self.notes).push(if answer.is_ok() { 1 } else { 0 }));
                }
                _ => {}
            }
        }
        Ok(Step::Idle)
    }
}
